"""Words as rows of character ids.

The UTF-8 bytes of a word are the character ids 0..255; 256..259 are boundaries of words and
sentences, 260 is padding. `<S>` and `</S>` are words with one boundary character instead of bytes.
ELMoForManyLangs uses dictionaries instead of bytes, see `DictionaryIds`.

Source: Peters et al. (2018), section 3.4; the ids match the published models.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bilm.core.errors import WORDS, InputError, integer, require
from bilm.core.options import MOST_CHARACTERS

BOS_CHAR = 256
EOS_CHAR = 257
BOW_CHAR = 258
EOW_CHAR = 259
PAD_CHAR = 260

# Characters per word, including the boundary characters.
WORD_LENGTH = integer(3, MOST_CHARACTERS)

BOS = "<S>"
EOS = "</S>"
UNK = "<UNK>"

# The special tokens of ELMoForManyLangs.
BEGIN, END, UNKNOWN, PADDING = "<bos>", "<eos>", "<oov>", "<pad>"
WORD_BEGIN, WORD_END = "<bow>", "<eow>"


def network_ids(ids: Any) -> Any:
    """The ids for a network, which are 1-based: `ids` + 1.

    Ids of words and characters are 0-based in `bilm.data`, in vocabularies and in checkpoints. A
    network's inputs (integers, arrays or tensors) are 1-based: 0 is the mask, whose vector is zero.
    """
    return ids + 1


class DistinctWords(dict[str, int]):
    """Numbers words in the order of their first occurrence, `<S>` 0 and `</S>` 1.

    Looking up a new word numbers it, so that `map(words.__getitem__, tokens)` is as fast as a
    dictionary.
    """

    def __init__(self) -> None:
        super().__init__({BOS: 0, EOS: 1})

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def framed(
    values: np.ndarray, lengths: np.ndarray, width: int, *, begin: int, end: int, padding: int
) -> np.ndarray:
    """Rows (n, width) of [begin, values of a sequence, end, padding ...] from the concatenated
    sequences `values`; their `lengths` (n,) are at most `width - 2`."""
    rows = np.full((len(lengths), width), padding, values.dtype)
    inside = np.arange(width - 2) < lengths[:, None]  # (n, width - 2)
    rows[:, 1:-1][inside] = values
    rows[:, 0] = begin
    rows[np.arange(len(lengths)), lengths + 1] = end
    return rows


def encode_words(words: Sequence[str], max_word_length: int) -> np.ndarray:
    """The 0-based character ids of words: (len(words), max_word_length) uint16. 0..255 are bytes,
    256..259 boundaries, and 260 is padding.

    A word's bytes, at most `max_word_length - 2`, are between the characters for begin and end of
    word. `<S>` and `</S>` have the character for begin or end of sentence instead of bytes, even if
    they are words of a text.

    Raises:
        InputError: `max_word_length` is below 3, or `words` holds something else than text.
    """
    require(WORD_LENGTH, max_word_length=max_word_length)
    max_bytes = max_word_length - 2
    # Lone surrogates cannot be encoded and are dropped.
    try:
        encoded = [word.encode("utf-8", "ignore")[:max_bytes] for word in words]
    except (TypeError, AttributeError):
        require(WORDS, words=words)
        raise
    lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
    values = np.frombuffer(b"".join(encoded), np.uint8).astype(np.uint16)
    marks = {"begin": BOW_CHAR, "end": EOW_CHAR, "padding": PAD_CHAR}
    rows = framed(values, lengths, max_word_length, **marks)
    for number, word in enumerate(words):
        if word in (BOS, EOS):
            rows[number] = PAD_CHAR
            rows[number, :3] = BOW_CHAR, BOS_CHAR if word == BOS else EOS_CHAR, EOW_CHAR
    return rows


def is_cut(word: str, max_word_length: int) -> bool:
    """Whether a word has more bytes than `encode_words` keeps."""
    return len(word.encode("utf-8", "ignore")) > max_word_length - 2


def as_bytes(rows: Sequence[str]) -> np.ndarray:
    """Tokens without line ends, one per line, as UTF-8 bytes: uint8."""
    return np.frombuffer("\n".join(rows).encode("utf-8"), np.uint8)


def from_bytes(values: np.ndarray) -> list[str]:
    """The inverse of `as_bytes`."""
    return values.astype(np.uint8).tobytes().decode("utf-8").split("\n")


class DictionaryIds:
    """The ids of words by dictionaries: lists of characters and of words, by row.

    Padding is the last character; "" is an unused row; `words` may be None. A word is cut to
    `max_word_length` characters, including two boundary characters. `source` names the origin of
    the dictionaries in messages.
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
        """int32 (len(words), 1 + max_word_length): the row of the word, -1 without a word
        dictionary; then the rows of its characters. `<S>` and `</S>` are the dictionary's <bos> and
        <eos>; words and characters missing from a dictionary are <oov>."""
        ids = np.full((len(words), 1 + self._length), self._characters[PADDING], np.int32)
        characters, unknown = self._characters, self._characters[UNKNOWN]
        for row, word in enumerate(words):
            token = {BOS: BEGIN, EOS: END}.get(word, word)[: self._length - 2]
            ids[row, 0] = -1
            if self._words is not None:
                ids[row, 0] = self._words.get(token, self._words[UNKNOWN])
            # The program that trained these models swaps the two boundary characters.
            inner = [token] if token in (BEGIN, END) else token
            symbols = [WORD_END, *inner, WORD_BEGIN]
            ids[row, 1 : 1 + len(symbols)] = [
                characters.get(character, unknown) for character in symbols
            ]
        return ids
