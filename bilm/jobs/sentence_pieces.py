"""Sentences with their vectors in the pieces of a job that writes one file.

A piece is an HDF5 file with some sentences that follow each other in the text:

    sentences   uint8: JSON in UTF-8, a list of [number, text, key, tokens]
    vectors     (rows, dim), or (n_layers, rows, dim) for all layers; a row is a token, or a
                sentence if its tokens are pooled; the sentences one after the other
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any, NamedTuple

import h5py
import numpy as np

from bilm.core.errors import InputError, one_of, require, shown
from bilm.data.sentences import Sentence
from bilm.files.hdf5 import open_hdf5, own_dataset, writing_hdf5
from bilm.jobs.job_folder import writing_piece

_SLAB_BYTES = 16 * 2**20
# Approximate memory of a sentence besides its vectors and its text.
_SENTENCE_BYTES = 200


class Wanted(NamedTuple):
    """Layers, pooling over the tokens of a sentence, and dtype of vectors, as JSON has them."""

    layers: str | int | list[float]
    pooling: str | None
    dtype: str

    @classmethod
    def of(cls, layers: Any, pooling: Any, dtype: Any) -> Wanted:
        """Check the arguments; `layers` is as for `ELMo.encode`, but not a `ScalarMix`."""
        require(one_of((None, "mean", "max")), pooling=pooling)
        require(one_of(("float32", "float16")), dtype=dtype)
        if isinstance(layers, int | np.integer) and not isinstance(layers, bool):
            layers = int(layers)
        elif not isinstance(layers, str):
            is_list = isinstance(layers, Sequence | np.ndarray)
            if not is_list or not all(isinstance(weight, Real) for weight in layers):
                raise InputError(
                    "layers must be 'average', 'top', 'all', 'sum', a number or a list of weights, "
                    f"got {shown(layers)}."
                )
            layers = [float(weight) for weight in layers]
        return cls(layers, pooling, dtype)

    def shape(self, n_layers: int, dim: int) -> list[int | None]:
        """The shape of a sentence's vectors, (layers, tokens, dim) or a part of it; None stands for
        the number of tokens."""
        from bilm.use.elmo import LayerChoice  # which imports TensorFlow

        all_layers = [n_layers] if LayerChoice(self.layers, n_layers).keeps_layers else []
        return [*all_layers, *([] if self.pooling else [None]), dim]


class EmbeddedSentence(NamedTuple):
    """A sentence and its vectors.

    Attributes:
        sentence: number, text and key.
        vectors: (tokens, dim) or (n_layers, tokens, dim), pooled without the axis of tokens. The
            vectors of a long sentence are an h5py dataset, which `slabs` reads in bounded memory.
    """

    sentence: Sentence
    vectors: Any


class SentencePieces:
    """Appends sentences to the pieces in a folder, and reads them again; a context manager.

    Pieces in the folder are continued; damaged ones and those after them are removed. Sentences
    that were added wait in memory until they have `piece_bytes`, or for `seconds`. An error within
    the block, such as Ctrl-C, does not lose them. When read, a sentence with more than
    `memory_bytes` stays on the disk. `shape` is the shape of a sentence's vectors, with None
    for the number of tokens.
    """

    def __init__(
        self,
        folder: str,
        shape: Sequence[int | None],
        dtype: str,
        *,
        seconds: float = 10.0,
        piece_bytes: int = 32 * 2**20,
        memory_bytes: int = 64 * 2**20,
    ) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.is_pooled = None not in self.shape
        self.n_sentences = self.n_tokens = 0
        self._folder = folder
        self._seconds, self._piece_bytes, self._memory_bytes = seconds, piece_bytes, memory_bytes
        self._n_pieces = 0
        self._waiting: list[tuple[Sentence, int, np.ndarray]] = []
        self._waiting_bytes = 0
        self._since = time.monotonic()
        self._long: contextlib.ExitStack | None = None  # the open file of a long sentence
        self._long_file: Any = None
        self._find_pieces()

    def _find_pieces(self) -> None:
        names = sorted(os.listdir(self._folder))
        with contextlib.suppress(FileNotFoundError, InputError):
            while True:
                found = self._read_sentences(self._path(self._n_pieces))
                self.n_sentences += len(found)
                self.n_tokens += sum(n for _, n in found)
                self._n_pieces += 1
        kept = {os.path.basename(self._path(n)) for n in range(self._n_pieces)}
        for name in names:
            if name not in kept:
                os.remove(os.path.join(self._folder, name))

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:06d}.hdf5")

    def _read_sentences(self, path: str) -> list[tuple[Sentence, int]]:
        """The sentences of a piece, with their numbers of tokens."""
        with open_hdf5(path, "piece") as file:
            shape = own_dataset(file, "vectors").shape
            content = json.loads(own_dataset(file, "sentences")[()].tobytes())
            found = [(Sentence(number, text, key), n) for number, text, key, n in content]
            if shape != self._shape_of(sum(self._n_rows(n) for _, n in found)):
                raise InputError(f"{path}: the vectors do not fit the sentences.")
            return found

    def _n_rows(self, n_tokens: int) -> int:
        return 1 if self.is_pooled else n_tokens

    def _shape_of(self, n_rows: int) -> tuple[int, ...]:
        *layers, dim = (n for n in self.shape if n is not None)
        return (*layers, n_rows, dim)

    def new_array(self, shape: tuple[int, ...]) -> _OnDisk:
        """An array on disk for the vectors of a long sentence, which is added next."""
        self.save()
        self._long = contextlib.ExitStack()
        path = self._long.enter_context(writing_piece(self._path(self._n_pieces)))
        self._long_file = self._long.enter_context(writing_hdf5(path))
        return _OnDisk(self._long_file.create_dataset("vectors", shape, self.dtype))

    def add(self, sentence: Sentence, n_tokens: int, vectors: Any) -> None:
        """Append a sentence; `vectors` is an array in memory, or the one from `new_array`."""
        if self._long is not None:
            _write_sentences(self._long_file, [(sentence, n_tokens)])
            with self._long:
                self._long = self._long_file = None
            self._n_pieces += 1
        else:
            self._waiting.append((sentence, n_tokens, as_dtype(vectors, self.dtype)))
            self._waiting_bytes += vectors.nbytes + len(sentence.text) + _SENTENCE_BYTES
        self.n_sentences += 1
        self.n_tokens += n_tokens
        is_late = time.monotonic() - self._since > self._seconds
        if self._waiting_bytes >= self._piece_bytes or is_late:
            self.save()

    def save(self) -> None:
        """Write the sentences that wait in memory as a piece."""
        self._since = time.monotonic()
        if not self._waiting:
            return
        axis = np.newaxis if self.is_pooled else slice(None)
        rows = [vectors[..., axis, :] for *_, vectors in self._waiting]
        path = self._path(self._n_pieces)
        with writing_piece(path) as temporary, writing_hdf5(temporary) as file:
            file["vectors"] = np.concatenate(rows, axis=-2)
            _write_sentences(file, [(sentence, n) for sentence, n, _ in self._waiting])
        self._n_pieces += 1
        self._waiting, self._waiting_bytes = [], 0

    def sentences(self) -> Iterator[tuple[Sentence, int]]:
        """The saved sentences and their numbers of tokens, without vectors."""
        for number in range(self._n_pieces):
            yield from self._read_sentences(self._path(number))

    def blocks(self) -> Iterator[np.ndarray]:
        """The saved vectors, some megabytes at a time: (..., rows, dim)."""
        for number in range(self._n_pieces):
            with open_hdf5(self._path(number), "piece") as file:
                for _, _, slab in slabs(own_dataset(file, "vectors")):
                    yield slab

    def __iter__(self) -> Iterator[EmbeddedSentence]:
        """The saved sentences with their vectors. A dataset is open until the next one."""
        for number in range(self._n_pieces):
            path = self._path(number)
            sentences = self._read_sentences(path)
            with open_hdf5(path, "piece") as file:
                vectors = own_dataset(file, "vectors")
                if len(sentences) == 1 and not self.is_pooled:
                    is_small = vectors.nbytes <= self._memory_bytes
                    yield EmbeddedSentence(sentences[0][0], vectors[()] if is_small else vectors)
                    continue
                vectors, start = vectors[()], 0
                for sentence, n_tokens in sentences:
                    stop = start + self._n_rows(n_tokens)
                    of_sentence = start if self.is_pooled else slice(start, stop)
                    yield EmbeddedSentence(sentence, vectors[..., of_sentence, :])
                    start = stop

    def __enter__(self) -> SentencePieces:
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(OSError):
            if self._long is not None:
                self._long.__exit__(*error)
            else:
                self.save()


class _OnDisk:
    """A dataset that is filled block by block."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset

    def __setitem__(self, index: Any, values: np.ndarray) -> None:
        self._dataset[index] = as_dtype(values, self._dataset.dtype)


def _write_sentences(file: h5py.File, sentences: Iterable[tuple[Sentence, int]]) -> None:
    content = json.dumps([(s.number, s.text, s.key, n) for s, n in sentences]).encode()
    file["sentences"] = np.frombuffer(content, np.uint8)


def slabs(
    vectors: Any, layer: Any = ..., slab_bytes: int = _SLAB_BYTES
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(start, stop, vectors[layer, start:stop, :]) from the first token to the last, of about
    `slab_bytes` each, for an array or h5py dataset (tokens, dim) or (n_layers, tokens, dim)."""
    *layers, n_tokens, dim = vectors.shape
    of_token = math.prod((*layers, dim)) * vectors.dtype.itemsize
    step = max(1, slab_bytes // max(of_token, 1))
    for start in range(0, n_tokens, step):
        stop = min(start + step, n_tokens)
        yield start, stop, vectors[layer, start:stop, :]


def as_dtype(vectors: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Vectors as float32 or float16."""
    try:
        with np.errstate(over="raise"):
            return vectors.astype(dtype, copy=False)
    except FloatingPointError as error:
        largest = float(np.abs(vectors).max())
        raise InputError(
            f"dtype: values of {dtype} are at most 65504, and a vector has {largest:g}."
        ) from error
