"""Perplexity of the recorded corpus under the recorded models, against the NumPy formulas."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bilm
from tests import oracle
from tests.recorded import read_run
from tests.small_runs import Batches

CASES = (
    "characters",
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in ("forward_only", "words_tied_softmax")
    ),
)


def corpus_of(golden):
    text = (golden / "corpus" / "shard-00.txt").read_text(encoding="utf-8")
    return [line.split() for line in text.splitlines() if line.strip()]


def expected_losses(golden, options, weights):
    """Losses of every prediction of the corpus, an array a direction."""
    words = (golden / "vocab.txt").read_text(encoding="utf-8").split()
    ids = {word: number for number, word in enumerate(words)}
    pairs = []
    for sentence in corpus_of(golden):
        whole = ["<S>", *sentence, "</S>"]
        predicted = np.array([ids.get(word, ids["<UNK>"]) for word in whole])
        read = predicted
        if "char_cnn" in options:
            read = np.stack([oracle.word_characters(word, 50) for word in whole])
        pairs.append((read, predicted))
    n_directions = 2 if options["bidirectional"] else 1
    return [oracle.sentence_losses(weights, options, pairs, d) for d in range(n_directions)]


def dataset(golden, options):
    max_word_length = 50 if "char_cnn" in options else None
    vocab = bilm.load_vocab(str(golden / "vocab.txt"), max_word_length)
    kind = bilm.BidirectionalLMDataset if options["bidirectional"] else bilm.LMDataset
    return kind(str(golden / "corpus" / "shard-*.txt"), vocab, test=True)


@pytest.mark.parametrize("case", CASES)
def test_every_prediction_is_scored_at_any_batch_size(golden, case):
    folder = golden / "training" / case / "end"
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    prefix = folder / "model.ckpt-10"
    losses = expected_losses(golden, options, oracle.read_checkpoint(prefix).weights)
    means = [loss.mean() for loss in losses]
    data = dataset(golden, options)
    # A row of one is shorter than most sentences, which are then taken in stretches.
    for batch_size in (256, 1):
        result = bilm.test(options, str(prefix), data, batch_size)
        assert result.n_predictions == sum(len(s) + 1 for s in corpus_of(golden)) == len(losses[0])
        np.testing.assert_allclose(float(result), np.exp(np.mean(means)), 1e-5)
        np.testing.assert_allclose(result.forward, np.exp(means[0]), 1e-5)
        if options["bidirectional"]:
            np.testing.assert_allclose(result.backward, np.exp(means[1]), 1e-5)
        else:
            assert result.backward is None


@pytest.mark.parametrize("case", CASES)
def test_other_data_is_scored_with_carried_states(golden, case):
    """The recorded batches through the recorded start, nothing being trained."""
    folder = golden / "training" / case
    options = json.loads((folder / "start" / "options.json").read_text(encoding="utf-8"))
    prefix = folder / "start" / "model.ckpt-2"
    batches, _ = read_run(folder)
    weights = oracle.read_checkpoint(prefix).weights
    states = oracle.zero_states(options, 4)
    losses = []
    for batch in batches:
        loss, _, states = oracle.loss_and_gradients(weights, options, batch, states)
        losses.append(loss)
    data = Batches(batches)
    result = bilm.test(options, str(prefix), data, batch_size=4)
    assert set(data.asked) == {batch["token_ids"].shape for batch in batches}
    np.testing.assert_allclose(float(result), np.exp(np.mean(losses)), 1e-5)
    assert result.n_predictions == 8 * 4 * 7
