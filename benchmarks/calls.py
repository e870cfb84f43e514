"""Row: `ELMo.encode` called again and again with few sentences, beside one call with all."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.results import Effort, Figure, Measured
from benchmarks.traces import counted_functions
from benchmarks.workspace import Workspace
from bilm.files.reading import read_lines

# Sentences of a call, with the shares of the steady rate that are wanted, with words that are known
# and with a text's own share of new ones.
_SIZES: dict[int, tuple[float | None, float | None]] = {
    1024: (None, None),
    256: (0.95, 0.85),
    64: (0.8, 0.65),
    8: (None, None),
    1: (None, None),
}
# Calls that are measured, at most; and passes over a text until nothing more is compiled.
_CALLS, _PASSES = 150, 8
_SHORT = 20_000

_Sentences = Sequence[list[str]]


class _Rate(NamedTuple):
    """Tokens a second, by processor time and by the clock."""

    processor: float
    clock: float


def small_calls(workspace: Workspace, effort: Effort) -> Measured:
    """Tokens a second of calls of some sizes, over those of one call with the same text, by
    processor time and by the clock, after what is needed has been compiled."""
    text = workspace.text(effort.pick(200_000, 60_000, 4_000))
    _, options_file, weight_file = workspace.network(effort.preset("small"))
    files = (str(options_file), str(weight_file))
    sentences = [line.split() for line in read_lines(text.path)]
    figures: list[Figure] = []
    with counted_functions() as traces:
        for size, wanted in _SIZES.items():
            found = _rates(files, sentences, size, traces)
            for (kind, (calls, steady)), least in zip(found.items(), wanted, strict=True):
                name = f"calls of {size}, {kind} words: of one call"
                share = calls.processor / steady.processor
                figures.append(Figure(name, share, "", least, at_most=False))
                by_clock = calls.clock / steady.clock
                figures.append(Figure(f"{name}, by the clock", by_clock, ""))
    # A short text, which needs much tracing: its time divided by its time at the steady rate.
    ends = itertools.accumulate(map(len, sentences))
    short = [s for s, end in zip(sentences, ends, strict=True) if end <= _SHORT]
    rate = _Model(files).rate(short, len(short))
    name = f"a first text of {sum(map(len, short)):,} tokens: times"
    figures.append(Figure(name, steady.processor / rate.processor, "", 1.5))
    figures.append(Figure(f"{name}, by the clock", steady.clock / rate.clock, ""))
    return Measured(figures=figures)


def _rates(
    files: tuple[str, str], sentences: _Sentences, size: int, traces: Counter[str]
) -> dict[str, tuple[_Rate, _Rate]]:
    """The rates of calls of `size` sentences and of one call, with known words, the better one of
    two passes, and with new ones. The two kinds of call take turns, as the machine may change.

    Calls read the first half of the text until nothing more is compiled, and then the second one,
    whose new words are then a text's own share.
    """
    calls, one_call = _Model(files), _Model(files)
    first, second = sentences[: len(sentences) // 2], sentences[len(sentences) // 2 :]
    for model in (one_call, calls):
        model.rate(first, len(first))
    n_most = size * _CALLS
    for _ in range(_PASSES):
        before = traces.total()
        calls.rate(first[:n_most], size)
        if traces.total() == before:
            break
    new, *known = [
        (calls.rate(second[:n_most], size), one_call.rate(second, len(second))) for _ in range(3)
    ]
    of_calls, of_one_call = zip(*known, strict=True)
    return {"known": (max(of_calls), max(of_one_call)), "new": new}


class _Model:
    """A model of which nothing has been traced."""

    def __init__(self, files: tuple[str, str]) -> None:
        from bilm import ELMo

        self._elmo: Any = ELMo.from_pretrained(files)

    def rate(self, sentences: _Sentences, size: int) -> _Rate:
        """The rate of calls of `size` sentences."""
        processor, clock = time.process_time(), time.perf_counter()
        for first in range(0, len(sentences), size):
            self._elmo.encode(sentences[first : first + size])
        n_tokens = sum(map(len, sentences))
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        return _Rate(n_tokens / processor, n_tokens / clock)
