"""All layers of streams of sentences; each distinct word is encoded once.

Sentences are read a window at a time and packed into the rows of a batch (see `packing`). While a
window is computed, the vectors of the previous one are yielded, so that memory holds two windows.
`blocks` computes and yields a sentence of any length in chunks.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import traced_once
from bilm.core.network import BiLM
from bilm.data.encoding import BOS, EOS, DistinctWords, network_ids
from bilm.data.prefetch import compute_ahead, windows
from bilm.data.sentences import Tokens
from bilm.inference.packing import PackedRunner

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

    `window_tokens` tokens are computed at a time; a longer sentence is a window of its own, and
    `chunk_tokens` of it are computed at a time. Both attributes can be set.
    """

    def __init__(
        self,
        network: BiLM,
        word_ids: IdsOfWords,
        *,
        window_tokens: int | None = None,  # None: chosen for speed
        runner: PackedRunner | None = None,
        kept_bytes: int = _KEPT_BYTES,  # of word vectors; once exceeded, all of them are dropped
    ) -> None:
        self._network = network
        self._runner = runner or PackedRunner(network)
        self._words = EncodedWords(network, word_ids, kept_bytes)
        self._lock = threading.Lock()  # several streams may be computed in threads
        self.window_tokens = window_tokens or self._runner.window_tokens
        self.chunk_tokens = 1024

    def layers(
        self, sentences: Iterable[Tokens], batch_size: int | None = None, *, framed: bool = False
    ) -> Iterator[np.ndarray]:
        """All layers of each sentence, in the order of the input: float32 (n_layers + 1, words,
        n_directions * projection_dim). At most `batch_size` sentences are computed together.
        `framed`: the sentences include `<S>` and `</S>`."""
        ahead = windows(sentences, len, self.window_tokens, batch_size)
        for window in compute_ahead(functools.partial(self._compute, framed=framed), ahead):
            yield from window

    def _compute(self, window: tuple[list[Tokens], bool], *, framed: bool) -> Iterator[np.ndarray]:
        """Run the network; the iterator copies the vectors of one sentence at a time."""
        sentences, is_full = window
        lengths = np.array([len(sentence) for sentence in sentences], np.int64)
        # 0: sentences without words; 1: short sentences, which share a batch; 2: long sentences.
        kinds = np.where(lengths > self._runner.longest, 2, np.minimum(lengths, 1))
        lstm, n_directions = self._network.stacks[0].options, len(self._network.stacks)
        no_words = np.empty((lstm.n_layers + 1, 0, n_directions * lstm.projection_dim), np.float32)
        results: dict[int, Iterator[np.ndarray]] = {0: itertools.repeat(no_words)}
        with self._lock:
            words, numbers = self._words, self._words.numbers(sentences)
            for kind in np.unique(kinds[kinds > 0]).tolist():
                kind_numbers = numbers[np.repeat(kinds == kind, lengths)]
                kind_lengths = lengths[kinds == kind]
                results[kind] = self._runner(
                    words.vectors, kind_numbers, kind_lengths, is_full, words.n_forgotten, framed
                )
        return (next(results[kind]) for kind in kinds.tolist())

    def blocks(self, sentence: Tokens, *, framed: bool = False) -> Iterator[Block]:
        """All layers of a sentence of at least one word, in bounded memory. Every position is
        yielded once per direction, in the direction's reading order."""
        n, at_once = len(sentence), self.chunk_tokens
        with self._lock:
            numbers = self._words.numbers([[BOS, EOS, *sentence]])
            used, ids = np.unique(numbers, return_inverse=True)
            vectors, ids = self._words.vectors[used], ids[2:]
            parts = self._runner.in_chunks(vectors, ids, at_once, framed=framed)
        dim = vectors.shape[1]
        for start, part in zip(range(0, n, at_once), parts, strict=True):
            stop = min(start + at_once, n)
            for d, layers in enumerate(part):
                # (steps, 1, dim), in the reading order of the direction
                positions = slice(n - stop, n - start) if d else slice(start, stop)
                outputs = [layer[::-1, 0] if d else layer[:, 0] for layer in layers]
                columns = slice(d * dim, (d + 1) * dim)
                yield Block(positions, columns, np.stack([vectors[ids[positions]], *outputs]))


def warm_up_network(network: BiLM, words: EncodedWords, sentences: Sequence[Tokens]) -> None:
    """Start every sentence from the mean LSTM states reached after reading `sentences`."""
    framed = [[BOS, *sentence, EOS] for sentence in sentences]
    stops = np.cumsum([len(sentence) for sentence in framed])
    index = np.split(words.numbers(framed), stops[:-1])
    network.warm_up(tf.constant(words.vectors), index)


class EncodedWords:
    """The kept words and their `vectors`, float32 (rows, dim); a word's number is its row. `<S>`
    and `</S>` are words 0 and 1."""

    def __init__(self, network: BiLM, word_ids: IdsOfWords, kept_bytes: int = _KEPT_BYTES) -> None:
        # (words,), or with an axis of characters
        ids = tf.TensorSpec([None] * word_ids([]).ndim, tf.int32)
        # Words of similar length are encoded together, so one bucket is enough.
        encoder: Any = network.encoder
        self._encode = traced_once(functools.partial(encoder, n_buckets=1), [ids])
        self._word_ids = word_ids
        self._kept_bytes = kept_bytes
        self._numbers = DistinctWords()
        self._n_encoded = 0
        self.n_forgotten = 0  # words that lost their numbers
        self.vectors = np.empty((4096, network.stacks[0].options.projection_dim), np.float32)

    def numbers(self, sentences: Iterable[Tokens]) -> np.ndarray:
        """The rows of `vectors` for the words of sentences, in order: int32 (words,). Rows from
        earlier calls may have changed."""
        if self.vectors[: self._n_encoded].nbytes > self._kept_bytes:
            self.n_forgotten += self._n_encoded
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
        """Write the vectors of words, which may repeat, into `vectors` (words or more, dim)."""
        # Words of similar length together, because a batch is padded to its longest word.
        order = np.argsort([len(word) for word in words], kind="stable")
        for start in range(0, len(words), _ENCODED_AT_ONCE):
            part = order[start : start + _ENCODED_AT_ONCE]
            ids = self._word_ids([words[k] for k in part]).astype(np.int32)
            vectors[part] = self._encode(tf.constant(network_ids(ids))).numpy()
