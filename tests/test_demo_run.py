"""The demo: the commands that it runs, and its texts."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import pytest

import bilm.cli
from bilm import ELMo, Tokenizer
from bilm.analysis import Occurrences
from bilm.cli import main
from tests.command_line import OPTIONS, input_error

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

SAMPLES = Path(bilm.__file__).parent / "samples"


@pytest.mark.parametrize("name, language", [("english", "en"), ("chinese", "zh")])
def test_samples_are_tokenised_as_for_their_model(name, language):
    if language == "zh":
        pytest.importorskip("jieba")
    tokenizer = Tokenizer(language)
    with lzma.open(SAMPLES / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert len(lines) > 7000 and sum(map(len, map(str.split, lines))) > 190_000
    changed = [
        line for line in lines[:: len(lines) // 500] if tokenizer.tokens(line) != line.split()
    ]
    assert changed == []
    options = json.loads((SAMPLES.parent / "models" / name / "options.json").read_text("utf-8"))
    assert options["tokenizer"] == tokenizer.name


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Runs the demo with a small model and a few sentences; returns the exit code and the commands
    that it ran."""
    monkeypatch.chdir(tmp_path)
    lines = [
        f"The {a} plant {b} the square {c} .\n" for a in "xyz" for b in "uvw" for c in "abcdefg"
    ]
    Path("text.txt").write_text("".join(lines) * 40, encoding="utf-8")
    Path("options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    ran = []

    def run_small(words):
        ran.append([*words])
        words = ["text.txt" if str(word).endswith(".xz") else word for word in words]
        if words[0] == "senses":
            words += ["--text", "text.txt", "--max_occurrences", "20"]
        if words[0] == "train":
            words = ["train", "--options_file", "options.json", *words[5:]]
        return main(words)

    monkeypatch.setattr(bilm.cli, "main", run_small)
    return lambda *flags: (main(["demo", "--out", "out", *flags]), ran)


@pytest.mark.slow
def test_the_demo_runs_the_other_commands(demo, capsys):
    code, ran = demo("--minutes", "0.5")
    captured = capsys.readouterr()
    assert code == 0, captured.err
    names = ["senses", "project", "shard", "vocab", "train", "dump", "report"]
    assert [words[0] for words in ran] == names and ran[4][4] == "30s"
    for text in (
        "$ bilm senses plant square --model english ",
        "Open out/senses.html and out/report",
    ):
        assert text in captured.out
    assert sorted(os.listdir("out")) == [
        "elmo", "report.html", "run", "senses.html", "senses.npz", "text", "vocab.txt",
    ]  # fmt: skip
    assert set(Occurrences.load("out/senses.npz").words) == {"plant", "square"}
    (vectors,) = ELMo.from_pretrained("out/elmo").encode(["the square"], "top")
    assert vectors.shape == (2, 8)
    assert "out, perhaps from an earlier demo" in input_error(["demo", "--out", "out"], capsys)


def test_a_command_that_fails_ends_the_demo(demo, monkeypatch, capsys):
    monkeypatch.setattr(bilm.cli, "main", lambda words: 130 if words[0] == "train" else 0)
    code = main(["demo", "--out", "out"])
    assert code == 130 and "All files" not in capsys.readouterr().out
