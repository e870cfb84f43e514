"""Files of vectors: HDF5 as `allennlp elmo` writes it, .npz, JSON lines, and Parquet; columns of
Arrow tables.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np

import bilm
from bilm.core.errors import InputError, import_extra, not_finite, one_of, require, shown
from bilm.core.options import Options
from bilm.data.prefetch import windows
from bilm.data.sentences import Sentence
from bilm.files.hdf5 import open_hdf5, writing_hdf5
from bilm.files.identity import FACTS
from bilm.files.reading import PathLike, compressed_damage_named, decompressed
from bilm.files.writing import compressed
from bilm.inference.layers import LayerChoice, plain_layers

if TYPE_CHECKING:
    import pyarrow as pa

Shape = Sequence[int | None]
"""The shape of a sentence's vectors, (tokens, dim) or (layers, tokens, dim), where the number of
tokens is None; pooled vectors lack the axis of tokens."""

SENTENCE_INDEX = "sentence_to_index"
# The settings that determine vectors; "model" is its fingerprint.
_SETTINGS = ("model", "layers", "pooling", "dtype", "precision")
_ROW_BYTES = 256 * 2**20
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


Embedded = Iterable[tuple[Sentence, np.ndarray]]
"""Sentences and their vectors, which may be files mapped into memory."""


def settings_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that determine vectors, and the version, as JSON."""
    return {name: settings[name] for name in _SETTINGS} | {"version": bilm.__version__}


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
        raise not_finite(f"{where}: the model's vectors")
    return converted


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
    is_table = False  # a sentence is a row, which must fit into memory, and cannot be its own key
    keys: type[Keys] = Keys

    def write(self, out: Any, embedded: Embedded, settings: Any, facts: str) -> None:
        """Write a file or stream; a stream has no facts."""
        raise NotImplementedError

    def facts(self, path: PathLike) -> Any:
        """The facts of a file, a dict; None in an empty file that cannot have any."""
        raise NotImplementedError


class _HDF5(Format):
    """One dataset per sentence, as AllenNLP has, with `sentence_to_index` as JSON; or with the key
    as the attribute `original_id`, as bio_embeddings has."""

    endings = (".hdf5", ".h5", "")
    keys = _HDF5Keys

    def write(self, out: Any, embedded: Embedded, settings: Any, facts: str) -> None:
        index: dict[str, str] = {}
        with writing_hdf5(out) as file:
            for sentence, vectors in embedded:
                index[sentence.text] = sentence.name
                dataset = file.create_dataset(sentence.name, data=vectors)
                if settings["keys"] == "ids":
                    dataset.attrs["original_id"] = sentence.name
            if _has_index(settings):
                text = h5py.string_dtype()
                file.create_dataset(SENTENCE_INDEX, (1,), text)[0] = json.dumps(index)
            file.attrs[FACTS] = facts

    def facts(self, path: PathLike) -> Any:
        with open_hdf5(path) as file:
            return json.loads(file.attrs[FACTS])


class _Npz(Format):
    """One array per sentence, for `numpy.load`; `sentence_to_index` is text of shape (1,)."""

    endings = (".npz",)
    can_stream = True
    keys = _NpzKeys

    def write(self, out: Any, embedded: Embedded, settings: Any, facts: str) -> None:
        index: dict[str, str] = {}
        with zipfile.ZipFile(out, "w") as archive:

            def write_array(name: str, array: np.ndarray) -> None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

            archive.comment = facts.encode()
            for sentence, vectors in embedded:
                if _has_index(settings):
                    index[sentence.text] = sentence.name
                write_array(sentence.name, vectors)
            if _has_index(settings):
                write_array(SENTENCE_INDEX, np.array([json.dumps(index)]))

    def facts(self, path: PathLike) -> Any:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.comment)


class _JSONLines(Format):
    """One JSON object per sentence: {"line": 0-based number, "tokens": [...], "vectors": [...]},
    with "key" after "line" if it has one; the first line has the facts last."""

    endings = (".jsonl", ".jsonl.gz")
    can_stream = True

    def write(self, out: Any, embedded: Embedded, settings: Any, facts: str) -> None:
        is_path = isinstance(out, str | os.PathLike)
        with compressed(out) if is_path else contextlib.nullcontext(out) as file:
            for sentence, vectors in embedded:
                key = {} if sentence.key is None else {"key": sentence.key}
                fields = {"line": sentence.number, **key, "tokens": sentence.text.split()}
                file.write(f'{json.dumps(fields, ensure_ascii=False)[:-1]}, "vectors": '.encode())
                for part in _json_parts(vectors):
                    file.write(part.encode())
                file.write(f', "{FACTS}": {facts}}}\n'.encode() if facts else b"}\n")
                facts = ""

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


def _json_parts(vectors: np.ndarray) -> Iterator[str]:
    """JSON of vectors, token by token. Numbers have nine digits, from which float32 is restored
    exactly."""
    if vectors.ndim == 1:
        yield f"[{', '.join(map('%.9g'.__mod__, vectors.tolist()))}]"
        return
    separator = "["
    for part in vectors:
        yield separator
        yield from _json_parts(part)
        separator = ", "
    yield "[]" if separator == "[" else "]"


class _Parquet(Format):
    """One row per sentence, and the facts as metadata.

    Attributes:
        group_bytes: maximum size of the vectors and text of a row group of several sentences.
    """

    endings = (".parquet",)
    is_table = True
    # While pyarrow writes a column, it buffers two Parquet levels per number, so writing takes
    # three times the memory of the numbers, or six times with a single sentence.
    group_bytes = 32 * 2**20

    def write(self, out: Any, embedded: Embedded, settings: Any, facts: str) -> None:
        arrow = import_pyarrow()
        columns = [arrow.field("id", arrow.int64())]
        columns += [arrow.field("key", arrow.string())] if settings["keys"] == "ids" else []
        columns += [arrow.field("text", arrow.string())] if settings["with_text"] else []
        fields = vector_fields(settings["shape"], settings["dtype"])
        schema = arrow.schema([*columns, *fields], metadata={FACTS: facts})
        # Components rarely repeat, and queries do not need their range.
        options = {"compression": "zstd", "use_dictionary": False, "write_statistics": ["id"]}
        with import_pyarrow("pyarrow.parquet").ParquetWriter(out, schema, **options) as writer:
            for group, _ in windows(embedded, _n_bytes, self.group_bytes):
                sentences, vectors = zip(*group, strict=True)
                numbers, texts, keys = zip(*sentences, strict=True)
                contents = {"id": numbers, "key": keys, "text": texts}
                arrays = [arrow.array(contents[c.name], c.type) for c in columns]
                arrays += vector_arrays(vectors, fields)
                table = arrow.Table.from_arrays(arrays, schema=schema)
                writer.write_table(table, row_group_size=len(group))

    def facts(self, path: PathLike) -> Any:
        schema = import_pyarrow("pyarrow.parquet").read_schema(path)
        return json.loads(schema.metadata[FACTS.encode()])


def _n_bytes(embedded: tuple[Sentence, np.ndarray]) -> int:
    sentence, vectors = embedded
    return vectors.nbytes + len(sentence.text)


FORMATS = {"hdf5": _HDF5(), "npz": _Npz(), "jsonl": _JSONLines(), "parquet": _Parquet()}
"""The formats of files of vectors, by name."""


def _has_index(settings: Mapping[str, Any]) -> bool:
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
    except (OSError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # such as a missing permission
        raise InputError(
            f"{path} exists, and is not a complete file of vectors of `bilm embed`: move it away, "
            "or replace it with force."
        ) from error


# Arrow


def import_pyarrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or one of its modules."""
    return import_extra(module, "a table of vectors")


def vector_fields(shape: Shape, dtype: str, *, fixed_size: bool = True) -> list[pa.Field]:
    """The columns for vectors of a shape and dtype; without `fixed_size` a vector is a list of any
    size."""
    arrow, (*before, dim) = import_pyarrow(), shape
    number = arrow.float16() if dtype == "float16" else arrow.float32()
    kind = arrow.list_(number, dim) if fixed_size else arrow.list_(number)
    if None in before:
        kind = arrow.list_(kind)
    n_layers = next(filter(None, before), None)
    if n_layers is None:
        return [arrow.field("vectors", kind)]
    return [arrow.field(f"layer_{k}", kind) for k in range(n_layers)]


def vector_arrays(
    vectors: Sequence[np.ndarray], fields: Sequence[pa.Field], missing: Sequence[bool] = ()
) -> list[pa.Array]:
    """The vectors of sentences, one array each, as columns for `vector_fields`; a single array is
    not copied. `missing` sentences are null."""
    arrow = import_pyarrow()
    if not vectors:
        return [arrow.array([], field.type) for field in fields]
    mask = arrow.array(missing, arrow.bool_()) if any(missing) else None
    layers: Sequence[Any] = range(len(fields)) if fields[0].name == "layer_0" else [()]
    return [
        _vector_array([array[layer] for array in vectors], field.type, mask)
        for layer, field in zip(layers, fields, strict=True)
    ]


def _vector_array(vectors: list[np.ndarray], kind: pa.DataType, mask: pa.Array | None) -> pa.Array:
    """A column of arrays (tokens, dim) or (dim,)."""
    arrow, dim = import_pyarrow(), vectors[0].shape[-1]
    is_pooled = vectors[0].ndim == 1
    flat = [array.reshape(-1) for array in vectors]
    values = arrow.array(flat[0] if len(flat) == 1 else np.concatenate(flat))
    options = {"mask": mask} if is_pooled else {}
    if arrow.types.is_fixed_size_list(kind if is_pooled else kind.value_type):
        rows = arrow.FixedSizeListArray.from_arrays(values, dim, **options)
    else:
        starts = np.arange(0, len(values) + 1, dim, dtype=np.int32)
        rows = arrow.ListArray.from_arrays(starts, values, **options)
    if is_pooled:
        return rows
    starts = np.cumsum([0, *map(len, vectors)], dtype=np.int32)
    return arrow.ListArray.from_arrays(starts, rows, mask=mask)


def require_row(
    n_tokens: int, shape: Shape, dtype: str, where: str, row_bytes: int = _ROW_BYTES
) -> None:
    """Require that a sentence's vectors fit into a row, which must fit into memory; `where` names
    the sentence."""
    *before, dim = shape
    size = np.dtype(dtype).itemsize * (dim or 0) * (n_tokens if None in before else 1)
    if size > row_bytes:
        raise InputError(
            f"{where}: a sentence's vectors are one row in Parquet and must have at most "
            f"{row_bytes:,} bytes in a column, got {size:,} for {n_tokens:,} tokens. Cut the line, "
            "pool the vectors, or write HDF5."
        )
