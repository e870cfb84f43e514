"""Sentences of any length in bounded memory: the LSTMs run over one stretch after the other.

The state at the end of a stretch is the state before the next one, so the vectors are those of
the whole sentence. The forward direction goes through the stretches from left to right, the
backward direction from right to left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data.encoding import BOS, EOS
from bilm.embedding.encoded_words import EncodedWords, Sentence, WordIds
from bilm.layers import LSTMStack
from bilm.network import Network

_STRETCH = 1024


class Block(NamedTuple):
    """All layers of some places, in one direction's half of the vectors.

    Attributes:
        start, stop: the places, words counted from 0.
        columns: the direction's part of the last axis.
        layers: float32 (n_layers + 1, stop - start, projection_dim).
    """

    start: int
    stop: int
    columns: slice
    layers: np.ndarray


class StretchEncoder:
    """Runs a network over one long sentence at a time.

    Args:
        network: the layers.
        word_ids: gives the encoder's ids of words.
        stretch: words that are computed at a time.
    """

    def __init__(self, network: Network, word_ids: WordIds, stretch: int = _STRETCH) -> None:
        self._stacks = network.stacks
        self._dim = network.stacks[0].options.projection_dim
        self._stretch = stretch
        encode = tf.function(network.encoder, reduce_retracing=True, autograph=False)
        self._words = EncodedWords(encode, word_ids, self._dim)
        self._run = [_runner(stack, self._dim) for stack in network.stacks]

    def blocks(self, sentence: Sentence) -> Iterator[Block]:
        """All layers of a sentence of at least one word, piece by piece.

        Every place comes once in each direction: the forward direction from the first word on,
        then, if there is one, the backward direction from the last word back.
        """
        starts = range(0, len(sentence), self._stretch)
        for d, (stack, run) in enumerate(zip(self._stacks, self._run, strict=True)):
            columns = slice(d * self._dim, (d + 1) * self._dim)
            # Where a direction begins it reads <S>, or </S>, whose own vectors nobody wants.
            states = run(self._tokens([BOS if d == 0 else EOS]), stack.initial_states())[1]
            for start in starts if d == 0 else reversed(starts):
                words = sentence[start : start + self._stretch]
                turn = slice(None) if d == 0 else slice(None, None, -1)
                layers, states = run(self._tokens(words)[turn], states)
                yield Block(start, start + len(words), columns, layers.numpy()[:, turn])

    def _tokens(self, words: Sentence) -> np.ndarray:
        """The token encoder's vectors: (words, projection_dim)."""
        numbers = self._words.numbers([words])
        return self._words.vectors[numbers]


def _runner(stack: LSTMStack, dim: int) -> Callable[..., Any]:
    """One direction over a stretch of one sentence.

    The function takes tokens (time, dim) and states; it returns the token layer and the stack's,
    (n_layers + 1, time, dim), and the new states.
    """
    states = stack.zero_states(1)
    signature = [
        tf.TensorSpec((None, dim), tf.float32),
        tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), states),
    ]

    def run(tokens: tf.Tensor, states: Any) -> tuple[tf.Tensor, Any]:
        inputs = tokens[:, tf.newaxis]
        outputs, after = stack(inputs, states=states)
        return tf.stack([inputs, *outputs])[:, :, 0], after

    return tf.function(run, autograph=False, input_signature=signature)
