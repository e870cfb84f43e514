"""Semantic change: measures, targets, files, the page, and the subcommand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist, jensenshannon

from bilm import ELMo
from bilm.analysis import Change, Occurrences, measure_change, sample_uses
from bilm.analysis.occurrences import forms_of
from bilm.analysis.semantic_change import (
    Groups,
    cluster_uses,
    distances,
    read_targets,
    write_change_page,
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


def groups(*vectors, documents=None):
    """Old and new vectors (n, dim), each its own document by default."""
    documents = documents or [range(len(part)) for part in vectors]
    return Groups.from_vectors(vectors, documents, np.zeros(sum(map(len, vectors)), int))


def excess(made):
    return float(made.excess(np.arange(len(made.sizes))[np.newaxis] < made.n_old)[0])


def test_distances_are_those_of_all_pairs():
    old, new = (RNG.normal(1, 1, (n, 5)).astype(np.float32) for n in (7, 4))
    prt, apd = distances(old, new)
    means = [vectors.mean(axis=0) for vectors in (old, new)]
    assert prt == pytest.approx(1 / (1 - cdist([means[0]], [means[1]], "cosine")[0, 0]), rel=1e-5)
    assert apd == pytest.approx(cdist(old, new, "cosine").mean(), rel=1e-5)
    within = [
        cdist(part, part, "cosine")[~np.eye(len(part), dtype=bool)].mean() for part in (old, new)
    ]
    assert excess(groups(old, new)) == pytest.approx(apd - np.mean(within), rel=1e-4)
    # Between documents: the first three old vectors are one.
    same = np.zeros((7, 7), bool)
    same[:3, :3] = True
    within[0] = cdist(old, old, "cosine")[~same & ~np.eye(7, dtype=bool)].mean()
    made = groups(old, new, documents=["aaabcde", "abcd"])
    assert excess(made) == pytest.approx(apd - np.mean(within), rel=1e-4)


def test_means_that_point_away_from_each_other():
    prt, apd = distances(np.array([[1.0, 0], [2, 0]]), np.array([[-1.0, 0], [-1, 0]]))
    assert prt == np.inf and apd == 2


def test_without_change_the_excess_is_zero_on_average():
    """Both corpora have the same two senses: distances within and between them are equal."""
    values = []
    for _ in range(400):
        draws = [RNG.normal(size=(n, 8)) + 3 * RNG.integers(2, size=(n, 1)) for n in (6, 30)]
        values.append((distances(*draws)[1], excess(groups(*draws))))
    apd, found = np.array(values).T
    assert abs(found.mean()) < 4 * found.std() / 20 and apd.mean() > 0.3


def occurrences(words, seed=0):
    """Occurrences of {word: vectors (n, dim)}, in one layer, each in its own sentence."""
    labels = [word for word, vectors in words.items() for _ in vectors]
    sentences = [(word, f"context{seed}x{k}") for k, word in enumerate(labels)]
    positions = np.array([(k, 0) for k in range(len(labels))])
    vectors = np.concatenate([*words.values()]).astype(np.float32)[:, np.newaxis]
    return Occurrences(sentences, positions, vectors)


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
    found = cluster_uses(old, new, "top")
    assert len(found.clusters) == 2
    shares = [[share.value for share in corpus] for corpus in found.shares]
    assert shares == [[0.25, 0.75], [0.75, 0.25]]  # the larger cluster first
    assert found.occurrences.labels == ["old"] * 16 + ["new"] * 20
    for corpus, seed in (("old", 0), ("new", 1)):
        uses = found.typical(0, corpus, 3)
        assert len(uses) == 3
        assert all(f"context{seed}" in found.occurrences.in_context(use) for use in uses)
    assert set(found.clusters.of[found.typical(0, "new", 9)]) == {0}


def test_the_interval_of_the_excess_is_as_wide_as_its_spread():
    """Of 200 samples of an unchanged word, at 60 + 60 occurrences."""
    rng = np.random.default_rng(5)
    samples = [groups(*rng.normal(size=(2, 60, 8)) + 1) for _ in range(200)]
    intervals = np.array([made.excess_interval(rng) for made in samples])
    assert np.mean((intervals[:, 0] <= 0) & (intervals[:, 1] >= 0)) > 0.92
    spread = np.ptp(np.percentile([*map(excess, samples)], [2.5, 97.5]))
    assert 0.9 < np.mean(intervals[:, 1] - intervals[:, 0]) / spread < 1.45
    old, new = rng.normal(size=(2, 30, 8)) + 1
    low, high = (made := groups(old, new + np.eye(8)[0] * 9)).excess_interval(rng)
    assert 0 < low < excess(made) < high


@pytest.mark.parametrize("n_each", [1, 10])
def test_p_values_are_uniform_without_change(n_each):
    """About one of ten unchanged words has a p below 0.1: independent occurrences, or documents
    whose occurrences are alike."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(100):
        documents = [np.repeat(np.arange(12), n_each)] * 2
        shifts = rng.normal(size=(2, 12, 6)).repeat(n_each, axis=1)
        vectors = shifts + 0.3 * rng.normal(size=shifts.shape) + 1
        made = groups(*vectors, documents=documents)
        is_old = np.tile(np.arange(24) < 12, (100, 1))
        is_old[1:] = rng.permuted(is_old[1:], axis=1)
        values = made.excess(is_old)
        found.append((values >= values[0] - 1e-9).mean())
    assert 2 <= np.sum(np.array(found) <= 0.1) <= 20


def test_permutation_tests_of_changed_and_unchanged_words():
    old = occurrences({"same": senses(15, 15), "new": senses(30, 0)})
    new = occurrences({"same": senses(15, 15), "new": senses(15, 15)})
    changed, same = measure_change(old, new)
    assert changed.word == "new" and changed.excess_p == changed.jsd_p == 1 / 1000
    assert same.excess_p > 0.05 and same.jsd_p > 0.05
    (share, other), (new_share, _) = changed.shares_old, changed.shares_new
    assert (share.value, other.value, new_share.value) == (1, 0, 0.5)
    assert other.low == pytest.approx(0, abs=1e-9) and 0.1 < other.high < 0.12  # Wilson
    # Two documents in each corpus are too few.
    documents = [[k % 2 for k in range(60)]] * 2
    assert not any(c.is_measured for c in measure_change(old, new, documents=documents))
    documents = [[k % 5 for k in range(60)]] * 2
    by_document = measure_change(old, new, documents=documents)[0]
    assert by_document.excess_p == pytest.approx(1 / 126, abs=0.006)  # of 252 ways, two as far


def test_many_occurrences_with_equal_vectors():
    """As in layer 0, which reads only the letters."""
    vectors = np.tile(RNG.normal(size=(1, 1, 64)).astype(np.float32), (1500, 1, 1))
    positions = np.array([(k, 0) for k in range(1500)])
    uses = Occurrences([("bank", str(k)) for k in range(1500)], positions, vectors)
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
    """(target, sentence with the token in brackets) of each occurrence."""
    found = []
    for (number, position), label in zip(sample.positions, sample.targets, strict=True):
        tokens = list(sample.sentences[number])
        tokens[position] = f"[{tokens[position]}]"
        found.append((label, " ".join(tokens)))
    return found


LINES = ["the Bank is here", "", "no word", "banks and a bank", "play with the c++ bank"]


def test_occurrences_have_their_target():
    words = ["bank+banks", "c++", "gone", "bank"]
    sample = sample_uses(LINES, words, may_be_missing=True)
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
    with pytest.raises(InputError, match="must have an occurrence of 'gone'"):
        sample_uses(LINES, words)
    with pytest.raises(InputError, match="words must be a list of words, got 'bank'"):
        sample_uses(LINES, "bank")  # not its letters


# The page


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
    assert grew.count("<li ") == 2 == grew.count("context1x")
    assert shrank.count("<li ") == 2 == shrank.count("context0x")
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
    return ["--model", str(model.folder)]


def command(*more, old="old.txt", new="new.txt", out="change.tsv"):
    return ["change", old, new, "--targets", "targets.txt", "--out", out, *more]


def table(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


@pytest.mark.eager
def test_the_subcommand(place, elmo, capsys):
    more = ["--layer", "1", "--page", "change.html"]
    assert main(command(*place, *more)) == 0
    printed = capsys.readouterr()
    head, *rows = table("change.tsv")
    assert head == [
        "word", "occurrences_old", "occurrences_new", "per_million_old", "per_million_new",
        "excess", "excess_low", "excess_high", "excess_p", "JSD", "JSD_p", "PRT", "APD",
        "geometric_mean", "clusters_old", "clusters_new",
    ]  # fmt: skip
    lines = [Path(f"{name}.txt").read_text("utf-8").split("\n") for name in ("old", "new")]
    samples = [sample_uses(part, read_targets("targets.txt")) for part in lines]
    expected = measure_change(*(Occurrences.encoded(elmo, s) for s in samples), layer=1)
    assert [row[:3] for row in rows] == [[c.word, str(c.n_old), str(c.n_new)] for c in expected]
    assert rows[-1][:3] == ["rare", "1", "1"] and rows[-1][5:14] == ["nan"] * 9
    assert rows[-1][14:] == ["", ""]
    for row, change in zip(rows[:-1], expected, strict=False):
        numbers = [1e6 * change.n_old / 226, 1e6 * change.n_new / 226, *change[5:13]]
        assert change.excess_low <= change.excess <= change.excess_high
        values = list(map(float, row[3:14]))
        assert values.pop() == pytest.approx(change.geometric_mean, rel=1e-4)
        assert values == pytest.approx(numbers, rel=1e-3, abs=2e-3)
        assert row[14] == ", ".join(map(str, change.shares_old))
    assert "Not measured, with fewer than 3 occurrences in a corpus: rare" in printed.err
    said = printed.out.splitlines()
    assert said == ["change.tsv", "change.html"]
    content = Path("change.html").read_text("utf-8")
    assert content.count("<section>") == 3 and "old.txt and new.txt" in content
    assert "--force" in input_error(command(*place), capsys)


@pytest.mark.eager
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"new": "none.txt"}, "no word occurs 3 times in old"),
        ({"more": ["--layer", "7"]}, "--layer"),
    ],
)
def test_wrong_input(place, capsys, monkeypatch, change, message):
    Path("none.txt").write_text("a tree\nthe bank\nthe shore\n", encoding="utf-8")
    if "--layer" not in message:  # found before the work

        def load(self, **_):
            raise AssertionError("the model is loaded")

        monkeypatch.setattr("bilm.use.pretrained.Pretrained.load", load)
    more = change.pop("more", [])
    assert message in input_error(command(*place, *more, **change), capsys)


@pytest.mark.eager
def test_files_are_exchanged_as_a_whole(place, capsys):
    for name in ("old", "new"):
        lines = Path(f"{name}.txt").read_text("utf-8").splitlines()
        for k in range(3):
            Path(f"{name}-{k}.txt").write_text("\n".join(lines[k::3]) + "\n", encoding="utf-8")
    parts = {"old": "old-?.txt", "new": "new-?.txt"}
    assert main(command(*place, "--by_file", **parts)) == 0
    head, *rows = table("change.tsv")
    p_values = [float(row[head.index("excess_p")]) for row in rows if row[0] != "rare"]
    # Of the 20 ways to exchange three files, the sample's is one, in about 50 of 999 draws.
    assert len(p_values) == 3 and min(p_values) > 0.02
    with pytest.raises(SystemExit, match="2"):
        main(command(*place, "--by_file", "--force"))
    assert "--by_file requires 3 files in OLD and in NEW" in capsys.readouterr().err
