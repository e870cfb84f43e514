"""ZIP files that others may have made: models, torch's tensors, NumPy's arrays, Keras's models.

A ZIP file says itself how large its members are once they are unpacked, and may lie, or tell the
truth of a million times its own size. Nothing is unpacked before its size is known to be possible.
"""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import posixpath
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from bilm.core.errors import InputError
from bilm.files.reading import COMPRESSED, LONGEST_LINE, PathLike, most_unpacked, require_file

# What zipfile raises for files that are damaged, and for those that it cannot read.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, OverflowError,
    IndexError, MemoryError, struct.error,
)  # fmt: skip
# An OSError of bzip2's reader has no number; that of a place before the beginning of the file has
# this one. All others are of the disk.
_OF_ZIP = (None, errno.EINVAL)
_UNKNOWN = (RuntimeError, NotImplementedError)


class Archive:
    """The members of a ZIP file; see `open_archive`.

    Attributes:
        path: of the file.
        names: of its members, which may be anything and lead anywhere.
    """

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self.names = archive.namelist()
        self._left = most_unpacked(os.path.getsize(path))

    def size(self, name: str) -> int:
        """The bytes of a member, as the file says.

        Raises:
            InputError: there is no such member.
        """
        try:
            return self._archive.getinfo(name).file_size
        except KeyError:
            raise InputError(f"{self.path}: there is no {name!r} in it.") from None

    def read(self, name: str, most: int = LONGEST_LINE) -> bytes:
        """A member that has at most `most` bytes.

        Raises:
            InputError: it has more, or is not there, or all that was taken of the file is more
                than it can hold.
        """
        if self.size(name) > most:
            raise InputError(
                f"{self.path}: {name}: at most {most:,} bytes are expected, not "
                f"{self.size(name):,}."
            )
        with self.open(name) as member:
            return member.read()

    def extract(self, name: str, folder: str) -> str:
        """Copy a member into a folder, to a name that is ours, and return that.

        Raises:
            InputError: as for `read`, or the disk has no room for it.
        """
        target, size = os.path.join(folder, posixpath.basename(name)), self.size(name)
        free = shutil.disk_usage(folder).free
        if size > free:
            raise InputError(
                f"{self.path}: {name}: {size:,} bytes are needed to unpack it, and {free:,} are "
                f"free in {os.path.dirname(folder)}."
            )
        with self.open(name) as member, open(target, "wb") as copy:
            shutil.copyfileobj(member, copy, 2**20)
        if os.path.getsize(target) != size:
            raise InputError(f"{self.path}: {name}: cut off.")
        return target

    def open(self, name: str) -> IO[bytes]:
        """A member, to be read; zipfile gives no more bytes than its `size`. Errors as `read`."""
        size, room = self.size(name), self._left
        if name.endswith(COMPRESSED):  # unpacked once more, it would be too much
            room = min(room, most_unpacked(0) + 2 * self._archive.getinfo(name).compress_size)
        if size > room:
            raise InputError(
                f"{self.path}: {name}: {size:,} bytes, which is more than a file of "
                f"{os.path.getsize(self.path):,} bytes may unpack to: unpack it first."
            )
        self._left -= size
        return self._archive.open(name)


@contextlib.contextmanager
def open_archive(path: PathLike, what: str) -> Iterator[Archive]:
    """Open a ZIP file for the reading that the block does.

    Raises:
        FileNotFoundError: there is no such file; the message calls it `what`.
        InputError: what the block reads is damaged, encrypted, or more than the file can hold.
    """
    path = require_file(path, what)
    try:
        with zipfile.ZipFile(path) as archive:
            yield Archive(path, archive)
    except InputError:
        raise
    except OSError as error:
        if error.errno not in _OF_ZIP:
            raise
        raise InputError(f"{path}: a damaged ZIP file: {error}") from error
    except _DAMAGED as error:
        detail = str(error) or type(error).__name__
        raise InputError(f"{path}: a damaged ZIP file: {detail}") from error
    except _UNKNOWN as error:
        raise InputError(f"{path}: a ZIP file that cannot be read: {error}") from error
