"""Probes on synthetic vectors with known contents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bilm.analysis import Occurrences, ProbeRow, Score, StaticVectors, probe
from bilm.analysis.pictures import check_picture, save_picture
from bilm.analysis.probing import SoftmaxProbe, probe_chart
from bilm.core.errors import InputError

N_WORDS, DIM = 12, 12
REPRESENTATIONS = ["majority", "word's majority", "static", "layer 0", "layer 1", "layer 2", "mix"]


def occurrences(n_sentences, seed, labels=("A", "B", "B")):
    """Sentences of five words; layer 0 encodes the word, layer 1 the label, layer 2 nothing.

    Labels are independent of the words.
    """
    rng = np.random.default_rng(seed)
    n = 5 * n_sentences
    words, numbers = rng.integers(N_WORDS, size=n), rng.integers(len(labels), size=n)
    chosen = np.array(labels)[numbers]
    vectors = rng.normal(size=(n, 3, DIM))
    vectors[:, 0] = np.eye(N_WORDS)[words]
    vectors[:, 1, 0] = np.where(chosen == labels[0], 5, -5) + rng.normal(size=n)
    sentences = [tuple(f"w{word}" for word in row) for row in words.reshape(-1, 5)]
    positions = np.array([(k // 5, k % 5) for k in range(n)])
    return Occurrences(sentences, positions, vectors.astype(np.float32), chosen.tolist())


def text(*pairs):
    """One sentence per list of (word, label) pairs, with vectors of zeros."""
    sentences = [tuple(word for word, _ in sentence) for sentence in pairs]
    positions = [(k, place) for k, sentence in enumerate(pairs) for place in range(len(sentence))]
    labels = [label for sentence in pairs for _, label in sentence]
    vectors = np.zeros((len(labels), 1, 2), np.float32)
    return Occurrences(sentences, np.array(positions), vectors, labels)


# Vectors of all words except w0, with another dimension than the model's.
STATIC = StaticVectors([f"w{number}" for number in range(1, 12)], np.eye(11, dtype=np.float32))


@pytest.fixture(scope="module")
def texts():
    return occurrences(80, 0), occurrences(40, 1)


@pytest.fixture(scope="module")
def rows(texts):
    return probe(*texts, sizes=(20, None), seeds=(0, 1), static=STATIC)


def test_the_layer_that_knows_the_label_is_found(texts, rows):
    assert [(row.size, row.representation) for row in rows] == [
        (size, name) for size in (20, None) for name in REPRESENTATIONS
    ]
    by_name = {row.representation: row for row in rows if row.size is None}
    share = texts[1].labels.count("B") / len(texts[1])
    majority = by_name["majority"]
    assert majority.accuracy.value == pytest.approx(share)
    # The mean of F1 for B and 0 for A.
    assert majority.macro_f1 == pytest.approx(share / (1 + share))
    assert by_name["layer 1"].accuracy.value > 0.99 and by_name["layer 1"].macro_f1 > 0.99
    assert by_name["layer 2"].accuracy.value < 0.75
    mix = by_name["mix"]
    assert mix.accuracy.value > 0.97 and mix.gamma > 0
    assert sum(mix.weights) == pytest.approx(1) and mix.weights[1] == max(mix.weights) > 0.5
    assert by_name["layer 1"].weights is None
    # With all sentences there is nothing to draw.
    assert [len(row.by_seed) for row in rows if row.representation == "mix"] == [2, 1]


def test_intervals_are_of_sentences(rows):
    """The interval of a proportion over 40 independent sentences of 5 words."""
    accuracy = next(row.accuracy for row in rows if row.size is None)
    value, low, high = accuracy
    assert low < value < high
    deviation = (value * (1 - value) / 200) ** 0.5
    # The bootstrap has 1,000 resamples, and sentences differ in their number of B's.
    assert (high - low) / (2 * 1.96 * deviation) == pytest.approx(1, abs=0.25)


def test_the_most_frequent_label_of_each_word():
    train = text([("a", "X"), ("a", "X"), ("a", "Y"), ("b", "Y"), ("A", "Z"), ("c", "X")])
    test = text([("a", "X"), ("a", "Y"), ("b", "Y"), ("A", "Z"), ("d", "X"), ("d", "new")])
    found = {row.representation: row for row in probe(train, test)}
    assert found["majority"].accuracy.value == pytest.approx(2 / 6)
    # Correct: a X, b Y, A Z, d X (X is the most frequent label overall).
    assert found["word's majority"].accuracy.value == pytest.approx(4 / 6)
    # Correct, gold, predicted: X 2, 2, 4; Y 1, 2, 1; Z 1, 1, 1; "new" is never predicted.
    assert found["word's majority"].macro_f1 == pytest.approx((4 / 6 + 2 / 3 + 1 + 0) / 4)


def test_words_that_the_training_sentences_lack_stand_apart():
    train = text([("a", "X")], [("B", "Y")])
    test = text([("a", "X"), ("b", "Y"), ("d", "X"), ("e", "Y")])
    both, one = (probe(train, test, sizes=(size,), seeds=(0,))[1] for size in (None, 1))
    # Of d and e, which both are missing from training, one has the most frequent label; B is b.
    assert both.unseen.value == 0.5
    assert one.unseen.value == pytest.approx(1 / 3)
    assert probe(train, text([("a", "X")]))[0].unseen is None


@pytest.mark.parametrize("n_layers", [1, 2])
def test_the_probe_is_a_logistic_regression(n_layers):
    """One layer gives scikit-learn's results, and so does a mix of the same layer twice."""
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(300, 4)).astype(np.float32) * (1, 10, 0.1, 1) + 5
    labels = (vectors @ rng.normal(size=(4, 3)) + 2 * rng.normal(size=(300, 3))).argmax(1)
    rows = np.arange(0, 300, 2)
    scaled = (vectors - vectors[rows].mean(0)) / vectors[rows].std(0)
    theirs = linear.LogisticRegression(tol=1e-6).fit(scaled[rows], labels[rows]).predict(scaled)
    ours = np.stack([vectors.astype(np.float32)] * n_layers, axis=1)
    fitted = SoftmaxProbe(ours, rows, labels[rows], 3, seed=0)
    assert (fitted.predict(ours) == theirs).mean() > 0.95
    assert fitted.weights == pytest.approx([1 / n_layers] * n_layers)
    assert n_layers > 1 or fitted.gamma == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: (replace(a, labels=None), (None,)), "must have labels"),
        (lambda a: (a, (81,)), "sizes must be at most 80"),
    ],
)
def test_wrong_arguments(texts, change, message):
    train, sizes = change(texts[0])
    with pytest.raises(InputError, match=message):
        probe(train, texts[1], sizes=sizes)


def test_pictures(tmp_path, rows):
    pytest.importorskip("matplotlib")
    save_picture(probe_chart(rows, 80), tmp_path / "two.svg")
    drawn = (tmp_path / "two.svg").read_text(encoding="utf-8")
    for label in ("training sentences", "accuracy, %", "weight in the mix", "layer 2", "static"):
        assert label in drawn
    # Both sizes are on the axis.
    assert ">20</text>" in drawn and ">80</text>" in drawn
    score = Score(0.5, 0.4, 0.6)
    row = ProbeRow("mix", None, score, None, 0.5, [0.5], [0.4, 0.6], 1.0)
    save_picture(probe_chart([row], 80), tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match=r"must end in .png, .svg, got result\.pdf"):
        check_picture("result.pdf")
