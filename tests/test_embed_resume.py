"""`bilm embed` on long jobs: shards, crashes at any moment, sentences that do not fit in memory."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bilm import ELMo, InputError
from bilm.cli import main
from bilm.embedding import partial_file
from bilm.embedding.partial_file import DiskArray, PartialFile
from bilm.embedding.vector_files import PackedVectors
from tests.command_line import input_error
from tests.embedded_text import LINES, embed, make_model, make_place, read

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    return make_place(made, tmp_path, monkeypatch)


# Shards, crashes


def test_shards_share_the_lines(place):
    for i in (1, 2):
        assert main(["embed", "text.txt", f"{i}.hdf5", "--model=elmo", "--shard", f"{i}/2"]) == 0
    first, index = read("1.hdf5")
    second, _ = read("2.hdf5")
    assert (sorted(first), sorted(second)) == (["0", "2", "4"], ["1", "3", "5"])
    assert index == {LINES[0]: "0", "a  dog": "2", "猫 / dog": "4"}


def crash_after(monkeypatch, n):
    """Let the process die when `n` sentences are written, with the last ones not saved."""
    add, done = PartialFile.add, []

    def adding(self, *arguments):
        if len(done) == n:
            raise SystemError("crash")
        done.append(arguments)
        add(self, *arguments)

    monkeypatch.setattr(PartialFile, "add", adding)
    with pytest.raises(SystemError):
        embed("--all")
    monkeypatch.setattr(PartialFile, "add", add)


def test_resume_after_a_crash(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    assert os.path.isdir("out.hdf5.partial") and not os.path.exists("out.hdf5")
    # What a crash may leave beyond the index, and half a line of the index.
    with open("out.hdf5.partial/vectors", "ab") as file:
        file.write(b"half a vector")
    with open("out.hdf5.partial/index", "ab") as file:
        file.write(b"3\t6\t0000")
    Path("out.hdf5.partial/long-1").touch()
    sizes = []
    encode_iter = ELMo.encode_iter
    monkeypatch.setattr(
        ELMo, "encode_iter",
        lambda self, items, **k: encode_iter(self, (sizes.append(x) or x for x in items), **k),
    )  # fmt: skip
    embed("--all", "--resume")
    assert "continuing after 3 sentences" in capsys.readouterr().err
    assert len(sizes) == 3
    arrays, index = read()
    assert sorted(arrays) == ["0", "1", "2", "3", "4", "5"] and len(index) == 5
    for key, layers in enumerate(place.expected):
        np.testing.assert_allclose(arrays[str(key)], layers, atol=1e-6)
    assert not os.path.exists("out.hdf5.partial")
    embed("--all", "--resume")
    assert "out.hdf5 is complete already" in capsys.readouterr().err


def test_index_beyond_the_vectors_is_not_believed(place, monkeypatch):
    crash_after(monkeypatch, 4)
    size = os.path.getsize("out.hdf5.partial/vectors")
    with open("out.hdf5.partial/vectors", "r+b") as file:
        file.truncate(size - 1)
    embed("--all", "--resume")
    arrays, _ = read()
    np.testing.assert_allclose(arrays["3"], place.expected[3], atol=1e-6)
    assert len(arrays) == 6


def test_resume_with_another_text_or_other_vectors(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    resume = ["embed", "text.txt", "out.hdf5", "--model", "elmo", "--resume"]
    error = input_error([*resume, "--top"], capsys)
    assert "out.hdf5.partial: holds vectors of another run: layers all, not top" in error
    assert "was left by an interrupted run: --resume continues it" in input_error(
        [*resume[:-1], "--all"], capsys
    )
    Path("text.txt").write_text("another text\n" * 6, encoding="utf-8")
    error = input_error([*resume, "--all"], capsys)
    assert "text.txt: the first 3 sentences are not those whose vectors are in out.hdf5" in error
    assert main([*resume[:-1], "--all", "--force"]) == 0
    assert read()[1] == {"another text": "5"}


def test_resume_where_nothing_was_begun(place):
    embed("--resume")
    assert len(read()[0]) == 6


def test_two_processes_do_not_write_the_same(tmp_path):
    pytest.importorskip("fcntl")
    run = {"shape": [None, 2], "dtype": "float32"}
    with PartialFile(tmp_path / "p", run), pytest.raises(InputError, match="another process is"):
        PartialFile(tmp_path / "p", run)


@pytest.mark.slow
def test_resume_after_kill_9(made, tmp_path):
    """Killed at several moments; in the end nothing is twice and nothing is missing."""
    folder, model = made
    lines = [f"{LINES[0]} {n}" for n in range(20000)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    program = (
        "import functools, sys; from bilm.cli import main; "
        "from bilm.embedding import partial_file; "
        "often = functools.partial(partial_file.PartialFile, save_seconds=0.2, save_bytes=1e6); "
        "partial_file.PartialFile = often; sys.exit(main(sys.argv[1:]))"
    )
    # fmt: off
    command = [sys.executable, "-c", program, "embed", str(tmp_path / "text.txt"),
               str(tmp_path / "out.hdf5"), "--model", str(folder), "--resume", "--packed"]
    # fmt: on
    killed = 0
    for _ in range(4):
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
        index = tmp_path / "out.hdf5.partial" / "index"
        before = index.stat().st_size if index.exists() else 0
        while process.poll() is None:
            if index.exists() and index.stat().st_size > before:
                process.kill()
                killed += 1
                break
        process.communicate()
    assert killed
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0
    with PackedVectors(tmp_path / "out.hdf5") as packed:
        assert len(packed) == 20000
        assert [packed.line(k) for k in range(20000)] == list(range(20000))
        for k in range(0, 20000, 1999):
            assert packed.text(k) == lines[k]
            np.testing.assert_allclose(packed[k], model.encode([lines[k]])[0], atol=1e-6)


# Long sentences by way of the disk


@pytest.mark.parametrize("flags", [["--all"], ["--average", "--packed"], ["--all", "--packed"]])
def test_a_long_sentence_stays_on_the_disk(place, monkeypatch, flags):
    sentence = " ".join(f"w{n % 7}" for n in range(50))
    Path("text.txt").write_text(f"bird\n{sentence}\na dog\n", encoding="utf-8")
    monkeypatch.setattr(place.model.corpus, "window_tokens", 20)
    monkeypatch.setattr(place.model.corpus, "chunk_tokens", 8)
    in_parts = functools.partial(PartialFile, memory_bytes=1000)
    monkeypatch.setattr(partial_file, "PartialFile", in_parts)
    created = []
    create = DiskArray.create
    monkeypatch.setattr(DiskArray, "create", lambda *a: created.append(a) or create(*a))
    expected = place.model.encode([sentence], "all" if "--all" in flags else "average")[0]
    embed(*flags)
    assert len(created) == 1
    if "--packed" in flags:
        with PackedVectors("out.hdf5") as packed:
            found = packed[1]
    else:
        found = read()[0]["1"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert main(["embed", "text.txt", "out.npz", "--model", "elmo", flags[0]]) == 0
    np.testing.assert_allclose(np.load("out.npz")["1"], expected, atol=1e-6)
    assert main(["embed", "text.txt", "out.jsonl", "--model", "elmo", flags[0]]) == 0
    line = json.loads(Path("out.jsonl").read_text("utf-8").splitlines()[1])
    np.testing.assert_allclose(line["vectors"], expected, atol=1e-6)
