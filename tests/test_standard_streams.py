"""Standard streams that are full or ASCII, and names that are not UTF-8."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.cli import main
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
