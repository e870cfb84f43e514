"""The text that is to be embedded: read line by line, from a file or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

from bilm.errors import InputError
from bilm.files import read_lines

STANDARD = "-"


class EmbeddingInput:
    """The sentences of a text that a job embeds.

    Args:
        path: the file, or "-".
        shard: (i, n), the job has the lines i, i + n, ... of 1, 2, ...
        distinct: each sentence once, and only those that can be keys: "paths" of HDF5 or "names".

    Attributes:
        name: the text's name, for messages.
        n_sentences, n_tokens: of the job, once a file was looked through; None for standard input.
        n_repeated, n_empty: lines that were passed over because of `distinct`.
    """

    def __init__(self, path: str, shard: tuple[int, int], distinct: str | None) -> None:
        self.path = path
        self.name = "standard input" if path == STANDARD else path
        self.n_sentences: int | None = None
        self.n_tokens: int | None = None
        self.n_repeated = self.n_empty = 0
        self._shard = shard
        self._distinct = distinct
        self._refuse_unknown: Callable[[Sequence[str], str], None] | None = None

    def look_through(self, refuse_unknown: Callable[[Sequence[str], str], None]) -> None:
        """Read a file once, to find what is wrong in it before hours of work, and to count it.

        Args:
            refuse_unknown: raises InputError for tokens (and a place) that the model does not
                take.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: a line is not UTF-8, or cannot be a key, or has words without a vector.
        """
        self._refuse_unknown = refuse_unknown
        if self.path == STANDARD:
            return
        n_sentences = n_tokens = 0
        for _, text in self.sentences():
            n_sentences += 1
            n_tokens += len(text.split())
        self.n_sentences, self.n_tokens = n_sentences, n_tokens
        # Each was found to be good.
        self._refuse_unknown = None

    def sentences(self) -> Iterator[tuple[int, str]]:
        """(number of the line from 0, line without white space around it) of each sentence."""
        keys = None
        if self._distinct is not None:
            from bilm.embedding.vector_files import SentenceKeys

            keys = SentenceKeys(paths=self._distinct == "paths")
        self.n_repeated = self.n_empty = 0
        i, n = self._shard
        for number, line in enumerate(self._lines()):
            if number % n != i - 1:
                continue
            text, place = line.strip(), f"{self.name}, line {number + 1}"
            if keys is not None:
                if not text:
                    self.n_empty += 1
                    continue
                if not keys.is_new(text, place):
                    self.n_repeated += 1
                    continue
            if self._refuse_unknown is not None:
                self._refuse_unknown(text.split(), place)
            yield number, text

    def _lines(self) -> Iterator[str]:
        if self.path != STANDARD:
            yield from read_lines(self.path)
            return
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self.name}, line {number}: not UTF-8: byte {error.start} is "
                    f"0x{line[error.start]:02x}."
                ) from None
