"""The progress display of long jobs."""

from __future__ import annotations

import dataclasses
import io
import re

import numpy as np
import pytest

from bilm.cli.training_run import training_display
from bilm.progress import ProgressDisplay, Stage, counted, duration
from bilm.training import Perplexity, RunState


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that tests set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log():
    return io.StringIO()


def test_a_log_has_few_lines_and_the_last_state(log, clock):
    with ProgressDisplay(log, clock) as display:
        for second in range(46):
            clock.now = float(second)
            display.show(Stage("reading", second, None, "files"))
    assert log.getvalue().splitlines() == [
        "reading 0 files",
        "reading 20 files  1 files/s",
        "reading 40 files  1 files/s",
        "reading 45 files  1 files/s",
    ]


def test_a_rate_below_one_is_not_zero(log, clock):
    with ProgressDisplay(log, clock) as display:
        for clock.now, done in ((0.0, 0), (20.0, 4)):
            display.show(Stage("probing", done, None, "probes"))
    assert log.getvalue().splitlines()[-1] == "probing 4 probes  0.2 probes/s"


def test_steps_of_a_job_have_their_own_rate_and_time(log, clock):
    with ProgressDisplay(log, clock) as display:
        for now, stage in [
            (0, ("counting", 0, 400_000_000, "bytes")),
            (20, ("counting", 100_000_000, 400_000_000, "bytes")),
            (80, ("counting", 400_000_000, 400_000_000, "bytes")),
            (81, ("counting", 400_000_000, 400_000_000, "bytes")),
            (120, ("merging", 1_000_000, None, "words")),
            (140, ("writing", 0, 9_000_000, "bytes")),
            (160, ("writing", 3_000_000, 9_000_000, "bytes")),
            (170, ("writing", 4_500_000, 9_000_000, "bytes")),
        ]:
            clock.now = float(now)
            display.show(Stage(*stage))
    assert log.getvalue().splitlines() == [
        "counting 0/400 MB",
        "counting 100/400 MB  1 min 00 s left  5.0 MB/s",
        "counting 400/400 MB  5.0 MB/s",
        "merging 1,000,000 words",
        "writing 0/9,000 kB",
        "writing 3,000/9,000 kB  40 s left  0.1 MB/s",
        "writing 4,500/9,000 kB  30 s left  0.1 MB/s",
    ]


def test_the_rate_includes_the_time_of_the_first_item(log, clock):
    """As where all sentences of a window are computed before the first is returned."""

    def items():
        for number in range(400):
            clock.now = 8.0 + number / 1000
            yield number

    with ProgressDisplay(log, clock) as display:
        found = [*counted(items(), display.show, "scoring", 400, "pairs")]
    assert found == [*range(400)]
    assert log.getvalue().splitlines()[-1] == "scoring 400/400 pairs  48 pairs/s"


def test_nothing_is_written_where_nothing_was_done(log, clock):
    with ProgressDisplay(log, clock):
        pass
    with ProgressDisplay(log, clock, quiet=True) as display:
        display.show(Stage("reading", 1, 1))
    assert log.getvalue() == ""


def test_a_terminal_is_left_as_it_was(clock, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with pytest.raises(KeyboardInterrupt), ProgressDisplay(terminal, clock) as display:
        display.show(Stage("step", 1, 100, "", "a long line " * 20))
        display.note("[a line] that stays")
        raise KeyboardInterrupt
    shown = terminal.getvalue()
    assert "step 1/100  a long line" in shown and "…" in shown
    assert "[a line] that stays\n" in shown
    # The hidden cursor is shown again.
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert capsys.readouterr().out == ""


def test_many_updates_of_a_finished_step_are_few_lines(log, clock):
    """As with a text of empty lines, where 0 of 0 tokens are done."""
    with ProgressDisplay(log, clock) as display:
        for number in range(20_000):
            clock.now = number / 1000
            display.show(Stage("embedding", 0, 0, "tokens", f"{number + 1:,} sentences"))
    assert log.getvalue().splitlines() == [
        "embedding 0/0 tokens  1 sentences",
        "embedding 0/0 tokens  20,000 sentences",
    ]


def last_line(terminal: Terminal) -> str:
    """The last progress line on the terminal, without colours."""
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    return re.split(r"[\r\n]+", shown.strip())[-1].strip()


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (120, "━╺━━━━━━━━━━ step 2,900/29,000  9 h 24 min left  perplexity 12,345.6 (sampled)  "
              "10,000 tokens/s  epoch 1"),
        (91, "step 2,900/29,000  9 h 24 min left  perplexity 12,345.6 (sampled)  10,000 tokens/s  "
             "epoch 1"),
        (66, "step 2,900/29,000  9 h 24 min left  perplexity 12,345.6 (sampled)…"),
    ],
)  # fmt: skip
def test_the_time_left_fits_the_terminal(clock, monkeypatch, width, expected):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with ProgressDisplay(terminal, clock) as display:
        show = training_display(display, sampled=True)
        for step in range(0, 2901, 100):
            clock.now = seconds = step * 1.2966
            show(at(step, 29_000, round(seconds * 10_000), seconds, 12345.6))
    assert last_line(terminal) == expected


def test_a_terminal_that_cannot_move_its_cursor_is_written_to_as_a_log(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    with ProgressDisplay(terminal, clock) as display:
        display.show(Stage("step", 1, 100, ""))
        display.note("a note")
    assert terminal.getvalue() == "step 1/100\na note\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3600, "1 h 00 min"),
     (86400, "1 d 00 h")],
)  # fmt: skip
def test_duration(seconds, text):
    assert duration(seconds) == text


def at(step, total_steps, tokens, seconds, perplexity=1234.56, heldout=None, best_step=None):
    """A record after a step of 10 tokens."""
    return RunState(
        (1, 10), step=step, position=10 * step, end=10 * total_steps, run_seconds=seconds,
        perplexity=perplexity, best_step=best_step, n_train_tokens=10**9,
        before=(0, 10 * step - tokens, 0.0), heldout=[] if heldout is None else [(step, heldout)],
    )  # fmt: skip


def test_training_is_measured_from_the_second_step(log, clock):
    with ProgressDisplay(log, clock) as display:
        show = training_display(display, sampled=True)
        heldout = Perplexity.of_losses(7 * np.log([100.0, 64.0]), 7)
        for step, tokens, seconds, more in (
            (1, 100, 10.0, {}),  # it compiles
            (11, 1100, 30.0, {}),
            (1000, 100000, 1010.0, {"heldout": heldout, "best_step": 1000}),
        ):
            clock.now = seconds
            show(at(step, 1000, tokens, seconds, **more))
    assert log.getvalue().splitlines() == [
        "step 1/1,000  perplexity 1,234.6 (sampled)  epoch 1",
        "step 11/1,000  32 min 58 s left  perplexity 1,234.6 (sampled)  50 tokens/s  epoch 1",
        "step 1,000/1,000  perplexity 1,234.6 (sampled)  100 tokens/s  epoch 1",
        "step 1,000: held-out perplexity 80.0 (forward 100.0, backward 64.0), the best so far",
    ]


def test_a_run_by_time_shows_its_time(log, clock):
    state = dataclasses.replace(at(5, 1000, 100, 1.0), end=None, time_limit=100.0, elapsed=25.0)
    with ProgressDisplay(log, clock) as display:
        training_display(display, sampled=False)(state)
    assert log.getvalue() == "step 5  1 min 15 s left  perplexity 1,234.6  epoch 1\n"
