"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, JSON lines, and a packed layout.

docs/files.md describes them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import h5py
import numpy as np

from bilm.core.errors import InputError, shown
from bilm.files.hdf5 import (
    damage_named,
    open_hdf5,
    own_dataset,
    read_integers,
    require_floats,
    writing_hdf5,
)
from bilm.files.reading import PathLike, require_path
from bilm.vectors.job_pieces import EmbeddedSentence, JobPieces, slabs

SENTENCE_INDEX = "sentence_to_index"
_LONGEST_KEY = 65000  # bytes; HDF5 and ZIP files have names of up to 64 KB


def write_hdf5(
    path: PathLike,
    embedded: Iterable[EmbeddedSentence],
    *,
    with_index: bool = True,
    original_ids: bool = False,
) -> None:
    """Write one dataset per sentence; `with_index` adds `sentence_to_index`, and `original_ids` the
    key to each dataset as its attribute `original_id`, as bio_embeddings does."""
    index: dict[str, str] = {}
    with writing_hdf5(path) as file:
        for sentence, vectors in embedded:
            name = sentence.name
            if with_index:
                index[sentence.text] = name
            if isinstance(vectors, h5py.Dataset):
                file.copy(vectors, file, name)
            else:
                file.create_dataset(name, data=vectors)
            if original_ids:
                file[name].attrs["original_id"] = name
        if with_index:
            file.create_dataset(SENTENCE_INDEX, (1,), h5py.string_dtype())[0] = json.dumps(index)


def write_npz(
    file: PathLike | IO[bytes], embedded: Iterable[EmbeddedSentence], *, with_index: bool = True
) -> None:
    """Write one array per sentence, for `numpy.load`; `sentence_to_index` is text of shape (1,)."""
    index: dict[str, str] = {}
    with zipfile.ZipFile(file, "w") as archive:
        for sentence, vectors in embedded:
            if with_index:
                index[sentence.text] = sentence.name
            is_long = isinstance(vectors, h5py.Dataset)
            content = _in_c_order(vectors) if is_long else [vectors]
            _write_member(archive, sentence.name, vectors.shape, vectors.dtype, content)
        if with_index:
            listed = np.array([json.dumps(index)])
            _write_member(archive, SENTENCE_INDEX, listed.shape, listed.dtype, [listed])


def _in_c_order(vectors: h5py.Dataset) -> Iterator[np.ndarray]:
    """The vectors of a long sentence, some megabytes at a time."""
    for layer in range(len(vectors)) if vectors.ndim == 3 else [...]:
        yield from slabs(vectors, layer)


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    content: Iterable[np.ndarray],
) -> None:
    """Write an array as `numpy.savez` does; `content` is the array in parts, in C order."""
    header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in content:
            member.write(part.tobytes())


def write_jsonl(file: IO[bytes], embedded: Iterable[EmbeddedSentence]) -> None:
    """Write one JSON object per sentence: {"line": 0-based number, "tokens": [...], "vectors":
    [...]}, with "key" after "line" if it has one.

    Numbers have nine digits, from which float32 is restored exactly.
    """
    for sentence, vectors in embedded:
        key = {} if sentence.key is None else {"key": sentence.key}
        fields = {"line": sentence.number, **key, "tokens": sentence.text.split()}
        file.write(f'{json.dumps(fields, ensure_ascii=False)[:-1]}, "vectors": '.encode())
        for part in _json_parts(vectors):
            file.write(part.encode())
        file.write(b"}\n")


def _json_parts(vectors: Any, layer: Any = ...) -> Iterator[str]:
    """JSON of vectors, or of one layer, token by token: a long sentence is read in slabs."""
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


def write_packed_hdf5(path: PathLike, pieces: JobPieces, *, with_text: bool = True) -> None:
    """Write the packed layout in HDF5."""
    with writing_hdf5(path) as file:
        for name, array in _small_arrays(pieces, with_text):
            file.create_dataset(name, data=array)
        shape, blocks = _packed(pieces)
        dataset = file.create_dataset("vectors", shape, pieces.dtype)
        dataset.attrs["pooled"] = pieces.is_pooled
        start = 0
        for rows in blocks:
            dataset[start : start + len(rows)] = rows
            start += len(rows)


def write_packed_npz(path: PathLike, pieces: JobPieces, *, with_text: bool = True) -> None:
    """Write the packed layout in .npz."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in _small_arrays(pieces, with_text):
            _write_member(archive, name, array.shape, array.dtype, [array])
        shape, blocks = _packed(pieces)
        _write_member(archive, "vectors", shape, pieces.dtype, blocks)


def _packed(pieces: JobPieces) -> tuple[tuple[int, ...], Iterator[np.ndarray]]:
    """The shape of all vectors together, (rows, ..., dim), and their rows in blocks."""
    shape = (pieces.n_rows, *(n for n in pieces.shape if n is not None))
    # (..., rows, dim) -> (rows, ..., dim)
    return shape, (np.moveaxis(block, -2, 0) for block in pieces.blocks())


def _small_arrays(pieces: JobPieces, with_text: bool) -> Iterator[tuple[str, np.ndarray]]:
    lines, sizes = np.empty((2, pieces.n_sentences), np.int64)
    has_keys = False
    for k, (sentence, sizes[k]) in enumerate(pieces.sentences()):
        lines[k] = sentence.number
        has_keys = sentence.key is not None
    yield "lines", lines
    yield "offsets", _offsets(sizes)
    if with_text:
        yield from _strings("text", (sentence.text for sentence, _ in pieces.sentences()))
    if has_keys:
        yield from _strings("key", (sentence.name for sentence, _ in pieces.sentences()))


def _strings(name: str, texts: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    content, sizes = bytearray(), []
    for text in texts:
        encoded = text.encode()
        content += encoded
        sizes.append(len(encoded))
    yield name, np.frombuffer(content, np.uint8)
    yield f"{name}_offsets", _offsets(sizes)


def _offsets(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


class PackedVectors:
    """Reads a packed HDF5 file, one sentence at a time; a context manager.

    `packed[k]` is the result of `ELMo.encode` for sentence k, `packed.line(k)` its 0-based line
    number, `packed.text(k)` the sentence, and `packed.key(k)` its key.

    Raises:
        FileNotFoundError: the file does not exist.
        InputError: the file is not a packed file, or is damaged; damage may only be found when a
            sentence is read.
    """

    def __init__(self, path: PathLike) -> None:
        self._path = require_path(path, "a file of vectors")
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open_hdf5(path, "file of vectors"))
            if not {"vectors", "offsets", "lines"} <= file.keys():
                raise InputError(
                    f"{path}: a packed HDF5 file must have vectors, offsets and lines, as `bilm "
                    "embed --packed` writes them."
                )
            self._lines = read_integers(file, "lines")
            names = [name for name in ("vectors", "text", "key") if name in file]
            self._contents = {name: self._content(file, name) for name in names}
            self.vectors = self._contents["vectors"][0]
            require_floats(file, "vectors", self.vectors)
            self._is_pooled = bool(self.vectors.attrs.get("pooled", False))
            self._open = stack.pop_all()

    def _content(self, file: h5py.File, name: str) -> tuple[h5py.Dataset, np.ndarray]:
        """An array, and the offset of each sentence in it."""
        offsets = "offsets" if name == "vectors" else f"{name}_offsets"
        content, starts = own_dataset(file, name), read_integers(file, offsets)
        n, most = len(self) + 1, len(content)
        if len(starts) != n or (np.diff(starts, prepend=0, append=most) < 0).any():
            raise InputError(
                f"{self._path}: {offsets} must be {n} non-decreasing numbers from 0 to {most}, one "
                "more than lines."
            )
        return content, starts

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, k: int) -> np.ndarray:
        rows = self._read("vectors", k)
        return rows[0] if self._is_pooled else np.moveaxis(rows, 0, -2)

    def _read(self, name: str, k: int) -> np.ndarray:
        if name not in self._contents:
            raise InputError(f"{self._path}: the file was written without {name}.")
        content, offsets = self._contents[name]
        start, stop = offsets[range(len(self))[k] :][:2]
        with damage_named(self._path):
            return content[start:stop]

    def line(self, k: int) -> int:
        """The 0-based line number of the sentence."""
        return int(self._lines[range(len(self))[k]])

    def text(self, k: int) -> str:
        """The sentence as in the text."""
        return self._string("text", k)

    def key(self, k: int) -> str:
        """The sentence's own key, such as its FASTA id."""
        return self._string("key", k)

    def _string(self, name: str, k: int) -> str:
        with damage_named(self._path):
            return self._read(name, k).tobytes().decode()

    def __enter__(self) -> PackedVectors:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class Keys:
    """Checks keys of sentences: they must differ, and a file must be able to hold them.

    With `paths`, as in HDF5, a "/" in a key opens a group, so that "a / b" is found under its own
    name, as readers of `allennlp elmo`'s files expect, but there cannot be a key "a " as well.
    Empty steps and steps of one full stop are skipped by HDF5.
    """

    def __init__(self, paths: bool) -> None:
        self._paths = paths
        self._taken: dict[str, str] = {}  # names as HDF5 reads them -> keys
        self._groups: set[str] = set()

    def is_new(self, key: str, where: str) -> bool:
        """Whether a key is seen for the first time; `where` is its file and line, for messages."""
        steps = [key]
        if self._paths:
            steps = [step for step in key.split("/") if step not in ("", ".")]
        *groups, name = itertools.accumulate(steps, "{}/{}".format) if steps else [""]
        if self._taken.get(name) == key:
            return False
        if "\0" in key or len(key.encode()) > _LONGEST_KEY:
            reason = f"keys have at most {_LONGEST_KEY} bytes and no NUL"
        elif not steps:
            reason = "in HDF5 it names the file itself"
        elif name in self._groups or not self._taken.keys().isdisjoint([*groups, name]):
            reason = "in HDF5 another sentence has this name, or one within the other"
        else:
            self._taken[name] = key
            self._groups.update(groups)
            return True
        raise InputError(
            f"{where}: {shown(key)} cannot be a key: {reason}. Line numbers (the default) are "
            "always possible."
        )
