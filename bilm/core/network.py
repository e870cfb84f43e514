"""The biLM: a token encoder, and LSTM layers for each direction. Peters et al. (2018), section 3.

Training, use, whole corpora, long sentences and exported models run this one network. What
differs is where inputs come from, how the layers are executed (`Mode`), and what is made of the
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.cell import Mode
from bilm.core.errors import InputError
from bilm.core.keras_backend import require_eager
from bilm.core.lstm import Dropout, LSTMStack, States
from bilm.core.options import Options
from bilm.core.recurrence import ProductLookup, WordLookup
from bilm.core.token_encoder import N_GROUPS, CharacterEncoder, DictionaryEncoder, WordEmbedding
from bilm.core.weight_names import Encoder, Weight, weight_table

# Rows that read a warm-up text in parallel, each its own part; their final states are averaged.
WARM_UP_ROWS = 16


class Texts(NamedTuple):
    """What the directions read, each in its own order, and where texts are in the rows.

    All but `mask` and `n_steps` is a sequence of each direction's own; see `LSTMStack`.
    """

    inputs: Sequence[tf.Tensor | WordLookup | ProductLookup]
    states: Sequence[States]
    mask: tf.Tensor | None = None
    resets: Sequence[tf.Tensor] | None = None
    initial: Sequence[States] | None = None
    n_steps: tf.Tensor | None = None


class BiLM(NamedTuple):
    """The layers: a token encoder, and a forward and perhaps a backward stack of LSTMs."""

    encoder: Encoder
    stacks: tuple[LSTMStack, ...]

    def weight_table(self) -> list[Weight]:
        """All variables with their names in files."""
        return weight_table(self.encoder, self.stacks)

    def zero_states(self, batch_size: int) -> tuple[States, ...]:
        """States of zero of each direction, for `batch_size` rows."""
        return tuple(stack.zero_states(batch_size) for stack in self.stacks)

    def initial_states(self) -> tuple[States, ...]:
        """The states of each direction in which texts begin, (1, ...) for all rows."""
        return tuple(stack.initial_states() for stack in self.stacks)

    def run(
        self, texts: Texts, *, dropout: Dropout | None = None, mode: Mode | None = None
    ) -> tuple[list[list[tf.Tensor]], tuple[States, ...]]:
        """Run both directions; `mode` None is that with which the network was built.

        Returns:
            of each direction the outputs of its layers, float32 (time, batch, projection_dim), in
            the order of its reading; and its states after the last step.
        """
        outputs, after = [], []
        for d, stack in enumerate(self.stacks):
            layers, states = stack(
                texts.inputs[d],
                states=texts.states[d],
                padding_mask=texts.mask,
                resets=texts.resets[d] if texts.resets else None,
                initial=texts.initial[d] if texts.initial else None,
                dropout=None if dropout is None else self._dropout_of(dropout, d),
                mode=mode,
                n_steps=texts.n_steps,
            )
            outputs.append(layers)
            after.append(states)
        return outputs, tuple(after)

    def _dropout_of(self, dropout: Dropout, d: int) -> Dropout:
        # Every layer has a seed of its own: n_layers + 1 in a direction.
        n_places = self.stacks[0].options.n_layers + 1
        seed = tf.stack([dropout.seed[0], (dropout.seed[1] * 2 + d) * n_places])
        return Dropout(seed, dropout.rows)

    def sentence_layers(
        self,
        tokens: tf.Tensor,
        lengths: tf.Tensor,
        states: Sequence[States],
        mode: Mode | None = None,
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        """All layers [forward; backward] of sentences, the token layer first (equation of R_k).

        The backward direction reads a sentence reversed by its own length; its outputs are reversed
        again, so that position t is the same token in both halves.

        Args:
            tokens: float32 (time, batch, projection_dim), zeros past the end of a sentence.
            lengths: int32 (batch,).
            states: of each direction, before the sentences.
            mode: as for `run`.

        Returns:
            n_layers + 1 tensors float32 (time, batch, n_directions * projection_dim), zeros past
            the end, and the states after each sentence's last position.
        """
        mask = tf.transpose(tf.sequence_mask(lengths, tf.shape(tokens)[0]))  # (time, batch)
        read = [_as_read(tokens, lengths, d) for d in range(len(self.stacks))]
        outputs, after = self.run(Texts(read, states, mask), mode=mode)
        halves = [
            [tokens, *(_as_read(x, lengths, d) for x in layers)] for d, layers in enumerate(outputs)
        ]
        both = [tf.concat(layer, axis=-1) for layer in zip(*halves, strict=True)]
        return [x * tf.cast(mask, x.dtype)[..., tf.newaxis] for x in both], after

    def warm_up(self, vectors: tf.Tensor, sentences: Sequence[np.ndarray]) -> None:
        """Let texts begin from the mean of the states after a text, see `bilm.data.warm_up`.

        Args:
            vectors: float32 (n, projection_dim), the token encoder's output for distinct words.
            sentences: of each the rows of `vectors`: `<S>`, its words and `</S>`.
        """
        index, mask = _rows_of(sentences, len(self.stacks))
        read = [tf.gather(vectors, of_direction) for of_direction in index]
        texts = Texts(read, self.zero_states(mask.shape[1]), tf.constant(mask))
        _, after = self.run(texts, mode=Mode.INFERENCE)
        variables = tf.nest.flatten([stack.initial for stack in self.stacks])
        for variable, value in zip(variables, tf.nest.flatten(after), strict=True):
            variable.assign(tf.reduce_mean(value, axis=0, keepdims=True))


def build_network(
    options: Options,
    n_tokens: int | None = None,
    *,
    dropout: float = 0.0,
    seed: int | None = None,
    precision: str = "float32",
    mode: Mode = Mode.KERAS,
    n_groups: int = N_GROUPS,
) -> BiLM:
    """Build the layers.

    Args:
        options: the sizes.
        n_tokens: rows of a word table; None encodes characters.
        dropout: rate of dropout of the LSTMs, where they are called with one.
        seed: of the initial values; None leaves zeros, for weights that are about to be loaded.
        precision: "float32", or "bfloat16" for products in bfloat16.
        mode: how the LSTMs are executed, when a call does not say.
        n_groups: groups of words of like length that the token encoder makes; 1 for whoever gives
            it such words.

    Raises:
        InputError: characters are asked for, and the options have no `char_cnn`.
    """
    require_eager()
    size = options.lstm.projection_dim
    encoder: Encoder
    if n_tokens is not None:
        encoder = WordEmbedding(n_tokens, size, seed=seed, name="encoder")
    elif options.char_cnn is None:
        raise InputError("The options have no char_cnn: the model takes words, not characters.")
    else:
        kind = CharacterEncoder if options.char_cnn.dictionary is None else DictionaryEncoder
        encoder = kind(
            options.char_cnn,
            size,
            n_groups=n_groups,
            seed=seed,
            precision=precision,
            name="encoder",
        )
    stacks = tuple(
        LSTMStack(
            options.lstm, dropout=dropout, seed=seed, precision=precision, mode=mode, name=name
        )
        for name in ("forward", "backward")[: options.n_directions]
    )
    return BiLM(encoder, stacks)


def _as_read(x: tf.Tensor, lengths: tf.Tensor, direction: int) -> tf.Tensor:
    """`x` (time, batch, ...) as a direction reads it: 0 as it is, 1 each row reversed."""
    if direction == 0:
        return x
    return tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


def _rows_of(sentences: Sequence[np.ndarray], n_directions: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentences laid into `WARM_UP_ROWS` rows, the first ones in the first row.

    Args:
        sentences: of each the numbers of `<S>`, its words and `</S>`.

    Returns:
        index: int32 (n_directions, time, rows), the numbers that each direction reads: all of a
            sentence but the last, which it would predict.
        mask: bool (time, rows), False past a row's end; the same for both directions.
    """
    steps = np.array([len(sentence) - 1 for sentence in sentences])
    rows = np.array_split(steps, min(WARM_UP_ROWS, len(sentences)))
    lengths = np.array([row.sum() for row in rows])
    mask = np.arange(lengths.max())[:, np.newaxis] < lengths  # (time, rows)
    index = np.zeros((n_directions, *mask.shape), np.int32)
    for d in range(n_directions):
        read = [sentence[:: -1 if d else 1][:-1] for sentence in sentences]
        index[d].T[mask.T] = np.concatenate(read)  # row after row
    return index, mask
