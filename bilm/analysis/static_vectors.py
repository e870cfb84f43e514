"""Static vectors, one for each word whatever its context: the baseline of the comparison.

They are read and written as text in the form of word2vec and gensim's KeyedVectors: a line with
the number of words and of dimensions, then a word and its numbers a line. Published GloVe and
fastText files have this form as well, the former without the first line.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Sentence, unit
from bilm.core.errors import InputError, checked, require_at_least, require_count
from bilm.extras import import_extra
from bilm.files.reading import PathLike, read_lines, reading_text, require_file
from bilm.files.writing import atomic_write

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

logger = logging.getLogger(__name__)

_BLOCK = 4096  # words whose numbers are turned into an array at once
_MOST_THREADS = 256
_QUOTED = 80  # characters of a wrong line that a message shows
_LARGEST = float(np.finfo(np.float32).max)
_SURROGATE = re.compile("[\ud800-\udfff]")


class StaticVectors:
    """Words and their vectors.

    Args:
        words: each of them once, usually by falling frequency.
        vectors: float32 (words, dim).

    Attributes:
        words, vectors: as given.
        dim: size of a vector.
    """

    def __init__(self, words: Sequence[str], vectors: np.ndarray) -> None:
        if not np.isfinite(vectors).all():
            raise InputError("static vectors: numbers that are finite are expected.")
        self.words = words
        self.vectors = vectors
        self.dim = vectors.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.index(word) is not None

    def index(self, word: str) -> int | None:
        """The number of a word, or of the word in small letters; None if it has no vector."""
        found = self._numbers.get(word)
        return self._numbers.get(word.lower()) if found is None else found

    def vector(self, word: str) -> np.ndarray | None:
        """The vector of a word, float32 (dim,); None if it has none."""
        index = self.index(word)
        return None if index is None else self.vectors[index]

    @checked
    def nearest(self, word: str, n: int = 10) -> list[tuple[float, str]]:
        """The `n` words with the highest cosine, as pairs (cosine, word), nearest first.

        Raises:
            InputError: the word has no vector.
        """
        index = self.index(word)
        if index is None:
            raise InputError(f"{word!r} has no static vector.")
        cosines = self._directions @ self._directions[index]
        order = [k for k in np.argsort(-cosines, kind="stable")[: n + 1] if k != index]
        return [(float(cosines[k]), self.words[k]) for k in order[:n]]

    def nearest_to(self, vectors: np.ndarray, n: int = 10) -> list[list[tuple[float, str]]]:
        """For vectors (m, dim) of the same model, the `n` words nearest to each.

        The cosine is that without the mean of the static vectors, which vectors of a language
        model mostly have in common.
        """
        mean = self.vectors.mean(axis=0)
        cosines = unit(vectors - mean) @ unit(self.vectors - mean).T  # (m, words)
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :n]
        return [
            [(float(row[k]), self.words[k]) for k in best]
            for row, best in zip(cosines, order, strict=True)
        ]

    def analogy(self, a: str, b: str, c: str, n: int = 5) -> list[tuple[float, str]]:
        """What is to `c` as `b` is to `a`: the words nearest to b - a + c, by gensim (3CosAdd).

        Raises:
            InputError: a word has no vector, or gensim is not installed.
        """
        numbers = [self.index(word) for word in (a, b, c)]
        for word, number in zip((a, b, c), numbers, strict=True):
            if number is None:
                raise InputError(f"{word!r} has no static vector.")
        first, second, third = (self.words[number] for number in numbers if number is not None)
        found = self.keyed_vectors().most_similar(
            positive=[second, third], negative=[first], topn=n
        )
        return [(float(cosine), word) for word, cosine in found]

    def keyed_vectors(self) -> Any:
        """The vectors as gensim's `KeyedVectors`.

        Raises:
            InputError: gensim is not installed.
        """
        gensim = import_extra("gensim.models", "Analogies")
        keyed = gensim.KeyedVectors(self.dim)
        keyed.add_vectors(list(self.words), self.vectors)
        return keyed

    def save(self, path: PathLike) -> None:
        """Write the vectors as text, each number with as many digits as float32 needs.

        Raises:
            InputError: a word that would not be read back: it is empty, or holds white space or
                what UTF-8 has no form for.
        """
        with (
            atomic_write(path) as temporary,
            open(temporary, "w", encoding="utf-8", newline="\n") as file,
        ):
            file.write(f"{len(self)} {self.dim}\n")
            for word, vector in zip(self.words, self.vectors, strict=True):
                if word.split() != [word] or _SURROGATE.search(word):
                    raise InputError(
                        f"{word!r}: a word without white space and lone surrogates is expected."
                    )
                file.write(f"{word} {' '.join(map(str, vector))}\n")

    @classmethod
    @checked
    def load(
        cls,
        path: PathLike,
        *,
        keep: Collection[str] | None = None,
        max_words: int | None = None,
    ) -> StaticVectors:
        """Read a text file of vectors: word2vec, GloVe, fastText; plain, .gz, .xz.

        Args:
            keep: keep only these words, and these in small letters; None keeps all.
            max_words: read only so many, from the beginning, where the frequent ones are.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: a line is not a word and its numbers; a file in word2vec's binary form; no
                word of `keep` is in it.
        """
        if keep is not None:
            keep = {*keep, *map(str.lower, keep)}
        reader = _Reader(require_file(path, "file of static vectors"))
        vectors = reader.read(keep, max_words)
        if not len(vectors):
            why = "there is no vector."
            if reader.n_read:
                why = (
                    "none of the words that are asked for has a vector there; is it of another "
                    "language?"
                )
            raise InputError(f"{path}: {why}")
        return vectors

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def _directions(self) -> np.ndarray:
        return unit(self.vectors)


def _is_count(field: str) -> bool:
    return field.isdecimal() and len(field) < 10


class _Reader:
    """Reads a file of static vectors a line at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.n_read = 0

    def read(self, keep: Collection[str] | None, max_words: int | None) -> StaticVectors:
        self._refuse_binary()
        words: dict[str, None] = {}
        blocks: list[np.ndarray] = []
        block: list[list[float]] = []
        dim: int | None = None
        expected: int | None = None
        for number, line in enumerate(read_lines(self.path), start=1):
            fields = line.rstrip().split(" ")
            if number == 1 and len(fields) == 2 and all(map(_is_count, fields)):
                expected, dim = map(int, fields)
                continue
            if max_words is not None and self.n_read >= max_words:
                break
            dim = len(fields) - 1 if dim is None else dim
            # Some published files have words with spaces.
            word = " ".join(fields[: len(fields) - dim])
            self.n_read += 1
            if keep is not None and word not in keep and word:
                continue
            numbers = self._numbers(number, line, word, fields[len(fields) - dim :], dim)
            if word in words:
                logger.warning("%s, line %d: %r again; the first is kept", self.path, number, word)
                continue
            words[word] = None
            block.append(numbers)
            if len(block) == _BLOCK:
                blocks.append(np.array(block, np.float32))
                block = []
        if expected is not None and max_words is None and self.n_read != expected:
            raise InputError(
                f"{self.path}: the first line promises {expected} words; there are {self.n_read}. "
                "The file is cut off, or not of this form."
            )
        blocks.append(np.array(block, np.float32).reshape(len(block), dim or 0))
        return StaticVectors(list(words), np.concatenate(blocks))

    def _numbers(
        self, number: int, line: str, word: str, fields: Sequence[str], dim: int
    ) -> list[float]:
        try:
            numbers = list(map(float, fields))
        except ValueError:
            numbers = []
        # Of float32; nan is none of these.
        good = all(-_LARGEST <= x <= _LARGEST for x in numbers)
        if not word or dim < 1 or len(numbers) != dim or not good:
            raise InputError(
                f"{self.path}, line {number}: a word and {dim} numbers, separated by single "
                f"spaces, are expected, not {line[:_QUOTED]!r}."
            )
        return numbers

    def _refuse_binary(self) -> None:
        """Text has no control characters in its first lines; numbers in binary form do."""
        with reading_text(self.path) as stream:
            start = stream.read(4096)
        header, _, rest = start.partition(b"\n")
        if any(byte < 9 for byte in rest) and len(header.split()) == 2:
            raise InputError(
                f"{self.path}: word2vec's binary form; text is expected. gensim makes it: "
                "KeyedVectors.load_word2vec_format(path, binary=True).save_word2vec_format(new)."
            )


@dataclass(frozen=True)
class Word2VecSettings:
    """How word2vec is trained; gensim's own terms and, but for the threads, defaults.

    Attributes:
        dim: size of a vector.
        window: words on either side that are predicted.
        min_count: words that occur less often have no vector.
        epochs: passes over the text.
        skip_gram: skip-gram; False is CBOW.
        seed: of the first vectors and the drawing of negative samples.
        threads: with more than one the result differs a little from run to run.

    Raises:
        InputError: a number is out of its range.
    """

    dim: int = 100
    window: int = 5
    min_count: int = 5
    epochs: int = 5
    skip_gram: bool = True
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        require_count(2**16, dim=self.dim, window=self.window)
        require_count(2**20, epochs=self.epochs)
        require_count(_MOST_THREADS, threads=self.threads)
        require_count(min_count=self.min_count)
        require_at_least(0, 2**32 - 2, seed=self.seed)  # NumPy's older generator, and one more


def train_word2vec(
    read: Callable[[], Iterable[Sentence]], settings: Word2VecSettings | None = None
) -> StaticVectors:
    """Train word2vec (Mikolov et al. 2013) by gensim.

    Args:
        read: gives the sentences from the beginning, each time it is called: once to count the
            words, and once for each epoch.
        settings: None takes the defaults.

    Raises:
        InputError: gensim is not installed, no word occurs often enough, or there is too little
            memory for the words.
    """
    settings = settings or Word2VecSettings()
    gensim = import_extra("gensim.models", "word2vec")
    model = gensim.Word2Vec(
        vector_size=settings.dim,
        window=settings.window,
        min_count=settings.min_count,
        sg=int(settings.skip_gram),
        # gensim's generator takes no zero.
        seed=settings.seed + 1,
        workers=settings.threads,
        epochs=settings.epochs,
    )
    sentences = _Restarted(read)
    try:
        model.build_vocab(sentences)
    except MemoryError as error:
        raise InputError(
            f"dim = {settings.dim}: there is too little memory for the words: {error}."
        ) from error
    if not len(model.wv):
        raise InputError(f"min_count: no word of the text occurs {settings.min_count} times.")
    model.train(sentences, total_examples=model.corpus_count, epochs=settings.epochs)
    return StaticVectors(list(model.wv.index_to_key), np.asarray(model.wv.vectors, np.float32))


class _Restarted:
    """What gensim reads several times."""

    def __init__(self, read: Callable[[], Iterable[Sentence]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[list[str]]:
        return (list(sentence) for sentence in self._read())


def frequent_words(
    sentences: Iterable[Sentence], min_count: int = 5, max_words: int | None = None
) -> list[str]:
    """The words of a text by falling count, words of equal count in the order of characters.

    Raises:
        InputError: no word occurs often enough.
    """
    counts = Counter(token for sentence in sentences for token in sentence)
    ranked = sorted(
        (word for word, count in counts.items() if count >= min_count),
        key=lambda word: (-counts[word], word),
    )
    if not ranked:
        raise InputError(f"min_count: no word of the text occurs {min_count} times.")
    return ranked[:max_words]


def token_vectors(elmo: ELMo, words: Sequence[str]) -> StaticVectors:
    """Layer 0 of a model, which knows no context, as static vectors of words."""
    found = elmo.encode_iter([[word] for word in words], 0)
    return StaticVectors(words, np.array([vectors[0] for vectors in found], np.float32))


def mean_vectors(
    elmo: ELMo,
    words: Sequence[str],
    sentences: Iterable[Sentence],
    layer: int | str = "top",
    progress: Callable[[int], None] | None = None,
) -> StaticVectors:
    """The means of words' vectors over their occurrences in a text, as static vectors.

    Args:
        words: the words; one that does not occur has none.
        layer: "top", "average", or the number of a layer.
        progress: called with the number of sentences done.
    """
    numbers = {word: number for number, word in enumerate(words)}
    sums = np.zeros((len(words), elmo.dim))
    counts = np.zeros(len(words), np.int64)
    items = ((sentence, list(sentence)) for sentence in sentences if len(sentence))
    found = elmo.encode_iter(items, layer, with_ids=True)
    for done, (sentence, vectors) in enumerate(found, start=1):
        for token, vector in zip(sentence, vectors, strict=True):
            number = numbers.get(token)
            if number is not None:
                sums[number] += vector
                counts[number] += 1
        if progress is not None:
            progress(done)
    seen = np.flatnonzero(counts)
    means = (sums[seen] / counts[seen, None]).astype(np.float32)
    return StaticVectors([words[k] for k in map(int, seen)], means)


class AnalogyScore(NamedTuple):
    """How many questions of a section are answered with the right word.

    Attributes:
        section: its name; "Total accuracy" is that of all.
        right, asked: questions; those with a word that has no vector are not asked.
    """

    section: str
    right: int
    asked: int


def answer_analogies(
    vectors: StaticVectors, path: PathLike, max_words: int = 300_000
) -> list[AnalogyScore]:
    """Answer a file of questions `a b c d` a line, with `: section` lines between, by gensim.

    Args:
        max_words: the answer is looked for among the first words of the vectors.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: a line has not four words, or stands before the first section; no question has
            vectors for its words; no gensim.
    """
    n_questions, has_section = 0, False
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(":"):
            has_section = True
        elif line.strip():
            n_questions += 1
            if not has_section:
                raise InputError(f"{path}, line {number}: a line `: NAME` is expected before it.")
            if len(line.split()) != 4:
                raise InputError(
                    f"{path}, line {number}: four words are expected, not {line[:_QUOTED]!r}."
                )
    if not n_questions:
        raise InputError(f"{path}: there is no question.")
    keyed = vectors.keyed_vectors()
    _, sections = keyed.evaluate_word_analogies(os.fspath(path), restrict_vocab=max_words)
    scores = [
        AnalogyScore(
            part["section"], len(part["correct"]), len(part["correct"]) + len(part["incorrect"])
        )
        for part in sections
    ]
    if not scores[-1].asked:
        raise InputError(f"{path}: no question has vectors for all of its four words.")
    return scores
