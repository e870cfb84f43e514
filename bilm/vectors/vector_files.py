"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, JSON lines, and Parquet.

Each stores the facts of its job as JSON, from which --resume recognises a complete file: in the
attribute `bilm` of an HDF5 file, the comment of .npz, the field `bilm` of the first JSON line, or
the metadata of Parquet.

docs/files.md describes the formats.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import h5py
import numpy as np

from bilm.core.errors import InputError, one_of, require, shown
from bilm.core.options import Options
from bilm.data.prefetch import windows
from bilm.data.sentences import Sentence
from bilm.files.hdf5 import open_hdf5, writing_hdf5
from bilm.files.identity import FACTS
from bilm.files.reading import PathLike, compressed_damage_named, decompressed
from bilm.files.writing import compressed
from bilm.inference.layers import LayerChoice, plain_layers
from bilm.vectors.arrow import Shape, import_pyarrow, vector_arrays, vector_fields

SENTENCE_INDEX = "sentence_to_index"
SLAB_BYTES = 16 * 2**20
# While pyarrow writes a column, it buffers two Parquet levels per number, so writing takes three
# times the memory of the numbers, or six times with a single sentence.
_GROUP_BYTES = 32 * 2**20
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
    of tokens; perhaps a file mapped into memory, which `slabs` reads in bounded memory."""

    sentence: Sentence
    vectors: Any


def slabs(vectors: Any, layer: Any = ...) -> Iterator[np.ndarray]:
    """vectors[layer, start:stop, :] in order, some megabytes each, for an array (tokens, dim) or
    (n_layers, tokens, dim)."""
    n_tokens = vectors.shape[-2]
    step = max(1, SLAB_BYTES * n_tokens // max(vectors.nbytes, 1))
    for start in range(0, n_tokens, step):
        yield vectors[layer, start : start + step, :]


def as_dtype(vectors: np.ndarray, dtype: str | np.dtype, where: str) -> np.ndarray:
    """Vectors as float32 or float16, which must be finite; `where` names the sentence."""
    with np.errstate(over="ignore"):
        converted = vectors.astype(dtype, copy=False)
    if not np.isfinite(converted).all():
        largest = float(np.abs(vectors).max())
        if np.isfinite(largest):
            raise InputError(
                f"{where}: dtype: values of {dtype} are at most 65504, and a vector has "
                f"{largest:g}."
            )
        raise InputError(
            f"{where}: the model's vectors are not finite: its weights are damaged, or its "
            "training diverged."
        )
    return converted


def write_hdf5(
    file: PathLike,
    embedded: Iterable[EmbeddedSentence],
    *,
    with_index: bool = True,
    with_ids: bool = False,
    facts: str = "",
) -> None:
    """Write one dataset per sentence, as AllenNLP does, with `sentence_to_index` as JSON; or with
    the key as the attribute `original_id`, as bio_embeddings does."""
    index: dict[str, str] = {}
    with writing_hdf5(file) as hdf5:
        for sentence, vectors in embedded:
            index[sentence.text] = sentence.name
            dataset = hdf5.create_dataset(sentence.name, data=vectors)
            if with_ids:
                dataset.attrs["original_id"] = sentence.name
        if with_index:
            text = h5py.string_dtype()
            hdf5.create_dataset(SENTENCE_INDEX, (1,), text)[0] = json.dumps(index)
        hdf5.attrs[FACTS] = facts


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
    if vectors.nbytes <= SLAB_BYTES:
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


def write_parquet(
    file: str | IO[bytes],
    embedded: Iterable[EmbeddedSentence],
    shape: Shape,
    dtype: str,
    facts: str,
    with_text: bool = True,
    with_keys: bool = False,
    *,
    group_bytes: int = _GROUP_BYTES,
) -> None:
    """Write a Parquet file with one row per sentence, and the JSON `facts` as metadata. `shape` is
    the shape of a sentence's vectors; a row group has at most `group_bytes` of vectors and text, or
    one sentence."""
    arrow = import_pyarrow()
    columns = [arrow.field("id", arrow.int64())]
    columns += [arrow.field("key", arrow.string())] if with_keys else []
    columns += [arrow.field("text", arrow.string())] if with_text else []
    fields = vector_fields(shape, dtype)
    schema = arrow.schema([*columns, *fields], metadata={FACTS: facts})
    in_memory = (each._replace(vectors=each.vectors[()]) for each in embedded)
    # Components rarely repeat, and queries do not need their range.
    settings = {"compression": "zstd", "use_dictionary": False, "write_statistics": ["id"]}
    with import_pyarrow("pyarrow.parquet").ParquetWriter(file, schema, **settings) as writer:
        for group, _ in windows(in_memory, _n_bytes, group_bytes):
            sentences, vectors = zip(*group, strict=True)
            numbers, texts, keys = zip(*sentences, strict=True)
            contents = {"id": numbers, "key": keys, "text": texts}
            arrays = [arrow.array(contents[c.name], c.type) for c in columns]
            arrays += vector_arrays(vectors, fields)
            table = arrow.Table.from_arrays(arrays, schema=schema)
            writer.write_table(table, row_group_size=len(group))


def _n_bytes(embedded: EmbeddedSentence) -> int:
    return int(embedded.vectors.nbytes) + len(embedded.sentence.text)


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


def parquet_facts(file: PathLike | IO[bytes]) -> dict[str, Any]:
    """The facts about the vectors of a Parquet file, from its metadata."""
    try:
        schema = import_pyarrow("pyarrow.parquet").read_schema(file)
        return dict(json.loads(schema.metadata[FACTS.encode()]))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError("a Parquet file must have bilm's facts about its vectors.") from error


class Keys:
    """Checks keys of sentences: they must differ, and the file must be able to hold them."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def is_new(self, key: str, where: str) -> bool:
        """Whether a key is new; `where` is its file and line, for messages."""
        if key in self.taken:
            return False
        is_short = "\0" not in key and len(key.encode()) <= _LONGEST_KEY
        limit = f"keys have at most {_LONGEST_KEY} bytes and no NUL"
        reason = self.problem(key) if is_short else limit
        if reason:
            raise InputError(
                f"{where}: {shown(key)} cannot be a key: {reason}. Parquet and JSON lines accept "
                "any key; plain text can have line numbers as keys."
            )
        self.taken.add(key)
        return True

    def problem(self, key: str) -> str | None:
        """Why the format cannot hold a key in addition to the keys so far; None if it can."""


_INDEX_PROBLEM = f"{SENTENCE_INDEX} is the name of the index of all sentences"


class _HDF5Keys(Keys):
    """A "/" in a key opens a group. Readers of `allennlp elmo`'s files find "a / b" by its name,
    but a second key "a " is impossible. Keys with characters that HDF5 may interpret are tried in a
    file in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._file = h5py.File(io.BytesIO(), "w")

    def problem(self, key: str) -> str | None:
        if key.split("/")[0] == SENTENCE_INDEX:
            return _INDEX_PROBLEM
        with contextlib.suppress(OSError, RuntimeError, TypeError, ValueError):
            if not re.search(r"/|^\.*$", key):
                fits = key not in self._file
            else:
                name = self._file.create_dataset(key, (0,)).name
                fits = name.split("/")[1] not in self.taken
            if fits:
                return None
        return "in HDF5, '/' opens a group, and no key may name a group of another one"


class _NpzKeys(Keys):
    """The key "a.npy" is read as "a" if both exist."""

    def problem(self, key: str) -> str | None:
        if key.removesuffix(".npy") == SENTENCE_INDEX:
            return _INDEX_PROBLEM
        if self.taken.isdisjoint({f"{key}.npy", key.removesuffix(".npy")}):
            return None
        return "numpy.load does not distinguish KEY from KEY.npy"


class Format:
    """A format of files of vectors.

    `settings` of a job are a mapping with "shape", of a sentence's vectors with None for the number
    of tokens; "dtype"; "keys", which are "numbers" of lines, "ids" or the "sentences" themselves;
    and "with_text".
    """

    endings: tuple[str, ...]  # lower-case endings of OUT that choose it
    can_stream = False  # it can be written to a stream
    has_sentence_keys = True  # a sentence can be its own key
    has_rows = False  # a sentence is a row, which must fit into memory
    keys: type[Keys] = Keys

    def require_packages(self) -> None:
        """Raise an InputError if an optional package is missing."""

    def write(
        self, out: Any, embedded: Iterable[EmbeddedSentence], settings: Any, facts: str
    ) -> None:
        """Write a file or stream; a stream has no facts."""
        raise NotImplementedError

    def facts(self, path: PathLike) -> Any:
        """The facts of a file, a dict; None in an empty file that cannot have any."""
        raise NotImplementedError


class _HDF5(Format):
    endings = (".hdf5", ".h5", "")
    keys = _HDF5Keys

    def write(
        self, out: Any, embedded: Iterable[EmbeddedSentence], settings: Any, facts: str
    ) -> None:
        with_ids = settings["keys"] == "ids"
        write_hdf5(out, embedded, with_index=has_index(settings), with_ids=with_ids, facts=facts)

    def facts(self, path: PathLike) -> Any:
        with open_hdf5(path) as file:
            return json.loads(file.attrs[FACTS])


class _Npz(Format):
    endings = (".npz",)
    can_stream = True
    keys = _NpzKeys

    def write(
        self, out: Any, embedded: Iterable[EmbeddedSentence], settings: Any, facts: str
    ) -> None:
        write_npz(out, embedded, with_index=has_index(settings), facts=facts)

    def facts(self, path: PathLike) -> Any:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.comment)


class _JSONLines(Format):
    endings = (".jsonl", ".jsonl.gz")
    can_stream = True

    def write(
        self, out: Any, embedded: Iterable[EmbeddedSentence], settings: Any, facts: str
    ) -> None:
        is_path = isinstance(out, str | os.PathLike)
        with compressed(out) if is_path else contextlib.nullcontext(out) as file:
            write_jsonl(file, embedded, facts=facts)

    def facts(self, path: PathLike) -> Any:
        with open(path, "rb") as file, compressed_damage_named(path):
            n_lines, first, last = 0, b"", b""
            for last in decompressed(file):
                first = first or last
                n_lines += 1
        facts = json.loads(first)[FACTS] if first else None
        if facts is not None and (facts["sentences"] != n_lines or not last.endswith(b"\n")):
            raise ValueError("the file is cut off")
        return facts


class _Parquet(Format):
    endings = (".parquet",)
    has_sentence_keys = False
    has_rows = True

    def require_packages(self) -> None:
        import_pyarrow()

    def write(
        self, out: Any, embedded: Iterable[EmbeddedSentence], settings: Any, facts: str
    ) -> None:
        columns = {"with_text": settings["with_text"], "with_keys": settings["keys"] == "ids"}
        write_parquet(out, embedded, settings["shape"], settings["dtype"], facts, **columns)

    def facts(self, path: PathLike) -> Any:
        return parquet_facts(path)


FORMATS = {"hdf5": _HDF5(), "npz": _Npz(), "jsonl": _JSONLines(), "parquet": _Parquet()}
"""The formats of files of vectors, by name."""


def has_index(settings: Mapping[str, Any]) -> bool:
    """Whether a file has `sentence_to_index`."""
    return bool(settings["with_text"]) and settings["keys"] == "numbers"


def read_facts(path: PathLike, kind: str, is_empty: bool = False) -> dict[str, Any] | None:
    """The facts of the job that wrote a file of the format `kind`. JSON lines of a text without
    sentences (`is_empty`) are an empty file, without facts: None.

    Raises:
        InputError: the file has no facts: it is damaged, or another program wrote it.
    """
    try:
        facts = FORMATS[kind].facts(path)
        return None if facts is None and is_empty else dict(facts)
    except (
        OSError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # such as a missing permission
        raise InputError(
            f"{path} exists, and is not a complete file of vectors of `bilm embed`: move it away, "
            "or replace it with force."
        ) from error
