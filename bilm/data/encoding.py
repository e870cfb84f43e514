"""Words as rows of character ids: the numbers that stand for characters, said once.

The bytes of a word's UTF-8 form are the character ids 0..255; five marks follow them. `<S>` and
`</S>` are words too, each with a mark in place of its letters.

Source: Peters et al. (2018), section 3.4; the published models' files fix the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bilm.errors import InputError

BOS_CHAR = 256
EOS_CHAR = 257
BOW_CHAR = 258
EOW_CHAR = 259
PAD_CHAR = 260

BOS = "<S>"
EOS = "</S>"
UNK = "<UNK>"


class DistinctWords(dict[str, int]):
    """Numbers words in the order of their first occurrence, `<S>` 0 and `</S>` 1.

    Looking a word up numbers it if it is new, so that `map(words.__getitem__, tokens)` reads a
    text at the speed of a dictionary.
    """

    def __init__(self) -> None:
        super().__init__({BOS: 0, EOS: 1})

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def framed(
    values: np.ndarray,
    lengths: np.ndarray,
    width: int,
    *,
    begin: int,
    end: int,
    padding: int,
    dtype: npt.DTypeLike = np.int32,
) -> np.ndarray:
    """Sequences laid end to end become rows: [begin, its values, end, padding ...].

    Args:
        values: (sum of lengths,), the sequences one after the other.
        lengths: (n,), how many values each sequence has; at most `width - 2`.

    Returns:
        (n, width) of `dtype`.
    """
    rows = np.full((len(lengths), width), padding, dtype)
    inside = np.arange(width - 2) < lengths[:, None]  # (n, width - 2)
    rows[:, 1:-1][inside] = values
    rows[:, 0] = begin
    rows[np.arange(len(lengths)), lengths + 1] = end
    return rows


def encode_words(words: Sequence[str], max_word_length: int) -> np.ndarray:
    """The character ids of words.

    A word's bytes stand between the marks for begin and end of word; those beyond
    `max_word_length - 2` are cut off. `<S>` and `</S>` have the mark of the sentence's begin or
    end in place of their bytes, also where a text holds them as words.

    Returns:
        (len(words), max_word_length) uint16: 0..255 bytes, 256..260 marks, 260 padding. There is
        no id that masks; the inputs of a trained model are these ids + 1, with 0 as the mask.
    """
    room = max_word_length - 2
    # Lone surrogates have no UTF-8 form.
    encoded = [word.encode("utf-8", "ignore")[:room] for word in words]
    lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
    values = np.frombuffer(b"".join(encoded), np.uint8)
    rows = framed(
        values,
        lengths,
        max_word_length,
        begin=BOW_CHAR,
        end=EOW_CHAR,
        padding=PAD_CHAR,
        dtype=np.uint16,
    )
    for number, word in enumerate(words):
        if word in (BOS, EOS):
            rows[number] = PAD_CHAR
            rows[number, :3] = BOW_CHAR, BOS_CHAR if word == BOS else EOS_CHAR, EOW_CHAR
    return rows


def require_max_word_length(max_word_length: int) -> int:
    """`max_word_length`, once it is known to hold a mark between two marks.

    Raises:
        InputError: less than 3.
    """
    if max_word_length < 3:
        raise InputError(
            f"max_word_length must be 3 or more (begin, one character, end), not {max_word_length}."
        )
    return max_word_length
