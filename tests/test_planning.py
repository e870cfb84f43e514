"""The length of a run, chosen from the size of the text or a time budget."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bilm.cli import main
from bilm.core.errors import InputError
from bilm.core.options import Options, preset
from bilm.data import LMDataset, load_vocab
from bilm.intervals import parse_duration
from bilm.training import loop
from bilm.training.planning import choose_length
from bilm.training.schedule import Plan
from bilm.training.trainer import Trainer
from tests.command_line import input_error, make_text, train_arguments
from tests.compare import assert_same_checkpoint
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


@pytest.mark.parametrize("text", ["30", "0h", 30])
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


class Clock:
    """A clock that a step moves by `step` seconds, and an evaluation by two."""

    now = 0.0

    def __init__(self, step):
        self.step = step

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(lambda n: 1.0)
    run_step, measure, n = Trainer.run_step, loop.evaluate, itertools.count(1)

    def timed_step(*arguments):
        clock.now += clock.step(next(n))
        return run_step(*arguments)

    def timed_evaluation(*arguments, **settings):
        clock.now += 2
        return measure(*arguments, **settings)

    for module in ("loop", "start"):
        monkeypatch.setattr(f"bilm.training.{module}.time", clock)
    monkeypatch.setattr(Trainer, "run_step", timed_step)
    monkeypatch.setattr(loop, "evaluate", timed_evaluation)
    return clock


def by_time(corpus, folder, *checkpoint, stop=None, **settings):
    """A run of a minute, its options.json, and its log."""
    options = small_options(schedule="linear") | {"n_epochs": None}
    settings = {"time_limit": "1min", "progress": lambda record: record.step == stop} | settings
    if settings.pop("heldout", False):
        settings["heldout"] = corpus.data(options, "heldout.txt", test=True)
    data = corpus.data(options, shuffle_on_load=True)
    record = train(options, data, folder, *checkpoint, **settings)
    stored = json.loads((folder / "model" / "options.json").read_text("utf-8"))
    lines = (folder / "log" / "train_log.jsonl").read_text("utf-8").splitlines()
    return record, stored, {line["step"]: line for line in map(json.loads, lines)}


def test_a_run_by_time_uses_its_time(clock, tmp_path):
    """The rate stays until a fifth of the time has passed, and falls to zero at the last step."""
    record, stored, log = by_time(write_corpus(tmp_path), tmp_path)
    assert (record.step, stored["n_steps"], clock.now) == (60, 60, 60.0)
    assert log[10]["learning_rate"] == pytest.approx(0.2)
    assert log[30]["learning_rate"] == pytest.approx(0.2 * (1 - 16 / 47))
    assert log[60]["learning_rate"] == pytest.approx(0.2 / 47)


@pytest.mark.slow
def test_a_busy_beginning_does_not_shorten_a_run_by_time(clock, tmp_path):
    clock.step = lambda n: 3.0 if n < 3 else 1.0  # it compiles, or the machine is busy
    assert by_time(write_corpus(tmp_path), tmp_path)[0].step == 56
    assert clock.now == 60.0


@pytest.mark.slow
@pytest.mark.parametrize("heldout_every", ["1 steps", "5 steps"])
def test_evaluations_are_part_of_a_run_by_time(clock, tmp_path, heldout_every):
    settings = {"heldout": True, "heldout_every": heldout_every}
    by_time(write_corpus(tmp_path), tmp_path, **settings)
    assert 55 <= clock.now <= 62


@pytest.mark.slow
@pytest.mark.parametrize("stop", [8, 20])
def test_a_run_by_time_resumes_bit_for_bit(clock, tmp_path, stop):
    """Before its length is fixed, the time that has passed counts; afterwards, nothing but steps:
    here each takes another time."""
    corpus = write_corpus(tmp_path)
    whole, *_ = by_time(corpus, tmp_path / "whole")
    clock.now = 0.0
    stopped, *_ = by_time(corpus, tmp_path / "again", stop=stop)
    assert stopped.total_steps == (None if stop == 8 else 60)
    clock.now = 1e6
    if stop == 20:
        clock.step = lambda n: 0.1
    again, stored, _ = by_time(corpus, tmp_path / "again", stopped.checkpoint)
    assert stored["n_steps"] == again.step == 60
    if stop == 20:
        assert_same_checkpoint(again.checkpoint, whole.checkpoint)


def test_a_time_that_is_too_short_is_twenty_steps(clock, tmp_path, caplog):
    record, *_ = by_time(write_corpus(tmp_path), tmp_path, time_limit="2s")
    assert record.step == 20 and "too few for a model" in caplog.text


# Changes of a run's length and batches


def test_a_plan_counts_tokens():
    options = Options.from_dict(
        small_options(schedule="linear", warmup_steps=2, n_steps=10), training=True
    )
    plan = Plan.from_options(options, 8)
    rates = [plan.factor("linear", position, 8) for position in range(0, 80, 8)]
    expected = [Plan.with_end(10, 2).factor("linear", step, 1) for step in range(10)]
    assert rates == expected and plan.resumed(options, 40, 16) == plan
    # In batches of twice the size, the rates go on as they were.
    assert [plan.factor("linear", p, 16) for p in range(16, 80, 16)] == expected[2::2]


def test_a_run_that_had_ended_is_made_longer(caplog):
    """The rates rise and fall once more; a run that had not ended falls more slowly."""
    options = Options.from_dict(
        small_options(schedule="linear", warmup_steps=2, n_steps=10), training=True
    )
    plan, longer = Plan.from_options(options, 8), dataclasses.replace(options, n_steps=20)
    again = plan.resumed(longer, 80, 8)
    assert [again.factor("linear", 8 * step, 8) for step in (10, 11, 12, 16, 19)] == [
        0.5, 1.0, 1.0, 0.5, 0.125,
    ]  # fmt: skip
    assert "they rise again in a warm-up of 16 tokens, and fall to zero at 160" in caplog.text
    running = plan.resumed(longer, 40, 8)
    assert running.factor("linear", 40, 8) == Plan.with_end(20, 2).factor("linear", 5, 1)
    assert plan.resumed(dataclasses.replace(options, n_steps=4), 80, 8) == plan


def test_the_first_rate_of_a_warm_up_is_in_the_log(tmp_path):
    corpus, options = write_corpus(tmp_path), small_options(schedule="linear", warmup_steps=2)
    train(options, corpus.data(options), tmp_path)
    line = (tmp_path / "log" / "train_log.jsonl").read_text("utf-8").splitlines()[0]
    assert json.loads(line)["learning_rate"] == pytest.approx(0.1)


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


@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_warning_if_the_vocabulary_is_not_sorted_by_frequency(tmp_path, caplog, is_sorted):
    words = [f"w{k}" for k in range(30)]
    text = "\n".join(" ".join(words[:n]) for n in range(1, 31))  # w0 is the most frequent word
    (tmp_path / "train.txt").write_text(text, encoding="utf-8")
    lines = ["<S>", "</S>", "<UNK>", *(words if is_sorted else reversed(words))]
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    data = LMDataset(tmp_path / "train.txt", load_vocab(tmp_path / "vocab.txt"))
    train(small_options(n_tokens_vocab=33, n_steps=1, sample_softmax=True), data, tmp_path)
    warning = "its first 10 words occur 55 times in the training text, the most frequent ones 255"
    assert ("descending frequency" in caplog.text) == (warning in caplog.text) != is_sorted


@pytest.mark.slow
def test_the_same_command_keeps_the_length_of_a_run_by_time(clock, tmp_path: Path, capsys):
    text = make_text(tmp_path)
    arguments = train_arguments(text, str(tmp_path / "model"), "--batch_size=4", "--time=1min")
    assert main(arguments) == 0
    stored = json.loads((tmp_path / "model" / "options.json").read_text("utf-8"))
    capsys.readouterr()
    assert main(arguments) == 0  # all steps are done
    again = json.loads((tmp_path / "model" / "options.json").read_text("utf-8"))
    assert again == stored and stored["n_steps"] == 60
    error = input_error([*arguments[:-1], "--time=2min"], capsys)
    assert "seconds of --time is 60.0 there, 120.0 here" in error
