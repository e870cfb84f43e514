"""The likeliest words in a place of a sentence, by the text on both sides of it.

Each direction gives a distribution over the vocabulary: the forward direction from its state
before the place, the backward direction from its state after it; neither has seen the place. The
two are multiplied and the product is normalised, which is a product of experts (Hinton 2002,
"Training products of experts by minimizing contrastive divergence"). If the text before and the
text after are independent given the word, Bayes' rule has

    p(word | before, after) = p(word | before) p(word | after) / p(word) / normaliser,

so a product alone counts p(word) twice. `prior` is the power of p(word) that is divided by: 1 is
this rule, 0 the product alone. p(word) is taken from the word's rank in the vocabulary, which
stands by falling count: the log-uniform distribution, the one that the sampled softmax draws from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import Vocabulary
from bilm.layers.full_softmax import NEVER
from bilm.layers.likeliest import likeliest_words
from bilm.layers.softmax import Softmax
from bilm.prediction.text import SentenceParts
from bilm.training.evaluation import Scorer

_PLACES_AT_ONCE = 256


class Substitutes(NamedTuple):
    """The likeliest words of one place.

    Attributes:
        place: the token's number in its sentence, from 0.
        token: what stands there.
        words: the likeliest first.
        log_probabilities: float32 (words,), nats, normalised over the vocabulary without `<S>`,
            `</S>` and `<UNK>`.
        of_token: the token's own log-probability; None if it is not in the vocabulary.
        rank: its rank, 1 for the likeliest word; None as well.
    """

    place: int
    token: str
    words: list[str]
    log_probabilities: np.ndarray
    of_token: float | None
    rank: int | None


class Request(NamedTuple):
    """A sentence, and the numbers of the tokens that substitutes are wanted for."""

    tokens: Sequence[str]
    places: Sequence[int]


class LikeliestWords:
    """Runs the softmax at places.

    Args:
        softmax: of the model.
        vocabulary: its words.
        n: how many words are wanted.
        directions: which count, of (0, 1): forward, backward.
        prior: exponent of p(word) that the product is divided by.
    """

    def __init__(
        self,
        softmax: Softmax,
        vocabulary: Vocabulary,
        n: int,
        directions: Sequence[int],
        prior: float,
    ) -> None:
        self.directions = directions
        self._vocabulary = vocabulary
        self._softmax = softmax
        special = [vocabulary.bos, vocabulary.eos, vocabulary.unk]
        bias = len(directions) * softmax.b.value.numpy()
        bias -= prior * log_uniform(vocabulary.size)
        bias[special] = NEVER
        self._bias = bias.astype(np.float32)
        self._n = min(n, vocabulary.size - len(set(special)))
        self._find = tf.function(self._run, reduce_retracing=True, autograph=False)

    def _run(self, hidden: tf.Tensor, bias: tf.Tensor, targets: tf.Tensor) -> Any:
        W = tf.convert_to_tensor(self._softmax.W)
        return likeliest_words(hidden, W, bias, targets, self._n)

    def of(
        self, hidden: np.ndarray, places: Sequence[int], tokens: Sequence[str]
    ) -> Iterator[Substitutes]:
        """The substitutes of places.

        Args:
            hidden: float32 (places, projection_dim), summed over the directions that count: the
                logits of a product of softmaxes are the sum of their logits.
            places: their numbers, for the results.
            tokens: what stands there.
        """
        vocabulary = self._vocabulary
        targets = vocabulary.word_ids(tokens)
        for start in range(0, len(places), _PLACES_AT_ONCE):
            here = slice(start, start + _PLACES_AT_ONCE)
            found = self._find(hidden[here], self._bias, targets[here])
            ids, log_p, of_targets, ranks = (x.numpy() for x in found)
            for k, (place, token) in enumerate(zip(places[here], tokens[here], strict=True)):
                words = [vocabulary.id_to_word(number) for number in ids[k].tolist()]
                counts = self._bias[targets[start + k]] > NEVER
                yield Substitutes(
                    place,
                    token,
                    words,
                    log_p[k],
                    float(of_targets[k]) if counts else None,
                    int(ranks[k]) + 1 if counts else None,
                )


def log_uniform(n_tokens: int) -> np.ndarray:
    """log P(id) of the log-uniform distribution over ids: float64 (n_tokens,)."""
    ids = np.arange(n_tokens)
    return np.log(np.log1p(1 / (ids + 1))) - np.log(np.log(n_tokens + 1))


def window_substitutes(
    scorer: Scorer, requests: Sequence[Request], parts: SentenceParts, words: LikeliestWords
) -> Iterator[list[Substitutes]]:
    """The substitutes of some sentences' places, in their order."""
    wanted = [request for request in requests if len(request.places)]
    hidden = _hidden_at_places(scorer, wanted, parts, words.directions)
    places = [place for request in wanted for place in request.places]
    tokens = [request.tokens[place] for request in wanted for place in request.places]
    found = words.of(hidden, places, tokens)
    for request in requests:
        yield [next(found) for _ in request.places]


def _hidden_at_places(
    scorer: Scorer, requests: Sequence[Request], parts: SentenceParts, directions: Sequence[int]
) -> np.ndarray:
    """What the softmax reads of each place, summed over directions: (places, projection_dim)."""
    counts = [len(request.places) for request in requests]
    first = np.cumsum([0, *counts])
    summed = np.zeros((int(first[-1]), scorer.options.lstm.projection_dim), np.float32)
    for part in parts.of([request.tokens for request in requests]):
        hidden = scorer.hidden(part.feed, part.is_continued)
        for row, number, count in part.rows():
            tokens, places = requests[number]
            for d in directions:
                # The input that place k is predicted from is the k-th, <S> being that of 0; the
                # backward direction counts from the end.
                step = np.asarray(places) if d == 0 else len(tokens) - 1 - np.asarray(places)
                step = step - part.start
                here = np.flatnonzero((step >= 0) & (step < count))
                summed[first[number] + here] += hidden[d, step[here], row]
    return summed
