"""`bilm shard` and `bilm vocab`: what they print and write, and how they fail."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bilm.cli import main
from bilm.data.sharding import ShardedCorpus, ShardedPart
from tests.command_line import input_error, make_text

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with train-0.txt, train-1.txt and heldout.txt."""
    make_text(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_vocab_writes_and_reports(folder, capsys):
    assert main(["vocab", "train-*.txt", "--out", "v.txt", "--max_size", "6"]) == 0
    captured = capsys.readouterr()
    lines = Path("v.txt").read_text("utf-8").split()
    assert lines == ["<S>", "</S>", "<UNK>", ".", "cat", "a"]
    assert captured.out.splitlines() == [
        "tokens      432",
        "types       12",
        "words kept  3 (and 3 special tokens)",
        f"coverage    {100 * (72 + 60 + 36) / 432:.2f} % of the tokens",
    ]
    assert "counting 2/2 kB" in captured.err


def test_vocab_counts_the_words_that_are_cut(folder, capsys):
    Path("long.txt").write_text(f"{'ა' * 17} {'ბ' * 16} {'გ' * 17} {'გ' * 17}\n", "utf-8")
    assert main(["vocab", "long.txt", "--out", "v.txt"]) == 0
    error = capsys.readouterr().err
    assert "2 types (75.00% of the tokens)" in error and "max_characters_per_token" in error


def test_vocab_never_overwrites_silently(folder, capsys):
    Path("v.txt").write_text("mine", "utf-8")
    arguments = ["vocab", "train-*.txt", "--out", "v.txt"]
    error = input_error(arguments, capsys)
    assert error == "bilm: error: 'v.txt' would be overwritten: --force allows it."
    assert Path("v.txt").read_text("utf-8") == "mine"
    assert main([*arguments, "--force"]) == 0
    assert Path("v.txt").read_text("utf-8").startswith("<S>\n")


def test_shard_says_what_it_made_and_what_comes_next(folder, capsys):
    Path("my text.txt").write_text("".join(f"w{n}\n\n" for n in range(100)), "utf-8")
    arguments = ["shard", "my text.txt", "--out_dir", "my corpus", "--n_shards", "3"]
    assert main([*arguments, "--heldout", "0.1", "--seed", "4"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:4] == [
        "training     90 sentences in 3 files: 'my corpus/train-*.txt'",
        "held out     10 sentences in 1 file: 'my corpus/heldout-*.txt'",
        "empty lines  100 skipped",
        "next:",
    ]
    assert printed[4:] == [
        "  bilm vocab 'my corpus/train-*.txt' --out 'my corpus/vocab.txt'",
        "  bilm train --save_dir model --vocab_file 'my corpus/vocab.txt' "
        "--train_prefix 'my corpus/train-*.txt' --heldout_prefix 'my corpus/heldout-*.txt' "
        "--preset tiny",
    ]
    assert main(shlex.split(printed[4])[1:]) == 0
    assert len(Path("my corpus/vocab.txt").read_text("utf-8").split()) == 93
    assert "which are never overwritten" in input_error(arguments, capsys)


def test_brackets_in_names_of_folders_are_not_patterns(folder, capsys):
    Path("runs [1]/text").mkdir(parents=True)
    Path("runs [1]/text/a.txt").write_text("a b\n", "utf-8")
    assert main(["shard", "runs [1]/*/a.txt", "--out_dir", "runs [1]/shards"]) == 0
    vocab = capsys.readouterr().out.splitlines()[3]
    assert vocab.startswith("  bilm vocab 'runs [1]/shards/train-*.txt' --out")
    assert main(shlex.split(vocab)[1:]) == 0
    assert Path("runs [1]/shards/vocab.txt").read_text("utf-8").split()[3:] == ["a", "b"]


@pytest.mark.parametrize(
    ("n_tokens", "preset"),
    [(500_000, "tiny"), (500_001, "base"), (900_000_000, "original")],
)  # fmt: skip
def test_the_preset_suits_the_text(n_tokens, preset, folder, capsys, monkeypatch):
    part = ShardedPart("out/train-*.txt", 1, 1)
    made = ShardedCorpus(part, None, 0, n_tokens)
    monkeypatch.setattr("bilm.data.sharding.shard_corpus", lambda *args, **settings: made)
    assert main(["shard", "train-0.txt", "--out_dir", "out"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"--preset {preset}")


def test_min_count_is_advised_for_large_text(folder, capsys):
    Path("large.txt").write_text("a b c\n" * 10_000, "utf-8")
    assert main(["shard", "large.txt", "--out_dir", "out", "--shard_size", "0.02"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "training     10,000 sentences in 3 files: 'out/train-*.txt'"
    assert lines[3] == "  bilm vocab 'out/train-*.txt' --out out/vocab.txt --min_count 3"


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_all_processes_and_leaves_nothing(times, folder):
    with open("large.txt", "w", encoding="utf-8") as file:
        for number in range(60):
            file.write("".join(f"w{number}-{n} " for n in range(100_000)) + "\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "bilm", "vocab", "large.txt", "--out", "v.txt", "--jobs", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "counting" not in process.stderr.readline():
        assert process.poll() is None
    for seconds in (0.5, 0.1)[:times]:
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
    # The pipe is closed when the last process has ended.
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.endswith("bilm: interrupted.\n") and "Traceback" not in error
    assert not [path for path in folder.iterdir() if path.name.startswith((".v", "v"))]
