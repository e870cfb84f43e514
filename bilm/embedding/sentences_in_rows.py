"""Sentences laid end to end in the rows of a batch, so that nothing is computed for padding.

A sentence takes one place for each of its words. Both directions have the same places; the
backward one has a sentence's words in reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bilm.data.packing import Packing, pack


class SentencesInRows(NamedTuple):
    """Where sentences lie.

    Attributes:
        lengths: int64 (sentences,), words of each, 1 or more.
        packing: their rows and first places.
    """

    lengths: np.ndarray
    packing: Packing

    @classmethod
    def lay(cls, lengths: np.ndarray, n_rows: int) -> SentencesInRows:
        """Lay sentences of these lengths into rows."""
        return cls(lengths, pack(lengths, n_rows))

    @property
    def shape(self) -> tuple[int, int]:
        """(steps, rows)."""
        return self.packing.n_steps, self.packing.n_rows

    def inputs(self, words: np.ndarray, n_directions: int) -> np.ndarray:
        """What each direction reads: (n_directions, steps, rows), zeros past a row's end.

        Args:
            words: int32 (words,), those of all sentences, one after the other.
            n_directions: 1 or 2.
        """
        packing, lengths = self.packing, self.lengths
        before, length = (np.repeat(x, lengths) for x in (np.cumsum(lengths) - lengths, lengths))
        number = np.arange(len(words)) - before  # of the word in its sentence
        first = np.repeat(packing.starts * packing.n_rows + packing.rows, lengths)
        places = first + packing.n_rows * np.stack([number, length - 1 - number])
        inputs = np.zeros((n_directions, packing.n_steps * packing.n_rows), np.int32)
        for d in range(n_directions):
            inputs[d, places[d]] = words
        return inputs.reshape(n_directions, *self.shape)

    def resets(self) -> np.ndarray:
        """Where the first word of a sentence is: bool (steps, rows)."""
        resets = np.zeros(self.shape, bool)
        resets[self.packing.starts, self.packing.rows] = True
        return resets

    def layers(
        self, number: int, tokens: np.ndarray, outputs: Sequence[Sequence[np.ndarray]]
    ) -> np.ndarray:
        """All layers of one sentence: (n_layers + 1, words, n_directions * projection_dim).

        Args:
            number: which one.
            tokens: (words, projection_dim), the vectors of its words.
            outputs: of each direction, its layers, (steps, rows, projection_dim).
        """
        n_words, dim = tokens.shape
        result = np.empty((1 + len(outputs[0]), n_words, len(outputs), dim), tokens.dtype)
        result[0] = tokens[:, np.newaxis]
        start, row = self.packing.starts[number], self.packing.rows[number]
        for d, layers in enumerate(outputs):
            turn = slice(None) if d == 0 else slice(None, None, -1)
            for i, layer in enumerate(layers, start=1):
                result[i, :, d] = layer[start : start + n_words, row][turn]
        return result.reshape(len(result), n_words, -1)
