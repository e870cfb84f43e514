"""A model's quality, its amount of training, and whether more training is likely to help.

`bilm train` and `bilm report` print it. Perplexities count `<UNK>` as one word, so a text of
unknown words has a low perplexity; see `unknown_warning`.
"""

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np

# Above this proportion of unknown tokens, perplexity means little.
MOST_UNKNOWN = 0.2

# Upper bounds of unigram perplexity / perplexity. WikiText-2's validation text has a
# unigram perplexity of about 850; good models of one epoch reach a sixth of it.
_QUALITIES = (
    (1.5, "it has learned little beyond word frequencies"),
    (3.0, "it has learned common word sequences, and is too weak for most uses"),
    (6.0, "it is usable for a first experiment"),
    (12.0, "it is good for a model of a small corpus"),
    (math.inf, "it is very good"),
)
_FEW_TOKENS = 2_000_000
_FEW_PASSES = 3.0
# Relative changes of the held-out perplexity below this are noise.
_CHANGE = 0.01


def comparable(measurements: Sequence[tuple[int, float]]) -> list[float]:
    """Held-out perplexities with about equal amounts of training between them.

    `measurements` are (step or tokens, perplexity), oldest first. If the last one followed soon
    after the previous one, as at the end of a run, it replaces the previous one.
    """
    positions, perplexities = [n for n, _ in measurements], [x for _, x in measurements]
    gaps = [after - before for before, after in itertools.pairwise(positions)]
    if len(gaps) > 1 and gaps[-1] < statistics.median(gaps[:-1]) / 2:
        del perplexities[-2]
    return perplexities


def unigram_perplexity(counts: np.ndarray, text: np.ndarray) -> float:
    """Perplexity of a text under the unigram model of the training text, with add-one smoothing.

    `counts` and `text` are occurrences of each vocabulary word, (n_words,), in the training text
    and in the predicted text.
    """
    log_p = np.log((counts + 1.0) / (counts.sum() + len(counts)))
    return math.exp(-float(text @ log_p) / float(text.sum()))


def unknown_warning(unknown: float, text: str) -> str | None:
    """A warning if the proportion of unknown tokens in a text is high; otherwise None."""
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
    """Three lines about a model: quality, training, and the outlook for more training.

    Args:
        perplexity: perplexity of `text`, "held-out" or "training", by the full softmax.
        unigram: `unigram_perplexity` of the same text.
        unknown: proportion of its tokens outside the vocabulary.
        tokens, passes: tokens of training, and passes over the training text.
        measurements: held-out perplexities as from `comparable`, oldest first.
    """
    unknown = 0.0 if unknown is None else unknown
    if perplexity is None:
        quality = "not measured. A held-out text (--heldout_prefix, bilm test) shows it."
    else:
        quality = f"{text} perplexity {perplexity:,.1f}{_quality(perplexity, unigram, unknown)}."
    return [
        f"Quality: {quality}",
        f"Training: {_amount(tokens, passes)}.",
        f"More training: {_outlook(unknown, passes, measurements)}",
    ]


def _quality(perplexity: float, unigram: float | None, unknown: float) -> str:
    if unknown > MOST_UNKNOWN:
        return f", which means little: {unknown:.0%} of the tokens are unknown words"
    if unigram is None:
        return ""
    ratio = unigram / perplexity
    quality = next(words for bound, words in _QUALITIES if ratio < bound)
    if f"{unigram:,.1f}" == f"{perplexity:,.1f}":
        comparison = "equal to"
    else:
        comparison = "above" if ratio < 1 else f"{ratio:.1f} times lower than"
    return f", {comparison} the {unigram:,.1f} of the training text's word frequencies: {quality}"


def _amount(tokens: int | None, passes: float | None) -> str:
    if tokens is None:
        return "amount not known"
    line = f"{tokens:,} tokens"
    if passes is not None:
        line += f", {passes:.1f} {'pass' if f'{passes:.1f}' == '1.0' else 'passes'} over the text"
    return f"{line}; useful models have seen millions" if tokens < _FEW_TOKENS else line


def _outlook(unknown: float, passes: float | None, measurements: Sequence[float]) -> str:
    if unknown > MOST_UNKNOWN:
        return "first make a vocabulary that covers the text."
    if len(measurements) > 1:
        best, last, before = min(measurements), measurements[-1], measurements[-2]
        if last > (1 + _CHANGE) * best:
            return (
                f"will not help: held-out perplexity has risen from {best:,.1f} to "
                f"{last:,.1f}. More text, dropout or a smaller model may."
            )
        if last > (1 - _CHANGE) * before:
            return (
                "is not likely to help much: held-out perplexity has stopped falling. More text or "
                "a larger model may."
            )
        fall = 1 - last / before
        return (
            f"is likely to help: held-out perplexity fell by {fall:.0%} between the last two "
            "measurements."
        )
    if passes is not None and passes < _FEW_PASSES:
        return "is likely to help after so few passes over the text."
    return "not known: measure a held-out text during training (--heldout_prefix)."
