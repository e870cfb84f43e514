"""What a served model computes: the signatures and the names of TF-Hub's ELMo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.embedding.layer_choice import LayerChoice
from bilm.errors import InputError
from bilm.layers import ScalarMix
from bilm.layers.text import FramedWords, framed_words, tokens_of
from bilm.model import ELMoEmbedding

Mix = ScalarMix | Sequence[float] | np.ndarray | None


class ServedELMo(tf.Module):
    """Strings to vectors, with everything that it needs and no state.

    Args:
        elmo: the model; its own choice of layers is not used.
        mix: makes the output `elmo`: a trained `ScalarMix`, a weight for each layer, or None for
            layers that weigh alike. A mix that normalises does so within each sentence.

    Raises:
        InputError: the mix does not fit the model.
    """

    def __init__(self, elmo: ELMoEmbedding, mix: Mix = None) -> None:
        super().__init__()
        if isinstance(mix, str | int):
            raise InputError(f"mix: a ScalarMix or a weight for each layer is expected: {mix!r}.")
        choice = LayerChoice("average" if mix is None else mix, elmo.n_layers)
        self._elmo = _Untracked(elmo)
        self._factors = choice.weights
        self._mix = _Untracked(mix if self._factors is None else None)
        # What the functions hold on to, and nothing of Keras, whose layers would be saved as such.
        layers: list[Any] = [elmo.language_model, elmo.word_vectors]
        layers += [self._mix.value] if self._factors is None else []
        self._variables = [weight.value for layer in layers for weight in layer.weights]
        words = elmo.word_vectors.words
        self._tables = [] if words is None else [words.table]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None,), tf.string, "strings")])
    def default(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """The vectors of sentences (batch,), which are split on white space."""
        return self._vectors(framed_words(tokens_of(strings)))

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec((None, None), tf.string, "tokens"),
            tf.TensorSpec((None,), tf.int32, "sequence_len"),
        ],
    )
    def tokens(self, tokens: tf.Tensor, sequence_len: tf.Tensor) -> dict[str, tf.Tensor]:
        """The vectors of sentences of tokens (batch, time), sequence_len (batch,) of them each."""
        checks = [
            tf.debugging.Assert(good, [f"sequence_len: {rule} is expected, not", sequence_len])
            for good, rule in (
                (tf.size(sequence_len) == tf.shape(tokens)[0], "a length for each row of tokens"),
                (tf.reduce_all(sequence_len >= 0), "0 or more"),
                (tf.reduce_all(sequence_len <= tf.shape(tokens)[1]), "at most the axis of tokens"),
            )
        ]
        with tf.control_dependencies(checks):
            return self._vectors(framed_words(tokens, tf.identity(sequence_len)))

    def _vectors(self, sentences: FramedWords) -> dict[str, tf.Tensor]:
        found = self._elmo.value.all_layers(sentences)
        layers = found["lm_embeddings"]
        here = tf.cast(found["mask"], tf.float32)[..., tf.newaxis]
        mixed = self._mixed(found) * here
        n_tokens = tf.cast(tf.maximum(found["lengths"], 1), tf.float32)[:, tf.newaxis]
        outputs = {
            "word_emb": found["token_embeddings"][:, 1:-1] * here,
            "elmo": mixed,
            "default": tf.reduce_sum(mixed, axis=1) / n_tokens,
        }
        for k in range(1, layers.shape[1]):
            outputs[f"lstm_outputs{k}"] = layers[:, k]
        return outputs

    def _mixed(self, found: Mapping[str, tf.Tensor]) -> tf.Tensor:
        layers, mask = found["lm_embeddings"], found["mask"]
        if self._factors is not None:
            return tf.einsum("k,bktd->btd", tf.constant(self._factors), layers)

        def of_one(sentence: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            mixed = self._mix.value(*(x[tf.newaxis] for x in sentence))
            return (mixed[0] if self._mix.value.return_regularization else mixed)[0]

        signature = tf.TensorSpec((None, layers.shape[-1]), tf.float32)
        return tf.map_fn(of_one, (layers, mask), fn_output_signature=signature)


class _Untracked:
    """A value that is not saved with the module."""

    def __init__(self, value: Any) -> None:
        self.value = value
