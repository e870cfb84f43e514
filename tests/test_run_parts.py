"""The parts of a run that need no training: schedule, interval, standing, log, clock, signals."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from bilm.cli import main
from bilm.data import BidirectionalLMDataset, load_vocab
from bilm.errors import InputError
from bilm.training import Schedule
from bilm.training.best import keep_best
from bilm.training.checkpoint import save_checkpoint
from bilm.training.clock import Clock
from bilm.training.evaluation import Perplexity, exp_of_loss
from bilm.training.interrupts import interrupts, killable
from bilm.training.monitor import Interval, Monitor, Standing
from bilm.training.run_log import RunLog, read_log
from tests.command_line import input_error, make_text

# Schedule


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Schedule(), [1, 1, 1, 1, 1]),
        (Schedule("linear"), [1, 0.8, 0.6, 0.4, 0.2]),
        (Schedule("cosine"), [1, 0.9045085, 0.6545085, 0.3454915, 0.0954915]),
        (Schedule("constant", 2), [0.5, 1, 1, 1, 1]),
        (Schedule("linear", 1), [1, 1, 0.75, 0.5, 0.25]),
        (Schedule("cosine", 9), [1 / 9, 2 / 9, 3 / 9, 4 / 9, 5 / 9]),
    ],
)
def test_factors_of_a_schedule(schedule, factors):
    np.testing.assert_allclose([schedule.factor(step, 5) for step in range(5)], factors, rtol=1e-6)
    assert Schedule.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule


def test_schedules_that_are_none():
    with pytest.raises(InputError, match="one of constant, linear, cosine is expected, not 'up'"):
        Schedule("up")
    with pytest.raises(InputError, match="warmup_steps: a whole number from 0"):
        Schedule("linear", -1)


# Monitor


@pytest.mark.parametrize(
    ("text", "interval", "steps"),
    [
        ("epoch", Interval(1, "epochs"), [4, 8, 12]),
        ("2 epochs", Interval(2, "epochs"), [8]),
        ("5steps", Interval(5, "steps"), [5, 10]),
        ("step", Interval(1, "steps"), list(range(1, 13))),
        ("0.5min", Interval(0.5, "minutes"), []),
    ],
)
def test_intervals(text, interval, steps):
    assert Interval.parse(text) == interval
    assert [step for step in range(13) if interval.falls_on(step, 4)] == steps


@pytest.mark.parametrize("text", ["", "5", "0 steps", "1.5 epochs", "hour", "-1 steps"])
def test_intervals_that_are_none(text):
    with pytest.raises(InputError, match="heldout_every: epoch, 2epochs, 500steps, 30min"):
        Interval.parse(text)


def measured(monkeypatch, values, patience=None, n_predictions=(5, 5, 5, 5)):
    """The standings after each of the measurements."""
    results = iter(
        [
            Perplexity.of_losses(np.log([v, v]) * n, n)
            for v, n in zip(values, n_predictions, strict=False)
        ]
    )
    monkeypatch.setattr("bilm.training.monitor.evaluate", lambda *_, **__: next(results))
    monkeypatch.setattr("bilm.training.monitor.Scorer", lambda model: model)
    monitor, standing = Monitor(None, None, Interval.parse("step"), patience), Standing()
    for step in range(1, len(values) + 1):
        perplexity, standing = monitor.measure(standing, step)
        yield perplexity, standing, monitor.has_enough(standing)


def test_the_best_measurement_and_patience(monkeypatch):
    found = list(measured(monkeypatch, [9.0, 7.0, 8.0, 7.5], patience=2))
    assert [round(float(perplexity), 6) for perplexity, *_ in found] == [9, 7, 8, 7.5]
    assert [(s.best_step, s.since_best) for _, s, _ in found] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert [enough for *_, enough in found] == [False, False, False, True]
    standing = found[-1][1]
    assert standing.best == pytest.approx(7) and standing.measured_at == 4
    assert Standing.from_dict(json.loads(json.dumps(standing.to_dict()))) == standing


def test_another_text_has_another_best(monkeypatch, caplog):
    found = list(measured(monkeypatch, [5.0, 6.0], n_predictions=(5, 9)))
    assert found[-1][1].best == pytest.approx(6) and "another one than before" in caplog.text


def test_patience_that_is_none():
    with pytest.raises(InputError, match="patience: a whole number from 1"):
        Monitor(None, None, Interval.parse("epoch"), 0)


def test_perplexity_of_an_enormous_loss():
    assert exp_of_loss(1e6) == float("inf") and exp_of_loss(0.0) == 1.0


# Log


def test_a_log_goes_back_without_double_or_broken_lines(tmp_path):
    log = RunLog(tmp_path)
    for step in (10, 20, 30):
        log.write(step=step, tokens=step)
    with open(log.path, "a", encoding="utf-8") as file:
        file.write('{"step": 40, "to')
    log.go_back(20)
    log.write(step=30, tokens=31)
    assert read_log(tmp_path) == [
        {"step": s, "tokens": t} for s, t in ((10, 10), (20, 20), (30, 31))
    ]
    log.go_back(0)
    assert not Path(log.path).exists()
    assert len(read_log(tmp_path / "train_log.previous.jsonl")) == 3


def test_a_log_that_is_not_there_or_empty(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no log of a run at"):
        read_log(tmp_path)
    (tmp_path / "train_log.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="no line of a log"):
        read_log(tmp_path)


def test_a_log_that_cannot_be_written(tmp_path):
    log = RunLog(tmp_path)
    Path(log.path).mkdir()
    with pytest.raises(OSError, match=r"train_log.jsonl: cannot be written: "):
        log.write(step=1)


# Checkpoints


def save(folder, step, keep=2):
    return save_checkpoint(folder, step, {"x": np.ones(3, np.float32)}, {}, keep)


def test_later_checkpoints_and_leftovers_go_with_the_next_one(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step)
    (tmp_path / ".model.ckpt-0123.index").write_bytes(b"left by a crash")
    save(tmp_path, 15, keep=1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint", "model.ckpt-15.data-00000-of-00001", "model.ckpt-15.index"]


def test_the_best_checkpoint_outlives_the_others(tmp_path):
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    for step in (10, 20, 30):
        prefix = save(tmp_path, step, keep=1)
        if step < 30:
            best = keep_best(tmp_path, prefix)
    assert best == str(tmp_path / "best" / "model.ckpt-20")
    names = sorted(path.name for path in (tmp_path / "best").iterdir())
    data = "model.ckpt-20.data-00000-of-00001"
    assert names == ["checkpoint", data, "model.ckpt-20.index", "options.json"]
    assert 'model_checkpoint_path: "model.ckpt-20"' in (tmp_path / "best/checkpoint").read_text()


def test_the_best_checkpoint_where_files_cannot_be_linked(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    prefix = save(tmp_path, 10)
    best = keep_best(tmp_path, prefix)
    assert Path(f"{best}.index").read_bytes() == Path(f"{prefix}.index").read_bytes()


# Clock and signals


def test_the_rate_leaves_out_the_first_step_and_pauses():
    now = [100.0]
    clock = Clock(lambda: now[0])

    def step(seconds):
        now[0] += seconds
        return clock.step()

    assert step(20.0) == 20.0 and clock.steps_per_second() is None
    with clock.stopped():
        now[0] += 50.0
    assert [step(2.0), step(2.0)] == [72.0, 74.0]
    assert clock.steps_per_second() == pytest.approx(0.5)
    assert clock.since_save() == 74.0
    clock.saved()
    assert clock.since_save() == 0.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_step(number):
    done = []
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupts() as signals:
        with signals.held():
            os.kill(os.getpid(), number)
            done.append("the step")
        done.append("not this")
    assert done == ["the step"] and not signals.is_torn
    assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait_and_is_told():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts() as signals, signals.held():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the first")
        os.kill(os.getpid(), signal.SIGINT)
        done.append("not this")
    assert done == ["the first"] and signals.is_torn


def test_while_others_are_waited_for_ctrl_c_ends_the_process():
    before = signal.getsignal(signal.SIGINT)
    with killable():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts(), killable():  # ours or an application's stays
        assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL


# Places in a corpus, for people


def test_a_place_is_described_by_file_and_sentence(tmp_path):
    text = make_text(tmp_path)
    vocabulary = load_vocab(text.vocabulary, 12)
    plain = BidirectionalLMDataset(text.training, vocabulary)
    assert plain.describe_state(None) == f"sentence 1 of {tmp_path}/train-0.txt (pass 1)"
    shuffled = BidirectionalLMDataset(text.training, vocabulary, shuffle_on_load=True, seed=4)
    for batch in shuffled.iter_distinct(4, 5):
        assert batch.state is not None
        if batch.state.shard == 3 and batch.state.sentence < 36:
            break
    description = shuffled.describe_state(batch.state)
    assert description.endswith("(pass 2)")
    number, path = description.removeprefix("sentence ").split(" (")[0].split(" of ")
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    # The sentence that is drawn next is the first one of batches that begin anew there.
    following = next(shuffled.iter_distinct(1, 30, state=batch.state.with_batches(1, 30)))
    expected = vocabulary.encode(lines[int(number) - 1])[:-1]
    assert following.streams[0].token_ids[0, : len(expected)].tolist() == expected.tolist()


# Plot


def write_run(folder: Path, sampled: bool = True, heldout: bool = True) -> str:
    log = RunLog(folder)
    for step in range(10, 400, 10):
        log.write(step=step, train_perplexity=900 / step + 50 + step % 7, sampled=sampled,
                  tokens=step * 2560)  # fmt: skip
        if heldout and step % 100 == 0:
            log.write(step=step, heldout_perplexity=2e4 / step + 90, heldout_forward=2e4 / step,
                      heldout_backward=2e4 / step + 180, best=True, tokens=step * 2560)  # fmt: skip
    return str(folder)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plot_draws_runs(ending, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", False, False)]
    out = str(tmp_path / f"curves.{ending}")
    assert main(["plot", *runs, "--out", out]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    beginning = Path(out).read_bytes()[:5]
    assert beginning == (b"\x89PNG\r" if ending == "png" else b"<?xml")


def labels_of(tmp_path, **runs):
    """The entries of the legend of a picture of runs."""
    from bilm.cli.plot import draw

    figure_class = pytest.importorskip("matplotlib.figure").Figure
    folders = {name: write_run(tmp_path / name, **run) for name, run in runs.items()}
    figure = draw(figure_class, {path: read_log(path) for path in folders.values()})
    return [text.get_text() for text in figure.legends[0].get_texts()], figure.axes[0]


def test_the_legend_of_a_run(tmp_path):
    labels, axes = labels_of(tmp_path, only={})
    assert labels == [
        "training, sampled softmax, smoothed",
        "held-out",
        "held-out, forward",
        "held-out, backward",
        "best: 156.7 at step 300",
    ]
    assert axes.get_title() == "only" and axes.get_ylabel() == "perplexity"
    assert axes.get_xlabel() == "training tokens seen"


def test_the_legend_of_two_runs(tmp_path):
    labels, axes = labels_of(tmp_path, a={}, b={"sampled": False, "heldout": False})
    assert labels == [
        "a: training, sampled softmax, smoothed",
        "a: held-out",
        "a: best: 156.7 at step 300",
        "b: training, smoothed",
    ]
    assert axes.get_title() == ""


def test_the_curve_of_a_short_run_is_that_of_its_points(tmp_path):
    log = RunLog(tmp_path / "short")
    for step, perplexity in ((1, 50.0), (10, 40.0), (20, 20.0)):
        log.write(step=step, train_perplexity=perplexity, sampled=False, tokens=step)
    from bilm.cli.plot import draw

    figure_class = pytest.importorskip("matplotlib.figure").Figure
    axes = draw(figure_class, {"short": read_log(tmp_path / "short")}).axes[0]
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), [50, 40, 20])
    assert line.get_label() == "training"


def test_what_cannot_be_plotted(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    error = input_error(["plot", str(tmp_path), "--out", str(tmp_path / "x.png")], capsys)
    assert "There is no log of a run at" in error
    error = input_error(["plot", str(tmp_path), "--out", "curves.txt"], capsys)
    assert "curves.txt: a file name that ends in .png, .pdf, .svg is expected" in error


def test_extras_that_are_missing_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    error = input_error(["plot", write_run(tmp_path)], capsys)
    assert "bilm plot needs the package matplotlib: `pip install matplotlib`" in error
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    from bilm.training.tensorboard import TensorBoardLog

    with pytest.raises(InputError, match="tensorboard: the package is not installed; `pip install"):
        TensorBoardLog(tmp_path)
