"""Text in TensorFlow: from string tensors to framed sentences and to ids, within a graph.

The results equal `ELMo.encode` and the batchers, but such a graph runs without Python.
`CharacterIds` and `WordIds` are Keras layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import SENTENCES, WORDS, InputError, require
from bilm.core.keras_backend import keras
from bilm.data.encoding import (
    BOS,
    BOS_CHAR,
    BOW_CHAR,
    EOS,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    UNK,
    WORD_LENGTH,
    network_ids,
)
from bilm.data.sentences import as_tokens

# The white space of str.split; TensorFlow's split knows ASCII only.
_WHITE_SPACE = r"[\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"  # noqa: E501


class FramedWords(NamedTuple):
    """Sentences between their begin and end."""

    words: tf.Tensor  # string (batch, time + 2): `<S>`, the tokens, `</S>`, then `<S>` as padding
    mask: tf.Tensor  # bool (batch, time + 2), True from `<S>` to `</S>`
    lengths: tf.Tensor  # int32 (batch,), tokens of each sentence


def as_text(text: Any) -> Any:
    """Text as a tensor of strings, tokens padded with "". It may be sentences (batch,) or tokens
    (batch, time): a tensor, a `keras.Input`, a ragged tensor, an array, or lists of any lengths."""
    if isinstance(text, np.ndarray) or not hasattr(text, "dtype"):
        return tf.constant(_padded(text), tf.string)
    dtype, shape = getattr(text.dtype, "name", text.dtype), tuple(text.shape)
    if dtype != "string":
        raise InputError(f"text must be strings, got {dtype}; a keras.Input needs dtype='string'.")
    if len(shape) not in (1, 2):
        raise InputError(
            f"text must be sentences (batch,) or tokens (batch, time), got shape {shape}."
        )
    return text.to_tensor(default_value="") if isinstance(text, tf.RaggedTensor) else text


def _padded(text: Any) -> np.ndarray:
    """Lists or an array as an array of bytes, tokens padded with b""."""
    if isinstance(text, np.ndarray):
        if text.dtype.kind not in "USO":
            raise InputError(f"text must be strings, got {text.dtype.name}.")
        text = text.tolist()
    require(SENTENCES, sentences=text)
    text = list(text)
    if all(isinstance(sentence, str | bytes) for sentence in text):
        return np.array([*map(_utf8, text)], object)
    rows = [as_tokens(s, f"sentence {n}", str | bytes, split=False) for n, s in enumerate(text)]
    padded = np.full((len(rows), max(map(len, rows))), b"", object)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = [*map(_utf8, tokens)]
    return padded


def _utf8(token: str | bytes) -> bytes:
    # Lone surrogates are dropped: they cannot be encoded.
    return token if isinstance(token, bytes) else token.encode("utf-8", "ignore")


def tokens_of(text: tf.Tensor) -> tf.Tensor:
    """Tokens (batch, time) of strings: sentences (batch,) are split as str.split does."""
    if text.shape.rank == 2:
        return text
    return tf.strings.split(tf.strings.regex_replace(text, _WHITE_SPACE, " ")).to_tensor("")


def framed_words(tokens: tf.Tensor, lengths: tf.Tensor | None = None) -> FramedWords:
    """Put sentences, string (batch, time), between `<S>` and `</S>`.

    Without `lengths`, int32 (batch,), a sentence ends at its last token that is not ""; an earlier
    "" is an empty token.
    """
    n_rows, n_tokens = tf.unstack(tf.shape(tokens))
    if lengths is None:
        last = tf.where(tf.not_equal(tokens, ""), tf.range(1, n_tokens + 1), 0)
        lengths = tf.maximum(
            tf.reduce_max(last, axis=1), 0
        )  # the maximum of an empty row is negative
    end = lengths[:, tf.newaxis] + 1  # (batch, 1), the position of `</S>`
    positions = tf.range(n_tokens + 2)
    mark = tf.fill((n_rows, 1), BOS)
    words = tf.where(positions == end, EOS, tf.concat([mark, tokens, mark], axis=1))
    mask = positions <= end  # (batch, time + 2)
    return FramedWords(tf.where(mask, words, BOS), mask, lengths)


def characters_of(words: tf.Tensor, max_characters_per_token: int) -> tf.Tensor:
    """Character ids + 1 of string words of any shape, like `Batcher`: int32, 1..261, the shape of
    `words` + (max_characters_per_token,)."""
    room = max_characters_per_token - 2
    content = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=room), tf.int32)
    lengths = tf.minimum(tf.strings.length(words), room)
    for mark, of_mark in ((BOS, BOS_CHAR), (EOS, EOS_CHAR)):
        is_mark = tf.equal(words, mark)
        content = tf.where(is_mark[..., tf.newaxis], of_mark, content)
        lengths = tf.where(is_mark, 1, lengths)
    lengths = lengths[..., tf.newaxis]  # (..., 1)
    positions = tf.range(max_characters_per_token)
    edge = tf.zeros_like(lengths)
    ids = tf.concat([edge + BOW_CHAR, content, edge + PAD_CHAR], axis=-1)  # (..., characters)
    ids = tf.where(positions == lengths + 1, EOW_CHAR, ids)
    return network_ids(tf.where(positions > lengths + 1, PAD_CHAR, ids))


class _TextToIds(keras.layers.Layer):
    """The base of both layers: forms of text, BOS and EOS, the mask."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name=name, autocast=False, **({"dtype": "int32"} | kwargs))
        self.supports_masking = True
        self.supports_jit = False  # XLA has no strings
        self.built = True

    @property
    def compute_dtype(self) -> str:
        """The type of the inputs that a `keras.Sequential` without a `keras.Input` expects."""
        return "string"

    variable_dtype = compute_dtype  # if they differ, Keras casts variables to the former

    def __call__(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the text, then call the Keras layer."""
        return super().__call__(as_text(text), *args, **kwargs)

    def call(self, text: tf.Tensor) -> tf.Tensor:
        """The ids of a batch of sentences."""
        words, mask, _ = framed_words(tokens_of(text))
        ids = self.ids_of(words)
        if ids.shape.rank == 3:
            mask = mask[..., tf.newaxis]  # (batch, time + 2, 1), next to the axis of characters
        return ids * tf.cast(mask, ids.dtype)

    last_axes: tuple[int, ...] = ()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> _TextToIds:
        """Rebuild a saved layer; Keras' own method would hide the error's message."""
        return cls(**config)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids of words, without padding."""
        raise NotImplementedError

    def compute_output_spec(self, text: Any) -> keras.KerasTensor:
        """int32 (batch, time + 2, ...); the time axis of sentences is unknown before they run."""
        time = text.shape[1] if len(text.shape) == 2 else None
        axes = (text.shape[0], None if time is None else time + 2, *self.last_axes)
        return keras.KerasTensor(axes, "int32")

    def compute_mask(self, text: Any, previous_mask: Any = None) -> Any:
        """bool (batch, time + 2), False past the end of a sentence."""
        if isinstance(text, keras.KerasTensor):
            return None  # the mask depends on the text
        return framed_words(tokens_of(as_text(text))).mask


@keras.saving.register_keras_serializable(package="bilm")
class CharacterIds(_TextToIds):
    """Text to character ids: `Batcher` as a Keras layer.

    Args:
        max_characters_per_token: as in the model's options.

    Call arguments:
        text: strings. Sentences (batch,), which are split at white space, or tokens (batch, time),
            padded with "". A tensor, a `keras.Input` with dtype="string", an array or lists.

    Output: int32 (batch, time + 2, max_characters_per_token), the characters of `<S>`, the tokens
    and `</S>`: a word's UTF-8 bytes, cut to max_characters_per_token - 2, between the begin and end
    marks; ids + 1, 0 past a sentence's end. `<S>` and `</S>` as tokens are BOS and EOS, as for
    `Batcher`. The Keras mask is (batch, time + 2).

    Raises:
        InputError: `max_characters_per_token` is below 3; the input is not text, or has a wrong
            shape.

    Example:

        ids = CharacterIds(50)(keras.Input((), dtype="string"))
        layers = BidirectionalLanguageModel("options.json", "weights.hdf5")(ids)
    """

    def __init__(
        self, max_characters_per_token: int = 50, *, name: str = "character_ids", **kwargs: Any
    ) -> None:
        super().__init__(name, **kwargs)
        require(WORD_LENGTH, max_characters_per_token=max_characters_per_token)
        self.max_characters_per_token = max_characters_per_token
        self.last_axes = (max_characters_per_token,)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The character ids + 1 of words of any shape: int32, a last axis more."""
        return characters_of(words, self.max_characters_per_token)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {"max_characters_per_token": self.max_characters_per_token}


@keras.saving.register_keras_serializable(package="bilm")
class WordIds(_TextToIds):
    """Text to word ids: `TokenBatcher` as a Keras layer.

    Args:
        vocabulary: the words in the order of their ids, including `<S>` and `</S>`. If a word is
            repeated, its last id wins. It is saved with the layer.

    Call arguments:
        text: as for `CharacterIds`.

    Output: int32 (batch, time + 2), the ids + 1 of `<S>`, the tokens and `</S>`; 0 past a
    sentence's end. Words outside the vocabulary have the id of `<UNK>`. The Keras mask is (batch,
    time + 2).

    Raises:
        InputError: the vocabulary lacks `<S>` or `</S>`, or lacks `<UNK>` and a word needs it
            (tf.errors.InvalidArgumentError within a graph); the input is not text, or has a wrong
            shape.

    Example: `WordIds(["<S>", "</S>", "<UNK>", "word"])(["a word"])`.
    """

    def __init__(self, vocabulary: Sequence[str], *, name: str = "word_ids", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        require(WORDS, vocabulary=vocabulary)
        self.vocabulary = tuple(vocabulary)
        ids = {word: number for number, word in enumerate(self.vocabulary, start=1)}
        missing = [word for word in (BOS, EOS) if word not in ids]
        if missing:
            raise InputError(f"vocabulary must hold {BOS} and {EOS}, lacks {', '.join(missing)}.")
        self.unk = ids.get(UNK)
        words = [word.encode("utf-8", "ignore") for word in ids]
        with tf.init_scope():
            contents = tf.lookup.KeyValueTensorInitializer(
                tf.constant(words, tf.string), tf.constant(list(ids.values()), tf.int32)
            )
            self.table = tf.lookup.StaticHashTable(contents, default_value=0)

    def known_ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids + 1 of words of any shape, 0 outside the vocabulary: int32."""
        return self.table.lookup(words)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids + 1 of words of any shape: int32."""
        ids = self.known_ids_of(words)
        if self.unk is not None:
            return tf.where(ids == 0, self.unk, ids)
        outside = tf.boolean_mask(words, ids == 0)
        message = f"text: a word is not in the vocabulary, which lacks {UNK} for such words:"
        if tf.executing_eagerly() and len(outside):
            raise InputError(f"{message} {outside[0].numpy().decode('utf-8', 'replace')!r}.")
        known = tf.debugging.Assert(tf.size(outside) == 0, [message, outside], summarize=5)
        with tf.control_dependencies([known]):
            return tf.identity(ids)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {"vocabulary": list(self.vocabulary)}
