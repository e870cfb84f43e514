"""How a stream of sentences fills the rows of batches.

Each row takes whole sentences, one after the other, as they come from the stream, and is cut
after `num_steps` inputs; what is left of its last sentence opens the same row of the next batch.
The rows draw in turn: the first fills up before the second draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np


class Held(NamedTuple):
    """A sentence that a row is within: `offset` of its inputs are given, `left` are not."""

    sentence: Any
    offset: int
    left: int


class Segment(NamedTuple):
    """A run of one sentence's inputs in a batch.

    Attributes:
        row, column: where the run begins in the batch.
        sentence: as the stream gave it.
        offset: the sentence's first input in the run, counted from 0.
        length: inputs in the run, 1 or more.
    """

    row: int
    column: int
    sentence: Any
    offset: int
    length: int


def fill_rows(
    held: Sequence[Held | None], sentences: Iterator[tuple[Any, int]], num_steps: int
) -> tuple[list[Segment], list[Held | None]]:
    """Fill one batch.

    Args:
        held: for each row the sentence that it goes on with; None if it takes a new one.
        sentences: the stream: (sentence, number of its inputs). If it ends, rows stay unfilled.
        num_steps: inputs of a row.

    Returns:
        The batch's segments, row by row from left to right, and what its rows hold after it.
    """
    segments: list[Segment] = []
    after: list[Held | None] = []
    for row, current in enumerate(held):
        column = 0
        while column < num_steps:
            if current is None:
                drawn = next(sentences, None)
                if drawn is None:
                    break
                current = Held(drawn[0], 0, drawn[1])
            sentence, offset, left = current
            length = min(left, num_steps - column)
            if length > 0:
                segments.append(Segment(row, column, sentence, offset, length))
                column += length
            current = Held(sentence, offset + length, left - length) if left > length else None
        after.append(current)
    return segments, after


def _get_batch(
    generator: Iterable[tuple[np.ndarray, np.ndarray | None]],
    batch_size: int,
    num_steps: int,
    max_word_length: int | None,
) -> Iterator[dict[str, np.ndarray | None]]:
    """Batches of one direction from sentences of one's own.

    Args:
        generator: (ids, char_ids) of each sentence, `<S>` and `</S>` included: (n,) and
            (n, max_word_length) integers; `char_ids` may be None if `max_word_length` is.
        batch_size: rows.
        num_steps: inputs of a row.
        max_word_length: characters a word; None for word input.

    Yields:
        token_ids: (batch_size, num_steps) int32.
        tokens_characters: (batch_size, num_steps, max_word_length) int32, or None.
        next_token_id: (batch_size, num_steps) int32: after each input, the sentence's next id.
        A last batch that the sentences do not fill is not given.
    """
    sentences = ((pair, len(pair[0]) - 1) for pair in generator)
    held: list[Held | None] = [None] * batch_size
    while True:
        segments, held = fill_rows(held, sentences, num_steps)
        if sum(segment.length for segment in segments) < batch_size * num_steps:
            return
        inputs = np.zeros((batch_size, num_steps), np.int32)
        targets = np.zeros_like(inputs)
        characters = None
        if max_word_length is not None:
            characters = np.zeros((batch_size, num_steps, max_word_length), np.int32)
        for row, column, (ids, char_ids), offset, length in segments:
            places = slice(column, column + length)
            inputs[row, places] = ids[offset : offset + length]
            targets[row, places] = ids[offset + 1 : offset + 1 + length]
            if characters is not None:
                characters[row, places] = char_ids[offset : offset + length]
        yield {
            "token_ids": inputs,
            "tokens_characters": characters,
            "next_token_id": targets,
        }
