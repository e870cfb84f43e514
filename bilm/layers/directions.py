"""Both directions over whole sentences: Peters et al. (2018), section 3.1, equations of h_k,j."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from bilm.layers.lstm import LSTMStack, States


def contextual_layers(
    stacks: Sequence[LSTMStack],
    tokens: tf.Tensor,
    lengths: tf.Tensor,
    states: Sequence[States],
) -> tuple[list[tf.Tensor], tuple[States, ...]]:
    """The layers [forward; backward] of sentences, the token layer first.

    The backward direction reads a sentence reversed by its own length; its outputs are turned
    round again, so that place t is the same token in both halves.

    Args:
        stacks: the forward stack, and the backward stack of a bidirectional model.
        tokens: float32 (time, batch, projection_dim), zeros past the end of a sentence.
        lengths: int32 (batch,).
        states: the states of each direction before the sentences.

    Returns:
        n_layers + 1 tensors float32 (time, batch, n_directions * projection_dim), zeros past the
        end, and the states after each sentence's last place.
    """
    mask = tf.transpose(tf.sequence_mask(lengths, tf.shape(tokens)[0]))
    layers_of, new_states = [], []
    for d, (stack, state) in enumerate(zip(stacks, states, strict=True)):
        outputs, new_state = stack(turned(tokens, lengths, d), states=state, present=mask)
        layers_of.append([tokens, *(turned(x, lengths, d) for x in outputs)])
        new_states.append(new_state)
    mixed = [tf.concat(halves, axis=-1) for halves in zip(*layers_of, strict=True)]
    return [x * tf.cast(mask, x.dtype)[..., tf.newaxis] for x in mixed], tuple(new_states)


def turned(x: tf.Tensor, lengths: tf.Tensor, direction: int) -> tf.Tensor:
    """`x` (time, batch, ...) as `direction` reads it: 0 as it is, 1 each row reversed."""
    if direction == 0:
        return x
    return tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)
