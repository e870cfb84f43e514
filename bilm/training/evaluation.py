"""Perplexity of a text by the full softmax.

By default each sentence starts from the initial states, so the perplexity depends only on the model
and the text. With `carry_state`, the LSTM states are carried along the rows of the batches, as in
the original.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bilm.core.errors import InputError, integer, require
from bilm.core.language_model import LanguageModel
from bilm.core.options import Options
from bilm.data.batch import Batch
from bilm.data.dataset import reading_method
from bilm.data.prefetch import prefetch
from bilm.data.vocabulary import Vocabulary
from bilm.files.checkpoints import load_variables
from bilm.files.reading import PathLike, require_path
from bilm.files.weights import weight_table
from bilm.inference.scorer import Chunk, Perplexity, Scorer, SentenceScores, exp_of_loss
from bilm.progress import ShowStage, Stage
from bilm.training.inputs import make_feed

# Every n-th batch of sentences is also scored from the states of training.
_COMPARED_EVERY = 8


def test(
    options: Mapping[str, Any] | Options,
    ckpt_file: PathLike,
    data: Any,
    batch_size: int = 256,
    *,
    carry_state: bool = False,
    per_sentence: bool = False,
    progress: ShowStage | None = None,
) -> Perplexity:
    """Score a held-out text with a checkpoint.

    Args:
        options: training options.
        ckpt_file: prefix of a checkpoint, ours or the original's.
        data: a data set of `bilm.data`, preferably with test=True; or an object with a finite
            `iter_batches`, which is scored with carried states.
        batch_size: rows per batch.
        carry_state: let each row continue from the states after the previous batch, as in the
            original.
        per_sentence: also return the score of every sentence.
        progress: called with a `Stage` of predictions after each batch; requires
            `data.n_train_tokens`.

    Returns:
        the perplexity, with `sentences` if `per_sentence`.

    Raises:
        FileNotFoundError: the checkpoint does not exist.
        InputError: options, checkpoint and data do not fit, or the data is empty.
    """
    if not isinstance(options, Options):
        options = Options.from_dict(options, training=True)
    require(integer(), batch_size=batch_size)
    ckpt_file = require_path(ckpt_file, "the checkpoint")
    check_vocabulary(options, data)
    model = LanguageModel(options, is_training=False, seed=None)
    load_variables(ckpt_file, weight_table(model))
    total = 0 if progress is None else data.n_train_tokens

    def show(n: int) -> None:
        if progress is not None:
            progress(Stage("scoring", n, total, "predictions"))

    show(0)
    return evaluate(
        Scorer(model),
        data,
        batch_size,
        carry_state=carry_state,
        per_sentence=per_sentence,
        show=show,
    )


def data_vocabulary(data: Any) -> Vocabulary | None:
    """The vocabulary of a data set, its attribute `vocab`; None without one."""
    vocabulary = getattr(data, "vocab", None)
    return vocabulary if isinstance(vocabulary, Vocabulary) else None


def check_vocabulary(options: Options, data: Any) -> Vocabulary | None:
    """The vocabulary of a data set, which must have n_tokens_vocab words; None without one."""
    vocabulary = data_vocabulary(data)
    if vocabulary is not None and options.n_tokens_vocab not in (None, vocabulary.size):
        raise InputError(
            f"{vocabulary.source} must have n_tokens_vocab = {options.n_tokens_vocab} words, got "
            f"{vocabulary.size}."
        )
    return vocabulary


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
    """Score a held-out text with a loaded model; see `test`. States are (1, ...) per direction.

    Args:
        begin: initial states; None: the model's initial states.
        training_states: states from which some sentences are also scored, for the result's
            `start_ratio`.
        show: called with the number of predictions so far.
    """
    options = scorer.options
    total, count = np.zeros(options.n_directions), 0
    excess, n_compared = np.zeros(options.n_directions), 0
    vocabulary = data_vocabulary(data)
    n_unknown, n_words = 0, 0
    states: Any = None
    # Per batch, for each row: sentence number, number of predictions, summed losses.
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for number, chunk in enumerate(
        prefetch(_chunks_of_data(data, options, batch_size, carry_state), 4)
    ):
        n_predictions = int(chunk.mask.sum())
        targets = chunk.feed.targets[0][chunk.mask]
        if vocabulary is not None:
            n_unknown += int((targets == vocabulary.unk).sum())
            n_words += int((~np.isin(targets, (vocabulary.bos, vocabulary.eos))).sum())
        vectors, texts = scorer.encode(chunk.feed.distinct), chunk.texts()
        before = states if chunk.is_continued else begin
        losses, states = scorer.losses(vectors, texts, before, with_states=chunk.sentences is None)
        summed = chunk.summed(losses)
        total += summed.sum(axis=1)
        count += n_predictions
        is_compared = training_states is not None and number % _COMPARED_EVERY == 0
        if is_compared and chunk.sentences is not None and not chunk.is_continued:
            from_training, _ = scorer.losses(vectors, texts, training_states)
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
        numbers, counts, losses_by_row = (
            np.concatenate(x, axis=-1) for x in zip(*rows, strict=True)
        )
        n, *by_sentence = (np.bincount(numbers, values) for values in (counts, *losses_by_row))
        result.sentences = SentenceScores(n.astype(np.int64), np.stack(by_sentence))
    if n_compared:
        result.start_ratio = tuple(exp_of_loss(loss) for loss in (excess / n_compared).tolist())
    return result


def _chunks_of_data(
    data: Any, options: Options, batch_size: int, carry_state: bool
) -> Iterator[Chunk]:
    """The text in batches of at most batch_size * unroll_steps tokens; a longer sentence is a batch
    of its own."""
    shape = (batch_size, options.unroll_steps)
    methods = ["iter_sentence_batches", "iter_distinct", "iter_batches"][carry_state:]
    method = reading_method(data, *methods)
    if method == "iter_sentence_batches":
        for batch in data.iter_sentence_batches(batch_size * options.unroll_steps):
            yield Chunk(make_feed(batch, options), batch.mask.T, False, batch.sentences)
        return
    for number, batch in enumerate(getattr(data, method)(*shape)):
        is_ours = isinstance(batch, Batch)
        if is_ours and batch.state is not None and not batch.state.test:
            raise InputError("carry_state: the data has no end; make it with test=True.")
        feed = make_feed(batch, options, shape)
        mask = batch.mask.T if is_ours else np.ones(feed.targets.shape[1:], bool)
        yield Chunk(feed, mask, is_continued=number > 0)
