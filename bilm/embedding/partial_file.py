"""The vectors of a run that is not over: a folder beside the result, which survives a crash.

HDF5 files that are cut off while they are written are lost as a whole, so vectors are first laid
end to end in a plain file, with an index beside it. The index names a sentence only when its
vectors are on the disk; what stands beyond the index is cut off when the run goes on.

    run.json    what is computed, so that a run goes on only with the same
    vectors     the arrays, one after the other
    index       a line a sentence: number of its line, tokens, checksum of all so far, text
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bilm.embedding.disk_array import DiskArray
from bilm.errors import InputError
from bilm.files import PathLike, read_json_object, write_json

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_SECONDS = 5.0
_BYTES = 256 * 2**20
_IN_MEMORY = 32 * 2**20


class Sentence(NamedTuple):
    """A sentence of the index.

    Attributes:
        line: number of its line, from 0.
        text: the line without white space around it.
        n_tokens: its tokens.
    """

    line: int
    text: str
    n_tokens: int


class EmbeddedSentence(NamedTuple):
    """A sentence and its vectors, (tokens, dim) or (n_layers, tokens, dim), or without tokens
    when they are pooled; a `DiskArray` if they are many.
    """

    line: int
    text: str
    vectors: Any


class PartialFile:
    """Vectors that are written for as long as a run lasts; a context manager.

    Args:
        folder: where they are; it is made, or gone on with if it is there.
        run: what is computed, JSON-able; "shape" is that of a sentence's array, with None for the
            number of tokens, and "dtype" its type.

    Attributes:
        n_sentences, n_tokens: how many there are.

    Raises:
        InputError: the folder is from a run of another kind, or another process writes to it.
    """

    def __init__(self, folder: PathLike, run: Mapping[str, Any]) -> None:
        self.folder = os.fspath(folder)
        self.shape = tuple(run["shape"])
        self.dtype = np.dtype(run["dtype"])
        self.n_sentences = self.n_tokens = 0
        self._size = self._checksum = 0
        self._pending: list[bytes] = []
        self._n_long = 0
        os.makedirs(self.folder, exist_ok=True)
        self._index = open(self._path("index"), "a+b")  # noqa: SIM115
        self._vectors = open(self._path("vectors"), "a+b")  # noqa: SIM115
        try:
            self._lock()
            self._recover(run)
        except BaseException:
            self.close()
            raise
        self._saved = (time.monotonic(), self._size)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._index, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{self.folder}: another process is writing there.") from error

    def _recover(self, run: Mapping[str, Any]) -> None:
        """Take up what is whole, and cut off what is not."""
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
            found = _parse(line)
            if found is None or self._size + self._n_bytes(found[0].n_tokens) > written:
                break
            self._count(found[0], found[1])
            end += len(line)
        self._index.truncate(end)
        self._vectors.truncate(self._size)
        for name in os.listdir(self.folder):
            if name.startswith("long-"):
                os.remove(self._path(name))

    def _shape_of(self, n_tokens: int) -> tuple[int, ...]:
        return tuple(n_tokens if n is None else n for n in self.shape)

    def _n_bytes(self, n_tokens: int) -> int:
        n = self.dtype.itemsize
        for size in self._shape_of(n_tokens):
            n *= size
        return n

    def _count(self, sentence: Sentence, checksum: int) -> None:
        self.n_sentences += 1
        self.n_tokens += sentence.n_tokens
        self._size += self._n_bytes(sentence.n_tokens)
        self._checksum = checksum

    def after_those_done(
        self, sentences: Iterable[tuple[int, str]], source: str
    ) -> Iterator[tuple[int, str]]:
        """The sentences (line, text) that are still to do.

        Raises:
            InputError: the text does not begin with the sentences that were done.
        """
        checksum, sentences = 0, iter(sentences)
        for _ in range(self.n_sentences):
            line, text = next(sentences, (-1, ""))
            checksum = _add(checksum, line, text)
        if checksum != self._checksum:
            raise InputError(
                f"{source}: the first {self.n_sentences} sentences are not those whose vectors "
                f"are in {self.folder}."
            )
        return sentences

    def new_array(self, shape: tuple[int, ...]) -> DiskArray:
        """An array on the disk for one long sentence, until it is added."""
        self._n_long += 1
        path = self._path(f"long-{self._n_long}")
        return DiskArray.create(path, np.dtype(np.float32), shape)

    def add(self, line: int, text: str, n_tokens: int, vectors: Any) -> None:
        """Write the vectors of a sentence.

        Raises:
            InputError: a value is too large for float16.
        """
        if isinstance(vectors, DiskArray):
            self._copy(vectors)
        else:
            self._vectors.write(as_dtype(vectors, self.dtype).tobytes())
        checksum = _add(self._checksum, line, text)
        self._pending.append(f"{line}\t{n_tokens}\t{checksum:08x}\t{text}\n".encode())
        self._count(Sentence(line, text, n_tokens), checksum)
        when, size = self._saved
        if self._size - size > _BYTES or time.monotonic() - when > _SECONDS:
            self.save()

    def _copy(self, source: DiskArray) -> None:
        self._vectors.flush()
        target = DiskArray(self._path("vectors"), self.dtype, source.shape, self._size)
        self._vectors.truncate(self._size + target.n_bytes)
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

    def index(self) -> Iterator[Sentence]:
        """The sentences in their order."""
        with open(self._path("index"), "rb") as index:
            for line in index:
                found = _parse(line)
                if found is not None:
                    yield found[0]

    def sentences(self) -> Iterator[EmbeddedSentence]:
        """The sentences with their vectors; those of a long one stay on the disk."""
        offset = 0
        for sentence in self.index():
            shape = self._shape_of(sentence.n_tokens)
            array = DiskArray(self._path("vectors"), self.dtype, shape, offset)
            vectors = array if array.n_bytes > _IN_MEMORY else array.read(self._vectors)
            yield EmbeddedSentence(sentence.line, sentence.text, vectors)
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


def _parse(line: bytes) -> tuple[Sentence, int] | None:
    """A line of the index and its checksum; None if it is cut off."""
    fields = line.rstrip(b"\n").split(b"\t", 3)
    if not line.endswith(b"\n") or len(fields) != 4:
        return None
    number, n_tokens, checksum, text = fields
    return Sentence(int(number), text.decode(), int(n_tokens)), int(checksum, 16)


def _add(checksum: int, line: int, text: str) -> int:
    return zlib.crc32(f"{line}\t{text}\n".encode(), checksum)
