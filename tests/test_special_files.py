"""FIFOs, devices and links to nowhere in the place of files, for whatever opens a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bilm import ELMo, PackedVectors
from bilm.analysis import Occurrences
from bilm.cli import main
from bilm.data import Vocabulary
from bilm.files.checkpoints import open_checkpoint
from bilm.files.weights import load_hdf5
from bilm.use.many_langs import convert_many_langs

SPECIAL = "is not a regular file"


@pytest.fixture
def fifo(tmp_path):
    """A file that a reader would wait for."""
    os.mkfifo(tmp_path / "fifo")
    return str(tmp_path / "fifo")


READERS = {
    "model": ELMo.from_pretrained,
    "weights": lambda path: load_hdf5(path, []),
    "packed vectors": PackedVectors,
    "occurrences": Occurrences.load,
    "vocabulary": Vocabulary,
    "model of ELMoForManyLangs": lambda path: convert_many_langs(path, f"{path}.w", f"{path}.o"),
}


@pytest.mark.parametrize("what", READERS)
def test_a_fifo_is_not_waited_for(fifo, what):
    with pytest.raises(FileNotFoundError, match=f"fifo' {SPECIAL}"):
        READERS[what](fifo)


def test_a_fifo_in_a_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "model.ckpt-1.index")
    with pytest.raises(FileNotFoundError, match=f"model.ckpt-1.index' {SPECIAL}"):
        open_checkpoint(str(tmp_path / "model.ckpt-1"))


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("kind", ["fifo", "dangling"])
def test_the_command_line_refuses_them_as_outputs(tmp_path, capsys, monkeypatch, fifo, kind, force):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("a b c\n", encoding="utf-8")
    os.symlink("nowhere", "dangling")
    for command in (
        ["vocab", "in.txt", "--out", kind],
        ["embed", "in.txt", kind, "--model", "none"],
    ):
        assert main([*command, *force]) == 1
        error = capsys.readouterr().err
        assert "must be a regular file or not exist" in error or "would be overwritten" in error
    assert os.path.islink("dangling") and not Path("nowhere").exists()
    assert sorted(os.listdir()) == ["dangling", "fifo", "in.txt"]
