"""`bilm score`, `bilm substitutes` and the softmax of `bilm dump`, run as a user runs them."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import shutil
import sys
from argparse import Namespace
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm import InputError, Predictor
from bilm.cli import main
from bilm.cli.text_command import write_results
from tests.command_line import input_error, usage_error
from tests.scored_models import KINDS, Model
from tests.small_runs import VOCABULARY

pytestmark = pytest.mark.eager

LINES = ["the cat sees a unheard-of dog", "", "苹果 runs", "of"]
SENTENCES = [line.split() for line in LINES if line]
NUMBERS = [0, 2, 3]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    kind, changes = KINDS["one_layer_tied"]
    return Model(tmp_path_factory.mktemp("cli") / "model", kind, **changes)


@pytest.fixture(scope="module")
def loaded(made):
    return Predictor.from_pretrained(made.folder)


@pytest.fixture
def place(made, loaded, tmp_path, monkeypatch):
    """Change to a folder with a text and the model as `model`; return the loaded model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(made.folder)
    Path("text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return loaded


def run(capsys, *arguments):
    """Run a command; return its standard output and standard error."""
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr()


def rows_of(text):
    header, *rows = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_scores_as_json_lines(place, capsys):
    printed = run(capsys, "score", "text.txt", "--model", "model")
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["line"] for line in found] == NUMBERS
    for line, score in zip(found, place.score(SENTENCES), strict=True):
        assert line["tokens"] == score.tokens and line["known"] == score.known.tolist()
        for name in ("forward", "end", "backward", "begin", "joint"):
            np.testing.assert_allclose(line[name], getattr(score, name), atol=1e-6)
        totals = [line["total"][name] for name in ("forward", "backward", "joint")]
        expected = [score.forward_total, score.backward_total, score.joint_total]
        np.testing.assert_allclose(totals, expected, atol=1e-6)


def test_scores_with_tabs(place, capsys):
    rows = rows_of(run(capsys, "score", "text.txt", "--model", "model", "--format=tsv").out)
    scores = place.score(SENTENCES)
    first = rows[: len(SENTENCES[0]) + 2]
    assert [row["token"] for row in first] == ["<S>", *SENTENCES[0], "</S>"]
    assert [row["place"] for row in first] == ["", "0", "1", "2", "3", "4", "5", ""]
    assert [row["known"] for row in first] == ["1", "1", "1", "1", "1", "0", "1", "1"]
    forward = [float(row["forward"]) for row in first[1:]]
    np.testing.assert_allclose(forward, [*scores[0].forward, scores[0].end], atol=1e-6)
    backward = [float(row["backward"]) for row in first[:-1]]
    np.testing.assert_allclose(backward, [scores[0].begin, *scores[0].backward], atol=1e-6)
    assert first[0]["forward"] == first[-1]["backward"] == first[-1]["joint"] == ""
    joint = [float(row["joint"]) for row in first[1:-1]]
    np.testing.assert_allclose(joint, scores[0].joint, atol=1e-6)
    assert len(rows) == sum(len(sentence) + 2 for sentence in SENTENCES)


def test_the_name_of_the_file_chooses_format_and_compression(place, capsys):
    arguments = ("score", "text.txt", "--model", "model", "--totals")
    lines = run(capsys, *arguments).out
    table = run(capsys, *arguments, "--format", "tsv").out
    for name, expected in [("o.tsv", table), ("o.TSV.gz", table), ("o.txt", lines)]:
        run(capsys, *arguments, "--out", name)
        assert read_text_file(name) == expected
    run(capsys, *arguments, "--out", "p.jsonl.xz", "--format", "tsv")
    assert read_text_file("p.jsonl.xz") == table


def read_text_file(name):
    openers = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(Path(name).suffix, open)(name, "rt", encoding="utf-8") as file:
        return file.read()


def test_totals_and_the_perplexity_of_the_whole(place, capsys):
    arguments = ("score", "text.txt", "--model", "model", "--totals")
    printed = run(capsys, *arguments, "--format", "tsv")
    rows = rows_of(printed.out)
    assert [(row["line"], row["tokens"], row["unknown"]) for row in rows] == [
        ("0", "6", "1"), ("2", "2", "0"), ("3", "1", "0")
    ]  # fmt: skip
    as_json = [json.loads(line) for line in run(capsys, *arguments).out.splitlines()]
    for row, line in zip(rows, as_json, strict=True):
        assert {name: float(row[name]) for name in row} == line
    test = ["test", "--save_dir", "model", "--test_prefix", "text.txt"]
    measured = run(capsys, *test).out.split()
    summary = printed.err.splitlines()[-1]
    assert summary.startswith("3 sentences, 12 predictions; perplexity: forward ")
    said = summary.replace(",", "").split()
    for name, value in (("forward", measured[2]), ("both", measured[7])):
        np.testing.assert_allclose(float(said[said.index(name) + 1]), float(value), 1e-5)
    assert summary.endswith(", unknown tokens 11.11%") and measured[-1] == "11.11%"


def test_a_perplexity_of_unknown_words_is_reported_with_a_warning(place, capsys):
    Path("strange.txt").write_text("qwx zrt\nthe qwx\n")
    printed = run(capsys, "score", "strange.txt", "--model", "model", "--totals").err
    assert "unknown tokens 75.00%" in printed
    assert "warning: 75% of the tokens of strange.txt are outside the vocabulary" in printed


def test_standard_input_and_a_file(place, capsys, monkeypatch):
    expected = run(capsys, "score", "text.txt", "--model", "model").out
    content = b"\xef\xbb\xbf" + Path("text.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    found = run(capsys, "score", "-", "--model", "model").out
    assert found == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    single = run(capsys, "score", "-", "--model", "model", "--batch-size", "1").out
    for line, wanted in zip(single.splitlines(), expected.splitlines(), strict=True):
        line, wanted = json.loads(line), json.loads(wanted)
        assert line["tokens"] == wanted["tokens"]
        np.testing.assert_allclose(line["joint"], wanted["joint"], 1e-5)
    with gzip.open("text.txt.gz", "wb") as file:
        file.write(Path("text.txt").read_bytes())
    arguments = ["score", "text.txt.gz", "--model", "model", "--out", "scores.jsonl"]
    assert run(capsys, *arguments).out == "scores.jsonl\n"
    assert Path("scores.jsonl").read_text(encoding="utf-8") == expected
    assert "scores.jsonl' would be overwritten: --force allows it" in input_error(arguments, capsys)
    assert main([*arguments, "--force"]) == 0


def test_substitutes_of_gaps(place, capsys):
    text = "the ___ sees ___ dog"
    arguments = ("substitutes", "--text", text, "--model", "model", "--n", "3", "--prior=0.5")
    found = [json.loads(line) for line in run(capsys, *arguments).out.splitlines()]
    (expected,) = place.substitutes([text], n=3, prior=0.5)
    assert [line["place"] for line in found] == [1, 3]
    for line, wanted in zip(found, expected, strict=True):
        assert (line["line"], line["token"], line["words"]) == (0, "___", wanted.words)
        np.testing.assert_allclose(line["log_probabilities"], wanted.log_probabilities, atol=1e-6)
        assert line["of_token"] is line["rank"] is None
    rows = rows_of(run(capsys, *arguments, "--format", "tsv").out)
    assert [row["rank"] for row in rows] == ["1", "2", "3"] * 2
    assert [row["word"] for row in rows] == [*found[0]["words"], *found[1]["words"]]
    np.testing.assert_allclose(
        [float(row["log_probability"]) for row in rows[3:]], found[1]["log_probabilities"]
    )


def test_substitutes_for_people(place, capsys, monkeypatch):
    arguments = ["substitutes", "--text", "the ___ sees", "--model", "model", "--n", "2"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    printed = run(capsys, *arguments).out
    ((found,),) = place.substitutes(["the ___ sees"], n=2)
    chances = np.exp(found.log_probabilities)
    assert printed.splitlines() == ["the [___] sees"] + [
        f"  {chance:.4f}  {word}" for chance, word in zip(chances, found.words, strict=True)
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert run(capsys, *arguments, "--format", "text").out == printed
    assert json.loads(run(capsys, *arguments).out)["words"] == found.words


def test_substitutes_of_named_places_and_of_all(place, capsys):
    arguments = ("substitutes", "text.txt", "--model", "model", "--n", "2")
    found = [json.loads(line) for line in run(capsys, *arguments, "--every").out.splitlines()]
    assert [line["line"] for line in found] == [0] * 6 + [2] * 2 + [3]
    expected = [place for places in place.substitutes(SENTENCES, "all", n=2) for place in places]
    assert [line["words"] for line in found] == [wanted.words for wanted in expected]
    assert [line["rank"] for line in found] == [wanted.rank for wanted in expected]
    rows = rows_of(run(capsys, *arguments, "--every", "--format", "tsv").out)
    assert [row["token_rank"] for row in rows[::2]] == [str(found.rank or "") for found in expected]
    lines = run(capsys, *arguments, "--every", "--format", "text").out.splitlines()[::3]
    assert [line.partition(f"rank of {found.token}: ")[2] for line, found in zip(
        lines, expected, strict=True)] == [str(found.rank or "") for found in expected]  # fmt: skip
    backward = ("--place", "0", "--direction", "backward")
    found = [json.loads(line) for line in run(capsys, *arguments, *backward).out.splitlines()]
    expected = place.substitutes(SENTENCES, [0], n=2, directions="backward")
    assert [line["words"] for line in found] == [places[0].words for places in expected]


def test_a_model_of_one_direction(tmp_path, capsys):
    kind, changes = KINDS["one_direction"]
    folder = str(Model(tmp_path / "model", kind, **changes).folder)
    text = str(tmp_path / "text.txt")
    Path(text).write_text("the cat\n", encoding="utf-8")
    printed = run(capsys, "score", text, "--model", folder, "--format", "tsv")
    rows = rows_of(printed.out)
    assert [row["token"] for row in rows] == ["the", "cat", "</S>"]
    assert {row["backward"] + row["joint"] for row in rows} == {""}
    assert "perplexity: forward " in printed.err and "both" not in printed.err
    (line,) = run(capsys, "score", text, "--model", folder).out.splitlines()
    assert json.loads(line)["backward"] is json.loads(line)["total"]["joint"] is None
    arguments = ["substitutes", text, "--model", folder, "--place", "0"]
    assert json.loads(run(capsys, *arguments).out)["token"] == "the"
    error = input_error([*arguments, "--direction", "backward"], capsys)
    assert "directions must be 'forward' for this" in error


def test_errors_name_the_line(place, capsys):
    arguments = ["substitutes", "text.txt", "--model", "model"]
    assert "text.txt, line 1 must have a token ___" in input_error(arguments, capsys)
    error = input_error([*arguments, "--place", "1", "--out", "x"], capsys)
    assert "text.txt, line 4: a place must be >= 0" in error
    assert not Path("x").exists()
    error = input_error(["substitutes", "--text", "a", "--model", "model"], capsys)
    assert "--text, line 1 must have a token ___," in error
    Path("empty.txt").write_text("\n", encoding="utf-8")
    error = input_error(["score", "empty.txt", "--model", "model"], capsys)
    assert "empty.txt: must have a sentence, got empty" in error
    error = input_error(["substitutes", "empty.txt", "--model", "model"], capsys)
    assert "empty.txt: must have a sentence, got empty" in error
    Path("bad.txt").write_bytes(b"good\nb\xffd\n")
    error = input_error(["score", "bad.txt", "--model", "model", "--out", "x"], capsys)
    assert "bad.txt, line 2: not UTF-8" in error and not Path("x").exists()


def test_usage(place, capsys):
    model = ["--model", "model"]
    assert "name a text, IN, or a sentence" in usage_error(["substitutes", *model], capsys)
    both = ["substitutes", "text.txt", "--text", "a ___", *model]
    assert "name a text, IN, or a sentence" in usage_error(both, capsys)
    prior = ["substitutes", "text.txt", *model, "--prior", "2"]
    assert "must be a number from 0 to 1, got '2'" in usage_error(prior, capsys)
    prior[-1] = "much"
    assert "must be a number from 0 to 1, got 'much'" in usage_error(prior, capsys)
    assert "name a model" in usage_error(["score", "text.txt"], capsys)


def test_a_dump_without_a_vocabulary_says_that_it_has_no_softmax(place, capsys):
    shutil.copytree("model", "copy")
    Path("model").unlink()  # a link to the shared model
    Path("copy").rename("model")
    Path("model", "vocab.txt").rename("words.txt")
    said = run(capsys, "dump", "--save_dir", "model", "--outfile", "bare.hdf5").err
    assert "model has no vocab.txt, so the softmax is left out; --vocab_file FILE adds it." in said
    with h5py.File("bare.hdf5") as file:
        assert "softmax" not in file and "vocabulary" not in file
    arguments = ["dump", "--save_dir", "model", "--outfile", "w.hdf5"]
    run(capsys, *arguments, "--vocab_file", "words.txt")
    with h5py.File("w.hdf5") as file:
        assert file["softmax/b"].shape == file["vocabulary/words"].shape == (len(VOCABULARY),)
    error = usage_error([*arguments, "--vocab_file", "words.txt", "--without_softmax"], capsys)
    assert "--vocab_file with --outfile is for the softmax" in error


def test_surprisals_as_lm_zoo_writes_them(place, capsys):
    lines = ["the cat sees a unheard-of dog", "", "  苹果\t runs", "of"]
    Path("text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ["score", "text.txt", "--model", "model", "--format", "surprisal"]
    printed = run(capsys, *arguments).out
    names = ["line", "sentence", "token_id", "token", "surprisal", "start", "end", "known"]
    assert printed.splitlines()[0].split("\t") == names
    rows = rows_of(printed)
    for number, score in zip((1, 3, 4), place.score(SENTENCES), strict=True):
        own = [row for row in rows if (row["line"], row["sentence"]) == (str(number), "1")]
        assert [row["token_id"] for row in own] == [str(k + 1) for k in range(len(own))]
        assert [row["token"] for row in own] == [*score.tokens, "</S>"]
        assert [row["known"] for row in own] == [*map(str, map(int, score.known)), "1"]
        bits = [float(row["surprisal"]) for row in own]
        expected = [*score.forward, score.end] / -np.log(2)
        np.testing.assert_allclose(bits, expected, atol=1e-6)
        np.testing.assert_allclose(score.surprisals, expected, rtol=1e-6)
        np.testing.assert_allclose(sum(bits), score.forward_total / -np.log(2), rtol=1e-5)
        line = lines[number - 1]
        found = [line[int(row["start"]) : int(row["end"])] for row in own]
        assert found == [*score.tokens, ""] and int(own[-1]["start"]) == len(line)
    error = usage_error([*arguments, "--totals"], capsys)
    assert "--format surprisal excludes --totals" in error


def test_raw_text_is_tokenised_first(place, capsys):
    Path("raw.txt").write_text("the cat, the dog isn't\u0301 a.\n", encoding="utf-8")
    arguments = ["score", "raw.txt", "--model", "model", "--format", "surprisal"]
    rows = rows_of(run(capsys, *arguments, "--tokenizer", "en").out)
    tokens = ["the", "cat", ",", "the", "dog", "isn't\u0301", "a", ".", "</S>"]
    assert [row["token"] for row in rows] == tokens
    places = [(0, 3), (4, 7), (7, 8), (9, 12), (13, 16), (17, 23), (24, 25), (25, 26), (26, 26)]
    assert [(int(row["start"]), int(row["end"])) for row in rows] == places
    (line,) = run(
        capsys, "score", "raw.txt", "--model", "model", "--tokenizer", "en"
    ).out.splitlines()
    assert json.loads(line)["tokens"] == tokens[:-1]
    two = "The cat sees a dog. It runs, of isn't.\n\nOf\n"
    Path("raw.txt").write_text(two, encoding="utf-8")
    arguments = ["score", "raw.txt", "--model", "model", "--tokenizer", "en"]
    rows = rows_of(run(capsys, *arguments, "--format", "surprisal").out)
    assert [row["line"] + row["sentence"] for row in rows if row["token"] == "</S>"] == [
        "11", "12", "31"
    ]  # fmt: skip
    starts = [int(row["start"]) for row in rows if row["line"] == "1" and row["token"] != "</S>"]
    assert starts == [0, 4, 8, 13, 15, 18, 20, 23, 27, 29, 32, 34, 37]
    words = rows_of(run(capsys, *arguments, "--format", "words").out)
    assert [(row["line"], row["word"], row["text"]) for row in words] == [
        (str(line), str(k), word)
        for line, text in enumerate(two.split("\n"), start=1)
        for k, word in enumerate(text.split(), start=1)
    ]
    for row in words:
        ours = [t for t in rows if t["line"] == row["line"] and t["token"] != "</S>"
                and int(row["start"]) <= int(t["start"]) < int(row["end"])]  # fmt: skip
        assert len(ours) == int(row["tokens"])
        total = sum(float(token["surprisal"]) for token in ours)
        np.testing.assert_allclose(float(row["surprisal"]), total, atol=1e-5)
    scores = [json.loads(line) for line in run(capsys, *arguments).out.splitlines()]
    assert [(score["line"], score["sentence"]) for score in scores] == [(0, 0), (0, 1), (2, 0)]
    np.testing.assert_allclose(
        scores[1]["forward"], place.score([scores[1]["tokens"]])[0].forward, atol=1e-5
    )
    whole = run(capsys, *arguments, "--whole_lines", "--totals", "--format", "tsv").out
    assert [(row["line"], row["tokens"]) for row in rows_of(whole)] == [("0", "13"), ("2", "1")]
    arguments = ["score", "raw.txt", "--model", "model", "--format", "surprisal"]
    error = input_error([*arguments, "--tokenizer", "english"], capsys)
    assert "language must be" in error


def test_scores_that_are_not_finite_are_not_written(tmp_path):
    """SECURITY.md: an error names the sentence, and the file does not appear."""
    rows = {3: [("a", 0.5, None, 1)], 7: [("b", float("nan"), None, 2)]}
    args = Namespace(out=str(tmp_path / "o.tsv"), force=False, format=None)
    for name, value in (("nan", float("nan")), ("inf", -float("inf"))):
        rows[7] = [(name, value, None, 2)]
        with pytest.raises(InputError, match=r"^line 7: the model's scores are not finite"):
            write_results(args, rows.items(), ("line", "t", "x", "y", "n"), list, "scoring")
        assert not any(tmp_path.iterdir())
    write_results(args, [*rows.items()][:1], ("line", "t", "x", "y", "n"), list, "scoring")
    assert Path(args.out).read_text("utf-8") == "line\tt\tx\ty\tn\n3\ta\t0.500000\t\t1\n"
