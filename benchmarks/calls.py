"""Rows: many calls of `ELMo.encode` with few sentences, and calls with one sentence."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.results import Effort, Figure, Measured
from benchmarks.traces import counted_functions
from benchmarks.workspace import Workspace
from bilm.files.reading import read_lines

# Sentences per call, and the required proportion of the single call's rate: for known words, and
# for text with its usual proportion of new words. None: no goal.
_SIZES: dict[int, tuple[float | None, float | None]] = {
    1024: (None, None),
    256: (0.95, 0.85),
    64: (0.8, 0.65),
    8: (None, None),
    1: (None, None),
}
# At most this many calls are measured, after at most this many passes to compile everything.
_CALLS, _PASSES = 150, 8
_SHORT = 20_000

_Sentences = Sequence[list[str]]


class _Rate(NamedTuple):
    """Tokens per second of CPU time and of wall-clock time."""

    processor: float
    clock: float


def small_calls(workspace: Workspace, effort: Effort) -> Measured:
    """Tokens per second of calls of several sizes, relative to one call with the same text, once
    everything needed has been compiled; for CPU time and for wall-clock time."""
    text = workspace.text(effort.pick(200_000, 60_000, 4_000))
    _, options_file, weight_file = workspace.network(effort.preset("small"))
    files = (str(options_file), str(weight_file))
    sentences = [line.split() for line in read_lines(text.path)]
    figures: list[Figure] = []
    with counted_functions() as traces:
        for size, wanted in _SIZES.items():
            found = _rates(files, sentences, size, traces)
            for (kind, (calls, steady)), least in zip(found.items(), wanted, strict=True):
                name = f"calls of {size}, {kind} words: relative to one call"
                share = calls.processor / steady.processor
                figures.append(Figure(name, share, "", least, at_most=False))
                by_clock = calls.clock / steady.clock
                figures.append(Figure(f"{name}, wall-clock", by_clock, ""))
    # A short first text, dominated by tracing: its time relative to its time at the steady rate.
    ends = itertools.accumulate(map(len, sentences))
    short = [s for s, end in zip(sentences, ends, strict=True) if end <= _SHORT]
    rate = _Model(files).rate(short, len(short))
    name = f"a first text of {sum(map(len, short)):,} tokens: time relative to steady"
    figures.append(Figure(name, steady.processor / rate.processor, "", 1.5))
    figures.append(Figure(f"{name}, wall-clock", steady.clock / rate.clock, ""))
    return Measured(figures=figures)


def _rates(
    files: tuple[str, str], sentences: _Sentences, size: int, traces: Counter[str]
) -> dict[str, tuple[_Rate, _Rate]]:
    """Rates of calls of `size` sentences and of one call, with known and with new words.

    Calls read the first half of the text until nothing more is compiled, then the second half,
    which has a text's usual proportion of new words. The same half is read twice more for the
    rates with known words; the better one counts. The two kinds of call alternate, because the
    machine's speed may change.
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
    """A newly loaded model, with nothing traced yet."""

    def __init__(self, files: tuple[str, str]) -> None:
        from bilm import ELMo

        self._elmo: Any = ELMo.from_pretrained(files)

    def rate(self, sentences: _Sentences, size: int) -> _Rate:
        """Rate of encoding in calls of `size` sentences."""
        processor, clock = time.process_time(), time.perf_counter()
        for first in range(0, len(sentences), size):
            self._elmo.encode(sentences[first : first + size])
        n_tokens = sum(map(len, sentences))
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        return _Rate(n_tokens / processor, n_tokens / clock)


def one_sentence(workspace: Workspace, effort: Effort) -> Measured:
    """Median milliseconds to encode one sentence of 20 words, which the model has read before or
    not; and for the layers that take ids and text, called directly."""
    _, options_file, weight_file = workspace.network(effort.preset("small"))
    from bilm import Batcher, BidirectionalLanguageModel, ELMoEmbedding, Pretrained

    model = Pretrained((str(options_file), str(weight_file))).load(softmax=False)
    elmo, text = model.elmo, ELMoEmbedding.from_pretrained(model)
    ids, batcher = BidirectionalLanguageModel.from_pretrained(model), Batcher(None, 50)
    n_calls = effort.pick(100, 30, 2)

    def milliseconds(
        sentences: Sequence[list[str]], compute: Callable[[Any], Any] = elmo.encode
    ) -> float:
        seconds = []
        for sentence in sentences:
            start = time.perf_counter()
            compute([sentence])
            seconds.append(time.perf_counter() - start)
        return 1000 * statistics.median(seconds[1 + len(seconds) // 5 :])

    repeated = [[f"word{k}" for k in range(20)]] * n_calls
    new = [[f"word{call}-{k}" for k in range(20)] for call in range(n_calls)]
    return Measured(
        figures=(
            Figure("a sentence of known words", milliseconds(repeated), "ms"),
            Figure("a sentence of new words", milliseconds(new), "ms"),
            Figure(
                "a call of BidirectionalLanguageModel",
                milliseconds(repeated, lambda s: ids(batcher.batch_sentences(s))),
                "ms",
            ),
            Figure("a call of ELMoEmbedding", milliseconds(repeated, text), "ms"),
        )
    )
