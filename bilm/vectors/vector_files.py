"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, and JSON lines.

Each stores the facts of its job as JSON, from which --resume recognises a complete file: in the
attribute `bilm` of an HDF5 file, the comment of .npz, or the field `bilm` of the first JSON line.

docs/files.md describes the formats.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

import h5py
import numpy as np

from bilm.core.errors import InputError, shown
from bilm.data.sentences import Sentence
from bilm.extras import import_extra
from bilm.files.hdf5 import JournaledHDF5, damage_named, open_hdf5, shapes_in
from bilm.files.identity import FACTS
from bilm.files.reading import PathLike, decompressed
from bilm.vectors.job_pieces import (
    SAVE_BYTES,
    SAVE_SECONDS,
    EmbeddedSentence,
    OnDisk,
    as_dtype,
    checksum,
    slabs,
)

SENTENCE_INDEX = "sentence_to_index"
_LONGEST_KEY = 65000  # bytes; HDF5 and ZIP files have names of up to 64 KB


class HDF5Vectors:
    """Appends sentences to the HDF5 file of a job, one dataset each; a context manager.

    The file is in the job's folder and becomes OUT. Saved sentences survive a crash
    (`JournaledHDF5`). `with_ids` adds the key to each dataset as the attribute `original_id`, as
    bio_embeddings does.

    Attributes:
        n_sentences, checksum: number and `checksum` of the sentences so far.
    """

    def __init__(self, folder: str, dtype: str, *, with_ids: bool = False) -> None:
        # Hidden, because it may not have saved sentences yet.
        self._path = os.path.join(folder, ".vectors.hdf5")
        self._journaled = JournaledHDF5(self._path, os.path.join(folder, "journal"))
        self._file = self._journaled.file
        self._dtype, self._with_ids = np.dtype(dtype), with_ids
        record = self._journaled.record or {"n_sentences": 0, "checksum": 0, "is_complete": False}
        self.n_sentences, self.checksum = record["n_sentences"], record["checksum"]
        self._is_complete: bool = record["is_complete"]
        self._since, self._unsaved_bytes = time.monotonic(), 0
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._journaled)
            self._require_finite()
            stack.pop_all()

    def _require_finite(self) -> None:
        with damage_named(self._path):
            names = shapes_in(self._file)
            if len(names) < self.n_sentences:
                raise ValueError(f"{len(names)} datasets of {self.n_sentences} sentences")
            for name in names:
                vectors = self._file[name]
                if vectors.dtype != self._dtype:  # sentence_to_index
                    continue
                blocks = slabs(vectors) if vectors.ndim > 1 else [vectors[()]]
                if not all(np.isfinite(block).all() for block in blocks):
                    raise ValueError(f"the vectors of {name} must be finite")

    def new_array(self, shape: tuple[int, ...]) -> OnDisk:
        """An array on disk for a long sentence's vectors; that sentence must be added next."""
        self.save()
        return OnDisk(self._file.create_dataset(None, shape, self._dtype))

    def add(self, sentence: Sentence, vectors: Any) -> None:
        """Append a sentence; `vectors` is an array in memory, or the one from `new_array`."""
        if isinstance(vectors, OnDisk):
            dataset = self._file[sentence.name] = vectors.dataset
        else:
            rows = as_dtype(vectors, self._dtype)
            dataset = self._file.create_dataset(sentence.name, data=rows)
        if self._with_ids:
            dataset.attrs["original_id"] = sentence.name
        self.n_sentences += 1
        self.checksum = checksum(self.checksum, sentence)
        self._unsaved_bytes += dataset.nbytes
        is_late = time.monotonic() - self._since > SAVE_SECONDS
        if self._unsaved_bytes >= SAVE_BYTES or is_late:
            self.save()

    def save(self) -> None:
        """Save the sentences added so far."""
        if self._journaled.record.get("n_sentences") != self.n_sentences:
            self._commit()

    def _commit(self) -> None:
        record = {"n_sentences": self.n_sentences, "checksum": self.checksum}
        self._journaled.commit(record | {"is_complete": self._is_complete}, close=self._is_complete)
        self._since, self._unsaved_bytes = time.monotonic(), 0

    def complete(self, out: str, facts: str, index: dict[str, str] | None = None) -> None:
        """Add the facts of the job and `sentence_to_index`, close the file, and link or copy it to
        `out`."""
        if not self._is_complete:
            self._file.attrs[FACTS] = facts
            if index is not None:
                content = json.dumps(index)
                self._file.create_dataset(SENTENCE_INDEX, (1,), h5py.string_dtype())[0] = content
            self._is_complete = True
            self._commit()
        try:
            os.link(self._path, out)
        except OSError:  # another file system, or no links
            shutil.copyfile(self._path, out)

    def __enter__(self) -> HDF5Vectors:
        return self

    def __exit__(self, *_: Any) -> None:
        with self._journaled, contextlib.suppress(OSError):
            if not self._is_complete:
                self.save()


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
            is_long = isinstance(vectors, h5py.Dataset)
            content = _in_c_order(vectors) if is_long else [vectors]
            _write_member(archive, sentence.name, vectors.shape, vectors.dtype, content)
        if with_index:
            listed = np.array([json.dumps(index)])
            _write_member(archive, SENTENCE_INDEX, listed.shape, listed.dtype, [listed])


def _in_c_order(vectors: h5py.Dataset) -> Iterator[np.ndarray]:
    """The vectors of a long sentence in C order, some megabytes at a time."""
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


def read_facts(path: PathLike, kind: str) -> dict[str, Any]:
    """The facts of the job that wrote a file of the format `kind`.

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
            schema = import_extra("pyarrow.parquet", "Parquet").read_schema(path)
            facts = schema.metadata[FACTS.encode()]
        else:
            with open(path, "rb") as file:
                return dict(json.loads(decompressed(file).readline())[FACTS])
        return dict(json.loads(facts))
    except (OSError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
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
