"""Sentences with their vectors in the pieces of a job, for formats that are written at its end.

A piece is an HDF5 file with consecutive sentences of the text:

    sentences   uint8: JSON in UTF-8, a list of [number, text, key, rows]
    vectors     (rows, dim), or (n_layers, rows, dim) for all layers; a row is a token, or a
                sentence if its tokens are pooled; the sentences one after the other
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import h5py
import numpy as np

from bilm.core.errors import InputError, one_of, require
from bilm.core.options import Options
from bilm.data.sentences import Sentence
from bilm.files.hdf5 import internal_dataset, open_hdf5, writing_hdf5
from bilm.files.writing import atomic_write
from bilm.inference.layers import LayerChoice, plain_layers

_SLAB_BYTES = 16 * 2**20
# Approximate memory of a sentence without its vectors and text.
_SENTENCE_BYTES = 200
SAVE_SECONDS, SAVE_BYTES = 10.0, 32 * 2**20
"""A job saves at least after this many seconds or bytes of vectors."""


class VectorSpec(NamedTuple):
    """Layers, pooling over the tokens of a sentence, and dtype of vectors, ready for JSON."""

    layers: str | int | list[float]
    pooling: str | None
    dtype: str

    @classmethod
    def of(cls, layers: Any, pooling: Any, dtype: Any) -> VectorSpec:
        """Check the arguments; `layers` as for `ELMo.encode`, except a `ScalarMix`."""
        require(one_of((None, "mean", "max")), pooling=pooling)
        require(one_of(("float32", "float16")), dtype=dtype)
        return cls(plain_layers(layers), pooling, dtype)

    def shape(self, options: Options) -> list[int | None]:
        """The shape of a sentence's vectors, (layers, tokens, dim) or a part of it, with None for
        the number of tokens."""
        n_layers = options.lstm.n_layers + 1
        layers = [n_layers] if LayerChoice(self.layers, n_layers).keeps_layers else []
        tokens = [] if self.pooling else [None]
        return [*layers, *tokens, options.n_directions * options.lstm.projection_dim]


class EmbeddedSentence(NamedTuple):
    """A sentence and its vectors.

    Attributes:
        sentence: number, text and key.
        vectors: (tokens, dim) or (n_layers, tokens, dim), pooled without the axis of tokens. The
            vectors of a long sentence are an h5py dataset, which `slabs` reads in bounded memory.
    """

    sentence: Sentence
    vectors: Any


class JobPieces:
    """Appends sentences to the pieces in a folder, and reads them again; a context manager.

    Existing pieces are continued. Added sentences wait in memory until they have `piece_bytes`, or
    for some seconds; an error within the block, such as Ctrl-C, does not lose them. When read, a
    sentence with more than `memory_bytes` stays on disk. `shape` is the shape of a sentence's
    vectors, with None for the number of tokens.

    Attributes:
        n_sentences, checksum: number and `checksum` of the sentences so far.
    """

    def __init__(
        self,
        folder: str,
        shape: Sequence[int | None],
        dtype: str,
        *,
        piece_bytes: int = SAVE_BYTES,
        memory_bytes: int = 64 * 2**20,
    ) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.is_pooled = None not in self.shape
        self.n_sentences = self.checksum = 0
        self._folder, self._piece_bytes, self._memory_bytes = folder, piece_bytes, memory_bytes
        self._paths = sorted(glob.glob(os.path.join(glob.escape(folder), "*.hdf5")))
        self._waiting: list[tuple[Sentence, np.ndarray]] = []  # arrays (..., rows, dim)
        self._waiting_bytes = 0
        self._since = time.monotonic()
        # The open file of a long sentence that is being written, and the stack that closes it.
        self._long: tuple[h5py.File, contextlib.ExitStack] | None = None
        for sentences, _ in self._pieces():
            for sentence, _ in sentences:
                self._count(sentence)

    def _count(self, sentence: Sentence) -> None:
        self.n_sentences += 1
        self.checksum = checksum(self.checksum, sentence)

    @contextlib.contextmanager
    def _new_piece(self) -> Iterator[h5py.File]:
        path = os.path.join(self._folder, f"{len(self._paths):06d}.hdf5")
        with atomic_write(path) as temporary, writing_hdf5(temporary) as file:
            yield file
        self._paths.append(path)

    def new_array(self, shape: tuple[int, ...]) -> OnDisk:
        """An array on disk for a long sentence's vectors; that sentence must be added next."""
        self.save()
        closing = contextlib.ExitStack()
        file = closing.enter_context(self._new_piece())
        self._long = file, closing
        return OnDisk(file.create_dataset("vectors", shape, self.dtype))

    def add(self, sentence: Sentence, vectors: Any) -> None:
        """Append a sentence; `vectors` is an array in memory, or the one from `new_array`."""
        if self._long is not None:
            file, closing = self._long
            n_rows = file["vectors"].shape[-2]
            _write_sentences(file, [(sentence, n_rows)])
            self._long = None
            closing.close()
        else:
            rows = as_dtype(vectors, self.dtype)
            rows = rows[..., np.newaxis, :] if self.is_pooled else rows
            self._waiting.append((sentence, rows))
            self._waiting_bytes += vectors.nbytes + len(sentence.text) + _SENTENCE_BYTES
        self._count(sentence)
        is_late = time.monotonic() - self._since > SAVE_SECONDS
        if self._waiting_bytes >= self._piece_bytes or is_late:
            self.save()

    def save(self) -> None:
        """Write the sentences in memory as a piece."""
        self._since = time.monotonic()
        if not self._waiting:
            return
        with self._new_piece() as file:
            file["vectors"] = np.concatenate([rows for _, rows in self._waiting], axis=-2)
            _write_sentences(file, [(sentence, rows.shape[-2]) for sentence, rows in self._waiting])
        self._waiting, self._waiting_bytes = [], 0

    def _pieces(self) -> Iterator[tuple[list[tuple[Sentence, int]], h5py.Dataset]]:
        """For each saved piece: its sentences with their numbers of rows, and its vectors."""
        for path in self._paths:
            with open_hdf5(path, "piece") as file:
                content = json.loads(internal_dataset(file, "sentences")[()].tobytes())
                sentences = [
                    (Sentence(number, text, key), 1 if self.is_pooled else n_rows)
                    for number, text, key, n_rows in content
                ]
                yield sentences, internal_dataset(file, "vectors")

    def __iter__(self) -> Iterator[EmbeddedSentence]:
        """The saved sentences with their vectors. A dataset stays open until the next sentence."""
        for sentences, vectors in self._pieces():
            for block in slabs(vectors):
                if not np.isfinite(block).all():
                    raise InputError(f"{vectors.file.filename}: the vectors must be finite.")
            if len(sentences) == 1 and vectors.nbytes > self._memory_bytes:
                yield EmbeddedSentence(sentences[0][0], vectors)
                continue
            rows, start = vectors[()], 0
            for sentence, n_rows in sentences:
                stop = start + n_rows
                index = start if self.is_pooled else slice(start, stop)
                yield EmbeddedSentence(sentence, rows[..., index, :])
                start = stop

    def __enter__(self) -> JobPieces:
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(OSError):
            if self._long is not None:
                self._long[1].__exit__(*error)
            else:
                self.save()


class OnDisk:
    """A dataset that is filled block by block."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset = dataset

    def __setitem__(self, index: Any, values: np.ndarray) -> None:
        self.dataset[index] = as_dtype(values, self.dataset.dtype)


def _write_sentences(file: h5py.File, sentences: Sequence[tuple[Sentence, int]]) -> None:
    content = json.dumps([(s.number, s.text, s.key, n) for s, n in sentences]).encode()
    file["sentences"] = np.frombuffer(content, np.uint8)


def checksum(previous: int, sentence: Sentence) -> int:
    """The CRC-32 of sentences, from the `previous` one and one more sentence."""
    return zlib.crc32(json.dumps(sentence).encode(), previous)


def slabs(vectors: Any, layer: Any = ...) -> Iterator[np.ndarray]:
    """vectors[layer, start:stop, :] in order, some megabytes each, for an array or h5py dataset
    (tokens, dim) or (n_layers, tokens, dim)."""
    n_tokens = vectors.shape[-2]
    step = max(1, _SLAB_BYTES * n_tokens // max(vectors.nbytes, 1))
    for start in range(0, n_tokens, step):
        yield vectors[layer, start : start + step, :]


def as_dtype(vectors: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
    """Vectors as float32 or float16."""
    try:
        with np.errstate(over="raise"):
            return vectors.astype(dtype, copy=False)
    except FloatingPointError as error:
        largest = float(np.abs(vectors).max())
        raise InputError(
            f"dtype: values of {dtype} are at most 65504, and a vector has {largest:g}."
        ) from error
