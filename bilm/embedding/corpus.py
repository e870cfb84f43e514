"""All layers of streams of sentences: every distinct word encoded once, nothing kept that is done.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time and packed into the rows of a batch. While a window is
computed, the vectors of the one before it are handed on, in the order in which the sentences came.
Memory is that of two windows and of the kept words, however long the stream is. A sentence that is
longer than a window is computed in chunks, whose layers are handed on one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import compute_ahead
from bilm.data.encoding import DistinctWords, network_ids
from bilm.embedding.packed_batch import PackedRunner, PackedSentences
from bilm.errors import InputError
from bilm.layers import Mode, States, WordLookup
from bilm.network import BiLM, Texts

Tokens = Sequence[str]
# Words to the ids that the encoder takes, without the mask's + 1: (n, characters) or (n,).
WordIds = Callable[[Sequence[str]], np.ndarray]

# Words at a time: what lies between two products of the encoder stays in the cache.
_ENCODED_AT_ONCE = 512
_KEPT_BYTES = 128 * 2**20
_CHUNK_TOKENS = 1024


class Block(NamedTuple):
    """All layers of some positions, in one direction's half of the vectors.

    Attributes:
        start, stop: the positions, words counted from 0.
        columns: the direction's part of the last axis.
        layers: float32 (n_layers + 1, stop - start, projection_dim).
    """

    start: int
    stop: int
    columns: slice
    layers: np.ndarray


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are computed, and whose vectors are in memory, at a time; a
            longer sentence is a window of its own. None: as many as are fast.
        runner: runs the LSTMs; None makes one.
        kept_bytes: of the vectors of distinct words; with more, all are forgotten.

    Attributes:
        window_tokens: as above.
        chunk_tokens: tokens of a long sentence that are computed at a time.
    """

    def __init__(
        self,
        network: BiLM,
        word_ids: WordIds,
        *,
        window_tokens: int | None = None,
        runner: PackedRunner | None = None,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        self._network = network
        self._words = _EncodedWords(network, word_ids, kept_bytes)
        self._runner = runner or PackedRunner(network)
        self._run_chunk = _chunk_function(network)
        self.window_tokens = window_tokens or self._runner.window_tokens
        self.chunk_tokens = _CHUNK_TOKENS

    def warm_up(self, sentences: Sequence[Tokens]) -> None:
        """Let sentences begin from the states after a text, see `bilm.warm_up`."""
        numbers = self._words.numbers(sentences)
        stops = np.cumsum([len(sentence) for sentence in sentences])
        # `<S>` and `</S>` are the words 0 and 1.
        framed = [np.r_[0, words, 1] for words in np.split(numbers, stops[:-1])]
        self._runner.warm_up(tf.constant(self._words.vectors), framed)

    def layers(self, sentences: Iterable[Tokens]) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input.

        Args:
            sentences: lists of words; an empty one gives no rows.

        Yields:
            float32 (n_layers + 1, words, n_directions * projection_dim).

        Raises:
            InputError: a sentence is a string, or holds what is not a string.
        """
        for window in compute_ahead(self._compute, self._windows(sentences)):
            yield from window

    def _windows(self, sentences: Iterable[Tokens]) -> Iterator[_Window]:
        window: list[Tokens] = []
        n_tokens = 0
        for sentence in sentences:
            if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
                raise InputError(f"A sentence is a list of words, not {sentence!r}.")
            if window and n_tokens + len(sentence) > self.window_tokens:
                yield _Window(window, is_full=True)
                window, n_tokens = [], 0
            window.append(sentence)
            n_tokens += len(sentence)
        if window:
            yield _Window(window, is_full=False)

    def _compute(self, window: _Window) -> Iterator[np.ndarray]:
        """Run the network; the iterator copies each sentence's vectors out when it comes to it."""
        numbers = self._words.numbers(window.sentences)
        lengths = np.array([len(sentence) for sentence in window.sentences], np.int64)
        # Sentences without words, those that share a batch, and those that are too long to.
        parts = np.where(lengths > self._runner.longest, 2, np.minimum(lengths, 1))
        results = [self._without_words(int((parts == 0).sum()))]
        for part in (1, 2):
            of_part = numbers[np.repeat(parts == part, lengths)]
            results.append(self._part(of_part, lengths[parts == part], window.is_full))
        return (next(results[part]) for part in parts.tolist())

    def _without_words(self, n: int) -> Iterator[np.ndarray]:
        lstm = self._network.stacks[0].options
        shape = (lstm.n_layers + 1, 0, len(self._network.stacks) * lstm.projection_dim)
        return (np.empty(shape, np.float32) for _ in range(n))

    def _part(
        self, numbers: np.ndarray, lengths: np.ndarray, is_full: bool
    ) -> Iterator[np.ndarray]:
        """Sentences that share a batch; `numbers` are their words', one after the other."""
        if not len(lengths):
            return iter(())
        # `<S>` and `</S>` are the words 0 and 1.
        used, ids = np.unique(np.append([0, 1], numbers), return_inverse=True)
        words = WordLookup(self._words.vectors[used], ids[2:].astype(np.int32))
        packed = PackedSentences.pack(lengths, self._runner.n_rows(lengths))
        outputs = self._runner(words, packed, is_full)
        stops = np.cumsum(lengths)
        return (
            packed.layers(number, words.vectors[words.ids[start:stop]], outputs)
            for number, (start, stop) in enumerate(zip(stops - lengths, stops, strict=True))
        )

    def blocks(self, sentence: Tokens) -> Iterator[Block]:
        """All layers of a sentence of at least one word, in bounded memory.

        The states at the end of a chunk are those before the next one, so the layers are those of
        the whole sentence. Every position comes once in each direction: the forward direction
        goes from the first word on, the backward direction from the last word back.
        """
        n, dim = len(sentence), self._network.stacks[0].options.projection_dim
        marks = self._tokens(["<S>", "</S>"])[:, np.newaxis]  # (2, 1, dim)
        n_directions = len(self._network.stacks)
        _, states = self._run_chunk(list(marks[:n_directions]), self._network.initial_states())
        for start in range(0, n, self.chunk_tokens):
            stop = min(start + self.chunk_tokens, n)
            read = [self._tokens(sentence[start:stop])]
            if n_directions == 2:
                read.append(self._tokens(sentence[n - stop : n - start])[::-1])
            layers, states = self._run_chunk(read, states)
            for d, of_direction in enumerate(layers):
                columns = slice(d * dim, (d + 1) * dim)
                if d == 0:
                    yield Block(start, stop, columns, of_direction.numpy())
                else:
                    yield Block(n - stop, n - start, columns, of_direction.numpy()[:, ::-1])

    def _tokens(self, words: Tokens) -> np.ndarray:
        """The token encoder's vectors: (words, projection_dim)."""
        numbers = self._words.numbers([words])
        return self._words.vectors[numbers]


class _Window(NamedTuple):
    """Sentences that are computed together.

    Attributes:
        sentences: lists of words.
        is_full: there are more after them.
    """

    sentences: list[Tokens]
    is_full: bool


def _chunk_function(network: BiLM) -> Callable[..., tuple[list[tf.Tensor], tuple[States, ...]]]:
    """Both directions over a chunk of one sentence.

    The function takes of each direction the tokens (time, projection_dim) that it reads, and its
    states; it returns of each direction the token layer and the stack's, (n_layers + 1, time,
    projection_dim), in the order of its reading, and the new states.
    """
    dim = network.stacks[0].options.projection_dim
    states = network.zero_states(1)
    signature = [
        [tf.TensorSpec((None, dim), tf.float32)] * len(network.stacks),
        tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), states),
    ]

    def run(
        tokens: list[tf.Tensor], states: tuple[States, ...]
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        read = [x[:, tf.newaxis] for x in tokens]  # (time, 1, projection_dim)
        outputs, after = network.run(Texts(read, states), mode=Mode.INFERENCE)
        # (n_layers + 1, time, 1, projection_dim) -> without the axis of rows
        layers = [tf.stack([x, *of])[:, :, 0] for x, of in zip(read, outputs, strict=True)]
        return layers, after

    return tf.function(run, autograph=False, input_signature=signature)


class _EncodedWords:
    """The words so far and their vectors. `<S>` and `</S>` are the words 0 and 1.

    Attributes:
        vectors: float32 (rows, dim); a word's row is its number.
    """

    def __init__(self, network: BiLM, word_ids: WordIds, kept_bytes: int) -> None:
        self._encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        self._word_ids = word_ids
        self._kept_bytes = kept_bytes
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self.vectors = np.empty((4096, network.stacks[0].options.projection_dim), np.float32)

    def numbers(self, sentences: Iterable[Tokens]) -> np.ndarray:
        """The words of sentences as rows of `vectors`, one after the other: int32 (words,).

        Rows that were handed out before may change.
        """
        if self.vectors[: self._n_encoded].nbytes > self._kept_bytes:
            self._numbers, self._n_encoded = DistinctWords(), 0
        words = itertools.chain.from_iterable(sentences)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int32)
        self._encode_new()
        return numbers

    def _encode_new(self) -> None:
        done, size = self._n_encoded, len(self._numbers)
        if size > len(self.vectors):
            grown = np.empty((max(size, 2 * done), self.vectors.shape[1]), np.float32)
            grown[:done] = self.vectors[:done]
            self.vectors = grown
        new = list(itertools.islice(self._numbers, done, None))
        # Words of like length together: the encoder works on the longest of a batch.
        order = np.argsort([len(word) for word in new], kind="stable")
        for start in range(0, len(new), _ENCODED_AT_ONCE):
            part = order[start : start + _ENCODED_AT_ONCE]
            ids = self._word_ids([new[k] for k in part]).astype(np.int32)
            self.vectors[done + part] = self._encode(tf.constant(network_ids(ids))).numpy()
        self._n_encoded = size
