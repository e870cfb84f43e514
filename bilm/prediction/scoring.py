"""What a language model says of some sentences: scores of their tokens, and words for places.

Words for a place take the text on both sides of it. Each direction gives a distribution over the
vocabulary: the forward direction from its state before the place, the backward direction from its
state after it; neither has seen the place. The two are multiplied and the product is normalised,
which is a product of experts (Hinton 2002, "Training products of experts by minimizing contrastive
divergence"). If the text before and the text after are independent given the word, Bayes' rule has

    p(word | before, after) = p(word | before) p(word | after) / p(word) / normaliser,

so a product alone counts p(word) twice. `prior` is the power of p(word) that is divided by: 1 is
this rule, 0 the product alone. p(word) is taken from the word's rank in the vocabulary, which is
sorted by falling count: the log-uniform distribution, the one that the sampled softmax draws from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import Vocabulary
from bilm.data.batch import sentence_batches
from bilm.data.corpus import IndexedText
from bilm.embedding.corpus import Tokens
from bilm.layers.full_softmax import NEVER, likeliest_words
from bilm.layers.softmax import Softmax
from bilm.training.evaluation import Chunk, Scorer, chunks
from bilm.training.language_model import LanguageModel

_POSITIONS_AT_ONCE = 256


class SentenceScore(NamedTuple):
    """Log-probabilities of a sentence in nats (natural logarithms), each direction alone.

    The forward direction predicts the tokens from left to right and then the end `</S>`; the
    backward direction from right to left and then the begin `<S>`. A token outside the vocabulary
    is predicted as `<UNK>`. Peters et al. (2018), section 3.1.

    Attributes:
        tokens: of the sentence, n of them.
        known: bool (n,), whether a token is in the vocabulary.
        forward: float32 (n,), log p(token | the tokens before it).
        end: log p(`</S>` | the tokens).
        backward: float32 (n,), log p(token | the tokens after it); None for a model of one
            direction, as are the other two.
        begin: log p(`<S>` | the tokens).
    """

    tokens: list[str]
    known: np.ndarray
    forward: np.ndarray
    end: float
    backward: np.ndarray | None
    begin: float | None

    @property
    def joint(self) -> np.ndarray | None:
        """Forward plus backward, float32 (n,): the objective of the paper, section 3.1.

        It is the log of a product of two probabilities of the same token, and no log-probability
        itself.
        """
        return None if self.backward is None else self.forward + self.backward

    @property
    def forward_total(self) -> float:
        """log p(sentence) from left to right, the end included."""
        return float(self.forward.sum(dtype=np.float64)) + self.end

    @property
    def backward_total(self) -> float | None:
        """log p(sentence) from right to left, the begin included."""
        if self.backward is None or self.begin is None:
            return None
        return float(self.backward.sum(dtype=np.float64)) + self.begin

    @property
    def joint_total(self) -> float | None:
        """Forward plus backward."""
        backward = self.backward_total
        return None if backward is None else self.forward_total + backward


class Substitutes(NamedTuple):
    """The likeliest words of one place.

    Attributes:
        place: the position of the token in its sentence, from 0.
        token: the token there.
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
    """A sentence, and the positions of the tokens that substitutes are wanted for, if any."""

    tokens: Tokens
    positions: Sequence[int] = ()


class SentenceScorer:
    """Runs a language model over sentences, each alone.

    Args:
        model: the language model.
        vocabulary: of the model, with characters if it takes them.

    Attributes:
        batch_tokens: tokens of a batch, padding included; a longer sentence is computed in chunks.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self._scorer = Scorer(model)
        self._options = model.options
        self._vocabulary = vocabulary
        self.batch_tokens = 4096

    def _chunks(self, sentences: Sequence[Tokens], batch_size: int | None) -> Iterator[Chunk]:
        """Batches of sentences of like length, and the chunks of long ones in their order."""
        text = IndexedText.from_sentences(sentences, self._vocabulary)
        reverses = (False, True)[: self._options.n_directions]
        for batch in sentence_batches(text, reverses, self.batch_tokens, max_rows=batch_size):
            yield from chunks(batch, self._options, self.batch_tokens)

    def scores(
        self, sentences: Sequence[Tokens], batch_size: int | None = None
    ) -> Iterator[SentenceScore]:
        """The scores of sentences, in their order.

        Args:
            sentences: what is scored.
            batch_size: sentences of a batch, at most; None sets no bound of its own.
        """
        n_directions = self._options.n_directions
        # In the order of each direction's reading: the tokens and an end.
        read = [np.empty((n_directions, len(sentence) + 1), np.float32) for sentence in sentences]
        for chunk in self._chunks(sentences, batch_size):
            losses = self._scorer.losses(chunk.feed, chunk.is_continued)
            for row, number, count in chunk.rows():
                read[number][:, chunk.start : chunk.start + count] = -losses[:, :count, row]
        for sentence, values in zip(sentences, read, strict=True):
            both = n_directions == 2
            yield SentenceScore(
                tokens=list(sentence),
                known=self._vocabulary.known_ids(sentence) >= 0,
                forward=values[0, :-1],
                end=float(values[0, -1]),
                backward=values[1, :-1][::-1] if both else None,
                begin=float(values[1, -1]) if both else None,
            )

    def substitutes(
        self, requests: Sequence[Request], words: LikeliestWords, batch_size: int | None = None
    ) -> Iterator[list[Substitutes]]:
        """The substitutes at the positions of sentences, in their order."""
        wanted = [request for request in requests if len(request.positions)]
        hidden = self._hidden(wanted, words.directions, batch_size)
        positions = [position for request in wanted for position in request.positions]
        tokens = [request.tokens[position] for request in wanted for position in request.positions]
        found = words.at(hidden, positions, tokens)
        for request in requests:
            yield [next(found) for _ in request.positions]

    def _hidden(
        self, requests: Sequence[Request], directions: Sequence[int], batch_size: int | None
    ) -> np.ndarray:
        """What the softmax reads at each position, summed over directions.

        Returns:
            float32 (positions of all requests, projection_dim): the logits of a product of
            softmaxes are the sum of their logits.
        """
        first = np.cumsum([0, *(len(request.positions) for request in requests)])
        summed = np.zeros((int(first[-1]), self._options.lstm.projection_dim), np.float32)
        for chunk in self._chunks([request.tokens for request in requests], batch_size):
            # (n_directions, time, batch, projection_dim)
            hidden = self._scorer.hidden(chunk.feed, chunk.is_continued)
            for row, number, count in chunk.rows():
                tokens, positions = requests[number].tokens, np.asarray(requests[number].positions)
                for d in directions:
                    # The input that position k is predicted from is the k-th, <S> being that of
                    # 0; the backward direction counts from the end.
                    step = (positions if d == 0 else len(tokens) - 1 - positions) - chunk.start
                    inside = np.flatnonzero((step >= 0) & (step < count))
                    summed[first[number] + inside] += hidden[d, step[inside], row]
        return summed


class LikeliestWords:
    """Runs the softmax at positions of sentences.

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
        bias -= prior * _log_uniform(vocabulary.size)
        bias[special] = NEVER
        self._bias = bias.astype(np.float32)
        self._n = min(n, vocabulary.size - len(set(special)))
        self._find = tf.function(self._run, reduce_retracing=True, autograph=False)

    def _run(self, hidden: tf.Tensor, bias: tf.Tensor, targets: tf.Tensor) -> Any:
        W = tf.convert_to_tensor(self._softmax.W)
        return likeliest_words(hidden, W, bias, targets, self._n)

    def at(
        self, hidden: np.ndarray, positions: Sequence[int], tokens: Tokens
    ) -> Iterator[Substitutes]:
        """The substitutes at positions.

        Args:
            hidden: float32 (positions, projection_dim), summed over the directions that count.
            positions: for the results.
            tokens: those that are there.
        """
        vocabulary = self._vocabulary
        targets = vocabulary.word_ids(tokens)
        for start in range(0, len(positions), _POSITIONS_AT_ONCE):
            part = slice(start, start + _POSITIONS_AT_ONCE)
            found = self._find(hidden[part], self._bias, targets[part])
            ids, log_p, of_targets, ranks = (x.numpy() for x in found)
            for k, (position, token) in enumerate(zip(positions[part], tokens[part], strict=True)):
                words = [vocabulary.id_to_word(number) for number in ids[k].tolist()]
                counts = self._bias[targets[start + k]] > NEVER
                yield Substitutes(
                    position,
                    token,
                    words,
                    log_p[k],
                    float(of_targets[k]) if counts else None,
                    int(ranks[k]) + 1 if counts else None,
                )


def _log_uniform(n_tokens: int) -> np.ndarray:
    """log P(id) of the log-uniform distribution over ids: float64 (n_tokens,)."""
    ids = np.arange(n_tokens)
    return np.log(np.log1p(1 / (ids + 1))) - np.log(np.log(n_tokens + 1))
