"""Sentences as what a language model's scorer takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bilm.data import Vocabulary
from bilm.data.batch import sentence_batches
from bilm.data.corpus import IndexedText
from bilm.options import Options
from bilm.training.evaluation import Chunk, chunks

# Tokens of a batch, padding included; a longer sentence is taken in chunks of so many.
_PLACES = 4096


class SentenceParts:
    """Makes batches of sentences of like length, and parts of long ones.

    Args:
        options: of the model.
        vocabulary: of the model, with characters if it takes them.
        batch_size: sentences of a batch, at most; None sets no bound of its own.
    """

    def __init__(self, options: Options, vocabulary: Vocabulary, batch_size: int | None) -> None:
        self._options = options
        self._vocabulary = vocabulary
        self._batch_size = batch_size
        self._reverses = (False, True)[: options.n_directions]

    def of(self, sentences: Sequence[Sequence[str]]) -> Iterator[Chunk]:
        """The chunks of some sentences, those of a long one in order."""
        text = IndexedText.from_sentences(sentences, self._vocabulary)
        for batch in sentence_batches(text, self._reverses, _PLACES, max_rows=self._batch_size):
            yield from chunks(batch, self._options, _PLACES)

    def known(self, tokens: Sequence[str]) -> np.ndarray:
        """Whether tokens are in the vocabulary: bool (tokens,)."""
        return self._vocabulary.known_ids(tokens) >= 0
