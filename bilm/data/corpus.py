"""A corpus on disk: the shards that a file pattern matches, and the order in which to read them."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import os
from collections.abc import Iterator, Sequence

import numpy as np

from bilm.data.shard import Shard
from bilm.data.vocabulary import Vocabulary
from bilm.errors import InputError
from bilm.files import PathLike, find_files, read_lines, require_file

logger = logging.getLogger(__name__)


class Corpus:
    """Text files with a sentence a line, its words separated by white space.

    A run reads one shard after the other; the number of a *load* counts them from 0, over all
    passes. The order depends on the seed, the pass and the shard alone, so that any load can be
    had again by its number.

    Args:
        filepattern: a glob; its files, sorted by name, are the shards. Plain, .gz or .xz. Empty
            lines are no sentences.
        vocab: gives the ids, and the characters if it has them.
        shuffle: shuffle the sentences within a shard and, unless `one_pass`, the shards anew in
            every pass.
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
        if seed < 0:
            raise InputError(f"seed must be 0 or more, not {seed}.")
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

    def has(self, load: int) -> bool:
        """Whether there is a load of this number."""
        return not self.one_pass or load < len(self.files)

    def read(self, load: int, before: Sequence[Sequence[str]] = ()) -> Shard:
        """The sentences `before`, then those of a load in the order of the run.

        Raises:
            FileNotFoundError, InputError: the file has gone, has another size than before, or is
                not UTF-8 (file and line).
        """
        turn, ordinal = divmod(load, len(self.files))
        shard = self._load(self._file(load), before)
        if not self.shuffle:
            return shard
        return shard.shuffled(self._generator(turn, 1 + ordinal), first=len(before))

    def describe(self, load: int, sentence: int) -> str:
        """Where a sentence of a load is, for people; the file is read to find it.

        Args:
            load: its number.
            sentence: number in the order of the run.
        """
        turn, ordinal = divmod(load, len(self.files))
        path = self._file(load)
        order = np.arange(sum(1 for _ in self.sentences(path)))
        if self.shuffle:
            self._generator(turn, 1 + ordinal).shuffle(order)
        if sentence >= len(order):
            return f"the end of {path} (pass {turn + 1})"
        return f"sentence {order[sentence] + 1:,} of {path} (pass {turn + 1})"

    def _file(self, load: int) -> str:
        turn, ordinal = divmod(load, len(self.files))
        return self.files[self._order(turn)[ordinal]]

    def read_in_turn(self) -> Iterator[Shard]:
        """Every load, from number 0 on."""
        return map(self.read, itertools.takewhile(self.has, itertools.count()))

    def read_in_order(self) -> Iterator[Shard]:
        """Every shard once, sorted by name, the sentences in the order of the file."""
        return map(self._load, self.files)

    def _load(self, path: str, before: Sequence[Sequence[str]] = ()) -> Shard:
        shard = Shard.from_sentences(itertools.chain(before, self.sentences(path)), self.vocab)
        size = os.path.getsize(require_file(path, "text file"))
        if size != self._sizes[path]:
            raise InputError(
                f"{path}: the file has {size:,} bytes, and had {self._sizes[path]:,} when the "
                "corpus was opened; it must not change while it is read."
            )
        if len(shard) == len(before):
            logger.warning("%s: no sentence in this file", path)
        return shard

    def _order(self, turn: int) -> np.ndarray:
        """The files of one pass over the corpus, as indices of `files`."""
        if self.shuffle and not self.one_pass:
            return self._generator(turn, 0).permutation(len(self.files))
        return np.arange(len(self.files))

    def _generator(self, turn: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, turn, purpose))
