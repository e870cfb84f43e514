"""Corpora on Ray: files of all kinds, errors, and processes that end."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError, TableEmbedder
from bilm.cli import main
from bilm.data.processes import n_processors
from bilm.data.sentences import read_sentences
from bilm.files.writing import locked
from tests.command_line import input_error, usage_error
from tests.compare import close
from tests.processes import start_bilm, wait_for

ENGINE = ["--engine", "ray", "--workers", "1"]
LOCAL = {"RAY_ADDRESS": ""}
two_cpus = pytest.mark.skipif(n_processors() < 2, reason="with one CPU a worker waits for ever")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--engine", "ray"], "--engine ray needs --workers"),
        ([*ENGINE, "--shard", "1/2"], "without --shard"),
        ([*ENGINE, "--force"], "--force cannot be combined with --engine"),
    ],
)
def test_flags_that_do_not_go_together(flags, message, capsys):
    assert message in usage_error(["embed", "text.txt", "out", "--model", "elmo", *flags], capsys)
    assert "standard output" in usage_error(["embed", "-", "out", "--model", "m", *ENGINE], capsys)


@pytest.fixture
def ray():
    return pytest.importorskip("ray.data", reason="the extra `ray` is not installed")


def test_errors_before_ray_is_started(ray, place):
    from bilm.vectors.ray import embed

    embedder = TableEmbedder("elmo")
    with pytest.raises(InputError, match="workers"):
        embed("text.txt", "out", embedder, workers=0)
    with pytest.raises(FileNotFoundError, match="none-"):
        embed("none-*", "out", embedder, workers=1)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        embed("text.txt", "out", TableEmbedder("none"), workers=1)
    Path("out").mkdir()
    Path("out", "mine").touch()
    for out in ("out", f"file://{os.getcwd()}/out"):
        with pytest.raises(InputError, match=r"must be an empty folder, got .*mine"):
            embed("text.txt", out, embedder, workers=1)
        with pytest.raises(InputError, match=r"results of these files only, got .*mine"):
            embed("text.txt", out, embedder, workers=1, resume=True)
    with (
        locked(Path("out", ".lock"), ""),
        pytest.raises(InputError, match="out: another process writes into this folder"),
    ):
        embed("text.txt", "out", embedder, workers=1, resume=True)
    with pytest.raises(ConnectionError, match="no Ray cluster answers at localhost:1"):
        embed("text.txt", "new", embedder, workers=1, address="localhost:1")
    with pytest.raises(InputError, match="none://x: Protocol not known"):
        embed("none://x", "new", embedder, workers=1)
    assert os.listdir("out") == ["mine"] and not os.path.exists("new")


TEXT = [
    *(f"a dog {n} sees the cat" + " and finds it" * (n % 7) for n in range(100)),
    *("", "猫 / dog", "one\u2028line \x85 only", " \t ", "a bird"),
]


def write_corpus(folder):
    """Files of all kinds in two folders."""
    (folder / "more").mkdir(parents=True)
    (folder / "b.txt").write_bytes(("\ufeff" + "\r\n".join(TEXT)).encode())
    (folder / "c.txt").touch()
    with gzip.open(folder / "d.gz", "wb") as file:
        file.write(("\n".join(reversed(TEXT)) + "\n").encode())
    (folder / "more" / "b.txt").write_text("the cat\n", encoding="utf-8")
    (folder / "p.fasta").write_text(">P1\nMKV\n>P2\nMW\n", encoding="utf-8")
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


def check(out, files, model, layers="average", pooling=None, folder="text"):
    """Check that each file has its result, with the lines and vectors of `ELMo.encode`."""
    import pyarrow.parquet as pq

    assert sorted(str(path.relative_to(out)) for path in Path(out).rglob("*.*")) == sorted(
        f"{os.path.relpath(file, folder)}.parquet" for file in files
    )
    for file in files:
        table = pq.ParquetFile(f"{out}/{os.path.relpath(file, folder)}.parquet").read()
        sentences = list(read_sentences(file.removeprefix("file://"), file))
        assert table["file"].unique().to_pylist() == [file] * bool(sentences)
        assert table["line"].to_pylist() == [sentence.number for sentence in sentences]
        assert table["text"].to_pylist() == [sentence.text for sentence in sentences]
        if file.endswith(".fasta"):
            assert table["key"].to_pylist() == ["P1", "P2"]
        assert json.loads(table.schema.metadata[b"bilm"])["layers"] == layers
        expected = model.encode([sentence.text for sentence in sentences], layers, pooling)
        for row, vectors in zip(table["vectors"].to_pylist(), expected, strict=True):
            close(np.array(row, np.float32).reshape(vectors.shape), vectors)


@two_cpus
@pytest.mark.slow
def test_files_of_all_kinds(ray, place, capsys):
    files = [file for file in write_corpus(Path("text")) if "more" not in file]
    command = ["embed", "text/*", "out", "--model", "elmo", "--pooling", "mean", *ENGINE]
    process = start_bilm(command, LOCAL)
    printed, said = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "out\n"), said
    check("out", files, place.model, pooling="mean")
    assert main([*command, "--resume"]) == 0
    assert "out is complete already" in capsys.readouterr().err


@two_cpus
@pytest.mark.slow
def test_a_killed_worker_and_a_killed_command(ray, place, capsys):
    Path("text").mkdir()
    files = [f"text/{n:02}.txt" for n in range(40)]
    for n, file in enumerate(files):
        Path(file).write_text("\n".join(TEXT[n:] * 4) + "\n", encoding="utf-8")
    command = ["embed", "text/*", "out", "--model", "elmo", *ENGINE, "--top"]

    def results():
        return {path.name: path.stat().st_ino for path in Path().glob("out/*.parquet")}

    process = start_bilm(command, LOCAL)
    wait_for(lambda: len(results()) >= 3, process)
    (worker,) = workers_of(process.pid)
    os.kill(worker, signal.SIGKILL)
    n_before = len(results())
    wait_for(lambda: len(results()) >= n_before + 5, process)
    assert worker not in workers_of(process.pid)
    process.kill()
    process.communicate()
    before = results()
    assert 8 <= len(before) < len(files)
    assert "layers is 'top' there" in input_error([*command[:-1], "--all", "--resume"], capsys)
    process = start_bilm([*command, "--resume"], LOCAL)
    printed, said = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "out\n"), said
    check("out", files, place.model, "top")
    # Complete results were not computed again.
    assert before.items() <= results().items() and len(os.listdir("out")) == len(files)
    # The worker may have finished another file after the command was killed.
    n_done = re.search(r"(\d+) of 40 files had results already", said)
    assert n_done and int(n_done[1]) >= len(before)
    Path(files[0]).write_text("another text\n", encoding="utf-8")
    assert "bytes is" in input_error([*command, "--resume"], capsys)


def workers_of(command):
    """The process ids of the actors of a command, the grandchildren with their name."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
            names[int(folder.name)] = (folder / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
    return [p for p in names if parents.get(parents[p]) == command and b"FileEmbedder" in names[p]]


@two_cpus
@pytest.mark.slow
def test_in_python(ray, place):
    """Errors have file and line; addresses and tables in Parquet; Ray Data itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray as connection

    from bilm.vectors.ray import EmbeddedFolder, embed

    class Deadly(TableEmbedder):
        def batches(self, batches, *more):
            os.kill(os.getpid(), signal.SIGKILL)

    here, pooled = f"file://{os.getcwd()}", TableEmbedder("elmo", pooling="max")
    files = write_corpus(Path("text"))
    with connection.init("local", num_cpus=2, log_to_driver=False, include_dashboard=False):
        addresses = [f"{here}/text/*", f"{here}/text/more/*"]
        assert embed(addresses, f"{here}/a", pooled, workers=1) == EmbeddedFolder(5, 0)
        os.remove("a/b.txt.parquet")
        done = embed(addresses, f"{here}/a", pooled, workers=1, resume=True)
        assert done == EmbeddedFolder(5, 4)
        with pytest.raises(InputError, match="another job: pooling is 'max' there"):
            embed(addresses, f"{here}/a", TableEmbedder("elmo"), workers=1, resume=True)
        addresses = [f"{here}/{file}" for file in files]
        check("a", addresses, place.model, pooling="max", folder=f"{here}/text")

        Path("bad.txt").write_bytes(b"good\nb\xfcse\n")
        with pytest.raises(InputError, match=r"^bad\.txt, line 2: not UTF-8"):
            embed(["text/b.txt", "bad.txt"], "bad", pooled, workers=1)
        with pytest.raises(InputError, match=r"b\.txt\.parquet: its text ended its worker 3 times"):
            embed(files[0], "dead", Deadly("elmo"), workers=1)
        assert os.listdir("bad") == ["text"] and not os.path.exists("dead")

        table = pa.table({"comment": ["a bird", None, "the cat"], "user": [7, 8, 9]})
        pq.write_table(table, "t.parquet")
        embed("t.parquet", "b", TableEmbedder("elmo", text_column="comment"), workers=1)
        vectors = TableEmbedder("elmo", text_column="comment")(table)
        found = pq.read_table("b/t.parquet.parquet")
        assert found["line"].to_pylist() == [0, 1, 2]
        assert found.drop_columns("line").equals(vectors)

        dataset = ray.read_parquet("t.parquet").map_batches(
            TableEmbedder,
            fn_constructor_args=("elmo",),
            fn_constructor_kwargs={"text_column": "comment"},
            batch_format="pyarrow",
            compute=ray.ActorPoolStrategy(size=1),
        )
        assert [row["vectors"] for row in dataset.sort("user").take_all()] == vectors[
            "vectors"
        ].to_pylist()
