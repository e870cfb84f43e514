"""Text in TensorFlow: from strings to the words of framed sentences, without leaving the graph.

What `ELMo.encode` and the batchers do with Python's strings is done here with tensors of strings,
to the same result: no Python is needed to run a graph of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data.encoding import (
    BOS,
    BOS_CHAR,
    BOW_CHAR,
    EOS,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    network_ids,
)
from bilm.errors import InputError

# What str.split splits on. TensorFlow's own split knows ASCII only.
_WHITE_SPACE = r"[\t-\r\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"  # noqa: E501


class FramedWords(NamedTuple):
    """Sentences between their begin and end.

    Attributes:
        words: string (batch, time + 2): `<S>`, the tokens, `</S>`, then `<S>` for no word.
        present: bool (batch, time + 2), True from `<S>` to `</S>`.
        lengths: int32 (batch,), tokens of each sentence.
    """

    words: tf.Tensor
    present: tf.Tensor
    lengths: tf.Tensor


def as_text(text: Any) -> Any:
    """Text as a tensor of strings.

    Args:
        text: strings (batch,), sentences; or (batch, time), tokens. A tensor, a `keras.Input`, a
            ragged tensor of tokens, a NumPy array, or lists, whose sentences may differ in length.

    Returns:
        the same as a tensor, tokens filled up with "".

    Raises:
        InputError: it is not text, or has another number of axes.
    """
    if isinstance(text, tf.RaggedTensor):
        check_text(text)
        return text.to_tensor(default_value="")
    if isinstance(text, np.ndarray) or not hasattr(text, "dtype"):
        return tf.constant(_padded(text), tf.string)
    check_text(text)
    return text


def check_text(text: Any) -> None:
    """Check a tensor's dtype and axes.

    Raises:
        InputError: it does not hold strings (batch,) or (batch, time).
    """
    dtype, shape = getattr(text.dtype, "name", text.dtype), tuple(text.shape)
    if dtype != "string":
        raise InputError(
            f"text: strings are expected, not {dtype}; a keras.Input needs dtype='string'."
        )
    if len(shape) not in (1, 2):
        raise InputError(
            f"text: sentences (batch,) or tokens (batch, time) are expected, not shape {shape}."
        )


def _padded(text: Any) -> np.ndarray:
    """Lists or an array as an array of bytes, tokens filled up with b""."""
    if isinstance(text, np.ndarray):
        if text.dtype.kind not in "USO":
            raise InputError(f"text: strings are expected, not {text.dtype.name}.")
        text = text.tolist()
    if isinstance(text, str | bytes) or not isinstance(text, Sequence):
        raise InputError(f"text: a list of sentences is expected, not {text!r}.")
    if all(isinstance(sentence, str | bytes) for sentence in text):
        return np.array([_utf8(sentence, (n,)) for n, sentence in enumerate(text)], object)
    rows = []
    for n, sentence in enumerate(text):
        if isinstance(sentence, str | bytes) or not isinstance(sentence, Sequence):
            raise InputError(
                f"sentence {n}: a list of tokens is expected, as the others are, not {sentence!r}."
            )
        rows.append([_utf8(token, (n, t)) for t, token in enumerate(sentence)])
    padded = np.full((len(rows), max(map(len, rows))), b"", object)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return padded


def _utf8(token: Any, place: tuple[int, ...]) -> bytes:
    if isinstance(token, bytes):
        return token
    if not isinstance(token, str):
        where = ", ".join(f"{a} {n}" for a, n in zip(("sentence", "token"), place, strict=False))
        raise InputError(f"{where}: text is expected, not {type(token).__name__} {token!r}.")
    # Lone surrogates have no UTF-8 form.
    return token.encode("utf-8", "ignore")


def tokens_of(text: tf.Tensor) -> tf.Tensor:
    """Tokens (batch, time) of strings: sentences (batch,) are split as str.split does."""
    if text.shape.rank == 2:
        return text
    return tf.strings.split(tf.strings.regex_replace(text, _WHITE_SPACE, " ")).to_tensor("")


def framed_words(tokens: tf.Tensor, lengths: tf.Tensor | None = None) -> FramedWords:
    """Put sentences between `<S>` and `</S>`.

    Args:
        tokens: string (batch, time). Without `lengths` a sentence ends at its last token that is
            not ""; a "" before is a token without letters.
        lengths: int32 (batch,), 0 to time.
    """
    n_rows, n_tokens = tf.unstack(tf.shape(tokens))
    if lengths is None:
        last = tf.where(tf.not_equal(tokens, ""), tf.range(1, n_tokens + 1), 0)
        lengths = tf.maximum(tf.reduce_max(last, axis=1), 0)  # of no tokens: the lowest integer
    end = lengths[:, tf.newaxis] + 1
    places = tf.range(n_tokens + 2)
    mark = tf.fill((n_rows, 1), BOS)
    words = tf.where(places == end, EOS, tf.concat([mark, tokens, mark], axis=1))
    present = places <= end
    return FramedWords(tf.where(present, words, BOS), present, lengths)


def characters_of(words: tf.Tensor, max_characters_per_token: int) -> tf.Tensor:
    """Character ids + 1 of words, as `Batcher` gives them.

    Args:
        words: string, of any shape. Their bytes are taken as they are.

    Returns:
        int32, the shape of `words` + (max_characters_per_token,), 1..261.
    """
    room = max_characters_per_token - 2
    content = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=room), tf.int32)
    lengths = tf.minimum(tf.strings.length(words), room)
    for mark, of_mark in ((BOS, BOS_CHAR), (EOS, EOS_CHAR)):
        is_mark = tf.equal(words, mark)
        content = tf.where(is_mark[..., tf.newaxis], of_mark, content)
        lengths = tf.where(is_mark, 1, lengths)
    lengths = lengths[..., tf.newaxis]
    places = tf.range(max_characters_per_token)
    edge = tf.zeros_like(lengths)
    ids = tf.concat([edge + BOW_CHAR, content, edge + PAD_CHAR], axis=-1)
    ids = tf.where(places == lengths + 1, EOW_CHAR, ids)
    return network_ids(tf.where(places > lengths + 1, PAD_CHAR, ids))
