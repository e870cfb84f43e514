"""Vectors as columns of Arrow tables, and Parquet files of them.

A row is a sentence. Its vectors are in the column `vectors`, or with all layers in a column for
each, `layer_0`, `layer_1`, ...

    pooled        fixed_size_list<float>[dim]
    of tokens     list<fixed_size_list<float>[dim]>

In a file of `bilm embed` two columns come before them: `id`, int64, the number of the sentence's
line from 0, and `text`, string, the sentence. What the vectors are is in the schema's metadata,
which Parquet keeps: under `bilm` a JSON object with the model's fingerprint and the settings.

The shape of a sentence's vectors is a tuple, as that of `PartialFile`: (tokens, dim), (layers,
tokens, dim), or without tokens when they are pooled; None stands for the number of tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

import bilm
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.jobs.partial_file import DiskArray, EmbeddedSentence

if TYPE_CHECKING:
    import pyarrow as pa

Shape = Sequence[int | None]

METADATA = "bilm"
"""The key of the settings in the metadata of a schema."""

SETTINGS = ("model", "layers", "pooling", "dtype", "precision")
"""What vectors depend on: the fingerprint of the model, and what was asked for."""

_NEEDED_BY = "a table of vectors"
# While pyarrow writes a column, it has two levels for each number, in buffers that grow: three
# times the memory of the numbers with many sentences, six times with one.
_GROUP_BYTES = 32 * 2**20
_ROW_BYTES = 256 * 2**20


def import_pyarrow(module: str = "pyarrow") -> Any:
    """pyarrow, or a module of it.

    Raises:
        InputError: it is not installed; says what to install.
    """
    return import_extra(module, _NEEDED_BY)


class _Parts(NamedTuple):
    """What a shape says."""

    n_layers: int | None  # None: without an axis of layers
    is_pooled: bool
    dim: int

    @classmethod
    def of(cls, shape: Shape) -> _Parts:
        *middle, dim = shape
        layers = [n for n in middle if n is not None]
        return cls(layers[0] if layers else None, None not in middle, dim or 0)


def settings_metadata(settings: Mapping[str, Any]) -> dict[str, str]:
    """What the metadata of a schema says of its vectors: the `SETTINGS` among `settings`, and the
    version of the package, in JSON."""
    said = {name: settings[name] for name in SETTINGS} | {"version": bilm.__version__}
    return {METADATA: json.dumps(said)}


def vector_fields(shape: Shape, dtype: str, *, fixed_size: bool = True) -> list[pa.Field]:
    """The columns of vectors.

    Args:
        shape: of a sentence's vectors, see above.
        dtype: "float32" or "float16".
        fixed_size: False makes a vector a list of any size.
    """
    arrow, parts = import_pyarrow(), _Parts.of(shape)
    number = arrow.float16() if dtype == "float16" else arrow.float32()
    kind = arrow.list_(number, parts.dim) if fixed_size else arrow.list_(number)
    if not parts.is_pooled:
        kind = arrow.list_(kind)
    if parts.n_layers is None:
        return [arrow.field("vectors", kind)]
    return [arrow.field(f"layer_{k}", kind) for k in range(parts.n_layers)]


def vector_arrays(
    vectors: Sequence[Any], fields: Sequence[pa.Field], missing: Sequence[bool] | None = None
) -> list[pa.Array]:
    """The vectors of sentences as arrays of the columns of `vector_fields`.

    Args:
        vectors: of each sentence an array of the shape and dtype of the fields. A single one is
            not copied, and of a `DiskArray` the file is mapped.
        fields: the columns.
        missing: sentences that are null in the result.
    """
    arrow = import_pyarrow()
    if not vectors:
        return [arrow.array([], field.type) for field in fields]
    mask = arrow.array(missing, arrow.bool_()) if missing is not None and any(missing) else None
    arrays = [v.mapped() if isinstance(v, DiskArray) else v for v in vectors]
    if fields[0].name == "vectors":
        return [_vector_array(arrays, fields[0].type, mask)]
    return [
        _vector_array([array[k] for array in arrays], field.type, mask)
        for k, field in enumerate(fields)
    ]


def _vector_array(vectors: list[np.ndarray], kind: pa.DataType, mask: pa.Array | None) -> pa.Array:
    """A column, of arrays (tokens, dim) or (dim,)."""
    arrow = import_pyarrow()
    flat = [array.reshape(-1) for array in vectors]
    values = arrow.array(flat[0] if len(flat) == 1 else np.concatenate(flat))
    dim = vectors[0].shape[-1]
    if vectors[0].ndim == 1:
        return _rows(values, dim, kind, mask)
    tokens = _rows(values, dim, kind.value_type)
    offsets = np.cumsum([0, *(len(array) for array in vectors)], dtype=np.int32)
    return arrow.ListArray.from_arrays(offsets, tokens, mask=mask)


def _rows(values: pa.Array, dim: int, kind: pa.DataType, mask: pa.Array | None = None) -> pa.Array:
    """Numbers as vectors, lists of `dim` of them."""
    arrow = import_pyarrow()
    if arrow.types.is_fixed_size_list(kind):
        return arrow.FixedSizeListArray.from_arrays(values, dim, mask=mask)
    offsets = np.arange(0, len(values) + 1, dim, dtype=np.int32)
    return arrow.ListArray.from_arrays(offsets, values, mask=mask)


def file_schema(facts: Mapping[str, Any], *, with_text: bool = True) -> pa.Schema:
    """The columns of a file of `bilm embed`: id, text, vectors.

    Args:
        facts: "shape" is that of a sentence's vectors; and the `SETTINGS`.
        with_text: have the column `text`.
    """
    arrow = import_pyarrow()
    fields = [arrow.field("id", arrow.int64())]
    if with_text:
        fields.append(arrow.field("text", arrow.string()))
    fields += vector_fields(facts["shape"], facts["dtype"])
    return arrow.schema(fields, metadata=settings_metadata(facts))


def parquet_writer(file: IO[bytes] | str, schema: pa.Schema) -> Any:
    """A `pyarrow.parquet.ParquetWriter` for vectors: zstd, without dictionaries."""
    # Numbers of vectors are hardly ever alike, and nobody looks for the largest of them.
    return import_pyarrow("pyarrow.parquet").ParquetWriter(
        file, schema, compression="zstd", use_dictionary=False, write_statistics=["id"]
    )


def write_parquet(
    file: IO[bytes],
    sentences: Iterable[EmbeddedSentence],
    facts: Mapping[str, Any],
    *,
    with_text: bool = True,
    group_bytes: int = _GROUP_BYTES,
) -> None:
    """A Parquet file with a row for each sentence, compressed by zstd, without dictionaries.

    Args:
        file: what to write to; it need not be able to go back.
        sentences: what goes into it.
        facts, with_text: as for `file_schema`.
        group_bytes: of the vectors and texts of a row group; more only for a single sentence.
    """
    arrow = import_pyarrow()
    schema = file_schema(facts, with_text=with_text)
    fields = [field for field in schema if field.name not in ("id", "text")]
    with parquet_writer(file, schema) as writer:
        for group in _groups(sentences, group_bytes):
            columns = [arrow.array([sentence.line for sentence in group], arrow.int64())]
            if with_text:
                texts = [sentence.text for sentence in group]
                columns.append(arrow.array(texts, arrow.string()))
            vectors = [sentence.vectors for sentence in group]
            columns += vector_arrays(vectors, fields)
            table = arrow.Table.from_arrays(columns, schema=schema)
            writer.write_table(table, row_group_size=len(group))


def _groups(
    sentences: Iterable[EmbeddedSentence], group_bytes: int
) -> Iterator[list[EmbeddedSentence]]:
    """Sentences of so many bytes together, or single ones that have more."""
    group: list[EmbeddedSentence] = []
    n_bytes = 0
    for sentence in sentences:
        vectors = sentence.vectors
        size = vectors.dtype.itemsize * math.prod(vectors.shape) + len(sentence.text)
        if group and n_bytes + size > group_bytes:
            yield group
            group, n_bytes = [], 0
        group.append(sentence)
        n_bytes += size
    if group:
        yield group


def require_row(
    n_tokens: int, shape: Shape, dtype: str, where: str, row_bytes: int = _ROW_BYTES
) -> None:
    """Check that the vectors of a sentence can be a row: those of a column are in memory at once.

    Args:
        n_tokens: of the sentence.
        shape, dtype: of its vectors.
        where: names it.
        row_bytes: of a row of a column, at most.

    Raises:
        InputError: they are more.
    """
    parts = _Parts.of(shape)
    size = np.dtype(dtype).itemsize * parts.dim * (1 if parts.is_pooled else n_tokens)
    if size > row_bytes:
        raise InputError(
            f"{where}: the vectors of a sentence are a row in Parquet, of at most {row_bytes:,} "
            f"bytes in a column; {n_tokens:,} tokens have {size:,}. Cut the line, pool the "
            "vectors, or write HDF5."
        )
