"""The length of a run, chosen from the size of the text or a time budget."""

from __future__ import annotations

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
from bilm.data import LMDataset, load_vocab
from bilm.progress import parse_duration
from bilm.training.state import RunState, choose_length
from bilm.training.trainer import Trainer
from tests.command_line import input_error, make_text, train_arguments
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


@pytest.fixture
def clock(monkeypatch):
    """A clock that a step moves by one second."""
    fake = SimpleNamespace(now=0.0, monotonic=lambda: fake.now)
    run_step = Trainer.run_step

    def timed_step(*arguments):
        fake.now += 1
        return run_step(*arguments)

    for module in ("loop", "start"):
        monkeypatch.setattr(f"bilm.training.{module}.time", fake)
    monkeypatch.setattr(Trainer, "run_step", timed_step)
    return fake


def by_time(corpus, folder, *checkpoint, stop=None, **changes):
    """A run of a minute, its options.json, and its log."""
    options = small_options(schedule="linear", warmup_steps=5, n_steps=7) | changes
    data = corpus.data(options, shuffle_on_load=True)
    settings = {"time_limit": "1min", "progress": lambda state: state.step == stop}
    state = train(options, data, folder, *checkpoint, **settings)
    stored = json.loads((folder / "model" / "options.json").read_text("utf-8"))
    lines = (folder / "log" / "train_log.jsonl").read_text("utf-8").splitlines()
    return state, stored, {line["step"]: line for line in map(json.loads, lines)}


def test_a_run_by_time_uses_its_time(clock, tmp_path):
    """A step follows the time at the beginning of the step before it, from the second step on."""
    state, stored, log = by_time(write_corpus(tmp_path), tmp_path)
    assert (state.step, state.total_steps, clock.now) == (61, 61, 61.0)
    assert (stored["n_epochs"], "n_steps" in stored) == (None, False)
    share = (28 - 1) / (60 - 1)
    assert log[30]["learning_rate"] == pytest.approx(0.2 * (1 - (share - 0.05) / 0.95))
    assert log[1]["learning_rate"] == pytest.approx(0.002)
    assert log[61]["learning_rate"] == pytest.approx(0.2 / 0.95 / 59)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 8, 40])
def test_a_run_by_time_is_resumed_with_the_rest_of_its_time(clock, tmp_path, stop):
    corpus = write_corpus(tmp_path)
    stopped, *_ = by_time(corpus, tmp_path, stop=stop)
    clock.now = 1e6
    state, *_ = by_time(corpus, tmp_path, stopped.checkpoint)
    assert 60 <= state.step <= 62 and state.n_steps == state.step - stop
    again, *_ = by_time(corpus, tmp_path, state.checkpoint)
    assert again.n_steps == 0


@pytest.mark.parametrize(("n_train_tokens", "dropout"), [(160, 0.1), (9999, 0.0)])
def test_the_dropout_of_a_run_by_time_follows_its_passes(clock, tmp_path, n_train_tokens, dropout):
    changes = {"dropout": None, "n_train_tokens": n_train_tokens}
    state, stored, _ = by_time(write_corpus(tmp_path), tmp_path, stop=11, **changes)
    assert stored["dropout"] == dropout and state.n_train_tokens == n_train_tokens


def test_a_run_by_time_is_described_before_its_dropout_is_chosen(clock, tmp_path, capsys):
    by_time(write_corpus(tmp_path), tmp_path, stop=2, dropout=None)
    assert main(["info", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr().out
    assert "; time limit 60; " in printed and "dropout" not in printed


# Changes of a run's length and batches


def run_of_ten_steps(**changes):
    state = RunState((1, 8))
    state.set_length(ten_steps(**changes))
    return state


def ten_steps(**changes):
    values = {"schedule": "linear", "warmup_steps": 2, "n_steps": 10} | changes
    return Options.from_dict(small_options(**values), training=True)


def factors(state, positions):
    computed = []
    for state.position in positions:
        computed.append(state.rate_factor("linear"))
    return computed


def test_a_length_counts_tokens():
    state = run_of_ten_steps()
    expected = [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    assert factors(state, range(0, 80, 8)) == expected
    # In batches of twice the size, the rates continue.
    state.position, state.batch_shape = 40, (2, 8)
    state.change_length(ten_steps())
    assert factors(state, range(16, 80, 16)) == expected[2::2]


def test_a_finished_run_is_made_longer(caplog):
    """The rates rise and fall once more; a running run falls more slowly."""
    state = run_of_ten_steps()
    state.position = 80
    state.change_length(ten_steps(n_steps=20))
    steps = (10, 11, 12, 16, 19)
    assert factors(state, [8 * step for step in steps]) == [0.5, 1.0, 1.0, 0.5, 0.125]
    assert "they rise again in a warm-up of 16 tokens, and fall to zero at 160" in caplog.text
    state = run_of_ten_steps()
    state.position = 40
    state.change_length(ten_steps(n_steps=20))
    assert factors(state, [40]) == factors(run_of_ten_steps(n_steps=20), [40])
    state = run_of_ten_steps()
    state.position = 80
    state.change_length(ten_steps(n_steps=4))
    assert state.end == 80


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
    options = json.loads(Path(text.options).read_text("utf-8")) | {"n_steps": 7}
    Path(text.options).write_text(json.dumps(options), "utf-8")
    arguments = train_arguments(text, str(tmp_path / "model"), "--batch_size=4", "--time=30s")
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("all steps of this run are done; ")
    error = input_error([*arguments[:-1], "--time=2min"], capsys)
    assert "seconds of --time is 30.0 there, 120.0 here" in error
    assert main(["info", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr().out
    assert "; time limit 30; " in printed and "; dropout 0.1; " in printed
    # `restart` can extend it by passes.
    more = ["--train_prefix", text.training, "--n_epochs", "2"]
    assert main(["restart", "--save_dir", str(tmp_path / "model"), *more]) == 0
    assert "trained 19 steps; " in capsys.readouterr().out
