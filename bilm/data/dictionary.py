"""Words as rows of two dictionaries, of words and of characters, as ELMoForManyLangs has them.

In place of UTF-8 bytes there are the characters of a dictionary, and beside them the word itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilm.data.encoding import BOS, EOS
from bilm.errors import InputError

BEGIN, END, UNKNOWN, PADDING = "<bos>", "<eos>", "<oov>", "<pad>"
WORD_BEGIN, WORD_END = "<bow>", "<eow>"


def as_bytes(rows: Sequence[str]) -> np.ndarray:
    """Tokens, none of which holds a line end, as UTF-8 bytes, one a line: uint8."""
    return np.frombuffer("\n".join(rows).encode("utf-8"), np.uint8)


def from_bytes(values: np.ndarray) -> list[str]:
    """The tokens that `as_bytes` was given."""
    return values.astype(np.uint8).tobytes().decode("utf-8").split("\n")


class DictionaryIds:
    """The ids of words.

    Args:
        characters: the dictionary of characters by rows, padding last; "" is a row without one.
        words: that of words; None if the model has none.
        max_word_length: characters of a word, the two marks included; longer words are cut.
        source: where the dictionaries are from, for messages.

    Raises:
        InputError: a special token is missing.
    """

    def __init__(
        self,
        characters: Sequence[str],
        words: Sequence[str] | None,
        max_word_length: int,
        source: str,
    ) -> None:
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
        """The ids of words.

        `<S>` and `</S>` are the dictionary's begin and end. Words and characters that a
        dictionary does not have are its unknown ones.

        Returns:
            int32 (len(words), 1 + max_word_length): the row of the word, -1 without a dictionary
            of words; then those of its characters.
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
