"""Corpora on Ray: the command line, a simulated cluster, and failures."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError, TableEmbedder
from bilm.data.processes import n_processors
from bilm.files.reading import read_lines
from tests.command_line import input_error, usage_error
from tests.compare import close
from tests.processes import ROOT, start_bilm, wait_for
from tests.ray_embedders import DeadlyEmbedder

ENGINE = ["--engine", "ray", "--workers", "1"]
two_cpus = pytest.mark.skipif(n_processors() < 2, reason="with one CPU a worker waits for ever")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workers", "2"], "--workers goes with --engine ray"),
        (["--part_mb", "2"], "--part_mb goes with --engine ray"),
        (["--engine", "ray"], "--engine ray needs --workers"),
        ([*ENGINE, "--format", "npz"], "--engine writes Parquet, not npz"),
        ([*ENGINE, "--shard", "1/2"], "--shard does not go with --engine, which divides the text"),
    ],
)
def test_flags_that_do_not_go_together(flags, message, capsys):
    assert message in usage_error(["embed", "text.txt", "out", "--model", "elmo", *flags], capsys)


def test_standard_streams(capsys):
    for names in (["-", "out"], ["text.txt", "-"]):
        error = usage_error(["embed", *names, "--model", "elmo", *ENGINE], capsys)
        assert "--engine reads files and writes a folder, not standard output" in error


# With Ray


@pytest.fixture
def ray():
    return pytest.importorskip("ray", reason="the extra `ray` is not installed")


def test_refusals(ray, place, capsys, monkeypatch):
    """Errors are raised before Ray is started and before the model is loaded."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    from bilm.vectors.ray import embed

    embedder = TableEmbedder("elmo")
    error = input_error(
        ["embed", "text.txt", "out", "--model", "elmo", "--engine", "ray", "--workers", "1000",
         "--cpus", "2"], capsys)  # fmt: skip
    n = n_processors()
    assert (
        f"workers must be at most {n // 2}, got 1000: this machine has {n} CPUs, and a worker "
        "needs 2."
    ) in error
    with pytest.raises(InputError, match="workers must be an integer >= 1, got 0"):
        embed("text.txt", "out", embedder, workers=0)
    with pytest.raises(InputError, match="part_bytes must be an integer >= 1, got 0"):
        embed("text.txt", "out", embedder, workers=1, part_bytes=0)
    with pytest.raises(FileNotFoundError, match=r"No file matches 'none-\*'"):
        embed("none-*", "out", embedder, workers=1)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        embed("text.txt", "out", TableEmbedder("none"), workers=1)
    with pytest.raises(InputError, match="layers"):
        embed("text.txt", "out", TableEmbedder("elmo", layers=9), workers=1)
    Path("bad.txt").write_bytes(b"good\nb\xfcse\n")
    with pytest.raises(InputError, match=r"bad\.txt, line 2: not UTF-8: byte 1 is 0xfc"):
        embed(["text.txt", "bad.txt"], "out", embedder, workers=1)
    Path("out").mkdir()
    Path("out", "file").touch()
    with pytest.raises(InputError, match="'out' would be overwritten: --force allows it"):
        embed("text.txt", "out", embedder, workers=1)
    with pytest.raises(InputError, match=r"out is replaced only if it holds nothing but part-\*"):
        embed("text.txt", "out", embedder, workers=1, force=True)
    with pytest.raises(InputError, match=r"out must be a folder that all machines see, got the ad"):
        embed("text.txt", "s3://bucket/out", embedder, workers=1)
    assert not ray.is_initialized() and not os.path.exists("out.partial")


def test_an_address_where_nobody_listens(ray, place, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"127.0.0.1:{port}"
    error = input_error(
        ["embed", "text.txt", "out", "--model", "elmo", *ENGINE, "--address", address], capsys
    )
    assert f"--address: no Ray cluster answers at {address} within 10 seconds: " in error
    assert not os.path.exists("out.partial")


TEXT = [
    *(f"a dog {n} sees the cat" + " and finds it" * (n % 7) for n in range(150)),
    *("", "猫 / dog", "one\u2028line \x85 only", " \t ", "a bird"),
]


def write_corpus(folder):
    """Files of all kinds, 465 lines."""
    folder.mkdir()
    content = "\r\n".join(TEXT)
    (folder / "b.txt").write_bytes(("\ufeff" + content).encode())  # no end of the last line
    (folder / "c.txt").touch()
    with gzip.open(folder / "d.gz", "wb") as file:
        file.write(("\n".join(TEXT) + "\n").encode())
    (folder / "e.txt").write_text("\n".join(reversed(TEXT)) + "\n", encoding="utf-8")
    return sorted(str(path) for path in folder.iterdir())


def check(out, files, model, layers="average", pooling=None):
    """Check that the rows have distinct ids and lines, with the vectors of `ELMo.encode`."""
    import pyarrow.parquet as pq

    from bilm.vectors.ray import find_line

    names = sorted(os.listdir(out))
    assert names == [f"part-{number:06d}.parquet" for number in range(len(names))]
    assert not os.path.exists(f"{out}.partial")
    places = [(path, n, line.strip()) for path in files for n, line in enumerate(read_lines(path))]
    tables = [pq.read_table(os.path.join(out, name)) for name in names]
    ids = [number for table in tables for number in table["id"].to_pylist()]
    texts = [text for table in tables for text in table["text"].to_pylist()]
    assert ids == list(range(len(places)))
    assert texts == [line for *_, line in places]
    for number in (0, 1, len(ids) // 2, len(ids) - 1):
        assert find_line(out, number) == places[number][:2]
    settings = {table.schema.metadata[b"bilm"] for table in tables}
    assert json.loads(settings.pop())["layers"] == layers and not settings
    vectors = [value for table in tables for value in table["vectors"].to_pylist()]
    for found, expected in zip(vectors, model.encode(texts, layers, pooling), strict=True):
        close(np.array(found, np.float32).reshape(expected.shape), expected)
    return names


def add_machine(cluster, **settings):
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, **settings)


@pytest.fixture(scope="module")
def cluster():
    """A cluster of three nodes with one CPU each, all on this machine."""
    utils = pytest.importorskip("ray.cluster_utils", reason="the extra `ray` is not installed")
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(ROOT))
    cluster = utils.Cluster()
    add_machine(cluster, include_dashboard=False)
    for _ in range(2):
        add_machine(cluster)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
    patch.undo()


def workers_of(cluster):
    """Process ids of the actors that compute."""
    raylets = {
        node.all_processes["raylet"][0].process.pid
        for node in (cluster.head_node, *cluster.worker_nodes)
    }
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent in raylets and b"RangeWriter" in command:
            found.append(int(folder.name))
    return found


def parts_in(out):
    return len(list(Path(f"{out}.partial").glob("pieces-*/part-*.parquet")))


@two_cpus
@pytest.mark.slow
def test_a_local_instance(ray, place):
    """The command starts and stops Ray without printing anything about it."""
    files = write_corpus(Path("text"))
    command = ["embed", "text/*", "out", "--model", "elmo", "--pooling", "mean", *ENGINE,
               "--part_mb", "0.003"]  # fmt: skip
    process = start_bilm(command, {"RAY_ADDRESS": ""})
    printed, said = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "out\n"), said
    assert len(check("out", files, place.model, pooling="mean")) > 5
    assert "embedding" in said and "ray" not in said.lower()
    # Resuming a finished job only reports that it is complete.
    process = start_bilm([*command, "--resume"], {"RAY_ADDRESS": ""})
    printed, said = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "")
    assert "out is complete already; nothing to do." in said


@two_cpus
@pytest.mark.slow
def test_what_the_docstring_shows(ray, place):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processors are needed")
    import bilm.vectors.ray

    files = write_corpus(Path("text"))
    texts = [path for path in files if path.endswith(".txt")]
    shown = [line for line in bilm.vectors.ray.__doc__.splitlines() if line.startswith("    ")]
    program = textwrap.dedent("\n".join(shown))
    environment = {**os.environ, "RAY_ADDRESS": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert done.returncode == 0
    check("vectors", texts, place.model, pooling="mean")


@two_cpus
@pytest.mark.slow
def test_actors_and_a_machine_that_end(cluster, place):
    """Actors are killed one at a time, and a node is removed with everything on it."""
    files = write_corpus(Path("text"))
    command = ["embed", "text/*", "out", "--model", "elmo", "--top", "--engine", "ray",
               "--workers", "3", "--part_mb", "0.0002", "--address", cluster.address]  # fmt: skip
    process = start_bilm(command)
    n_killed = 0
    for n_done in (5, 20, 40):
        wait_for(lambda n=n_done: parts_in("out") >= n, process)
        for worker in workers_of(cluster)[:1]:
            os.kill(worker, signal.SIGKILL)
            n_killed += 1
    wait_for(lambda: parts_in("out") >= 60, process)
    try:
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        printed, said = process.communicate(timeout=300)
    finally:
        add_machine(cluster)
        cluster.wait_for_nodes()
    assert (process.returncode, printed) == (0, "out\n"), said
    assert n_killed > 0
    check("out", files, place.model, "top")


@two_cpus
@pytest.mark.slow
def test_a_driver_that_is_killed(cluster, place, capsys):
    files = write_corpus(Path("text"))
    command = ["embed", "text/*", "out", "--model", "elmo", "--engine", "ray", "--part_mb",
               "0.0002", "--address", cluster.address]  # fmt: skip
    process = start_bilm([*command, "--workers", "2"])
    wait_for(lambda: parts_in("out") >= 8, process)
    process.kill()
    process.communicate()
    assert not os.path.exists("out")
    wait_for_end_of_workers(cluster)
    # A truncated file is computed again.
    first = min(Path("out.partial").glob("pieces-*/*.parquet"))
    os.truncate(first, first.stat().st_size // 2)
    n_whole = parts_in("out") - 1
    other = [*command, "--workers", "1", "--resume", "--top"]
    assert "another job: layers is 'average' there, 'top' now" in input_error(other, capsys)
    process = start_bilm([*command, "--workers", "1", "--resume"])
    printed, said = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "out\n"), said
    names = check("out", files, place.model)
    assert f"{n_whole} of {len(names)} files are taken over from the interrupted job" in said


def wait_for_end_of_workers(cluster):
    """Wait until Ray has stopped the actors of a driver that has ended."""
    deadline = time.monotonic() + 300
    while workers_of(cluster):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@two_cpus
@pytest.mark.slow
def test_in_python(cluster, place, ray):
    """The caller's connection is used and stays open; a sentence that kills a process is named."""
    from bilm.vectors.ray import EmbeddedFolder, embed

    files = write_corpus(Path("text"))
    stages = []
    with ray.init(cluster.address, log_to_driver=False):
        embedder = TableEmbedder("elmo", pooling="max")
        done = embed(files, "out", embedder, workers=2, part_bytes=4000, show=stages.append)
        names = check("out", files, place.model, pooling="max")
        assert done == EmbeddedFolder(465, len(names), 0) and ray.is_initialized()
        assert [stage.doing for stage in stages] == sorted(s.doing for s in stages)[::-1]
        assert stages[-1].done == stages[-1].total

        message = r"workers must be at most 3, got 4: Ray's machines have 1 \+ 1 \+ 1 CPUs, and a w"
        with pytest.raises(InputError, match=message):
            embed(files, "again", embedder, workers=4)
        with pytest.raises(InputError, match="at most 0, got 1"):
            embed(files, "again", TableEmbedder("elmo", threads=2), workers=1)

        Path("bad.txt").write_text("a dog\n" * 70 + "a deadly dog\na cat\n", encoding="utf-8")
        message = r"bad\.txt, lines 1 to 72: failed 3 times; a machine may have too little memory"
        with pytest.raises(InputError, match=message):
            embed("bad.txt", "bad", DeadlyEmbedder("elmo"), workers=1)
        assert not os.path.exists("bad") and not os.path.exists("bad.partial")
