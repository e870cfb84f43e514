"""`bilm info` on weights and training folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm.cli import main
from tests import oracle
from tests.command_line import train_model
from tests.small_runs import small_options, write_corpus

# Info


def info(capsys, *arguments):
    capsys.readouterr()
    assert main(["info", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.mark.eager
def test_info_of_weights(published, capsys):
    folder = published.folder
    printed = info(capsys, folder)
    for line in (
        f"model           {folder}",
        "input           kind characters; max characters per token 50; character dim 4; filters "
        "1 x 4, 2 x 6, 4 x 8; activation relu; highway layers 2; projection yes",
        "lstm            directions 2; layers 2; dim 20; projection dim 8; skip connections yes; "
        "cell clip 3; proj clip 3",
        "vectors         layers 3; dim 16",
    ):
        assert f"{line}\n" in printed
    assert "vocabulary" not in printed
    facts = json.loads(info(capsys, folder, "--json"))
    weights = oracle.read_hdf5(folder / "weights.hdf5")
    assert facts["parameters"]["total"] == sum(value.size for value in weights.values())
    assert facts["kind"] == "weights" and facts["vectors"] == {"layers": 3, "dim": 16}
    assert json.loads(info(capsys, "--model", folder, "--json")) == facts


def test_info_of_a_model_of_words(tmp_path, capsys):
    options = oracle.MODELS["one_direction_one_layer_words"]
    weights = oracle.random_weights(options, seed=1) | {"notes": np.zeros(3)}
    oracle.write_model(tmp_path, options, weights)
    words = ["<S>", "</S>", "<UNK>", *(f"w{n}" for n in range(34))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    printed = info(capsys, tmp_path)
    assert "input           kind words; words 37\n" in printed
    assert (
        "lstm            directions 1; layers 1; dim 20; projection dim 8; skip connections no"
        in printed
    )
    assert "; other datasets notes\n" in printed
    assert "vocabulary      file vocab.txt; words 37\n" in printed


@pytest.mark.eager
@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "muon"])
def test_the_parameters_of_a_run_without_its_optimizers(optimizer, tmp_path, capsys):
    options = small_options(optimizer=optimizer)
    data = write_corpus(tmp_path).data(options)
    bilm.train(options, data, 1, tmp_path / "run", None, progress=lambda record: True)
    facts = json.loads(info(capsys, tmp_path / "run", "--json"))
    weights = oracle.random_weights(options, 1)
    assert facts["parameters"]["total"] == sum(value.size for value in weights.values())


def test_info_of_an_original_training_folder(golden, capsys):
    printed = info(capsys, golden / "training" / "words_tied_softmax" / "start")
    assert "input           kind words; words " in printed
    assert "training        checkpoint model.ckpt-2; step 2; " in printed
    assert "perplexity" not in printed and "vocabulary" not in printed


@pytest.mark.slow
def test_info_of_a_training_folder(tmp_path, capsys):
    _, save_dir = train_model(tmp_path)
    printed = info(capsys, save_dir)
    facts = json.loads(info(capsys, save_dir, "--json"))
    assert facts["kind"] == "training" and facts["parameters"]["softmax"] == 14 * 5
    assert facts["training"]["step"] > 0 and facts["training"]["batch_size"] == 12
    assert facts["vocabulary"] == {"file": "vocab.txt", "words": 14}
    assert facts["training"]["tokens"] == 480
    assert "training        checkpoint model.ckpt-8; step 8; tokens 480; passes 0.9524; " in printed
    for text in ("batch size 12; unroll steps 5; ", "n epochs 1; ", "dropout 0.1; ", "perplexity "):
        assert text in printed
    # As `bilm train --time` leaves it.
    path = Path(save_dir, "options.json")
    options = json.loads(path.read_text("utf-8")) | {"n_epochs": None, "n_steps": 1000}
    path.write_text(json.dumps(options), "utf-8")
    assert "n steps 1,000; " in info(capsys, save_dir)
