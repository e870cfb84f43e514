"""Semantic change: measures, targets, files, the page, and the subcommand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist, jensenshannon

from bilm import ELMo
from bilm.analysis import Change, Occurrences, measure_change, sample_targets
from bilm.analysis.change_page import write_change_page
from bilm.analysis.occurrences import forms_of
from bilm.analysis.semantic_change import (
    agreement,
    cluster_uses,
    distances,
    excess_interval,
    read_gold,
    read_targets,
    save_uses,
)
from bilm.cli import main
from bilm.core.errors import InputError
from tests.command_line import input_error
from tests.small_models import write_small_model

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("model"), "as_published")


@pytest.fixture(scope="module")
def elmo(model):
    return ELMo.from_pretrained(model.files)


# Measures


def test_distances_are_those_of_all_pairs():
    old, new = (RNG.normal(1, 1, (n, 5)).astype(np.float32) for n in (7, 4))
    prt, apd, excess = distances(old, new)
    means = [vectors.mean(axis=0) for vectors in (old, new)]
    assert prt == pytest.approx(1 / (1 - cdist([means[0]], [means[1]], "cosine")[0, 0]), rel=1e-5)
    assert apd == pytest.approx(cdist(old, new, "cosine").mean(), rel=1e-5)
    within = [
        cdist(part, part, "cosine")[~np.eye(len(part), dtype=bool)].mean() for part in (old, new)
    ]
    assert excess == pytest.approx(apd - np.mean(within), rel=1e-4)


def test_means_that_point_away_from_each_other():
    prt, apd, _ = distances(np.array([[1.0, 0], [2, 0]]), np.array([[-1.0, 0], [-1, 0]]))
    assert prt == np.inf and apd == 2


def test_without_change_the_excess_is_zero_on_average():
    """Both corpora have the same two senses: distances within and between them are equal."""
    found = []
    for _ in range(400):
        draws = [RNG.normal(size=(n, 8)) + 3 * RNG.integers(2, size=(n, 1)) for n in (6, 30)]
        found.append(distances(*draws)[1:])
    apd, excess = np.array(found).T
    assert abs(excess.mean()) < 4 * excess.std() / 20 and apd.mean() > 0.3


def occurrences(words, seed=0):
    """Occurrences of {word: vectors (n, dim)}, in one layer, each in its own sentence."""
    labels = [word for word, vectors in words.items() for _ in vectors]
    sentences = [(word, f"context{seed}x{k}") for k, word in enumerate(labels)]
    positions = np.array([(k, 0) for k in range(len(labels))])
    vectors = np.concatenate([*words.values()]).astype(np.float32)[:, np.newaxis]
    return Occurrences(sentences, positions, vectors, labels)


def senses(n_first, n_second):
    """Vectors of two distant senses, plus a larger component that all have in common."""
    centres = np.zeros((n_first + n_second, 6))
    centres[:n_first, 0], centres[n_first:, 1], centres[:, 2] = 4, 4, 8
    return centres + RNG.normal(0, 0.5, centres.shape)


def test_words_are_ranked_by_excess():
    old = occurrences({"same": senses(30, 30), "new": senses(40, 0), "rare": senses(2, 0)})
    new = occurrences({"same": senses(30, 30), "new": senses(10, 30), "rare": senses(9, 9)})
    found = measure_change(old, new, ["rare", "gone", "same", "new"])
    assert [change.word for change in found] == ["new", "same", "gone", "rare"]
    assert [(c.n_old, c.n_new) for c in found] == [(40, 40), (60, 60), (0, 0), (2, 18)]
    assert found[0].excess > 0.02 > abs(found[1].excess)
    assert np.isnan(found[3].excess) and np.isnan(found[3].geometric_mean)
    # Two clusters, with 40 and 0 occurrences in the old corpus, 10 and 30 in the new one.
    assert found[0].jsd == pytest.approx(jensenshannon([1, 0], [0.25, 0.75]) ** 2)
    assert found[1].jsd == pytest.approx(0)
    assert found[0].geometric_mean == pytest.approx((found[0].prt * found[0].apd) ** 0.5)
    assert [c.word for c in measure_change(old, new, min_occurrences=2)] == ["new", "rare", "same"]
    seen = []
    measure_change(old, new, ["same"], progress=seen.append)
    assert seen == [("comparing", done, 1, "words", "") for done in (0, 1)]


def test_clusters_of_both_corpora():
    old, new = occurrences({"w": senses(12, 4)}), occurrences({"w": senses(5, 15)}, seed=1)
    found = cluster_uses(old, new, "top", 0)
    assert len(found.clusters) == 2
    assert found.shares.tolist() == [[0.25, 0.75], [0.75, 0.25]]  # the larger cluster first
    assert found.occurrences.labels == ["old"] * 16 + ["new"] * 20
    for corpus, seed in (("old", 0), ("new", 1)):
        uses = found.typical(0, corpus, 3)
        assert len(uses) == 3
        assert all(f"context{seed}" in found.occurrences.in_context(use) for use in uses)
    assert set(found.clusters.of[found.typical(0, "new", 9)]) == {0}


def test_the_interval_of_the_excess_covers_other_samples():
    """Of 100 samples of an unchanged word, about 95 have 0 in their interval."""
    rng = np.random.default_rng(5)
    draws = [rng.normal(size=(2, 30, 8)) + 1 for _ in range(100)]
    found = [excess_interval(*draw, seed=k) for k, draw in enumerate(draws)]
    assert 85 <= sum(low <= 0 <= high for low, high in found) <= 100
    # Few occurrences: some resamples are one occurrence, n times.
    found = [excess_interval(old[:3], new[:3]) for old, new in draws]
    assert all(-1 < low < high < 2 for low, high in found)
    assert sum(low <= 0 <= high for low, high in found) >= 85
    low, high = excess_interval(draws[0][0], draws[0][1] + np.eye(8)[0] * 9)
    assert 0 < low < distances(draws[0][0], draws[0][1] + np.eye(8)[0] * 9)[2] < high


def test_many_occurrences_with_equal_vectors():
    """As in layer 0, which reads only the letters."""
    vectors = np.tile(RNG.normal(size=(1, 1, 64)).astype(np.float32), (1500, 1, 1))
    positions = np.array([(k, 0) for k in range(1500)])
    uses = Occurrences([("bank", str(k)) for k in range(1500)], positions, vectors, ["bank"] * 1500)
    (change,) = measure_change(uses, uses)
    assert change.excess == pytest.approx(0, abs=1e-6) and change.jsd == 0


# Targets


def test_targets_of_a_file(tmp_path):
    path = tmp_path / "targets.txt"
    path.write_text("attack_nn\t0.3\n\nbank+banks\nattack_nn\n c++ \n", encoding="utf-8")
    assert read_targets(path) == ["attack_nn", "bank+banks", "c++"]
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(InputError, match="must have one target word per line,"):
        read_targets(path)


def test_forms():
    assert [forms_of(word) for word in ("bank+banks", "c++", "+", "bank")] == [
        ["bank", "banks"], ["c++"], ["+"], ["bank"],
    ]  # fmt: skip


def drawn(sample):
    """(label, sentence with the token in brackets) of each occurrence."""
    found = []
    for (number, position), label in zip(sample.positions, sample.labels, strict=True):
        tokens = list(sample.sentences[number])
        tokens[position] = f"[{tokens[position]}]"
        found.append((label, " ".join(tokens)))
    return found


LINES = ["the Bank is here", "", "no word", "banks and a bank", "play with the c++ bank"]


def test_occurrences_are_labelled_with_their_target():
    sample = sample_targets(LINES, ["bank+banks", "c++", "gone", "bank"])
    assert drawn(sample) == [
        ("bank", "the [Bank] is here"),
        ("bank+banks", "the [Bank] is here"),
        ("bank+banks", "[banks] and a bank"),
        ("bank", "banks and a [bank]"),
        ("bank+banks", "banks and a [bank]"),
        ("c++", "play with the [c++] bank"),
        ("bank", "play with the c++ [bank]"),
        ("bank+banks", "play with the c++ [bank]"),
    ]
    assert sample.counts == {"bank+banks": 4, "c++": 1, "gone": 0, "bank": 3}
    assert len(sample_targets(LINES, ["bank"], match_case=True)) == 2
    with pytest.raises(InputError, match="targets must be an iterable of words, got 'bank'"):
        sample_targets(LINES, "bank")  # not its letters


def test_targets_with_a_part_of_speech():
    """In a tagged corpus only tagged tokens are occurrences; the sentences have no tags."""
    tagged = ["they attack the attack_nn", "a plane_nn attack_nn", "an attack_vb x_y"]
    sample = sample_targets(tagged, ["attack_nn", "tree_nn"], lemma_pos=True)
    assert drawn(sample) == [
        ("attack_nn", "they attack the [attack]"),
        ("attack_nn", "a plane [attack]"),
    ]
    assert sample.counts == {"attack_nn": 2, "tree_nn": 0}
    plain = sample_targets(["they attack", "the Attack_of it"], ["attack_nn"], lemma_pos=True)
    assert drawn(plain) == [("attack_nn", "they [attack]")]
    upper = sample_targets(["They_PRP Attack_NN", "._. attack_VB"], ["attack_Nn"], lemma_pos=True)
    assert drawn(upper) == [("attack_Nn", "They [Attack]")]
    case = sample_targets(["a_DT attack_NN"], ["attack_nn"], lemma_pos=True, match_case=True)
    assert drawn(case) == [("attack_nn", "a [attack]")]
    exact = sample_targets(tagged, ["attack_nn"])
    assert drawn(exact)[0] == ("attack_nn", "they attack the [attack_nn]")


# Files


def test_uses_are_saved_as_semeval2020_has_them(tmp_path):
    vectors = {"file": senses(2, 1), "attack_nn": senses(1, 0), "gone": senses(0, 0)}
    save_uses(tmp_path / "old.npz", occurrences(vectors), vectors)
    with np.load(tmp_path / "old.npz") as loaded:
        assert set(loaded) == set(vectors)
        for word, expected in vectors.items():
            np.testing.assert_array_equal(loaded[word], expected.astype(np.float32))


# Gold scores


def changes(**excess):
    return [
        Change(word, 9, 9, prt=1 / value, apd=value, jsd=0.5, excess=value)
        for word, value in excess.items()
    ]


@pytest.mark.slow
def test_agreement_with_graded_gold():
    found = changes(a=0.1, b=0.2, c=0.3, d=0.4)
    found += [Change("rare", 1, 1)]
    gold = {"a": 0.0, "b": 0.5, "c": 0.4, "d": 0.9, "rare": 1, "other": 1}
    by_measure = {line.measure: line for line in agreement(found, gold)}
    assert by_measure["excess"].statistic == "Spearman" and by_measure["excess"].n == 4
    assert by_measure["excess"].value == pytest.approx(0.8)
    assert by_measure["PRT"].value == pytest.approx(-0.8)
    assert np.isnan(by_measure["JSD"].value)
    assert -1 <= by_measure["excess"].low < 0.8 < by_measure["excess"].high <= 1
    assert agreement(found, gold, seed=1)[0].low == agreement(found, gold, seed=1)[0].low


def test_agreement_with_binary_gold():
    """Words above the mean of the measure, 0.3, are predicted to have changed."""
    found = changes(**{"a+as": 0.1, "b": 0.25, "c": 0.35, "d": 0.5})
    gold = {"a": 0, "b": 1, "c": 0, "d": 1}
    lines = [line for line in agreement(found, gold) if line.measure == "excess"]
    assert [line.statistic for line in lines] == ["accuracy", "AUC"]
    assert [line.value for line in lines] == [0.5, 0.75]
    assert 0 <= lines[0].low <= 0.5 <= lines[0].high <= 1


def test_gold_files(tmp_path):
    path = tmp_path / "gold.txt"
    path.write_text("attack_nn\t0.25\n\nbank\t1\n", encoding="utf-8")
    assert read_gold(path) == {"attack_nn": 0.25, "bank": 1}
    for line in ("bank 1", "bank\tmuch", "bank\tnan"):
        path.write_text(f"a\t1\n{line}\n", encoding="utf-8")
        with pytest.raises(InputError, match=r"line 2: must be a word, a tab and a finite number"):
            read_gold(path)
    with pytest.raises(InputError, match="at least 3 of the measured words must have"):
        agreement(changes(a=0.1, b=0.2), {"a": 1, "b": 0})
    with pytest.raises(InputError, match="must not all be equal"):
        agreement(changes(a=0.1, b=0.2, c=0.3), dict.fromkeys("abc", 1))


# The page


def test_gold_with_two_scores_of_a_word(tmp_path):
    (tmp_path / "gold.txt").write_text("bank\t0.5\ncell\t1\nbank\t0.9\n", "utf-8")
    with pytest.raises(InputError, match=r"gold.txt, line 3: 'bank' must have one score"):
        read_gold(tmp_path / "gold.txt")


def test_the_page_of_changed_words(tmp_path):
    words = {"w<x": senses(30, 4), "same": senses(20, 20), "rare": senses(1, 0)}
    old = occurrences(words)
    new = occurrences({"w<x": senses(6, 30), "same": senses(20, 20)}, seed=1)
    changes = measure_change(old, new)
    path = tmp_path / "change.html"
    write_change_page(path, old, new, changes, n_lines=2, corpora=("1900 & before", "2000"))
    content = path.read_text(encoding="utf-8")
    assert "<h1>Words that changed: 1900 &amp; before and 2000</h1>" in content
    first, second = content.split("<section>")[1:]
    assert "<h2>1. w&lt;x <small>excess 0." in first and "34 and 36 occurrences" in first
    assert second.startswith("<h2>2. same") and "rare" not in content
    # The cluster that grew comes first, with sentences from the new corpus.
    grew, shrank = first.split("<h3>")[1:]
    assert "grew: 12% → 83%; sentences from 2000" in grew
    assert "shrank: 88% → 17%; sentences from 1900 &amp; before" in shrank
    assert grew.count("<li>") == 2 == grew.count("context1x")
    assert shrank.count("<li>") == 2 == shrank.count("context0x")
    assert "1900 &amp; before: " in first.split('role="img"')[1]
    # Widths in the bars of the new and of the old corpus.
    assert "width:83.33%" in first and "width:88.24%" in first
    write_change_page(path, old, new, changes, n_words=1)
    assert path.read_text(encoding="utf-8").count("<section>") == 1
    write_change_page(path, old, new, [Change("rare", 1, 0)])
    assert "No word occurs often enough in both corpora" in path.read_text(encoding="utf-8")


# The subcommand


@pytest.fixture
def place(model, tmp_path, monkeypatch):
    """A working folder with two corpora and targets; returns the model's flags."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(2)
    words = [f"word{k}" for k in range(20)]
    for name in ("old", "new"):
        lines = [
            " ".join([*draw.choices(words, k=3), target, *draw.choices(words, k=3)])
            for target in ("bank", "banks", "shore", "tree")
            for _ in range(8)
        ]
        (tmp_path / f"{name}.txt").write_text("\n".join([*lines, "once rare"]), encoding="utf-8")
    (tmp_path / "targets.txt").write_text("bank+banks\nshore\ntree\nrare\n", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    (tmp_path / "gold.txt").write_text("bank\t0.9\nshore\t0.2\ntree\t0.1\n", encoding="utf-8")
    options, weights = model.files
    return ["--options_file", options, "--weight_file", weights]


def command(*more, old="old.txt", new="new.txt", out="change.tsv"):
    return ["change", old, new, "--targets", "targets.txt", "--out", out, *more]


def table(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


@pytest.mark.eager
def test_the_subcommand(place, elmo, capsys):
    more = ["--gold", "gold.txt", "--save_uses", "uses", "--layer", "1"]
    more += ["--page", "change.html", "--page_words", "2"]
    assert main(command(*place, *more)) == 0
    printed = capsys.readouterr()
    head, *rows = table("change.tsv")
    assert head == [
        "word", "occurrences_old", "occurrences_new", "excess", "PRT", "APD", "geometric_mean",
        "JSD", "excess_low", "excess_high",
    ]  # fmt: skip
    lines = [Path(f"{name}.txt").read_text("utf-8").split("\n") for name in ("old", "new")]
    samples = [sample_targets(part, read_targets("targets.txt")) for part in lines]
    expected = measure_change(*(Occurrences.encoded(elmo, s) for s in samples), layer=1)
    assert [row[:3] for row in rows] == [[c.word, str(c.n_old), str(c.n_new)] for c in expected]
    assert rows[-1] == ["rare", "1", "1", *["nan"] * 7]
    for row, change in zip(rows[:-1], expected, strict=False):
        numbers = [change.excess, change.prt, change.apd, change.geometric_mean, change.jsd,
                   change.excess_low, change.excess_high]  # fmt: skip
        assert change.excess_low <= change.excess <= change.excess_high
        assert list(map(float, row[3:])) == pytest.approx(numbers, rel=1e-4, abs=1e-6)
    assert "Not measured, with fewer than 3 occurrences in a corpus: rare" in printed.err
    said = printed.out.splitlines()
    assert said[:5] == ["change.tsv", "change.html", "uses/old.npz", "uses/new.npz", ""]
    assert said[5].startswith("Spearman  excess") and said[5].endswith("3 words")
    content = Path("change.html").read_text("utf-8")
    assert content.count("<section>") == 2 and "old.txt and new.txt" in content
    with np.load("uses/new.npz") as uses:
        assert {word: uses[word].shape for word in uses} == {
            "bank+banks": (16, elmo.dim), "shore": (8, elmo.dim), "tree": (8, elmo.dim),
            "rare": (1, elmo.dim),
        }  # fmt: skip
    assert "--force" in input_error(command(*place), capsys)


@pytest.mark.eager
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"new": "targets.txt", "more": ["--match_case", "--lemma_pos"]},
            "no word occurs 3 times in old",
        ),
        ({"more": ["--layer", "7"]}, "--layer"),
        ({"more": ["--gold", "targets.txt"]}, "line 1: must be a word, a tab and a finite number"),
        ({"more": ["--gold", "rare.txt"]}, "at least 3 of the measured words"),
    ],
)
def test_wrong_input(place, capsys, monkeypatch, change, message):
    Path("two.txt").write_text("bank\t0.9\nshore\t0.2\n", encoding="utf-8")
    Path("rare.txt").write_text("bank\t0.9\nshore\t0.2\nrare\t0.5\n", encoding="utf-8")
    Path("equal.txt").write_text("bank\t1\nshore\t1\ntree\t1\n", encoding="utf-8")
    if "--layer" not in message:  # found before the work

        def load(self):
            raise AssertionError("the model is loaded")

        monkeypatch.setattr("bilm.use.pretrained.Pretrained.read", load)
    more = change.pop("more", [])
    assert message in input_error(command(*place, *more, **change), capsys)
