"""`bilm embed` to Parquet: the contents of the file, programs that read it, and errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError, TableEmbedder
from bilm.cli import main
from bilm.vectors.vector_files import require_row
from tests.command_line import input_error
from tests.embedded_text import LINES, embed, write_lines

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.eager

OUT = "out.parquet"
TEXTS = [line.strip() for line in LINES]


def embedded(*flags, **files):
    embed(*flags, out=OUT, **files)
    return pq.read_table(OUT)


def arrays(column, dim=16):
    """The vectors in each row of a list column."""
    return [np.array(row, np.float64).reshape(-1, dim) for row in column.to_pylist()]


def assert_rows(found, expected, atol=1e-6):
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(row, wanted.reshape(-1, 16), atol=atol)


# Contents


@pytest.mark.parametrize("flag", ["--layers=1", "none"])
def test_a_sentence_is_a_row(place, flag, capsys):
    table = embedded(*([] if flag == "none" else [flag]))
    assert capsys.readouterr().out == f"{OUT}\n"
    kind = pa.list_(pa.list_(pa.float32(), 16))
    assert table.schema.equals(
        pa.schema([("id", pa.int64()), ("text", pa.string()), ("vectors", kind)])
    )
    assert table["id"].to_pylist() == [0, 1, 2, 3, 4, 5] and table["text"].to_pylist() == TEXTS
    wanted = {"--layers=1": lambda x: x[1], "none": lambda x: x.mean(axis=0)}[flag]
    assert_rows(arrays(table["vectors"]), [wanted(layers) for layers in place.expected])
    said = json.loads(table.schema.metadata[b"bilm"])
    assert said["model"] == place.model.fingerprint() and said["pooling"] is None
    assert said["layers"] == {"--layers=1": 1, "none": "average"}[flag]
    assert sorted(os.listdir()) == ["elmo", OUT, "text.txt"]


def test_all_layers_and_shards(place):
    table = embedded("--all", "--shard", "2/2")
    assert table.column_names == ["id", "text", "layer_0", "layer_1", "layer_2"]
    assert table["id"].to_pylist() == [1, 3, 5]
    for k in range(3):
        assert_rows(arrays(table[f"layer_{k}"]), [layers[k] for layers in place.expected[1::2]])


def test_lines_of_every_kind(place):
    """CRLF, empty lines, U+2028, no newline at the end, a byte order mark."""
    Path("text.txt").write_bytes("\ufeffbird\r\n\r\na\u2028dog\r\n\n  \ncat".encode())
    table = embedded("--top")
    assert table["text"].to_pylist() == ["bird", "", "a\u2028dog", "", "", "cat"]
    assert [len(row) for row in table["vectors"]] == [1, 0, 2, 0, 0, 1]
    assert_rows(arrays(table["vectors"])[::2][:2], [place.expected[k][2] for k in (5, 2)])


def test_a_text_without_lines(place):
    Path("text.txt").write_bytes(b"")
    table = embedded()
    assert table.num_rows == 0 and table.column_names == ["id", "text", "vectors"]


# Programs that read it


KINDS = {
    "tokens": {"layers": "top"},
    "pooled": {"pooling": "mean"},
    "all": {"layers": "all"},
    "half": {"pooling": "mean", "dtype": "float16"},
}


@pytest.fixture(scope="module")
def files(published, tmp_path_factory):
    """A folder with a file of each kind, and the tables that pyarrow reads from them."""
    folder = tmp_path_factory.mktemp("kinds")
    write_lines(LINES, folder / "text.txt")
    for name, settings in KINDS.items():
        flags = [f"--{name}={value}" for name, value in settings.items() if name != "layers"]
        if "layers" in settings:
            flags.append(f"--{settings['layers']}")
        arguments = ["embed", str(folder / "text.txt"), str(folder / f"{name}.parquet"), *flags]
        assert main([*arguments, "--model", str(published.folder)]) == 0
    return folder, {name: pq.read_table(folder / f"{name}.parquet") for name in KINDS}


def test_a_table_gets_the_schema_and_the_vectors_of_a_file(published, files):
    for name, table in files[1].items():
        embedder = TableEmbedder(published.model, **KINDS[name])
        again = embedder(table.select(["id", "text"]))
        assert again.schema.equals(table.schema) and again.equals(table)
        facts, settings = (json.loads(t.schema.metadata[b"bilm"]) for t in (table, again))
    assert settings.items() <= facts.items() and facts["text"] and facts["keys"] == "numbers"


def test_compressed_without_dictionaries(files):
    group = pq.ParquetFile(files[0] / "all.parquet").metadata.row_group(0)
    for k in range(group.num_columns):
        column = group.column(k)
        assert column.compression == "ZSTD"
        assert not any("DICTIONARY" in encoding for encoding in column.encodings)


def test_duckdb(files):
    duckdb = pytest.importorskip("duckdb")
    folder, tables = files
    for name, table in tables.items():
        columns = ", ".join(table.column_names)
        query = f"SELECT {columns} FROM '{folder}/{name}.parquet' ORDER BY id"
        rows = duckdb.sql(query).fetchall()
        for row, wanted in zip(rows, table.to_pylist(), strict=True):
            assert list(row[:2]) == [wanted["id"], wanted["text"]]
            for found, column in zip(row[2:], table.column_names[2:], strict=True):
                assert np.array_equal(np.array(found), np.array(wanted[column])), (name, column)
    query = f"SELECT key, value FROM parquet_kv_metadata('{folder}/all.parquet')"
    assert json.loads(dict(duckdb.sql(query).fetchall())[b"bilm"])["layers"] == "all"


def test_polars(files):
    polars = pytest.importorskip("polars")
    folder, tables = files
    for name, table in tables.items():
        frame = polars.read_parquet(folder / f"{name}.parquet")
        assert frame.to_dicts() == table.to_pylist(), name
    assert polars.read_parquet(folder / "pooled.parquet")["vectors"].to_numpy().shape == (6, 16)


# Errors


def test_a_row_that_is_too_large(place):
    shape = [3, None, 16]
    require_row(10, shape, "float32", "t, line 2", row_bytes=640)
    require_row(11, [16], "float32", "t, line 2", row_bytes=640)
    message = "t, line 2:"
    with pytest.raises(InputError, match=message):
        require_row(11, shape, "float32", "t, line 2", row_bytes=640)


def test_a_line_that_is_too_long_is_found_before_the_work(place, capsys):
    write_lines(["bird", "a " * (2**22 + 1)])
    error = input_error(["embed", "text.txt", OUT, "--model", "elmo"], capsys)
    assert "text.txt, line 2:" in error
    assert not os.path.exists(f"{OUT}.partial")
