"""`bilm neighbours` and `bilm senses`, run as a user runs them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from bilm import ELMo, Predictor
from bilm.analysis import (
    Occurrences,
    Sample,
    cluster_occurrences,
    nearby_words,
    read_labelled_uses,
    sample_uses,
    typical_occurrences,
)
from bilm.cli import main
from tests.command_line import input_error
from tests.scored_models import KINDS, Model
from tests.small_runs import WORDS

QUERY = "the [cat] sees 苹果"


def lines_of_text():
    draw = random.Random(1)
    lines = [" ".join(draw.choices(WORDS, k=draw.choice([4, 7, 12]))) for _ in range(120)]
    return [*lines, "a Harbour once", "the cat sees 苹果"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with its softmax and one without, and a text."""
    place = tmp_path_factory.mktemp("look")
    kind, changes = KINDS["characters"]
    made = Model(place / "run", kind, **changes)
    for name, more in (("model", []), ("bare", ["--without_softmax"])):
        arguments = ["dump", "--save_dir", str(made.folder), "--model_dir", str(place / name)]
        assert main([*arguments, *more]) == 0
    (place / "text.txt").write_text("\n".join(lines_of_text()) + "\n", encoding="utf-8")
    (place / "vectors.txt").write_text(
        "4 2\ncat 1 0\ndog 0.9 0.1\nhouse 0.1 0.9\n苹果 0.5 0.5\n", encoding="utf-8"
    )
    return place


@pytest.fixture(scope="module")
def elmo(folder):
    return ELMo.from_pretrained(folder / "bare")


@pytest.fixture(scope="module")
def predictor(folder):
    return Predictor.from_pretrained(folder / "model")


@pytest.fixture
def place(folder, elmo, predictor, tmp_path, monkeypatch):
    """A working folder with the models and the text; commands reuse models that are loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    load = Predictor.from_pretrained

    def once(source, **settings):
        return predictor if source in ("model", "run") else load(source, **settings)

    monkeypatch.setattr("bilm.use.elmo.ELMo.from_pretrained", lambda source, **settings: elmo)
    monkeypatch.setattr("bilm.use.predictor.Predictor.from_pretrained", once)


NEIGHBOURS = ["neighbours", QUERY, "--model", "bare", "--text", "text.txt"]
SENSES = ["senses", "cat", "--model", "bare", "--text", "text.txt"]


def run(capsys, *arguments):
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr()


def lines_by_heading(text):
    """The lines that are not empty, below the heading of each query and layer, or cluster."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return {lines[0]: lines[1:] for lines in blocks}


# bilm neighbours


def test_neighbours_are_those_of_the_object(place, elmo, capsys):
    printed = lines_by_heading(run(capsys, *NEIGHBOURS, "--n", "4", "--seed", "3").out)
    occurrences = Occurrences.encoded(elmo, sample_uses(lines_of_text(), ["cat"], seed=3))
    query = Occurrences.of_query(elmo, QUERY)
    n = f"cat, {len(occurrences)} occurrences"
    assert list(printed) == [QUERY, *(f"layer {k}: {n}" for k in range(elmo.n_layers))]
    for number in range(elmo.n_layers):
        lines = printed[f"layer {number}: {n}"]
        expected = occurrences.neighbours(query, 4, number)
        assert len(expected) == 4
        for line, (cosine, use) in zip(lines, expected, strict=True):
            assert float(line.split()[0]) == pytest.approx(cosine, abs=6e-3)
            left, right = occurrences.sides(use, 2)
            assert " ".join([*left, "[cat]", *right]) in line
            assert " ".join(occurrences.sentence(use)) != "the cat sees 苹果"


def test_static_neighbours_and_aligned_words_on_a_terminal(place, capsys):
    out = run(capsys, *NEIGHBOURS, "--static", "vectors.txt", "--n", "3", "--layer", "top").out
    lines = out.splitlines()
    assert lines[:2] == [QUERY, ""]
    assert lines[2].startswith("static, vectors.txt: dog 0.99, 苹果 0.71, ")
    assert lines[3] == "" and lines[4].startswith("top layer: cat, ")
    # The words are aligned, although some characters before them are two columns wide.
    from rich.cells import cell_len

    shown = [line for line in lines if "[cat]" in line][1:]
    assert len(shown) == 3
    assert len({cell_len(line[: line.index("[cat]")]) for line in shown}) == 1
    assert max(map(cell_len, lines)) <= 90


def test_other_words_and_several_queries(place, elmo, capsys):
    arguments = ["neighbours", QUERY, "a [dog]", "--model", "bare", "--text", "text.txt"]
    out = run(capsys, *arguments, "--any_word", "--layer", "1", "--n", "4").out
    for word, printed in zip(("cat", "dog"), out.split("\n\na [dog]\n"), strict=True):
        headings = lines_by_heading(printed.strip())
        (same,) = (k for k in headings if k.startswith(f"layer 1: {word}, "))
        assert [re.search(r"\[(\w+)\]", line)[1] for line in headings[same]] == [word] * 4
        others = [re.search(r"\[(.+?)\]", line)[1] for line in headings["layer 1: other words"]]
        assert len(others) == 4 and word not in map(str.lower, others)
    alone = lines_by_heading(run(capsys, *NEIGHBOURS, "--layer", "1", "--n", "4").out)
    assert alone.items() <= lines_by_heading(out).items()
    text = run(capsys, *arguments, "--any_word", "--layer", "top").out
    assert "\n\na [dog]\n" in text and "top layer: other words" in text


def test_a_file_of_occurrences_replaces_the_text(place, elmo, capsys):
    first = run(capsys, *NEIGHBOURS, "--occurrences", "cat.npz").out
    assert Path("cat.npz").exists()
    arguments = ["neighbours", QUERY, "--model", "bare", "--occurrences", "cat.npz"]
    assert run(capsys, *arguments).out == first
    assert input_error([*arguments[:1], "a [dog]", *arguments[2:]], capsys).endswith(
        "cat.npz: must have an occurrence of 'dog'."
    )
    other_case = ["neighbours", "a [Cat]", *arguments[2:], "--match_case"]
    assert "must have an occurrence of 'Cat'" in input_error(other_case, capsys)
    loaded = Occurrences.load("cat.npz")
    other = Occurrences(
        loaded.sentences, loaded.positions, loaded.vectors, None, {"model": "0" * 32}
    )
    other.save("other.npz")
    message = input_error([*arguments[:-1], "other.npz"], capsys)
    assert "other.npz and the model must belong to the same model" in message


def test_other_words_that_are_not_in_the_file(place, capsys):
    run(capsys, *NEIGHBOURS, "--occurrences", "cat.npz")
    noted = run(capsys, *NEIGHBOURS[:4], "--occurrences", "cat.npz", "--any_word").err
    assert "cat.npz has no occurrences of words other than 'cat'." in noted


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["neighbours", QUERY, "--layer", "9"], "a layer from 0 (tokens) to 2 (top), got 9."),
        (["senses", "cat", "--layer", "9"], "a layer from 0 (tokens) to 2 (top), got 9."),
        (["static", "--method", "mean", "--out", "v.txt", "--layer", "9"], "got 9."),
        (["neighbours", QUERY, "--static", "missing.txt"], "'missing.txt' does not exist."),
    ],
)
def test_mistakes_are_found_before_the_text_is_read(place, capsys, arguments, error):
    assert main([*arguments, "--model", "bare", "--text", "text.txt"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(error)


def test_a_word_that_occurs_once_or_not_at_all(place, capsys):
    once = ["neighbours", "a [harbour]", *NEIGHBOURS[2:], "--layer", "0"]
    printed = run(capsys, *once)
    assert "'harbour': 1 occurrence to search; cosines require two, because" in printed.err
    few = run(capsys, *NEIGHBOURS, "--max_occurrences", "1")
    assert "'cat': 1 occurrence to search" in few.err and "layer 0: cat, 1 occurrence\n" in few.out
    assert "a [Harbour] once" in printed.out
    missing = ["neighbours", "a [ship]", *NEIGHBOURS[2:]]
    assert input_error(missing, capsys).endswith("the text must have an occurrence of 'ship'.")


def test_a_word_without_a_static_vector(place, capsys):
    arguments = ["neighbours", "a [house] [of", *NEIGHBOURS[2:], "--static", "vectors.txt"]
    assert "0.99" not in run(capsys, *arguments).out.split("layer")[0]
    arguments[1] = "a [tree]"
    assert "'tree' is not in it" in run(capsys, *arguments).out


def test_a_query_keeps_to_the_case_of_its_word(place, capsys):
    Path("cases.txt").write_text("a Cat b\nc Cat d\ne cat f\ng cat h\ni cat j\n", encoding="utf-8")
    both = ["neighbours", "the [Cat]", "the [cat]", "--model", "bare", "--text", "cases.txt"]
    out = run(capsys, *both, "--match_case", "--layer", "0").out
    assert "layer 0: Cat, 2 occurrences" in out and "layer 0: cat, 3 occurrences" in out
    assert (out.count("[Cat]"), out.count("[cat]")) == (3, 4)  # with the queries
    assert run(capsys, *both, "--layer", "0").out.count("layer 0: cat, 5 occurrences") == 1


def test_letters_that_the_model_never_saw(place, capsys):
    Path("armenian.txt").write_text("Ես տեսնում եմ տուն cat\n" * 3, encoding="utf-8")
    arguments = ["neighbours", "a [cat]", "--model", "bare", "--text"]
    warning = "Warning: 80% of the words of the text have letters that the model never saw"
    assert warning in run(capsys, *arguments, "armenian.txt").err
    assert "Warning" not in run(capsys, *arguments, "text.txt").err
    known = ["compare", "տուն [cat]", "Ես [cat] եմ", "--model", "bare"]
    assert "never saw" in run(capsys, *known).err


# bilm senses


def test_groups_and_their_typical_lines(place, elmo, capsys):
    arguments = [*SENSES, "--clusters", "2", "--lines", "3"]
    printed = lines_by_heading(run(capsys, *arguments).out)
    occurrences = Occurrences.encoded(elmo, sample_uses(lines_of_text(), ["cat"]))
    clusters = cluster_occurrences(occurrences, n_clusters=2)
    n, sizes = len(occurrences), clusters.sizes
    assert list(printed) == [
        f"cat: {n} occurrences, top layer, 2 clusters",
        *(f"cluster {k + 1}: {sizes[k]} occurrences, {sizes[k] / n:.0%}" for k in range(2)),
    ]
    for k, lines in enumerate([*printed.values()][1:]):
        words = " ".join(word for _, word in nearby_words(occurrences, clusters, k))
        assert lines[0] == f"  nearby: {words}" if words else "nearby" not in lines[0]
        typical = typical_occurrences(occurrences, clusters, k, 3)
        for line, use in zip(lines[-3:], typical, strict=True):
            left, right = occurrences.sides(use, 2)
            assert " ".join([*left, "[cat]", *right]) in line


def test_the_number_of_groups_is_chosen(place, capsys):
    first, second, *_ = run(capsys, *SENSES).out.splitlines()
    # A model with random weights has no clear clusters.
    assert "1 cluster (" in first
    assert second.startswith("silhouette by number of clusters  2: ") and "  6: " in second


@pytest.mark.slow
def test_typical_words_are_substitutes_where_the_model_has_them(place, capsys):
    arguments = ["senses", "cat", "--text", "text.txt", "--clusters", "2"]
    printed = run(capsys, *arguments, "--model", "model")
    found = re.findall("substitutes: (.*)", printed.out)
    assert len(found) == 2
    assert all(set(words.split()) <= set(WORDS) - {"cat"} for words in found)
    near = run(capsys, *arguments, "--model", "bare")
    assert "Typical words are nearby words, because the model has no softmax." in near.err


TARGETS = {"cat+dog": ["cat", "dog"], "cat+ship": ["cat"]}  # "ship" does not occur


@pytest.mark.eager
@pytest.mark.parametrize("target", ["cat+dog", pytest.param("cat+ship", marks=pytest.mark.slow)])
def test_a_target_is_all_its_forms_in_every_command(place, capsys, target):
    text = " ".join(lines_of_text()).split()
    n = sum(map(text.count, TARGETS[target]))
    out = run(capsys, "senses", target, "house", *SENSES[2:], "--occurrences", "kept.npz").out
    assert out.startswith(f"{target}: {n} occurrences, ")
    assert f"\nhouse: {text.count('house')} occurrences, " in out
    query = QUERY.replace("cat", target)
    for source in (["--occurrences", "kept.npz"], ["--text", "text.txt"]):
        printed = run(capsys, "neighbours", query, "--model", "bare", *source, "--n", "999",
                      "--layer", "1").out  # fmt: skip
        near = lines_by_heading(printed)[f"layer 1: {target}, {n} occurrences"]
        found = {re.search(r"\[(.+?)\]", line)[1] for line in near}
        assert found == set(TARGETS[target])
    run(capsys, "project", "--occurrences", "kept.npz", "--colour", "word", "--out", "k.svg")
    assert f">{target} ({n})<" in Path("k.svg").read_text("utf-8")
    with_forms, plain = (
        run(capsys, "compare", q, "a [house]", "--model", "bare").out.splitlines()[2:]
        for q in (query, QUERY)
    )
    assert with_forms == plain
    Path("words.txt").write_text(f"{target}\n", encoding="utf-8")
    change = ["change", "text.txt", "text.txt", "--targets", "words.txt", "--model", "bare"]
    run(capsys, *change, "--out", "change.tsv")
    row = Path("change.tsv").read_text("utf-8").splitlines()[1].split("\t")
    assert row[:3] == [target, str(n), str(n)]


def test_overlapping_targets_keep_their_own_clusters(place, capsys):
    kept = ["--occurrences", "both.npz"]
    run(capsys, "senses", "cat", "cat+dog", *SENSES[2:], "--clusters", "2", "--seed", "1", *kept)
    uses = Occurrences.load("both.npz")
    names = np.array(uses.clusters)
    apart = {name: set(names[uses.names == name]) for name in ("cat", "cat+dog")}
    assert all(len(clusters) == 2 for clusters in apart.values())
    assert not apart["cat"] & apart["cat+dog"]
    # A target that the file lacks is made of the others' occurrences.
    run(capsys, "senses", "dog", "--clusters", "1", *kept)
    after = np.array(Occurrences.load("both.npz").clusters)
    is_dog = uses.words == "dog"
    np.testing.assert_array_equal(after[~is_dog], names[~is_dog])
    assert len(set(after[is_dog])) == 1


def test_a_word_that_occurs_once_is_one_group(place, capsys):
    arguments = ["senses", "harbour", *SENSES[2:]]
    out = run(capsys, *arguments).out
    assert out.startswith("harbour: 1 occurrence, top layer, 1 cluster (there")
    assert input_error([*arguments, "--clusters", "2"], capsys).endswith(
        "n_clusters must be at most 1, the number of different occurrences, got 2."
    )
    missing = ["senses", "ship", *SENSES[2:]]
    assert input_error(missing, capsys).endswith("the text must have an occurrence of 'ship'.")


def test_the_groups_of_all_uses_are_written_as_labels(place, capsys):
    run(capsys, *SENSES, "--clusters", "2", "--out", "cat.tsv")
    sample = read_labelled_uses("cat.tsv")
    assert len(set(sample.labels)) == 2 and isinstance(sample, Sample)
    error = input_error([*SENSES, "--out", "cat.tsv"], capsys)
    assert error.endswith("cat.tsv' would be overwritten: --force allows it.")
    run(capsys, *SENSES, "--out", "cat.tsv", "--force")


def test_files_are_complete_when_the_reader_of_the_output_has_gone(place, monkeypatch):
    def refuse(_):
        raise BrokenPipeError

    monkeypatch.setattr("sys.stdout.write", refuse)
    assert main([*SENSES, "--out", "cat.tsv", "--occurrences", "cat.npz"]) == 0
    assert Path("cat.tsv").read_text(encoding="utf-8").count("[cat]") > 1
    assert Occurrences.load("cat.npz").clusters is not None


def test_uses_that_could_not_be_read_again_are_left_out(place, capsys):
    Path("notes.txt").write_text("a cat [1] b\nc cat d\n", encoding="utf-8")
    noted = ["senses", "cat", "--model", "bare", "--text", "notes.txt", "--out", "cat.tsv"]
    assert "cat.tsv: 1 occurrence skipped" in run(capsys, *noted).err
    assert Path("cat.tsv").read_text(encoding="utf-8") == "all\tc [cat] d\n"
