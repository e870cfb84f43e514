"""A corpus on disk, the order in which its shards are read, and sentences in memory."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bilm.data.encoding import BOS, EOS, DistinctWords, encode_words
from bilm.data.vocabulary import Vocabulary
from bilm.errors import InputError, require_at_least
from bilm.files import PathLike, find_files, read_lines, require_file

logger = logging.getLogger(__name__)

SentenceIds = tuple[np.ndarray, "np.ndarray | None"]
"""A sentence in the order of reading, `<S>` and `</S>` included: the ids of its words, (n,), and of
their characters, (n, max_word_length); None without characters."""


class Corpus:
    """Text files with a sentence a line, its words separated by white space.

    One shard is read after the other, and shard numbers count on from 0 over all epochs: of three
    files, shard 4 is the second one of the second epoch. The order depends on the seed, the epoch
    and the shard alone, so that any shard can be read again by its number.

    Args:
        filepattern: a glob; its files, sorted by name, are the shards. Plain, .gz or .xz. Empty
            lines are no sentences.
        vocab: gives the ids, and the characters if it has them.
        shuffle: shuffle the sentences within a shard and, unless `one_pass`, the shards anew in
            every epoch.
        one_pass: read each shard once, in order; otherwise without end.
        seed: of the shuffling; 0 or more.
        worker: (index, count): of every `count` sentences take that with this index.

    Raises:
        FileNotFoundError: nothing matches the pattern.
        InputError: no file holds a sentence for this worker; the seed or the worker is impossible.
    """

    def __init__(
        self,
        filepattern: PathLike,
        vocab: Vocabulary,
        *,
        shuffle: bool,
        one_pass: bool,
        seed: int,
        worker: tuple[int, int],
    ) -> None:
        require_at_least(0, seed=seed)
        if not 0 <= worker[0] < worker[1]:
            raise InputError(
                f"worker must be (index, count) with 0 <= index < count, not {worker}."
            )
        self.files = find_files(filepattern)
        self.vocab = vocab
        self.shuffle = shuffle
        self.one_pass = one_pass
        self.seed = seed
        self.worker = worker
        self._sizes = {path: os.path.getsize(path) for path in self.files}
        if not any(True for path in self.files for _ in self.sentences(path)):
            share = f" for worker {worker[0]} of {worker[1]}" if worker[1] > 1 else ""
            raise InputError(f"{filepattern}: no sentence in these files{share}.")

    @functools.cached_property
    def fingerprint(self) -> int:
        """48 bits of the shards' names and sizes, by which a changed corpus is noticed."""
        shards = [f"{os.path.basename(path)}\0{size}\n" for path, size in self._sizes.items()]
        digest = hashlib.blake2b("".join(shards).encode("utf-8", "surrogateescape"), digest_size=6)
        return int.from_bytes(digest.digest(), "big")

    @functools.cached_property
    def n_predictions(self) -> int:
        """Words and sentence ends of all shards and all workers: one scan, then kept."""
        lengths = (len(line.split()) for path in self.files for line in read_lines(path))
        return sum(length + 1 for length in lengths if length)

    def sentences(self, path: str) -> Iterator[list[str]]:
        """This worker's sentences of a shard, in the order of the file."""
        index, count = self.worker
        lines = (line for line in read_lines(path) if line and not line.isspace())
        return map(str.split, itertools.islice(lines, index, None, count))

    def has(self, shard: int) -> bool:
        """Whether there is a shard of this number."""
        return not self.one_pass or shard < len(self.files)

    def read(self, shard: int, before: Sequence[Sequence[str]] = ()) -> IndexedText:
        """The sentences `before`, then those of a shard in the order of reading.

        Raises:
            FileNotFoundError, InputError: the file has gone, has another size than before, or is
                not UTF-8 (file and line).
        """
        epoch, ordinal = divmod(shard, len(self.files))
        text = self._load(self._file(shard), before)
        if not self.shuffle:
            return text
        return text.shuffled(self._generator(epoch, 1 + ordinal), first=len(before))

    def describe(self, shard: int, sentence: int) -> str:
        """Where a sentence of a shard is, for people; the file is read to find it.

        Args:
            shard: its number.
            sentence: number in the order of reading.
        """
        epoch, ordinal = divmod(shard, len(self.files))
        path = self._file(shard)
        order = np.arange(sum(1 for _ in self.sentences(path)))
        if self.shuffle:
            self._generator(epoch, 1 + ordinal).shuffle(order)
        if sentence >= len(order):
            return f"the end of {path} (pass {epoch + 1})"
        return f"sentence {order[sentence] + 1:,} of {path} (pass {epoch + 1})"

    def read_in_order(self) -> Iterator[IndexedText]:
        """Every shard once, sorted by name, the sentences in the order of the file."""
        return map(self._load, self.files)

    def _file(self, shard: int) -> str:
        """The file of a shard: epochs have their own orders if shards are shuffled."""
        epoch, ordinal = divmod(shard, len(self.files))
        if self.shuffle and not self.one_pass:
            ordinal = self._generator(epoch, 0).permutation(len(self.files))[ordinal]
        return self.files[ordinal]

    def _load(self, path: str, before: Sequence[Sequence[str]] = ()) -> IndexedText:
        text = IndexedText.from_sentences(itertools.chain(before, self.sentences(path)), self.vocab)
        size = os.path.getsize(require_file(path, "text file"))
        if size != self._sizes[path]:
            raise InputError(
                f"{path}: the file has {size:,} bytes, and had {self._sizes[path]:,} when the "
                "corpus was opened; it must not change while it is read."
            )
        if len(text) == len(before):
            logger.warning("%s: no sentence in this file", path)
        return text

    def _generator(self, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, epoch, purpose))


@dataclass(frozen=True)
class IndexedText:
    """Sentences as numbers of a table of their distinct words.

    A sentence of n words is stored as `<S>` w1 .. wn `</S>`. Read forwards, its n + 1 inputs are
    the positions from its start on, and the target of an input is the position after it; read
    backwards, the inputs are the positions from its end back, and the target is the one before.

    Attributes:
        words: (positions,) int32, the sentences one after the other; entries are rows of the table.
        starts: (sentences,) int64, where each sentence's `<S>` stands in `words`.
        inputs: (sentences,) int32, words of each sentence + 1: its inputs in either direction.
        distinct: the table's words; row 0 is `<S>`, row 1 `</S>`. None if only ids are known.
        vocabulary_ids: (distinct,) int32, the table's ids; that of `<UNK>` outside the vocabulary.
        characters: (distinct, max_word_length) uint16, character ids as `encode_words` gives them;
            None if the vocabulary has no characters.
    """

    words: np.ndarray
    starts: np.ndarray
    inputs: np.ndarray
    distinct: list[str] | None
    vocabulary_ids: np.ndarray
    characters: np.ndarray | None

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], vocab: Vocabulary) -> IndexedText:
        """Read sentences (lists of words, none of them empty) in one go."""
        table = DistinctWords()
        number, bos, eos = table.__getitem__, table[BOS], table[EOS]
        words, inputs = array("i"), array("i")
        for sentence in sentences:
            words.fromlist([bos, *map(number, sentence), eos])
            inputs.append(len(sentence) + 1)
        distinct = list(table)
        max_word_length = getattr(vocab, "max_word_length", None)
        characters = encode_words(distinct, max_word_length) if max_word_length else None
        return cls(
            np.asarray(words, np.int32),
            *_starts_and_inputs(np.asarray(inputs, np.int32)),
            distinct,
            vocab.word_ids(distinct),
            characters,
        )

    @classmethod
    def from_ids(cls, sentences: Sequence[SentenceIds], max_word_length: int | None) -> IndexedText:
        """Sentences of which only the ids are known: of their words and, with
        `max_word_length`, of their characters."""
        table: dict[Any, int] = {}  # a word's id and the bytes of its characters -> its row
        words = array("i")
        for ids, characters in sentences:
            keys: Iterable[Any] = ids.tolist()
            if max_word_length is not None and characters is not None:
                keys = zip(keys, map(np.ndarray.tobytes, characters.astype(np.uint16)))  # noqa: B905
            words.extend([table.setdefault(key, len(table)) for key in keys])
        vocabulary_ids, characters = list(table), None
        if max_word_length is not None:
            vocabulary_ids = [key[0] for key in table]
            rows = np.frombuffer(b"".join(key[1] for key in table), np.uint16)
            characters = rows.reshape(len(table), max_word_length)
        lengths = np.array([len(ids) for ids, _ in sentences], np.int32)
        return cls(
            np.asarray(words, np.int32),
            *_starts_and_inputs(lengths - 1),
            None,
            np.array(vocabulary_ids, np.int32),
            characters,
        )

    def __len__(self) -> int:
        return len(self.starts)

    def shuffled(self, generator: np.random.Generator, first: int = 0) -> IndexedText:
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
        if self.distinct is None:
            raise TypeError("only the ids of these words are known")
        return [self.distinct[row] for row in self.sentence(number)[1:-1]]


def _starts_and_inputs(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(inputs + 1, dtype=np.int64) - (inputs + 1), inputs
