"""Training and evaluation of models of every kind, against the NumPy formulas."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.core.language_model import LanguageModel
from bilm.core.lstm import Mode
from bilm.core.options import Options
from bilm.files.weights import weight_table
from bilm.training.inputs import make_feed, step_inputs
from bilm.training.optimizer import Optimizer
from bilm.training.trainer import Trainer
from tests import oracle
from tests.oracle.files import hdf5_name

N_TOKENS, ROWS, STEPS = 37, 3, 5
# Building the graph of a step takes seconds, least for this kind. tests/test_golden_training.py
# compares other kinds with recorded results.
QUICK = ("one_direction_one_layer_words",)


def kinds(names, quick):
    """Parameters of a test; all but the quick ones are marked slow."""
    return [
        pytest.param(name, marks=() if name in quick else pytest.mark.slow, id=name)
        for name in names
    ]


def training_options(kind, **changes):
    """Options of a kind of model that use every part of a training step."""
    options = {"bidirectional": True} | oracle.MODELS[kind]
    return options | {
        "n_tokens_vocab": N_TOKENS,
        "batch_size": ROWS,
        "unroll_steps": STEPS,
        "dropout": 0.0,
        "sample_softmax": False,
        "n_negative_samples_batch": 12,
        "all_clip_norm_val": 1.0,
        "learning_rate": 0.15,
        **changes,
    }


def random_batch(options, seed):
    """A batch as a dict in the original's format; words repeat within and between directions."""
    random = np.random.default_rng(seed)
    width = options.get("char_cnn", {}).get("max_characters_per_token", 50)
    words = np.stack([oracle.word_characters("xyz"[: n % 4] + "é" * n, width) for n in range(9)])
    batch = {}
    for suffix in ("", "_reverse"):
        batch["token_ids" + suffix] = random.integers(0, N_TOKENS, (ROWS, STEPS))
        batch["next_token_id" + suffix] = random.integers(0, N_TOKENS, (ROWS, STEPS))
        batch["tokens_characters" + suffix] = words[random.integers(0, 9, (ROWS, STEPS))]
    return batch


class Program:
    """A training step of the package with given weights, by their HDF5 names."""

    def __init__(self, options, weights, **settings):
        self.trainer = trainer = Trainer(Options.from_dict(options, training=True))
        self.model = trainer.model = LanguageModel(options, seed=None, **settings)
        table = {hdf5_name(w.checkpoint): w.variable for w in weight_table(self.model)}
        assert table.keys() == weights.keys()
        for name, variable in table.items():
            variable.assign(weights[name])
        variables = self.model.trainable_variables
        self.optimizer = trainer.optimizer = Optimizer(
            variables, options["learning_rate"], options["all_clip_norm_val"]
        )
        trainer.compile_step()
        self.names = [next(n for n in table if table[n] is variable) for variable in variables]
        assert sorted(self.names) == sorted(weights)

    def values(self):
        variables = [variable.numpy() for variable in self.model.trainable_variables]
        accumulators = [slots["Adagrad"].numpy() for slots in self.optimizer.slots]
        return (
            dict(zip(self.names, variables, strict=True)),
            dict(zip(self.names, accumulators, strict=True)),
        )


def samples_of(inputs, batch):
    """The negative samples of each direction, as the formulas take them."""
    samples = []
    suffixes = ("", "_reverse")[: len(inputs.negatives)]
    for draw, suffix in zip(inputs.negatives, suffixes, strict=True):
        targets = batch["next_token_id" + suffix].ravel()
        counts = [
            oracle.log_uniform_expected_count(ids, N_TOKENS, draw.n_tries)
            for ids in (targets, draw.ids)
        ]
        samples.append((draw.ids, *counts))
    return samples or None


def assert_steps_agree(options, weights, n_steps=3, **settings):
    program = Program(options, weights, **settings)
    accumulators = {name: np.ones(value.shape) for name, value in weights.items()}
    states = oracle.zero_states(options, ROWS)
    program_states = program.model.network.zero_states(ROWS)
    norms = []
    for k in range(n_steps):
        batch = random_batch(options, seed=k)
        feed = make_feed(batch, program.model.options)
        (inputs,) = step_inputs(feed, program.model.options, (7, k))
        samples = samples_of(inputs, batch)
        losses, (program_states,), _ = program.trainer.run_step((inputs,), (program_states,))
        loss, gradients, states = oracle.loss_and_gradients(
            weights, options, batch, states, samples
        )
        np.testing.assert_allclose(np.mean(losses), loss, 1e-5)
        norms.append(np.sqrt(sum((g**2).sum() for g in gradients.values())))
        gradients = oracle.clip_by_global_norm(gradients, options["all_clip_norm_val"])
        weights, accumulators = oracle.adagrad(
            weights, accumulators, gradients, options["learning_rate"]
        )
    assert max(norms) > (options["all_clip_norm_val"] or 0), "the bound was not tried"
    for ours, expected in zip(program.values(), (weights, accumulators), strict=True):
        for name, value in expected.items():
            np.testing.assert_allclose(ours[name], value, 1e-4, 1e-5, err_msg=name)


@pytest.mark.parametrize("kind", kinds(oracle.MODELS, quick=QUICK))
def test_steps_with_the_full_softmax(kind):
    options = training_options(kind)
    weights = oracle.random_weights(options, 1) | oracle.random_softmax(options, 2)
    assert_steps_agree(options, weights)


@pytest.mark.parametrize(
    "kind", kinds(["as_published", "words", "one_direction", *QUICK], quick=QUICK)
)
def test_steps_with_the_sampled_softmax(kind):
    options = training_options(kind, sample_softmax=True)
    weights = oracle.random_weights(options, 3) | oracle.random_softmax(options, 4)
    assert_steps_agree(options, weights)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("kind", kinds(["words", *QUICK], quick=QUICK))
def test_steps_with_a_tied_softmax(kind, sampled):
    options = training_options(kind, sample_softmax=sampled, share_embedding_softmax=True)
    weights = oracle.random_weights(options, 5) | oracle.random_softmax(options, 6)
    assert "softmax/W" not in weights
    assert_steps_agree(options, weights)


@pytest.mark.parametrize(
    "kind",
    kinds(
        ["as_published", "four_layers_tight_clips", "no_lstm_projection_tight_clips", *QUICK],
        quick=QUICK,
    ),
)
def test_compiled_steps(kind):
    options = training_options(kind, sample_softmax=True)
    weights = oracle.random_weights(options, 9) | oracle.random_softmax(options, 10)
    assert_steps_agree(options, weights, mode=Mode.TRAINING)
