"""Words to character ids."""

from __future__ import annotations

import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260


def word_characters(word: str, width: int) -> np.ndarray:
    """Training ids (width,) of a word: begin of word, UTF-8 bytes, end of word, padding."""
    special = {"<S>": [BEGIN_SENTENCE], "</S>": [END_SENTENCE]}
    content = special.get(word) or list(word.encode("utf-8"))[: width - 2]
    ids = [BEGIN_WORD, *content, END_WORD]
    return np.array(ids + [PADDING] * (width - len(ids)))


def character_ids(sentences: list[list[str]], width: int) -> np.ndarray:
    """Inference ids (sentences, longest + 2, width): training ids plus 1, and 0 for padding."""
    longest = max(len(sentence) for sentence in sentences) + 2
    ids = np.zeros((len(sentences), longest, width), np.int32)
    for row, sentence in enumerate(sentences):
        for place, word in enumerate(["<S>", *sentence, "</S>"]):
            ids[row, place] = word_characters(word, width) + 1
    return ids
