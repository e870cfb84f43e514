"""Probes on synthetic vectors with known contents."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from bilm.analysis import Occurrences, ProbeCell, ProbeSettings, StaticVectors, probe
from bilm.analysis.probe_charts import check_picture, probe_chart, save_picture, sense_chart
from bilm.analysis.probing import (
    keys,
    mix_weights,
    read_cells,
    representations,
    summarised,
    write_cells,
)
from bilm.analysis.softmax_probe import SoftmaxProbe, n_steps
from bilm.analysis.word_sense import SenseRow
from bilm.core.errors import InputError

N_WORDS, DIM, STEPS = 12, 12, 120


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


# Vectors of all words except w0, with another dimension than the model's.
STATIC = StaticVectors([f"w{number}" for number in range(1, 12)], np.eye(11, dtype=np.float32))


@pytest.fixture(scope="module")
def texts():
    return occurrences(80, 0), occurrences(40, 1)


@pytest.fixture(scope="module")
def cells(texts):
    settings = ProbeSettings((20, None), (0,), min_steps=STEPS)
    return list(probe(*texts, settings, static=STATIC))


def test_each_cell_once_in_order(cells):
    names = representations(3, True)
    assert names == [
        "majority", "word's majority", "static", "layer 0", "layer 1", "layer 2", "mix",
    ]  # fmt: skip
    assert [cell.key for cell in cells] == keys(names, ProbeSettings((20, None), (0,)))
    wanted = [(name, size, seed) for size in (20, None) for seed in (0, 1) for name in names]
    assert keys(names, ProbeSettings((20, None), (0, 1))) == wanted


def test_the_layer_that_knows_the_label_is_found(texts, cells):
    by_key = {cell.key: cell for cell in cells}
    share = texts[1].labels.count("B") / len(texts[1])
    assert by_key["majority", None, 0].accuracy == pytest.approx(share)
    # The mean of F1 for B and 0 for A.
    assert by_key["majority", None, 0].macro_f1 == pytest.approx(share / (1 + share))
    assert by_key["layer 1", None, 0].accuracy > 0.99
    assert by_key["layer 1", None, 0].macro_f1 > 0.99
    assert by_key["layer 2", None, 0].accuracy < 0.75
    mix = by_key["mix", None, 0]
    assert mix.accuracy > 0.97 and mix.gamma > 0
    assert sum(mix.weights) == pytest.approx(1) and mix.weights[1] == max(mix.weights) > 0.5
    assert by_key["layer 1", None, 0].weights is None


def test_the_control_task_is_done_by_what_knows_the_word(cells):
    by_key = {cell.key: cell for cell in cells}
    word, label = by_key["layer 0", None, 0], by_key["layer 1", None, 0]
    assert word.control_accuracy == 1 and word.selectivity == word.accuracy - 1 < -0.2
    assert by_key["static", None, 0].control_accuracy > 0.9
    assert label.control_accuracy < 0.9 and label.selectivity > 0.1
    assert by_key["majority", None, 0].selectivity is None


def test_the_most_frequent_label_of_each_word():
    def text(*pairs):
        sentences = [tuple(word for word, _ in pairs)]
        positions = np.array([(0, k) for k in range(len(pairs))])
        vectors = np.zeros((len(pairs), 1, 2), np.float32)
        return Occurrences(sentences, positions, vectors, [label for _, label in pairs])

    train = text(("a", "X"), ("a", "X"), ("a", "Y"), ("b", "Y"), ("A", "Z"), ("c", "X"))
    test = text(("a", "X"), ("a", "Y"), ("b", "Y"), ("A", "Z"), ("d", "X"), ("d", "new"))
    found = {cell.representation: cell for cell in probe(
        train, test, ProbeSettings(seeds=(0,), min_steps=2, control=False)
    )}  # fmt: skip
    assert found["majority"].accuracy == pytest.approx(2 / 6)
    # Correct: a X, b Y, A Z, d X (X is the most frequent label overall).
    assert found["word's majority"].accuracy == pytest.approx(4 / 6)
    # Correct, gold, predicted: X 2, 2, 4; Y 1, 2, 1; Z 1, 1, 1; "new" is never predicted.
    assert found["word's majority"].macro_f1 == pytest.approx((4 / 6 + 2 / 3 + 1 + 0) / 4)
    assert found["layer 0"].control_accuracy is None


def test_what_is_done_is_not_done_again(texts, cells):
    settings = ProbeSettings((20, None), (0,), min_steps=STEPS)
    missing = ("layer 1", 20, 0)
    done = (cell.key for cell in cells if cell.key != missing)
    (again,) = probe(*texts, settings, static=STATIC, done=done)
    assert again == next(cell for cell in cells if cell.key == missing)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [None, 2])
def test_the_probe_is_a_logistic_regression(layers):
    """One layer gives scikit-learn's results, and so does a mix of the same layer twice."""
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(300, 4)).astype(np.float32) * (1, 10, 0.1, 1) + 5
    labels = (vectors @ rng.normal(size=(4, 3)) + 2 * rng.normal(size=(300, 3))).argmax(1)
    rows = np.arange(0, 300, 2)
    scaled = (vectors - vectors[rows].mean(0)) / vectors[rows].std(0)
    theirs = linear.LogisticRegression(tol=1e-6).fit(scaled[rows], labels[rows]).predict(scaled)
    ours = vectors.astype(np.float32)
    if layers is not None:
        ours = np.stack([ours] * layers, axis=1)
    fitted = SoftmaxProbe(ours.shape[1:], 3)
    fitted.fit(ours, rows, labels[rows], seed=0)
    assert (fitted.predict(ours) == theirs).mean() > 0.95
    mix = fitted.learned_mix()
    assert mix is None if layers is None else mix[0] == pytest.approx([0.5, 0.5])


def test_steps():
    assert n_steps(100) == 1000 and n_steps(204_800) == 8000 and n_steps(256, 5) == 10


def test_means_and_deviations():
    cells = [
        ProbeCell("mix", None, 0, 0.5, 0.4, 0.3, [0.2, 0.8], 2.0),
        ProbeCell("mix", None, 1, 0.7, 0.4, 0.3, [0.4, 0.6], 3.0),
        ProbeCell("layer 0", 10, 0, 0.5, 0.5),
    ]
    accuracy = summarised(cells, lambda cell: cell.accuracy)
    assert accuracy["mix", None] == pytest.approx((0.6, 0.02**0.5))
    assert accuracy["layer 0", 10] == (0.5, 0.0)
    assert summarised(cells, lambda cell: cell.selectivity) == {
        ("mix", None): pytest.approx((0.3, 0.02**0.5))
    }
    ((size, weights),) = mix_weights(cells).items()
    assert size is None and [layer.mean for layer in weights] == pytest.approx([0.3, 0.7])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: (replace(a, labels=None), ProbeSettings()), "must have labels"),
        (lambda a: (a, ProbeSettings((81,))), "sizes must be at most 80"),
    ],
)
def test_wrong_arguments(texts, change, message):
    train, settings = change(texts[0])
    with pytest.raises(InputError, match=message):
        probe(train, texts[1], settings)


def test_the_file_of_results_is_read_again(tmp_path, cells):
    path = tmp_path / "result.json"
    write_cells(path, {"model": "a", "static": None}, cells[:3])
    assert read_cells(path) == ({"model": "a", "static": None}, cells[:3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": "other"}, "another format."),
        ({"format": "bilm probe 1", "settings": {}, "cells": [{"size": 1}]}, ""),
    ],
)
def test_files_that_are_no_results(tmp_path, content, message):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=rf"result\.json: .* damaged: {message}"):
        read_cells(path)


def test_pictures(tmp_path, cells):
    pytest.importorskip("matplotlib")
    chart = probe_chart(cells, 80)
    save_picture(chart, tmp_path / "two.svg")
    drawn = (tmp_path / "two.svg").read_text(encoding="utf-8")
    for text in ("training sentences", "accuracy, %", "weight in the mix", "layer 2", "static"):
        assert text in drawn
    # Both sizes are on the axis.
    assert ">20</text>" in drawn and ">80</text>" in drawn
    one = probe_chart([cell for cell in cells if cell.size is None], 80)
    save_picture(one, tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"
    save_picture(sense_chart([SenseRow("layer 0", 0.5, None, 0.4)]), tmp_path / "senses.svg")
    with pytest.raises(InputError, match=r"result\.pdf: must end in"):
        check_picture("result.pdf")
