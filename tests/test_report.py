"""The report on a model: the geometry of layers, prediction, verdict, suspicions, the page."""

from __future__ import annotations

import itertools
import json

import h5py
import numpy as np
import pytest

from bilm import ELMo, Predictor
from bilm.analysis.model_report import (
    LayerGeometry,
    Prediction,
    make_report,
    measure_layers,
    measure_prediction,
    suspicions,
)
from bilm.analysis.occurrences import sample_sentences
from bilm.cli import main
from bilm.core.errors import InputError
from tests.command_line import input_error
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return ELMo.from_pretrained(write_small_model(folder, "short_words_261").files)


SENTENCES = [["one", "two", "one"], ["two", "three"], ["one"], ["three", "two", "one", "two"]]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_layers_are_measured_as_the_paper_defines_it(elmo):
    measured = measure_layers(elmo, SENTENCES, min_occurrences=2, seed=1)
    encoded = elmo.encode(SENTENCES, "all")
    assert len(measured) == elmo.n_layers
    for number, layer in enumerate(measured):
        uses: dict[str, list[np.ndarray]] = {}
        intra = []
        for sentence, layers in zip(SENTENCES, encoded, strict=True):
            for token, vector in zip(sentence, layers[number], strict=True):
                uses.setdefault(token, []).append(vector)
            if len(sentence) > 1:
                mean = layers[number].mean(axis=0)
                intra.append(np.mean([cosine(vector, mean) for vector in layers[number]]))
        pairs = [itertools.combinations(vectors, 2) for vectors in uses.values()]
        same = np.mean([np.mean([cosine(*pair) for pair in two]) for two in pairs])
        vectors = np.concatenate([layers[number] for layers in encoded])
        assert layer.self_similarity == pytest.approx(same, rel=1e-4)
        assert layer.intra_sentence == pytest.approx(np.mean(intra), rel=1e-4)
        norms = np.linalg.norm(vectors, axis=1)
        assert layer.norm == pytest.approx(norms.mean(), rel=1e-4)
        squares = np.square(vectors).sum(axis=0)
        assert layer.largest_share == pytest.approx(squares.max() / squares.sum(), rel=1e-4)
        assert -1 <= layer.anisotropy <= 1
    assert measured[0].self_similarity == pytest.approx(1, abs=1e-5)
    lines = ["", *map(" ".join, SENTENCES)]
    assert measure_layers(elmo, lines, min_occurrences=2, seed=1) == measured


def test_anisotropy_is_that_of_drawn_words(elmo):
    sentences = [["one"], ["two"], ["three"], ["one"]]
    measured = measure_layers(elmo, sentences, min_occurrences=2)
    vectors = [layers[1, 0] for layers in elmo.encode(sentences, "all")]
    wanted = np.mean([cosine(a, b) for a, b in itertools.combinations(vectors, 2)])
    assert measured[1].anisotropy == pytest.approx(wanted, rel=1e-4)


def test_too_little_text_is_refused(elmo):
    with pytest.raises(InputError, match="occurs 5 times, got 2 sentences and 0 such words"):
        measure_layers(elmo, SENTENCES[:2])
    with pytest.raises(InputError, match="got 1 sentences and 1 such words"):
        measure_layers(elmo, [["one"] * 5])


def test_sentences_are_drawn_evenly():
    sentences = [[str(k)] for k in range(20)] + [[]]
    drawn = [sample_sentences(sentences, 5, seed=seed) for seed in range(400)]
    assert all(len(sample) == 5 for sample in drawn)
    counts = np.bincount([int(s[0]) for sample in drawn for s in sample], minlength=20)
    # Expected are 100 each, with a standard deviation of 9.
    assert counts.min() > 65 and counts.max() < 135
    assert drawn[0] == sorted(drawn[0], key=lambda sentence: int(sentence[0]))
    assert sample_sentences(sentences, 5, seed=0) == drawn[0]
    assert len(sample_sentences(sentences, 100)) == 20


def test_prediction_is_that_of_the_scores(trained):
    _, folder = trained
    predictor = Predictor.from_pretrained(folder)
    sentences = [["the", "cat", "sees", "."], ["unseen", "dog"]]
    found = measure_prediction(predictor, sentences)
    scores = predictor.score(sentences)
    forward = -sum(score.forward_total for score in scores) / 8
    assert found.forward == pytest.approx(np.exp(forward), rel=1e-5)
    assert found.n_predictions == 8 and found.unknown == pytest.approx(1 / 6)
    first = -(scores[0].forward[:3].sum() + scores[1].forward.sum()) / 5
    assert found.first_forward == pytest.approx(np.exp(first), rel=1e-5)
    last = -(scores[0].backward[-3:].sum() + scores[1].backward.sum()) / 5
    assert found.first_backward == pytest.approx(np.exp(last), rel=1e-5)
    size = predictor.vocabulary.size
    words = ["the", "cat", "sees", ".", "</S>", "unseen", "dog", "</S>"]
    ranks = np.array([predictor.vocabulary.word_to_id(word) for word in words])
    chances = np.log((ranks + 2) / (ranks + 1)) / np.log(size + 1)
    assert found.by_rank == pytest.approx(np.exp(-np.log(chances).mean()), rel=1e-6)
    assert found.both == pytest.approx(np.sqrt(found.forward * found.backward))


def test_the_baseline_of_frequencies_leaves_out_the_word_that_it_predicts(trained):
    _, folder = trained
    predictor = Predictor.from_pretrained(folder)
    vocabulary = predictor.vocabulary
    words = ["the", "cat", "the", "</S>"]
    found = measure_prediction(predictor, [words[:-1]])
    rank = {w: vocabulary.word_to_id(w) for w in words}
    by_rank = {w: np.log((k + 2) / (k + 1)) / np.log(vocabulary.size + 1) for w, k in rank.items()}
    # Without the token itself: 3 tokens, and for "the" 1 occurrence; 3 distinct words.
    expected = [((w == "the") + 3 * by_rank[w]) / (3 + 3) for w in words]
    assert found.by_frequency == pytest.approx(np.exp(-np.log(expected).mean()), rel=1e-6)
    counts = {"the": 50, "cat": 25, "</S>": 20, "unseen": 5}
    found = measure_prediction(predictor, [words[:-1]], counts)
    expected = [(counts[w] - 1 + 4 * by_rank[w]) / (99 + 4) for w in words]
    assert found.by_frequency == pytest.approx(np.exp(-np.log(expected).mean()), rel=1e-6)


GOOD = LayerGeometry(0.1, 0.7, 0.4, 10.0, 0.05)
WELL = Prediction(100.0, 105.0, 700.0, 600.0, 140.0, 130.0, 0.02, 1000)


def test_nothing_is_suspicious_of_a_good_model():
    token_layer = GOOD._replace(self_similarity=1.0)
    assert suspicions([token_layer, GOOD, GOOD], WELL) == []
    assert suspicions([token_layer, GOOD, GOOD], None) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"anisotropy": 0.95}, "Layer 1: two random words have a cosine of 0.95"),
        ({"self_similarity": 0.99}, "Layer 1: a word has nearly the same vector in all contexts"),
        ({"largest_share": 0.7}, "Layer 1: one dimension has 70% of the squared length"),
        ({"norm": 200.0}, "The mean lengths of the layers' vectors differ by a factor of 20"),
    ],
)
def test_suspicious_layers(changes, sentence):
    said = suspicions([GOOD, GOOD._replace(**changes)], None)
    assert len(said) == 1 and said[0].startswith(sentence)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"forward": 900.0, "backward": 800.0}, "The forward perplexity, 900, is above 700, the"),
        ({"first_forward": 1e5}, "The forward perplexity of the first three words is 100,000"),
        ({"backward": 200.0}, "The perplexities of the two directions differ by a factor of 2.0"),
        ({"unknown": 0.25}, "25% of the tokens are outside the vocabulary: "),
    ],
)
def test_suspicious_predictions(changes, sentence):
    said = suspicions([GOOD], Prediction(**(WELL.__dict__ | changes)))
    assert said[0].startswith(sentence)


def test_a_report_is_made_and_written(elmo):
    sentences = [["one", "bank", "stands"], ["two", "bank", "runs"], ["three", "bank", "sits"]] * 2
    report = make_report(elmo, sentences, "some <text> [b]", [("model", "m"), ("", "more")])
    assert (report.n_sentences, report.n_tokens, report.prediction) == (6, 18, None)
    assert len(report.layers) == elmo.n_layers
    text = report.as_text()
    assert "6 sentences, 18 tokens of some <text> [b]." in text
    assert "has no softmax" in text and "also: more" in text
    assert "Quality: not measured." in text and "Nothing suspicious" not in text
    for number, layer in enumerate(report.layers):
        same = layer.self_similarity
        row = [f"{layer.anisotropy:.3f}", f"{same:.3f}", f"({same - layer.anisotropy:.3f})"]
        assert any(line.split()[:4] == [str(number), *row] for line in text.splitlines())
    page = report.as_html().decode()
    assert "some &lt;text&gt; [b]" in page and "<text>" not in page and "http" not in page
    assert '<html lang="en">' in page and 'name="viewport"' in page and "color-scheme" in page
    values = json.loads(json.dumps(report.as_dict()))
    assert values["layers"][0]["self_similarity"] == report.layers[0].self_similarity
    assert values["model"] == {"model": "m", "": "more"}


def test_a_report_says_how_good_the_model_is_and_how_much_it_was_trained(elmo, trained):
    predictor = Predictor.from_pretrained(trained[1])
    sentences = [["the", "cat", "sees", "."], ["a", "dog", "sees", "."]] * 5
    report = make_report(
        elmo, sentences, "text", [], predictor=predictor,
        trained={"tokens": 50_000, "passes": 2.0}, measurements=[120.0, 90.0],
    )  # fmt: skip
    ratio = report.prediction.by_frequency / report.prediction.both
    quality, training, more = report.verdict
    assert f"perplexity {report.prediction.both:,.1f}" in quality
    assert ratio < 1 or f"{ratio:.1f} times lower" in quality
    assert "50,000 tokens, 2.0 passes" in training
    assert "is likely to help: held-out perplexity fell by 25%" in more
    text = report.as_text()
    assert quality[:60] in text and text.startswith("Verdict\n")
    rows = [line.split() for line in text.splitlines()]
    frequencies = f"{report.prediction.by_frequency:,.1f}"
    assert ["this", "text's", "word", "frequencies", frequencies] in rows
    better = report.prediction.by_frequency / report.prediction.forward
    assert any(row[:1] == ["forward"] and row[2] == f"{better:.1f}" for row in rows)
    assert ["reference:", "WikiText-2,", "10", "minutes", "6.2"] in rows


@pytest.mark.parametrize("ending", [".html", ".json", ".txt"])
def test_the_verb_writes_a_report_of_a_training_folder(trained, tmp_path, ending, capsys):
    text, folder = trained
    out = str(tmp_path / f"report{ending}")
    arguments = ["report", text.training, "--model", folder, "--out", out]
    assert main(arguments) == 0
    content = (tmp_path / f"report{ending}").read_text(encoding="utf-8")
    assert "model.ckpt-" in content or "prediction" in content
    if ending == ".json":
        values = json.loads(content)
        assert values["n_sentences"] == 72 and values["prediction"]["backward"] > 1
    assert "--force" in input_error(arguments, capsys)


def test_the_verb_prints_a_report_of_weights(tmp_path, capsys):
    model = write_small_model(tmp_path / "model", "short_words_261")
    (tmp_path / "t.txt").write_text("one two one\none two one\nthree one two\n")
    arguments = ["report", str(tmp_path / "t.txt"), "--model", str(model.folder)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "3 sentences, 9 tokens of" in said and "has no softmax" in said
    words, dim = ["<S>", "</S>", "<UNK>", "one", "two"], model.options["lstm"]["projection_dim"]
    (model.folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    for W, message in ((np.zeros((5, dim)), ""), (np.full((5, dim), 3e38), "not finite")):
        with h5py.File(model.files[1], "a") as file:
            for name, value in (("W", W), ("b", np.zeros(5))):
                file.pop(f"softmax/{name}", None)
                file[f"softmax/{name}"] = value
        if message:
            assert message in input_error(arguments, capsys)
        else:
            assert main(arguments) == 0
            assert "has no softmax" not in capsys.readouterr().out
