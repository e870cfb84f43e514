"""Scores of texts by the full softmax, and perplexity."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import traced_once
from bilm.core.language_model import Feed, LanguageModel
from bilm.core.lstm import LSTMStack, States
from bilm.core.recurrence import LSTMState
from bilm.data.prefetch import windows

logger = logging.getLogger(__name__)

# Warn above this ratio: perplexity from the initial states to perplexity from states of training.
_LOST = 1.1
# Rows of a text whose prefixes are computed together, and nodes whose top layer is in memory.
_MOST_ROWS, _MOST_NODES = 1024, 16384


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
    # Proportion of unknown words in this worker's share; None if the data has no `vocab`.
    unknown: float | None = None
    sentences: SentenceScores | None = None  # if requested
    # Per direction, perplexity of sentences started from the initial states, divided by their
    # perplexity started from the states of training, in this worker's share; None if not measured.
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
                "With a reset_rate > 0 (now %g), training also starts sentences from zeros; "
                "dump_weights with_states writes weights that start from the mean training states.",
                " and ".join(f"{name} perplexity is {x:.3g} times" for name, x in lost.items()),
                reset_rate,
            )


class Chunk(NamedTuple):
    """A batch, for evaluation."""

    feed: Feed
    mask: np.ndarray  # bool (time, batch), False for padding at the end of rows
    is_continued: bool  # whether the rows continue from the states after the previous chunk
    sentences: np.ndarray | None = None  # int (batch,), their numbers; None if rows hold several

    def texts(self) -> list[TextRows]:
        """The rows as each direction reads them, without padding."""
        lengths = self.mask.sum(axis=0)
        # (time, batch) -> (batch, time) -> (inputs,)
        return [
            TextRows(words.T[self.mask.T], targets.T[self.mask.T], lengths)
            for words, targets in zip(self.feed.words, self.feed.targets, strict=True)
        ]

    def summed(self, losses: np.ndarray) -> np.ndarray:
        """The losses (n_directions, inputs) of rows: float64 (n_directions, batch)."""
        lengths = self.mask.sum(axis=0)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        return np.stack([np.bincount(rows, loss, len(lengths)) for loss in losses])


class _Part(NamedTuple):
    """The top layer at some levels of a tree, see `TextRows.levels`."""

    hidden: tf.Tensor  # float32 (nodes, projection_dim)
    inputs: np.ndarray  # int64 (n,), inputs of the text
    nodes: np.ndarray  # int32 (n,), the node of each input
    last: Level
    states: States  # after the last level


class Scorer:
    """Runs a model over texts, without dropout and with the full softmax. A prefix that several
    rows share is computed once.

    Args:
        model: may be in training.
        precision: of the matmuls, "float32" or "bfloat16"; overrides the model's.
    """

    def __init__(self, model: LanguageModel, precision: str = "float32") -> None:
        self.options = model.options
        self._model = model
        feed, states = model.signature()
        ids = tf.TensorSpec((None,), tf.int32)
        vectors = tf.TensorSpec((None, model.options.lstm.projection_dim), tf.float32)
        self._encode = self._function(precision, model.encoder, feed.distinct)
        self._run = [
            self._function(
                precision, functools.partial(_run_levels, stack), vectors, ids, ids, ids, before
            )
            for stack, before in zip(model.stacks, states, strict=True)
        ]
        self._predict = self._function(
            precision, model.softmax.log_probabilities, vectors, ids, ids
        )

    def _function(self, precision: str, function: Callable[..., Any], *signature: Any) -> Any:
        """`function` in a precision, with one trace for all shapes."""

        def run(*arguments: Any) -> Any:
            with _in_precision(self._model, precision):
                return function(*arguments)

        return traced_once(run, signature)

    def encode(self, distinct: np.ndarray) -> tf.Tensor:
        """The vectors of words, `Feed.distinct`: float32 (distinct, projection_dim)."""
        return self._encode(distinct)

    def losses(
        self,
        vectors: tf.Tensor,
        texts: Sequence[TextRows],
        states: Any = None,
        *,
        with_states: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """The loss of every prediction, in nats.

        Args:
            vectors: float32 (words, projection_dim), the table of the texts' words.
            texts: one per direction, of the same size; or of the forward direction only.
            states: LSTM states before the texts, per direction (rows, ...) or (1, ...); None: the
                model's initial states.
            with_states: return the states after the texts, too.

        Returns:
            float32 (n_directions, inputs); and the states (rows, ...), None without `with_states`.
            The states are valid for the longest rows only: shorter rows are the end of a text, and
            nothing continues from them.
        """
        initial = self._model.network.initial_states() if states is None else states
        losses = np.empty((len(texts), len(texts[0].words)), np.float32)
        after = []
        for d, text in enumerate(texts):
            n_rows = len(text.lengths)
            new = [np.zeros((n_rows, x.shape[1]), np.float32) for x in tf.nest.flatten(initial[d])]
            for part in self._parts(d, vectors, text, initial[d]):
                targets = text.targets[part.inputs]
                losses[d, part.inputs] = -self._predict(part.hidden, part.nodes, targets).numpy()
                for x, values in zip(new, tf.nest.flatten(part.states), strict=True):
                    if with_states:
                        x[part.last.rows] = values.numpy()[part.last.nodes]
            after.append(tf.nest.pack_sequence_as(initial[d], new))
        return losses, tuple(after) if with_states else None

    def hidden(self, d: int, vectors: tf.Tensor, text: TextRows, at: np.ndarray) -> np.ndarray:
        """The top layer of direction `d` at the inputs `at` (n,): float32 (n, projection_dim)."""
        result = np.empty((len(at), vectors.shape[1]), np.float32)
        for part in self._parts(d, vectors, text, self._model.network.initial_states()[d]):
            node = np.full(len(text.words), -1)
            node[part.inputs] = part.nodes
            here = np.flatnonzero(node[at] >= 0)
            result[here] = tf.gather(part.hidden, node[at[here]]).numpy()
        return result

    def _parts(self, d: int, vectors: tf.Tensor, text: TextRows, states: States) -> Iterator[_Part]:
        """The top layer at all inputs."""
        for rows in text.groups(_MOST_ROWS):
            before = states
            levels = text.levels(rows, states[0].c.shape[0])
            for part, _ in windows(levels, Level.n_nodes, _MOST_NODES):
                first = np.cumsum([0, *map(Level.n_nodes, part)], dtype=np.int32)
                nodes = [level.nodes + k for level, k in zip(part, first[:-1], strict=True)]
                words, parents, inputs = (
                    np.concatenate([getattr(level, name) for level in part])
                    for name in ("words", "parents", "inputs")
                )
                hidden, before = self._run[d](vectors, words, parents, first, before)
                yield _Part(
                    hidden, inputs, np.concatenate(nodes).astype(np.int32), part[-1], before
                )


def _run_levels(
    stack: LSTMStack,
    vectors: tf.Tensor,
    words: tf.Tensor,
    parents: tf.Tensor,
    first: tf.Tensor,
    states: States,
) -> tuple[tf.Tensor, States]:
    """The top layer at the nodes of consecutive levels: float32 (nodes, projection_dim); and the
    states of the last level. `first`: int32 (levels + 1,), the first node of each level."""

    def step(t: tf.Tensor, hidden: tf.TensorArray, *states: LSTMState) -> Any:
        nodes = slice(first[t], first[t + 1])
        # (nodes of the level before, size) -> (nodes, size)
        before = tf.nest.map_structure(lambda x: tf.gather(x, parents[nodes]), states)
        # (words, projection_dim) -> (1, nodes, projection_dim): one step of a batch of nodes
        layers, after = stack(tf.gather(vectors, words[nodes])[tf.newaxis], states=before)
        return t + 1, hidden.write(t, layers[-1][0]), *after

    n_levels = tf.size(first) - 1
    hidden = tf.TensorArray(
        tf.float32, n_levels, infer_shape=False, element_shape=(None, vectors.shape[1])
    )
    _, hidden, *states = tf.while_loop(
        lambda t, *_: t < n_levels, step, (0, hidden, *states), parallel_iterations=1
    )
    # (levels, nodes of each, projection_dim) -> (nodes, projection_dim)
    return hidden.concat(), tuple(states)


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


# A tree of the distinct prefixes of texts, so that each is computed once. A node is a prefix of one
# or more inputs; its parent is the prefix without the last input. Rows that start from the same
# state and have read the same words have the same state. Level t has the prefixes of t + 1 inputs,
# and is computed from the states of the level before it.


class Level(NamedTuple):
    """The distinct prefixes of one length."""

    words: np.ndarray  # int32 (nodes,), the last input of each
    parents: np.ndarray  # int32 (nodes,), a node of the level before, or the number of a state
    rows: np.ndarray  # int64 (n,), the rows that are at least this long
    inputs: np.ndarray  # int64 (n,), each row's last input in the prefix, as an index in the text
    nodes: np.ndarray  # int64 (n,), the node of each row

    def n_nodes(self) -> int:
        return len(self.words)


class TextRows(NamedTuple):
    """Rows of text, as one direction reads them."""

    words: np.ndarray  # int32 (inputs,), rows of a table of vectors, row after row
    targets: np.ndarray  # int32 (inputs,), the id of the word after each input
    lengths: np.ndarray  # int64 (rows,), inputs of each row

    def groups(self, n_rows: int) -> list[np.ndarray]:
        """The numbers of rows in groups of at most `n_rows`; rows with a common prefix are
        neighbours."""
        n = len(self.lengths)
        if n <= n_rows:
            return [np.arange(n)]
        rows = np.split(self.words.astype(">i4"), np.cumsum(self.lengths)[:-1])
        keys = [row.tobytes() for row in rows]
        order = np.array(sorted(range(n), key=keys.__getitem__))
        return np.array_split(order, -(-n // n_rows))

    def levels(self, rows: np.ndarray, n_states: int) -> Iterator[Level]:
        """The levels of some rows, which start from one state, or each from a state of its own."""
        rows = rows[np.argsort(-self.lengths[rows], kind="stable")]
        lengths = self.lengths[rows]
        starts = np.cumsum(self.lengths)[rows] - lengths
        n_words = int(self.words.max(initial=0)) + 1
        nodes = rows if n_states > 1 else np.zeros(len(rows), np.int64)
        for t in range(lengths.max(initial=0)):
            n = np.count_nonzero(lengths > t)
            inputs = starts[:n] + t
            keys = nodes[:n] * n_words + self.words[inputs]
            distinct, nodes = np.unique(keys, return_inverse=True)
            parents, words = (x.astype(np.int32) for x in np.divmod(distinct, n_words))
            yield Level(words, parents, rows[:n], inputs, nodes)
