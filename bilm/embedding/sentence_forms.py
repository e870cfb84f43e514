"""The forms in which sentences come in and their vectors go out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bilm.embedding.corpus import Tokens
from bilm.errors import InputError

Item = TypeVar("Item")


class PaddedVectors(NamedTuple):
    """The vectors of sentences in one array.

    Attributes:
        vectors: float32 (sentences, longest, dim), or (sentences, n_layers, longest, dim) for
            layers="all"; zeros past a sentence's end.
        mask: bool (sentences, longest), True where there is a token.
    """

    vectors: np.ndarray
    mask: np.ndarray


def id_and_sentence(item: Any, number: int) -> tuple[Any, Any]:
    """A pair of a stream that carries ids along.

    Raises:
        InputError: it is not a pair; `number` says which one.
    """
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(f"sentence {number}: a pair (id, sentence) is expected, not {item!r}.")
    return item[0], item[1]


def as_tokens(sentence: Any, number: int) -> Tokens:
    """The tokens of text, which is split on white space, or of a list of tokens.

    Raises:
        InputError: it is neither; `number` says which sentence it is.
    """
    if isinstance(sentence, str):
        return sentence.split()
    if isinstance(sentence, bytes) or not isinstance(sentence, Iterable):
        raise InputError(
            f"sentence {number}: text or a list of tokens is expected, not {sentence!r}."
        )
    listed = list(sentence)
    for place, token in enumerate(listed):
        if not isinstance(token, str):
            kind = type(token).__name__
            raise InputError(
                f"sentence {number}, token {place}: text is expected, not {kind} {token!r}."
            )
    return listed


def windows(
    sentences: Iterable[Item], n_tokens: int, size: Callable[[Any], int] = len
) -> Iterator[list[Item]]:
    """A stream of sentences in lists of about `n_tokens` tokens; `size` counts those of one."""
    window: list[Item] = []
    total = 0
    for sentence in sentences:
        window.append(sentence)
        total += size(sentence) + 2
        if total >= n_tokens:
            yield window
            window, total = [], 0
    if window:
        yield window


def padded(results: list[np.ndarray], dim: int, n_layers: int | None) -> PaddedVectors:
    """Sentences in one array; `n_layers` if they have an axis of layers."""
    lengths = np.array([vectors.shape[-2] for vectors in results], np.int64)
    longest = int(lengths.max(initial=0))
    middle = () if n_layers is None else (n_layers,)
    together = np.zeros((len(results), *middle, longest, dim), np.float32)
    for row, vectors in zip(together, results, strict=True):
        row[..., : vectors.shape[-2], :] = vectors
    return PaddedVectors(together, np.arange(longest) < lengths[:, np.newaxis])


def ragged(results: list[np.ndarray], dim: int, n_layers: int | None) -> tf.RaggedTensor:
    """Sentences in a ragged tensor (sentences, tokens, ..., dim)."""
    lengths = [vectors.shape[-2] for vectors in results]
    middle = () if n_layers is None else (n_layers,)
    # The ragged axis comes first, so that a sentence's tokens lie together.
    rows = [np.moveaxis(vectors, -2, 0) for vectors in results]
    values = np.concatenate([np.zeros((0, *middle, dim), np.float32), *rows])
    return tf.RaggedTensor.from_row_lengths(values, lengths)
