"""Words as rows of character ids.

The bytes of a word's UTF-8 form are the character ids 0..255; five marks follow them. `<S>` and
`</S>` are words too, each with a mark instead of its letters. ELMoForManyLangs has dictionaries
instead of bytes: `DictionaryIds`.

Source: Peters et al. (2018), section 3.4; the published models' files fix the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.core.errors import InputError, require_words, shown
from bilm.core.options import MOST_CHARACTERS

BOS_CHAR = 256
EOS_CHAR = 257
BOW_CHAR = 258
EOW_CHAR = 259
PAD_CHAR = 260

BOS = "<S>"
EOS = "</S>"
UNK = "<UNK>"

# What ELMoForManyLangs calls them.
BEGIN, END, UNKNOWN, PADDING = "<bos>", "<eos>", "<oov>", "<pad>"
WORD_BEGIN, WORD_END = "<bow>", "<eow>"


def network_ids(ids: Any) -> Any:
    """The ids that a network takes: those of the data + 1.

    Everywhere in `bilm.data`, in vocabularies and in checkpoints, ids of words and of characters
    begin with 0. To a network 0 is the mask, no token at all, and its tables of vectors have a row
    of zeros for it before the others. Here the two meet: whatever feeds a network calls this.

    Args:
        ids: a number, a NumPy array or a tensor, of an integer type that holds one more.
    """
    return ids + 1


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
    """Sequences laid end to end become rows (n, width): [begin, its values, end, padding ...].

    `lengths` (n,) are the numbers of values of the sequences, at most `width - 2`.
    """
    rows = np.full((len(lengths), width), padding, dtype)
    inside = np.arange(width - 2) < lengths[:, None]  # (n, width - 2)
    rows[:, 1:-1][inside] = values
    rows[:, 0] = begin
    rows[np.arange(len(lengths)), lengths + 1] = end
    return rows


def encode_words(words: Sequence[str], max_word_length: int) -> np.ndarray:
    """The character ids of words.

    A word's bytes are between the marks for begin and end of word; those beyond
    `max_word_length - 2` are cut off. `<S>` and `</S>` have the mark of the sentence's begin or
    end instead of their bytes, also where a text holds them as words.

    Returns:
        (len(words), max_word_length) uint16: 0..255 bytes, 256..260 marks, 260 padding. There is
        no id that masks: see `network_ids`.
    """
    room = require_max_word_length(max_word_length) - 2
    # Lone surrogates have no UTF-8 form.
    try:
        encoded = [word.encode("utf-8", "ignore")[:room] for word in words]
    except (TypeError, AttributeError):
        require_words(words=words)
        raise
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
    """`max_word_length`; InputError if it cannot hold a mark between two marks, or is far above
    what words have."""
    is_whole = isinstance(max_word_length, int | np.integer)
    if not is_whole or not 3 <= max_word_length <= MOST_CHARACTERS:
        raise InputError(
            f"max_word_length must be 3 or more (begin, one character, end), up to "
            f"{MOST_CHARACTERS}, not {shown(max_word_length)}."
        )
    return max_word_length


def as_bytes(rows: Sequence[str]) -> np.ndarray:
    """Tokens, none of which holds a line end, as UTF-8 bytes, one a line: uint8."""
    return np.frombuffer("\n".join(rows).encode("utf-8"), np.uint8)


def from_bytes(values: np.ndarray) -> list[str]:
    """The tokens that `as_bytes` was given."""
    return values.astype(np.uint8).tobytes().decode("utf-8").split("\n")


class DictionaryIds:
    """The ids of words by dictionaries.

    Args:
        characters: the dictionary of characters by rows, padding last; "" is a row without one.
        words: that of words; None if the model has none.
        max_word_length: characters of a word, including the two marks; longer words are cut.
        source: where the dictionaries are from, for messages.
    """

    def __init__(
        self,
        characters: Sequence[str],
        words: Sequence[str] | None,
        max_word_length: int,
        source: str,
    ) -> None:
        self.tokens = [list(characters), list(words or ())]
        self._characters = {token: row for row, token in enumerate(characters) if token}
        self._words = None
        if words is not None:
            self._words = {token: row for row, token in enumerate(words) if token}
        self._length = max_word_length
        special = [BEGIN, END, UNKNOWN, PADDING, WORD_BEGIN, WORD_END]
        missing = [token for token in special if token not in self._characters]
        missing += [token for token in special[:3] if token not in (self._words or special)]
        if missing:
            raise InputError(f"{source}: the dictionaries lack {', '.join(missing)}.")

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """int32 (len(words), 1 + max_word_length): the row of the word, -1 without a dictionary of
        words; then those of its characters.

        `<S>` and `</S>` are the dictionary's begin and end. Words and characters that a dictionary
        lacks are its unknown ones.
        """
        ids = np.full((len(words), 1 + self._length), self._characters[PADDING], np.int32)
        known, unknown = self._characters, self._characters[UNKNOWN]
        for row, word in enumerate(words):
            token = {BOS: BEGIN, EOS: END}.get(word, word)[: self._length - 2]
            ids[row, 0] = -1
            if self._words is not None:
                ids[row, 0] = self._words.get(token, self._words[UNKNOWN])
            # The program that trained these models takes the marks the wrong way round.
            inner = [token] if token in (BEGIN, END) else token
            marked = [WORD_END, *inner, WORD_BEGIN]
            ids[row, 1 : 1 + len(marked)] = [known.get(character, unknown) for character in marked]
        return ids
