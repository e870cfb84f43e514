"""A corpus on disk, the order of its shards, the position in it, and sentences in memory."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, Rule, differences, integer, plain, require, shown
from bilm.data.encoding import BOS, EOS, PAD_CHAR, DistinctWords, encode_words
from bilm.data.sentences import N_SENTENCES, warn_if_untokenized
from bilm.data.vocabulary import Vocabulary
from bilm.files.reading import PathLike, find_files, new_digest, read_text

SentenceIds = tuple[np.ndarray, "np.ndarray | None"]
"""A sentence in reading order, with `<S>` and `</S>`: the ids of its words, (n,), and of their
characters, (n, max_word_length); None without characters."""


def _is_share(worker: Any) -> bool:
    is_pair = isinstance(worker, tuple | list) and len(worker) == 2
    return is_pair and all(map(integer(0).holds, worker)) and worker[0] < worker[1]


_SHARE = Rule("(index, count) with 0 <= index < count", _is_share)


@dataclass(eq=False)
class Corpus:
    """Text files with one sentence per line, words separated by white space.

    Shards are read one after the other, and shard numbers continue over all epochs: with three
    files, shard 4 is the second shard of the second epoch. The order depends on seed, epoch and
    shard only, so any shard can be read again by its number.

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
        require(_SHARE, worker=self.worker)
        self.seed, self.worker = plain(self.seed), (plain(self.worker[0]), plain(self.worker[1]))
        self.files = find_files(self.filepattern)
        self._sizes = {path: os.path.getsize(path) for path in self.files}
        self._digests: dict[str, str] = {}  # see `text_digest`, of each file as last read
        sentences = itertools.chain.from_iterable(map(self.sentences, self.files))
        sample = list(itertools.islice(sentences, N_SENTENCES))
        if not sample:
            index, count = self.worker
            share = f" for worker {index} of {count}" if count > 1 else ""
            raise InputError(f"{self.filepattern}: no sentence in these files{share}.")
        warn_if_untokenized(sample, self.files[0])

    @functools.cached_property
    def fingerprint(self) -> int:
        """48-bit hash of shard names and sizes, used to detect a changed corpus."""
        shards = [f"{os.path.basename(path)}\0{size}\n" for path, size in self._sizes.items()]
        digest = hashlib.blake2b("".join(shards).encode("utf-8", "surrogateescape"), digest_size=6)
        return int.from_bytes(digest.digest(), "big")

    def first_sentences(self, max_tokens: int | None = None) -> Iterator[list[str]]:
        """The sentences of all workers; with `max_tokens` about that number of tokens, from the
        start of each file, in proportion to its size."""
        total = sum(self._sizes.values())
        for path, size in self._sizes.items():
            most = math.inf if max_tokens is None else max_tokens * size / total
            n_tokens = 0
            for sentence in map(str.split, read_text(path)):
                if sentence:
                    yield sentence
                n_tokens += len(sentence)
                if n_tokens >= most:
                    break

    def sentences(self, path: str, digest: hashlib.blake2b | None = None) -> Iterator[list[str]]:
        """This worker's sentences of a shard, in the order of the file; `digest` as for
        `read_text`."""
        index, count = self.worker
        text = read_text(path, digest=digest)
        lines = (line for line in text if line and not line.isspace())
        return map(str.split, itertools.islice(lines, index, None, count))

    @property
    def max_word_length(self) -> int | None:
        """Characters per word; None if the vocabulary has no characters."""
        return getattr(self.vocab, "max_word_length", None)

    def beginning(self, batch_size: int, num_steps: int) -> IteratorState:
        """The state before the first batch."""
        settings = (self.fingerprint, self.seed, self.shuffle, self.one_pass, *self.worker)
        return IteratorState(*settings, batch_size, num_steps, shard=0, sentence=0, rows=())

    def add_digest(self, shard: int, before: Sequence[str | None]) -> tuple[str | None, ...]:
        """Add the digest of the shard that has just been read to `before`, one digest per file
        (None: not read yet). Raises an InputError if the file's digest has changed."""
        path = self._file(shard)
        number, digest = self.files.index(path), self._digests[path]
        digests = [*before] or [None] * len(self.files)
        if digests[number] not in (None, digest):
            raise InputError(f"{path} must not change: its text is not the one read before.")
        digests[number] = digest
        return tuple(digests)

    def has(self, shard: int) -> bool:
        """Whether the shard exists."""
        return not self.one_pass or shard < len(self.files)

    def read(self, shard: int, before: Sequence[Any] = ()) -> IndexedText:
        """The sentences `before`, then the sentences of a shard in reading order."""
        text, n = self._load(self._file(shard), before), len(before)
        if not self.shuffle:
            return text
        order = np.r_[:n, n + self._order(shard, len(text) - n)]
        return replace(text, starts=text.starts[order], n_inputs=text.n_inputs[order])

    def read_in_order(self) -> Iterator[IndexedText]:
        """Every shard once, sorted by name, the sentences in the order of the file."""
        return map(self._load, self.files)

    def _file(self, shard: int) -> str:
        """The file of a shard; if shards are shuffled, each epoch has another order."""
        epoch, ordinal = divmod(shard, len(self.files))
        if self.shuffle and not self.one_pass:
            ordinal = self._generator(epoch, 0).permutation(len(self.files))[ordinal]
        return self.files[ordinal]

    def _order(self, shard: int, n_sentences: int) -> np.ndarray:
        """The numbers of a shard's sentences in reading order."""
        epoch, ordinal = divmod(shard, len(self.files))
        order = np.arange(n_sentences)
        if self.shuffle:
            self._generator(epoch, 1 + ordinal).shuffle(order)
        return order

    def _generator(self, epoch: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, epoch, purpose))

    def _load(self, path: str, before: Sequence[Any] = ()) -> IndexedText:
        digest = new_digest()
        sentences = self.sentences(path, digest)
        text = IndexedText.from_sentences(itertools.chain(before, sentences), self.vocab)
        self._digests[path] = digest.hexdigest()
        size = os.path.getsize(path)
        if size != self._sizes[path]:
            raise InputError(
                f"{path} must not change while it is read: it had {self._sizes[path]:,} bytes when "
                f"the corpus was opened, and has {size:,}."
            )
        return text


@dataclass(frozen=True)
class IndexedText:
    """Sentences as rows of a table of their distinct words.

    A sentence of n words is stored as `<S>` w1 .. wn `</S>`. Read forwards, its n + 1 inputs are
    all positions but the last, and the target of an input is the position after it; read backwards,
    the inputs are all positions but the first, and the target is the position before it.
    """

    words: np.ndarray  # (positions,) int32, rows of the table, one sentence after the other
    starts: np.ndarray  # (sentences,) int64, the index in `words` of each sentence's `<S>`
    n_inputs: np.ndarray  # (sentences,) int32, inputs in either direction: words + 1
    distinct: list[str] | None  # the table's words, `<S>` and `</S>` first; None: unknown
    vocabulary_ids: np.ndarray  # (distinct,) int32, the table's ids; `<UNK>` outside the vocabulary
    characters: np.ndarray | None  # (distinct, max_word_length) uint16, as from `encode_words`

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], vocab: Vocabulary) -> IndexedText:
        """Create from non-empty lists of words."""
        table = DistinctWords()
        number, bos, eos = table.__getitem__, table[BOS], table[EOS]
        words, inputs = array("i"), array("i")
        for sentence in sentences:
            words.fromlist([bos, *map(number, sentence), eos])
            inputs.append(len(sentence) + 1)
        distinct = list(table)
        max_word_length = getattr(vocab, "max_word_length", None)
        characters = encode_words(distinct, max_word_length) if max_word_length else None
        ids = vocab.word_ids(distinct)
        return cls(*_layout(words, inputs), distinct, ids, characters)

    @classmethod
    def from_ids(cls, sentences: Sequence[SentenceIds], max_word_length: int | None) -> IndexedText:
        """Create from the ids of words and, with `max_word_length`, of characters."""
        table: dict[bytes, int] = {}  # by the ids of a word and of its characters
        words, inputs = array("i"), array("i")
        for ids, characters in sentences:
            rows = np.column_stack([ids] if characters is None else [ids, characters])
            keys = map(np.ndarray.tobytes, rows.astype(np.int32))
            words.extend([table.setdefault(key, len(table)) for key in keys])
            inputs.append(len(ids) - 1)
        values = np.frombuffer(b"".join(table), np.int32)
        values = values.reshape(len(table), 1 + (max_word_length or 0))
        characters = values[:, 1:].astype(np.uint16) if max_word_length else None
        return cls(*_layout(words, inputs), None, values[:, 0], characters)

    def __len__(self) -> int:
        return len(self.starts)

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
        return self.words[start : start + self.n_inputs[number] + 1]


def _layout(
    words: Sequence[int], inputs: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The attributes `words`, `starts` and `n_inputs`."""
    n_inputs = np.asarray(inputs, np.int32)
    starts = np.cumsum(n_inputs + 1, dtype=np.int64) - (n_inputs + 1)
    return np.asarray(words, np.int32), starts, n_inputs


class IteratorCorpus:
    """The sentences of an iterator: a shard is the next sentences with about `n_inputs` inputs.
    Sentences with fewer than two ids have no input and are skipped."""

    def __init__(
        self, sentences: Iterable[SentenceIds], max_word_length: int | None, n_inputs: int
    ) -> None:
        self.max_word_length = max_word_length
        self._sentences = self._check(sentences)
        self._n_inputs = n_inputs
        self._current: list[SentenceIds] = []

    def has(self, shard: int) -> bool:
        """Read the sentences of the next shard; False at the end of the iterator."""
        self._current, n_remaining = [], self._n_inputs
        while n_remaining > 0 and (sentence := next(self._sentences, None)) is not None:
            self._current.append(sentence)
            n_remaining -= len(sentence[0]) - 1
        return bool(self._current)

    def read(self, shard: int, before: Sequence[Any] = ()) -> IndexedText:
        """The sentences `before`, then the sentences of the current shard."""
        return IndexedText.from_ids([*before, *self._current], self.max_word_length)

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
            fit = fit and 0 <= ids.min() <= ids.max() < 2**31
            if width is not None:
                fit &= characters.shape == (len(ids), width) and characters.dtype.kind in "iu"
                fit = fit and 0 <= characters.min() <= characters.max() <= PAD_CHAR
            if not fit:
                raise InputError(
                    f"sentence {number} must be integers, ids (n,) from 0 to 2^31 - 1 and "
                    f"character ids (n, {width}) from 0 to {PAD_CHAR}, got {ids.dtype} {ids.shape} "
                    f"and {characters.dtype} {characters.shape}."
                )
            yield ids, None if width is None else characters


class RowPosition(NamedTuple):
    """Where a row stopped: in a sentence, after `offset` inputs."""

    shard: int
    sentence: int
    offset: int


class IteratorState(NamedTuple):
    """The position in a corpus after a batch, which can be saved."""

    corpus: int  # fingerprint of the shards' names and sizes
    seed: int
    shuffle_on_load: bool
    test: bool
    worker: int  # this worker's index
    n_workers: int
    batch_size: int
    num_steps: int
    shard: int  # the current shard, counted over all epochs
    sentence: int  # the next sentence in that shard's order
    rows: tuple[RowPosition | None, ...]  # the sentence that each row continues; None: a new one
    digests: tuple[str | None, ...] = ()  # of each file's text, None before it is read

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON-able lists and numbers."""
        rows = [row and list(row) for row in self.rows]
        return {**self._asdict(), "rows": rows, "digests": list(self.digests)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IteratorState:
        """A state from the result of `to_dict`; other values raise an InputError."""
        try:
            rows = tuple(row and RowPosition(*row) for row in values["rows"])
            digests = tuple(values.get("digests", ()))
            changes = {"rows": rows, "digests": digests}
            return cls(**{name: {**values, **changes}[name] for name in cls._fields})
        except (KeyError, TypeError) as error:
            raise InputError(
                f"iterator_state must be the result of to_dict, got {shown(values)}."
            ) from error

    def with_batches(self, batch_size: int, num_steps: int) -> IteratorState:
        """The state for another batch shape, which starts with the next sentence: the rest of
        each row's current sentence is skipped."""
        return self._replace(batch_size=batch_size, num_steps=num_steps, rows=(None,) * batch_size)

    def with_worker(self, worker: int, n_workers: int) -> IteratorState:
        """The state for another number of workers. The current shard is read again, because the
        workers' shares of it differ."""
        rows = (None,) * self.batch_size
        return self._replace(worker=worker, n_workers=n_workers, sentence=0, rows=rows, digests=())

    def require_like(self, beginning: IteratorState) -> None:
        """Raise an InputError if the corpus or a setting differs from that of `beginning`, a data
        set's initial state: its batches would not continue these."""
        saved, current = (dict(zip(self._fields[:-4], s, strict=False)) for s in (self, beginning))
        is_other = saved.pop("corpus") != current.pop("corpus")
        changes = ["the corpus has other files or sizes"] if is_other else []
        changes += differences(saved, current, "there", "now")
        if changes:
            hint = " `bilm train --init_from` trains on another text." if is_other else ""
            raise InputError(f"cannot resume reading the corpus: {'; '.join(changes)}.{hint}")
