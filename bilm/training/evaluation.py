"""Perplexity of a text by the full softmax.

By default each sentence is scored alone, from the initial states, so the perplexity depends on the
model and the text only. The original carried the LSTM states along the rows of its batches, as
`carry_state` does. If the two differ by much, the model does badly from the initial states: see
docs/states.md.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, integer, require
from bilm.core.language_model import Feed, LanguageModel
from bilm.core.lstm import Mode
from bilm.core.options import Options
from bilm.data import Batch, Vocabulary, deciding_method, network_ids, prefetch
from bilm.data.corpus import IndexedText
from bilm.data.sentences import WarmUpText, read_warm_up
from bilm.files.checkpoints import load_variables
from bilm.files.reading import ShowStage, Stage
from bilm.training.inputs import make_feed
from bilm.training.run_state import exp_of_loss, load_mean_states

logger = logging.getLogger(__name__)

# A ratio of perplexities, from initial states and from the states of training, that is too high.
_LOST = 1.1
# Every n-th batch of sentences is scored from the states of training as well.
_COMPARED_EVERY = 8
_PREDICTIONS_OF_A_ROW = 1000


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


def test(
    options: Mapping[str, Any] | Options,
    ckpt_file: str,
    data: Any,
    batch_size: int = 256,
    *,
    carry_state: bool = False,
    per_sentence: bool = False,
    compare: bool = False,
    warm_up: WarmUpText | None = None,
    progress: ShowStage | None = None,
) -> Perplexity:
    """Score a held-out text with a checkpoint.

    Args:
        options: training options.
        ckpt_file: prefix of a checkpoint, ours or the original's.
        data: a data set of `bilm.data` (best with test=True), or an object with a finite
            `iter_batches`, which is scored with carried states.
        batch_size: rows at a time.
        carry_state: let each row continue from the states after the previous batch, as in the
            original.
        per_sentence: also return the score of every sentence.
        compare: score the text a second time, with carried states, as the result's `carried`. Its
            rows start from the mean of the states of training, if the checkpoint holds them.
        warm_up: a text file, or sentences; each sentence starts from the states after reading
            them instead of zeros. `data` needs a `vocab`.
        progress: called with a `Stage` of predictions after each batch; `data` needs
            `n_train_tokens`.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        InputError: options, checkpoint and data do not fit, or there is nothing to score.
    """
    if not isinstance(options, Options):
        options = Options.from_dict(options, training=True)
    require(integer(), batch_size=batch_size)
    model = LanguageModel(options, is_training=False, seed=None)
    load_variables(ckpt_file, model.weight_table())
    if warm_up is not None:
        warm_up_language_model(model, read_warm_up(warm_up), data.vocab)
    scorer = Scorer(model)

    def run(doing: str, n_rows: int, carry_state: bool, **settings: Any) -> Perplexity:
        if progress is not None:
            total = data.n_train_tokens
            settings["show"] = lambda n: progress(Stage(doing, n, total, "predictions"))
        return evaluate(scorer, data, n_rows, carry_state=carry_state, **settings)

    result = run("scoring", batch_size, carry_state, per_sentence=per_sentence)
    if compare:
        begin = load_mean_states(ckpt_file, model.network.zero_states)
        # Rows so long that their initial states matter little.
        n_rows = max(1, min(batch_size, result.n_predictions // _PREDICTIONS_OF_A_ROW))
        result.carried = run("scoring with carried states", n_rows, True, begin=begin)
    return result


def evaluate(
    scorer: Scorer,
    data: Any,
    batch_size: int = 256,
    *,
    carry_state: bool = False,
    per_sentence: bool = False,
    begin: Any = None,
    training_states: Any = None,
    show: Callable[[int], None] | None = None,
) -> Perplexity:
    """Score a held-out text with a model as it is; see `test`. States are (1, ...) per direction.

    Args:
        begin: initial states; None: the model's own.
        training_states: states from which a part of the sentences is scored as well, for the
            result's `start_ratio`.
        show: called with the number of predictions so far.
    """
    options = scorer.options
    total, count = np.zeros(options.n_directions), 0
    excess, n_compared = np.zeros(options.n_directions), 0
    vocabulary = getattr(data, "vocab", None)
    n_unknown, n_words = 0, 0
    states: Any = None
    # Of each row: the number of its sentence, its predictions, and their losses.
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for number, chunk in enumerate(
        prefetch(_chunks_of_data(data, options, batch_size, carry_state), 4)
    ):
        n_predictions = int(chunk.mask.sum())
        if vocabulary is not None:
            targets = chunk.feed.targets[0][chunk.mask]
            n_unknown += int((targets == vocabulary.unk).sum())
            n_words += int((~np.isin(targets, (vocabulary.bos, vocabulary.eos))).sum())
        losses, states = scorer.losses(chunk.feed, states if chunk.is_continued else begin)
        summed = chunk.summed(losses)
        total += summed.sum(axis=1)
        count += n_predictions
        is_compared = training_states is not None and number % _COMPARED_EVERY == 0
        if is_compared and chunk.sentences is not None and not chunk.is_continued:
            from_training, _ = scorer.losses(chunk.feed, training_states)
            excess += (summed - chunk.summed(from_training)).sum(axis=1)
            n_compared += n_predictions
        if show is not None:
            show(count)
        if per_sentence:
            if chunk.sentences is None:
                raise InputError(
                    "per_sentence needs a data set with iter_sentence_batches, and no carry_state."
                )
            rows.append((chunk.sentences, chunk.mask.sum(axis=0), summed))
    if not count:
        raise InputError("The data holds no prediction to score.")
    result = Perplexity.of_losses(total, count)
    result.unknown = None if vocabulary is None else n_unknown / max(n_words, 1)
    if per_sentence:
        numbers, counts, of_rows = (np.concatenate(x, axis=-1) for x in zip(*rows, strict=True))
        n, *of_sentences = (np.bincount(numbers, values) for values in (counts, *of_rows))
        result.sentences = SentenceScores(n.astype(np.int64), np.stack(of_sentences))
    if n_compared:
        result.start_ratio = tuple(exp_of_loss(loss) for loss in (excess / n_compared).tolist())
    return result


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


def _chunks_of_data(
    data: Any, options: Options, batch_size: int, carry_state: bool
) -> Iterator[Chunk]:
    """The text in chunks of at most batch_size * unroll_steps tokens."""
    shape = (batch_size, options.unroll_steps)
    methods = ["iter_sentence_batches", "iter_distinct", "iter_batches"][carry_state:]
    method = deciding_method(data, *methods)
    if method == "iter_sentence_batches":
        for batch in data.iter_sentence_batches(batch_size * options.unroll_steps):
            # A row longer than the budget is scored in several chunks.
            yield from chunks_of_batch(batch, options, batch_size * options.unroll_steps)
        return
    for number, batch in enumerate(getattr(data, method)(*shape)):
        is_ours = isinstance(batch, Batch)
        if is_ours and batch.state is not None and not batch.state.test:
            raise InputError("carry_state: the data has no end; make it with test=True.")
        feed = make_feed(batch, options, shape)
        mask = batch.mask.T if is_ours else np.ones(feed.targets.shape[1:], bool)
        yield Chunk(feed, mask, is_continued=number > 0)


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
