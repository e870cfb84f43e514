"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, JSON lines, and a packed layout.

A sentence's key is the number of its line from 0, or the sentence itself. HDF5 lists keys in the
order of text: sort numbers as numbers. `sentence_to_index`, shape (1,), is a JSON object from
sentence to key; of a sentence that is on several lines it names the last.

The packed layout, for very many sentences, has few arrays, in HDF5 or .npz:

    vectors       (rows, dim), or (rows, n_layers, dim) for all layers; a row is a token, or a
                  sentence when its tokens are pooled
    offsets       int64 (sentences + 1,): sentence k has the rows offsets[k] to offsets[k + 1]
    lines         int64 (sentences,): number of its line, from 0
    text          uint8: the sentences in UTF-8, one after the other (may be left out)
    text_offsets  int64 (sentences + 1,): where each begins and ends in `text`
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from bilm.core.errors import InputError, checked
from bilm.files.hdf5 import (
    open_hdf5,
    own_dataset,
    read_integers,
    require_floats,
    writing_hdf5,
)
from bilm.files.reading import PathLike, require_path
from bilm.jobs.partial_file import DiskArray, EmbeddedSentence, PartialFile

SENTENCE_INDEX = "sentence_to_index"
_CHUNK_BYTES = 8 * 2**20
_LONGEST_KEY = 65000  # bytes; HDF5 and ZIP files have names of up to 64 KB

_NAMES = h5p.create(h5p.LINK_CREATE)
_NAMES.set_char_encoding(h5t.CSET_UTF8)
_NAMES.set_create_intermediate_group(True)
_DATASETS = h5p.create(h5p.DATASET_CREATE)
_DATASETS.set_obj_track_times(False)  # the same vectors give the same file


def write_array(file: h5py.File, name: str, array: np.ndarray) -> None:
    """Write numbers as `file.create_dataset(name, data=array)` does, but at less cost.

    Raises:
        ValueError: there is a dataset of that name.
        OSError: the disk did not take it, or something before it.
    """
    array = np.ascontiguousarray(array)
    space = h5s.create_simple(array.shape)
    kind = h5t.py_create(array.dtype)
    dataset = h5d.create(file.id, name.encode(), kind, space, _DATASETS, _NAMES)
    dataset.write(h5s.ALL, h5s.ALL, array)


def write_hdf5(
    path: PathLike,
    sentences: Iterable[EmbeddedSentence],
    *,
    sentence_keys: bool = False,
    with_index: bool = True,
) -> None:
    """A dataset a sentence.

    Args:
        path: file to write.
        sentences: what goes into it.
        sentence_keys: the sentence is the key (and there is no index), else its line number.
        with_index: add `sentence_to_index`.
    """
    index: dict[str, str] | None = {} if with_index and not sentence_keys else None
    with writing_hdf5(path) as file:
        for key, vectors in _keyed(sentences, sentence_keys, index):
            if not isinstance(vectors, DiskArray):
                write_array(file, key, vectors)
                continue
            dataset = file.create_dataset(key, vectors.shape, vectors.dtype)
            for start, stop, part in vectors.parts():
                dataset[..., start:stop, :] = part
        if index is not None:
            file.create_dataset(SENTENCE_INDEX, (1,), h5py.string_dtype())[0] = json.dumps(index)


def _keyed(
    sentences: Iterable[EmbeddedSentence], sentence_keys: bool, index: dict[str, str] | None
) -> Iterator[tuple[str, Any]]:
    """Keys and vectors; `index` is filled on the way."""
    for sentence in sentences:
        key = sentence.text if sentence_keys else str(sentence.line)
        yield key, sentence.vectors
        if index is not None:
            index[sentence.text] = key


def write_npz(
    file: IO[bytes],
    sentences: Iterable[EmbeddedSentence],
    *,
    sentence_keys: bool = False,
    with_index: bool = True,
) -> None:
    """An array a sentence, for `numpy.load`; `sentence_to_index` is an array of text (1,).

    Args:
        file: what to write to; it need not be able to go back.
        sentences, sentence_keys, with_index: as for `write_hdf5`.
    """
    index: dict[str, str] | None = {} if with_index and not sentence_keys else None
    with zipfile.ZipFile(file, "w") as archive:
        for key, vectors in _keyed(sentences, sentence_keys, index):
            content = vectors.content() if isinstance(vectors, DiskArray) else None
            _write_member(archive, key, vectors, content)
        if index is not None:
            _write_member(archive, SENTENCE_INDEX, np.array([json.dumps(index)]))


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    array: Any,
    content: Iterable[bytes] | None = None,
) -> None:
    """Write an array as `numpy.savez` does; `content` are its bytes, if it is not in memory."""
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for part in [array.tobytes()] if content is None else content:
            member.write(part)


def write_jsonl(file: IO[bytes], sentences: Iterable[EmbeddedSentence]) -> None:
    """A JSON object a sentence: {"line": number from 0, "tokens": [...], "vectors": [...]}.

    Numbers have the nine digits that make float32 out of them again.
    """
    for sentence in sentences:
        vectors = sentence.vectors
        vectors = vectors.read() if isinstance(vectors, DiskArray) else vectors
        tokens = json.dumps(sentence.text.split(), ensure_ascii=False)
        line = f'{{"line": {sentence.line}, "tokens": {tokens}, "vectors": {_json(vectors)}}}\n'
        file.write(line.encode())


def _json(array: np.ndarray) -> str:
    if array.ndim == 1:
        return f"[{', '.join(map('%.9g'.__mod__, array.tolist()))}]"
    return f"[{', '.join(map(_json, array))}]"


def write_packed_hdf5(path: PathLike, partial: PartialFile, *, with_text: bool = True) -> None:
    """The packed layout in HDF5."""
    with writing_hdf5(path) as file:
        for name, array in _small_arrays(partial, with_text):
            file.create_dataset(name, data=array)
        dataset = file.create_dataset("vectors", _packed_shape(partial), partial.dtype)
        start = 0
        for rows in _packed_rows(partial):
            dataset[start : start + len(rows)] = rows
            start += len(rows)


def write_packed_npz(file: IO[bytes], partial: PartialFile, *, with_text: bool = True) -> None:
    """The packed layout in .npz."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in _small_arrays(partial, with_text):
            _write_member(archive, name, array)
        content = (rows.tobytes() for rows in _packed_rows(partial))
        # Of which only the type and the shape count.
        shaped = np.broadcast_to(np.zeros((), partial.dtype), _packed_shape(partial))
        _write_member(archive, "vectors", shaped, content)


def _is_pooled(partial: PartialFile) -> bool:
    return None not in partial.shape


def _packed_shape(partial: PartialFile) -> tuple[int, ...]:
    n_rows = partial.n_sentences if _is_pooled(partial) else partial.n_tokens
    return (n_rows, *(n for n in partial.shape if n is not None))


def _packed_rows(partial: PartialFile) -> Iterator[np.ndarray]:
    """The rows of all sentences, some megabytes at a time."""
    waiting: list[np.ndarray] = []
    n_bytes = 0
    for sentence in partial.sentences():
        vectors = sentence.vectors
        is_large = isinstance(vectors, DiskArray)
        for part in (part for _, _, part in vectors.parts()) if is_large else [vectors]:
            waiting.append(part[np.newaxis] if _is_pooled(partial) else np.moveaxis(part, -2, 0))
            n_bytes += part.nbytes
            if n_bytes > _CHUNK_BYTES:
                yield np.concatenate(waiting)
                waiting, n_bytes = [], 0
    if waiting:
        yield np.concatenate(waiting)


def _small_arrays(partial: PartialFile, with_text: bool) -> Iterator[tuple[str, np.ndarray]]:
    n, text = partial.n_sentences, bytearray()
    lines, sizes, text_sizes = (np.zeros(n, np.int64) for _ in range(3))
    for k, sentence in enumerate(partial.index()):
        lines[k] = sentence.line
        sizes[k] = 1 if _is_pooled(partial) else sentence.n_tokens
        if with_text:
            encoded = sentence.text.encode()
            text_sizes[k] = len(encoded)
            text += encoded
    yield "lines", lines
    yield "offsets", np.concatenate([[0], np.cumsum(sizes)])
    if with_text:
        yield "text", np.frombuffer(text, np.uint8)
        yield "text_offsets", np.concatenate([[0], np.cumsum(text_sizes)])


class PackedVectors:
    """Reads a packed HDF5 file, a sentence at a time; a context manager.

    `packed[k]` is what `ELMo.encode` gave for sentence k; `packed.line(k)` the number of its line
    and `packed.text(k)` the sentence.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is not a packed file, or an array of it is not right; when a sentence is
            read, what is there is damaged; `text` if the text was left out, or is not UTF-8.
    """

    @checked
    def __init__(self, path: PathLike) -> None:
        self._path = require_path(path, "a file of vectors")
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open_hdf5(path, "file of vectors"))
            try:
                self.vectors = own_dataset(file, "vectors")
                self._offsets = read_integers(file, "offsets")
                self._lines = read_integers(file, "lines")
                self._texts = None
                if file.get("text", getlink=True) is not None:
                    self._texts = own_dataset(file, "text")
                    self._text_offsets = read_integers(file, "text_offsets")
            except KeyError as error:
                raise InputError(
                    f"{path}: a packed HDF5 file is expected, with vectors, offsets and lines: "
                    f"{error.args[0]}."
                ) from error
            require_floats(file, "vectors", self.vectors)
            shape = self.vectors.shape
            if len(shape) not in (2, 3):
                raise InputError(
                    f"{path}: vectors: (rows, dim) or (rows, layers, dim) is expected, not {shape}."
                )
            self._require_bounds("offsets", self._offsets, shape[0])
            if self._texts is not None:
                if self._texts.dtype != np.uint8 or self._texts.ndim != 1:
                    raise InputError(f"{path}: text: uint8 of one axis is expected.")
                self._require_bounds("text_offsets", self._text_offsets, len(self._texts))
            self._open = stack.pop_all()

    def _require_bounds(self, name: str, offsets: np.ndarray, most: int) -> None:
        n = len(self) + 1
        is_rising = len(offsets) == n and not (offsets[1:] < offsets[:-1]).any()
        if not is_rising or offsets[0] < 0 or offsets[-1] > most:
            raise InputError(
                f"{self._path}: {name}: {n} rising numbers from 0 to {most} are expected, one "
                "more than lines."
            )

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, k: int) -> np.ndarray:
        rows = self._read("vectors", self.vectors, *self._offsets[self._known(k) :][:2])
        return rows if rows.ndim == 2 else np.moveaxis(rows, 0, -2)

    def _read(self, name: str, dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
        try:
            return dataset[start:stop]
        except (OSError, RuntimeError) as error:
            raise InputError(f"{self._path}: {name} is damaged: {error}") from error

    @checked
    def _known(self, k: int) -> int:
        if not 0 <= k < len(self):
            raise IndexError(f"{self._path}: sentences are 0 to {len(self) - 1}, not {k}.")
        return k

    def line(self, k: int) -> int:
        """The number of the sentence's line, from 0."""
        return int(self._lines[self._known(k)])

    def text(self, k: int) -> str:
        """The sentence as it was in the text."""
        if self._texts is None:
            raise InputError(f"{self._path}: holds no text; it was left out when it was written.")
        start, stop = self._text_offsets[self._known(k) :][:2]
        try:
            return self._read("text", self._texts, start, stop).tobytes().decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{self._path}: text {k} is not UTF-8: {error}.") from error

    def __enter__(self) -> PackedVectors:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class SentenceKeys:
    """Tells which sentences of a text are new, and refuses those that a file cannot name.

    In HDF5 a "/" in a name opens a group, so that "a / b" is found under its own name, as readers
    of `allennlp elmo`'s files expect, but cannot be beside a sentence "a ". Empty steps and
    steps of one full stop are passed over, so that "." alone names the file itself.

    Args:
        paths: True for HDF5, where "/" opens a group.
    """

    def __init__(self, paths: bool) -> None:
        self._paths = paths
        self._taken: dict[str, str] = {}  # names as HDF5 reads them, and the sentences
        self._groups: set[str] = set()

    def is_new(self, sentence: str, where: str) -> bool:
        """Whether a sentence comes for the first time; `where` names it in messages.

        Raises:
            InputError: the sentence cannot be a name, or not beside another one's.
        """
        steps = [sentence]
        if self._paths:
            steps = [step for step in sentence.split("/") if step not in ("", ".")]
        name = "/".join(steps)
        groups = {"/".join(steps[:n]) for n in range(1, len(steps))}
        if self._taken.get(name) == sentence:
            return False
        if "\0" in sentence or len(sentence.encode()) > _LONGEST_KEY:
            reason = f"names have at most {_LONGEST_KEY} bytes, none of 0"
        elif not steps:
            reason = "in HDF5 it names the file itself"
        elif name in self._taken or name in self._groups:
            reason = "in HDF5 another sentence has this name or group"
        elif not groups.isdisjoint(self._taken):
            reason = "in HDF5 another sentence has the name before a /"
        else:
            self._taken[name] = sentence
            self._groups |= groups
            return True
        shown = sentence if len(sentence) < 80 else f"{sentence[:77]}..."
        raise InputError(
            f"{where}: {shown!r} cannot be a key: {reason}. Keys that are line numbers (the "
            "default) are always possible."
        )
