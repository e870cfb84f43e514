"""The finished vectors of an unfinished job, to which sentences are appended: a folder OUT.partial.

    job.json    record: program, version, settings (only the same job is resumed), and the lengths
                of the other files at the last save
    vectors     the numbers of all sentences
    sentences   one JSON line per sentence: its fields, and the shape of its vectors
    lock        locked by the process that works here

A save flushes what is new to the disk, then replaces the record; opening the folder cuts the files
off at the recorded lengths. A folder without this record is neither used nor removed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, differences
from bilm.data.sentences import Sentence
from bilm.files.reading import PathLike
from bilm.files.writing import locked, overwritten, partial_name, write_json
from bilm.vectors.vector_files import as_dtype

_OURS: dict[str, Any] = {"program": "bilm embed", "version": 5}
_RECORD, _VECTORS, _SENTENCES, _LOCK = "job.json", "vectors", "sentences", "lock"
_SAVE_SECONDS, _SAVE_BYTES = 10.0, 32 * 2**20
_MAPPED_BYTES = 16 * 2**20  # larger vectors are not read into memory


class _Lengths(NamedTuple):
    n_sentences: int = 0
    vectors: int = 0  # bytes
    sentences: int = 0  # bytes


class VectorStore:
    """The store of a job, locked against other processes; a context manager.

    At the end of the block, new sentences are saved, and an empty store is removed. `settings`, for
    JSON, determine the result. `resume` continues an interrupted job if there is one; `force`
    discards it.

    Attributes:
        path: path of the folder.
    """

    def __init__(
        self, out: PathLike, settings: Mapping[str, Any], *, resume: bool, force: bool
    ) -> None:
        self.path, self._lengths = _folder_of(out), _Lengths()
        self._settings = json.loads(json.dumps(settings))
        self._dtype = np.dtype(settings["dtype"])
        self._saved, self._since = self._lengths, time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(self.path))
            check_output(out, resume=resume, force=force)
            record = None if force else _read_record(self.path)
            if record is not None:
                self._lengths = self._saved = self._lengths_in(record)
            self._write_record()  # before the other files, which are not ours without it
            names = [os.path.join(self.path, name) for name in (_VECTORS, _SENTENCES)]
            self._vectors, self._sentences = (
                os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666) for name in names
            )
            for file, length in self._files():
                stack.callback(os.close, file)
                os.truncate(file, length)
            self._open = stack.pop_all()

    @property
    def n_sentences(self) -> int:
        """The number of sentences so far."""
        return self._lengths.n_sentences

    def _files(self) -> list[tuple[int, int]]:
        """The open files and their lengths."""
        return list(zip((self._vectors, self._sentences), self._lengths[1:], strict=True))

    def _lengths_in(self, record: dict[str, Any]) -> _Lengths:
        if listed := differences(record["settings"], self._settings, "there", "now"):
            raise InputError(
                f"{self.path} holds vectors of another job: {'; '.join(listed)}. Repeat that job, "
                "or start over with force."
            )
        lengths = _Lengths(**record["lengths"])
        for name in (_VECTORS, _SENTENCES):
            path = os.path.join(self.path, name)
            size = os.path.getsize(path) if os.path.exists(path) else 0
            if size < getattr(lengths, name):
                raise InputError(f"{path} is cut off: start over with force.")
        return lengths

    def new_array(self, shape: tuple[int, ...]) -> OnDisk:
        """An array on disk for a long sentence's vectors; that sentence must be added next."""
        start, n_bytes = self._lengths.vectors, math.prod(shape) * self._dtype.itemsize
        if hasattr(os, "posix_fallocate"):  # raises an error if the disk is full
            os.posix_fallocate(self._vectors, start, n_bytes)
        else:
            os.truncate(self._vectors, start + n_bytes)
        return OnDisk(self._mapped("r+", start, shape), self.path)

    def _mapped(self, mode: Any, start: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.memmap(os.path.join(self.path, _VECTORS), self._dtype, mode, start, shape)

    def add(self, sentence: Sentence, vectors: np.ndarray | OnDisk) -> None:
        """Append a sentence with its vectors: in the dtype of the job, or from `new_array`."""
        n_sentences, start, end = self._lengths
        if isinstance(vectors, np.ndarray):
            _write(self._vectors, vectors.tobytes(), start)
        line = json.dumps([*sentence, vectors.shape]).encode() + b"\n"
        _write(self._sentences, line, end)
        self._lengths = _Lengths(n_sentences + 1, start + vectors.nbytes, end + len(line))
        is_late = time.monotonic() - self._since > _SAVE_SECONDS
        if is_late or self._lengths.vectors - self._saved.vectors >= _SAVE_BYTES:
            self.save()

    def save(self) -> None:
        """Save the sentences added so far."""
        for file, _ in self._files():
            os.fsync(file)
        self._write_record()
        self._saved, self._since = self._lengths, time.monotonic()

    def _write_record(self) -> None:
        record = _OURS | {"settings": self._settings, "lengths": self._lengths._asdict()}
        write_json(os.path.join(self.path, _RECORD), record)

    def sentences(self) -> Iterator[Sentence]:
        """The sentences so far, in order."""
        return (sentence for sentence, _ in self._index())

    def _index(self) -> Iterator[tuple[Sentence, tuple[int, ...]]]:
        with open(os.path.join(self.path, _SENTENCES), encoding="utf-8") as file:
            for line in file:
                *fields, shape = json.loads(line)
                yield Sentence(*fields), tuple(shape)

    def __iter__(self) -> Iterator[tuple[Sentence, np.ndarray]]:
        """The sentences so far with their vectors, in order."""
        start = 0
        for sentence, shape in self._index():
            n_bytes = math.prod(shape) * self._dtype.itemsize
            if n_bytes <= _MAPPED_BYTES:
                data = os.pread(self._vectors, n_bytes, start)
                vectors = np.frombuffer(data, self._dtype).reshape(shape)
            else:
                vectors = self._mapped("r", start, shape)
            yield sentence, vectors
            start += n_bytes

    def remove(self) -> None:
        """Remove the store, once the result is complete."""
        _remove(self.path)

    def __enter__(self) -> VectorStore:
        return self

    def __exit__(self, *_: object) -> None:
        with self._open, contextlib.suppress(OSError):
            if os.path.exists(os.path.join(self.path, _RECORD)):  # not removed
                self.save()
                if not self.n_sentences:
                    _remove(self.path)


class OnDisk:
    """An array in a file that is filled block by block with finite numbers."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        self._array, self._name = array, name
        self.shape, self.nbytes = array.shape, array.nbytes

    def __setitem__(self, index: Any, values: np.ndarray) -> None:
        where = f"{self._name}, a sentence of {self.shape[-2]:,} tokens"
        self._array[index] = as_dtype(values, self._array.dtype, where)


def _write(file: int, data: bytes, start: int) -> None:
    view = memoryview(data)
    while view:
        n_written = os.pwrite(file, view, start)
        view, start = view[n_written:], start + n_written


def check_output(out: PathLike, *, resume: bool, force: bool) -> None:
    """Require that a job loses neither OUT nor an interrupted job. With `resume`, OUT may be the
    complete result."""
    folder = _folder_of(out)
    if os.path.lexists(folder) and _read_record(folder) is not None and not (resume or force):
        raise InputError(
            f"{folder} was left by an interrupted job: resume continues it, force starts over."
        )
    if os.path.lexists(out) and not (resume or force):
        raise overwritten(out, allowed_by="force")


def remove_job(out: PathLike, settings: Mapping[str, Any]) -> None:
    """Remove the store of a job whose result is complete, if a kill left it, perhaps with a part of
    its files. The store of another job stays."""
    folder = _folder_of(out)
    if os.path.lexists(folder):
        with _locked(folder):
            record = _read_record(folder)
            if record is not None and record["settings"] == json.loads(json.dumps(settings)):
                _remove(folder)


def _folder_of(out: PathLike) -> str:
    return f"{os.fspath(out)}.partial"


def _remove(folder: str) -> None:
    """Remove our files, the record last; releasing the lock removes the folder."""
    for name in (_VECTORS, _SENTENCES, partial_name(_RECORD), _RECORD):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, name))


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Create a folder if it is missing, and lock it for the block; then remove it if empty."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _read_record(folder)  # raises unless the folder is ours
    try:
        with locked(os.path.join(folder, _LOCK), f"{folder}: another process is writing there."):
            yield
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _read_record(folder: str) -> dict[str, Any] | None:
    """The record of a folder; None if the folder has none, and no files but ours."""
    path = os.path.join(folder, _RECORD)
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        if os.path.exists(path):
            with open(path, "rb") as file:
                record = json.load(file)
            if {name: record[name] for name in _OURS} == _OURS and dict(record["settings"]):
                return {"settings": record["settings"], "lengths": dict(record["lengths"])}
        elif set(os.listdir(folder)) <= {_LOCK, partial_name(_RECORD)}:
            return None
    raise InputError(
        f"{folder} is not a folder of an interrupted job of bilm embed, so it is neither used nor "
        "removed. Move it away, or choose another name for the result."
    )
