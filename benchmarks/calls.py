"""Row: `ELMo.encode` called again and again with few sentences, beside one call with all."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.effort import Effort
from benchmarks.results import Figure, Measured
from benchmarks.workspace import Workspace
from bilm.files import read_lines

# Sentences of a call, with the shares of the steady rate that are wanted, with words that are known
# and with a text's own share of new ones.
_SIZES = {256: (0.95, 0.85), 64: (0.8, 0.65)}
_SHORT = 20_000


def small_calls(workspace: Workspace, effort: Effort) -> Measured:
    """Tokens a processor second of calls of some sizes, over those of one call with the same text.

    New words: each size goes on in a text that has been read up to its middle in such calls, so
    that what calls of that size need has been compiled.
    """
    text = workspace.text(effort.pick(200_000, 60_000, 4_000))
    _, options_file, weight_file = workspace.network(effort.preset("small"))
    files = (str(options_file), str(weight_file))
    sentences = [line.split() for line in read_lines(text.path)]
    middle = len(sentences) // 2
    steady = _Model(files)
    steady.rate(sentences[:middle], middle)
    new = steady.rate(sentences[middle:], len(sentences))
    known = steady.rate(sentences, len(sentences))
    rates: dict[str, float] = {"one call, known words": known, "one call, new words": new}
    figures = []
    for size, wanted in _SIZES.items():
        model = _Model(files)
        model.rate(sentences[:middle], size)
        of_new = model.rate(sentences[middle:], size)
        of_known = model.rate(sentences, size)
        of_known = max(of_known, model.rate(sentences, size))
        pairs = (("known", of_known, known, wanted[0]), ("new", of_new, new, wanted[1]))
        for kind, rate, of_one, least in pairs:
            name = f"calls of {size}, {kind} words"
            rates[name] = rate
            figures.append(Figure(f"{name}: of one call", rate / of_one, "", least, at_most=False))
    figures.append(_short_text(files, sentences, new))
    return Measured(figures=tuple(figures), details={"tokens_per_processor_second": rates})


def _short_text(files: tuple[str, str], sentences: Sequence[list[str]], steady: float) -> Figure:
    """A short text, for which much is traced: its time over that of its tokens at a steady rate."""
    ends = itertools.accumulate(map(len, sentences))
    short = [s for s, end in zip(sentences, ends, strict=True) if end <= _SHORT]
    rate = _Model(files).rate(short, len(short))
    n_tokens = sum(map(len, short))
    return Figure(f"a first text of {n_tokens:,} tokens: times", steady / rate, "", 1.5)


class _Model:
    """A model of which nothing has been traced."""

    def __init__(self, files: tuple[str, str]) -> None:
        from bilm import ELMo

        self._elmo: Any = ELMo.from_pretrained(files)

    def rate(self, sentences: Sequence[list[str]], size: int) -> float:
        """Tokens a processor second, in calls of `size` sentences."""
        start = time.process_time()
        for first in range(0, len(sentences), size):
            self._elmo.encode(sentences[first : first + size])
        return sum(map(len, sentences)) / (time.process_time() - start)
