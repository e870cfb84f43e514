"""What a long job shows of its progress."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from bilm.cli.progress import ProgressLine, TrainingLine, duration


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass by call."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_progress_line_in_a_log_is_sparse():
    stream = io.StringIO()
    line = ProgressLine(stream, Clock(1.0))
    for number in range(1, 46):
        line.show(f"line {number}", last=number == 45)
    assert stream.getvalue() == "line 1\nline 21\nline 41\nline 45\n"


def test_progress_line_on_a_terminal_renews_itself():
    stream = Terminal()
    line = ProgressLine(stream, Clock(0.15))
    for text in ("a long line", "passed over", "short"):
        line.show(text)
    line.close()
    line.close()
    assert stream.getvalue() == "\ra long line\rshort      \n"


def test_progress_line_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    ProgressLine(stream).show("as long as it would wrap around")
    assert stream.getvalue() == "\ras long as it would"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3600, "1 h 00 min"),
     (86400, "1 d 00 h")],
)  # fmt: skip
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_training_line_measures_from_the_second_event():
    stream = io.StringIO()
    show = TrainingLine(ProgressLine(stream, Clock(30.0)), sampled=True)

    def event(step: int, tokens: int, seconds: float) -> SimpleNamespace:
        return SimpleNamespace(
            step=step,
            n_steps=1000,
            epoch=1,
            perplexity=1234.56,
            tokens=tokens,
            seconds=seconds,
            heldout=None,
        )

    show(event(1, 100, 10.0))  # the first step compiles
    show(event(11, 1100, 12.0))
    show(event(1000, 100000, 1010.0))
    assert stream.getvalue().splitlines() == [
        "step 1/1,000  epoch 1  perplexity 1,234.6 (sampled)",
        "step 11/1,000  epoch 1  500 tokens/s  3 min 18 s left  perplexity 1,234.6 (sampled)",
        "step 1,000/1,000  epoch 1  100 tokens/s  0 s left  perplexity 1,234.6 (sampled)",
    ]
