"""All layers of streams of sentences; each distinct word is encoded once.

Sentences are read a window at a time and packed into the rows of a batch (see `packing`). While a
window is computed, the vectors of the previous one are yielded, in the order of the input. Memory
holds two windows and the kept words, however long the stream is. A sentence that is longer than a
window is computed and yielded in chunks.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.lstm import Mode, States
from bilm.core.network import BiLM
from bilm.data.encoding import BOS, EOS, DistinctWords, network_ids
from bilm.data.prefetch import compute_ahead, windows
from bilm.data.sentences import Tokens
from bilm.use.packing import PackedRunner, tensor_specs

# From words to the encoder's ids, 0-based: (n, characters) or (n,).
IdsOfWords = Callable[[Sequence[str]], np.ndarray]

# Words encoded at a time, so that intermediate results stay in the CPU cache.
_ENCODED_AT_ONCE = 512
_KEPT_BYTES = 128 * 2**20


class Block(NamedTuple):
    """All layers at positions of a sentence, in one direction's half of the vectors."""

    positions: slice  # tokens of the sentence
    columns: slice  # the direction's half of the last axis
    layers: np.ndarray  # float32 (n_layers + 1, positions, projection_dim)


class CorpusEncoder:
    """Runs a network over a stream of sentences.

    Args:
        word_ids: returns the encoder's ids of words.
        window_tokens: tokens to compute at a time; a longer sentence is a window of its own. None:
            chosen for speed. Can be set, like `chunk_tokens`, the tokens of a long sentence to
            compute at a time.
        runner: runs the LSTMs; None creates one.
        kept_bytes: limit of the kept word vectors; beyond it, all are forgotten.
    """

    def __init__(
        self,
        network: BiLM,
        word_ids: IdsOfWords,
        *,
        window_tokens: int | None = None,
        runner: PackedRunner | None = None,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        self._network = network
        self._runner = runner or PackedRunner(network)
        self._words = EncodedWords(network, word_ids, kept_bytes, self._runner.forget_words)
        self._run_chunk = _chunk_function(network)
        self._lock = threading.Lock()  # several streams may be computed in threads
        self.window_tokens = window_tokens or self._runner.window_tokens
        self.chunk_tokens = 1024

    def warm_up(self, sentences: Sequence[Tokens]) -> None:
        """Start sentences from the states after a warm-up text; see
        `bilm.data.sentences.read_warm_up`."""
        numbers = self._words.numbers(sentences)
        stops = np.cumsum([len(sentence) for sentence in sentences])
        # `<S>` and `</S>` are the words 0 and 1.
        framed = [np.r_[0, words, 1] for words in np.split(numbers, stops[:-1])]
        self._runner.warm_up(tf.constant(self._words.vectors), framed)

    def layers(
        self, sentences: Iterable[Tokens], batch_size: int | None = None
    ) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input: float32 (n_layers + 1, words,
        n_directions * projection_dim). At most `batch_size` sentences are computed together."""
        ahead = windows(sentences, len, self.window_tokens, batch_size)
        for window in compute_ahead(self._compute, ahead):
            yield from window

    def _compute(self, window: tuple[list[Tokens], bool]) -> Iterator[np.ndarray]:
        """Run the network; the iterator copies the vectors of a sentence when it is reached."""
        sentences, is_full = window
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        # 0: sentences without words; 1: short sentences, which share a batch; 2: long sentences.
        parts = np.where(lengths > self._runner.longest, 2, np.minimum(lengths, 1))
        lstm, n_directions = self._network.stacks[0].options, len(self._network.stacks)
        no_words = np.empty((lstm.n_layers + 1, 0, n_directions * lstm.projection_dim), np.float32)
        results = {0: itertools.repeat(no_words)}
        with self._lock:
            numbers = self._words.numbers(sentences)
            for part in np.unique(parts[parts > 0]).tolist():
                of_part = numbers[np.repeat(parts == part, lengths)]
                results[part] = self._runner(
                    self._words.vectors, of_part, lengths[parts == part], is_full
                )
        return (next(results[part]) for part in parts.tolist())

    def blocks(self, sentence: Tokens) -> Iterator[Block]:
        """All layers of a sentence of at least one word, in bounded memory.

        States are passed from chunk to chunk, so the layers equal those of the complete sentence.
        Every position is yielded once per direction: the forward direction starts with the first
        word, the backward direction with the last.
        """
        n, dim = len(sentence), self._network.stacks[0].options.projection_dim
        n_directions = len(self._network.stacks)
        marks = self._tokens([BOS, EOS])[:n_directions, np.newaxis]  # (n_directions, 1, dim)
        _, states = self._run_chunk(list(marks), self._network.initial_states())
        for start in range(0, n, self.chunk_tokens):
            stop = min(start + self.chunk_tokens, n)
            read = [self._tokens(sentence[start:stop])]
            if n_directions == 2:
                read.append(self._tokens(sentence[n - stop : n - start])[::-1])
            layers, states = self._run_chunk(read, states)
            yield Block(slice(start, stop), slice(0, dim), layers[0].numpy())
            if n_directions == 2:
                positions = slice(n - stop, n - start)
                yield Block(positions, slice(dim, 2 * dim), layers[1].numpy()[:, ::-1])

    def _tokens(self, words: Tokens) -> np.ndarray:
        """The token encoder's vectors: (words, projection_dim)."""
        with self._lock:
            numbers = self._words.numbers([words])
            return self._words.vectors[numbers]


def _chunk_function(network: BiLM) -> Callable[..., tuple[list[tf.Tensor], tuple[States, ...]]]:
    """A function that runs both directions over a chunk of one sentence: from the tokens (time,
    projection_dim) in reading order and the states of each direction, to its layers (n_layers + 1,
    time, projection_dim) in reading order, the token layer first, and its new states."""
    dim = network.stacks[0].options.projection_dim
    signature = [
        [tf.TensorSpec((None, dim), tf.float32)] * len(network.stacks),
        tensor_specs(network.zero_states(1)),
    ]

    def run(
        tokens: list[tf.Tensor], states: tuple[States, ...]
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        read = [x[:, tf.newaxis] for x in tokens]  # (time, 1, projection_dim)
        outputs, after = network.run(read, states, mode=Mode.INFERENCE)
        # (n_layers + 1, time, 1, projection_dim) -> without the axis of rows
        layers = [tf.stack([x, *of])[:, :, 0] for x, of in zip(read, outputs, strict=True)]
        return layers, after

    return tf.function(run, autograph=False, input_signature=signature)


class EncodedWords:
    """The kept words and their `vectors`, float32 (rows, dim); a word's number is its row. `<S>`
    and `</S>` are words 0 and 1."""

    def __init__(
        self,
        network: BiLM,
        word_ids: IdsOfWords,
        kept_bytes: int = _KEPT_BYTES,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        # (words,), or with an axis of characters
        ids = tf.TensorSpec([None] * word_ids([]).ndim, tf.int32)
        self._encode = tf.function(network.encoder, input_signature=[ids], autograph=False)
        self._word_ids = word_ids
        self._kept_bytes = kept_bytes
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self._forget = forget  # called before numbers are given to other words
        self.vectors = np.empty((4096, network.stacks[0].options.projection_dim), np.float32)

    def numbers(self, sentences: Iterable[Tokens]) -> np.ndarray:
        """The rows of `vectors` for the words of sentences, in order: int32 (words,). Rows from
        earlier calls may have changed."""
        if self.vectors[: self._n_encoded].nbytes > self._kept_bytes:
            self._forget()
            self._numbers, self._n_encoded = DistinctWords(), 0
        words = itertools.chain.from_iterable(sentences)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int32)
        done, size = self._n_encoded, len(self._numbers)
        if size > len(self.vectors):
            grown = np.empty((max(size, 2 * done), self.vectors.shape[1]), np.float32)
            grown[:done] = self.vectors[:done]
            self.vectors = grown
        self.encode(list(itertools.islice(self._numbers, done, None)), self.vectors[done:])
        self._n_encoded = size
        return numbers

    def encode(self, words: Tokens, vectors: np.ndarray) -> None:
        """Write the vectors of words, which need not be distinct, into (words or more, dim)."""
        # Words of similar length together, because a batch is padded to its longest word.
        order = np.argsort([len(word) for word in words], kind="stable")
        for start in range(0, len(words), _ENCODED_AT_ONCE):
            part = order[start : start + _ENCODED_AT_ONCE]
            ids = self._word_ids([words[k] for k in part]).astype(np.int32)
            vectors[part] = self._encode(tf.constant(network_ids(ids))).numpy()
