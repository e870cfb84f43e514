"""The text of a corpus as batches, for training and for evaluation.

Input is the characters of every word, in the vocabulary or not; a target outside the vocabulary
is `<UNK>`. `<S>` and `</S>` as words of the text are kept: they have the ids and characters of the
marks. Both directions cut the same sentences at the same inputs, so one reading serves both.

Source: Peters et al. (2018), section 3.1, and the original program's way to fill rows (`rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilm.data.batch import Batch, make_batch, sentence_batches
from bilm.data.corpus import Corpus
from bilm.data.place import Place
from bilm.data.reader import Reader
from bilm.data.vocabulary import Vocabulary
from bilm.errors import InputError
from bilm.files import PathLike


class _Dataset:
    """What data sets of one and of two directions share.

    Every iteration begins at the beginning of the corpus, whatever others have read.
    """

    def __init__(self, corpus: Corpus, reverses: tuple[bool, ...]) -> None:
        self._corpus = corpus
        self._reverses = reverses

    @property
    def vocab(self) -> Vocabulary:
        """The vocabulary that gives the ids."""
        return self._corpus.vocab

    @property
    def worker(self) -> tuple[int, int]:
        """(index, count): which share of the corpus this is."""
        return self._corpus.worker

    @property
    def max_word_length(self) -> int | None:
        """Characters a word; None if the vocabulary has no characters."""
        return getattr(self.vocab, "max_word_length", None)

    @property
    def n_train_tokens(self) -> int:
        """Predictions of a direction in one pass over the whole corpus, all workers' shares.

        Each word is predicted, and the end of each sentence: so many tokens of batches make an
        epoch. They are counted in one scan when first asked for.
        """
        return self._corpus.n_predictions

    def iter_batches(
        self, batch_size: int, num_steps: int
    ) -> Iterator[dict[str, np.ndarray | None]]:
        """Batches in the form of the original program: see `Batch.to_dict`.

        With `test=True` a last batch that the text does not fill is not given, as it never was;
        `iter_distinct` gives it.
        """
        for batch in self.iter_distinct(batch_size, num_steps):
            if not batch.mask.all():
                return
            yield batch.to_dict()

    def iter_distinct(
        self, batch_size: int, num_steps: int, place: Place | None = None
    ) -> Iterator[Batch]:
        """Batches whose rows go on from one batch to the next.

        Args:
            batch_size: rows.
            num_steps: inputs of a row.
            place: the `place` of an earlier batch: exactly the batches that followed it follow.

        Yields:
            `Batch`. With `test=True` until every prediction was given once; rows whose text has
            ended are masked. Otherwise without end.

        Raises:
            InputError: a size is below 1; `place` is of another corpus, seed, size and so on; text
                is not UTF-8 (file and line).
        """
        reader = Reader(self._corpus, batch_size, num_steps, place)
        while (segments := reader.next_segments()) is not None:
            yield make_batch(
                reader.shard,
                segments,
                (batch_size, num_steps),
                self._reverses,
                place=reader.place(),
            )

    def describe_place(self, place: Place | None) -> str:
        """Where the corpus goes on from a place, for people: file, sentence and pass.

        Args:
            place: of a batch of this data set; None is the beginning.
        """
        if place is None:
            return self._corpus.describe(0, 0)
        return self._corpus.describe(place.load, place.sentence)

    def iter_sentence_batches(self, max_tokens: int) -> Iterator[Batch]:
        """Every sentence once, each a row of its own that begins at column 0.

        Sentences of like length stand together: each shard is sorted by length and cut into
        batches. One pass, whatever `test` and `shuffle_on_load` are.

        Args:
            max_tokens: most places of a batch, masked ones included. A sentence that is longer
                makes a batch of its own.

        Yields:
            `Batch` with `sentences`: numbers from 0 in reading order, shards sorted by name. With
            several workers, numbers within the worker's share.
        """
        if max_tokens < 1:
            raise InputError(f"max_tokens must be 1 or more, not {max_tokens}.")
        first = 0
        for shard in self._corpus.read_in_order():
            yield from sentence_batches(shard, self._reverses, max_tokens, first)
            first += len(shard)
            del shard  # before the next one comes, so that one at a time is in memory


class LMDataset(_Dataset):
    """A corpus in one direction.

    Args:
        filepattern: a glob; the files that it matches are the shards, read one at a time.
            Sentence a line, words separated by white space, UTF-8, plain or .gz or .xz; empty
            lines are skipped.
        vocab: a `Vocabulary`, or a `UnicodeCharsVocabulary` for characters.
        reverse: read the sentences backwards, from `</S>` to `<S>`.
        test: one pass, shards sorted by name; otherwise without end.
        shuffle_on_load: shuffle the sentences within each shard and, without `test`, the shards
            anew in each pass.
        seed: of the shuffling, 0 or more.
        worker: (index, count): this data set is one of `count` that share the corpus, and takes
            of every `count` sentences of a shard the one with its index.

    Raises:
        FileNotFoundError: nothing matches `filepattern`.
        InputError: no sentence in any file; seed or worker out of range.
    """

    def __init__(
        self,
        filepattern: PathLike,
        vocab: Vocabulary,
        reverse: bool = False,
        test: bool = False,
        shuffle_on_load: bool = False,
        *,
        seed: int = 0,
        worker: tuple[int, int] = (0, 1),
    ) -> None:
        corpus = Corpus(
            filepattern, vocab, shuffle=shuffle_on_load, one_pass=test, seed=seed, worker=worker
        )
        super().__init__(corpus, (reverse,))

    def get_sentence(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """The sentences one by one, for `_get_batch` or uses of one's own.

        Yields:
            ids: (words + 2,) int32, `<S>` and `</S>` included, in the order of reading.
            char_ids: (words + 2, max_word_length) int32; None without characters.
        """
        step = -1 if self._reverses[0] else 1
        for shard in self._corpus.read_in_turn():
            for number in range(len(shard)):
                words = shard.sentence(number)[::step]
                characters = None
                if shard.characters is not None:
                    characters = shard.characters[words].astype(np.int32)
                yield shard.vocabulary_ids[words], characters
            del shard  # before the next one comes, so that one at a time is in memory


class BidirectionalLMDataset(_Dataset):
    """A corpus in both directions: the reverse stream reads the forward stream's sentences.

    Args and errors as for `LMDataset`.
    """

    def __init__(
        self,
        filepattern: PathLike,
        vocab: Vocabulary,
        test: bool = False,
        shuffle_on_load: bool = False,
        *,
        seed: int = 0,
        worker: tuple[int, int] = (0, 1),
    ) -> None:
        corpus = Corpus(
            filepattern, vocab, shuffle=shuffle_on_load, one_pass=test, seed=seed, worker=worker
        )
        super().__init__(corpus, (False, True))
