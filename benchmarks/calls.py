"""Row: `ELMo.encode` called again and again with few sentences, beside one call with all."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.effort import Effort
from benchmarks.results import Figure, Measured
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
    """Tokens a second."""

    processor: float
    clock: float


class _Pair(NamedTuple):
    """Of calls, and of one call with the same text."""

    calls: _Rate
    one_call: _Rate

    def described(self) -> dict[str, dict[str, float]]:
        """As JSON has it."""
        return {"calls": self.calls._asdict(), "one call": self.one_call._asdict()}


class _Halves(NamedTuple):
    """A text: calls read the first half until nothing more is compiled, and then the second one,
    whose new words are then a text's own share."""

    first: _Sentences
    second: _Sentences


def small_calls(workspace: Workspace, effort: Effort) -> Measured:
    """Tokens a second of calls of some sizes, over those of one call with the same text, by
    processor time and by the clock, after what is needed has been compiled."""
    text = workspace.text(effort.pick(200_000, 60_000, 4_000))
    _, options_file, weight_file = workspace.network(effort.preset("small"))
    files = (str(options_file), str(weight_file))
    sentences = [line.split() for line in read_lines(text.path)]
    middle = len(sentences) // 2
    halves = _Halves(sentences[:middle], sentences[middle:])
    figures, details = [], {}
    with counted_functions() as traces:
        for size, wanted in _SIZES.items():
            found = _rates(files, halves, size, traces)
            details[size] = {kind: pair.described() for kind, pair in found.items()}
            for (kind, pair), least in zip(found.items(), wanted, strict=True):
                name = f"calls of {size}, {kind} words: of one call"
                share = pair.calls.processor / pair.one_call.processor
                figures.append(Figure(name, share, "", least, at_most=False))
                by_clock = pair.calls.clock / pair.one_call.clock
                figures.append(Figure(f"{name}, by the clock", by_clock, ""))
        figures += _short_text(files, sentences, found["new"].one_call)
    return Measured(figures=tuple(figures), details={"tokens_per_second": details})


def _rates(
    files: tuple[str, str], halves: _Halves, size: int, traces: Counter[str]
) -> dict[str, _Pair]:
    """The rates of calls of `size` sentences and of one call, with known words, the better one of
    two passes, and with new ones. The two kinds of call take turns, as the machine may change."""
    calls, one_call = _Model(files), _Model(files)
    first, second = (half[: size * _CALLS] for half in halves)
    whole = len(halves.second)
    for model in (one_call, calls):
        model.rate(halves.first, len(halves.first))
    for _ in range(_PASSES):
        before = traces.total()
        calls.rate(first, size)
        if traces.total() == before:
            break
    passes = [
        _Pair(calls.rate(second, size), one_call.rate(halves.second, whole)) for _ in range(3)
    ]
    new, *known = passes
    return {"known": _Pair(*(max(rates) for rates in zip(*known, strict=True))), "new": new}


def _short_text(files: tuple[str, str], sentences: _Sentences, steady: _Rate) -> list[Figure]:
    """A short text, for which much is traced: its time over that of its tokens at a steady rate."""
    ends = itertools.accumulate(map(len, sentences))
    short = [s for s, end in zip(sentences, ends, strict=True) if end <= _SHORT]
    rate = _Model(files).rate(short, len(short))
    name = f"a first text of {sum(map(len, short)):,} tokens: times"
    return [
        Figure(name, steady.processor / rate.processor, "", 1.5),
        Figure(f"{name}, by the clock", steady.clock / rate.clock, ""),
    ]


class _Model:
    """A model of which nothing has been traced."""

    def __init__(self, files: tuple[str, str]) -> None:
        from bilm import ELMo

        self._elmo: Any = ELMo.from_pretrained(files)

    def rate(self, sentences: _Sentences, size: int) -> _Rate:
        """That of calls of `size` sentences."""
        processor, clock = time.process_time(), time.perf_counter()
        for first in range(0, len(sentences), size):
            self._elmo.encode(sentences[first : first + size])
        n_tokens = sum(map(len, sentences))
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        return _Rate(n_tokens / processor, n_tokens / clock)
