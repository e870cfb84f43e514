"""Vectors of a whole corpus: every distinct word encoded once, sentences in rows without gaps.

The token encoder knows no context, so a word's vector is kept from its first use on. Sentences
are taken from the stream a window at a time and laid end to end in the rows of a batch, the states
being zero where one begins; so nothing is computed for padding. They are handed on in the order in
which they came. Memory is that of a window and of the kept words, however long the stream is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data.encoding import DistinctWords
from bilm.data.packing import Packing, pack
from bilm.errors import InputError
from bilm.network import Network

Sentence = Sequence[str]
# Words to the ids that the encoder takes, without the mask's + 1: (n, characters) or (n,).
WordIds = Callable[[Sequence[str]], np.ndarray]

# Words at a time: what lies between two products of the encoder stays in the cache.
_ENCODED_AT_ONCE = 256
_KEPT_BYTES = 128 * 2**20
# Rows of a batch, or 64, 32 ... 1 of them, so that shapes are few: enough for fast products.
_MOST_ROWS = 128
# With fewer, what is compiled is not worth its compilation.
_COMPILED_ROWS = 64
# Places of a sentence that would leave too few rows to those beside it.
_LONG = 256


class WordVectors:
    """The words so far and their vectors.

    Args:
        encode: the token encoder.
        word_ids: gives the encoder's ids of words.
        dim: size of a word's vector.

    Attributes:
        vectors: float32 (rows, dim); a word's row is its number.
    """

    def __init__(
        self, encode: Callable[[tf.Tensor], tf.Tensor], word_ids: WordIds, dim: int
    ) -> None:
        self._encode = encode
        self._word_ids = word_ids
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self.vectors = np.empty((4096, dim), np.float32)

    def numbers(self, sentences: Iterable[Sentence]) -> np.ndarray:
        """The words of sentences as rows of `vectors`, one after the other: int32 (words,).

        Rows that were handed out before may change.
        """
        if self.vectors[: self._n_encoded].nbytes > _KEPT_BYTES:
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
            self.vectors[done + part] = self._encode(tf.constant(ids + 1)).numpy()
        self._n_encoded = size


class _Batch(NamedTuple):
    """Sentences in rows. A word is named by its row in a table, `<S>` is 0 and `</S>` is 1.

    Each sentence takes one place more than it has words: either direction begins with a mark, and
    none needs to read the other one's.

    Attributes:
        words: int32 (words,), of all sentences, one after the other.
        inputs: int32 (directions, steps, rows), what each direction reads.
        ends: bool (steps, rows), True where a sentence's last input is.
        places: int32 (directions, words), step * rows + row of each word.
    """

    words: Any
    inputs: Any
    ends: Any
    places: Any


def _lay_out(words: np.ndarray, lengths: np.ndarray, packing: Packing, n_directions: int) -> _Batch:
    n_rows, shape = packing.n_rows, (packing.n_steps, packing.n_rows)
    first = packing.starts * n_rows + packing.rows
    before, length = (np.repeat(x, lengths) for x in (np.cumsum(lengths) - lengths, lengths))
    number = np.arange(len(words)) - before  # of the word in its sentence
    places = np.repeat(first, lengths) + n_rows * np.stack([number + 1, length - number])
    inputs = np.zeros((n_directions, packing.n_steps * n_rows), np.int32)
    for d in range(n_directions):
        inputs[d, first] = d
        inputs[d, places[d]] = words
    ends = np.zeros(packing.n_steps * n_rows, bool)
    ends[first + n_rows * lengths] = True
    return _Batch(
        words.astype(np.int32),
        inputs.reshape(n_directions, *shape),
        ends.reshape(shape),
        places[:n_directions].astype(np.int32),
    )


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        window_tokens: tokens that are computed, and whose vectors are in memory, at a time; a
            longer sentence is a window of its own.
    """

    def __init__(self, network: Network, word_ids: WordIds, *, window_tokens: int = 16384) -> None:
        self.window_tokens = window_tokens
        self._stacks = network.stacks
        dim = network.stacks[0].options.projection_dim
        encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        self._words = WordVectors(encode, word_ids, dim)
        n_directions = len(self._stacks)
        batch = _Batch(
            tf.TensorSpec((None,), tf.int32),
            tf.TensorSpec((n_directions, None, None), tf.int32),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((n_directions, None), tf.int32),
        )
        signature = [tf.TensorSpec((None, dim), tf.float32), batch]
        # Full windows, of which a large corpus consists, are compiled.
        self._plain, self._compiled = (
            tf.function(
                functools.partial(self._run, compiled=compiled),
                autograph=False,
                input_signature=signature,
            )
            for compiled in (False, True)
        )

    def layers(self, sentences: Iterable[Sentence]) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input.

        Args:
            sentences: lists of words; an empty one gives no rows.

        Yields:
            float32 (n_layers + 1, words, n_directions * projection_dim).

        Raises:
            InputError: a sentence is a string, or holds what is not a string.
        """
        window: list[Sentence] = []
        n_tokens = 0
        for sentence in sentences:
            _check_sentence(sentence)
            if window and n_tokens + len(sentence) > self.window_tokens:
                yield from self._window(window, is_full=True)
                window, n_tokens = [], 0
            window.append(sentence)
            n_tokens += len(sentence)
        if window:
            yield from self._window(window, is_full=False)

    def _window(self, window: list[Sentence], is_full: bool) -> Iterator[np.ndarray]:
        numbers = self._words.numbers(window)
        lengths = np.array([len(sentence) for sentence in window], np.int64)
        is_long = lengths >= _LONG
        results: list[Iterator[np.ndarray]] = []
        for part in (~is_long, is_long):
            of_part = numbers[np.repeat(part, lengths)]
            results.append(self._part(of_part, lengths[part], is_full))
        for long in is_long.tolist():
            yield next(results[long])

    def _part(
        self, numbers: np.ndarray, lengths: np.ndarray, is_full: bool
    ) -> Iterator[np.ndarray]:
        """All layers of sentences in one batch; `numbers` are the words' one after the other."""
        if not len(lengths):
            return
        fitting = int((lengths + 1).sum()) // int(lengths.max() + 1)
        n_rows = min(_MOST_ROWS, 1 << fitting.bit_length() - 1)
        # `<S>` and `</S>` are the words 0 and 1.
        used, words = np.unique(np.append([0, 1], numbers), return_inverse=True)
        packing = pack(lengths + 1, n_rows)
        batch = _lay_out(words[2:], lengths, packing, len(self._stacks))
        run = self._compiled if is_full and n_rows >= _COMPILED_ROWS else self._plain
        computed = run(self._words.vectors[used], batch).numpy()
        stops = np.cumsum(lengths)
        for start, stop in zip(stops - lengths, stops, strict=True):
            # A copy, for a view would keep the whole window in memory.
            yield computed[:, start:stop].copy()

    def _run(self, vectors: tf.Tensor, batch: _Batch, compiled: bool) -> tf.Tensor:
        halves = []
        for d, stack in enumerate(self._stacks):
            tokens = tf.gather(vectors, batch.inputs[d])
            states = stack.zero_states(tf.shape(tokens)[1])
            outputs, _ = stack(tokens, states=states, ends=batch.ends, compiled=compiled)
            flat = [tf.reshape(x, (-1, x.shape[-1])) for x in outputs]
            in_order = [tf.gather(x, batch.places[d]) for x in flat]
            halves.append(tf.stack([tf.gather(vectors, batch.words), *in_order]))
        return tf.concat(halves, axis=-1)


def _check_sentence(sentence: Sentence) -> None:
    if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
        raise InputError(f"A sentence is a list of words, not {sentence!r}.")
