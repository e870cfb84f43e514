"""Vectors as columns of Arrow tables and Parquet files; docs/files.md describes the columns.

The shape of a sentence's vectors is (tokens, dim) or (layers, tokens, dim), where the number of
tokens is None; pooled vectors lack the axis of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import bilm
from bilm.core.errors import InputError
from bilm.extras import import_extra

if TYPE_CHECKING:
    import pyarrow as pa

Shape = Sequence[int | None]

# The settings that determine vectors; "model" is its fingerprint.
_SETTINGS = ("model", "layers", "pooling", "dtype", "precision")

_ROW_BYTES = 256 * 2**20


def import_pyarrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or one of its modules."""
    return import_extra(module, "a table of vectors")


def settings_facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that determine vectors, and the version, as JSON."""
    return {name: settings[name] for name in _SETTINGS} | {"version": bilm.__version__}


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
