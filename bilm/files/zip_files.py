"""Reading ZIP files: models, and Keras models."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, require_file

# Exceptions of zipfile for damaged or missing members, passwords and unknown compression methods.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, LookupError, struct.error,
    OSError,  # of a seek before the start of the file
)  # fmt: skip


@contextlib.contextmanager
def opened_zip(path: PathLike) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP file; an InputError names it if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InputError:
        raise
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise InputError(
            f"{path}: the ZIP file cannot be read: {error!r}. Delete it and get it again."
        ) from error


@contextlib.contextmanager
def extracted(
    path: PathLike, what: str, choose: Callable[[list[str]], Iterable[str | None]]
) -> Iterator[str]:
    """A temporary folder with members of a ZIP file, without the folders in their names; `choose`
    selects them by name.

    Errors in the block name the ZIP file instead of the temporary folder; `what` describes it.
    """
    source = require_file(path, what)
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        with opened_zip(source) as archive:
            for name in filter(None, choose(archive.namelist())):
                target = os.path.join(folder, posixpath.basename(name))
                with archive.open(name) as member, open(target, "wb") as copy:
                    shutil.copyfileobj(member, copy, 2**20)
        try:
            yield folder
        except (InputError, FileNotFoundError) as error:
            text = str(error).replace(folder + os.sep, f"{source}: ").replace(folder, source)
            raise type(error)(text) from error
