"""Standard streams that are full or ASCII, and names that are not UTF-8."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.cli import main
from bilm.data.sentences import read_record
from tests.command_line import usage_error
from tests.processes import ROOT

TEXT = "the cat sees\nthe dog\na bird hears\n"
COUNT = [sys.executable, "-m", "bilm", "vocab", "text.txt", "--out"]


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("text.txt").write_text(TEXT, encoding="utf-8")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_streams_that_are_full():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([*COUNT, "v.txt"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last == "bilm: error: No space left on device."
        assert "Traceback" not in done.stderr and "Exception" not in done.stderr
        assert Path("v.txt").exists()


def ascii_stream(monkeypatch):
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    return out


def test_results_are_utf8_whatever_the_locale_says(monkeypatch):
    out = ascii_stream(monkeypatch)
    assert main(["shard", "text.txt", "--out_dir", "größe"]) == 0
    assert "größe/train-*.txt" in out.getvalue().decode("utf-8")


def test_names_that_are_not_utf8_come_out_as_they_are(monkeypatch):
    out = ascii_stream(monkeypatch)
    folder = os.fsdecode(b"\xff")
    assert main(["shard", "text.txt", "--out_dir", folder]) == 0
    assert b"in 1 file: '\xff/train-*.txt'" in out.getvalue()
    assert os.listdir(folder) == ["train-00.txt"]
    out = os.fsdecode(b"\xff.txt")
    assert main(["tokenize", "text.txt", out, "--language", "en"]) == 0
    assert read_record([out]) == "en rules 2"


@pytest.mark.parametrize(
    "words",
    [["compare", "the [\udce9]"], ["neighbours", "the [\udce9]"], ["senses", "\udce9"],
     ["substitutes", "--text", "\udce9 ___"], ["static", "--nearest", "\udce9"]],
)  # fmt: skip
def test_words_that_are_not_utf8(words, capsys):
    assert "must be UTF-8, got '\\udce9" in usage_error(words, capsys).replace("the [", "")


@pytest.mark.parametrize(
    ("closed", "code", "error"),
    [(1, 1, "bilm: error: standard output is closed.\n"), (2, 0, "")],
)
def test_closed_streams(closed, code, error):
    command = f"{shlex.join([*COUNT, 'v.txt'])} {closed}>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, error)
    assert Path("v.txt").exists() == (code == 0)


def test_messages_that_nobody_reads_are_an_error():
    """Their reader has gone before the work was done."""
    command = [sys.executable, "-m", "bilm", "embed", "text.txt", "v.npz", "--model", "english"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stderr=writing)
    os.close(writing)
    assert done.returncode == 1 and not Path("v.npz").exists()


def test_a_first_line_that_looks_like_another_kind_of_text():
    command = [sys.executable, "-m", "bilm", "tokenize", "-", "-", "--language", "en"]
    done = subprocess.run(command, input="\n> a quote\n", capture_output=True, text=True)
    assert done.stdout == "\n> a quote\n"


def test_closed_standard_input():
    command = shlex.join([sys.executable, "-m", "bilm", "tokenize", "-", "-", "--language", "en"])
    done = subprocess.run(["sh", "-c", f"{command} 0<&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "bilm: error: standard input: no text.\n")


def test_an_output_cannot_be_a_dash(capsys):
    assert "an output must be a file or folder, got -" in usage_error(
        ["vocab", "text.txt", "--out", "-"], capsys
    )


@pytest.mark.slow
def test_kill_leaves_no_temporary_file():
    with open("large.txt", "w", encoding="utf-8") as file:
        file.writelines(f"w{n} the cat sees\n" for n in range(3_000_000))
    command = [sys.executable, "-m", "bilm", "shard", "large.txt", "--out_dir", "shards"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "scattering" not in process.stderr.readline():
            assert process.poll() is None
        process.terminate()
    assert process.returncode == 143
    assert sorted(os.listdir()) == ["large.txt", "text.txt"]
