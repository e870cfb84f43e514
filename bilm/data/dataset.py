"""The text of a corpus as batches, for training and for evaluation.

The inputs are the characters of every word, inside or outside the vocabulary; a target outside the
vocabulary is `<UNK>`. Both directions cut the same sentences at the same inputs, so the text is
read once.

For other sources of text, write a subclass that overrides `get_sentence`, from which all batches
are made, or any class with the original's `iter_batches`.

Source: Peters et al. (2018), section 3.1; rows are filled as in the original program (`batch.py`).
"""

import functools
import itertools
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bilm.core.errors import InputError, integer, require, shown
from bilm.data.batch import Batch, SentenceReader, _get_batch, sentence_batches
from bilm.data.corpus import Corpus, IndexedText, IteratorCorpus, IteratorState, SentenceIds
from bilm.data.encoding import EOS
from bilm.data.prefetch import windows
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.files.reading import PathLike

logger = logging.getLogger(__name__)

# Inputs of a subclass's sentences to sort by length at once.
_SORTED_AT_ONCE = 1 << 16
# Tokens to count at once, so that memory does not grow with the words outside the vocabulary.
_COUNTED_AT_ONCE = 1 << 16


def reading_method(data: Any, *names: str) -> str:
    """The method for reading a data set: the first of `names` that it has.

    Raises:
        InputError: `data` has none of the methods.
    """
    method = next((name for name in names if hasattr(data, name)), None)
    if method is None:
        raise InputError(
            f"The data must be a data set of bilm.data, or an object with {names[-1]}, got "
            f"{type(data).__name__}."
        )
    return method


def unknown_share(counts: np.ndarray, vocab: Vocabulary) -> float:
    """Proportion of tokens outside the vocabulary, from the `word_counts` of a data set."""
    return float(counts[vocab.unk] / max(counts.sum() - counts[vocab.eos], 1))


class LMDataset:
    """A corpus in one direction.

    Every iteration starts at the beginning of the corpus, independently of other iterations. A
    subclass may override `get_sentence`, from which all other methods take their sentences.

    Args:
        filepattern: a glob; the files that it matches are the shards, read one at a time. One
            sentence per line, words separated by white space, UTF-8, plain or compressed; empty
            lines are skipped.
        vocab: a `Vocabulary`, or a `UnicodeCharsVocabulary` for characters.
        reverse: read the sentences backwards, from `</S>` to `<S>`.
        test: one pass, shards sorted by name; otherwise without end.
        shuffle_on_load: shuffle the sentences within each shard and, without `test`, the order of
            the shards in each pass.
        seed: random seed, >= 0.
        worker: (index, count): this data set is one of `count` that share the corpus, and reads
            every `count`-th sentence of a shard.

    Attributes:
        vocab, worker: the arguments.
        max_word_length: characters per word; None if the vocabulary has no characters.

    Raises:
        FileNotFoundError: nothing matches `filepattern`.
        InputError: the files hold no sentence; seed or worker is out of range; `vocab` lacks
            `<UNK>`.
    """

    _bidirectional = False

    def __init_subclass__(cls) -> None:
        # The last three are methods of the original, which nothing calls here.
        unused = {"iter_batches", "iter_distinct", "iter_sentence_batches", "_load_shard",
                  "_load_random_shard", "_choose_random_shard"}  # fmt: skip
        if overridden := sorted(unused & vars(cls).keys()):
            raise InputError(
                f"{cls.__name__} must override get_sentence, from which all batches are made, got "
                f"{overridden[0]}."
            )

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
        if not isinstance(vocab, Vocabulary):
            raise InputError(f"vocab must be a Vocabulary, got {shown(vocab)}.")
        base = UnicodeCharsVocabulary if isinstance(vocab, UnicodeCharsVocabulary) else Vocabulary
        for name in ("encode", "encode_chars", "word_to_id", "word_to_char_ids"):
            if getattr(type(vocab), name, None) is not getattr(base, name, None):
                raise InputError(
                    f"vocab: {type(vocab).__name__} must not override {name}, which is not called "
                    "to read a text: change the text instead, or override get_sentence."
                )
        _ = vocab.unk  # raises if it is missing
        self._corpus = Corpus(filepattern, vocab, shuffle_on_load, test, seed, worker)
        self._counts: dict[int | None, np.ndarray] = {}
        self._reverse = reverse
        self.vocab, self.worker = vocab, worker
        self.max_word_length = self._corpus.max_word_length

    @functools.cached_property
    def n_train_tokens(self) -> int:
        """Predictions (words and sentence ends) per direction in one pass over the corpus of all
        workers, counted when first needed. A subclass with other sentences should override it."""
        return int(self._count(None).sum())

    def word_counts(self, max_tokens: int | None = None) -> np.ndarray | None:
        """Occurrences of each word of the vocabulary in the text of all workers.

        Args:
            max_tokens: approximate size of a sample, from the start of each file; None: all. Each
                size is counted once, and the complete count also serves as a sample.

        Returns:
            int64 (vocab.size,), by id: `<UNK>` counts the tokens outside the vocabulary, `</S>` the
            sentences. None for a subclass with other sentences.
        """
        if not self._reads_files():
            return None
        # A complete count is as good as a sample, and spares reading the text again.
        return self._count(None if None in self._counts else max_tokens)

    def _count(self, max_tokens: int | None) -> np.ndarray:
        if max_tokens in self._counts:
            return self._counts[max_tokens]
        counts = np.zeros(self.vocab.size, np.int64)
        sentences = self._corpus.first_sentences(max_tokens)
        for window, _ in windows(sentences, len, _COUNTED_AT_ONCE):
            occurrences = Counter(itertools.chain.from_iterable(window))
            occurrences[EOS] += len(window)
            np.add.at(counts, self.vocab.word_ids(list(occurrences)), list(occurrences.values()))
        self._counts[max_tokens] = counts
        return counts

    def first_ids(self, max_tokens: int) -> np.ndarray | None:
        """The vocabulary ids of about `max_tokens` tokens, from the start of each file: int32 (n,),
        each sentence as `<S>` .. `</S>` with a -1 after it. None as for `word_counts`."""
        if not self._reads_files():
            return None
        text = IndexedText.from_sentences(self._corpus.first_sentences(max_tokens), self.vocab)
        return np.insert(text.vocabulary_ids[text.words], text.starts[1:], -1)

    def _reads_files(self) -> bool:
        """Whether the sentences come from the files, not from a subclass."""
        return type(self).get_sentence is LMDataset.get_sentence

    def unknown_share(self, max_tokens: int | None = 1_000_000) -> float | None:
        """Proportion of tokens outside the vocabulary, in a sample of about `max_tokens` tokens
        (None: in the whole text). None if `word_counts` returns None."""
        counts = self.word_counts(max_tokens)
        return None if counts is None else unknown_share(counts, self.vocab)

    def get_sentence(self) -> Iterator[SentenceIds]:
        """Iterate over the sentences, from which `_get_batch` makes all batches: their ids (words +
        2,) int32, with `<S>` and `</S>`, in reading order, and character ids (words + 2,
        max_word_length) int32, None without characters.

        A subclass may override it, even with endless text. Its batches have no state, so resumed
        training restarts the text.
        """
        return SentenceReader(self._corpus, reverse=self._reverse)

    def iter_batches(
        self, batch_size: int, num_steps: int
    ) -> Iterator[dict[str, np.ndarray | None]]:
        """Batches in the form of the original program: the items of a `Batch`.

        With `test=True`, a partly filled last batch is left out, as in the original;
        `iter_distinct` includes it.
        """
        return map(dict, self._batches(batch_size, num_steps))

    def iter_distinct(
        self, batch_size: int, num_steps: int, state: IteratorState | None = None
    ) -> Iterator[Batch]:
        """Batches in a compact form, with the characters of each distinct word once.

        Without end; with `test=True`, each prediction once, and rows are masked after their end.

        Args:
            batch_size, num_steps: rows of a batch, and inputs of a row.
            state: the `state` of an earlier batch, to continue with the batches after it.

        Raises:
            InputError: a size is below 1; `state` is from another corpus, seed, size and so on;
                text is not UTF-8 (file and line).
        """
        if not (state is None or isinstance(state, IteratorState)):
            raise InputError(f"state must be the state of a batch, got {shown(state)}.")
        return self._batches(batch_size, num_steps, incomplete=True, state=state)

    def _batches(
        self,
        batch_size: int,
        num_steps: int,
        *,
        incomplete: bool = False,
        state: IteratorState | None = None,
    ) -> Iterator[Batch]:
        sentences = self.get_sentence()
        if state is not None and isinstance(sentences, SentenceReader):
            # Now, because a run without remaining steps never reads the first batch.
            state.require_like(self._corpus.beginning(batch_size, num_steps))
        elif state is not None:
            logger.warning(
                "%s.get_sentence cannot resume: its text is restarted", type(self).__name__
            )
        return _get_batch(
            sentences,
            batch_size,
            num_steps,
            self.max_word_length,
            bidirectional=self._bidirectional,
            incomplete=incomplete,
            state=state,
        )

    def iter_sentence_batches(self, max_tokens: int) -> Iterator[Batch]:
        """Batches with one sentence per row, every sentence once; one pass, even without `test`.

        Each shard is sorted by sentence length and cut into batches of at most `max_tokens`
        positions, including padding; a longer sentence is a batch of its own.

        Yields:
            `Batch` with `sentences`: 0-based numbers in reading order, shards sorted by name. With
            several workers, numbers within the worker's share.

        Raises:
            InputError: `max_tokens` is below 1; text is not UTF-8 (file and line); a subclass
                overrides `get_sentence` without `test=True`.
        """
        require(integer(), max_tokens=max_tokens)
        sentences = self.get_sentence()
        if isinstance(sentences, SentenceReader):
            source, reverse = sentences.source, sentences.reverse
        elif self._corpus.one_pass:
            # A subclass yields its sentences in reading order.
            source = IteratorCorpus(sentences, self.max_word_length, _SORTED_AT_ONCE)
            reverse = False
        else:
            raise InputError(
                f"{type(self).__name__} must be created with test=True: its get_sentence may have "
                "no end."
            )
        reverses = (reverse, not reverse)[: 1 + self._bidirectional]
        first = 0
        for text in source.read_in_order():
            yield from sentence_batches(text, reverses, max_tokens, first)
            first += len(text)
            del text  # only one text is in memory


class BidirectionalLMDataset(LMDataset):
    """A corpus in both directions, which read the same sentences.

    Args and errors as for `LMDataset`. `get_sentence` yields the forward sentences.
    """

    _bidirectional = True

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
        super().__init__(filepattern, vocab, False, test, shuffle_on_load, seed=seed, worker=worker)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_data_forward", "_data_reverse"):
            raise InputError(
                f"{type(self).__name__}: {name} must not be set, because both directions read the "
                "same sentences: override get_sentence."
            )
        super().__setattr__(name, value)
