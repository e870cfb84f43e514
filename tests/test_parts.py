"""The folder of a corpus's vectors while its parts are computed, whatever fails."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError
from bilm.data.text_ranges import PartReader, find_parts
from bilm.jobs.parts import (
    PartJob,
    PartsFolder,
    find_line,
    is_complete,
    remove_rest,
    require_free,
)

pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
pq = pytest.importorskip("pyarrow.parquet")

SETTINGS = {"model": "abc", "layers": "top", "files": {"a.txt": "3 lines"}}


class Killed(BaseException):
    """What stands for the end of the process."""


class Lengths:
    """Gives the number of characters for a vector; fails at texts that it is told of."""

    dtype, shape = "float32", (1,)

    def __init__(self, fails=None):
        self.fails = fails or {}
        self.texts = []

    def schema(self, table):
        return table.append(pa.field("vectors", pa.list_(pa.float32(), 1)))

    def metadata(self):
        if "model" in self.fails:
            raise self.fails["model"]
        return {"bilm": json.dumps({"model": "lengths"})}

    def _vectors(self, batch):
        texts = batch.column("text").to_pylist()
        self.texts += texts
        for text in texts:
            if text in self.fails:
                error = self.fails[text]
                error = error.pop() if isinstance(error, list) and error else error
                if error:
                    raise error
        lengths = pa.array([float(len(text)) for text in texts], pa.float32())
        vectors = pa.FixedSizeListArray.from_arrays(lengths, 1)
        schema = self.schema(batch.schema)
        return type(batch).from_arrays([*batch.columns, vectors], schema=schema)

    def __call__(self, table):
        if table.num_rows == 0:
            return self.schema(table.schema).empty_table()
        return self._vectors(table.combine_chunks())

    def batches(self, batches):
        return map(self._vectors, list(batches))


@pytest.fixture
def files(tmp_path):
    """Two files of 200 and of 100 lines, the last one without an end."""
    for name, n in (("a.txt", 200), ("b.txt", 100)):
        lines = [f"{name} {k}" + " x" * (k % 5) for k in range(n)]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    return [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]


def open_folder(tmp_path, settings=SETTINGS, **choices):
    return PartsFolder(tmp_path / "out", settings, **choices)


def job_of(folder, embedder, tries=3):
    return PartJob(embedder, folder.parts, folder.attempts, tries)


def write_parts(job, parts):
    with PartReader() as reader:
        return [job.write(part, reader) for part in parts]


def texts_of(files):
    return [line for path in files for line in Path(path).read_text("utf-8").split("\n")]


def check_result(folder, files):
    """All lines are there once, in order, with their vectors; and nothing but such files."""
    names = sorted(os.listdir(folder))
    assert names == [f"part-{number:06d}.parquet" for number in range(len(names))]
    tables = [pq.read_table(folder / name) for name in names]
    schema = tables[0].schema.remove_metadata()
    table = pa.concat_tables([t.cast(schema) for t in tables])
    texts = texts_of(files)
    assert table["id"].to_pylist() == list(range(len(texts)))
    assert table["text"].to_pylist() == texts
    assert table["vectors"].to_pylist() == [[len(text)] for text in texts]
    return table


def test_a_folder_appears_when_it_is_complete(tmp_path, files):
    parts = find_parts(files, 500)
    with open_folder(tmp_path) as folder:
        job = job_of(folder, Lengths())
        assert folder.missing(parts, job) == parts
        reports = write_parts(job, parts)
        assert [report.number for report in reports] == list(range(len(parts)))
        assert sum(report.n_bytes for report in reports) == sum(map(os.path.getsize, files))
        assert sum(report.n_tokens for report in reports) == sum(
            len(text.split()) for text in texts_of(files)
        )
        assert {report.error for report in reports} == {None}
        assert folder.missing(parts, job) == []
        assert not (tmp_path / "out").exists() and not is_complete(tmp_path / "out")
        folder.finish()
    check_result(tmp_path / "out", files)
    assert is_complete(tmp_path / "out") and not (tmp_path / "out.partial").exists()
    schema = pq.read_schema(tmp_path / "out" / "part-000001.parquet")
    assert [str(field.type) for field in schema][:2] == ["int64", "string"]
    assert json.loads(schema.metadata[b"bilm"]) == {"model": "lengths"}


def test_rows_say_file_and_line(tmp_path, files):
    parts = find_parts(files, 500)
    with open_folder(tmp_path) as folder:
        write_parts(job_of(folder, Lengths()), parts)
        folder.finish()
    places = [
        (path, n) for path, count in zip(files, (200, 100), strict=True) for n in range(count)
    ]
    assert [find_line(tmp_path / "out", number) for number in range(300)] == places
    for number in (-1, 300):
        with pytest.raises(InputError, match=rf"has no row of the id {number}\."):
            find_line(tmp_path / "out", number)
    with pytest.raises(FileNotFoundError, match=r"holds no part-000000\.parquet"):
        find_line(tmp_path, 0)
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "other" / "part-000000.parquet")
    with pytest.raises(InputError, match=r"has no bilm\.lines in its metadata"):
        find_line(tmp_path / "other", 0)


def test_no_lines(tmp_path):
    (tmp_path / "a.txt").touch()
    parts = find_parts([tmp_path / "a.txt"])
    with open_folder(tmp_path) as folder:
        write_parts(job_of(folder, Lengths()), parts)
        folder.finish()
    table = pq.read_table(tmp_path / "out" / "part-000000.parquet")
    assert table.num_rows == 0 and table.column_names == ["id", "text", "vectors"]
    with pytest.raises(InputError, match="has no row"):
        find_line(tmp_path / "out", 0)


# Faults


def cut_off(path):
    os.truncate(path, os.path.getsize(path) - 5)


def test_what_is_not_whole_is_computed_again(tmp_path, files):
    parts = find_parts(files, 300)
    with open_folder(tmp_path) as folder:
        job = job_of(folder, Lengths())
        write_parts(job, parts)
    with open_folder(tmp_path, resume=True) as folder:
        job = job_of(folder, Lengths())
        assert folder.missing(parts, job) == []
        cut_off(job.path(0))
        os.truncate(job.path(1), 0)
        os.remove(job.path(2))
        os.replace(job.path(3), job.path(4))  # whole, and of other lines
        pq.write_table(pa.table({"id": [1]}), job.path(5))
        Path(folder.parts, ".part-000006.parquet.1234.tmp").write_bytes(b"half")
        assert [part.number for part in folder.missing(parts, job)] == [0, 1, 2, 3, 4, 5]
        assert len(os.listdir(folder.parts)) == len(parts) - 6
        write_parts(job, parts[:6])
        assert folder.missing(parts, job) == []
        folder.finish()
    check_result(tmp_path / "out", files)


def test_a_job_that_was_killed_while_it_finished(tmp_path, files, monkeypatch):
    parts = find_parts(files)
    with open_folder(tmp_path) as folder:
        write_parts(job_of(folder, Lengths()), parts)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr("shutil.rmtree", lambda *_: (_ for _ in ()).throw(Killed))
            folder.finish()
    assert is_complete(tmp_path / "out") and (tmp_path / "out.partial").exists()
    remove_rest(tmp_path / "out")
    assert is_complete(tmp_path / "out") and not (tmp_path / "out.partial").exists()
    check_result(tmp_path / "out", files)


def test_an_earlier_folder_is_replaced_at_the_end(tmp_path, files, monkeypatch):
    parts = find_parts(files)
    with open_folder(tmp_path) as folder:
        (tmp_path / "out").mkdir()  # an empty one may be there
        write_parts(job_of(folder, Lengths()), parts)
        folder.finish()
    old = check_result(tmp_path / "out", files)
    Path(files[0]).write_text("new", encoding="utf-8")
    new_parts = find_parts(files, 500)
    with open_folder(tmp_path, force=True) as folder:
        write_parts(job_of(folder, Lengths()), new_parts[:1])
    # The job that was forced is resumed as one.
    with open_folder(tmp_path, resume=True) as folder:
        job = job_of(folder, Lengths())
        assert folder.missing(new_parts, job) == new_parts[1:]
        write_parts(job, new_parts[1:])
        assert pq.read_table(tmp_path / "out").num_rows == old.num_rows
        folder.finish()
    assert check_result(tmp_path / "out", files).num_rows == 101


def test_what_is_left_of_an_earlier_job_writes_nowhere(tmp_path, files):
    parts = find_parts(files)
    with open_folder(tmp_path) as folder:
        left = job_of(folder, Lengths())
    with open_folder(tmp_path, {**SETTINGS, "layers": "all"}, force=True) as folder:
        (report,) = write_parts(left, parts)
        assert "attempts-" in report.error
        assert folder.missing(parts, job_of(folder, Lengths())) == parts


def test_refusals(tmp_path, files):
    def refusal(kind=InputError, settings=SETTINGS, out="out", **choices):
        with pytest.raises(kind) as info:
            PartsFolder(tmp_path / out, settings, **choices)
        return str(info.value)

    with open_folder(tmp_path) as folder:
        assert "out.partial: another process is writing there." in refusal(resume=True)
        assert "another process is writing there." in refusal(force=True)
        write_parts(job_of(folder, Lengths()), find_parts(files))
    assert "out.partial was left by an interrupted job: to resume continues it" in refusal()
    other = {"model": "xyz", "layers": 0, "files": {"a.txt": "4 lines", "b.txt": "1 lines"}}
    assert refusal(settings=other, resume=True).endswith(
        "out.partial: holds vectors of another job: layers top, not 0; model abc, not xyz; a.txt "
        "has changed since (2 files differ)."
    )
    for changed, message in (({}, "a.txt is not read now."), ({"a.txt": "3 lines", "c.txt": "0"},
                             "c.txt was not read then.")):  # fmt: skip
        assert refusal(settings={**SETTINGS, "files": changed}, resume=True).endswith(message)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").touch()
    assert "is there now; it would be overwritten." in refusal(resume=True)
    assert "holds no part-000000.parquet; it is not replaced." in refusal(force=True)
    assert "is there already; it would be overwritten: force allows it." in refusal(out="out/")
    (tmp_path / "file").touch()
    assert "is a file; a folder is to be written there." in refusal(out="file", force=True)
    assert "does not exist" in refusal(FileNotFoundError, out="none/out")
    with pytest.raises(InputError, match="a folder that all machines see is expected, not an add"):
        require_free("s3://bucket/out", resume=False, force=False)


def test_a_job_that_has_done_nothing_leaves_nothing(tmp_path, files):
    with pytest.raises(SystemError), open_folder(tmp_path) as folder:
        Path(folder.parts, ".part-000000.parquet.1234.tmp").touch()
        raise SystemError
    assert not (tmp_path / "out.partial").exists()


def test_a_folder_that_appears_is_not_overwritten(tmp_path, files):
    parts = find_parts(files)
    with open_folder(tmp_path) as folder:
        write_parts(job_of(folder, Lengths()), parts)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").touch()
        with pytest.raises(InputError, match=r"is there now; the vectors stay in .*parts-"):
            folder.finish()
        assert (tmp_path / "out" / "file").exists()
        assert folder.missing(parts, job_of(folder, Lengths())) == []


# Sentences that fail


@pytest.fixture
def one_part(tmp_path):
    """A file of 300 lines as one part, and its folder."""
    (tmp_path / "c.txt").write_text("".join(f"{n}\n" for n in range(300)), encoding="utf-8")
    (part,) = find_parts([tmp_path / "c.txt"])
    with open_folder(tmp_path) as folder:
        yield folder, part


def test_a_sentence_that_is_refused_is_named(one_part):
    folder, part = one_part
    embedder = Lengths({"150": InputError("a bad word")})
    (report,) = write_parts(job_of(folder, embedder), [part])
    assert report.error.endswith("c.txt, line 151: a bad word")
    assert embedder.texts.count("150") == 3  # in the stream, in its group, alone
    assert os.listdir(folder.parts) == []


def test_an_error_may_pass(one_part):
    folder, part = one_part
    embedder = Lengths({"150": [None, RuntimeError("busy"), RuntimeError("busy"), MemoryError()]})
    (report,) = write_parts(job_of(folder, embedder), [part])
    assert report.error is None and report.n_tokens == 300
    assert embedder.texts.count("150") == 4
    table = pq.read_table(job_of(folder, embedder).path(0))
    assert table["text"].to_pylist() == [str(n) for n in range(300)]
    assert table["vectors"].to_pylist() == [[len(str(n))] for n in range(300)]
    assert os.listdir(folder.attempts) == []


def test_an_error_that_stays_is_named(one_part):
    folder, part = one_part
    embedder = Lengths({"299": RuntimeError("out of registers")})
    (report,) = write_parts(job_of(folder, embedder), [part])
    assert report.error.endswith("c.txt, line 300: failed 3 times: RuntimeError: out of registers")
    assert embedder.texts.count("299") == 2 + 3


def test_a_sentence_that_ends_the_process_is_named(one_part):
    folder, part = one_part
    embedder = Lengths({"70": Killed()})
    n_killed = 0
    while True:  # as an engine that starts processes again without end
        try:
            (report,) = write_parts(job_of(folder, embedder), [part])
            break
        except Killed:
            n_killed += 1
    # In the stream, in its group, and three times alone.
    assert n_killed == embedder.texts.count("70") == 5
    assert report.error.endswith(
        "c.txt, line 71: the process that computed this sentence ended 3 times; it may have no "
        "memory for it."
    )
    assert os.listdir(folder.attempts) == os.listdir(folder.parts) == []


def test_processes_that_end_anywhere_do_no_harm(one_part):
    folder, part = one_part
    embedder = Lengths({"70": [None, Killed(), Killed()], "130": [None, Killed()],
                        "131": [None, Killed()]})  # fmt: skip
    n_killed = 0
    for _ in range(10):
        try:
            (report,) = write_parts(job_of(folder, embedder), [part])
            break
        except Killed:
            n_killed += 1
    assert n_killed == 4 and report.error is None
    table = pq.read_table(job_of(folder, embedder).path(0))
    assert table["text"].to_pylist() == [str(n) for n in range(300)]


def test_a_model_that_ends_the_process(one_part):
    folder, part = one_part
    for _ in range(3):
        with pytest.raises(Killed):
            write_parts(job_of(folder, Lengths({"model": Killed()})), [part])
    (report,) = write_parts(job_of(folder, Lengths())._replace(loads=3), [part])
    assert "the process ended 3 times while it loaded the model" in report.error


def test_a_model_that_is_not_there(one_part):
    folder, part = one_part
    embedder = Lengths({"model": FileNotFoundError("The model 'x' does not exist.")})
    (report,) = write_parts(job_of(folder, embedder), [part])
    assert report.error.startswith("The model 'x' does not exist. (on the machine ")


def test_a_text_that_changes(one_part, tmp_path):
    folder, part = one_part
    (tmp_path / "c.txt").write_text("another text", encoding="utf-8")
    (report,) = write_parts(job_of(folder, Lengths()), [part])
    assert "c.txt: changed since the job began" in report.error


def test_row_groups(tmp_path, one_part):
    folder, part = one_part

    class Wide(Lengths):
        shape = (40_000,)

        def schema(self, table):
            return table.append(pa.field("vectors", pa.list_(pa.float32(), 40_000)))

        def _vectors(self, batch):
            values = pa.array(np.zeros(batch.num_rows * 40_000, np.float32))
            vectors = pa.FixedSizeListArray.from_arrays(values, 40_000)
            columns, schema = [*batch.columns, vectors], self.schema(batch.schema)
            return pa.RecordBatch.from_arrays(columns, schema=schema)

    job = job_of(folder, Wide())
    job = job._replace(batch_rows=50)
    assert write_parts(job, [part])[0].error is None
    metadata = pq.read_metadata(job.path(0))
    # 8 MB a batch, and groups of 32 MiB or more
    assert [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)] == [250, 50]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
