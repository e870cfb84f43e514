"""The biLM: a token encoder, and LSTM layers for each direction. Peters et al. (2018), section 3.

Training, embedding and exported models all run this network, with different sources of inputs,
modes of the LSTM layers (`Mode`) and uses of the outputs.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, one_of, require
from bilm.core.keras_backend import PRECISIONS, require_eager
from bilm.core.lstm import Dropout, LSTMStack, Mode, States
from bilm.core.options import Options
from bilm.core.recurrence import Boundaries
from bilm.core.token_encoder import CharacterEncoder, DictionaryEncoder, Encoder, WordEmbedding
from bilm.core.xla_lstm import ProductLookup

# Rows that read sections of a warm-up text in parallel; their final states are averaged.
WARM_UP_ROWS = 16


class BiLM(NamedTuple):
    """A token encoder, and a stack of LSTM layers for each direction."""

    encoder: Encoder
    stacks: tuple[LSTMStack, ...]

    def zero_states(self, batch_size: int) -> tuple[States, ...]:
        return tuple(stack.zero_states(batch_size) for stack in self.stacks)

    def initial_states(self) -> tuple[States, ...]:
        """The states of each direction at the start of a sentence, (1, ...)."""
        return tuple(stack.initial_states() for stack in self.stacks)

    def run(
        self,
        inputs: Sequence[tf.Tensor | ProductLookup],
        states: Sequence[States],
        boundaries: Sequence[Boundaries] = (),
        *,
        dropout: Dropout | None = None,
        mode: Mode = Mode.PLAIN,
    ) -> tuple[list[list[tf.Tensor]], tuple[States, ...]]:
        """Run all directions; see `LSTMStack` for the arguments, here one per direction.

        Inputs and outputs of a direction are in its own reading order. Returns for each direction
        the outputs of its layers, float32 (time, batch, projection_dim), and the new states.
        """
        outputs, after = [], []
        for d, stack in enumerate(self.stacks):
            drop = None
            if dropout is not None:  # a direction uses n_layers + 1 seeds
                n_seeds = stack.options.n_layers + 1
                seed = tf.stack([dropout.seed[0], (dropout.seed[1] * 2 + d) * n_seeds])
                drop = dataclasses.replace(dropout, seed=seed)
            limits = boundaries[d] if boundaries else Boundaries()
            layers, new_states = stack(
                inputs[d], states=states[d], boundaries=limits, dropout=drop, mode=mode
            )
            outputs.append(layers)
            after.append(new_states)
        return outputs, tuple(after)

    def sentence_layers(
        self, tokens: tf.Tensor, lengths: tf.Tensor, states: Sequence[States]
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        """All layers [forward; backward] of sentences, the token layer first: R_k in the paper.

        The backward direction reads each sentence reversed; its outputs are reversed back, so that
        position t is the same token in both halves.

        Args:
            tokens: float32 (time, batch, projection_dim), zeros past the end of a sentence.
            lengths: int32 (batch,).
            states: the states of each direction before the sentences.

        Returns:
            n_layers + 1 tensors float32 (time, batch, n_directions * projection_dim), zeros past
            the end, and the states after each sentence's last position.
        """
        mask = tf.transpose(tf.sequence_mask(lengths, tf.shape(tokens)[0]))  # (time, batch)
        inputs = [_in_reading_order(tokens, lengths, d) for d in range(len(self.stacks))]
        boundaries = [Boundaries(mask)] * len(inputs)
        outputs, after = self.run(inputs, states, boundaries)
        halves = [
            [tokens, *(_in_reading_order(x, lengths, d) for x in layers)]
            for d, layers in enumerate(outputs)
        ]
        return [tf.concat(layer, axis=-1) for layer in zip(*halves, strict=True)], after

    def warm_up(self, vectors: tf.Tensor, sentences: Sequence[np.ndarray]) -> None:
        """Start every sentence from the mean LSTM states after reading a warm-up text.

        Args:
            vectors: float32 (n, projection_dim), the token encoder's output for distinct words.
            sentences: rows of `vectors` for each sentence: `<S>`, its words and `</S>`.
        """
        index, mask = _rows_of(sentences, len(self.stacks))
        inputs = [tf.gather(vectors, rows) for rows in index]
        boundaries = [Boundaries(tf.constant(mask))] * len(inputs)
        states = self.zero_states(mask.shape[1])
        _, after = self.run(inputs, states, boundaries)
        variables = tf.nest.flatten([stack.initial for stack in self.stacks])
        for variable, value in zip(variables, tf.nest.flatten(after), strict=True):
            variable.assign(tf.reduce_mean(value, axis=0, keepdims=True))


def build_network(
    options: Options,
    n_tokens: int | None = None,
    *,
    seed: int | None = None,
    precision: str = "float32",
) -> BiLM:
    """Build the layers.

    Args:
        n_tokens: rows of a word table; None encodes characters.
        seed: seed of the initial values; None: zeros, for weights that are about to be loaded.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
    """
    require_eager()
    require(one_of(PRECISIONS), precision=precision)
    size = options.lstm.projection_dim
    common: dict[str, Any] = {"seed": seed, "precision": precision}
    encoder: Encoder
    if n_tokens is not None:
        encoder = WordEmbedding(n_tokens, size, seed=seed, name="encoder")
    elif options.char_cnn is None:
        raise InputError("options: char_cnn is missing: the model takes words, not characters.")
    else:
        kind = CharacterEncoder if options.char_cnn.dictionary is None else DictionaryEncoder
        encoder = kind(options.char_cnn, size, name="encoder", **common)
    stacks = tuple(
        LSTMStack(options.lstm, name=name, **common)
        for name in ("forward", "backward")[: options.n_directions]
    )
    return BiLM(encoder, stacks)


def _in_reading_order(x: tf.Tensor, lengths: tf.Tensor, direction: int) -> tf.Tensor:
    """`x` (time, batch, ...) in reading order: direction 1, backward, reverses each row."""
    if direction == 0:
        return x
    return tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


def _rows_of(sentences: Sequence[np.ndarray], n_directions: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences in order in `WARM_UP_ROWS` rows: the inputs of each direction, without the last
    token of a sentence, int32 (n_directions, time, rows); and the mask, bool (time, rows)."""
    steps = np.array([len(sentence) - 1 for sentence in sentences])
    rows = np.array_split(steps, min(WARM_UP_ROWS, len(sentences)))
    lengths = np.array([row.sum() for row in rows])
    mask = np.arange(lengths.max())[:, np.newaxis] < lengths  # (time, rows)
    index = np.zeros((n_directions, *mask.shape), np.int32)
    for d in range(n_directions):
        inputs = [sentence[:: -1 if d else 1][:-1] for sentence in sentences]
        index[d].T[mask.T] = np.concatenate(inputs)  # row after row
    return index, mask
