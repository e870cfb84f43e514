"""`bilm project`, run as a user runs it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bilm.analysis import Occurrences
from bilm.cli import main
from tests.command_line import input_error
from tests.hand_made import two_senses

pytestmark = pytest.mark.eager

for module in ("matplotlib", "sklearn"):
    pytest.importorskip(module)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a file of occurrences."""
    monkeypatch.chdir(tmp_path)
    two_senses().save("bank.npz")
    return tmp_path


def test_a_picture_of_a_file_of_occurrences(place, capsys):
    assert main(["project", "--occurrences", "bank.npz", "--out", "bank.svg"]) == 0
    assert capsys.readouterr().out == "bank.svg\n"
    svg = Path("bank.svg").read_text(encoding="utf-8")
    assert "layer 2: " in svg and "river" in svg
    error = input_error(["project", "--occurrences", "bank.npz", "--out", "bank.svg"], capsys)
    assert "bank.svg' would be overwritten: --force allows it." in error
    arguments = ["project", "Bank", "--occurrences", "bank.npz", "--out", "bank.svg", "--force",
                 "--method", "tsne", "--layer", "1", "--colour", "word"]  # fmt: skip
    assert main(arguments) == 0
    svg = Path("bank.svg").read_text(encoding="utf-8")
    assert "t-SNE, perplexity 5:" in svg and ">bank<" in svg and "layer 1" in svg
    assert "layer 2" not in svg and "river" not in svg


def test_words_of_a_text_with_a_model(place, capsys, trained):
    assert main(["dump", "--save_dir", trained[1], "--model_dir", "elmo"]) == 0
    Path("text.txt").write_text("the cat sees a dog\na dog sees the cat\n" * 3, encoding="utf-8")
    arguments = ["senses", "cat", "dog", "--model", "elmo", "--text", "text.txt",
                 "--occurrences", "kept.npz", "--max_occurrences", "4"]  # fmt: skip
    assert main(arguments) == 0
    assert main(["project", "--occurrences", "kept.npz", "--out", "animals.html"]) == 0
    assert len(Occurrences.load("kept.npz")) == 8
    page = Path("animals.html").read_text(encoding="utf-8")
    assert "<title>cat, dog</title>" in page or "<title>dog, cat</title>" in page
    Path("uses.tsv").write_text(
        "x\tthe [cat] sees\nx\ta [cat] sees\ny\tsees the [dog]\n", encoding="utf-8"
    )
    labelled = ["project", "--labels", "uses.tsv", "--model", "elmo"]
    assert main([*labelled, "--out", "uses.svg"]) == 0
    svg = Path("uses.svg").read_text(encoding="utf-8")
    assert ">x (2)<" in svg and ">y (1)<" in svg
    Path("uses.tsv").write_text("x\tthe [cat] sees\n", encoding="utf-8")
    assert "at least 3 occurrences, got 1" in input_error([*labelled, "--out", "few.svg"], capsys)


def test_a_large_page_is_said_to_be_slow(place, capsys, monkeypatch):
    sizes = iter([12_300_000, 9_000_000, 12_300_000])
    monkeypatch.setattr("bilm.analysis.write_picture", lambda *args, **settings: next(sizes))
    project = ["project", "--occurrences", "bank.npz", "--colour", "word", "--out"]
    said = [(main([*project, name]), capsys.readouterr().err)[1]
            for name in ("bank.html", "bank.html", "bank.svg")]  # fmt: skip
    slow = "bank.html has 12 MB, slow in a browser: --max_occurrences"
    assert [slow in text for text in said] == [True, False, False]


def test_clusters_of_senses_are_drawn(place, capsys):
    two_senses(labels=False).save("bank.npz")
    arguments = ["senses", "bank", "--occurrences", "bank.npz", "--clusters", "2", "--out", "b.tsv",
                 "--layer", "1"]  # fmt: skip
    assert main(arguments) == 0
    occurrences = Occurrences.load("bank.npz")
    names = [line.partition("\t")[0] for line in Path("b.tsv").read_text("utf-8").splitlines()]
    assert sorted(occurrences.clusters) == sorted(names)
    assert len(set(names)) == 2 and {"muddy", "savings"} <= set(" ".join(names).split())
    assert main(["project", "--occurrences", "bank.npz", "--out", "bank.svg"]) == 0
    svg = Path("bank.svg").read_text(encoding="utf-8")
    assert all(f">{name} (8)<" in svg for name in names)
    # Without clusters from `bilm senses`, the top layer is clustered here, except with --colour
    # word.
    occurrences = two_senses(labels=False)
    replace(occurrences, vectors=occurrences.vectors[:, [0, 2, 1]]).save("new.npz")
    assert main(["project", "--occurrences", "new.npz", "--out", "new.svg"]) == 0
    assert all(f">{name} (8)<" in Path("new.svg").read_text("utf-8") for name in names)
    words = ["project", "--occurrences", "new.npz", "--out", "new.svg", "--force"]
    assert main([*words, "--colour", "word"]) == 0
    assert ">bank (16)<" in Path("new.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out", "bank.pdf"], "must end in .html, .png, .svg, got bank.pdf"),
        (["--out", "x.svg", "--layer", "7"], "got 7"),
        (["water", "--out", "x.svg"], "bank.npz: must have an occurrence of 'water'"),
    ],
)
def test_what_cannot_be_drawn(place, capsys, flags, message):
    assert message in input_error(["project", "--occurrences", "bank.npz", *flags], capsys)
    assert sorted(path.name for path in place.iterdir()) == ["bank.npz"]


def test_packages_that_are_missing_are_named_before_the_work(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = input_error(["project", "--occurrences", "bank.npz", "--out", "x.svg"], capsys)
    assert "bilm project needs the Python module matplotlib" in error
