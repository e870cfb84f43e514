"""`bilm embed` on long jobs: shards, crashes at any moment, sentences that do not fit in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bilm import ELMo, InputError
from bilm.cli import main
from bilm.jobs.partial_file import DiskArray, PartialFile
from bilm.jobs.vector_files import (
    PackedVectors,
    write_hdf5,
    write_jsonl,
    write_npz,
    write_packed_hdf5,
)
from tests.command_line import input_error
from tests.compare import close
from tests.embedded_text import LINES, embed, read, write_lines
from tests.processes import start_bilm, wait_for
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager

PARTIAL = Path("out.hdf5.partial")


# Shards, crashes


def test_shards_share_the_lines(place):
    for i in (1, 2):
        embed("--shard", f"{i}/2", out=f"{i}.hdf5")
    first, index = read("1.hdf5")
    second, _ = read("2.hdf5")
    assert (sorted(first), sorted(second)) == (["0", "2", "4"], ["1", "3", "5"])
    assert index == {LINES[0]: "0", "a  dog": "2", "猫 / dog": "4"}


def crash_after(monkeypatch, n):
    """Let the process die, and leave what it leaves when `n` sentences are on the disk: their
    lines of the index, half a line more, and vectors that the index does not name."""

    replace = os.replace

    def crash_at_the_end(source, target):
        if target == "out.hdf5":
            raise SystemError("crash")
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(os, "replace", crash_at_the_end)
        embed("--all")
    lines = (PARTIAL / "index").read_bytes().splitlines(keepends=True)
    assert len(lines) == len(LINES) and not os.path.exists("out.hdf5")
    (PARTIAL / "index").write_bytes(b"".join([*lines[:n], lines[n][:10]]))


def test_resume_after_a_crash(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    (PARTIAL / "long-1").touch()
    # A number that no one would compute: it shows what was taken over.
    vectors = np.fromfile(PARTIAL / "vectors", np.float32)
    vectors[0] = 7
    vectors.tofile(PARTIAL / "vectors")
    with open(PARTIAL / "vectors", "ab") as file:
        file.write(b"half a vector")
    embed("--all", "--resume")
    assert "continuing after 3 sentences" in capsys.readouterr().err
    arrays, index = read()
    assert sorted(arrays) == ["0", "1", "2", "3", "4", "5"] and len(index) == 5
    assert arrays["0"][0, 0, 0] == 7
    arrays["0"][0, 0, 0] = place.expected[0][0, 0, 0]
    for key, layers in enumerate(place.expected):
        np.testing.assert_allclose(arrays[str(key)], layers, atol=1e-6)
    assert not PARTIAL.exists()
    embed("--all", "--resume")
    assert "out.hdf5 is complete already" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 30,
        b"\0\0\0\n4\t2\tx\n",
        b"4\t1\tbi\0\0\n",
        b"4\t-1\tbird\n",
        b"x\t1\tbird\n",
        b"4\t1\t\xff\n",
        b"4\t" + b"1" * 5000 + b"\tbird\n",
        b"\n\n",
    ],
)
def test_an_index_that_was_torn_counts_as_far_as_it_is_whole(tmp_path, damage):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    with PartialFile(tmp_path / "p", RUN) as partial:
        partial.add(0, "a b c", 3, vectors)
        partial.save()
    index = tmp_path / "p" / "index"
    whole = index.read_bytes()
    index.write_bytes(whole + damage)
    with PartialFile(tmp_path / "p", RUN) as partial:
        assert (partial.n_sentences, partial.n_tokens) == (1, 3)
        (only,) = partial.sentences()
    assert only.text == "a b c" and index.read_bytes() == whole
    np.testing.assert_array_equal(only.vectors, vectors)


def test_index_beyond_the_vectors_is_not_believed(place, monkeypatch):
    crash_after(monkeypatch, 4)
    of_four = sum(layers.nbytes for layers in place.expected[:4])
    os.truncate(PARTIAL / "vectors", of_four - 1)
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
    write_lines(["another text"] * 6)
    error = input_error([*resume, "--all"], capsys)
    assert "text.txt: the first 3 sentences are not those whose vectors are in out.hdf5" in error
    assert main([*resume[:-1], "--all", "--force"]) == 0
    assert read()[1] == {"another text": "5"}


def test_resume_where_nothing_was_begun(place):
    embed("--resume")
    assert len(read()[0]) == 6


RUN = {"shape": [None, 2], "dtype": "float32"}


def test_an_error_loses_nothing_that_was_added(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    with pytest.raises(SystemError), PartialFile(tmp_path / "p", RUN) as partial:
        partial.add(0, "a b c", 3, vectors)
        partial.add(1, "", 0, vectors[:0])
        raise SystemError("a bug")
    with PartialFile(tmp_path / "p", RUN) as partial:
        assert (partial.n_sentences, partial.n_tokens) == (2, 3)
        (first, second) = partial.sentences()
    assert (first.line, first.text, second.line, second.text) == (0, "a b c", 1, "")
    np.testing.assert_array_equal(first.vectors, vectors)
    assert second.vectors.shape == (0, 2)


def test_two_processes_do_not_write_the_same(tmp_path):
    pytest.importorskip("fcntl")
    with PartialFile(tmp_path / "p", RUN), pytest.raises(InputError, match="another process is"):
        PartialFile(tmp_path / "p", RUN)


@pytest.mark.slow
def test_resume_after_kill_9(tmp_path):
    """Killed when something is on the disk; in the end nothing is twice and nothing is missing.

    What was added is saved each 256 MiB, or earlier: these are more.
    """
    changes = {"lstm": {"dim": 32, "projection_dim": 256}}
    folder = write_small_model(tmp_path / "elmo", "as_published", **changes).folder
    n_lines = 6000  # 59 MB a thousand
    lines = [f"{n} a dog sees the cat and finds {n + 1} ." for n in range(n_lines)]
    write_lines(lines, tmp_path / "text.txt")
    command = ["embed", str(tmp_path / "text.txt"), str(tmp_path / "out.hdf5"), "--model",
               str(folder), "--resume", "--packed", "--all"]  # fmt: skip
    index = tmp_path / "out.hdf5.partial" / "index"
    process = start_bilm(command)
    wait_for(lambda: index.exists() and index.stat().st_size, process)
    process.kill()
    process.communicate()
    n_saved = index.read_bytes().count(b"\n")
    assert 0 < n_saved < n_lines
    process = start_bilm(command)
    _, said = process.communicate()
    assert process.returncode == 0 and f"continuing after {n_saved:,} sentences" in said
    model = ELMo.from_pretrained(folder)
    with PackedVectors(tmp_path / "out.hdf5") as packed:
        assert [packed.line(k) for k in range(len(packed))] == list(range(n_lines))
        for k in (0, n_saved - 1, n_saved, n_saved + 1, n_lines // 2, n_lines - 1):
            assert packed.text(k) == lines[k]
            close(packed[k], model.encode([lines[k]], "all")[0])
    os.remove(tmp_path / "out.hdf5")  # 350 MB


# Long sentences by way of the disk


@pytest.mark.parametrize("layers", [pytest.param("all", marks=pytest.mark.slow), "average"])
def test_a_long_sentence_stays_on_the_disk(published, tmp_path, layers):
    model = ELMo.from_pretrained(published.folder)
    sentence = " ".join(f"w{n % 7}" for n in range(50))
    expected = model.encode([sentence], layers)[0]
    model.corpus.window_tokens, model.corpus.chunk_tokens = 20, 8
    shape = [3, None, 16] if layers == "all" else [None, 16]
    run = {"shape": shape, "dtype": "float32"}
    kept = []
    with PartialFile(tmp_path / "p", run, memory_bytes=1000) as partial:
        items = enumerate(["bird", sentence, "a dog"])
        for line, vectors in model.encode_iter(
            items, layers, with_ids=True, new_array=partial.new_array
        ):
            kept.append(isinstance(vectors, DiskArray))
            partial.add(line, "x " * line, vectors.shape[-2], vectors)
        partial.save()
        assert kept == [False, True, False]
        assert isinstance(list(partial.sentences())[1].vectors, DiskArray)
        write_packed_hdf5(tmp_path / "packed.hdf5", partial, with_text=False)
        write_hdf5(tmp_path / "o.hdf5", partial.sentences(), sentence_keys=False, with_index=False)
        with open(tmp_path / "o.npz", "wb") as npz, open(tmp_path / "o.jsonl", "wb") as lines:
            write_npz(npz, partial.sentences(), sentence_keys=False, with_index=False)
            write_jsonl(lines, partial.sentences())
    with PackedVectors(tmp_path / "packed.hdf5") as packed:
        found = [packed[1]]
    found += [read(tmp_path / "o.hdf5")[0]["1"], np.load(tmp_path / "o.npz")["1"]]
    found += [json.loads((tmp_path / "o.jsonl").read_text("utf-8").splitlines()[1])["vectors"]]
    for vectors in found:
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
