"""Scores of texts by the full softmax, and perplexity."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator, Sequence
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

# Warn above this ratio of perplexities: from the initial states, and from the states of training.
_LOST = 1.1


def exp_of_loss(loss: float) -> float:
    """exp of a mean loss; overflows to infinity."""
    return math.inf if loss >= 700 else math.exp(loss)


class SentenceScores(NamedTuple):
    """The loss of every sentence, in reading order."""

    n_predictions: np.ndarray  # int64 (sentences,), per direction: the words and an end
    losses: np.ndarray  # float64 (n_directions, sentences), summed over predictions, in nats


class Perplexity(float):
    """exp(mean loss of both directions), a float, with details."""

    forward: float
    backward: float | None  # None for a model of one direction
    n_predictions: int  # per direction: the words and an end for every sentence
    losses: np.ndarray  # float64 (n_directions,), summed over the predictions, in nats
    unknown: float | None = None  # proportion of the words; None if the data has no `vocab`
    checksum: int = 0  # of the text, in the order in which it was scored
    sentences: SentenceScores | None = None  # if requested
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
        """Log a warning if the model performs much worse from the initial states."""
        lost = {name: ratio for name, ratio in self.start_ratios().items() if ratio > _LOST}
        if lost:
            logger.warning(
                "sentences start from zero LSTM states, where this model performs badly: its "
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


class _Predictions(NamedTuple):
    """The predictions of a chunk, and the distinct texts that they depend on.

    Rows that start from the same state and have read the same words have the same state.
    """

    first: np.ndarray  # int32 (texts,), the first position of each text, in the flat order of words
    before: np.ndarray  # int32 (predictions,), the text before each prediction
    targets: np.ndarray  # int32 (predictions,)

    @classmethod
    def from_feed(cls, feed: Feed, mask: np.ndarray, same_start: bool) -> _Predictions:
        """`same_start`: whether all rows start from the same state; unfinished rows do not."""
        n_directions, n_steps, n_rows = feed.words.shape
        text = np.arange(n_directions * n_rows).reshape(n_directions, n_rows)
        text = text // n_rows * n_rows if same_start else text
        texts = np.empty(feed.words.shape, np.int64)
        n_texts = 0
        for t in range(n_steps):
            pairs = text * len(feed.distinct) + feed.words[:, t]  # the text so far, and a word
            distinct, text = np.unique(pairs, return_inverse=True)
            text = text.reshape(pairs.shape)
            texts[:, t] = n_texts + text
            n_texts += len(distinct)
        positions = np.flatnonzero(np.broadcast_to(mask, texts.shape))
        _, first, index = np.unique(
            texts.reshape(-1)[positions], return_index=True, return_inverse=True
        )
        parts = positions[first], index.reshape(-1), feed.targets.reshape(-1)[positions]
        return cls(*(part.astype(np.int32) for part in parts))


class Scorer:
    """Runs a model over chunks of text, without dropout and with the full softmax.

    `states` are the LSTM states before a chunk, per direction (batch, ...) or (1, ...); None: the
    model's initial states. The states after it are returned. `directions` are the directions to
    run; None: all.

    Args:
        model: may be in training.
        precision: of the matmuls, "float32" or "bfloat16"; overrides the model's.
    """

    def __init__(self, model: LanguageModel, precision: str = "float32") -> None:
        self.options = model.options
        self._model = model
        self._precision = precision
        self._functions: dict[Any, Any] = {}

    def losses(
        self, chunk: Chunk, states: Any = None, directions: Sequence[int] | None = None
    ) -> tuple[np.ndarray, Any]:
        """The loss of every prediction: float32 (n_directions, time, batch), nats; 0 at padding."""
        feed, states, directions = self._inputs(chunk, states, directions)
        same_start = all(x.shape[0] == 1 for x in tf.nest.flatten(states))
        predictions = _Predictions.from_feed(feed, chunk.mask, same_start)
        log_probabilities, after = self._function(directions, scores=True)(
            feed, states, predictions
        )
        losses = np.zeros(feed.words.shape, np.float32)
        losses[:, chunk.mask] = -log_probabilities.numpy().reshape(len(directions), -1)
        return losses, after

    def hidden(
        self, chunk: Chunk, states: Any = None, directions: Sequence[int] | None = None
    ) -> tuple[np.ndarray, Any]:
        """The top layer: float32 (n_directions, time, batch, projection_dim)."""
        feed, states, directions = self._inputs(chunk, states, directions)
        hidden, after = self._function(directions, scores=False)(feed, states)
        return hidden.numpy(), after

    def _inputs(
        self, chunk: Chunk, states: Any, directions: Sequence[int] | None
    ) -> tuple[Feed, Any, tuple[int, ...]]:
        """The words and states of some directions, and the directions."""
        chosen = tuple(range(self.options.n_directions) if directions is None else directions)
        if states is None:
            initial = self._model.network.initial_states()
            states = tuple(initial[d] for d in chosen)
        feed = chunk.feed
        rows = list(chosen)
        return Feed(feed.distinct, feed.words[rows], feed.targets[rows]), states, chosen

    def _function(self, directions: tuple[int, ...], *, scores: bool) -> Any:
        """`_run` for directions, as a function with one trace for chunks of all shapes."""
        if (directions, scores) not in self._functions:
            feed, states = self._model.signature()
            tokens = tf.TensorSpec((len(directions), None, None), tf.int32)
            signature = [Feed(feed.distinct, tokens, tokens), tuple(states[d] for d in directions)]
            if scores:
                signature.append(_Predictions(*[tf.TensorSpec((None,), tf.int32)] * 3))
            self._functions[directions, scores] = tf.function(
                functools.partial(self._run, directions), autograph=False, input_signature=signature
            )
        return self._functions[directions, scores]

    def _run(
        self,
        directions: tuple[int, ...],
        feed: Feed,
        states: Any,
        predictions: _Predictions | None = None,
    ) -> tuple[tf.Tensor, Any]:
        """The log-probability of each prediction, or the top layer, and the states after it."""
        with _in_precision(self._model, self._precision):
            # The shapes of sentences vary too much to compile each of them.
            hidden, after = self._model.hidden(
                feed, states, mode=Mode.INFERENCE, directions=directions
            )
            layer = tf.stack(hidden)  # (n_directions, time, batch, projection_dim)
            if predictions is None:
                return layer, after
            # (n_directions * time * batch, projection_dim) -> (texts, projection_dim)
            vectors = tf.gather(tf.reshape(layer, (-1, layer.shape[-1])), predictions.first)
            softmax = self._model.softmax
            return softmax.log_probabilities(vectors, *predictions[1:]), after


@contextlib.contextmanager
def _in_precision(model: LanguageModel, precision: str) -> Iterator[None]:
    """Compute a model's matmuls in a precision within the block."""
    parts: list[Any] = [model.encoder, *model.stacks, model.softmax]
    before = {part: part.precision for part in parts if hasattr(part, "precision")}
    for part in before:
        part.precision = precision
    try:
        yield
    finally:
        for part, value in before.items():
            part.precision = value


def chunks_of_batch(batch: Batch, options: Options, n_tokens: int) -> Iterator[Chunk]:
    """A batch of sentences in chunks of at most about `n_tokens` tokens, including padding."""
    rows, length = batch.mask.shape
    steps = max(1, n_tokens // rows)
    feed = make_feed(batch, options)
    for start in range(0, length, steps):
        positions = slice(start, start + steps)
        yield Chunk(
            Feed(feed.distinct, feed.words[:, positions], feed.targets[:, positions]),
            batch.mask.T[positions],
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
