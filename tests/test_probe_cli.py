"""`bilm probe` on a small model with random weights."""

from __future__ import annotations

import json

import pytest

from bilm.cli import main
from bilm.progress import ProgressDisplay
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


@pytest.mark.slow
def test_a_table_a_file_and_a_picture(folder, tmp_path, capsys, monkeypatch):
    """An interrupted probe continues with the remaining cells."""
    out, picture = str(tmp_path / "result.json"), str(tmp_path / "result.svg")
    flags = ["--sizes", "2,all", "--seeds", "1", "--no_control", "--out", out]
    flags += ["--static", str(folder / "vectors.txt"), "--picture", picture]
    update = ProgressDisplay.update

    def stop(display, doing, done, total=None, unit="", detail=""):
        if (doing, done) == ("probing cells", 9):
            raise KeyboardInterrupt
        update(display, doing, done, total, unit, detail)

    monkeypatch.setattr(ProgressDisplay, "update", stop)
    assert main(command(folder, *flags)) == 130
    stopped = capsys.readouterr()
    said = f"{out} has 9 of 14 cells; the same command continues from it."
    assert said in stopped.err and not stopped.out
    with open(out, encoding="utf-8") as file:
        first = json.load(file)
    assert len(first["cells"]) == 9 and first["settings"]["column"] == "UPOS"
    monkeypatch.setattr(ProgressDisplay, "update", update)
    assert main(command(folder, *flags)) == 0
    done = capsys.readouterr()
    with open(out, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    assert len(cells) == 14 and cells[:9] == first["cells"]
    rows = {line[:20].strip(): line[20:].split() for line in done.out.splitlines()[:9]}
    assert rows["training sentences"] == ["2", "all", "3"]
    accuracies = [f"{cell['accuracy'] * 100:.1f}" for cell in cells]
    assert rows["majority"] == [accuracies[0], accuracies[7]] == ["60.0", "60.0"]
    assert rows["word's majority"][1] == "100.0"
    assert rows["mix"] == [accuracies[6], accuracies[13]]
    assert "accuracy, % (one seed)" in done.out and "selectivity" not in done.out
    assert "3 sentences, 16 labelled tokens, 2 labels" in done.err
    assert "100.0% of the labelled test tokens have a vector" in done.err
    assert (tmp_path / "result.svg").read_text(encoding="utf-8").startswith("<?xml")
    # The file is complete for these settings, but not for others.
    assert "would be overwritten" in input_error(command(folder, *flags), capsys)
    assert main(command(folder, *flags[:-2])) == 0
    assert capsys.readouterr().out == done.out
    other = input_error(command(folder, *flags[:-2], "--max_tokens", "16"), capsys)
    assert "max_tokens is 300000 there, 16 here" in other


def test_senses(folder, tmp_path, capsys):
    out = tmp_path / "senses.json"
    flags = ["--out", str(out), "--vectors", str(tmp_path / "kept")]
    for _ in range(2):
        assert main(command(folder, *flags, "--force", train="uses.txt", test="uses.txt")) == 0
    printed = capsys.readouterr()
    assert "uses.txt: 3 of 3 labelled tokens are in the same sentence in " in printed.err
    said = (
        "3 occurrences; the word is in training for 100.0% of them, with several senses for 100.0%"
    )
    assert said in printed.err
    lines = printed.out.splitlines()
    assert lines[0] == "accuracy, %"
    assert lines[1].split() == ["all", "several", "senses", "by", "sense"]
    # "two" is the sense of one use.
    assert lines[2].split() == ["first", "sense", "66.7", "66.7", "50.0"]
    # Each use is its own neighbour; at layer 0 all vectors are equal.
    assert lines[3].split() == ["layer", "0", "66.7", "66.7", "50.0"]
    assert lines[4].split() == ["layer", "1", "100.0", "100.0", "100.0"]
    assert [line.split()[0] for line in lines[5:8]] == ["layer", "layers", "context"]
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["rows"][0] == {
        "representation": "first sense", "accuracy": pytest.approx(2 / 3),
        "ambiguous_accuracy": pytest.approx(2 / 3), "macro_accuracy": 0.5, "by_kind": {},
        "kappa": None,
    }  # fmt: skip
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"train.npz", "test.npz"}


def test_senses_by_prior(folder, tmp_path, capsys):
    out = tmp_path / "senses.json"
    flags = ["--method", "prior", "--out", str(out)]
    assert main(command(folder, *flags, train="uses.txt", test="uses.txt")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-1] == "kappa" and lines[2].split()[-1] == "-"
    # In layer 0 all vectors of a word are equal, so its most frequent sense is taken.
    assert lines[3].split()[-4:] == ["66.7", "66.7", "50.0", "0"]
    assert json.loads(out.read_text(encoding="utf-8"))["settings"]["method"] == "prior"


@pytest.mark.parametrize(
    ("more", "files", "message"),
    [
        (["--sizes", "4"], {}, "sizes must be at most 3, the training"),
        ([], {"test": "uses.txt"}, "uses.txt: must have the form of "),
    ],
)
def test_wrong_input(folder, capsys, more, files, message):
    assert message in input_error(command(folder, *more, **files), capsys)
