"""Row: minimal pairs per second."""

from __future__ import annotations

import dataclasses
import time

from benchmarks.results import Effort, Figure, Measured
from benchmarks.workspace import VOCABULARY, Workspace
from bilm.files.reading import read_lines

_WORDS, _WARM_UP = 10, 300


def score_pairs(workspace: Workspace, effort: Effort) -> Measured:
    """Score pairs of sentences of 10 words that differ in one word, with a `base` model."""
    from bilm import Predictor, UnicodeCharsVocabulary
    from bilm.training import LanguageModel
    from bilm.use import minimal_pairs

    options, _, _ = workspace.network(effort.preset("base"))
    options = dataclasses.replace(options, n_tokens_vocab=VOCABULARY)
    text = workspace.text(effort.pick(200_000, 60_000, 4_000))
    lines = [words for line in read_lines(text.path) if len(words := line.split()) > _WORDS]
    # The bad sentence has another word in the middle, as most pairs of BLiMP do.
    middle = _WORDS // 2
    pairs = [
        minimal_pairs.MinimalPair(
            " ".join(words[:_WORDS]),
            " ".join([*words[:middle], words[_WORDS], *words[middle + 1 : _WORDS]]),
        )
        for words in lines[: effort.pick(5000, 1500, 20)]
    ]
    vocabulary = UnicodeCharsVocabulary(workspace.vocabulary(), 50)
    figures = []
    for precision in ("float32", "bfloat16"):
        model = LanguageModel(options, is_training=False, seed=0, precision=precision)
        predictor = Predictor(model, vocabulary)
        list(minimal_pairs.score_pairs(predictor, pairs[:_WARM_UP]))
        start = time.perf_counter()
        list(minimal_pairs.score_pairs(predictor, pairs))
        rate = len(pairs) / (time.perf_counter() - start)
        figures.append(Figure(f"pairs in {precision}", rate, "pairs/s"))
    return Measured(figures=figures, details={"pairs": len(pairs)})
