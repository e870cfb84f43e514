"""Sentences in memory: one integer a token, and each distinct word's characters once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bilm.data.encoding import BOS, EOS, DistinctWords, encode_words
from bilm.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Shard:
    """Sentences as numbers of a table of their distinct words.

    A sentence of n words is stored as `<S>` w1 .. wn `</S>`. Read forwards, its n + 1 inputs are
    the places from its start on, and the target of an input is the place after it; read
    backwards, the inputs are the places from its end back, and the target is the place before.

    Attributes:
        words: (places,) int32, the sentences one after the other; each entry is a row of the table.
        starts: (sentences,) int64, where each sentence's `<S>` stands in `words`.
        inputs: (sentences,) int32, words of each sentence + 1: its inputs in either direction.
        distinct: the table's words; row 0 is `<S>`, row 1 `</S>`.
        vocabulary_ids: (distinct,) int32, the table's ids; that of `<UNK>` outside the vocabulary.
        characters: (distinct, max_word_length) uint16, character ids as `encode_words` gives them;
            None if the vocabulary has no characters.
    """

    words: np.ndarray
    starts: np.ndarray
    inputs: np.ndarray
    distinct: list[str]
    vocabulary_ids: np.ndarray
    characters: np.ndarray | None

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], vocab: Vocabulary) -> Shard:
        """Read sentences (lists of words, none of them empty) in one go."""
        table = DistinctWords()
        number, bos, eos = table.__getitem__, table[BOS], table[EOS]
        words, inputs = array("i"), array("i")
        for sentence in sentences:
            words.fromlist([bos, *map(number, sentence), eos])
            inputs.append(len(sentence) + 1)
        counts = np.asarray(inputs, np.int32)
        distinct = list(table)
        max_word_length = getattr(vocab, "max_word_length", None)
        return cls(
            words=np.asarray(words, np.int32),
            starts=np.cumsum(counts + 1, dtype=np.int64) - (counts + 1),
            inputs=counts,
            distinct=distinct,
            vocabulary_ids=vocab.word_ids(distinct),
            characters=encode_words(distinct, max_word_length) if max_word_length else None,
        )

    def __len__(self) -> int:
        return len(self.starts)

    def shuffled(self, generator: np.random.Generator, first: int = 0) -> Shard:
        """The same sentences, those from number `first` on in an order drawn from `generator`."""
        order = np.arange(len(self))
        generator.shuffle(order[first:])
        return replace(self, starts=self.starts[order], inputs=self.inputs[order])

    def sentence(self, number: int) -> np.ndarray:
        """The rows of the table of `<S>`, a sentence's words and `</S>`: (words + 2,) int32."""
        start = self.starts[number]
        return self.words[start : start + self.inputs[number] + 1]

    def sentence_words(self, number: int) -> list[str]:
        """The words of a sentence, without `<S>` and `</S>`."""
        return [self.distinct[row] for row in self.sentence(number)[1:-1]]
