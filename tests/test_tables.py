"""Vectors for tables: `TableEmbedder` in loops, in other processes, and on tables of all kinds."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bilm import InputError, Pretrained, ScalarMix, TableEmbedder
from tests.embedded_text import LINES

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.eager


@pytest.fixture
def embedder(published):
    """An embedder that averages the layers of each token, with a model that is already loaded."""
    return TableEmbedder(published.model)


def table(texts=LINES, kind=None):
    return pa.table({"n": range(len(texts)), "text": pa.array(texts, kind)})


def arrays(column):
    """The vectors of each row; None for a null."""
    return [None if x is None else np.array(x, np.float64) for x in column.to_pylist()]


def assert_rows(column, expected, atol=1e-6):
    found = arrays(column)
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(row.reshape(wanted.shape), wanted, atol=atol)


# Output


def test_vectors_of_tokens(published, embedder):
    given = table().append_column("more", [["x"] * 6])
    result = embedder(given)
    assert result.column_names == ["n", "text", "more", "vectors"]
    assert result.drop_columns("vectors").equals(given)
    assert result.schema.field("vectors").type == pa.list_(pa.list_(pa.float32(), 16))
    assert_rows(result["vectors"], [layers.mean(axis=0) for layers in published.expected])
    assert result["vectors"].to_pylist()[1] == []
    assert result.schema == embedder.schema(given.schema)


def test_text_is_split_by_the_tokenizer_of_the_model(published, tmp_path):
    published.model.save(tmp_path / "m")
    embedder = TableEmbedder(Pretrained(tmp_path / "m", tokenizer="xx"))
    result = embedder(table(["a dog.", "a b"]))
    assert [len(vectors) for vectors in result["vectors"].to_pylist()] == [3, 2]


def test_all_layers_are_columns(published):
    result = TableEmbedder(published.model, layers="all")(table())
    assert result.column_names[2:] == ["layer_0", "layer_1", "layer_2"]
    for k in range(3):
        assert_rows(result[f"layer_{k}"], [layers[k] for layers in published.expected])


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooled_in_float16(published, pooling):
    settings = {"layers": -1, "pooling": pooling, "dtype": "float16"}
    result = TableEmbedder(published.model, **settings)(table())
    assert result.schema.field("vectors").type == pa.list_(pa.float16(), 16)
    tops = [layers[2] for layers in published.expected]
    wanted = [getattr(x, pooling)(axis=0) if len(x) else np.zeros(16) for x in tops]
    assert_rows(result["vectors"], wanted, atol=5e-3)


def test_weights_of_layers_and_all_of_them_pooled(published):
    weighed = TableEmbedder(published.model, layers=np.array([0.5, 0, 0.5]), pooling="mean")
    assert weighed.settings()["layers"] == [0.5, 0.0, 0.5]
    wanted = (published.expected[0][0] + published.expected[0][2]).mean(axis=0) / 2
    assert_rows(weighed(table())["vectors"][:1], [wanted])
    every = TableEmbedder(published.model, layers="all", pooling="mean")(table())
    assert_rows(every["layer_1"][:1], [published.expected[0][1].mean(axis=0)])


def test_the_settings_are_in_the_metadata(published, embedder):
    settings = {"model": published.model.fingerprint(), "layers": "average", "pooling": None,
                "dtype": "float32", "precision": "float32"}  # fmt: skip
    assert embedder.settings() == settings
    given = table().replace_schema_metadata({"owner": "me"})
    metadata = embedder(given).schema.metadata
    assert metadata[b"owner"] == b"me"
    said = json.loads(metadata[b"bilm"])
    assert said.pop("version") and said == settings


def test_lists_of_any_size(published):
    """Spark does not support lists of a fixed size."""
    texts = ["bird", None, "", "a dog"]
    for pooling in ("max", None):
        settings = {"layers": "all", "pooling": pooling}
        fixed, lists = (
            TableEmbedder(published.model, fixed_size=size, **settings)(table(texts))
            for size in (True, False)
        )
        kind = pa.list_(pa.float32()) if pooling else pa.list_(pa.list_(pa.float32()))
        assert lists.schema.field("layer_2").type == kind
        assert lists.to_pylist() == fixed.to_pylist()


# Input


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_kinds_of_text(published, embedder, kind):
    texts = pa.array(LINES).cast(kind)
    chunked = pa.chunked_array([texts[:2], texts[2:2], texts[2:]])
    result = embedder(pa.table({"text": chunked}))
    assert_rows(result["vectors"], [layers.mean(axis=0) for layers in published.expected])
    assert result.schema.field("text").type == kind


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_lists_of_tokens(published, embedder, make):
    tokens = pa.array([line.split() for line in LINES], make(pa.string()))
    result = embedder(pa.table({"text": tokens}))
    assert_rows(result["vectors"], [layers.mean(axis=0) for layers in published.expected])
    with_gap = pa.table({"text": pa.array([["a"], ["a", None]])})
    with pytest.raises(InputError, match="sentence 1, token 1 must be text, got NoneType"):
        embedder(with_gap)


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_nulls_stay_nulls_also_in_parquet(published, tmp_path, pooling):
    """For lists of a fixed size, Parquet files keep nulls only since pyarrow 26."""
    embedder = TableEmbedder(published.model, layers="top", pooling=pooling)
    result = embedder(table(["bird", None, "", None], pa.string()))
    bird, missing, empty, last = arrays(result["vectors"])
    assert missing is None and last is None
    assert empty.tolist() == ([0.0] * 16 if pooling else [])
    np.testing.assert_allclose(bird.reshape(16), published.expected[5][2][0], atol=1e-6)
    if pooling is None or int(pa.__version__.split(".")[0]) >= 26:
        pq.write_table(result, tmp_path / "t.parquet")
        assert pq.read_table(tmp_path / "t.parquet").equals(result)
    assert embedder(table([None, None], pa.null()))["vectors"].null_count == 2


def test_tables_without_rows(embedder):
    for given in (table([], pa.string()), table([], pa.string()).schema.empty_table()):
        result = embedder(given)
        assert result.num_rows == 0 and result.schema == embedder.schema(given.schema)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.table({"a": [1]}), "the table must have one column 'text', its"),
        (pa.table([["a"], ["b"]], ["text", "text"]), "the table must have one column 'text'"),
        (pa.table({"text": [1]}), "sentence 0 must be text or a list of tokens, got 1"),
        (pa.table({"text": ["a"], "vectors": [1]}), "has a column 'vectors' already: rename"),
        ({"text": ["a"]}, r"table must be a pyarrow.Table, got dict"),
    ],
)
def test_tables_that_are_refused(embedder, given, message):
    with pytest.raises(InputError, match=message):
        embedder(given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text_column": 1}, "text_column must be text, got 1"),
        ({"threads": 1.5}, "threads must be an integer >= 1, got 1.5"),
        ({"layers": None}, "layers must be 'average'"),
        ({"layers": ScalarMix(3)}, "layers must be 'average'"),
        ({"layers": ["a"]}, "layers must be 'average'"),
    ],
)
def test_settings_that_are_refused(published, settings, message):
    with pytest.raises(InputError, match=message):
        TableEmbedder(published.folder, **settings).schema(table().schema)


# Streams


def test_batches_of_a_stream(published, embedder):
    """A batch with too many bytes is split, and rows keep their order."""
    whole = embedder(table())
    empty = pa.RecordBatch.from_pylist([], schema=table().schema)
    stream = [empty, *table().to_batches(max_chunksize=4), empty]
    found = list(embedder.batches(iter(stream)))
    assert [batch.num_rows for batch in found] == [0, 4, 2, 0]
    joined = pa.Table.from_batches(found)
    assert (
        joined.drop(["vectors"]).equals(whole.drop(["vectors"])) and joined.schema == whole.schema
    )
    # Sentences of other batches change the order of additions.
    columns = (each["vectors"].to_pylist() for each in (joined, whole))
    for vectors, expected in zip(*columns, strict=True):
        np.testing.assert_allclose(vectors or [], expected or [], atol=1e-6)
    # A token has 64 bytes, an empty row counts 1: rows of 6, 0, 2 | 6 | 3, 1 tokens.
    found = list(embedder.batches(iter(table().to_batches()), most_bytes=8 * 64 + 1))
    assert [batch.num_rows for batch in found] == [3, 1, 2]
    assert pa.Table.from_batches(found).equals(whole)
    assert [b.num_rows for b in embedder.batches(table().to_batches(), most_bytes=1)] == [1] * 6


# Other processes


def test_a_model_is_loaded_once_by_all_copies(published, monkeypatch, tmp_path):
    """A relative path refers to the folder where the embedder was created."""
    loaded = []
    load = Pretrained.load

    def counted(pretrained, **settings):
        loaded.append(pretrained.source)
        return load(pretrained, **settings)

    monkeypatch.setattr(Pretrained, "load", counted)
    monkeypatch.chdir(published.folder.parent)
    embedder = TableEmbedder(published.folder.name, pooling="mean")
    with_vectors = embedder.schema(table().schema)
    content = pickle.dumps(embedder)
    assert not loaded and len(content) < 2000
    monkeypatch.chdir(tmp_path)
    results = [pickle.loads(content)(table()) for _ in range(2)]
    assert loaded == [str(published.folder)]
    assert results[0].equals(results[1]) and results[0].schema == with_vectors
    assert_rows(results[0]["vectors"][5:], [published.expected[5].mean(axis=(0, 1))])
    # A new embedder reads the files again.
    TableEmbedder(str(published.folder))(table())
    assert len(loaded) == 2


@pytest.mark.slow
def test_sources_of_models(published, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "elmo"), "zip", published.folder)
    pair = [published.folder / "options.json", published.folder / "weights.hdf5"]
    schema = TableEmbedder(published.model).schema(table().schema)
    for source in (archive, pair, Pretrained(pair), published.folder):
        assert TableEmbedder(source).schema(table().schema) == schema
    with pytest.raises(FileNotFoundError, match="nothing"):
        TableEmbedder(tmp_path / "nothing").schema(table().schema)
    warm = TableEmbedder(Pretrained(archive, warm_up=["a dog sees"]))
    assert warm.settings()["model"] != published.model.fingerprint()


def test_an_elmo_goes_along(published, embedder):
    result = embedder(table())
    copy = pickle.loads(pickle.dumps(embedder))
    assert copy.settings() == embedder.settings() and copy(table()).equals(result)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(embedder))))
    assert again(table()).equals(result)


def test_threads_that_come_too_late(published):
    embedder = TableEmbedder(published.folder, threads=61)
    assert embedder.settings()["model"]  # does not depend on the threads
    with pytest.raises(InputError, match="threads must be set before TensorFlow"):
        embedder(table())


WORKER = """
import pickle, sys
import pyarrow as pa
import tensorflow as tf
embedder = pickle.load(sys.stdin.buffer)
result = embedder(pa.table({"text": ["bird"]}))
threads = tf.config.threading
print(threads.get_intra_op_parallelism_threads(), threads.get_inter_op_parallelism_threads())
print(sum(result["vectors"][0].as_py()))
"""


@pytest.mark.slow
def test_a_worker_computes_with_the_threads_that_it_was_given(published):
    content = pickle.dumps(TableEmbedder(published.folder, pooling="mean", threads=1))
    done = subprocess.run([sys.executable, "-c", WORKER], input=content, capture_output=True)
    assert done.returncode == 0, done.stderr
    threads, total = done.stdout.decode().splitlines()
    assert threads == "1 1"
    assert float(total) == pytest.approx(published.expected[5].mean(axis=(0, 1)).sum(), abs=1e-5)
