"""A corpus on disk, the order of its shards, the position in it, and sentences in memory."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import math
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, differences, integer, require, shown
from bilm.data.encoding import BOS, EOS, PAD_CHAR, DistinctWords, encode_words
from bilm.data.vocabulary import Vocabulary
from bilm.files.reading import PathLike, find_files, read_lines, require_file

logger = logging.getLogger(__name__)

SentenceIds = tuple[np.ndarray, "np.ndarray | None"]
"""A sentence in reading order, with `<S>` and `</S>`: the ids of its words, (n,), and of their
characters, (n, max_word_length); None without characters."""


@dataclass(eq=False)
class Corpus:
    """Text files with one sentence per line, words separated by white space.

    Shards are read one after the other, and shard numbers continue over all epochs: with three
    files, shard 4 is the second shard of the second epoch. The order depends on seed, epoch and
    shard only, so that any shard can be read again by its number.

    Arguments as for `LMDataset`, whose `test` is called `one_pass` here.
    """

    filepattern: PathLike
    vocab: Vocabulary
    shuffle: bool
    one_pass: bool
    seed: int
    worker: tuple[int, int]

    def __post_init__(self) -> None:
        require(integer(0), seed=self.seed)
        is_pair = isinstance(self.worker, tuple | list) and len(self.worker) == 2
        is_pair = is_pair and all(isinstance(number, int) for number in self.worker)
        index, count = self.worker if is_pair else (-1, 0)
        if not 0 <= index < count:
            raise InputError(
                f"worker must be (index, count) with 0 <= index < count, got {shown(self.worker)}."
            )
        self.files = find_files(self.filepattern)
        self._sizes = {path: os.path.getsize(path) for path in self.files}
        if not any(True for path in self.files for _ in self.sentences(path)):
            share = f" for worker {index} of {count}" if count > 1 else ""
            raise InputError(f"{self.filepattern}: no sentence in these files{share}.")

    @functools.cached_property
    def fingerprint(self) -> int:
        """48-bit hash of shard names and sizes, used to detect a changed corpus."""
        shards = [f"{os.path.basename(path)}\0{size}\n" for path, size in self._sizes.items()]
        digest = hashlib.blake2b("".join(shards).encode("utf-8", "surrogateescape"), digest_size=6)
        return int.from_bytes(digest.digest(), "big")

    @functools.cached_property
    def n_predictions(self) -> int:
        """Words and sentence ends of all shards and all workers, counted in one scan."""
        lengths = (len(line.split()) for path in self.files for line in read_lines(path))
        return sum(length + 1 for length in lengths if length)

    def word_counts(self, max_tokens: int | None = None) -> np.ndarray:
        """Occurrences of each vocabulary id in the text of all workers: int64 (vocab.size,). `</S>`
        counts the sentences. `max_tokens` limits the count to about that number of tokens, from
        the start of each file."""
        found: Counter[str] = Counter()
        most = math.inf if max_tokens is None else max_tokens / len(self.files)
        for path in self.files:
            n_tokens = 0
            for sentence in map(str.split, read_lines(path)):
                found.update(sentence)
                found[EOS] += bool(sentence)
                n_tokens += len(sentence)
                if n_tokens >= most:
                    break
        counts = np.zeros(self.vocab.size, np.int64)
        np.add.at(counts, self.vocab.word_ids(list(found)), list(found.values()))
        return counts

    def sentences(self, path: str) -> Iterator[list[str]]:
        """This worker's sentences of a shard, in the order of the file."""
        index, count = self.worker
        lines = (line for line in read_lines(path) if line and not line.isspace())
        return map(str.split, itertools.islice(lines, index, None, count))

    @property
    def max_word_length(self) -> int | None:
        """Characters per word; None if the vocabulary has no characters."""
        return getattr(self.vocab, "max_word_length", None)

    def has(self, shard: int) -> bool:
        """Whether a shard of this number exists."""
        return not self.one_pass or shard < len(self.files)

    def read(self, shard: int, before: Sequence[Any] = ()) -> IndexedText:
        """The sentences `before`, then the sentences of a shard in reading order."""
        epoch, ordinal = divmod(shard, len(self.files))
        text = self._load(self._file(shard), before)
        if not self.shuffle:
            return text
        return text.shuffled(self._generator(epoch, 1 + ordinal), first=len(before))

    def describe(self, shard: int, sentence: int) -> str:
        """A readable position of a sentence, given its shard and number in reading order."""
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

    def _load(self, path: str, before: Sequence[Any] = ()) -> IndexedText:
        text = IndexedText.from_sentences(itertools.chain(before, self.sentences(path)), self.vocab)
        size = os.path.getsize(require_file(path, "text file"))
        if size != self._sizes[path]:
            raise InputError(
                f"{path} must not change while it is read: it had {self._sizes[path]:,} bytes when "
                f"the corpus was opened, and has {size:,}."
            )
        if len(text) == len(before):
            logger.warning("%s: no sentence in this file", path)
        return text

    def _generator(self, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, epoch, purpose))


@dataclass(frozen=True)
class IndexedText:
    """Sentences as rows of a table of their distinct words.

    A sentence of n words is stored as `<S>` w1 .. wn `</S>`. Read forwards, its n + 1 inputs are
    all positions but the last, and the target of an input is the position after it; read backwards,
    the inputs are all positions but the first, and the target is the position before it.

    Attributes:
        words: (positions,) int32, rows of the table, the sentences one after the other.
        starts: (sentences,) int64, the index in `words` of each sentence's `<S>`.
        inputs: (sentences,) int32, inputs of each sentence in either direction: words + 1.
        distinct: the table's words; row 0 is `<S>`, row 1 `</S>`. None if only ids are known.
        vocabulary_ids: (distinct,) int32, the table's ids; `<UNK>` outside the vocabulary.
        characters: (distinct, max_word_length) uint16, character ids from `encode_words`; None if
            the vocabulary has no characters.
    """

    words: np.ndarray
    starts: np.ndarray
    inputs: np.ndarray
    distinct: list[str] | None
    vocabulary_ids: np.ndarray
    characters: np.ndarray | None

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], vocab: Vocabulary) -> IndexedText:
        """Read sentences, which are non-empty lists of words."""
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
        """Sentences given as ids of their words and, with `max_word_length`, of their
        characters."""
        table: dict[tuple[int, bytes], int] = {}  # by a word's id and its character ids
        words = array("i")
        for ids, characters in sentences:
            rows = [b""] * len(ids)
            if characters is not None:
                rows = list(map(np.ndarray.tobytes, characters.astype(np.uint16)))
            keys = zip(ids.tolist(), rows, strict=True)
            words.extend([table.setdefault(key, len(table)) for key in keys])
        table_characters = None
        if max_word_length is not None:
            values = np.frombuffer(b"".join(row for _, row in table), np.uint16)
            table_characters = values.reshape(len(table), max_word_length)
        inputs = np.array([len(ids) - 1 for ids, _ in sentences], np.int32)
        return cls(
            np.asarray(words, np.int32),
            *_starts_and_inputs(inputs),
            None,
            np.array([number for number, _ in table], np.int32),
            table_characters,
        )

    def __len__(self) -> int:
        return len(self.starts)

    def shuffled(self, generator: np.random.Generator, first: int = 0) -> IndexedText:
        """The same sentences, shuffled by `generator` from number `first` on."""
        order = np.arange(len(self))
        generator.shuffle(order[first:])
        return replace(self, starts=self.starts[order], inputs=self.inputs[order])

    def sentence_ids(self, number: int) -> SentenceIds:
        """The ids of `<S>`, a sentence's words and `</S>`."""
        rows = self.sentence(number)
        return self.vocabulary_ids[rows], None if self.characters is None else self.characters[rows]

    def content(self, number: int) -> list[str] | SentenceIds:
        """A sentence in its original form: words if they are known, otherwise ids."""
        if self.distinct is None:
            return self.sentence_ids(number)
        return [self.distinct[row] for row in self.sentence(number)[1:-1]]

    def sentence(self, number: int) -> np.ndarray:
        """The rows of the table of `<S>`, a sentence's words and `</S>`: (words + 2,) int32."""
        start = self.starts[number]
        return self.words[start : start + self.inputs[number] + 1]


def _starts_and_inputs(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(inputs + 1, dtype=np.int64) - (inputs + 1), inputs


class SentenceChunks:
    """The sentences of an iterator: a shard is the next sentences with about `n_inputs` inputs.
    Sentences with fewer than two ids have no input and are skipped."""

    def __init__(
        self, sentences: Iterable[SentenceIds], max_word_length: int | None, n_inputs: int
    ) -> None:
        self.max_word_length = max_word_length
        self._sentences = self._check(sentences)
        self._n_inputs = n_inputs
        self._taken: list[SentenceIds] = []

    def has(self, shard: int) -> bool:
        """Read the sentences of the next shard; False at the end of the iterator."""
        self._taken, left = [], self._n_inputs
        while left > 0 and (sentence := next(self._sentences, None)) is not None:
            self._taken.append(sentence)
            left -= len(sentence[0]) - 1
        return bool(self._taken)

    def read(self, shard: int, before: Sequence[Any] = ()) -> IndexedText:
        """The sentences `before`, then the sentences of the current shard."""
        return IndexedText.from_ids([*before, *self._taken], self.max_word_length)

    def read_in_order(self) -> Iterator[IndexedText]:
        """Every shard once."""
        return map(self.read, itertools.takewhile(self.has, itertools.count()))

    def _check(self, sentences: Iterable[SentenceIds]) -> Iterator[SentenceIds]:
        width = self.max_word_length
        for number, (word_ids, char_ids) in enumerate(sentences):
            ids, characters = np.asarray(word_ids), np.asarray(char_ids)
            if ids.ndim == 1 and len(ids) < 2:
                continue
            fit = ids.ndim == 1 and ids.dtype.kind in "iu"
            if width is not None:
                fit &= characters.shape == (len(ids), width) and characters.dtype.kind in "iu"
            if not fit:
                raise InputError(
                    f"sentence {number} must be integers, ids (n,) and character ids "
                    f"(n, {width}), got {ids.dtype} {ids.shape} and {characters.dtype} "
                    f"{characters.shape}."
                )
            if width is not None and not 0 <= characters.min() <= characters.max() <= PAD_CHAR:
                raise InputError(
                    f"sentence {number}: character ids must be from 0 to {PAD_CHAR}, got "
                    f"{characters.min()} to {characters.max()}."
                )
            yield ids, None if width is None else characters


class RowPosition(NamedTuple):
    """The sentence that a row is in the middle of: `offset` inputs have been read."""

    shard: int
    sentence: int
    offset: int


class IteratorState(NamedTuple):
    """The position in a corpus after a batch, which can be saved.

    Attributes:
        corpus: fingerprint of the shards' names and sizes.
        seed, shuffle_on_load, test: the data set's arguments.
        worker, n_workers: this worker's index, and the number of workers that share the corpus.
        batch_size, num_steps: rows of a batch, and inputs of a row.
        shard: number of the current shard, counted over all epochs.
        sentence: number of the next sentence in that shard's order.
        rows: for each row the sentence that it continues, maybe of an earlier shard; None: a new
            sentence.
    """

    corpus: int
    seed: int
    shuffle_on_load: bool
    test: bool
    worker: int
    n_workers: int
    batch_size: int
    num_steps: int
    shard: int
    sentence: int
    rows: tuple[RowPosition | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON-able lists and numbers."""
        return {**self._asdict(), "rows": [row and list(row) for row in self.rows]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IteratorState:
        """A state from the result of `to_dict`, of this or an earlier version.

        Raises:
            InputError: the dict is not valid.
        """
        try:
            if "load" in values:  # its name in earlier versions
                values = {"shard": values["load"], **values}
            rows = tuple(row and RowPosition(*row) for row in values["rows"])
            return cls(**{name: values[name] for name in cls._fields} | {"rows": rows})
        except (KeyError, TypeError) as error:
            raise InputError(
                f"iterator_state must be the result of to_dict, got {shown(values)}."
            ) from error

    def with_batches(self, batch_size: int, num_steps: int) -> IteratorState:
        """The state for another batch shape, which starts with the next sentence.

        The unread remainder of each row's current sentence is skipped.
        """
        return self._replace(batch_size=batch_size, num_steps=num_steps, rows=(None,) * batch_size)

    def with_worker(self, worker: int, n_workers: int) -> IteratorState:
        """The state for another number of workers, at the start of the current shard: it is read
        again, because the workers' shares of it differ."""
        rows = (None,) * self.batch_size
        return self._replace(worker=worker, n_workers=n_workers, sentence=0, rows=rows)

    def require_like(self, beginning: IteratorState) -> None:
        """Require the same settings, so that the same batches follow.

        Args:
            beginning: the initial state of the data set.

        Raises:
            InputError: names each setting that differs, with both values.
        """
        there, here = (dict(zip(self._fields[:-3], s, strict=False)) for s in (self, beginning))
        is_other = there.pop("corpus") != here.pop("corpus")
        changes = ["the corpus has other files or sizes"] if is_other else []
        changes += differences(there, here, "there", "now")
        if changes:
            raise InputError(f"cannot resume reading the corpus: {'; '.join(changes)}.")
