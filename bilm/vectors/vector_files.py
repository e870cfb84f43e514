"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, and JSON lines.

docs/files.md describes them.
"""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import h5py
import numpy as np

from bilm.core.errors import InputError, shown
from bilm.files.hdf5 import writing_hdf5
from bilm.files.reading import PathLike
from bilm.vectors.job_pieces import EmbeddedSentence, slabs

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
