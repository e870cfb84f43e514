"""`bilm probe` on a small model with random weights."""

from __future__ import annotations

import json

import pytest

from bilm.cli import main
from tests.command_line import input_error
from tests.small_models import write_small_model

SENTENCES = ["the cat sees a dog", "a dog hears the bird", "the old bird sees the cat"]
NOUNS = {"cat", "dog", "bird"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    (folder / "elmo").mkdir()
    write_small_model(folder / "elmo", "as_published")
    tagged = [
        "".join(f"{word}\t{'NOUN' if word in NOUNS else 'OTHER'}\n" for word in line.split())
        for line in SENTENCES
    ]
    (folder / "train.tsv").write_text("\n".join(tagged), encoding="utf-8")
    (folder / "test.tsv").write_text(tagged[0], encoding="utf-8")
    uses = [
        f"{'one' if k else 'two'}\t{line.replace('the', '[the]', 1)}\n"
        for k, line in enumerate(SENTENCES)
    ]
    (folder / "uses.txt").write_text("".join(uses), encoding="utf-8")
    words = sorted({word for line in SENTENCES for word in line.split()} - {"old"})
    vectors = [f"{word} {k} {k % 3} 1\n" for k, word in enumerate(words)]
    (folder / "vectors.txt").write_text("".join(vectors), encoding="utf-8")
    return folder


def command(folder, *more, train="train.tsv", test="test.tsv"):
    return [
        "probe", "--train", str(folder / train), "--test", str(folder / test),
        "--model", str(folder / "elmo"), *more,
    ]  # fmt: skip


def test_a_table_a_file_and_a_picture(folder, tmp_path, capsys):
    out, picture = str(tmp_path / "result.json"), str(tmp_path / "result.svg")
    flags = ["--sizes", "2,all", "--seeds", "2", "--out", out, "--picture", picture]
    flags += ["--static", str(folder / "vectors.txt")]
    assert main(command(folder, *flags)) == 0
    done = capsys.readouterr()
    with open(out, encoding="utf-8") as file:
        written = json.load(file)
    assert written["settings"]["column"] is None and len(written["rows"]) == 14
    by_key = {(row["representation"], row["size"]): row for row in written["rows"]}
    assert by_key["majority", 2]["accuracy"][0] == by_key["majority", None]["accuracy"][0] == 0.6
    assert by_key["word's majority", None]["accuracy"] == [1.0, 1.0, 1.0]
    assert by_key["mix", None]["unseen"] is None and len(by_key["mix", 2]["weights"]) == 3
    lines = done.out.splitlines()
    assert lines[:2] == ["accuracy, % [95 % interval]", lines[1]]
    assert lines[1].split() == ["training", "sentences", "2", "all", "3"]
    assert lines[2].startswith("majority") and lines[2].count("60.0 [60.0, 60.0]") == 2
    assert "3 sentences, 16 labelled tokens, 2 labels" in done.err
    assert "100.0% of the test tokens have a vector" in done.err
    assert (tmp_path / "result.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "would be overwritten" in input_error(command(folder, *flags), capsys)


@pytest.mark.parametrize(
    ("more", "files", "message"),
    [
        (["--sizes", "4"], {}, "sizes must be at most 3, the training"),
        ([], {"test": "uses.txt"}, "uses.txt, line 1: must be ten fields of CoNLL-U"),
        (["--column", "Case"], {}, "train.tsv: must be CoNLL-U, "),
        (["--picture", "a.pdf"], {}, "must end in .png, .svg, got a.pdf"),
    ],
)
def test_wrong_input(folder, capsys, more, files, message):
    assert message in input_error(command(folder, *more, **files), capsys)
