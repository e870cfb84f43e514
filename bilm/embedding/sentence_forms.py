"""The forms in which sentences come in and their vectors go out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.embedding.corpus import Tokens
from bilm.errors import InputError


def check_stream(sentences: Any, batch_size: int | None) -> None:
    """Check the arguments of a call that takes many sentences.

    Raises:
        InputError: `sentences` is one text, or `batch_size` is below 1.
    """
    if isinstance(sentences, str):
        raise InputError(f"a list of sentences is expected, not the text {sentences!r}.")
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size: a whole number from 1 is expected, not {batch_size!r}.")


def read_stream(items: Iterable[Any], with_ids: bool) -> Iterator[tuple[Any, Tokens]]:
    """Pairs (id, tokens) of a stream of sentences: text that is split on white space, or tokens.

    Args:
        items: sentences; `with_ids` pairs (id, sentence).
        with_ids: without it the ids are the sentences' numbers, from 0.

    Raises:
        InputError: an item is no pair, or a sentence is neither text nor a list of tokens.
    """
    for number, item in enumerate(items):
        if not with_ids:
            yield number, _as_tokens(item, number)
        elif isinstance(item, tuple | list) and len(item) == 2:
            yield item[0], _as_tokens(item[1], number)
        else:
            raise InputError(f"sentence {number}: a pair (id, sentence) is expected, not {item!r}.")


def _as_tokens(sentence: Any, number: int) -> Tokens:
    if isinstance(sentence, str):
        return sentence.split()
    if isinstance(sentence, bytes) or not isinstance(sentence, Iterable):
        raise InputError(
            f"sentence {number}: text or a list of tokens is expected, not {sentence!r}."
        )
    listed = list(sentence)
    for position, token in enumerate(listed):
        if not isinstance(token, str):
            kind = type(token).__name__
            raise InputError(
                f"sentence {number}, token {position}: text is expected, not {kind} {token!r}."
            )
    return listed


class PaddedVectors(NamedTuple):
    """The vectors of sentences in one array.

    Attributes:
        vectors: float32 (sentences, longest, dim), or (sentences, n_layers, longest, dim) for
            layers="all"; zeros past a sentence's end.
        mask: bool (sentences, longest), True where there is a token.
    """

    vectors: np.ndarray
    mask: np.ndarray


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
    # The ragged axis comes first, so that a sentence's tokens lie together:
    # (n_layers, tokens, dim) -> (tokens, n_layers, dim)
    rows = [np.moveaxis(vectors, -2, 0) for vectors in results]
    values = np.concatenate([np.zeros((0, *middle, dim), np.float32), *rows])
    return tf.RaggedTensor.from_row_lengths(values, lengths)
