"""Tokenised sentences as the id arrays of a pretrained model.

Ids are 1-based (`network_ids`); 0 is padding.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from bilm.core.errors import SENTENCES, require
from bilm.data.encoding import WORD_LENGTH, DistinctWords, encode_words, framed, network_ids
from bilm.data.sentences import as_tokens
from bilm.data.vocabulary import Vocabulary
from bilm.files.reading import PathLike

Sentences = Sequence[Sequence[str]]


class Batcher:
    """Sentences as character ids, for a model with character input.

    Args:
        lm_vocab_file: the model's vocabulary file; it is only checked, and may be None.
        max_token_length: `max_characters_per_token` of the model's options.

    Errors as for `Vocabulary`.
    """

    def __init__(self, lm_vocab_file: PathLike | None, max_token_length: int) -> None:
        require(WORD_LENGTH, max_token_length=max_token_length)
        self._max_token_length = max_token_length
        if lm_vocab_file is not None:
            Vocabulary(lm_vocab_file)

    def batch_sentences(self, sentences: Sentences) -> np.ndarray:
        """Character ids of `<S>`, the tokens and `</S>` of each sentence.

        Args:
            sentences: lists of tokens; a list may be empty.

        Returns:
            (sentences, longest + 2, max_token_length) int32: character ids + 1, 1..261 (261 is
            padding within a token); 0 past a sentence's end.

        Raises:
            InputError: a sentence is not a list of tokens, or a token is not text.
        """
        words, rows = index_words(sentences)
        table = np.zeros((1 + len(words), self._max_token_length), np.int32)
        table[1:] = network_ids(encode_words(words, self._max_token_length))
        return table[rows]


class TokenBatcher:
    """Sentences as word ids, for a model with word input or with a token cache.

    Args:
        lm_vocab_file: the vocabulary file of the table of vectors; errors as for `Vocabulary`.
    """

    def __init__(self, lm_vocab_file: PathLike) -> None:
        self._lm_vocab = Vocabulary(lm_vocab_file)

    def batch_sentences(self, sentences: Sentences) -> np.ndarray:
        """Word ids + 1 of `<S>`, the tokens and `</S>` of each sentence: (sentences, longest + 2)
        int32; 0 past a sentence's end.

        Raises:
            InputError: as for `Batcher.batch_sentences`; or a word is outside the vocabulary, which
                lacks `<UNK>`.
        """
        words, rows = index_words(sentences)
        table = np.zeros(1 + len(words), np.int32)
        table[1:] = network_ids(self._lm_vocab.word_ids(words))
        return table[rows]


def index_words(sentences: Sentences) -> tuple[list[str], np.ndarray]:
    """The distinct words of sentences, and the index of the word at each position.

    Returns:
        words: `<S>`, `</S>`, then the others in the order of their first occurrence.
        rows: (sentences, longest + 2) int32, 1 + the number in `words` of `<S>`, each token and
            `</S>`; 0 past a sentence's end.
    """
    require(SENTENCES, sentences=sentences)
    token_lists = [as_tokens(s, f"sentence {n}", split=None) for n, s in enumerate(sentences)]
    distinct = DistinctWords()
    tokens = itertools.chain.from_iterable(token_lists)
    numbers = np.fromiter(map(distinct.__getitem__, tokens), np.int32)
    lengths = np.fromiter(map(len, token_lists), np.int32, len(token_lists))
    width = int(lengths.max(initial=0)) + 2
    return list(distinct), framed(1 + numbers, lengths, width, begin=1, end=2, padding=0)
