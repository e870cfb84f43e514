"""States in which texts begin, for models that were not trained to begin from zeros.

Training with `reset_rate` 0, as the original program did, shows a network LSTM states of zero once
for each row of its batches and never again, and yet in use every text begins from them. Such a
model can be given other states to begin from: the mean of those in which it is after reading some
text. They are computed once, are the same for every sentence, and depend on the text alone.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from bilm.errors import InputError
from bilm.files import PathLike, read_lines
from bilm.layers import LSTMStack

# A file with a sentence a line, or sentences: text that is split on white space, or tokens.
WarmUpText = PathLike | Iterable[str | Sequence[str]]

N_WORDS = 2048
"""Words that are read. A shorter text is read over and over."""

N_ROWS = 16
"""Rows that read them side by side, each a part of the text, and whose states are averaged."""


def read_text(text: WarmUpText) -> list[list[str]]:
    """The sentences of a warm-up: the first `N_WORDS` words of a text, or all of it repeatedly.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: the file is not UTF-8 (file and line), a sentence is neither text nor tokens,
            or there is no word.
    """
    is_file = isinstance(text, str | os.PathLike)
    sentences: list[list[str]] = []
    n_words = 0
    for number, sentence in enumerate(read_lines(text) if is_file else text):  # type: ignore[arg-type]
        tokens = sentence.split() if isinstance(sentence, str) else sentence
        if not isinstance(tokens, Sequence) or not all(isinstance(word, str) for word in tokens):
            raise InputError(
                f"warm_up: sentence {number}: text or tokens are expected, not {sentence!r}."
            )
        if tokens:
            sentences.append(list(tokens))
            n_words += len(tokens)
        if n_words >= N_WORDS:
            break
    if not sentences:
        name = os.fspath(text) if is_file else "the sentences"  # type: ignore[arg-type]
        raise InputError(f"warm_up: {name}: no word to read.")
    times = -(-N_WORDS // n_words)
    return list(itertools.chain.from_iterable([sentences] * times))


def warm_up(
    stacks: Sequence[LSTMStack], vectors: tf.Tensor, sentences: Sequence[np.ndarray]
) -> None:
    """Let texts begin from the mean of the states after the rows of a text.

    Args:
        stacks: the forward stack, and the backward stack of a bidirectional model.
        vectors: float32 (n, projection_dim), the token encoder's output for distinct words.
        sentences: of each the rows of `vectors`: `<S>`, its words and `</S>`.
    """
    rows = np.array_split(np.arange(len(sentences)), min(N_ROWS, len(sentences)))
    for d, stack in enumerate(stacks):
        # A direction reads all tokens of a sentence but the last, which it would predict.
        read = [sentence[:: -1 if d else 1][:-1] for sentence in sentences]
        streams = [np.concatenate([read[number] for number in row]) for row in rows]
        lengths = np.array([len(stream) for stream in streams])
        mask = np.arange(lengths.max())[:, np.newaxis] < lengths  # (time, rows)
        index = np.zeros(mask.shape, np.int32)
        index.T[mask.T] = np.concatenate(streams)
        tokens = tf.gather(vectors, index)  # (time, rows, projection_dim)
        _, states = stack(tokens, states=stack.zero_states(len(rows)), present=tf.constant(mask))
        pairs = zip(tf.nest.flatten(stack.initial), tf.nest.flatten(states), strict=True)
        for variable, value in pairs:
            variable.assign(tf.reduce_mean(value, axis=0, keepdims=True))
