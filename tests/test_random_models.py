"""Models of random sizes and switches, in use and in training, against the NumPy formulas."""

from __future__ import annotations

import numpy as np
import pytest

from bilm import BidirectionalLanguageModel
from bilm.core.options import ACTIVATIONS
from tests import oracle
from tests.test_training_kinds import N_TOKENS, ROWS, STEPS, assert_steps_agree

pytestmark = pytest.mark.slow


def random_options(seed):
    """Options of a model, with every switch set at random."""
    random = np.random.default_rng(seed)

    def pick(*values):
        return values[random.integers(len(values))]

    size = int(random.integers(3, 12))
    lstm = {
        "dim": size if random.random() < 0.2 else int(random.integers(3, 24)),
        "projection_dim": size,
        "n_layers": int(random.integers(1, 5)),
        "use_skip_connections": bool(random.integers(2)),
    }
    for name in ("cell_clip", "proj_clip"):
        clip = pick(None, 0.1, 0.5, 3)
        if clip is not None:
            lstm[name] = clip
    options = {"lstm": lstm, "bidirectional": bool(random.random() < 0.7)}
    if random.random() < 0.3:
        return options | {"n_tokens_vocab": N_TOKENS}
    width = int(random.integers(5, 60))
    filters = [
        [int(random.integers(1, min(width, 9) + 1)), int(random.integers(1, 9))]
        for _ in range(random.integers(1, 5))
    ]
    if random.random() < 0.2:  # the filters fill the vector without a projection
        filters = [[1, 1], [3, size - 1]]
    options["char_cnn"] = {
        "activation": pick(*ACTIVATIONS),
        "filters": filters,
        "embedding": {"dim": int(random.integers(1, 7))},
        "n_highway": int(random.integers(0, 4)),
        "n_characters": pick(261, 262),
        "max_characters_per_token": width,
    }
    return options


@pytest.mark.parametrize("seed", range(8))
def test_in_use(tmp_path, seed):
    options = random_options(seed)
    weights = oracle.random_weights(options, seed)
    files = oracle.write_model(tmp_path, options, weights)
    model = BidirectionalLanguageModel(
        *files, use_character_inputs="char_cnn" in options, max_batch_size=5, stateful=True
    )
    states = oracle.zero_states(options, 5)
    random = np.random.default_rng(seed)
    for call in range(3):
        lengths = random.integers(0, 15, random.integers(1, 6)).tolist()
        ids = oracle.random_characters(options, lengths, seed=call)
        result, expected = model(ids), oracle.embed(weights, options, ids, states)
        np.testing.assert_array_equal(result["lengths"], expected.lengths)
        np.testing.assert_array_equal(result["mask"], expected.mask)
        for name in ("lm_embeddings", "token_embeddings"):
            # Relative to the largest value, since errors of large values spread to small ones.
            scale = np.abs(getattr(expected, name)).max(initial=1)
            np.testing.assert_allclose(
                result[name] / scale, getattr(expected, name) / scale, 0, 1e-5
            )


@pytest.mark.parametrize("seed", range(100, 104))
def test_in_training(seed):
    random = np.random.default_rng(seed)
    options = random_options(seed) | {
        "n_tokens_vocab": N_TOKENS,
        "batch_size": ROWS,
        "unroll_steps": STEPS,
        "dropout": 0.0,
        "sample_softmax": bool(random.integers(2)),
        "n_negative_samples_batch": int(random.integers(1, N_TOKENS)),
        "all_clip_norm_val": 0.5,
        "learning_rate": 0.15,
    }
    if "char_cnn" not in options:
        options["share_embedding_softmax"] = bool(random.integers(2))
    weights = oracle.random_weights(options, seed) | oracle.random_softmax(options, seed + 1)
    assert_steps_agree(options, weights, n_steps=2)
