"""The distinct words of a stream of sentences and their vectors, each encoded once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from bilm.data.encoding import DistinctWords, network_ids

Sentence = Sequence[str]
# Words to the ids that the encoder takes, without the mask's + 1: (n, characters) or (n,).
WordIds = Callable[[Sequence[str]], np.ndarray]

# Words at a time: what lies between two products of the encoder stays in the cache.
_ENCODED_AT_ONCE = 512
_KEPT_BYTES = 128 * 2**20


class EncodedWords:
    """The words so far and their vectors. `<S>` and `</S>` are the words 0 and 1.

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
            self.vectors[done + part] = self._encode(tf.constant(network_ids(ids))).numpy()
        self._n_encoded = size
