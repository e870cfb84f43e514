"""An array in a file that is read and written a part at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

_PART_BYTES = 16 * 2**20


class DiskArray:
    """An array within a file, in C order; no part of it stays in memory.

    Args:
        path: the file.
        dtype, shape: of the array; (..., tokens, dim).
        offset: bytes before it in the file.
    """

    def __init__(self, path: str, dtype: np.dtype, shape: tuple[int, ...], offset: int = 0) -> None:
        self.path = path
        self.dtype = dtype
        self.shape = shape
        self.offset = offset
        self.n_bytes = dtype.itemsize * math.prod(shape)

    @classmethod
    def create(cls, path: str, dtype: np.dtype, shape: tuple[int, ...]) -> DiskArray:
        """A new file of zeros."""
        array = cls(path, dtype, shape)
        with open(path, "wb") as file:
            file.truncate(array.n_bytes)
        return array

    def _mapped(self, mode: Any) -> np.memmap:
        # A mapping that goes away at once: its pages then do not count as the program's memory.
        return np.memmap(self.path, self.dtype, mode, self.offset, self.shape)

    def __setitem__(self, place: Any, value: np.ndarray) -> None:
        self._mapped("r+")[place] = value

    def read(self, file: IO[bytes] | None = None) -> np.ndarray:
        """The whole array; `file` is the open file, if there is one."""
        if file is None:
            n = math.prod(self.shape)
            return np.fromfile(self.path, self.dtype, n, offset=self.offset).reshape(self.shape)
        content = os.pread(file.fileno(), self.n_bytes, self.offset)
        return np.frombuffer(content, self.dtype).reshape(self.shape)

    def parts(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(start, stop, array[..., start:stop, :]), from the first token to the last."""
        n_tokens = self.shape[-2]
        step = max(1, _PART_BYTES * n_tokens // max(self.n_bytes, 1))
        for start in range(0, n_tokens, step):
            stop = min(start + step, n_tokens)
            yield start, stop, np.array(self._mapped("r")[..., start:stop, :])

    def content(self) -> Iterator[bytes]:
        """The bytes of the array, part by part."""
        with open(self.path, "rb") as file:
            for start in range(0, self.n_bytes, _PART_BYTES):
                n = min(_PART_BYTES, self.n_bytes - start)
                yield os.pread(file.fileno(), n, self.offset + start)
