"""Vectors for tables: one function over Arrow tables, for an engine's workers or for a loop.

    embedder = TableEmbedder("elmo", text_column="text", pooling="mean")
    table = embedder(table)                          # Ray Data: map_batches(embedder, ...)
    for batch in embedder.batches(batches): ...      # Spark: mapInArrow

An embedder can be pickled and is small: it names a model, and each process loads it once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.core.errors import TEXT, InputError, require, require_at_least
from bilm.data.prefetch import windows
from bilm.data.sentences import as_tokens
from bilm.files.identity import FACTS
from bilm.files.model_files import ModelSource, open_model
from bilm.use.pretrained import Pretrained
from bilm.vectors.vector_files import (
    VectorSpec,
    as_dtype,
    import_pyarrow,
    settings_facts,
    vector_arrays,
    vector_fields,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from bilm.use.elmo import ELMo

_PIECE_BYTES = 64 * 2**20


# The model loaded last, by its embedder's key: engines pass a copy of the embedder to each task.
_LOCK = threading.Lock()
_LATEST: dict[str, ELMo] = {}


class TableEmbedder:
    """Appends the vectors of a column of text to tables.

    Args:
        model: the source for `ELMo.from_pretrained`; a `Pretrained`, which includes its other
            arguments; or an `ELMo`, which becomes part of the pickle. Relative paths are made
            absolute.
        text_column: column of sentences: text, split as by `ELMo.encode`, or lists of tokens. A
            null stays null; a sentence without tokens becomes an empty list, or zeros when pooled.
        layers: as for `ELMo.encode`, except a `ScalarMix`; with "all" each layer has a column.
        pooling: None, "mean" or "max".
        dtype: "float32" or "float16".
        batch_size: maximum number of sentences computed together; None: chosen for speed.
        threads: TensorFlow threads in each process that computes; None: its default. They must be
            set before TensorFlow is used there.
        fixed_size: False makes a vector a list of any size, as Spark requires.

    The columns are `vectors`, or `layer_0`, `layer_1`, ...; docs/files.md describes them.

    Raises:
        InputError: an argument has a wrong value, or pyarrow is not installed.
    """

    def __init__(
        self,
        model: ModelSource | Pretrained | ELMo,
        *,
        text_column: str = "text",
        layers: str | int | Sequence[float] = "average",
        pooling: str | None = None,
        dtype: str = "float32",
        batch_size: int | None = None,
        threads: int | None = None,
        fixed_size: bool = True,
    ) -> None:
        require(TEXT, text_column=text_column)
        require_at_least(1, batch_size=batch_size, threads=threads)
        self.text_column, self.batch_size, self.threads = text_column, batch_size, threads
        self.fixed_size = fixed_size
        self.spec = VectorSpec.of(layers, pooling, dtype)
        self._loaded: ELMo | None = None
        self._key = uuid.uuid4().hex
        self._model: Any = model  # a Pretrained or an ELMo
        if not hasattr(model, "encode_iter"):
            self._model = Pretrained.of(model).absolute()
        import_pyarrow()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_loaded": None}
        state.pop("_settings", None)  # the other process reads its own files
        return state

    @functools.cached_property
    def shape(self) -> list[int | None]:
        """The shape of a sentence's vectors, (layers, tokens, dim) or a part of it, with None for
        the number of tokens. Reads the model's options, but not its weights."""
        if not isinstance(self._model, Pretrained):
            return self.spec.shape(self._load().options)
        with open_model(self._model.source, weights_only=True) as files:
            return self.spec.shape(files.read_options())

    def schema(self, table: pa.Schema) -> pa.Schema:
        """The schema of the result for tables of schema `table`, without loading weights.

        Raises:
            InputError: the text column is missing, or a column of vectors exists already.
            FileNotFoundError: the model does not exist.
        """
        if table.get_field_index(self.text_column) < 0:
            raise InputError(
                f"the table must have one column {self.text_column!r}, its columns are "
                f"{table.names}."
            )
        for field in self._fields():
            if field.name in table.names:
                raise InputError(
                    f"the table has a column {field.name!r} already: rename or drop it."
                )
            table = table.append(field)
        return table

    def _fields(self) -> list[pa.Field]:
        return vector_fields(self.shape, self.spec.dtype, fixed_size=self.fixed_size)

    def settings(self) -> dict[str, Any]:
        """The settings that determine the vectors, for JSON: "model" (its fingerprint; this loads
        the model), "layers", "pooling", "dtype" and "precision"."""
        return dict(self._settings)

    @functools.cached_property
    def _settings(self) -> dict[str, Any]:
        model = self._load(strict=False)
        facts = {"model": model.fingerprint(), "precision": model.precision}
        return facts | self.spec._asdict()

    def __call__(self, table: pa.Table) -> pa.Table:
        """The table with its vectors, in memory.

        Raises:
            InputError: as for `schema` and `ELMo.encode`; or a value is too large for float16.
        """
        arrow = import_pyarrow()
        if not isinstance(table, arrow.Table):
            raise InputError(
                f"table must be a pyarrow.Table, got {type(table).__name__}; for Ray Data "
                "set batch_format='pyarrow'."
            )
        schema = self.schema(table.schema)  # checked before the model is loaded
        batches = self.batches(table.to_batches())
        return arrow.Table.from_batches(batches, self._described(schema))

    def batches(
        self, batches: Iterable[pa.RecordBatch], most_bytes: int = _PIECE_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a stream with their vectors, in order.

        Args:
            batches: batches of the same schema.
            most_bytes: upper bound for the vectors of a batch; a larger batch is split. A larger
                sentence becomes a batch by itself.

        Raises:
            InputError: as for `__call__`, when the batch is reached.
        """
        model, fields = self._load(), self._fields()
        layers, pooling, dtype = self.spec
        token_bytes = np.dtype(dtype).itemsize * math.prod(filter(None, self.shape))

        def n_bytes(tokens: list[str] | None) -> int:
            return token_bytes * (1 if pooling else len(tokens or ()))

        for batch in batches:
            schema = self._described(self.schema(batch.schema))
            sentences = [
                None if text is None else as_tokens(text, f"sentence {row}", model.tokens)
                for row, text in enumerate(batch.column(self.text_column).to_pylist())
            ]
            computed = model.encode_iter(
                [tokens or [] for tokens in sentences],
                layers,
                pooling,
                batch_size=self.batch_size,
                show_progress=False,
            )
            start = 0
            for part, _ in windows(sentences, n_bytes, most_bytes) if sentences else [([], False)]:
                vectors = [
                    as_dtype(next(computed), dtype, f"sentence {start + k}")
                    for k in range(len(part))
                ]
                missing = [tokens is None for tokens in part]
                rows = batch.slice(start, len(part))
                columns = [*rows.columns, *vector_arrays(vectors, fields, missing)]
                yield import_pyarrow().RecordBatch.from_arrays(columns, schema=schema)
                start += len(part)

    def _described(self, schema: pa.Schema) -> pa.Schema:
        """A schema with the settings in its metadata."""
        facts = json.dumps(settings_facts(self._settings))
        return schema.with_metadata({**(schema.metadata or {}), FACTS.encode(): facts.encode()})

    def _load(self, strict: bool = True) -> ELMo:
        """The model in this process; `strict` raises an InputError if `threads` cannot be set."""
        with _LOCK:
            if self.threads is not None:
                with contextlib.suppress(*([] if strict else [InputError])):
                    set_threads(self.threads)
            if self._loaded is None:
                is_elmo = hasattr(self._model, "encode_iter")
                loaded = self._model if is_elmo else _LATEST.get(self._key)
                self._loaded = loaded or self._model.load(softmax=False).elmo
            _LATEST.clear()
            _LATEST[self._key] = self._loaded
            return self._loaded


def set_threads(n: int) -> None:
    """Let TensorFlow use `n` threads in this process, within and across operations. It ignores
    OMP_NUM_THREADS, which engines set."""
    import tensorflow as tf

    settings = tf.config.threading
    try:
        settings.set_intra_op_parallelism_threads(n)
        settings.set_inter_op_parallelism_threads(n)
    except RuntimeError as error:
        before = settings.get_intra_op_parallelism_threads() or "one per CPU"
        raise InputError(
            f"threads must be set before TensorFlow is used in this process, got {n} after it was "
            f"used with {before}: use a new process."
        ) from error
