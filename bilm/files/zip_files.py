"""Reading ZIP files: models, and Keras models."""

from __future__ import annotations

import contextlib
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
from bilm.files.writing import named_in_errors

# Exceptions of zipfile for damaged or missing members, passwords and unknown compression methods.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, LookupError, struct.error,
)  # fmt: skip


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
        try:
            with zipfile.ZipFile(source) as archive:
                for name in filter(None, choose(archive.namelist())):
                    target = os.path.join(folder, posixpath.basename(name))
                    with (
                        named_in_errors(target),
                        archive.open(name) as member,
                        open(target, "wb") as copy,
                    ):
                        shutil.copyfileobj(member, copy, 2**20)
        except InputError:
            raise
        except _DAMAGED as error:
            raise InputError(f"{source}: the ZIP file cannot be read: {error!r}") from error
        try:
            yield folder
        except (InputError, FileNotFoundError) as error:
            text = str(error).replace(folder + os.sep, f"{source}: ").replace(folder, source)
            raise type(error)(text) from error
