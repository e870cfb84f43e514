"""The language model itself: probabilities of text, and likely words for places in a text.

    predictor = Predictor.from_pretrained("model")
    scores = predictor.score(["They saw it ."])
    words = predictor.substitutes(["They ___ it ."])

Words for a place are predicted from the text on both sides. Each direction computes a distribution
over the vocabulary without reading the place: the forward direction from its state before it, the
backward direction from its state after it. Their product is normalised: a product of experts
(Hinton 2002, "Training products of experts by minimizing contrastive divergence"). If the text
before and the text after are independent given the word, Bayes' rule is

    p(word | before, after) = p(word | before) p(word | after) / p(word) / normaliser,

so the product alone counts p(word) twice. It is divided by p(word) to the power of `prior`: 1 is
Bayes' rule, 0 the product alone. p(word) is the log-uniform distribution over the word's rank in
the vocabulary, which is sorted by descending count; the sampled softmax draws from it as well.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import numbers
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import (
    SENTENCES,
    InputError,
    integer,
    one_of,
    real,
    require,
    require_at_least,
    shown,
)
from bilm.core.full_softmax import NEVER, LogitBlocks, add_to_log_sum, block_size
from bilm.core.language_model import LanguageModel
from bilm.core.options import Options
from bilm.core.weight_names import with_softmax_datasets
from bilm.data import Vocabulary
from bilm.data.batch import sentence_batches
from bilm.data.corpus import IndexedText
from bilm.data.encoding import BOS, EOS, UNK
from bilm.data.prefetch import windows
from bilm.data.sentences import Tokens, WarmUpText, read_stream, read_warm_up
from bilm.data.vocabulary import vocabulary_of
from bilm.files.checkpoints import load_variables
from bilm.files.model_files import ModelFiles, ModelSource, open_model
from bilm.files.reading import PathLike
from bilm.files.weights import (
    ENCODER_GROUPS,
    LSTM_GROUPS,
    SOFTMAX_B,
    SOFTMAX_W,
    open_weights,
)
from bilm.training.evaluation import Chunk, Scorer, chunks, warm_up_language_model
from bilm.use.elmo import Pretrained
from bilm.use.word_vectors import open_if_given

logger = logging.getLogger(__name__)

GAP = "___"
_DIRECTIONS = {"forward": (0,), "backward": (1,)}
_POSITIONS_AT_ONCE = 256

# 0-based positions of tokens, "gaps" (tokens that are `GAP`) or "all".
Places = str | Sequence[int]


class SentenceScore(NamedTuple):
    """Log-probabilities of a sentence in nats (natural logarithms), per direction.

    The forward direction predicts the tokens from left to right and then the end `</S>`, the
    backward direction from right to left and then the begin `<S>`. A token outside the vocabulary
    is predicted as `<UNK>`. Peters et al. (2018), section 3.1.

    Attributes:
        tokens: the n tokens of the sentence.
        known: bool (n,), whether a token is in the vocabulary.
        forward: float32 (n,), log p(token | the tokens before it).
        end: log p(`</S>` | the tokens).
        backward: float32 (n,), log p(token | the tokens after it); None for a forward-only model.
        begin: log p(`<S>` | the tokens); None for a forward-only model.
    """

    tokens: list[str]
    known: np.ndarray
    forward: np.ndarray
    end: float
    backward: np.ndarray | None
    begin: float | None

    @property
    def joint(self) -> np.ndarray | None:
        """Forward plus backward, float32 (n,): the objective of section 3.1. It is the log of a
        product of two probabilities of the same token, not a log-probability."""
        return None if self.backward is None else self.forward + self.backward

    @property
    def surprisals(self) -> np.ndarray:
        """-log2 p of each token and of `</S>`, given the tokens before it: float64 (n + 1,), bits.

        Their sum is the surprisal of the sentence, `-forward_total / log(2)`.
        """
        return np.append(self.forward.astype(np.float64), self.end) / -math.log(2)

    @property
    def forward_total(self) -> float:
        """log p(sentence) from left to right, including the end."""
        return float(self.forward.sum(dtype=np.float64)) + self.end

    @property
    def backward_total(self) -> float | None:
        """log p(sentence) from right to left, including the begin."""
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
        place: 0-based position in the sentence.
        token: the token at this position.
        words: the words, the likeliest first.
        log_probabilities: float32 (words,), nats, normalised over the vocabulary without `<S>`,
            `</S>` and `<UNK>`.
        of_token: log-probability of `token`; None if it is not in the vocabulary.
        rank: rank of `token`, 1 for the likeliest word; None if it is not in the vocabulary.
    """

    place: int
    token: str
    words: list[str]
    log_probabilities: np.ndarray
    of_token: float | None
    rank: int | None


class _Request(NamedTuple):
    """A sentence, its id, and the positions to find substitutes for."""

    name: Any
    tokens: Tokens
    positions: Sequence[int] = ()


class _Distribution(NamedTuple):
    """The distribution over words at a place: the product of `directions`, divided by the prior."""

    directions: Sequence[int]
    bias: np.ndarray  # float32 (words,), of all directions and the prior; NEVER for special tokens
    n: int  # number of likeliest words to find


class Predictor:
    """A language model with its softmax, which computes probabilities of words.

    Created by `Predictor.from_pretrained`. The results of a sentence do not depend on other
    sentences or on the batches. A pickled predictor does not need its files.

    Attributes:
        options: the model's options.
        vocabulary: the words that it predicts.
        batch_tokens: tokens per batch, including padding; longer sentences are computed in chunks.
            Can be set.
        window_tokens: tokens to read ahead. Can be set.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self.options = model.options
        self.vocabulary = vocabulary
        self.batch_tokens, self.window_tokens = 4096, 32768
        self._model, self._softmax = model, model.softmax
        self._scorer = Scorer(model)
        self._lock = threading.Lock()  # the scorer keeps states between chunks
        self._find = tf.function(self._run_likeliest, reduce_retracing=True, autograph=False)

    @classmethod
    def from_pretrained(
        cls,
        source: ModelSource | Pretrained,
        *,
        vocab_file: PathLike | None = None,
        precision: str = "float32",
        warm_up: WarmUpText | None = None,
        softmax_file: PathLike | None = None,
    ) -> Predictor:
        """Load a model.

        Args:
            source: a training folder or a checkpoint, ours or the original's; or weights with a
                softmax (as `bilm dump` writes them), or with `softmax_file`; see
                `bilm.files.model_files.open_model`. Or a `Pretrained`, which includes the other
                arguments.
            vocab_file: the words of the softmax, in its order. If the model has a vocabulary, both
                must hold the same words.
            precision, warm_up: as for `ELMo.from_pretrained`.
            softmax_file: an HDF5 file with `softmax/W` (words, projection_dim) and `softmax/b`
                (words,), such as AllenNLP's. By default the softmax in the weights, in
                softmax_weights.hdf5 next to them, or the published one of a named model.

        Raises:
            FileNotFoundError: a file does not exist.
            InputError: a file is not valid, files do not fit each other, or the softmax or the
                vocabulary is missing.
            ConnectionError: a model cannot be downloaded.
        """
        model = Pretrained.of(
            source,
            vocab_file=vocab_file,
            precision=precision,
            warm_up=warm_up,
            softmax_file=softmax_file,
        )
        with open_model(model.source, with_softmax=model.softmax_file is None) as files:
            language_model, vocabulary = _load(files, model)
        if model.warm_up is not None:
            warm_up_language_model(language_model, read_warm_up(model.warm_up), vocabulary)
        return cls(language_model, vocabulary)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "options": self.options,
            "vocabulary": self.vocabulary,
            "precision": self._model.stacks[0].precision,
            "values": self._model.get_weights(),
            "tokens": (self.batch_tokens, self.window_tokens),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = _empty_model(state["options"], state["precision"])
        model.set_weights(state["values"])
        self.__init__(model, state["vocabulary"])  # type: ignore[misc]
        self.batch_tokens, self.window_tokens = state["tokens"]

    def score(
        self, sentences: Iterable[str | Sequence[str]], *, batch_size: int | None = None
    ) -> list[SentenceScore]:
        """Log-probabilities of each token of sentences, in nats.

        Args:
            sentences: lists of tokens, or text that is split at white space.
            batch_size: most sentences computed together; None: chosen for speed. It does not
                change the scores.

        Raises:
            InputError: a sentence is neither text nor a list of tokens, or `batch_size` is below 1.
        """
        return list(self.score_iter(sentences, batch_size=batch_size))

    def score_iter(
        self, sentences: Iterable[Any], *, batch_size: int | None = None, with_ids: bool = False
    ) -> Iterator[Any]:
        """The scores of a stream of sentences, in bounded memory and in the order of the input.

        Args:
            sentences, batch_size: as for `score`; with `with_ids` pairs (id, sentence).
            with_ids: yield pairs (id, `SentenceScore`), the ids as they came.
        """
        require(SENTENCES, sentences=sentences)
        require_at_least(1, batch_size=batch_size)
        requests = (_Request(*item) for item in read_stream(sentences, with_ids))
        return self._by_window(requests, lambda w: self._scores(w, batch_size), with_ids)

    def substitutes(
        self,
        sentences: Iterable[str | Sequence[str]],
        places: Places = "gaps",
        *,
        n: int = 10,
        directions: str | None = None,
        prior: float | None = None,
        batch_size: int | None = None,
    ) -> list[list[Substitutes]]:
        """The likeliest words at positions of sentences.

        Args:
            sentences: lists of tokens, or text that is split at white space.
            places: "gaps", the tokens that are `___`; "all" tokens; or 0-based positions, the same
                for each sentence. The token at a place does not influence its substitutes.
            n: number of words.
            directions: "forward" or "backward" uses one direction; None: the product of all (see
                `bilm.use.predictor`).
            prior: divide by p(word) to this power, 0 to 1. None: 1 for two directions, 0 for one.
            batch_size: as for `score`.

        Returns:
            For each sentence a list of `Substitutes`, one per place.

        Raises:
            InputError: an argument has a wrong value, or a sentence lacks a place.
        """
        found = self.substitutes_iter(
            sentences, places, n=n, directions=directions, prior=prior, batch_size=batch_size
        )
        return list(found)

    def substitutes_iter(
        self,
        sentences: Iterable[Any],
        places: Places = "gaps",
        *,
        n: int = 10,
        directions: str | None = None,
        prior: float | None = None,
        batch_size: int | None = None,
        with_ids: bool = False,
    ) -> Iterator[Any]:
        """The substitutes of a stream of sentences, in bounded memory; see `substitutes`.

        Args:
            with_ids: take pairs (id, sentence) and yield pairs (id, list), the ids as they came.
        """
        require(SENTENCES, sentences=sentences)
        require_at_least(1, batch_size=batch_size)
        require(integer(), n=n)
        if prior is not None:
            require(real(0, 1), prior=prior)
        are_places = places in ("gaps", "all") if isinstance(places, str) else _are_numbers(places)
        if not are_places:
            raise InputError(
                f"places must be 'gaps', 'all' or numbers of tokens, got {shown(places)}."
            )
        counted = self._directions(directions)
        if prior is None:
            prior = float(len(counted) - 1)
        words = self._distribution(n, counted, prior)
        requests = (
            _Request(name, tokens, find_places(tokens, places, f"sentence {number}"))
            for number, (name, tokens) in enumerate(read_stream(sentences, with_ids))
        )
        return self._by_window(
            requests, lambda w: self._substitutes(w, words, batch_size), with_ids
        )

    def _distribution(self, n: int, directions: Sequence[int], prior: float) -> _Distribution:
        vocabulary = self.vocabulary
        special = list({vocabulary.bos, vocabulary.eos, vocabulary.unk})
        bias = len(directions) * self._softmax.b.value.numpy()
        if prior:
            bias -= prior * _log_uniform(vocabulary.size)
        bias[special] = NEVER
        return _Distribution(directions, bias, int(min(n, vocabulary.size - len(special))))

    def _directions(self, wanted: str | None) -> Sequence[int]:
        if wanted is None:
            return range(self.options.n_directions)
        require(one_of(tuple(_DIRECTIONS)), directions=wanted)
        if max(_DIRECTIONS[wanted]) >= self.options.n_directions:
            raise InputError(f"directions: must be 'forward' for this model, got {wanted!r}.")
        return _DIRECTIONS[wanted]

    def _by_window(
        self,
        requests: Iterable[_Request],
        compute: Callable[[list[_Request]], Iterator[Any]],
        with_ids: bool,
    ) -> Iterator[Any]:
        """The results of a stream, computed a window at a time."""
        for window, _ in windows(requests, lambda r: len(r.tokens) + 2, self.window_tokens):
            for request, result in zip(window, compute(window), strict=True):
                yield (request.name, result) if with_ids else result

    def _chunks(self, requests: Sequence[_Request], batch_size: int | None) -> Iterator[Chunk]:
        """Batches of sentences of similar length, and consecutive chunks of long sentences."""
        sentences = [request.tokens for request in requests]
        text = IndexedText.from_sentences(sentences, self.vocabulary)
        reverses = (False, True)[: self.options.n_directions]
        for batch in sentence_batches(text, reverses, self.batch_tokens, max_rows=batch_size):
            yield from chunks(batch, self.options, self.batch_tokens)

    def _scores(
        self, requests: Sequence[_Request], batch_size: int | None
    ) -> Iterator[SentenceScore]:
        n_directions = self.options.n_directions
        # In the reading order of each direction: the tokens, then the sentence end.
        read = [np.empty((n_directions, len(r.tokens) + 1), np.float32) for r in requests]
        with self._lock:
            for chunk in self._chunks(requests, batch_size):
                losses = self._scorer.losses(chunk.feed, chunk.is_continued)
                for row, number, count in chunk.rows():
                    read[number][:, chunk.start : chunk.start + count] = -losses[:, :count, row]
        for request, values in zip(requests, read, strict=True):
            both = n_directions == 2
            yield SentenceScore(
                tokens=list(request.tokens),
                known=self.vocabulary.known_ids(request.tokens) >= 0,
                forward=values[0, :-1],
                end=float(values[0, -1]),
                backward=values[1, :-1][::-1] if both else None,
                begin=float(values[1, -1]) if both else None,
            )

    def _substitutes(
        self, requests: Sequence[_Request], words: _Distribution, batch_size: int | None
    ) -> Iterator[list[Substitutes]]:
        wanted = [request for request in requests if len(request.positions)]
        hidden = self._hidden(wanted, words.directions, batch_size)
        positions = [position for request in wanted for position in request.positions]
        tokens = [request.tokens[position] for request in wanted for position in request.positions]
        found = self._likeliest_at(hidden, positions, tokens, words)
        for request in requests:
            yield [next(found) for _ in request.positions]

    def _hidden(
        self, requests: Sequence[_Request], directions: Sequence[int], batch_size: int | None
    ) -> np.ndarray:
        """The inputs of the softmax at each position, summed over directions: float32 (positions
        of all requests, projection_dim). A product of softmaxes has the sum of their logits."""
        first = np.cumsum([0, *(len(request.positions) for request in requests)])
        summed = np.zeros((int(first[-1]), self.options.lstm.projection_dim), np.float32)
        with self._lock:
            for chunk in self._chunks(requests, batch_size):
                # (n_directions, time, batch, projection_dim)
                hidden = self._scorer.hidden(chunk.feed, chunk.is_continued)
                for row, number, count in chunk.rows():
                    tokens = requests[number].tokens
                    positions = np.asarray(requests[number].positions)
                    for d in directions:
                        # Position k is predicted from input k (<S> is input 0); the backward
                        # direction counts from the end.
                        step = (positions if d == 0 else len(tokens) - 1 - positions) - chunk.start
                        inside = np.flatnonzero((step >= 0) & (step < count))
                        summed[first[number] + inside] += hidden[d, step[inside], row]
        return summed

    def _run_likeliest(self, hidden: tf.Tensor, bias: tf.Tensor, targets: tf.Tensor, n: int) -> Any:
        W = tf.convert_to_tensor(self._softmax.W)
        return likeliest_words(hidden, W, bias, targets, n)

    def _likeliest_at(
        self, hidden: np.ndarray, positions: Sequence[int], tokens: Tokens, words: _Distribution
    ) -> Iterator[Substitutes]:
        """The substitutes at positions, given the inputs of the softmax (see `_hidden`) and the
        tokens there."""
        targets = self.vocabulary.word_ids(tokens)
        for start in range(0, len(positions), _POSITIONS_AT_ONCE):
            part = slice(start, start + _POSITIONS_AT_ONCE)
            found = self._find(hidden[part], words.bias, targets[part], words.n)
            ids, log_p, of_targets, ranks = (x.numpy() for x in found)
            for k, (position, token) in enumerate(zip(positions[part], tokens[part], strict=True)):
                counts = words.bias[targets[start + k]] > NEVER
                yield Substitutes(
                    position,
                    token,
                    [self.vocabulary.id_to_word(number) for number in ids[k].tolist()],
                    log_p[k],
                    float(of_targets[k]) if counts else None,
                    int(ranks[k]) + 1 if counts else None,
                )


class Likeliest(NamedTuple):
    """The likeliest words at n positions."""

    ids: tf.Tensor  # int32 (n, k), the likeliest word first; ties by ascending id
    log_probabilities: tf.Tensor  # float32 (n, k), nats
    of_targets: tf.Tensor  # float32 (n,), log-probabilities of the targets
    ranks: tf.Tensor  # int32 (n,), number of words likelier than the target


def likeliest_words(
    hidden: tf.Tensor,
    W: tf.Tensor,
    bias: tf.Tensor,
    targets: tf.Tensor,
    k: int,
    *,
    block: int | None = None,
) -> Likeliest:
    """The `k` likeliest classes of softmax(hidden . W^T + bias), and the ranks of the targets.

    Args:
        hidden, W, bias, targets: as for `full_cross_entropy`; the bias is NEVER for excluded
            classes.
        k: at most the number of classes.
        block: classes per block; None: 64 MiB of logits.
    """
    size = block_size(hidden) if block is None else tf.constant(block)
    blocks, n = LogitBlocks(hidden, W, bias, size, "float32"), tf.shape(hidden)[0]
    # (n,), the logits of the targets
    given = tf.reduce_sum(hidden * tf.gather(W, targets), axis=1) + tf.gather(bias, targets)

    def add_block(
        start: tf.Tensor, log_sum: tf.Tensor, best: tf.Tensor, ids: tf.Tensor, ranks: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        logits = blocks.logits(start)  # (n, block)
        log_sum = add_to_log_sum(log_sum, logits)
        classes = start + tf.range(tf.shape(logits)[1])
        # The target itself is not counted, however its logit is rounded.
        above = (logits > given[:, tf.newaxis]) & (classes != targets[:, tf.newaxis])
        ranks += tf.reduce_sum(tf.cast(above, tf.int32), axis=1)
        # (n, k + block): the best classes so far and the block's
        ids = tf.concat([ids, tf.broadcast_to(classes, (n, tf.size(classes)))], axis=1)
        best, index = tf.math.top_k(tf.concat([best, logits], axis=1), k)
        ids = tf.gather(ids, index, batch_dims=1)  # (n, k)
        return start + size, log_sum, best, ids, ranks

    nothing = tf.fill((n,), NEVER)
    # Excluded classes still rank above empty slots.
    unfilled = tf.fill((n, k), 2 * NEVER)
    _, log_sum, best, ids, ranks = tf.while_loop(
        lambda start, *_: start < blocks.n_classes,
        add_block,
        (tf.constant(0), nothing, unfilled, tf.zeros((n, k), tf.int32), tf.zeros_like(targets)),
        parallel_iterations=1,
        shape_invariants=tuple(map(tf.TensorShape, ([], [None], [None, k], [None, k], [None]))),
    )
    return Likeliest(ids, best - log_sum[:, tf.newaxis], given - log_sum, ranks)


def _log_uniform(n_tokens: int) -> np.ndarray:
    """log P(id) of the log-uniform distribution over ids: float64 (n_tokens,)."""
    ids = np.arange(n_tokens)
    return np.log(np.log1p(1 / (ids + 1))) - np.log(np.log(n_tokens + 1))


def _are_numbers(places: Any) -> bool:
    is_list = isinstance(places, Iterable) and not isinstance(places, Iterator | bytes)
    try:
        return is_list and all(isinstance(place, numbers.Integral) for place in places)
    except TypeError:  # an array without axes
        return False


def find_places(tokens: Tokens, places: Places, where: str) -> Sequence[int]:
    """The positions of the tokens that are places; arguments as for `Predictor.substitutes`."""
    if isinstance(places, str) and places == "all":
        return range(len(tokens))
    if isinstance(places, str):
        gaps = [position for position, token in enumerate(tokens) if token == GAP]
        if not gaps:
            raise InputError(f"{where} must have a token {GAP}, the place to fill.")
        return gaps
    for position in places:
        if not 0 <= position < len(tokens):
            raise InputError(
                f"{where}: a place must be >= 0 and below its {len(tokens)} tokens, got "
                f"{shown(position)}."
            )
    return [int(position) for position in places]


def has_softmax(files: ModelFiles) -> bool:
    """Whether a model can predict words: a checkpoint, or weights with a softmax."""
    if files.is_checkpoint or files.softmax is not None:
        return True
    with open_weights(files.weights) as weights:
        return SOFTMAX_B in weights.shapes


def _load(files: ModelFiles, model: Pretrained) -> tuple[LanguageModel, Vocabulary]:
    if files.is_checkpoint:
        return _load_checkpoint(files, model)
    softmax_file = model.softmax_file or files.softmax
    with open_weights(files.weights) as weights, open_if_given(softmax_file) as softmax:
        softmax = softmax or weights
        shapes = softmax.shapes
        if SOFTMAX_B not in shapes or len(shapes[SOFTMAX_B]) != 1:
            raise InputError(
                f"{softmax.path}: the softmax ({SOFTMAX_B}), which predicts words, is missing. Use "
                "the training folder, weights dumped with the softmax, or softmax_file."
            )
        language_model, vocabulary = _build(
            dataclasses.replace(
                files.read_options(),
                n_tokens_vocab=shapes[SOFTMAX_B][0],
                share_embedding_softmax=SOFTMAX_W not in shapes,
            ),
            files,
            model,
            softmax.words(),
            softmax.path,
        )
        table, names = with_softmax_datasets(language_model.weight_table()), (SOFTMAX_W, SOFTMAX_B)
        weights.load([weight for weight in table if weight.dataset not in names])
        of_softmax = [weight for weight in table if weight.dataset in names]
        softmax.load(of_softmax, also=(*ENCODER_GROUPS, *LSTM_GROUPS))
        weights.load_initial_states(language_model.stacks)
    return language_model, vocabulary


def _load_checkpoint(files: ModelFiles, model: Pretrained) -> tuple[LanguageModel, Vocabulary]:
    if model.softmax_file is not None:
        raise InputError(f"softmax_file is for weights; {files.weights} is a checkpoint.")
    found = _build(files.read_options(), files, model, None, os.fspath(files.weights))
    load_variables(os.fspath(files.weights), found[0].weight_table())
    return found


def _build(
    options: Options,
    files: ModelFiles,
    model: Pretrained,
    words: list[str] | None,
    where: str,
) -> tuple[LanguageModel, Vocabulary]:
    """The model without values, and its vocabulary. `words` are stored with the softmax in the file
    `where`."""
    beside = files.vocabulary
    if model.softmax_file is not None and model.vocab_file is not None:
        beside = None  # it may be the vocabulary of a token cache
    length = options.max_word_length
    vocabulary = vocabulary_of(model.vocab_file, words, where, beside, length)
    if vocabulary is None:
        raise InputError(
            f"{files.source}: the vocabulary of the softmax is missing: give vocab_file."
        )
    language_model = _empty_model(options, model.precision)
    n_words = language_model.softmax.n_tokens
    if vocabulary.size != n_words:
        raise InputError(
            f"{vocabulary.source} must have {n_words} words, as many as the softmax of {where}, "
            f"got {vocabulary.size}."
        )
    first = vocabulary.words[:3]
    if {BOS, EOS, UNK} != set(first):
        logger.warning(
            "%s: the first words should be %s, %s and %s, got %s: are the words in the order of "
            "the softmax?", vocabulary.source, BOS, EOS, UNK, ", ".join(first),
        )  # fmt: skip
    return language_model, vocabulary


def _empty_model(options: Options, precision: str) -> LanguageModel:
    """A model for prediction, without values."""
    return LanguageModel(options, is_training=False, seed=None, precision=precision)
