"""A model's quality, its amount of training, and whether more training is likely to help.

`bilm train` prints it at its end, and `bilm report` shows it. Perplexities count `<UNK>` as one
word, so a text of unknown words has a low one; see `unknown_warning`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# Above this proportion of unknown tokens, perplexity means little.
MOST_UNKNOWN = 0.2

# Upper bounds of unigram perplexity / perplexity. WikiText-2's validation text has a
# unigram perplexity of about 850; good models of one epoch reach a sixth of it.
_QUALITIES = (
    (1.5, "it has learned hardly more than how frequent words are"),
    (3.0, "it has learned common word sequences, and is too weak for most uses"),
    (6.0, "it is usable for a first experiment"),
    (12.0, "it is good for a model of a small corpus"),
    (math.inf, "it is very good"),
)
_FEW_TOKENS = 2_000_000
_FEW_PASSES = 3.0
# Relative changes of the held-out perplexity: a rise above noise, and a fall worth its time.
_RISE, _FALL = 0.01, 0.01


def unigram_perplexity(counts: np.ndarray, text: np.ndarray) -> float:
    """Perplexity of a text under a model that knows only how frequent each word is.

    Args:
        counts: occurrences of each vocabulary word in the training text, (n_words,); one is added
            to each.
        text: occurrences of each word in the text that is predicted, (n_words,), not all zero.
    """
    log_p = np.log((counts + 1.0) / (counts.sum() + len(counts)))
    return math.exp(-float(text @ log_p) / float(text.sum()))


def unknown_warning(unknown: float, text: str) -> str | None:
    """A warning if perplexity means little because of many unknown tokens; otherwise None.

    Args:
        unknown: proportion of the tokens that are outside the vocabulary.
        text: the name of the text.
    """
    if unknown <= MOST_UNKNOWN:
        return None
    return (
        f"{unknown:.0%} of the tokens of {text} are outside the vocabulary. Each counts as <UNK>, "
        "which is easy to predict, so perplexity means little. Use a vocabulary made from text of "
        "the same language and tokenisation (bilm vocab)."
    )


def verdict(
    *,
    perplexity: float | None,
    text: str = "held-out",
    unigram: float | None = None,
    unknown: float | None = None,
    tokens: int | None = None,
    passes: float | None = None,
    measurements: Sequence[float] = (),
) -> list[str]:
    """Three lines about a model: its quality, its training, and the outlook for more training.

    Args:
        perplexity: by the full softmax; None if it was not measured.
        text: the text it was measured on: "held-out" or "training".
        unigram: perplexity of the same text by `unigram_perplexity`, if known.
        unknown: proportion of the text's tokens outside the vocabulary, if known.
        tokens: tokens that the model was trained on, if known.
        passes: `tokens` in passes over the training text, if known.
        measurements: held-out perplexities, oldest first.
    """
    return [
        _quality(perplexity, text, unigram, unknown),
        _amount(tokens, passes),
        _outlook(unknown, passes, measurements),
    ]


def _quality(
    perplexity: float | None, text: str, unigram: float | None, unknown: float | None
) -> str:
    if perplexity is None:
        return "Quality: not measured. A held-out text (--heldout_prefix, bilm test) shows it."
    figure = f"Quality: {text} perplexity {perplexity:,.1f}"
    if unknown is not None and unknown > MOST_UNKNOWN:
        return f"{figure}, which means little: {unknown:.0%} of the tokens are unknown words."
    if unigram is None:
        return f"{figure}."
    ratio = unigram / perplexity
    quality = next(words for bound, words in _QUALITIES if ratio < bound)
    if ratio < 1:
        return f"{figure}, above the {unigram:,.1f} of word frequencies alone: {quality}."
    return (
        f"{figure}, {ratio:.1f} times lower than the {unigram:,.1f} of word frequencies alone: "
        f"{quality}."
    )


def _amount(tokens: int | None, passes: float | None) -> str:
    if tokens is None:
        return "Training: it is not known on how much text."
    line = f"Training: {tokens:,} tokens"
    if passes is not None:
        line += f", {passes:.1f} {'pass' if f'{passes:.1f}' == '1.0' else 'passes'} over the text"
    if tokens < _FEW_TOKENS:
        line += "; useful models have seen millions"
    return f"{line}."


def _outlook(unknown: float | None, passes: float | None, measurements: Sequence[float]) -> str:
    if unknown is not None and unknown > MOST_UNKNOWN:
        return "More training: first make a vocabulary that covers the text."
    if len(measurements) > 1:
        best, last, before = min(measurements), measurements[-1], measurements[-2]
        if last > (1 + _RISE) * best:
            return (
                f"More training: will not help, the held-out perplexity has risen from {best:,.1f} "
                f"to {last:,.1f}. More text, dropout or a smaller model may."
            )
        if last > (1 - _FALL) * before:
            return (
                "More training: is not likely to help much, the held-out perplexity has stopped "
                "falling. More text or a larger model may."
            )
        return (
            f"More training: is likely to help, the held-out perplexity fell by "
            f"{1 - last / before:.0%} between the last two measurements."
        )
    if passes is not None and passes < _FEW_PASSES:
        return "More training: is likely to help, as it has seen each sentence only " + (
            "once or less." if passes < 1.5 else "a few times."
        )
    return "More training: measure a held-out text as it goes (--heldout_prefix) to see."
