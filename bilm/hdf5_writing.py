"""HDF5 files that are read back before anyone relies on them."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

_ARRAYS = 256  # that are read back


@contextlib.contextmanager
def writing_hdf5(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """A new HDF5 file for the writing that the block does, which is then compared with what is
    read back: errors of the disk while the file is closed do not always arrive otherwise.

    Raises:
        OSError: the disk did not take it.
    """
    path = os.fspath(path)
    with h5py.File(path, "w") as file:
        yield file
        file.flush()
        written = _summary(file)
    with h5py.File(path, "r") as file:
        is_whole = _summary(file) == written
    if not is_whole:
        raise OSError(f"{path}: cannot be written: what is read back is not what was written.")


def _summary(file: h5py.File) -> int:
    """A checksum of all names, and of the shapes and numbers of up to 256 arrays, evenly chosen,
    the first and the last among them; of an array above a megabyte, of two of its rows. To open
    each of a million would take as long as to write them."""
    names: list[str] = []
    file.visit(names.append)
    value = zlib.crc32(repr(names).encode())
    chosen = np.unique(np.linspace(0, max(len(names) - 1, 0), _ARRAYS).astype(int))
    for name in (names[k] for k in chosen if names):
        item: Any = file[name]
        value = zlib.crc32(repr(getattr(item, "shape", None)).encode(), value)
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.size:
            parts = [item[()]] if item.nbytes <= 2**20 else [item[0], item[-1]]
            for part in parts:
                value = zlib.crc32(np.asarray(part).tobytes(), value)
    return value
