"""Scores of texts by the full softmax, and perplexity."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.language_model import Feed, LanguageModel
from bilm.core.lstm import Mode
from bilm.core.options import Options
from bilm.data import Batch, Vocabulary, network_ids
from bilm.data.corpus import IndexedText
from bilm.inference.feed import make_feed

logger = logging.getLogger(__name__)

# A ratio of perplexities, from initial states and from the states of training, that is too high.
_LOST = 1.1


def exp_of_loss(loss: float) -> float:
    """exp of a mean loss; overflows to infinity."""
    return math.inf if loss >= 700 else math.exp(loss)


class SentenceScores(NamedTuple):
    """The loss of every sentence, in reading order."""

    n_predictions: np.ndarray  # int64 (sentences,), per direction: the words and an end
    losses: np.ndarray  # float64 (n_directions, sentences), summed over predictions, in nats


class Perplexity(float):
    """exp(mean loss of both directions), a float, with its parts."""

    forward: float
    backward: float | None  # None for a model of one direction
    n_predictions: int  # per direction: the words and an end for every sentence
    losses: np.ndarray  # float64 (n_directions,), summed over the predictions, in nats
    unknown: float | None = None  # proportion of the words; None if the data has no `vocab`
    sentences: SentenceScores | None = None  # if requested
    carried: Perplexity | None = None  # with carried states, if requested
    # Per direction, perplexity of sentences from the initial states divided by the perplexity from
    # the states of training; None if not measured.
    start_ratio: tuple[float, ...] | None = None

    @classmethod
    def of_losses(cls, total: np.ndarray, n_predictions: int) -> Perplexity:
        """From the summed loss of each direction, in nats."""
        means = total / n_predictions
        result = cls(exp_of_loss(means.mean()))
        result.forward = exp_of_loss(means[0])
        result.backward = exp_of_loss(means[1]) if len(means) > 1 else None
        result.n_predictions = n_predictions
        result.losses = total
        return result

    def start_ratios(self) -> dict[str, float]:
        """The `start_ratio` by the names of the directions; empty if it was not measured."""
        return dict(zip(("forward", "backward"), self.start_ratio or (), strict=False))

    def warn_if_lost(self, reset_rate: float) -> None:
        """Log a warning if the model does much worse from the initial states."""
        lost = {name: ratio for name, ratio in self.start_ratios().items() if ratio > _LOST}
        if lost:
            logger.warning(
                "sentences start from zero LSTM states, where this model does badly: its "
                "held-out %s the perplexity from the states of training. Vectors suffer as well. "
                "A reset_rate > 0 (now %g) lets training visit zeros; dump_weights with_states "
                "writes weights that start from the mean states of training.",
                " and ".join(f"{name} perplexity is {x:.3g} times" for name, x in lost.items()),
                reset_rate,
            )


class Chunk(NamedTuple):
    """Some steps of a batch."""

    feed: Feed
    mask: np.ndarray  # bool (time, batch), False for padding
    is_continued: bool  # whether the rows continue from the states after the previous chunk
    sentences: np.ndarray | None = None  # int (batch,), their numbers; None if rows hold several
    start: int = 0  # position in the batch of the first step

    def summed(self, losses: np.ndarray) -> np.ndarray:
        """Losses (n_directions, time, batch) summed over time: float64 (n_directions, batch)."""
        return np.where(self.mask, losses, 0.0).sum(axis=1, dtype=np.float64)

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """(row, number of its sentence, predictions) for each row with predictions."""
        if self.sentences is not None:
            counts = self.mask.sum(axis=0)
            for row in np.flatnonzero(counts).tolist():
                yield row, int(self.sentences[row]), int(counts[row])


class Scorer:
    """Runs a model over chunks of text, without dropout, with the full softmax, and in float32.

    The model may be in training. `states` are the LSTM states before a chunk, per direction
    (batch, ...) or (1, ...); None: the model's initial states. The states after it are returned.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.options = model.options
        self._model = model
        self._losses, self._hidden = self._compiled(model.losses), self._compiled(model.hidden)

    def _compiled(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of the model as a function with one trace for chunks of all shapes."""

        def run(feed: Feed, states: Any) -> tuple[tf.Tensor, Any]:
            with _in_float32(self._model):
                # The shapes of sentences vary too much to compile each of them.
                of_directions, after = method(feed, states, mode=Mode.INFERENCE)
            return tf.stack(of_directions), after

        compiled = tf.function(run, autograph=False, input_signature=self._model.signature())
        begin = self._model.network.initial_states
        return lambda feed, states: compiled(feed, begin() if states is None else states)

    def losses(self, feed: Feed, states: Any = None) -> tuple[np.ndarray, Any]:
        """The loss of every position: float32 (n_directions, time, batch), nats."""
        losses, after = self._losses(feed, states)
        return losses.numpy().reshape(feed.targets.shape), after

    def hidden(self, feed: Feed, states: Any = None) -> tuple[np.ndarray, Any]:
        """The top layer: float32 (n_directions, time, batch, projection_dim)."""
        hidden, after = self._hidden(feed, states)
        return hidden.numpy(), after


@contextlib.contextmanager
def _in_float32(model: LanguageModel) -> Iterator[None]:
    """Compute a model's matmuls in float32 within the block."""
    parts: list[Any] = [model.encoder, *model.stacks, model.softmax]
    before = {part: part.precision for part in parts if hasattr(part, "precision")}
    for part in before:
        part.precision = "float32"
    try:
        yield
    finally:
        for part, precision in before.items():
            part.precision = precision


def chunks_of_batch(batch: Batch, options: Options, n_tokens: int) -> Iterator[Chunk]:
    """A batch of sentences in chunks of at most about `n_tokens` tokens, including padding."""
    rows, length = batch.mask.shape
    steps = max(1, n_tokens // rows)
    feed = make_feed(batch, options)
    for start in range(0, length, steps):
        of_chunk = slice(start, start + steps)
        yield Chunk(
            Feed(feed.distinct, feed.words[:, of_chunk], feed.targets[:, of_chunk]),
            batch.mask.T[of_chunk],
            start > 0,
            batch.sentences,
            start,
        )


def warm_up_language_model(
    model: LanguageModel, sentences: Sequence[Sequence[str]], vocabulary: Vocabulary
) -> None:
    """Start every text from the mean LSTM states reached after reading some sentences."""
    text = IndexedText.from_sentences(sentences, vocabulary)
    ids = text.vocabulary_ids if text.characters is None else text.characters
    vectors = model.encoder(tf.constant(network_ids(ids.astype(np.int32))))
    model.network.warm_up(vectors, [text.sentence(number) for number in range(len(text))])
