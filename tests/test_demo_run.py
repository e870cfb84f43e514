"""The demo: its choice of words, and a complete run on a small text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import bilm.cli
from bilm import ELMo
from bilm.analysis import Occurrences
from bilm.analysis.demo_text import clearest_words
from bilm.cli import main
from tests.command_line import OPTIONS, input_error, usage_error
from tests.small_models import write_small_model

pytest.importorskip("sklearn")
pytest.importorskip("gensim")

# "bank" occurs in two kinds of sentences.
BANKS = [
    [*tokens.split(), str(n)]
    for n in range(20)
    for tokens in ("the bank lends money", "fish swim near this bank")
]
OWN_TEXT = "".join(
    f"The {a} cat sees the {b} dog of Mr. {c}.\nIt says that the {b} dog sees a {a} bird!\n\n"
    for a in ("small", "old", "green", "quick")
    for b in ("red", "kind", "loud", "tired")
    for c in ("Smith", "Jones", "Brown", "Miller", "Wilson")
)


def test_words_with_two_clear_clusters(tmp_path):
    elmo = ELMo.from_pretrained(write_small_model(tmp_path, "short_words_261").files)
    # The most frequent words are skipped.
    assert clearest_words(elmo, [*BANKS, ["these", "those"] * 50]) == ["bank"]
    assert clearest_words(elmo, BANKS[:6]) == []
    assert clearest_words(elmo, [["1", "2"]]) == []


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """A function that runs the demo on a small text, training a small model for a few steps; it
    returns the exit code and the commands that the demo ran."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(OWN_TEXT, encoding="utf-8")
    Path("options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    ran = []

    def run_small(words):
        ran.append([*words])
        if words[0] == "train":
            assert words[1:4] == ("--preset", "tiny", "--time")
            words = ["train", "--options_file", "options.json", *words[5:]]
        return main(words)

    monkeypatch.setattr(bilm.cli, "main", run_small)

    def run(*flags):
        return main(["demo", "--corpus", "text.txt", "--out", "out", *flags]), ran

    return run


@pytest.mark.slow
def test_the_demo_runs_the_other_commands(demo, capsys):
    code, ran = demo("--words", "dog", "absent", "--minutes", "0.5")
    captured = capsys.readouterr()
    assert code == 0, captured.err
    names = ["vocab", "train", "dump", "senses", "project", "static", "static"]
    assert [words[0] for words in ran] == names
    assert ran[1][4] == "30s"
    for reported in (
        "training ",
        "held-out ",
        "\n$ bilm train --preset tiny --time 30s --save_dir out/model ",
        "\n$ bilm senses dog --match_case ",
        "Quality: held-out perplexity ",
        "dog: ",
        "[dog]",
        "Open out/elmo.html in a browser",
    ):
        assert reported in captured.out
    assert "'absent' must occur 10 times in the text, got 0." in captured.err
    assert sorted(os.listdir("out")) == [
        "elmo", "elmo.html", "elmo.npz", "heldout.txt", "model", "train.txt", "vectors.txt",
        "vocab.txt",
    ]  # fmt: skip
    heldout = Path("out/heldout.txt").read_text(encoding="utf-8").splitlines()
    assert all(line.endswith((" .", " !")) for line in heldout)
    n_lines = len(Path("out/train.txt").read_text(encoding="utf-8").splitlines()) + len(heldout)
    assert n_lines == 160
    assert set(Occurrences.load("out/elmo.npz").words) == {"dog"}
    # The model folder can be loaded, and another demo does not overwrite the files.
    (vectors,) = ELMo.from_pretrained("out/elmo").encode(["the dog"], "top")
    assert vectors.shape == (2, 8)
    again = ["demo", "--corpus", "text.txt", "--out", "out"]
    assert "out, perhaps from an earlier demo" in input_error(again, capsys)


@pytest.mark.slow
def test_a_text_without_words_of_two_clusters_is_no_error(demo, capsys):
    Path("text.txt").write_text("a b c d e .\n" * 300, encoding="utf-8")
    code, ran = demo("--tokenized")
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert [words[0] for words in ran] == ["vocab", "train", "dump"]
    assert "No word of the text has two clear clusters" in captured.out


def test_a_command_that_fails_ends_the_demo(demo, monkeypatch, capsys):
    monkeypatch.setattr(bilm.cli, "main", lambda words: 130 if words[0] == "train" else 0)
    code = main(["demo", "--corpus", "text.txt", "--out", "out"])
    assert code == 130 and "All files" not in capsys.readouterr().out
    assert not Path("out/elmo").exists()


def test_usage_and_missing_words(demo, capsys):
    wrong = ["demo", "--out", "new", "--tokenized"]
    assert "--tokenized requires --corpus" in usage_error(wrong, capsys)
    assert main(["demo", "--out", "new", "--corpus", "text.txt", "--words", "zebra"]) == 1
    said = "--words: at least one of them must occur 10 times in the text."
    assert said in capsys.readouterr().err
    missing = ["demo", "--out", "new", "--corpus", "no-such-file.txt"]
    assert "no-such-file.txt" in input_error(missing, capsys)
    assert not Path("new").exists()
