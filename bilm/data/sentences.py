"""The sentences that fill the rows of batches: of a corpus, or of any iterable.

`_get_batch` takes sentences from a source. That of a corpus can say where it is (`IteratorState`),
and resume from there; an iterable cannot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bilm.data.corpus import Corpus, IndexedText, SentenceIds
from bilm.data.encoding import PAD_CHAR
from bilm.errors import InputError


class Settings(NamedTuple):
    """What a state presumes: with any of it changed, other batches would follow.

    Attributes:
        corpus: fingerprint of the shards' names and sizes.
        seed, shuffle_on_load, test: the data set's arguments.
        worker, n_workers: this worker's index, and how many share the corpus.
        batch_size, num_steps: rows of a batch, and inputs of a row.
    """

    corpus: int
    seed: int
    shuffle_on_load: bool
    test: bool
    worker: int
    n_workers: int
    batch_size: int
    num_steps: int


class RowPosition(NamedTuple):
    """The sentence that a row is within: `offset` of its inputs have been given."""

    shard: int
    sentence: int
    offset: int


class IteratorState(NamedTuple):
    """How far a corpus has been read after a batch, as a value that can be saved.

    Attributes:
        settings: what the state presumes.
        shard: number of the shard being read, counted over all epochs.
        sentence: number, in that shard's order, of the sentence that is drawn next.
        rows: for each row of the batch the sentence that it continues, which may be of an earlier
            shard; None if it takes a new one.
    """

    settings: Settings
    shard: int
    sentence: int
    rows: tuple[RowPosition | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """The state in lists and numbers, fit for JSON."""
        return {
            **self.settings._asdict(),
            "shard": self.shard,
            "sentence": self.sentence,
            "rows": [row and list(row) for row in self.rows],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IteratorState:
        """A state from what `to_dict` gave, now or in an earlier version.

        Raises:
            InputError: it is not such a dict.
        """
        try:
            flags = ("shuffle_on_load", "test")
            settings = Settings(
                **{name: _value(values[name], name in flags) for name in Settings._fields}
            )
            rows = tuple(
                None if row is None else RowPosition(*map(_value, row)) for row in values["rows"]
            )
            if len(rows) != settings.batch_size:
                raise ValueError(f"{len(rows)} rows of {settings.batch_size}")
            shard = values["shard"] if "shard" in values else values["load"]
            return cls(settings, _value(shard), _value(values["sentence"]), rows)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not the state of an iteration over a corpus: {error!r}.") from error

    def with_batches(self, batch_size: int, num_steps: int) -> IteratorState:
        """For batches of another shape: they begin with the sentence that is drawn next.

        What is left of the rows' unfinished sentences is skipped.
        """
        settings = self.settings._replace(batch_size=batch_size, num_steps=num_steps)
        return self._replace(settings=settings, rows=(None,) * batch_size)

    def with_worker(self, worker: int, n_workers: int) -> IteratorState:
        """For one of another number of workers: at the beginning of the shard being read.

        Their shares of a shard are others, so that it is read anew.
        """
        settings = self.settings._replace(worker=worker, n_workers=n_workers)
        return IteratorState(settings, self.shard, 0, (None,) * settings.batch_size)

    def require(self, settings: Settings) -> None:
        """Refuse to resume under other settings.

        Raises:
            InputError: names each setting that differs, with both values.
        """
        changes = [
            "the corpus has other files or sizes"
            if name == "corpus"
            else f"{name} was {old} and is now {new}"
            for name, old, new in zip(Settings._fields, self.settings, settings, strict=True)
            if old != new
        ]
        if changes:
            raise InputError(f"cannot resume reading the corpus: {'; '.join(changes)}.")


def _value(value: Any, is_flag: bool = False) -> Any:
    """A value of a state, once it is known to be a whole number from 0, or true or false."""
    if type(value) is not (bool if is_flag else int) or value < 0:
        raise TypeError(f"{value!r} is not {'true or false' if is_flag else 'a number from 0'}")
    return value


class Held(NamedTuple):
    """A sentence that a row is within: `offset` of its inputs are given, `left` are not."""

    sentence: int
    offset: int
    left: int


class SentenceSource(ABC):
    """Gives `_get_batch` its sentences, by their numbers in `text`.

    Attributes:
        text: sentences in memory; first those that rows are still within, then unread ones.
        reverse: whether sentences of `text` are to be read from their end.
        max_word_length: characters a word; None without characters.
    """

    def __init__(
        self, text: IndexedText, max_word_length: int | None, *, reverse: bool = False
    ) -> None:
        self.text = text
        self.max_word_length = max_word_length
        self.reverse = reverse
        self._next = 0  # the sentence of `text` that is drawn next

    def directions(self, bidirectional: bool) -> tuple[bool, ...]:
        """For each stream of a batch whether it reads the sentences of `text` backwards."""
        return (self.reverse, not self.reverse) if bidirectional else (self.reverse,)

    def begin(self, batch_size: int, num_steps: int) -> list[Held | None]:
        """Prepare for batches of this shape; gives what their rows hold at first."""
        return [None] * batch_size

    def unread(self) -> Iterator[tuple[int, int]]:
        """(number, inputs) of each sentence of `text` that was not drawn yet."""
        return enumerate(self.text.inputs[self._next :].data, self._next)

    def draw(self, last: int) -> None:
        """The sentences up to this number are in a batch."""
        self._next = max(self._next, last + 1)

    def load_more(self, held: Sequence[Held | None]) -> list[Held | None] | None:
        """Bring new sentences into `text`, behind those that rows are within and the unread ones.

        Returns:
            What the rows hold, by the new numbers; None if there are no more sentences.
        """
        within = [row.sentence for row in held if row is not None]
        if not self._load([*within, *range(self._next, len(self.text))]):
            return None
        self._next = len(within)
        numbers = iter(range(len(within)))
        return [row and row._replace(sentence=next(numbers)) for row in held]

    def state(self, held: Sequence[Held | None]) -> IteratorState | None:
        """How far the sentences are read, given what the rows hold; None if it cannot be saved."""
        return None

    @abstractmethod
    def _load(self, kept: Sequence[int]) -> bool:
        """Replace `text` by its sentences `kept` and new ones; False if there are none."""


class SentenceStream(SentenceSource):
    """The sentences of an iterable, which can be read once.

    Args:
        sentences: see `SentenceIds`. One with fewer than two ids has no input and is skipped.
        max_word_length: characters a word; None leaves characters out.
        n_inputs: inputs to take from the iterable at a time.
    """

    def __init__(
        self,
        sentences: Iterable[SentenceIds],
        max_word_length: int | None,
        n_inputs: int,
    ) -> None:
        super().__init__(IndexedText.from_ids([], max_word_length), max_word_length)
        self._checked = self._check(sentences)
        self._n_inputs = n_inputs
        self._sentences: list[SentenceIds] = []

    def texts(self) -> Iterator[IndexedText]:
        """All sentences, some at a time."""
        while self._load(()):
            yield self.text

    def _load(self, kept: Sequence[int]) -> bool:
        sentences = [self._sentences[number] for number in kept]
        left = self._n_inputs
        while left > 0 and (sentence := next(self._checked, None)) is not None:
            sentences.append(sentence)
            left -= len(sentence[0]) - 1
        if len(sentences) == len(kept):
            return False
        self._sentences = sentences
        self.text = IndexedText.from_ids(sentences, self.max_word_length)
        return True

    def _check(self, sentences: Iterable[SentenceIds]) -> Iterator[SentenceIds]:
        for number, (word_ids, char_ids) in enumerate(sentences):
            ids, characters = np.asarray(word_ids), np.asarray(char_ids)
            if ids.ndim == 1 and len(ids) < 2:
                continue
            width = self.max_word_length
            fit = ids.ndim == 1 and ids.dtype.kind in "iu"
            if width is not None:
                fit &= characters.shape == (len(ids), width) and characters.dtype.kind in "iu"
            if not fit:
                raise InputError(
                    f"sentence {number}: integers are expected, ids (n,) and character ids "
                    f"(n, {width}), not {ids.dtype} {ids.shape} and {characters.dtype} "
                    f"{characters.shape}."
                )
            if width is not None and not 0 <= characters.min() <= characters.max() <= PAD_CHAR:
                raise InputError(
                    f"sentence {number}: character ids from 0 to {PAD_CHAR} are expected, not "
                    f"from {characters.min()} to {characters.max()}."
                )
            yield ids, None if width is None else characters


class _Carried(NamedTuple):
    """A sentence of an earlier shard that is not read to its end."""

    shard: int
    sentence: int
    words: list[str]


class CorpusReader(SentenceSource, Iterator[SentenceIds]):
    """The sentences of a corpus: one by one as ids, or for `_get_batch`.

    In memory are the sentences of one shard, preceded by those of earlier shards that rows are
    still within.

    Args:
        corpus: what to read.
        reverse: give sentences from `</S>` to `<S>`.
    """

    def __init__(self, corpus: Corpus, *, reverse: bool = False) -> None:
        text = IndexedText.from_sentences([], corpus.vocab)
        max_word_length = None if text.characters is None else text.characters.shape[1]
        super().__init__(text, max_word_length, reverse=reverse)
        self.corpus = corpus
        self._shard = -1  # number of the shard in `text`
        self._carried: Sequence[_Carried] = ()  # the first sentences of `text`, of earlier shards
        self._settings: Settings | None = None
        self._start: IteratorState | None = None

    def __next__(self) -> SentenceIds:
        """The next sentence: int32 (n,) and int32 (n, max_word_length)."""
        while self._next == len(self.text):
            if self.load_more(()) is None:
                raise StopIteration
        words = self.text.sentence(self._next)[:: -1 if self.reverse else 1]
        self._next += 1
        characters = self.text.characters
        return (
            self.text.vocabulary_ids[words],
            None if characters is None else characters[words].astype(np.int32),
        )

    def resume(self, state: IteratorState) -> None:
        """Begin batches with those that followed the batch of this state."""
        self._start = state

    def begin(self, batch_size: int, num_steps: int) -> list[Held | None]:
        """Prepare for batches of this shape; gives what their rows hold at first.

        Raises:
            InputError: the state to resume from is of other settings, or the corpus is shorter.
        """
        corpus = self.corpus
        self._settings = Settings(
            corpus=corpus.fingerprint,
            seed=corpus.seed,
            shuffle_on_load=corpus.shuffle,
            test=corpus.one_pass,
            worker=corpus.worker[0],
            n_workers=corpus.worker[1],
            batch_size=batch_size,
            num_steps=num_steps,
        )
        if self._start is None:
            return [None] * batch_size
        self._start.require(self._settings)
        try:
            return self._go_to(self._start)
        except IndexError:
            raise InputError(
                "cannot resume reading the corpus: it has fewer sentences or words there."
            ) from None

    def state(self, held: Sequence[Held | None]) -> IteratorState | None:
        """How far the corpus is read, given what the rows hold."""
        if self._settings is None:
            return None
        rows = tuple(row and RowPosition(*self._origin(row.sentence), row.offset) for row in held)
        return IteratorState(self._settings, *self._origin(self._next), rows)

    def _origin(self, number: int) -> tuple[int, int]:
        """Shard and number within it of a sentence of `text`."""
        if number < len(self._carried):
            return self._carried[number].shard, self._carried[number].sentence
        return self._shard, number - len(self._carried)

    def _load(self, kept: Sequence[int]) -> bool:
        if not self.corpus.has(self._shard + 1):
            return False
        carried = [
            _Carried(*self._origin(number), self.text.sentence_words(number)) for number in kept
        ]
        del self.text  # before the next one comes, so that one at a time is in memory
        self._read(self._shard + 1, carried)
        return True

    def _read(self, shard: int, carried: Sequence[_Carried]) -> None:
        self._shard = shard
        self._carried = carried
        self.text = self.corpus.read(shard, [sentence.words for sentence in carried])

    def _go_to(self, state: IteratorState) -> list[Held | None]:
        """Read what a state needs: the earlier shards that rows are within, then its own."""
        if not self.corpus.has(state.shard):
            raise IndexError(state.shard)
        carried: list[_Carried] = []
        for shard in sorted({row.shard for row in state.rows if row} - {state.shard}):
            text = self.corpus.read(shard)
            carried += [
                _Carried(shard, row.sentence, text.sentence_words(row.sentence))
                for row in state.rows
                if row and row.shard == shard
            ]
        self._read(state.shard, carried)
        self._next = len(carried) + state.sentence
        if self._next > len(self.text):
            raise IndexError(state.sentence)
        earlier = {sentence[:2]: number for number, sentence in enumerate(carried)}
        return [row and self._hold(row, earlier) for row in state.rows]

    def _hold(self, row: RowPosition, earlier: dict[tuple[int, int], int]) -> Held:
        number = earlier.get((row.shard, row.sentence), len(earlier) + row.sentence)
        left = int(self.text.inputs[number]) - row.offset
        if left < 1:
            raise IndexError(row.offset)
        return Held(number, row.offset, left)
