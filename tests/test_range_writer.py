"""Files for ranges of a corpus on Ray, in a folder that appears once it is complete."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from bilm import InputError
from bilm.data.text_ranges import find_ranges
from bilm.vectors.ray import RangeWriter, find_line

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
pq = pytest.importorskip("pyarrow.parquet")


class Lengths:
    """A fake `TableEmbedder`: the vector of a text is its length; raises `fails[text]`."""

    dtype, shape = "float32", (1,)

    def __init__(self, fails=None):
        self.fails = fails or {}

    def schema(self, table):
        return table.append(pa.field("vectors", pa.list_(pa.float32(), 1)))

    def metadata(self):
        if "model" in self.fails:
            raise self.fails["model"]
        return {"bilm": json.dumps({"model": "lengths"})}

    def check_row(self, text, where):
        if text == "bad":
            raise InputError(f"{where}: a bad word")

    def batches(self, batches, most_bytes):
        for batch in batches:
            for start in range(0, batch.num_rows, 100):
                part = batch.slice(start, 100)
                texts = part.column("text").to_pylist()
                for text in texts:
                    if text in self.fails:
                        raise self.fails[text]
                lengths = pa.array([float(len(text)) for text in texts], pa.float32())
                vectors = pa.FixedSizeListArray.from_arrays(lengths, 1)
                schema = self.schema(part.schema)
                yield pa.RecordBatch.from_arrays([*part.columns, vectors], schema=schema)


@pytest.fixture
def files(tmp_path):
    """Two files of 200 and of 100 lines, the last one without a line end."""
    for name, n in (("a.txt", 200), ("b.txt", 100)):
        lines = [f"{name} {k}" + " x" * (k % 5) for k in range(n)]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    return [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def write_ranges(writer, ranges):
    for one in ranges:
        writer.write(one)


def texts_of(files):
    return [line for path in files for line in Path(path).read_text("utf-8").split("\n")]


def check_result(folder, files):
    """Check that the folder only has part files, with each line once, in order, with its vector."""
    names = sorted(os.listdir(folder))
    assert names == [f"part-{number:06d}.parquet" for number in range(len(names))]
    tables = [pq.read_table(folder / name) for name in names]
    schema = tables[0].schema.remove_metadata()
    table = pa.concat_tables([t.cast(schema) for t in tables])
    texts = texts_of(files)
    assert table["id"].to_pylist() == list(range(len(texts)))
    assert table["text"].to_pylist() == texts
    assert table["vectors"].to_pylist() == [[len(text)] for text in texts]


def test_files_of_ranges(folder, files):
    ranges, writer = find_ranges(files, 500), RangeWriter(Lengths(), str(folder))
    write_ranges(writer, ranges)
    check_result(folder, files)
    schema = pq.read_schema(folder / "part-000001.parquet")
    assert [str(field.type) for field in schema][:2] == ["int64", "string"]
    assert json.loads(schema.metadata[b"bilm"]) == {"model": "lengths"}


def test_a_row_group_for_each_batch(folder, tmp_path):
    (tmp_path / "c.txt").write_text("".join(f"{n}\n" for n in range(250)), encoding="utf-8")
    ranges, writer = find_ranges([tmp_path / "c.txt"]), RangeWriter(Lengths(), str(folder))
    write_ranges(writer, ranges)
    metadata = pq.read_metadata(writer.path(ranges[0]))
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [
        100, 100, 50,
    ]  # fmt: skip
    assert metadata.row_group(0).column(0).compression == "ZSTD"


def test_file_and_line_of_a_row(folder, files, tmp_path):
    write_ranges(RangeWriter(Lengths(), str(folder)), find_ranges(files, 500))
    places = [
        (path, n) for path, count in zip(files, (200, 100), strict=True) for n in range(count)
    ]
    assert [find_line(folder, number) for number in range(300)] == places
    for number in (-1, 300):
        with pytest.raises(InputError, match=rf"has no row with the id {number}\."):
            find_line(folder, number)
    with pytest.raises(FileNotFoundError, match=r"has no part-000000\.parquet"):
        find_line(tmp_path, 0)
    first = folder / "part-000000.parquet"
    pq.write_table(pa.table({"id": [1]}), first)
    message = r"part-000000\.parquet is not a Parquet file with bilm\.lines in its metadata, or is"
    with pytest.raises(InputError, match=message):
        find_line(folder, 0)
    os.truncate(first, 100)
    with pytest.raises(InputError, match=message):
        find_line(folder, 0)
    schema = pa.schema([("id", pa.int64())], {"bilm.lines": "[[1, 2]]"})
    pq.write_table(schema.empty_table(), first)
    with pytest.raises(InputError, match=message):
        find_line(folder, 0)


def test_no_lines(tmp_path, folder):
    (tmp_path / "a.txt").touch()
    write_ranges(RangeWriter(Lengths(), str(folder)), find_ranges([tmp_path / "a.txt"]))
    table = pq.read_table(folder / "part-000000.parquet")
    assert table.num_rows == 0 and table.column_names == ["id", "text", "vectors"]
    with pytest.raises(InputError, match="has no row"):
        find_line(folder, 0)


# Failures


def error_of(tmp_path, folder, embedder, lines):
    path = tmp_path / "c.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (text_range,) = find_ranges([path])
    with pytest.raises(InputError) as info:
        RangeWriter(embedder, str(folder)).write(text_range)
    assert os.listdir(folder) == []
    return str(info.value)


def test_a_sentence_without_vectors_is_named(tmp_path, folder):
    error = error_of(tmp_path, folder, Lengths(), ["a", "b", "bad"])
    assert error == f"{tmp_path}/c.txt, line 3: a bad word"


def test_the_lines_of_an_error_are_named(tmp_path, folder):
    embedder = Lengths({"150": InputError("a value is too large")})
    error = error_of(tmp_path, folder, embedder, range(300))
    assert error == f"{tmp_path}/c.txt, lines 1 to 300: a value is too large"


def test_a_model_that_does_not_exist(tmp_path, folder):
    embedder = Lengths({"model": FileNotFoundError("The model 'x' does not exist.")})
    error = error_of(tmp_path, folder, embedder, "a")
    assert error == f"The model 'x' does not exist. (on the machine {socket.gethostname()})"
