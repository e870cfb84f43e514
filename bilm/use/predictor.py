"""Probabilities of text by a language model, and the likeliest words at positions of a text.

    predictor = Predictor.from_pretrained("model")
    scores = predictor.score(["They saw it ."])
    words = predictor.substitutes(["They ___ it ."])

The words at a position are predicted from the text on both sides, but not from the token itself, by
the product of both directions' distributions: a product of experts (Hinton 2002, "Training products
of experts by minimizing contrastive divergence"). If the text before and the text after are
independent given the word, Bayes' rule is

    p(word | before, after) = p(word | before) p(word | after) / p(word) / normaliser,

so the product is divided by p(word) ** prior: 1 is Bayes' rule, 0 the plain product.
p(word) is log-uniform over the word's rank in the vocabulary, as in the sampled softmax.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import (
    InputError,
    Rule,
    integer,
    one_of,
    real,
    require,
    require_at_least,
    shown,
)
from bilm.core.full_softmax import NEVER
from bilm.core.keras_backend import matmul
from bilm.data.encoding import BOS, EOS
from bilm.data.prefetch import windows
from bilm.data.sentences import Tokens, read_stream
from bilm.files.model_files import ModelSource
from bilm.inference.corpus_encoder import EncodedWords
from bilm.inference.scorer import Scorer, TextRows
from bilm.use.pretrained import Model, Pretrained, open_once

GAP = "___"
# Maximum number of logits in memory.
_MOST_LOGITS = 2**24
_DIRECTIONS = {"forward": 0, "backward": 1}

# 0-based positions of tokens, the same for all sentences or a list per sentence; "gaps" (tokens
# that are `GAP`) or "all".
Places = str | Sequence[int] | Sequence[Sequence[int]]


def _are_places(places: Any) -> bool:
    if isinstance(places, str):
        return places in ("gaps", "all")
    lists = places if _is_list(places) and all(map(_is_list, places)) else [places]
    return all(_is_list(positions) and all(map(integer(0).holds, positions)) for positions in lists)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | range | np.ndarray)


_PLACES = Rule("'gaps', 'all', a list of integers >= 0, or such a list per sentence", _are_places)


class SentenceScore(NamedTuple):
    """Log-probabilities of a sentence in nats (natural logarithms), per direction.

    The forward direction predicts the tokens from left to right and then `</S>`, the backward
    direction from right to left and then `<S>`. A token outside the vocabulary
    is predicted as `<UNK>`. Peters et al. (2018), section 3.1.
    """

    tokens: list[str]  # n tokens
    known: np.ndarray  # bool (n,), whether a token is in the vocabulary
    forward: np.ndarray  # float32 (n,), log p(token | previous tokens)
    end: float  # log p(`</S>` | the tokens)
    backward: np.ndarray | None  # the same given the next tokens; None if forward-only
    begin: float | None  # log p(`<S>` | the tokens); None if forward-only

    @property
    def joint(self) -> np.ndarray | None:
        """Forward plus backward, float32 (n,): the objective of section 3.1. It is the log of a
        product of two probabilities of the same token, not a log-probability."""
        return None if self.backward is None else self.forward + self.backward

    @property
    def surprisals(self) -> np.ndarray:
        """-log2 p of each token and of `</S>`, given the previous tokens: float64 (n + 1,), bits.
        Their sum is the surprisal of the sentence."""
        return np.append(self.forward.astype(np.float64), self.end) / -math.log(2)

    @property
    def forward_total(self) -> float:
        """log p(sentence) from left to right, including `</S>`."""
        return float(self.forward.sum(dtype=np.float64)) + self.end

    @property
    def backward_total(self) -> float | None:
        """log p(sentence) from right to left, including `<S>`."""
        if self.backward is None or self.begin is None:
            return None
        return float(self.backward.sum(dtype=np.float64)) + self.begin

    @property
    def joint_total(self) -> float | None:
        """Forward plus backward."""
        backward = self.backward_total
        return None if backward is None else self.forward_total + backward


class Substitutes(NamedTuple):
    """The likeliest words at one position. Probabilities are normalised over the vocabulary without
    `<S>`, `</S>` and `<UNK>`."""

    place: int  # 0-based position in the sentence
    token: str  # at this position
    words: list[str]  # likeliest first
    log_probabilities: np.ndarray  # float32 (words,), nats
    of_token: float | None  # log-probability of `token`; None if it is not in the vocabulary
    rank: int | None  # of `token`, 1 for the likeliest word; None if it is not in the vocabulary


class _Request(NamedTuple):
    name: Any  # the id of the sentence
    tokens: Tokens
    positions: Sequence[int] = ()  # where to find substitutes


class _Window(NamedTuple):
    """Sentences as the network's inputs; in the backward text, the sentences themselves are in
    reverse order too."""

    vectors: tf.Tensor  # float32 (words, projection_dim)
    texts: list[TextRows]  # per direction
    starts: np.ndarray  # int64 (sentences,), the first input of each in the forward text
    known: list[np.ndarray]  # per sentence bool (tokens,), whether a token is in the vocabulary


class _Distribution(NamedTuple):
    """A distribution over words: the product of `directions`, divided by the prior."""

    directions: Sequence[int]
    bias: np.ndarray  # float32 (words,), of all directions and the prior; NEVER for special tokens
    n: int  # number of words to return


class Predictor:
    """A language model with its softmax.

    Created by `Predictor.from_pretrained`, or as a view of an open `Model`. The results of a
    sentence do not depend on the other sentences or on the batch size. A pickled predictor does not
    need its files.

    Attributes:
        model: the open model.
        options: the model's options.
        vocabulary: the words that it predicts.
        window_tokens: tokens to read ahead. Can be set.
    """

    def __init__(self, *source: Any, **settings: Any) -> None:
        model = open_once(*source, softmax=True, **settings)
        if model.language_model is None or model.vocabulary is None:
            raise InputError("Predictor: the model was opened without a softmax.")
        self.model = model
        self.options = model.language_model.options
        self.vocabulary = model.vocabulary
        self.window_tokens = 32768
        self._softmax = model.language_model.softmax
        self._scorer = Scorer(model.language_model, model.precision)
        self._words = EncodedWords(model.network, model.words.word_ids)
        self._lock = threading.Lock()  # of `_words`

    @classmethod
    def from_pretrained(
        cls, source: ModelSource | Pretrained | Model, **settings: Any
    ) -> Predictor:
        """Load a model; `Predictor(source, ...)` does the same, also with the two files.

        Args:
            source: a training folder or a checkpoint, ours or the original's; weights with a
                softmax (as `bilm dump` writes them) or with `softmax_file`, see
                `bilm.files.model_files.open_model`; a `Pretrained`, which includes the settings; or
                an open `Model`, whose variables are shared.
            settings: vocab_file, precision, warm_up, softmax_file, tokenizer, see `Pretrained`. If
                the model has a vocabulary, `vocab_file` must hold the same words.

        Raises:
            FileNotFoundError: a file does not exist.
            InputError: a file is not valid, files do not fit each other, or the softmax or the
                vocabulary is missing.
            ConnectionError: a model cannot be downloaded.
        """
        return cls(source, **settings)

    def __reduce__(self) -> Any:
        return type(self), (self.model,)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, in which each `___` is a token."""
        split = self.model.split
        if split is str.split:
            return text.split()
        parts = re.split(f"({GAP})", text)
        return [token for part in parts for token in ([GAP] if part == GAP else split(part))]

    def score(
        self,
        sentences: Iterable[str | Sequence[str]],
        *,
        batch_size: int | None = None,
        forward_only: bool = False,
    ) -> list[SentenceScore]:
        """Log-probabilities of each token of sentences, in nats.

        Args:
            sentences, batch_size: as for `ELMo.encode`.
            forward_only: skip the backward direction, which halves the time.

        Raises:
            InputError: a sentence is neither text nor a list of tokens, `batch_size` is below 1, or
                a token is outside a vocabulary that lacks `<UNK>`.
        """
        return list(self.score_iter(sentences, batch_size=batch_size, forward_only=forward_only))

    def score_iter(
        self,
        sentences: Iterable[Any],
        *,
        batch_size: int | None = None,
        forward_only: bool = False,
        with_ids: bool = False,
    ) -> Iterator[Any]:
        """The scores of a stream in bounded memory, in order; see `score`. `with_ids` takes
        pairs (id, sentence) and yields pairs (id, `SentenceScore`)."""
        require_at_least(1, batch_size=batch_size)
        directions = range(1 if forward_only else self.options.n_directions)
        items = read_stream(sentences, with_ids, self.tokens)
        requests = (_Request(*item) for item in items)
        return self._by_window(
            requests, lambda w: self._scores(w, directions), with_ids, batch_size
        )

    def substitutes(
        self, sentences: Iterable[str | Sequence[str]], places: Places = "gaps", **settings: Any
    ) -> list[list[Substitutes]]:
        """The likeliest words at positions of sentences: a list of `Substitutes` per sentence, one
        for each position. Arguments as for `substitutes_iter`."""
        return list(self.substitutes_iter(sentences, places, **settings))

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
        """The likeliest words at positions of a stream of sentences, in bounded memory.

        Args:
            sentences: as for `score`.
            places: "gaps", the tokens `___`; "all" tokens; or 0-based positions, the same for each
                sentence, or a list for each. The token at a position does not influence its
                substitutes.
            n: number of words.
            directions: "forward", "backward", or None for the product of all (see
                `bilm.use.predictor`).
            prior: divide by p(word) ** prior, 0 to 1. None: 1 for two directions, 0 for one.
            batch_size: as for `score`.
            with_ids: take pairs (id, sentence) and yield pairs (id, list).

        Yields:
            For each sentence a list of `Substitutes`, one per position.

        Raises:
            InputError: an argument has a wrong value, a sentence lacks a position, or the
                vocabulary lacks `<UNK>`.
        """
        require_at_least(1, batch_size=batch_size)
        require(integer(), n=n)
        require(_PLACES, places=places)
        if prior is not None:
            require(real(0, 1), prior=prior)
        distribution = self._distribution(n, directions, prior)
        items = read_stream(sentences, with_ids, self.tokens)
        requests = (
            _Request(name, tokens, find_places(tokens, places, f"sentence {number}", number))
            for number, (name, tokens) in enumerate(items)
        )
        return self._by_window(
            requests, lambda w: self._substitutes(w, distribution), with_ids, batch_size
        )

    def _distribution(self, n: int, direction: str | None, prior: float | None) -> _Distribution:
        directions: Sequence[int] = range(self.options.n_directions)
        if direction is not None:
            require(one_of(tuple(_DIRECTIONS)), directions=direction)
            if _DIRECTIONS[direction] not in directions:
                raise InputError(f"directions must be 'forward' for this model, got {direction!r}.")
            directions = [_DIRECTIONS[direction]]
        if prior is None:
            prior = len(directions) - 1
        vocabulary = self.vocabulary
        bias = len(directions) * self._softmax.b.value.numpy()
        ids = np.arange(vocabulary.size)
        bias -= prior * np.log(np.log1p(1 / (ids + 1)) / np.log(vocabulary.size + 1))  # log-uniform
        is_word = vocabulary.has_word.copy()
        is_word[[vocabulary.bos, vocabulary.eos, vocabulary.unk]] = False
        bias[~is_word] = NEVER
        return _Distribution(directions, bias, int(min(n, is_word.sum())))

    def _by_window(
        self,
        requests: Iterable[_Request],
        compute: Callable[[list[_Request]], Iterator[Any]],
        with_ids: bool,
        batch_size: int | None,
    ) -> Iterator[Any]:
        size = self.window_tokens
        for window, _ in windows(requests, lambda r: len(r.tokens) + 2, size, batch_size):
            for request, result in zip(window, compute(window), strict=True):
                yield (request.name, result) if with_ids else result

    def _scores(
        self, requests: Sequence[_Request], directions: Sequence[int]
    ) -> Iterator[SentenceScore]:
        read = self._read([request.tokens for request in requests])
        losses, _ = self._scorer.losses(read.vectors, [read.texts[d] for d in directions])
        # Sentence after sentence: forward, the tokens and `</S>`; backward, `<S>` and the tokens.
        log_p = [-losses[0], *(-losses[1:, ::-1])]
        for request, start, known in zip(requests, read.starts, read.known, strict=True):
            stop = start + len(request.tokens) + 1
            forward, *rest = (values[start:stop] for values in log_p)
            backward = rest[0] if rest else None
            yield SentenceScore(
                tokens=list(request.tokens),
                known=known,
                forward=forward[:-1],
                end=float(forward[-1]),
                backward=None if backward is None else backward[1:],
                begin=None if backward is None else float(backward[0]),
            )

    def _read(self, sentences: Sequence[Tokens]) -> _Window:
        """Sentences as inputs and targets of both directions."""
        framed = [[BOS, *tokens, EOS] for tokens in sentences]
        with self._lock:
            used, words = np.unique(self._words.numbers(framed), return_inverse=True)
            vectors = tf.constant(self._words.vectors[used])
        known = self.vocabulary.known_ids(list(itertools.chain.from_iterable(framed)))
        targets = known if (known >= 0).all() else np.where(known < 0, self.vocabulary.unk, known)
        lengths = np.array([len(tokens) - 1 for tokens in framed])
        stops = np.cumsum(lengths + 1)
        first, last = np.zeros((2, len(words)), np.bool_)
        first[stops - lengths - 1] = last[stops - 1] = True
        words = words.astype(np.int32)
        texts = [TextRows(words[~last], targets[~first], lengths)]
        if self.options.n_directions > 1:  # the sentences in reverse order, too
            texts.append(TextRows(words[~first][::-1], targets[~last][::-1], lengths[::-1]))
        spans = zip((stops - lengths).tolist(), (stops - 1).tolist(), strict=True)
        return _Window(
            vectors, texts, np.cumsum(lengths) - lengths, [known[a:b] >= 0 for a, b in spans]
        )

    def _substitutes(
        self, requests: Sequence[_Request], distribution: _Distribution
    ) -> Iterator[list[Substitutes]]:
        with_positions = [request for request in requests if len(request.positions)]
        places = [(k, request.tokens[k]) for request in with_positions for k in request.positions]
        substitutes: Iterator[Substitutes] = iter(())
        if places:
            hidden = self._hidden(with_positions, distribution.directions)
            substitutes = self._likeliest_at(hidden, places, distribution)
        for request in requests:
            yield [next(substitutes) for _ in request.positions]

    def _hidden(self, requests: Sequence[_Request], directions: Sequence[int]) -> np.ndarray:
        """The softmax's inputs at all positions, float32 (positions of all requests, dim), summed
        over directions: the logits of a product of distributions are the sums of their logits."""
        read = self._read([request.tokens for request in requests])
        pairs = zip(read.starts, requests, strict=True)
        at = np.concatenate([start + np.asarray(request.positions) for start, request in pairs])
        # Token k is predicted from input k (<S> is input 0); backward, from the token after it.
        inputs = (at, len(read.texts[0].words) - 2 - at)
        hidden = [
            self._scorer.hidden(d, read.vectors, read.texts[d], inputs[d]) for d in directions
        ]
        return np.sum(hidden, axis=0)

    def _likeliest_at(
        self, hidden: np.ndarray, places: Sequence[tuple[int, str]], distribution: _Distribution
    ) -> Iterator[Substitutes]:
        """The substitutes at `places` (position, token), whose softmax inputs are `hidden`."""
        at_once = max(1, min(256, _MOST_LOGITS // self.vocabulary.size))
        targets = self.vocabulary.word_ids([token for _, token in places])
        W = tf.convert_to_tensor(self._softmax.W)
        for start in range(0, len(places), at_once):
            part = slice(start, start + at_once)
            ids, log_p, token_log_p, ranks = likeliest_words(
                hidden[part],
                W,
                distribution.bias,
                targets[part],
                distribution.n,
                self._softmax.precision,
            )
            for k, (position, token) in enumerate(places[part]):
                has_rank = distribution.bias[targets[start + k]] > NEVER
                yield Substitutes(
                    position,
                    token,
                    [self.vocabulary.id_to_word(number) for number in ids[k].tolist()],
                    log_p[k],
                    float(token_log_p[k]) if has_rank else None,
                    int(ranks[k]) + 1 if has_rank else None,
                )


def likeliest_words(
    hidden: tf.Tensor,
    W: tf.Tensor,
    bias: tf.Tensor,
    targets: tf.Tensor,
    k: int,
    precision: str = "float32",
) -> tuple[np.ndarray, ...]:
    """The `k` likeliest classes of softmax(hidden . W^T + bias), and the ranks of the targets.

    Other arguments as for `full_cross_entropy`; the bias of excluded classes is NEVER.

    Returns:
        The classes int32 (n, k), likeliest first, ties by ascending id; their log-probabilities
        float32 (n, k), and those of the targets (n,); and the number of classes likelier than the
        target, int32 (n,).
    """
    logits = matmul(hidden, W, precision, transpose_b=True) + bias  # (n, classes)
    log_sum = tf.reduce_logsumexp(logits, axis=1)
    best, ids = tf.math.top_k(logits, k)
    target_logits = tf.gather(logits, targets, batch_dims=1)  # (n,)
    ranks = tf.reduce_sum(tf.cast(logits > target_logits[:, tf.newaxis], tf.int32), axis=1)
    results = (ids, best - log_sum[:, tf.newaxis], target_logits - log_sum, ranks)
    return tuple(x.numpy() for x in results)


def find_places(tokens: Tokens, places: Any, where: str, number: int = 0) -> Sequence[int]:
    """The positions in sentence `number` that `places` selects, see
    `Predictor.substitutes_iter`."""
    if isinstance(places, str):
        if places == "all":
            return range(len(tokens))
        gaps = [position for position, token in enumerate(tokens) if token == GAP]
        if not gaps:
            raise InputError(f"{where} must have a token {GAP}, the place to fill.")
        return gaps
    if len(places) and _is_list(places[0]):
        if number >= len(places):
            raise InputError(f"places must have a list for each sentence, got {len(places)}.")
        places = places[number]
    for position in places:
        if not 0 <= position < len(tokens):
            raise InputError(
                f"{where}: a place must be >= 0 and below its {len(tokens)} tokens, got "
                f"{shown(position)}."
            )
    return [int(position) for position in places]
