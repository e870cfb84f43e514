"""Static vectors, one per word in all contexts: the baseline for contextual vectors.

Files are text as word2vec and gensim's `KeyedVectors` write it: a line with the number of words and
dimensions, then one word and its numbers per line. GloVe's files lack the first line.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.analysis.occurrences import Sentence, comparison_form
from bilm.core.errors import InputError, integer, require, require_at_least
from bilm.data.sentences import read_stream
from bilm.extras import import_extra
from bilm.files.reading import (
    PathLike,
    compressed_damage_named,
    decompressed,
    require_file,
    warn_once,
)
from bilm.files.writing import atomic_write, compressed

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo


_BINARY = (".bin", ".bin.gz")
_MOST = 10_000  # dimensions, words on either side, threads
_LONGEST = 10_000  # words of a sentence; gensim ignores the others
_HEAD = re.compile(r"[0-9]{1,9} [0-9]{1,9}")


class StaticVectors:
    """Words and their vectors.

    Attributes:
        words: distinct words, usually by descending frequency.
        vectors: float32 (words, dim).
    """

    def __init__(self, words: Sequence[str], vectors: np.ndarray) -> None:
        if not np.isfinite(vectors).all():
            raise InputError("static vectors must be finite.")
        self.words = words
        self.vectors = vectors
        self.dim = vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.index(word) is not None

    def index(self, word: str) -> int | None:
        """The index of a word as it is, in NFC, or in lower case; None if none has a vector."""
        indices = (self._indices[form] for form in _forms(word) if form in self._indices)
        return next(indices, None)

    def vector(self, word: str) -> np.ndarray | None:
        """The vector of a word, float32 (dim,), or None."""
        index = self.index(word)
        return None if index is None else self.vectors[index]

    def table(self, words: Sequence[str]) -> np.ndarray:
        """The vectors of words: float32 (words, dim), zeros for missing words."""
        indices = np.array([-1 if k is None else k for k in map(self.index, words)], np.int64)
        table = self.vectors[indices]
        table[indices < 0] = 0
        return table

    def nearest(self, word: str, n: int = 10) -> list[tuple[float, str]]:
        """The `n` nearest words as pairs (cosine, word), nearest first.

        Raises:
            InputError: the word has no vector, or its vector is zero.
        """
        return self._most_similar([word], [], n)

    def analogy(self, a: str, b: str, c: str, n: int = 10) -> list[tuple[float, str]]:
        """a : b = c : ?, by b - a + c; pairs (cosine, word), nearest first. Errors as for
        `nearest`."""
        return self._most_similar([b, c], [a], n)

    def _most_similar(
        self, positive: list[str], negative: list[str], n: int
    ) -> list[tuple[float, str]]:
        for word in (*positive, *negative):
            if word not in self:
                raise InputError(f"{word!r} has no static vector.")
            if not np.any(self.vector(word)):
                raise InputError(f"The static vector of {word!r} is zero, which has no direction.")
        keys = ([self.words[self.index(word) or 0] for word in w] for w in (positive, negative))
        pairs = self.keyed_vectors.most_similar(*keys, topn=n)
        return [(float(cosine), word) for word, cosine in pairs]

    @cached_property
    def keyed_vectors(self) -> Any:
        """The vectors other than zeros, as gensim's `KeyedVectors`."""
        keyed = import_extra("gensim.models", "Searching static vectors").KeyedVectors(self.dim)
        rows = np.flatnonzero(self.vectors.any(axis=1)).tolist()
        keyed.add_vectors([self.words[row] for row in rows], self.vectors[rows])
        return keyed

    def save(self, path: PathLike) -> None:
        """Write the vectors as text that is read back exactly, compressed if the name of the file
        ends in .gz or .xz.

        Raises:
            InputError: a word is empty, or has white space or a lone surrogate.
        """
        with atomic_write(path) as temporary, compressed(temporary) as file:
            file.write(f"{len(self)} {self.dim}\n".encode())
            for word, vector in zip(self.words, self.vectors, strict=True):
                if word.encode("utf-8", "ignore").decode().split() != [word]:
                    raise InputError(
                        f"{path}: words must have no white space and no lone surrogates, got "
                        f"{word!r}."
                    )
                file.write(f"{word} {' '.join(map(str, vector))}\n".encode())

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        keep: Collection[str] | None = None,
        max_words: int | None = None,
    ) -> StaticVectors:
        """Read vectors of word2vec, GloVe or fastText: text, may be compressed, or .bin (.bin.gz).

        `keep` are the words to keep, also in NFC and in lower case; `max_words` reads only the
        first words. If a word is repeated, its first vector wins. Words that are not UTF-8, as in
        some published files, are skipped with a warning.

        Raises:
            FileNotFoundError: the file does not exist.
            InputError: the file is damaged or malformed (file and line), or has no vector to keep.
        """
        path = require_file(path, "file of static vectors")
        words = None if keep is None else {form for word in keep for form in _forms(word)}
        rows: dict[str, np.ndarray] = {}
        reader = _read_binary if path.endswith(_BINARY) else _read_text
        n_cut = 0
        for word, vector in reader(path, max_words):
            if not _is_utf8(word):
                n_cut += 1
            elif words is None or word in words:
                rows.setdefault(word, vector)
        if n_cut:
            warn_once(f"{path}: {n_cut:,} words are not UTF-8 and were skipped.")
        if not rows:
            which = "word." if keep is None else "of these words; is it for another language?"
            raise InputError(f"{path}: must have a vector for at least one {which}")
        return cls(list(rows), np.stack(list(rows.values())))

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}


def _forms(word: str) -> Iterator[str]:
    """The forms under which a word may have a vector, the preferred one first."""
    yield word
    yield comparison_form(word, match_case=True)
    yield word.lower()
    yield comparison_form(word)


def _read_binary(path: str, max_words: int | None) -> Iterator[tuple[str, np.ndarray]]:
    keyed = import_extra("gensim.models", "Reading binary static vectors").KeyedVectors
    with compressed_damage_named(path):
        try:
            vectors = keyed.load_word2vec_format(
                path, binary=True, limit=max_words, unicode_errors="surrogateescape"
            )
        except (ValueError, EOFError) as error:
            raise InputError(f"{path}: must be word2vec's text or binary form: {error}.") from error
    yield from zip(vectors.index_to_key, vectors.vectors, strict=True)


def _is_utf8(word: str) -> bool:
    """Whether a word decoded with "surrogateescape" was UTF-8."""
    return word.isascii() or not any("\udc80" <= character <= "\udcff" for character in word)


def _lines(path: str) -> Iterator[str]:
    """The lines of a text, which may not be UTF-8: gensim truncates long words between bytes."""
    with open(path, "rb") as stream, compressed_damage_named(path):
        for number, line in enumerate(decompressed(stream)):
            if number == 0:
                line = line.removeprefix(codecs.BOM_UTF8)
                if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise InputError(f"{path}: must be UTF-8 text, got UTF-16.")
            yield line.decode("utf-8", "surrogateescape").rstrip("\r\n")


def _read_text(path: str, max_words: int | None) -> Iterator[tuple[str, np.ndarray]]:
    """A text file; gensim fails for GloVe's words with spaces, and keeps all words in memory."""
    dim, expected, n_read = 0, None, 0
    for number, line in enumerate(_lines(path), start=1):
        fields = line.rstrip().split(" ")
        if number == 1 and _HEAD.fullmatch(line.rstrip()):
            expected, dim = map(int, fields)
            continue
        if n_read == max_words:
            return
        if not dim and len(fields) < 3:
            raise InputError(
                f"{path}, line {number}: must be the numbers of words and of dimensions, or a word "
                f"and its numbers, got {line[:80]!r}."
            )
        dim = dim or len(fields) - 1
        word, vector = " ".join(fields[:-dim]), np.array([np.nan])
        with contextlib.suppress(ValueError), np.errstate(over="ignore"):
            vector = np.array(fields[-dim:], np.float32)
        if not word or dim < 1 or not np.isfinite(vector).all():
            raise InputError(
                f"{path}, line {number}: must be a word and {dim} numbers, separated by single "
                f"spaces, got {line[:80]!r}."
            )
        n_read += 1
        yield word, vector
    if expected is not None and max_words is None and n_read != expected:
        raise InputError(f"{path}: must have {expected} words, as in its first line, got {n_read}.")


def train_word2vec(
    read: Callable[[], Iterable[str | Sentence]],
    *,
    dim: int = 100,
    window: int = 5,
    min_count: int = 5,
    epochs: int = 5,
    seed: int = 0,
    threads: int = 1,
) -> StaticVectors:
    """Train skip-gram word2vec (Mikolov et al. 2013) with gensim.

    Args:
        read: returns the sentences, lists of tokens or text that is split on white space; called
            once to count the words, and once per epoch.
        window: words predicted on either side.
        min_count: words that occur less often are skipped.
        threads: with more than one, results differ slightly from run to run.

    Raises:
        InputError: an argument is out of range, or no word is frequent enough.
    """
    require(integer(), epochs=epochs, min_count=min_count)
    require(integer(1, _MOST), dim=dim, window=window, threads=threads)
    require_at_least(0, 2**32 - 2, seed=seed)  # seed + 1 must fit in 32 bits
    model = import_extra("gensim.models", "word2vec").Word2Vec(
        vector_size=dim,
        window=window,
        min_count=min_count,
        sg=1,
        seed=seed + 1,  # gensim does not accept 0
        workers=threads,
        epochs=epochs,
    )
    sentences = _Restarted(read)
    model.build_vocab(sentences)
    if not len(model.wv):
        raise InputError(f"min_count: no word of the text occurs {min_count} times.")
    model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
    return StaticVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors, np.float32))


@dataclass
class _Restarted:
    """Sentences that gensim can read several times; longer ones in parts of `_LONGEST` words."""

    read: Callable[[], Iterable[str | Sentence]]

    def __iter__(self) -> Iterator[list[str]]:
        for _, tokens in read_stream(self.read(), with_ids=False):
            for start in range(0, len(tokens), _LONGEST):
                yield tokens[start : start + _LONGEST]


def frequent_words(sentences: Iterable[Sentence], min_count: int = 5) -> list[str]:
    """The words that occur at least `min_count` times in a text, by descending frequency, then
    alphabetically."""
    counts = Counter(token for sentence in sentences for token in sentence)
    frequent = (word for word, count in counts.items() if count >= min_count)
    ranked = sorted(frequent, key=lambda word: (-counts[word], word))
    if not ranked:
        raise InputError(f"min_count: no word of the text occurs {min_count} times.")
    return ranked


def mean_vectors(
    elmo: ELMo, words: Sequence[str], sentences: Iterable[Sentence], layer: int | str = "top"
) -> StaticVectors:
    """The mean vector of each word over its occurrences in a text; other words are skipped."""
    sums = {word: np.zeros(elmo.dim) for word in words}
    counts = Counter[str]()
    items = ((sentence, list(sentence)) for sentence in sentences if len(sentence))
    for sentence, vectors in elmo.encode_iter(items, layer, with_ids=True):
        for token, vector in zip(sentence, vectors, strict=True):
            if token in sums:
                sums[token] += vector
                counts[token] += 1
    present = [word for word in words if counts[word]]
    means = np.array([sums[word] / counts[word] for word in present], np.float32)
    return StaticVectors(present, means)
