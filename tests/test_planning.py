"""The length of a run, chosen from the size of the text or a time budget."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bilm.cli import main
from bilm.core.errors import InputError
from bilm.core.options import Options, preset
from bilm.intervals import parse_duration
from bilm.training.planning import choose_length
from tests.command_line import make_text, train_arguments
from tests.small_runs import small_options, train, write_corpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30min", 1800),
        ("2h", 7200),
        ("1.5 days", 129600),
        (" 10 minutes ", 600),
        ("5mins", 300),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["30", "min", "0h", "-3min", "", None, 30])
def test_what_is_not_a_duration(text):
    with pytest.raises(InputError, match="time must be a duration such as 30min or 2h, got"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("n_tokens", "given", "passes", "dropout"),
    [
        (1_000_000, {}, 10, 0.2),
        (5_000_000, {}, 3, 0.0),
        (4_000_000, {}, 4, 0.1),
        (100_000_000, {}, 1, 0.0),
        (1_000_000, {"n_epochs": 2}, 2, 0.0),
        (1_000_000, {"n_steps": 4500}, None, 0.0),  # 2.9 passes
        (1_000_000, {"n_epochs": 2, "dropout": 0.3}, 2, 0.3),
        (64_000, {"n_steps": 500}, None, 0.1),  # 640 tokens each: five passes
    ],
)
def test_passes_and_dropout_by_the_size_of_the_text(n_tokens, given, passes, dropout):
    values = preset("tiny") | {"n_train_tokens": n_tokens} | given
    chosen = choose_length(Options.from_dict(values, training=True), 640)
    assert (chosen.n_epochs, chosen.dropout) == (passes, dropout)


def test_the_original_recipe_leaves_nothing_open():
    options = Options.from_dict(preset("tiny", "original") | {"n_train_tokens": 9}, training=True)
    assert choose_length(options, 640) == options


@pytest.fixture
def clock(monkeypatch):
    """A fake clock for measuring speed: each step and each compilation takes one second, so at
    most 48 seconds of a minute remain for training steps."""
    seconds = itertools.count().__next__
    monkeypatch.setattr("bilm.training.planning.time", SimpleNamespace(monotonic=seconds))


@pytest.mark.slow
def test_a_budget_of_time_gives_the_number_of_steps(clock, tmp_path):
    """The schedule ends at the last step, options.json has the number of steps, and a resumed run
    keeps it."""
    corpus = write_corpus(tmp_path)
    options = small_options(schedule="linear") | {"n_epochs": None}
    del options["n_train_tokens"]

    def run(options, *checkpoint, stop):
        data = corpus.data(options, shuffle_on_load=True)
        settings = {"time_limit": "1min", "progress": lambda event: event.step == stop}
        record = train(options, data, tmp_path, *checkpoint, **settings)
        stored = json.loads((tmp_path / "model" / "options.json").read_text("utf-8"))
        lines = (tmp_path / "log" / "train_log.jsonl").read_text("utf-8").splitlines()
        return record.checkpoint, stored, [json.loads(line) for line in lines][-1]

    checkpoint, stored, last = run(options, stop=20)
    n_steps = stored["n_steps"]
    assert 20 < n_steps <= 48
    assert last["step"] == 20 and last["learning_rate"] == pytest.approx(0.2 * (1 - 19 / n_steps))
    _, again, last = run(stored, checkpoint, stop=None)
    assert again == stored
    assert last["step"] == n_steps and last["learning_rate"] == pytest.approx(0.2 / n_steps)


def test_a_budget_that_is_too_short(tmp_path):
    corpus = write_corpus(tmp_path)
    options = small_options()
    with pytest.raises(InputError, match="time must allow at least 20 steps; here compiling"):
        train(options, corpus.data(options), tmp_path, time_limit="0.01s")


def test_the_bias_starts_at_unigram_frequencies(tmp_path):
    corpus = write_corpus(tmp_path)
    options = small_options(softmax_bias="unigram") | {"learning_rate": 1e-30}
    record = train(options, corpus.data(options), tmp_path)

    read = tf.train.load_checkpoint(record.checkpoint).get_tensor("lm/softmax/b")
    words = ["<S>", "</S>", "<UNK>", *corpus.data(options).vocab.words[3:]]
    counts = dict.fromkeys(words, 0.5)
    for sentence in corpus.sentences:
        for word in sentence:
            counts[word if word in counts else "<UNK>"] += 1
        counts["<S>"] += 1
        counts["</S>"] += 1
    total = math.fsum(counts.values())
    expected = [math.log(counts[word] / total) for word in words]
    np.testing.assert_allclose(read, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_timed_run_resumes_with_its_number_of_steps(clock, tmp_path: Path, capsys):
    text = make_text(tmp_path)
    arguments = train_arguments(text, str(tmp_path / "model"), "--batch_size=4", "--time=1min")
    assert main(arguments) == 0
    stored = json.loads((tmp_path / "model" / "options.json").read_text("utf-8"))
    capsys.readouterr()
    assert main(arguments) == 0  # all steps are done: nothing is measured again
    again = json.loads((tmp_path / "model" / "options.json").read_text("utf-8"))
    assert again == stored and 20 < stored["n_steps"] <= 48
