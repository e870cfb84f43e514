"""`test`: every prediction of a text, in any batches, against the NumPy formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm import ELMo
from bilm.core.errors import InputError
from bilm.inference.scorer import Perplexity, Scorer
from bilm.training import LanguageModel
from bilm.training.evaluation import evaluate
from tests import oracle
from tests.scored_models import KINDS, Model
from tests.small_models import write_small_model
from tests.small_runs import STEPS, Batches, random_batch, small_options, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus, with another text that has a very long line."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"))
    long_line = " ".join(word for sentence in corpus.sentences for word in sentence)
    text = (corpus.folder / "heldout.txt").read_text(encoding="utf-8")
    (corpus.folder / "long.txt").write_text(f"{text}\n{long_line}\nthe\n", encoding="utf-8")
    return corpus


SLOW = ("characters", "words_tied")


@pytest.fixture(
    scope="module",
    params=[pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in KINDS],
)
def model(request, tmp_path_factory):
    kind, changes = KINDS[request.param]
    return Model(tmp_path_factory.mktemp(request.param), kind, **changes)


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    kind, changes = KINDS["one_direction"]
    return Model(tmp_path_factory.mktemp("small"), kind, **changes)


def sentences_of(corpus, name):
    text = (corpus.folder / name).read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines() if line.strip()]


@pytest.mark.slow
def test_every_prediction_of_every_sentence_alone(model, corpus):
    """The result does not depend on the batch size, even with a line that spans many batches."""
    sentences = sentences_of(corpus, "long.txt")
    assert max(map(len, sentences)) > 20 * STEPS
    by_sentence = [model.sentence_losses(sentence) for sentence in sentences]
    means = [np.concatenate(losses).mean() for losses in zip(*by_sentence, strict=True)]
    data = corpus.data(model.options, "long.txt", test=True)
    for batch_size in (1, 64):
        result = model.test(data, batch_size, per_sentence=True)
        assert isinstance(result, Perplexity)
        assert result.n_predictions == sum(len(sentence) + 1 for sentence in sentences)
        np.testing.assert_allclose(float(result), np.exp(np.mean(means)), 1e-5)
        np.testing.assert_allclose(result.forward, np.exp(means[0]), 1e-5)
        if model.n_directions == 2:
            np.testing.assert_allclose(result.backward, np.exp(means[1]), 1e-5)
        else:
            assert result.backward is None
        scores = result.sentences
        assert scores.n_predictions.tolist() == [len(sentence) + 1 for sentence in sentences]
        expected = [[loss.sum() for loss in losses] for losses in by_sentence]
        np.testing.assert_allclose(scores.losses.T, expected, 1e-4, 1e-4)


def test_carried_states_are_those_of_the_original_protocol(model, corpus):
    """Each row keeps its state from batch to batch and from sentence to sentence."""
    data = corpus.data(model.options, "long.txt", test=True)
    for batch_size in (1, 4):
        result = model.test(data, batch_size, carry_state=True)
        total, count = carried_losses(model, data, batch_size)
        assert (
            result.n_predictions
            == count
            == sum(len(sentence) + 1 for sentence in sentences_of(corpus, "long.txt"))
        )
        np.testing.assert_allclose(float(result), np.exp((total / count).mean()), 1e-5)
        np.testing.assert_allclose(result.forward, np.exp(total[0] / count), 1e-5)
        assert result.sentences is None


def carried_losses(model, data, batch_size):
    """Summed losses of each direction by the formulas, and the number of predictions."""
    weights = {name: value.astype(float) for name, value in model.weights.items()}
    characters = "char_cnn" in model.options
    table = weights["char_embed" if characters else "embedding"]
    W = weights.get("softmax/W", weights.get("embedding"))
    states = oracle.zero_states(model.options, batch_size)
    total, count = np.zeros(model.n_directions), 0
    for batch in data.iter_distinct(batch_size, STEPS):
        arrays = dict(batch)
        for d, suffix in enumerate(("", "_reverse")[: model.n_directions]):
            ids = arrays["tokens_characters" + suffix] if characters else None
            ids = arrays["token_ids" + suffix] if ids is None else ids
            tokens = oracle.encode(weights, model.options, table, ids)
            layers = oracle.layers_of(weights, model.options, d)
            outputs, states[d], _ = oracle.run_direction(layers, tokens, states[d])
            hidden = outputs[-1].reshape(batch.mask.size, -1)
            targets = arrays["next_token_id" + suffix].reshape(-1)
            losses = oracle.full_softmax(hidden, targets, W, weights["softmax/b"])
            total[d] += losses[batch.mask.reshape(-1)].sum()
        count += int(batch.mask.sum())
    return total, count


def test_the_way_to_read_changes_nothing(small_model, corpus):
    """Evaluation reads the text once, in order, even if training shuffles it."""
    expected = small_model.test(corpus.data(small_model.options, test=True))
    shuffled = corpus.data(small_model.options, shuffle_on_load=True, seed=4)
    result = small_model.test(shuffled, 2)
    np.testing.assert_allclose(float(result), float(expected), 1e-6)
    assert result.n_predictions == sum(len(sentence) + 1 for sentence in corpus.sentences)


def test_data_with_iter_batches_alone(small_model):
    """States are passed from batch to batch; a second evaluation starts again from zeros."""
    batches = [random_batch(seed) for seed in range(4)]
    states = oracle.zero_states(small_model.options, 3)
    losses = []
    for batch in batches:
        loss, _, states = oracle.loss_and_gradients(
            small_model.weights, small_model.options, batch, states
        )
        losses.append(loss)
    result = small_model.test(Batches(batches), 3)
    np.testing.assert_allclose(float(result), np.exp(np.mean(losses)), 1e-5)
    assert result.n_predictions == 4 * 3 * STEPS
    model = LanguageModel(small_model.options, is_training=False, seed=2)
    scorer = Scorer(model)
    assert evaluate(scorer, Batches(batches), 3) == evaluate(scorer, Batches(batches), 3)


def test_what_cannot_be_scored(small_model, corpus):
    data = corpus.data(small_model.options, "heldout.txt", test=True)
    with pytest.raises(InputError, match="The data holds no prediction to score"):
        small_model.test(Batches([]))
    with pytest.raises(InputError, match="must have rows per batch = 2, got 3"):
        small_model.test(Batches([random_batch()]), 2)
    with pytest.raises(InputError, match="per_sentence needs a data set with iter_sentence"):
        small_model.test(data, carry_state=True, per_sentence=True)
    endless = corpus.data(small_model.options, "heldout.txt")
    with pytest.raises(InputError, match="carry_state: the data has no end; make"):
        small_model.test(endless, 2, carry_state=True)


def test_a_model_text_and_options_that_do_not_fit(small_model, corpus):
    options = small_options("words")
    data = corpus.data(options, "heldout.txt", test=True)
    with pytest.raises(InputError, match="The data must have directions = 1, got 2"):
        small_model.test(data)
    with pytest.raises(InputError, match="the weights do not fit the options"):
        bilm.test(options, small_model.prefix, data)


def test_a_perplexity_beyond_every_float():
    result = bilm.training.Perplexity.of_losses(np.array([6000.0, 6.0]), 3)
    assert result == math.inf and result.forward == math.inf
    np.testing.assert_allclose(result.backward, np.exp(2))


def test_models_loaded_one_after_another_are_no_reason_for_a_warning(
    small_model, corpus, tmp_path, caplog
):
    """TensorFlow warns if functions with the same code are traced in most of their calls."""
    data = corpus.data(small_model.options, "heldout.txt", test=True)
    made = write_small_model(tmp_path, "as_published")
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        assert len({float(small_model.test(data)) for _ in range(3)}) == 1
        for _ in range(6):
            assert ELMo.from_pretrained(made.files).encode([["a", "dog"]])[0].shape == (2, 16)
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records == []
