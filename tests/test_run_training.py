"""Training runs: progress events and held-out evaluation, fine-tuning, and divergence."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bilm.cli import main
from bilm.core.errors import InputError, TrainingError
from bilm.core.options import Options
from bilm.data import BidirectionalLMDataset, load_vocab
from bilm.files.checkpoints import load_variables
from bilm.files.model_files import open_model
from bilm.files.weights import weight_table
from bilm.training import LanguageModel, dump_weights, load_options_latest_checkpoint, train
from bilm.training import test as score
from bilm.training.fine_tuning import load_pretrained, require_same_network
from bilm.training.state import read_state
from tests.command_line import OPTIONS, Text, input_error, make_text, usage_error
from tests.compare import contents
from tests.small_runs import Events

WORD_OPTIONS = {key: value for key, value in OPTIONS.items() if key != "char_cnn"}


def data_of(text: Text, heldout: bool = False, max_word_length: int | None = 12):
    vocabulary = load_vocab(text.vocabulary, max_word_length)
    pattern = text.heldout if heldout else text.training
    return BidirectionalLMDataset(pattern, vocabulary, test=heldout)


def train_model(text: Text, save_dir: Path, options=OPTIONS, n_train_tokens=400, **settings):
    options = options | {"n_tokens_vocab": 14, "n_train_tokens": n_train_tokens}
    data = data_of(text, max_word_length=12 if "char_cnn" in options else None)
    return train(options, data, 1, save_dir, save_dir, **settings)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory):
    """A text, and the folder, events and record of a run with held-out evaluation."""
    folder = tmp_path_factory.mktemp("watched")
    text, events = make_text(folder), Events()
    record = train_model(
        text,
        folder / "run",
        options=OPTIONS | {"learning_rate": 0.5, "schedule": "linear"},
        heldout=data_of(text, heldout=True),
        heldout_every="6 steps",
        progress=events,
    )
    for name in ("run", "run/best"):
        (folder / name / "vocab.txt").write_text(Path(text.vocabulary).read_text("utf-8"), "utf-8")
    return text, folder / "run", events, record


# Events and held-out evaluation


@pytest.mark.slow
def test_the_live_model_is_measured_as_its_checkpoint_is(watched):
    text, save_dir, _, record = watched
    assert [step for step, _ in record.heldout] == [6, 12, 18, 20]
    best_step, best = min(record.heldout, key=lambda found: found[1])
    assert (record.best_step, record.best) == (best_step, float(best))
    for folder, step in ((save_dir, 20), (save_dir / "best", best_step)):
        options, checkpoint = load_options_latest_checkpoint(folder)
        assert checkpoint.endswith(f"-{step}")
        perplexity = score(options, checkpoint, data_of(text, heldout=True))
        measured = dict(record.heldout)[step]
        for name in ("forward", "backward", "n_predictions"):
            assert getattr(perplexity, name) == pytest.approx(getattr(measured, name), rel=1e-6)
        assert perplexity == pytest.approx(measured, rel=1e-6)


@pytest.mark.slow
def test_patience_ends_the_run(tmp_path):
    text = make_text(tmp_path)
    record = train_model(
        text, tmp_path / "run", options=OPTIONS | {"learning_rate": 50.0, "n_epochs": 9},
        heldout=data_of(text, heldout=True), heldout_every="3 steps", patience=2,
    )  # fmt: skip
    assert record.stopped_early and record.n_steps < 180
    assert record.best_step == record.heldout[-3][0] == record.n_steps - 6
    again = train_model(
        text, tmp_path / "run", options=OPTIONS | {"n_epochs": 9}, patience=2,
        heldout=data_of(text, heldout=True), restart_ckpt_file=record.checkpoint,
    )  # fmt: skip
    assert again.n_steps == 0 and again.stopped_early and again.best == record.best


# Scores of sentences


@pytest.mark.slow
def test_scores_of_sentences_in_the_order_of_the_text(watched, tmp_path, capsys):
    text, save_dir, _, record = watched
    out = tmp_path / "scores.tsv"
    arguments = ["test", "--save_dir", str(save_dir), "--best", "--test_prefix", text.heldout]
    assert main([*arguments, "--per_sentence", str(out), "--batch_size", "1"]) == 0
    assert f"perplexity           {record.best:.4f}" in capsys.readouterr().out
    header, *lines = out.read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["sentence", "predictions", "forward_nats", "backward_nats",
                                  "perplexity"]  # fmt: skip
    sentences = Path(text.heldout).read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    assert [row[:2] for row in rows] == [
        [str(k + 1), str(len(sentence.split()) + 1)] for k, sentence in enumerate(sentences)
    ]
    for k in (0, len(sentences) - 1):
        alone = tmp_path / "alone.txt"
        alone.write_text(sentences[k], encoding="utf-8")
        options, checkpoint = load_options_latest_checkpoint(save_dir / "best")
        text_alone = dataclasses.replace(text, heldout=str(alone))
        perplexity = score(options, checkpoint, data_of(text_alone, heldout=True))
        assert float(rows[k][4]) == pytest.approx(perplexity, rel=1e-4)
        n = int(rows[k][1])
        assert float(rows[k][2]) == pytest.approx(n * math.log(perplexity.forward), rel=1e-4)


@pytest.mark.slow
def test_a_best_model_that_is_not_there(watched, tmp_path, capsys):
    save_dir = watched[1]
    (tmp_path / "run").mkdir()
    shutil.copy(os.path.join(save_dir, "options.json"), tmp_path / "run")
    arguments = ["dump", "--save_dir", str(tmp_path / "run"), "--outfile", "w.hdf5", "--best"]
    assert "has no best model: `bilm train --heldout_prefix`" in input_error(arguments, capsys)
    out = tmp_path / "weights.hdf5"
    assert main(["dump", "--save_dir", str(save_dir), "--outfile", str(out), "--best"]) == 0


# Fine-tuning


def other_vocabulary(text: Text) -> str:
    """A vocabulary with some of the words in another order, and a new one."""
    path = text.folder / "other.txt"
    words = ["<S>", "</S>", "<UNK>", "new", "bird", "the", "cat", "."]
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return str(path)


def values_of(model: LanguageModel) -> dict[str, np.ndarray]:
    return {w.checkpoint: w.variable.value.numpy().copy() for w in weight_table(model)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["characters", "words", "words_tied"])
def test_rows_of_known_words_are_carried_over(kind, tmp_path):
    text = make_text(tmp_path)
    options = OPTIONS if kind == "characters" else WORD_OPTIONS
    options = options | {"share_embedding_softmax": kind == "words_tied"}
    record = train_model(text, tmp_path / "run", options, n_train_tokens=40)
    vocab_file = other_vocabulary(text)
    vocabulary = load_vocab(vocab_file, 12)
    new_options = options | {"n_tokens_vocab": 8, "sample_softmax": False}
    trained = LanguageModel(options | {"n_tokens_vocab": 14}, is_training=False, seed=None)
    load_variables(record.checkpoint, weight_table(trained))
    before, model = values_of(trained), LanguageModel(new_options, seed=5)
    initial = values_of(model)
    assert load_pretrained(tmp_path / "run", text.vocabulary, model, vocabulary) == (7, 8)
    after = values_of(model)
    old = load_vocab(text.vocabulary, 12)
    for name, value in after.items():
        if not name.startswith(("lm/softmax", "lm/embedding")):
            np.testing.assert_array_equal(value, before[name])
            continue
        np.testing.assert_array_equal(value[3], initial[name][3])  # the new word
        for k in (0, 1, 2, 4, 5, 6, 7):
            word = vocabulary.id_to_word(k)
            np.testing.assert_array_equal(value[k], before[name][old.word_to_id(word)])
    weights = tmp_path / "weights.hdf5"
    dump_weights(tmp_path / "run", weights)
    model = LanguageModel(new_options, seed=5)
    carried = load_pretrained(weights, text.vocabulary, model, vocabulary)
    assert carried == (None if kind == "characters" else (7, 8))
    for name, value in values_of(model).items():
        expected = initial if name.startswith("lm/softmax") else after
        np.testing.assert_array_equal(value, expected[name])
    whole = tmp_path / "whole.hdf5"
    dump_weights(tmp_path / "run", whole, with_softmax=True, vocab_file=text.vocabulary)
    model = LanguageModel(new_options, seed=5)
    assert load_pretrained(whole, None, model, vocabulary) == (7, 8)  # the words are in the file
    for name, value in values_of(model).items():
        np.testing.assert_array_equal(value, after[name])
    if kind == "characters":
        return
    other = Options.from_dict(
        new_options | {"share_embedding_softmax": kind != "words_tied"}, training=True
    )
    with open_model((weights.with_suffix(".options.json"), whole)) as source:
        message = f"share_embedding_softmax is {kind == 'words_tied'} there"
        with pytest.raises(InputError, match=message):
            require_same_network(other, source)
    arguments = ["train", "--save_dir", str(tmp_path / "tuned"), "--vocab_file", vocab_file,
                 "--train_prefix", text.training, "--init_from", str(whole),
                 "--n_train_tokens", "1", "--batch_size", "2"]  # fmt: skip
    assert main(arguments) == 0
    tuned = json.loads((tmp_path / "tuned" / "options.json").read_text(encoding="utf-8"))
    assert tuned["share_embedding_softmax"] == (kind == "words_tied")


@pytest.mark.slow
def test_fine_tuning_from_the_command_line(watched, tmp_path, capsys):
    text, save_dir, *_ = watched
    tuned = tmp_path / "tuned"
    arguments = ["train", "--save_dir", str(tuned), "--vocab_file", other_vocabulary(text),
                 "--train_prefix", text.training, "--init_from", str(save_dir),
                 "--n_train_tokens", "40"]  # fmt: skip
    assert main(arguments) == 0
    assert "7 of the vocabulary's 8 words were in the first model" in capsys.readouterr().err
    options = json.loads((tuned / "options.json").read_text(encoding="utf-8"))
    assert options["lstm"]["dim"] == 8 and options["n_tokens_vocab"] == 8
    first, both = (read_state(load_options_latest_checkpoint(d)[1]) for d in (save_dir, tuned))
    assert (first.tokens, both.tokens, both.position) == (400, 440, 40)
    assert both.passes == first.passes + 1
    assert main(arguments) == 0  # the same command: all steps are done
    error = usage_error([*arguments, "--recipe", "original"], capsys)
    assert "--recipe requires a model without training options" in error
    error = input_error([*arguments, "--preset", "tiny"], capsys)
    assert "must describe the network of" in error and "lstm.dim is 8 there, 256 here" in error


@pytest.mark.slow
def test_fine_tuning_keeps_the_reset_rate_of_a_dumped_model(watched, tmp_path, capsys):
    text, save_dir, *_ = watched
    text_options = json.loads((save_dir / "options.json").read_text(encoding="utf-8"))
    train_model(text, tmp_path / "run", text_options | {"reset_rate": 0.25}, n_train_tokens=40)
    dump_weights(tmp_path / "run", tmp_path / "dumped.hdf5")
    arguments = ["train", "--save_dir", str(tmp_path / "tuned"), "--vocab_file", text.vocabulary,
                 "--train_prefix", text.training, "--n_train_tokens", "40", "--n_epochs", "1",
                 "--init_from", str(tmp_path / "dumped.hdf5")]  # fmt: skip
    assert main(arguments) == 0
    options = json.loads((tmp_path / "tuned" / "options.json").read_text(encoding="utf-8"))
    assert options["reset_rate"] == 0.25
    # Weights have no training options: the default recipe of a size like theirs.
    names = ("optimizer", "adam_learning_rate", "batch_size", "schedule")
    assert [options[name] for name in names] == ["muon", 0.005, 32, "linear"]
    assert options["lstm"] == text_options["lstm"]
    error = input_error([*arguments, "--recipe", "original"], capsys)
    assert "schedule is 'linear' there, None here" in error


def test_a_model_of_the_original_is_a_source(golden):
    start = golden / "training" / "characters" / "start"
    with open_model(start) as source:
        assert source.is_checkpoint and source.weights.endswith("model.ckpt-2")
    options = dataclasses.replace(source.read_options(), sample_softmax=False)
    model = LanguageModel(options, seed=1)
    vocabulary = load_vocab(golden / "vocab.txt", options.max_word_length)
    n = vocabulary.size
    assert load_pretrained(start, golden / "vocab.txt", model, vocabulary) == (n, n)
    reader = tf.train.load_checkpoint(source.weights)
    for name, value in values_of(model).items():
        np.testing.assert_array_equal(value, reader.get_tensor(name))


def test_what_does_not_go_with_a_source(golden, tmp_path):
    start = golden / "training" / "characters" / "start"
    with open_model(start) as source:
        theirs = source.read_options()
    lstm = dataclasses.replace(theirs.lstm, n_layers=9)
    other = dataclasses.replace(theirs, lstm=lstm, bidirectional=False)
    with pytest.raises(InputError, match=r"bidirectional is True there, False here; .* 9 here"):
        require_same_network(other, source)
    options = dataclasses.replace(theirs, sample_softmax=False)
    model = LanguageModel(options, seed=1)
    vocabulary = load_vocab(golden / "vocab.txt", options.max_word_length)
    with pytest.raises(InputError, match="init_vocab: name the vocabulary that"):
        load_pretrained(start, None, model, vocabulary)
    with pytest.raises(InputError, match="the data must have a vocab"):
        load_pretrained(start, golden / "vocab.txt", model, None)
    short = tmp_path / "short.txt"
    short.write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"but .*short.txt has 3: init_vocab names"):
        load_pretrained(start, short, model, vocabulary)


# Divergence


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_and_is_not_saved(tmp_path, monkeypatch):
    text, save_dir = make_text(tmp_path), tmp_path / "run"
    train_model(text, save_dir, save_minutes=1e-9, progress=lambda event: event.step == 4)
    checkpoint = load_options_latest_checkpoint(save_dir)[1]
    before = contents(save_dir, "model.ckpt-*")
    with pytest.raises(TrainingError) as error:
        train_model(
            text, save_dir, OPTIONS | {"learning_rate": 1e38, "all_clip_norm_val": 1e30},
            restart_ckpt_file=checkpoint,
        )  # fmt: skip
    message = str(error.value)
    assert "the loss is nan" in message or "the loss is inf" in message
    assert f"the last checkpoint is {checkpoint}." in message
    assert contents(save_dir, "model.ckpt-*") == before
