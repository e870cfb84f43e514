"""A batch: ids and targets of one or two directions, and the distinct words' characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bilm.data.place import Place
from bilm.data.shard import Shard


class Stream(NamedTuple):
    """One direction of a batch. Where the batch's mask is False, all three are 0.

    Attributes:
        token_ids: (B, T) int32, the vocabulary id of each input; `<UNK>`'s outside the vocabulary.
        words: (B, T) int32, the row of `Batch.characters` of each input; without characters the
            same as `token_ids`.
        next_token_id: (B, T) int32, the target: the vocabulary id of the sentence's next token.
    """

    token_ids: np.ndarray
    words: np.ndarray
    next_token_id: np.ndarray


class Batch(NamedTuple):
    """B rows of T inputs, with each distinct word's characters once.

    Attributes:
        streams: one for `LMDataset`, (forward, reverse) for `BidirectionalLMDataset`. A row's
            segments are of the same sentences in both.
        characters: (distinct, max_word_length) uint16, ids 0..260 without a mask id, 260 is
            padding; the distinct inputs in the order of their first occurrence. None if the
            vocabulary has no characters.
        mask: (B, T) bool, False where there is no text; the same for both streams.
        place: where the corpus goes on after this batch; None in batches of sentences.
        sentences: (B,) int64, each row's sentence by its number in reading order; None unless
            every row is one sentence.
    """

    streams: tuple[Stream, ...]
    characters: np.ndarray | None
    mask: np.ndarray
    place: Place | None = None
    sentences: np.ndarray | None = None

    def to_dict(self) -> dict[str, np.ndarray | None]:
        """The form of the original program.

        Returns:
            token_ids, next_token_id: (B, T) int32; tokens_characters: (B, T, max_word_length)
            int32, or None without characters; of the second stream under the same names with
            `_reverse` after them.
        """
        result: dict[str, np.ndarray | None] = {}
        for stream, suffix in zip(self.streams, ("", "_reverse"), strict=False):
            characters = None
            if self.characters is not None:
                characters = self.characters.astype(np.int32)[stream.words]
            result["token_ids" + suffix] = stream.token_ids
            result["tokens_characters" + suffix] = characters
            result["next_token_id" + suffix] = stream.next_token_id
        return result


def make_batch(
    shard: Shard,
    segments: np.ndarray,
    shape: tuple[int, int],
    reverses: Sequence[bool],
    place: Place | None = None,
    sentences: np.ndarray | None = None,
) -> Batch:
    """Look up the text of segments.

    Args:
        shard: the sentences.
        segments: (segments, 5) integers, the fields of `Segment`; `sentence` is a number of
            `shard`.
        shape: (B, T).
        reverses: for each stream whether it reads backwards.
        place, sentences: handed on to the batch.
    """
    row, column, sentence, offset, length = segments.T
    # Every input of the batch, segment after segment: its number within the segment, and its
    # place in the (B, T) arrays laid flat.
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    where = np.repeat(row * shape[1] + column, length) + within

    start, end = shard.starts[sentence], shard.starts[sentence] + shard.inputs[sentence]
    inputs, targets = [], []
    for reverse in reverses:
        first, step = (end - offset, -1) if reverse else (start + offset, 1)
        places = np.repeat(first, length) + step * within
        inputs.append(shard.words[places])
        targets.append(shard.words[places + step])

    def laid_out(values: np.ndarray) -> np.ndarray:
        result = np.zeros(shape, values.dtype)
        result.reshape(-1)[where] = values
        return result

    ids = [shard.vocabulary_ids[words] for words in inputs]
    characters, numbers = None, ids
    if shard.characters is not None:
        rows, number = _number_distinct(np.concatenate(inputs), len(shard.distinct))
        characters, numbers = shard.characters[rows], np.split(number, len(reverses))
    streams = (
        Stream(laid_out(token_ids), laid_out(words), laid_out(shard.vocabulary_ids[next_words]))
        for token_ids, words, next_words in zip(ids, numbers, targets, strict=True)
    )
    mask = laid_out(np.ones(len(where), np.bool_))
    return Batch(tuple(streams), characters, mask, place, sentences)


def sentence_batches(
    shard: Shard,
    reverses: Sequence[bool],
    max_tokens: int,
    first: int = 0,
    *,
    max_rows: int | None = None,
) -> Iterator[Batch]:
    """Sentences as rows of their own that begin at column 0, those of like length together.

    Args:
        shard: the sentences.
        reverses: for each stream whether it reads backwards.
        max_tokens: most places of a batch, masked ones included. A sentence that is longer makes
            a batch of its own.
        first: the number of the shard's first sentence.
        max_rows: most rows of a batch; None sets no bound.

    Yields:
        `Batch` with `sentences`.
    """
    order = np.argsort(shard.inputs, kind="stable")
    for numbers in _cut(order, shard.inputs[order], max_tokens, max_rows or len(order)):
        length = shard.inputs[numbers].astype(np.int64)
        zeros = np.zeros_like(length)
        segments = np.stack((np.arange(len(numbers)), zeros, numbers, zeros, length), axis=1)
        shape = (len(numbers), int(length[-1]))
        yield make_batch(shard, segments, shape, reverses, sentences=first + numbers)


def _cut(
    order: np.ndarray, lengths: np.ndarray, max_tokens: int, max_rows: int
) -> Iterator[np.ndarray]:
    """Cut sentences sorted by length into runs of at most `max_tokens` places, padding included,
    and `max_rows` sentences."""
    first = 0
    for last, length in enumerate(lengths.tolist()):
        n_rows = last + 1 - first
        if (n_rows * length > max_tokens or n_rows > max_rows) and last > first:
            yield order[first:last]
            first = last
    if len(order) > first:
        yield order[first:]


def _number_distinct(rows: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Number rows of a table by their first occurrence.

    The order depends on the text alone, not on the table, so that a run that was resumed with
    another table makes the same batches bit for bit.

    Args:
        rows: (n,) integers below `n_rows`.

    Returns:
        The distinct rows, (distinct,), and the number of each entry of `rows` among them,
        (n,) int32.
    """
    places = np.arange(len(rows))
    first = np.empty(n_rows, np.int64)
    first[rows[::-1]] = places[::-1]  # of several assignments the last one stays
    is_first = first[rows] == places
    numbers = np.cumsum(is_first, dtype=np.int32) - 1
    return rows[is_first], numbers[first[rows]]
