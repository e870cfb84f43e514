"""Reading ZIP files."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator

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
def extracted(path: PathLike, what: str) -> Iterator[str]:
    """A temporary folder with the members of a ZIP file, for the block. Errors in the block name
    the ZIP file instead of the folder; `what` describes it."""
    source = require_file(path, what)
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        with opened_zip(source) as archive:
            archive.extractall(folder)  # drops .. and absolute paths from the names
        try:
            yield folder
        except (InputError, FileNotFoundError) as error:
            text = str(error).replace(folder + os.sep, f"{source}: ").replace(folder, source)
            raise type(error)(text) from error
