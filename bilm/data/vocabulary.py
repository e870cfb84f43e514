"""The vocabulary: the words with an id, and the ids of tokenised sentences.

A vocabulary file has one token per line; a token's id is its 0-based line number. Ids are rows of a
model's softmax and token caches, so they must never shift.
"""

import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bilm.core.errors import SENTENCES, WORDS, InputError, integer, iterable, require, shown
from bilm.data.encoding import (
    BOS,
    BOS_CHAR,
    BOW_CHAR,
    EOS,
    EOS_CHAR,
    EOW_CHAR,
    PAD_CHAR,
    UNK,
    WORD_LENGTH,
    DistinctWords,
    encode_words,
    framed,
    network_ids,
)
from bilm.data.sentences import as_tokens
from bilm.files.reading import VOCABULARY_FILE, PathLike, read_lines

# A line in some published vocabularies. It is not a token and has no id.
NOT_A_TOKEN = "!!!MAXTERMID"


class Vocabulary:
    """The words of a vocabulary file and their ids.

    Args:
        filename: one token per line, UTF-8, may be compressed. White space around a token is
            ignored. Every line has an id, but a blank line has no word, and a repeated token has
            the id of its last line (see `has_word`). `<S>` and `</S>` are required, on any line;
            `<UNK>` for training and for words outside the vocabulary.
        validate_file: require `<UNK>`, too.
        words: the lines, instead of a file; `filename` is then their origin, for messages.

    Attributes:
        words: the lines by their ids.
        source: the file or other origin of the words, for messages.

    Raises:
        FileNotFoundError: the file does not exist.
        InputError: it is empty, not UTF-8, lacks `<S>` or `</S>`, or fails validation.
    """

    def __init__(
        self, filename: PathLike, validate_file: bool = False, *, words: Iterable[str] | None = None
    ) -> None:
        if words is None:
            words = [word for word in map(str.strip, read_lines(filename)) if word != NOT_A_TOKEN]
        self.words = list(words)
        self.source = filename
        # If a token is repeated, its last id wins, as in the original.
        self._word_to_id = {word: number for number, word in enumerate(self.words) if word}
        if not self.words:
            raise InputError(f"{filename}: the vocabulary is empty.")
        special = (BOS, EOS, UNK) if validate_file else (BOS, EOS)
        missing = [word for word in special if word not in self._word_to_id]
        if missing:
            raise InputError(
                f"{filename}: the vocabulary lacks {', '.join(missing)}; "
                "each must be on a line of its own."
            )

    @property
    def _id_to_word(self) -> list[str]:
        return self.words  # the original's name, for programs that use it

    @functools.cached_property
    def has_word(self) -> np.ndarray:
        """Whether each id has a word: bool (size,). False for blank lines, and for tokens that are
        repeated on a later line."""
        has_word = np.zeros(self.size, np.bool_)
        has_word[list(self._word_to_id.values())] = True
        return has_word

    @property
    def bos(self) -> int:
        """Id of `<S>`, the start of a sentence."""
        return self._word_to_id[BOS]

    @property
    def eos(self) -> int:
        """Id of `</S>`, the end of a sentence."""
        return self._word_to_id[EOS]

    @property
    def unk(self) -> int:
        """Id of `<UNK>`, which stands for words without an id; InputError if it is missing."""
        if UNK not in self._word_to_id:
            raise InputError(
                f"{self.source}: the vocabulary lacks {UNK}, which must be on a line of its "
                "own: it is the target of words that are not in the vocabulary."
            )
        return self._word_to_id[UNK]

    @property
    def size(self) -> int:
        """Number of lines, including the special tokens."""
        return len(self.words)

    def word_to_id(self, word: str) -> int:
        """The id of a word, or of `<UNK>`; errors as for `word_ids`."""
        return int(self.word_ids([word])[0])

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """The ids of words, `<UNK>` for words outside the vocabulary: (len(words),) int32. Without
        `<UNK>`, such words raise an InputError."""
        ids = self.known_ids(words)
        outside = ids < 0
        if outside.any():
            if UNK not in self._word_to_id:
                word = shown(words[int(outside.argmax())])
                raise InputError(
                    f"{word} is not in the vocabulary {self.source}, which lacks {UNK} for such "
                    "words."
                )
            ids[outside] = self.unk
        return ids

    def known_ids(self, words: Sequence[str]) -> np.ndarray:
        """The ids of words, -1 for those outside the vocabulary: (len(words),) int32."""
        require(WORDS, words=words)
        ids = (self._word_to_id.get(word, -1) for word in words)
        return np.fromiter(ids, np.int32, len(words))

    def id_to_word(self, cur_id: int) -> str:
        """The word of an id, 0 to size - 1; other ids raise an InputError."""
        require(integer(0, self.size - 1), cur_id=cur_id)
        return self.words[cur_id]

    def decode(self, cur_ids: Iterable[int]) -> str:
        """The words of ids, joined by single spaces; errors as for `id_to_word`."""
        require(iterable("ids of words"), cur_ids=cur_ids)
        return " ".join(self.id_to_word(cur_id) for cur_id in cur_ids)

    def encode(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """The ids of `<S>`, a sentence's words and `</S>`.

        Args:
            sentence: text, to be split on white space; with `split=False` a list of tokens.
            reverse: put `</S>` first and `<S>` last. The words keep their order: to read backwards,
                pass them reversed.

        Returns:
            (number of words + 2,) int32.

        Raises:
            InputError: as for `word_ids`; or `sentence` is a list, or with `split=False` text.
        """
        return self.word_ids(_with_boundaries(sentence, reverse, split))


class UnicodeCharsVocabulary(Vocabulary):
    """A vocabulary that also returns the character ids of words, inside or outside it.

    Args:
        filename, validate_file, words: as for `Vocabulary`.
        max_word_length: UTF-8 bytes per word, including two boundary characters, >= 3; longer words
            are cut.

    Errors as for `Vocabulary`.
    """

    bos_char, eos_char = BOS_CHAR, EOS_CHAR
    bow_char, eow_char, pad_char = BOW_CHAR, EOW_CHAR, PAD_CHAR

    def __init__(
        self,
        filename: PathLike,
        max_word_length: int,
        validate_file: bool = False,
        *,
        words: Iterable[str] | None = None,
    ) -> None:
        require(WORD_LENGTH, max_word_length=max_word_length)
        self.max_word_length = max_word_length
        super().__init__(filename, validate_file, words=words)

    @property
    def bos_chars(self) -> np.ndarray:
        """Character ids of `<S>`: (max_word_length,) int32."""
        return self.word_to_char_ids(BOS)

    @property
    def eos_chars(self) -> np.ndarray:
        """Character ids of `</S>`: (max_word_length,) int32."""
        return self.word_to_char_ids(EOS)

    @functools.cached_property
    def word_char_ids(self) -> np.ndarray:
        """Character ids of every word by its id: (size, max_word_length) int32."""
        return self._char_ids(self.words)

    def word_to_char_ids(self, word: str) -> np.ndarray:
        """Character ids of one word: (max_word_length,) int32, 0..260, 260 is padding."""
        return self._char_ids([word])[0]

    def encode_chars(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Like `encode`, but the character ids: (number of words + 2, max_word_length) int32,
        0..260, 260 is padding. They do not depend on the vocabulary's words."""
        return self._char_ids(_with_boundaries(sentence, reverse, split))

    def _char_ids(self, words: Sequence[str]) -> np.ndarray:
        return encode_words(words, self.max_word_length).astype(np.int32)


def load_vocab(vocab_file: PathLike, max_word_length: int | None = None) -> Vocabulary:
    """The vocabulary of a model: a `UnicodeCharsVocabulary` if `max_word_length` is given, else
    a `Vocabulary`. It must have `<S>`, `</S>` and `<UNK>`; other errors as for these classes."""
    return _vocabulary(vocab_file, max_word_length, validate_file=True)


def _vocabulary(source: PathLike, max_word_length: int | None, **settings: Any) -> Vocabulary:
    if max_word_length is None:
        return Vocabulary(source, **settings)
    return UnicodeCharsVocabulary(source, max_word_length, **settings)


def vocabulary_of(
    named: PathLike | None,
    stored: Sequence[str] | None,
    source: PathLike,
    beside: PathLike | None,
    max_word_length: int | None = None,
) -> Vocabulary | None:
    """The vocabulary of a model: the file `named` by the user, or else the words `stored` in the
    weights file `source`, or else the file `beside` it, or None.

    Raises:
        InputError: the user's vocabulary has other words than the model's.
    """
    stored_vocabulary = None
    if stored is not None:
        origin = f"the vocabulary in {source}"
        stored_vocabulary = _vocabulary(origin, max_word_length, words=stored)
    elif beside is not None:
        stored_vocabulary = _vocabulary(beside, max_word_length)
    if named is None:
        return stored_vocabulary
    user_vocabulary = _vocabulary(named, max_word_length)
    if stored_vocabulary is not None:
        require_same_words(user_vocabulary, stored_vocabulary)
    return user_vocabulary


def run_vocabulary(
    tf_save_dir: PathLike, vocab_file: PathLike | None, max_word_length: int | None = None
) -> Vocabulary:
    """`vocab_file`, or the vocabulary in a training folder; if both exist they must be the same."""
    path = os.path.join(tf_save_dir, VOCABULARY_FILE)
    default = path if os.path.isfile(path) else None
    vocabulary = vocabulary_of(vocab_file, None, tf_save_dir, default, max_word_length)
    if vocabulary is None:
        raise InputError(
            f"{os.fspath(tf_save_dir)} has no {VOCABULARY_FILE}: name the vocabulary by vocab_file."
        )
    return vocabulary


def require_same_words(vocabulary: Vocabulary, expected: Vocabulary) -> None:
    """Require that two vocabularies have the same ids."""
    if vocabulary.size != expected.size:
        raise InputError(
            f"{vocabulary.source} must have the {expected.size} words of {expected.source}, got "
            f"{vocabulary.size}."
        )
    pairs = zip(vocabulary.words, expected.words, strict=True)
    for number, (word, other) in enumerate(pairs):
        if word != other:
            raise InputError(
                f"{vocabulary.source} must have the words of {expected.source}, but word {number} "
                f"is {shown(word)} instead of {shown(other)}."
            )


def _with_boundaries(sentence: str | Sequence[str], reverse: bool, split: bool) -> list[str]:
    if isinstance(sentence, str) != split:
        rule = "text" if split else "a list of tokens (split=False)"
        raise InputError(f"sentence must be {rule}, got {shown(sentence)}.")
    tokens = sentence.split() if isinstance(sentence, str) else sentence
    require(WORDS, sentence=tokens)
    return [EOS, *tokens, BOS] if reverse else [BOS, *tokens, EOS]


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
