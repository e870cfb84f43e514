"""Row: minimal pairs per second."""

from __future__ import annotations

import dataclasses
import itertools
import time

from benchmarks.results import Effort, Figure, Measured
from benchmarks.workspace import VOCABULARY, Workspace
from bilm.files.reading import read_lines

_WORDS, _WARM_UP = 10, 300


def score_pairs(workspace: Workspace, effort: Effort) -> Measured:
    """Score pairs of sentences of 10 words that differ in one word, with a `base` model."""
    from bilm import Predictor, UnicodeCharsVocabulary
    from bilm.training import LanguageModel
    from bilm.use.pretrained import CHARACTERS, Model, WordSource

    options, _, _ = workspace.network(effort.preset("base"))
    options = dataclasses.replace(options, n_tokens_vocab=VOCABULARY)
    text = workspace.text(effort.pick(200_000, 60_000, 4_000))
    lines = [words for line in read_lines(text.path) if len(words := line.split()) > _WORDS]
    # The bad sentence has another word in the middle, as most pairs of BLiMP do.
    middle = _WORDS // 2
    pairs = [
        (words[:_WORDS], [*words[:middle], words[_WORDS], *words[middle + 1 : _WORDS]])
        for words in lines[: effort.pick(5000, 1500, 20)]
    ]
    sentences = list(itertools.chain.from_iterable(pairs))
    vocabulary = UnicodeCharsVocabulary(workspace.vocabulary(), 50)
    figures = []
    for precision in ("float32", "bfloat16"):
        model = LanguageModel(options, is_training=False, seed=0, precision=precision)
        source = WordSource(CHARACTERS, options, "")
        predictor = Predictor(Model(source, model.network, model, vocabulary))
        predictor.score(sentences[: 2 * _WARM_UP])
        start = time.perf_counter()
        predictor.score(sentences)
        rate = len(pairs) / (time.perf_counter() - start)
        figures.append(Figure(f"pairs in {precision}", rate, "pairs/s"))
    return Measured(figures=figures, details={"pairs": len(pairs)})
