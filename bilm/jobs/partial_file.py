"""The vectors of a run that is not over: a folder beside the result, which survives a crash.

HDF5 files that are cut off while they are written are lost as a whole, so vectors are first laid
end to end in a plain file, with an index beside it. The index names a sentence only when its
vectors are on the disk; what is beyond the index is cut off when the run is resumed.

    run.json    what is computed: only the same run is resumed
    vectors     the arrays, one after the other
    index       a line a sentence: number of its line, tokens, text
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, read_json_object
from bilm.files.writing import require_alone, write_json

_PART_BYTES = 16 * 2**20


class IndexEntry(NamedTuple):
    """A line of the index."""

    line: int  # number of the sentence's line in the text, from 0
    text: str  # the sentence, without white space around it
    n_tokens: int

    def encoded(self) -> bytes:
        """The line of the file."""
        return f"{self.line}\t{self.n_tokens}\t{self.text}\n".encode()

    @classmethod
    def parsed(cls, line: bytes) -> IndexEntry | None:
        """The inverse of `encoded`; None if the line is cut off or damaged."""
        fields = line[:-1].split(b"\t", 2)
        if not line.endswith(b"\n") or len(fields) != 3 or b"\0" in line:
            return None
        number, n_tokens, text = fields
        if not (number.isdigit() and n_tokens.isdigit()):
            return None
        try:
            return cls(int(number), text.decode(), int(n_tokens))
        except ValueError:  # not UTF-8, or thousands of digits
            return None


class DiskArray:
    """An array within a file, in C order; no part of it stays in memory.

    Args:
        path: the file.
        dtype, shape: of the array; (..., tokens, dim).
        offset: bytes before it in the file.
        part_bytes: of the parts in which it is read.
    """

    def __init__(
        self,
        path: str,
        dtype: np.dtype,
        shape: tuple[int, ...],
        offset: int = 0,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        self.path, self.offset, self.part_bytes = path, offset, part_bytes
        self.dtype, self.shape = dtype, shape
        self.n_bytes = dtype.itemsize * math.prod(shape)

    @classmethod
    def create(
        cls, path: str, dtype: np.dtype, shape: tuple[int, ...], part_bytes: int = _PART_BYTES
    ) -> DiskArray:
        """A new file of zeros."""
        array = cls(path, dtype, shape, part_bytes=part_bytes)
        with open(path, "wb") as file:
            grow(file, 0, array.n_bytes)
        return array

    def _mapped(self, mode: Any) -> np.memmap:
        # A mapping that goes away at once: its pages then do not count as the program's memory.
        return np.memmap(self.path, self.dtype, mode, self.offset, self.shape)

    def __setitem__(self, index: Any, value: np.ndarray) -> None:
        self._mapped("r+")[index] = value

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
        step = max(1, self.part_bytes * n_tokens // max(self.n_bytes, 1))
        for start in range(0, n_tokens, step):
            stop = min(start + step, n_tokens)
            yield start, stop, np.array(self._mapped("r")[..., start:stop, :])

    def mapped(self) -> np.ndarray:
        """The array as the file's pages, which come into memory when they are read."""
        return self._mapped("r")

    def content(self) -> Iterator[bytes]:
        """The bytes of the array, part by part."""
        with open(self.path, "rb") as file:
            for start in range(0, self.n_bytes, self.part_bytes):
                n = min(self.part_bytes, self.n_bytes - start)
                yield os.pread(file.fileno(), n, self.offset + start)


def grow(file: IO[bytes], size: int, n_bytes: int) -> None:
    """Let a file of `size` bytes be longer by `n_bytes` of zeros.

    Raises:
        OSError: the disk has no room for them. Without this check a program that writes to such
            a place by way of its memory is killed.
    """
    if n_bytes and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), size, n_bytes)
    else:
        file.truncate(size + n_bytes)


class EmbeddedSentence(NamedTuple):
    """A sentence and its vectors, (tokens, dim) or (n_layers, tokens, dim), or without tokens
    when they are pooled; a `DiskArray` if they are many."""

    line: int
    text: str
    vectors: Any


class PartialFile:
    """Vectors that are written for as long as a run lasts; a context manager.

    Args:
        folder: where they are; it is made, or resumed if it is there.
        run: what is computed, JSON-able; "shape" is that of a sentence's array, with None for the
            number of tokens, and "dtype" its type.
        save_seconds, save_bytes: what was added is saved so often.
        memory_bytes: larger arrays are read and written in parts of half of that.

    Attributes:
        n_sentences, n_tokens: how many there are.

    Raises:
        InputError: the folder is from a run of another kind, or another process writes to it.
    """

    def __init__(
        self,
        folder: PathLike,
        run: Mapping[str, Any],
        *,
        save_seconds: float = 5.0,
        save_bytes: int = 256 * 2**20,
        memory_bytes: int = 32 * 2**20,
    ) -> None:
        self.folder = os.fspath(folder)
        self.shape = tuple(run["shape"])
        self.dtype = np.dtype(run["dtype"])
        self.n_sentences = self.n_tokens = 0
        self._save_seconds, self._save_bytes = save_seconds, save_bytes
        self._memory_bytes, self._part_bytes = memory_bytes, memory_bytes // 2
        self._size = 0
        self._pending: list[bytes] = []
        self._n_long = 0
        os.makedirs(self.folder, exist_ok=True)
        self._index = open(self._path("index"), "a+b")  # noqa: SIM115
        self._vectors = open(self._path("vectors"), "a+b")  # noqa: SIM115
        try:
            require_alone(self._index, self.folder)
            self._recover(run)
        except BaseException:
            self.close()
            raise
        self._saved = (time.monotonic(), self._size)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _recover(self, run: Mapping[str, Any]) -> None:
        """Keep what is whole, and cut off what is not."""
        if os.path.exists(self._path("run.json")):
            before = read_json_object(self._path("run.json"))
            names = sorted(set(before) | set(run))
            differences = [n for n in names if before.get(n) != run.get(n)]
            if differences:
                listed = ", ".join(f"{n} {before.get(n)}, not {run.get(n)}" for n in differences)
                raise InputError(f"{self.folder}: holds vectors of another run: {listed}.")
        else:
            self._index.truncate(0)
            write_json(self._path("run.json"), dict(run))
        written, end = os.path.getsize(self._path("vectors")), 0
        self._index.seek(0)
        for line in self._index:
            entry = IndexEntry.parsed(line)
            if entry is None or self._size + self._n_bytes(entry.n_tokens) > written:
                break
            self._count(entry)
            end += len(line)
        self._index.truncate(end)
        self._vectors.truncate(self._size)
        for name in os.listdir(self.folder):
            if name.startswith("long-"):
                os.remove(self._path(name))

    def _shape_of(self, n_tokens: int) -> tuple[int, ...]:
        return tuple(n_tokens if n is None else n for n in self.shape)

    def _n_bytes(self, n_tokens: int) -> int:
        return self.dtype.itemsize * math.prod(self._shape_of(n_tokens))

    def _count(self, entry: IndexEntry) -> None:
        self.n_sentences += 1
        self.n_tokens += entry.n_tokens
        self._size += self._n_bytes(entry.n_tokens)

    def after_those_done(
        self, sentences: Iterable[tuple[int, str]], source: str
    ) -> Iterator[tuple[int, str]]:
        """The sentences (line, text) that are still to do.

        Raises:
            InputError: the text does not begin with the sentences that were done.
        """
        sentences = iter(sentences)
        for entry in self.index():
            if (entry.line, entry.text) != next(sentences, None):
                raise InputError(
                    f"{source}: the first {self.n_sentences} sentences are not those whose vectors "
                    f"are in {self.folder}."
                )
        return sentences

    def new_array(self, shape: tuple[int, ...]) -> DiskArray:
        """An array on the disk for one long sentence, until it is added."""
        self._n_long += 1
        path = self._path(f"long-{self._n_long}")
        return DiskArray.create(path, np.dtype(np.float32), shape, self._part_bytes)

    def add(self, line: int, text: str, n_tokens: int, vectors: Any) -> None:
        """Write the vectors of a sentence.

        Raises:
            InputError: a value is too large for float16.
        """
        if isinstance(vectors, DiskArray):
            self._copy(vectors)
        else:
            self._vectors.write(as_dtype(vectors, self.dtype).tobytes())
        entry = IndexEntry(line, text, n_tokens)
        self._pending.append(entry.encoded())
        self._count(entry)
        when, size = self._saved
        if self._size - size > self._save_bytes or time.monotonic() - when > self._save_seconds:
            self.save()

    def _copy(self, source: DiskArray) -> None:
        self._vectors.flush()
        target = DiskArray(self._path("vectors"), self.dtype, source.shape, self._size)
        grow(self._vectors, self._size, target.n_bytes)
        for start, stop, part in source.parts():
            target[..., start:stop, :] = as_dtype(part, self.dtype)
        self._vectors.seek(0, os.SEEK_END)
        os.remove(source.path)

    def save(self) -> None:
        """Bring what was added to the disk: the vectors, then the index that names them."""
        for file, content in ((self._vectors, b""), (self._index, b"".join(self._pending))):
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._pending = []
        self._saved = (time.monotonic(), self._size)

    def index(self) -> Iterator[IndexEntry]:
        """What is in the index, in its order."""
        with open(self._path("index"), "rb") as index:
            for line in index:
                entry = IndexEntry.parsed(line)
                if entry is not None:
                    yield entry

    def sentences(self) -> Iterator[EmbeddedSentence]:
        """The sentences with their vectors; those of a long one stay on the disk."""
        offset = 0
        for entry in self.index():
            shape = self._shape_of(entry.n_tokens)
            array = DiskArray(self._path("vectors"), self.dtype, shape, offset, self._part_bytes)
            vectors = array if array.n_bytes > self._memory_bytes else array.read(self._vectors)
            yield EmbeddedSentence(entry.line, entry.text, vectors)
            offset += array.n_bytes

    def close(self) -> None:
        """Close the files; the folder stays."""
        self._index.close()
        self._vectors.close()

    def remove(self) -> None:
        """Close and delete the folder."""
        self.close()
        shutil.rmtree(self.folder)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._index.closed:
            # What was added before an error or an interrupt is not lost.
            with contextlib.suppress(OSError):
                self.save()
            self.close()


def as_dtype(vectors: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Vectors as float32 or float16.

    Raises:
        InputError: a value is too large for float16.
    """
    try:
        with np.errstate(over="raise"):
            return vectors.astype(dtype, copy=False)
    except FloatingPointError as error:
        largest = float(np.abs(vectors).max())
        raise InputError(
            f"dtype: {dtype} holds values up to 65504, and a vector has {largest:g}."
        ) from error
