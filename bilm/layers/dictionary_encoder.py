"""A token encoder over a dictionary of characters, with the word's own vector beside them.

The encoder of ELMoForManyLangs (Che et al. 2018): the projection of [word; characters] is the sum
of a projection of each.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from bilm.errors import InputError
from bilm.layers.initial_values import glorot
from bilm.layers.products import product
from bilm.layers.token_encoder import N_GROUPS, CharacterEncoder, lookup
from bilm.options import CharCNNOptions


class DictionaryEncoder(keras.layers.Layer):
    """Convolutions over characters, plus a projected table of words.

    Call arguments:
        ids: int32 (n, 1 + max_characters_per_token), rows of the dictionaries + 1, 0 for nothing:
            the word, then its characters.

    Output shape: (n, projection_dim), float32.

    Raises:
        InputError: the options have no dictionary.
    """

    def __init__(
        self,
        options: CharCNNOptions,
        projection_dim: int,
        *,
        n_groups: int = N_GROUPS,
        seed: int | None = None,
        precision: str = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        if options.dictionary is None:
            raise InputError("char_cnn.dictionary: the options have none.")
        self.characters = CharacterEncoder(
            options,
            projection_dim,
            n_groups=n_groups,
            seed=seed,
            precision=precision,
            name="characters",
        )
        self.projection_dim = projection_dim
        self.word_embed = self.W_word = None
        n_words, dim = options.dictionary.n_words, options.dictionary.word_dim
        if dim:
            initial = glorot(seed, "word_embed")
            self.word_embed = self.add_weight(
                name="word_embed", shape=(n_words, dim), initializer=initial
            )
            self.W_word = self.add_weight(
                name="W_word", shape=(dim, projection_dim), initializer=glorot(seed, "W_word")
            )
        self.built = True

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Encode words."""
        vectors = self.characters(ids[:, 1:])
        if self.word_embed is None:
            return vectors
        words = lookup(tf.convert_to_tensor(self.word_embed), ids[:, 0])
        return vectors + product(words, self.W_word, self.characters.precision)
