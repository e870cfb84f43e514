"""Text in TensorFlow: from string tensors to framed sentences and to ids, within a graph.

The results equal `ELMo.encode` and the batchers, but such a graph runs without Python.
`CharacterIds` and `WordIds` are Keras layers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import SENTENCES, WORDS, InputError, require
from bilm.core.keras_backend import is_tensor, keras, require_all, require_axes
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
from bilm.data.sentences import EMPTY_TOKEN, WHITE_SPACE, as_python, as_tokens

# The white space of str.split; TensorFlow splits at ASCII white space only.
_WHITE_SPACE = r"[\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"  # noqa: E501


class FramedWords(NamedTuple):
    """Sentences between `<S>` and `</S>`."""

    words: tf.Tensor  # string (batch, time + 2): `<S>`, the tokens, `</S>`, then `<S>` as padding
    mask: tf.Tensor  # bool (batch, time + 2), True from `<S>` to `</S>`


def as_text(text: Any) -> Any:
    """Text as a tensor of strings, tokens padded with "". It may be sentences (batch,) or tokens
    (batch, time): a tensor, a `keras.Input`, a ragged tensor, an array, a column of a data frame,
    or lists of any lengths."""
    if not is_tensor(text):
        return tf.constant(_padded(as_python(text)), tf.string)
    require_axes(text, "text", "(None,)")
    dtype, shape = getattr(text.dtype, "name", text.dtype), tuple(text.shape)
    if dtype != "string":
        raise InputError(f"text must be strings, got {dtype}; a keras.Input needs dtype='string'.")
    if len(shape) not in (1, 2):
        raise InputError(
            f"text must be sentences (batch,) or tokens (batch, time), got shape {shape}."
        )
    return text.to_tensor(default_value="") if isinstance(text, tf.RaggedTensor) else text


def _padded(text: Any) -> np.ndarray:
    """Sentences, or lists of tokens padded with b"", as an array of bytes."""
    require(SENTENCES, text=text)
    text = list(text)
    if all(isinstance(sentence, str | bytes) for sentence in text):
        return np.array([*map(utf8, text)], object)
    rows = [as_tokens(s, f"sentence {n}", split=None) for n, s in enumerate(text)]
    padded = np.full((len(rows), max(map(len, rows))), b"", object)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = [*map(utf8, tokens)]
    return padded


def utf8(token: str | bytes) -> bytes:
    """The bytes of a token; lone surrogates are dropped, because they cannot be encoded."""
    return token if isinstance(token, bytes) else token.encode("utf-8", "ignore")


def framed_words(text: tf.Tensor, lengths: tf.Tensor | None = None) -> FramedWords:
    """Put the words of sentences between `<S>` and `</S>`.

    Sentences (batch,) are split as str.split does. Tokens (batch, time) must have no white space;
    a sentence has `lengths` tokens, int32 (batch,), or ends at its last token that is not "".
    """
    if text.shape.rank == 1:
        tokens = tf.strings.split(tf.strings.regex_replace(text, _WHITE_SPACE, " ")).to_tensor("")
    else:
        tokens = text
    n_rows, n_tokens = tf.unstack(tf.shape(tokens))
    if lengths is None:
        last = tf.where(tf.not_equal(tokens, ""), tf.range(1, n_tokens + 1), 0)
        # The maximum of an empty row is negative.
        lengths = tf.maximum(tf.reduce_max(last, axis=1), 0)
    end = lengths[:, tf.newaxis] + 1  # (batch, 1), the position of `</S>`
    if text.shape.rank == 2:
        is_padding = tf.range(1, n_tokens + 1) >= end
        is_one_word = tf.equal(tf.strings.regex_replace(tokens, _WHITE_SPACE, ""), tokens)
        for holds, rule in ((is_one_word, WHITE_SPACE), (tf.not_equal(tokens, ""), EMPTY_TOKEN)):
            tokens = require_all(tokens, holds | is_padding, tokens, f"text: a token {rule}")
    positions = tf.range(n_tokens + 2)
    bos = tf.fill((n_rows, 1), BOS)
    words = tf.where(positions == end, EOS, tf.concat([bos, tokens, bos], axis=1))
    mask = positions <= end  # (batch, time + 2)
    return FramedWords(tf.where(mask, words, BOS), mask)


class TextLayer(keras.layers.Layer):
    """The base of layers that take text, and set the mask of their output in `call`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.supports_jit = False  # XLA has no strings

    @property
    def compute_dtype(self) -> str:
        """The type of the inputs that a `keras.Sequential` without a `keras.Input` expects."""
        return "string"

    variable_dtype = compute_dtype  # if they differ, Keras casts variables to `compute_dtype`

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Rebuild a saved layer; Keras' own method would hide the error's message."""
        return cls(**config)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """None: `call` sets the mask, which depends on the text."""


class _TextToIds(TextLayer):
    ids_of: Callable[[tf.Tensor], tf.Tensor]  # the ids of words, without padding
    last_axes: tuple[int, ...] = ()

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name=name, **({"dtype": "int32"} | kwargs))
        self.built = True

    def __call__(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(as_text(text), *args, **kwargs)

    def call(self, text: tf.Tensor) -> tf.Tensor:
        words, mask = framed_words(text)
        is_word = mask[..., tf.newaxis] if self.last_axes else mask  # next to the characters
        ids = self.ids_of(words) * tf.cast(is_word, tf.int32)
        ids._keras_mask = mask
        return ids

    def compute_output_spec(self, text: Any) -> keras.KerasTensor:
        """The shape; the time axis of sentences is unknown before the call."""
        time = text.shape[1] if len(text.shape) == 2 else None
        axes = (text.shape[0], None if time is None else time + 2, *self.last_axes)
        return keras.KerasTensor(axes, "int32")


@keras.saving.register_keras_serializable(package="bilm")
class CharacterIds(_TextToIds):
    """Text to character ids: `Batcher` as a Keras layer.

    Args:
        max_characters_per_token: as in the model's options.

    Call arguments:
        text: strings. Sentences (batch,), which are split at white space, or tokens (batch, time),
            padded with "". A tensor, a `keras.Input` with dtype="string", an array or lists.

    Output: int32 (batch, time + 2, max_characters_per_token), the character ids of `<S>`, the
    tokens and `</S>` as from `Batcher`: ids + 1, 0 past a sentence's end. The Keras mask is (batch,
    time + 2).

    Raises:
        InputError: `max_characters_per_token` is below 3; the input is not text of this shape.

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
        """The character ids + 1 of words of any shape: int32 (*shape, characters), 1..261."""
        max_bytes = self.max_characters_per_token - 2
        content = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=max_bytes), tf.int32)
        lengths = tf.minimum(tf.strings.length(words), max_bytes)
        for boundary, character in ((BOS, BOS_CHAR), (EOS, EOS_CHAR)):
            is_boundary = tf.equal(words, boundary)
            content = tf.where(is_boundary[..., tf.newaxis], character, content)
            lengths = tf.where(is_boundary, 1, lengths)
        lengths = lengths[..., tf.newaxis]  # (..., 1)
        positions = tf.range(self.max_characters_per_token)
        edge = tf.zeros_like(lengths)
        ids = tf.concat([edge + BOW_CHAR, content, edge + PAD_CHAR], axis=-1)  # (..., characters)
        ids = tf.where(positions == lengths + 1, EOW_CHAR, ids)
        return network_ids(tf.where(positions > lengths + 1, PAD_CHAR, ids))

    def get_config(self) -> dict[str, Any]:
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
            (tf.errors.InvalidArgumentError within a graph); the input is not text.

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
        words, numbers = [*map(utf8, ids)], list(ids.values())
        with tf.init_scope():
            contents = tf.lookup.KeyValueTensorInitializer(words, numbers, tf.string, tf.int32)
            self.table = tf.lookup.StaticHashTable(contents, default_value=0)

    def ids_of(self, words: tf.Tensor) -> tf.Tensor:
        """The ids + 1 of words of any shape: int32."""
        ids = self.table.lookup(words)  # 0 outside the vocabulary
        if self.unk is not None:
            return tf.where(ids == 0, self.unk, ids)
        message = f"text: a word is not in the vocabulary, which lacks {UNK} for such words"
        return require_all(ids, ids > 0, words, message)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"vocabulary": list(self.vocabulary)}
