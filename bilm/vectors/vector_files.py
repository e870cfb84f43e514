"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, and JSON lines.

Each stores the facts of its job as JSON, from which --resume recognises a complete file: in the
attribute `bilm` of an HDF5 file, the comment of .npz, or the field `bilm` of the first JSON line.

docs/files.md describes the formats.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import h5py
import numpy as np

from bilm.core.errors import InputError, one_of, require, shown
from bilm.core.options import Options
from bilm.data.sentences import Sentence
from bilm.files.hdf5 import open_hdf5
from bilm.files.identity import FACTS
from bilm.files.reading import PathLike, decompressed
from bilm.inference.layers import LayerChoice, plain_layers
from bilm.vectors.arrow import parquet_facts

SENTENCE_INDEX = "sentence_to_index"
_SLAB_BYTES = 16 * 2**20
_LONGEST_KEY = 65000  # bytes; HDF5 and ZIP files have names of up to 64 KB


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
    """A sentence and its vectors: (tokens, dim) or (n_layers, tokens, dim), pooled without the axis
    of tokens; an array or an h5py dataset, which `slabs` reads in bounded memory."""

    sentence: Sentence
    vectors: Any


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


def write_npz(
    file: PathLike | IO[bytes],
    embedded: Iterable[EmbeddedSentence],
    *,
    with_index: bool = True,
    facts: str = "",
) -> None:
    """Write one array per sentence, for `numpy.load`; `sentence_to_index` is text of shape (1,)."""
    index: dict[str, str] = {}
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = facts.encode()
        for sentence, vectors in embedded:
            if with_index:
                index[sentence.text] = sentence.name
            parts = _in_c_order(vectors)
            _write_member(archive, sentence.name, vectors.shape, vectors.dtype, parts)
        if with_index:
            listed = np.array([json.dumps(index)])
            _write_member(archive, SENTENCE_INDEX, listed.shape, listed.dtype, [listed])


def _in_c_order(vectors: Any) -> Iterator[np.ndarray]:
    """The vectors of a sentence in C order, some megabytes at a time."""
    if vectors.nbytes <= _SLAB_BYTES:
        yield vectors[()]
        return
    for layer in range(len(vectors)) if vectors.ndim == 3 else [...]:
        yield from slabs(vectors, layer)


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    content: Iterable[np.ndarray],
) -> None:
    """Write an array as `numpy.savez` does; `content` yields its parts in C order."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in content:
            member.write(part.tobytes())


def write_jsonl(file: IO[bytes], embedded: Iterable[EmbeddedSentence], *, facts: str = "") -> None:
    """Write one JSON object per sentence: {"line": 0-based number, "tokens": [...], "vectors":
    [...]}, with "key" after "line" if it has one; the first line has the facts last.

    Numbers have nine digits, from which float32 is restored exactly.
    """
    for sentence, vectors in embedded:
        key = {} if sentence.key is None else {"key": sentence.key}
        fields = {"line": sentence.number, **key, "tokens": sentence.text.split()}
        file.write(f'{json.dumps(fields, ensure_ascii=False)[:-1]}, "vectors": '.encode())
        for part in _json_parts(vectors):
            file.write(part.encode())
        file.write(f', "{FACTS}": {facts}}}\n'.encode() if facts else b"}\n")
        facts = ""


def _json_parts(vectors: Any, layer: Any = ...) -> Iterator[str]:
    """JSON of vectors, or of one layer, token by token; long sentences are read in slabs."""
    if vectors.ndim == 1:
        yield f"[{', '.join(map('%.9g'.__mod__, vectors[()].tolist()))}]"
        return
    parts: Iterator[Iterable[str]]
    if vectors.ndim == 3 and layer is ...:
        parts = (_json_parts(vectors, k) for k in range(len(vectors)))
    else:
        parts = (_json_parts(token) for block in slabs(vectors, layer) for token in block)
    separator = "["
    for part in parts:
        yield separator
        yield from part
        separator = ", "
    yield "[]" if separator == "[" else "]"


def read_facts(path: PathLike, kind: str, is_empty: bool = False) -> dict[str, Any] | None:
    """The facts of the job that wrote a file of the format `kind`. JSON lines of a text without
    sentences (`is_empty`) are an empty file, without facts: None.

    Raises:
        InputError: the file has no facts: it is damaged, or another program wrote it.
    """
    try:
        if kind == "hdf5":
            with open_hdf5(path) as file:
                facts = file.attrs[FACTS]
        elif kind == "npz":
            with zipfile.ZipFile(path) as archive:
                facts = archive.comment
        elif kind == "parquet":
            return parquet_facts(path)
        elif kind == "jsonl":
            with open(path, "rb") as file:
                facts = decompressed(file).readline()
                return None if is_empty and not facts else dict(json.loads(facts)[FACTS])
        else:
            raise NotImplementedError(kind)
        return dict(json.loads(facts))
    except (OSError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # such as a missing permission
        raise InputError(
            f"{path} exists, and is not a complete file of vectors of `bilm embed`: move it away, "
            "or replace it with --force."
        ) from error


class Keys:
    """Checks keys of sentences: they must differ, and the file must be able to hold them.

    In HDF5 a "/" in a key opens a group. Readers of `allennlp elmo`'s files find "a / b" by its
    name, but a second key "a " is impossible. An HDF5 file in memory tries out keys with characters
    that HDF5 may interpret. In .npz the key "a.npy" is read as "a" if both exist.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._taken: set[str] = set()
        self._file = h5py.File(io.BytesIO(), "w")

    def is_new(self, key: str, where: str) -> bool:
        """Whether a key is new; `where` is its file and line, for messages."""
        if key in self._taken:
            return False
        reason = ""
        if "\0" in key or len(key.encode()) > _LONGEST_KEY:
            reason = f"keys have at most {_LONGEST_KEY} bytes and no NUL"
        elif self._kind == "hdf5" and not self._fits(key):
            reason = "in HDF5, '/' opens a group, and no key may name a group of another one"
        elif self._kind == "npz" and not self._taken.isdisjoint(
            {f"{key}.npy", key.removesuffix(".npy")}
        ):
            reason = "numpy.load takes KEY and KEY.npy for the same"
        if reason:
            raise InputError(
                f"{where}: {shown(key)} cannot be a key: {reason}. Parquet and JSON lines take any "
                "key; line numbers are always possible in text."
            )
        self._taken.add(key)
        return True

    def _fits(self, key: str) -> bool:
        if not re.search(r"/|^\.*$", key):
            return key not in self._file
        try:
            name = self._file.create_dataset(key, (0,)).name
            return name.split("/")[1] not in self._taken
        except (OSError, RuntimeError, TypeError, ValueError):
            return False
