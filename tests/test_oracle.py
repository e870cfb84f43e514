"""The NumPy formulas agree with the original's recorded results and with TensorFlow's softmax."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from tests import oracle
from tests.compare import close
from tests.recorded import INFERENCE_CASES, TRAINING_CASES, read_run


def read_options(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", INFERENCE_CASES)
def test_inference_with_carried_states(golden, case):
    folder = golden / "inference" / case
    options = read_options(folder / "options.json")
    weights = oracle.read_hdf5(folder / "weights.hdf5")
    states = oracle.zero_states(options, 16)
    with h5py.File(folder / "expected.hdf5") as expected:
        mix = {name: value[()] for name, value in expected["mix_variables"].items()}
        for number in range(8):
            batch = expected[f"pass{number // 4}/batch{number % 4}"]
            ids = expected[f"pass0/batch{number % 4}/char_ids"][()]
            result = oracle.embed(weights, options, ids, states)
            np.testing.assert_array_equal(result.lengths, batch["lengths"])
            np.testing.assert_array_equal(result.mask, batch["mask"])
            places = result.mask[:, None, :, None]
            close(result.lm_embeddings, batch["lm_embeddings"] * places)
            present = ids.any(axis=-1)
            close(result.token_embeddings, batch["token_embeddings"] * present[..., None])
            check_mixes(result, batch, mix)


def check_mixes(result, batch, mix):
    arguments = (result.lm_embeddings, result.mask)
    W, gamma = mix["plain_ELMo_W"], mix["plain_ELMo_gamma"]
    plain, none = oracle.weight_layers(*arguments, W, gamma)
    close(plain[result.mask], batch["weighted_plain"][()][result.mask])
    top, none_either = oracle.weight_layers(*arguments, None, mix["top_ELMo_gamma"])
    close(top[result.mask], batch["weighted_top"][()][result.mask])
    assert none == none_either == 0
    W, gamma = mix["norm_ELMo_W"], mix["norm_ELMo_gamma"]
    norm, penalty = oracle.weight_layers(*arguments, W, gamma, l2_coef=1.0, do_layer_norm=True)
    close(norm[result.mask], batch["weighted_norm"][()][result.mask])
    close(penalty, batch["regularization_norm"])


@pytest.mark.parametrize("case", TRAINING_CASES)
def test_eight_training_steps(golden, case):
    folder = golden / "training" / case
    options = read_options(folder / "start" / "options.json")
    start = oracle.read_checkpoint(folder / "start" / "model.ckpt-2")
    end = oracle.read_checkpoint(folder / "end" / "model.ckpt-10")
    batches, expected = read_run(folder)
    perplexities, weights, accumulators = oracle.replay(*start[:2], options, batches)
    close(perplexities, expected, rtol=1e-5)
    assert weights.keys() == end.weights.keys() and accumulators.keys() == end.accumulators.keys()
    for name in weights:
        close(weights[name], end.weights[name], rtol=1e-5, atol=2e-6)
        close(accumulators[name], end.accumulators[name], rtol=1e-5)
    assert (start.step, end.step) == (2, 10)


def test_random_weights_have_the_shapes_of_the_recorded(golden):
    for case in INFERENCE_CASES:
        folder = golden / "inference" / case
        recorded = oracle.read_hdf5(folder / "weights.hdf5")
        random = oracle.random_weights(read_options(folder / "options.json"), seed=0)
        assert {k: v.shape for k, v in random.items()} == {k: v.shape for k, v in recorded.items()}
