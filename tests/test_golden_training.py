"""Eight steps from a TF1 checkpoint end with the same values as in the original program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import bilm
from bilm import BidirectionalLanguageModel
from tests import oracle
from tests.recorded import TRAINING_CASES, read_run
from tests.small_runs import Batches


class Run(NamedTuple):
    recorded: Path  # the case's folder
    options: dict
    expected: np.ndarray  # recorded perplexities
    record: bilm.training.RunState
    folder: Path  # checkpoints of the run


QUICK = ("characters", "words", "words_tied_softmax")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
        for case in TRAINING_CASES
    ],
)
def run(golden, request, tmp_path_factory):
    """A training run on the recorded batches."""
    recorded = golden / "training" / request.param
    options = json.loads((recorded / "start" / "options.json").read_text(encoding="utf-8"))
    batches, expected = read_run(recorded)
    n_train_tokens = len(batches) * options["batch_size"] * options["unroll_steps"]
    options |= {"n_epochs": 1, "n_train_tokens": n_train_tokens}
    folder = tmp_path_factory.mktemp(request.param)
    data = Batches(batches)
    record = bilm.train(
        options,
        data,
        1,
        str(folder / "model"),
        str(folder / "log"),
        restart_ckpt_file=str(recorded / "start" / "model.ckpt-2"),
    )
    assert set(data.asked) == {batch["token_ids"].shape for batch in batches}
    return Run(recorded, options, expected, record, folder / "model")


def test_perplexity_of_every_step(run):
    assert len(run.record.train_perplexity) == 8
    np.testing.assert_allclose(run.record.train_perplexity, run.expected, rtol=1e-4)


def test_variables_and_accumulators_at_the_end(run):
    options, prefix = bilm.load_options_latest_checkpoint(str(run.folder))
    ours = oracle.read_checkpoint(prefix)
    theirs = oracle.read_checkpoint(run.recorded / "end" / "model.ckpt-10")
    assert ours.weights.keys() == theirs.weights.keys()
    assert ours.accumulators.keys() == theirs.accumulators.keys()
    for name, value in theirs.weights.items():
        np.testing.assert_allclose(ours.weights[name], value, 1e-4, 2e-6, err_msg=name)
    for name, value in theirs.accumulators.items():
        np.testing.assert_allclose(ours.accumulators[name], value, 1e-4, err_msg=name)
    for key, value in run.options.items():
        assert options[key] == value


@pytest.mark.parametrize("case", TRAINING_CASES)
@pytest.mark.parametrize("moment", ["start", "end"])
def test_weights_dumped_from_a_tf1_checkpoint(golden, tmp_path, case, moment):
    folder = golden / "training" / case / moment
    outfile = tmp_path / "weights.hdf5"
    bilm.dump_weights(str(folder), str(outfile))
    dumped = oracle.read_hdf5(outfile)
    stored = oracle.read_checkpoint(next(folder.glob("*.index")).with_suffix("")).weights
    expected = {name: value for name, value in stored.items() if not name.startswith("softmax")}
    assert dumped.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(dumped[name], value)
    if (folder / "weights.hdf5").exists():
        recorded = oracle.read_hdf5(folder / "weights.hdf5")
        assert dumped.keys() == recorded.keys()
        for name, value in recorded.items():
            np.testing.assert_array_equal(dumped[name], value)
            assert dumped[name].dtype == np.float32


@pytest.mark.parametrize("case", TRAINING_CASES)
def test_dumped_weights_and_options_make_a_model(golden, tmp_path, case):
    folder = golden / "training" / case / "end"
    outfile = tmp_path / "weights.hdf5"
    bilm.dump_weights(str(folder), str(outfile))
    options_file = tmp_path / "weights.options.json"
    options = json.loads(options_file.read_text(encoding="utf-8"))
    trained = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    assert options["lstm"] == trained["lstm"]
    assert "dropout" not in options and "n_train_tokens" not in options
    characters = "char_cnn" in trained
    if characters:
        assert options["char_cnn"] == trained["char_cnn"] | {"n_characters": 262}
    model = BidirectionalLanguageModel(
        str(options_file), str(outfile), use_character_inputs=characters
    )
    network = options | {"n_tokens_vocab": 109, "bidirectional": trained["bidirectional"]}
    ids = oracle.random_characters(network, [5, 2, 3], seed=1)
    expected = oracle.embed(oracle.read_hdf5(outfile), network, ids)
    result = model(ids)
    np.testing.assert_allclose(result["lm_embeddings"], expected.lm_embeddings, 1e-5, 5e-6)


def test_options_and_latest_checkpoint_of_a_tf1_folder(golden):
    folder = golden / "training" / "characters" / "end"
    options, prefix = bilm.load_options_latest_checkpoint(str(folder))
    assert options == json.loads((folder / "options.json").read_text(encoding="utf-8"))
    assert Path(prefix) == folder / "model.ckpt-10"
