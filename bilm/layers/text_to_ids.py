"""Text to ids as Keras layers: what the batchers do, as a part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bilm.data.encoding import BOS, EOS, UNK, require_max_word_length
from bilm.errors import InputError
from bilm.layers.text import as_text, characters_of, framed_words, tokens_of


class _TextToIds(keras.layers.Layer):
    """What both layers share: the forms of text, the frame of a sentence, the mask."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name=name, autocast=False, **({"dtype": "int32"} | kwargs))
        self.supports_masking = True
        self.supports_jit = False  # there are no strings in XLA
        self.built = True

    def __call__(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the text, then call as any Keras layer is called."""
        return super().__call__(as_text(text), *args, **kwargs)

    def call(self, text: tf.Tensor) -> tf.Tensor:
        """Give the ids of a batch of sentences."""
        words, present, _ = framed_words(tokens_of(text))
        ids = self.ids_of(words)
        present = tf.reshape(present, tf.concat([tf.shape(words), self._ones()], 0))
        return ids * tf.cast(present, ids.dtype)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids of words, of which all are there."""
        raise NotImplementedError

    def _ones(self) -> list[int]:
        return [1 for _ in self._last_axes()]

    def _last_axes(self) -> tuple[int, ...]:
        return ()

    def compute_output_spec(self, text: Any) -> keras.KerasTensor:
        """int32 (batch, time + 2, ...); the time of sentences is not known before they are."""
        time = text.shape[1] if len(text.shape) == 2 else None
        axes = (text.shape[0], None if time is None else time + 2, *self._last_axes())
        return keras.KerasTensor(axes, "int32")

    def compute_mask(self, text: Any, previous_mask: Any = None) -> Any:
        """bool (batch, time + 2), False past the end of a sentence."""
        if isinstance(text, keras.KerasTensor):
            return None  # there is one when there is text
        return framed_words(tokens_of(as_text(text))).present


@keras.saving.register_keras_serializable(package="bilm")
class CharacterIds(_TextToIds):
    """Text to character ids: `Batcher` as a Keras layer.

    Args:
        max_characters_per_token: of the model's options.

    Call arguments:
        text: strings. Sentences (batch,), which are split on white space, or tokens (batch, time),
            filled up with "". A tensor, a `keras.Input` with dtype="string", an array or lists.

    Output: int32 (batch, time + 2, max_characters_per_token), the characters of `<S>`, the tokens
    and `</S>`: a word's UTF-8 bytes, cut to max_characters_per_token - 2, between the marks of its
    begin and end; ids + 1, 0 past a sentence's end. `<S>` and `</S>` as tokens are the marks of
    the sentence, as they are for `Batcher`. The Keras mask is (batch, time + 2).

    Raises:
        InputError: `max_characters_per_token` is below 3; what is not text, or has other axes.

    Example:

        ids = CharacterIds(50)(keras.Input((), dtype="string"))
        layers = BidirectionalLanguageModel("options.json", "weights.hdf5")(ids)
    """

    def __init__(
        self, max_characters_per_token: int = 50, *, name: str = "character_ids", **kwargs: Any
    ) -> None:
        super().__init__(name, **kwargs)
        self.max_characters_per_token = require_max_word_length(max_characters_per_token)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The character ids + 1 of words of any shape: int32, a last axis more."""
        return characters_of(words, self.max_characters_per_token)

    def _last_axes(self) -> tuple[int, ...]:
        return (self.max_characters_per_token,)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {"max_characters_per_token": self.max_characters_per_token}


@keras.saving.register_keras_serializable(package="bilm")
class WordIds(_TextToIds):
    """Text to word ids: `TokenBatcher` as a Keras layer.

    Args:
        vocabulary: the words in the order of their ids, `<S>`, `</S>` and `<UNK>` among them. Of a
            word that occurs twice the last id holds. It is saved with the layer.

    Call arguments:
        text: as for `CharacterIds`.

    Output: int32 (batch, time + 2), the ids of `<S>`, the tokens and `</S>`, + 1; 0 past a
    sentence's end. A word that is not in the vocabulary has the id of `<UNK>`. The Keras mask is
    (batch, time + 2).

    Raises:
        InputError: the vocabulary lacks a special word; what is not text, or has other axes.

    Example: `WordIds(["<S>", "</S>", "<UNK>", "word"])(["a word"])`.
    """

    def __init__(self, vocabulary: Sequence[str], *, name: str = "word_ids", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.vocabulary = tuple(vocabulary)
        ids = {word: number for number, word in enumerate(self.vocabulary, start=1)}
        missing = [word for word in (BOS, EOS, UNK) if word not in ids]
        if missing:
            raise InputError(f"vocabulary: it lacks {', '.join(missing)}.")
        self.unk = ids[UNK]
        words = [word.encode("utf-8", "ignore") for word in ids]
        with tf.init_scope():
            contents = tf.lookup.KeyValueTensorInitializer(
                tf.constant(words, tf.string), tf.constant(list(ids.values()), tf.int32)
            )
            self.table = tf.lookup.StaticHashTable(contents, default_value=0)

    def known_ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids + 1 of words of any shape, 0 for one that is not in the vocabulary: int32."""
        return self.table.lookup(words)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids + 1 of words of any shape: int32."""
        ids = self.known_ids_of(words)
        return tf.where(ids == 0, self.unk, ids)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {"vocabulary": list(self.vocabulary)}
