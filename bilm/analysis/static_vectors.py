"""Static vectors, one per word in all contexts: the baseline for contextual vectors.

Files are text as word2vec and gensim's `KeyedVectors` write it: a line with the number of words and
dimensions, then one word and its numbers per line. GloVe's files lack the first line.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.analysis.occurrences import Sentence, comparison_form
from bilm.analysis.pictures import new_figure
from bilm.core.errors import InputError, import_extra, integer, one_of, require
from bilm.data.sentences import read_stream
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
_LONGEST = 10_000  # words of a sentence; gensim ignores the others
_HEAD = re.compile(r"[0-9]{1,9} [0-9]{1,9}")
_SURROGATE = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8
GOOGLE = "google"


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
        self._indices = {word: index for index, word in enumerate(words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.index(word) is not None

    def index(self, word: str) -> int | None:
        """The index of a word as it is, in NFC, or in lower case; None if none has a vector."""
        indices = (self._indices[form] for form in _forms(word) if form in self._indices)
        return next(indices, None)

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
        keys: list[list[str]] = [[], []]
        for key, words in zip(keys, (positive, negative), strict=True):
            for word in words:
                if (index := self.index(word)) is None:
                    raise InputError(f"{word!r} has no static vector.")
                if not self.vectors[index].any():
                    raise InputError(f"The static vector of {word!r} is zero, without direction.")
                key.append(self.words[index])
        pairs = self.keyed_vectors.most_similar(*keys, topn=n)
        return [(float(cosine), word) for word, cosine in pairs]

    def answered_analogies(self, path: PathLike) -> list[tuple[str, int, int]]:
        """How many analogies of a file gensim answers, by section, and in total at the end: the
        section, the right answers, and the analogies whose words all have a vector.

        The answer is the nearest of the first 300,000 words, in any case. The file has a line
        `: name` before each section, then four words per line; "google" is Google's file, which is
        part of gensim.

        Raises:
            FileNotFoundError: the file does not exist.
            InputError: a line is malformed, or no analogy has a vector for each of its words.
        """
        if path == GOOGLE:
            path = import_extra("gensim.test.utils", "Analogies").datapath("questions-words.txt")
        try:
            _, sections = self.keyed_vectors.evaluate_word_analogies(require_file(path, "file"))
        except (ValueError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: must have sections of analogies: {error}.") from error
        counts = []
        for section in sections:
            n_right, n_wrong = len(section["correct"]), len(section["incorrect"])
            counts.append((section["section"], n_right, n_right + n_wrong))
        if not counts or not counts[-1][2]:
            raise InputError(f"{path}: must have an analogy whose four words have vectors.")
        return counts

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
    def load(cls, path: PathLike, *, keep: Collection[str] | None = None) -> StaticVectors:
        """Read vectors of word2vec, GloVe or fastText: text, may be compressed, or .bin (.bin.gz).

        `keep` are the words to keep, also in NFC and in lower case. If a word is repeated, its
        first vector wins. Words that are not UTF-8, as in some published files, are skipped with a
        warning.

        Raises:
            FileNotFoundError: the file does not exist.
            InputError: the file is damaged or malformed (file and line), or has no vector to keep.
        """
        path = require_file(path, "file of static vectors")
        words = None if keep is None else {form for word in keep for form in _forms(word)}
        rows: dict[str, np.ndarray] = {}
        n_cut = 0
        reader = _read_binary if path.endswith(_BINARY) else _read_text
        for word, vector in reader(path):
            if _SURROGATE.search(word):
                n_cut += 1
            elif words is None or word in words:
                rows.setdefault(word, vector)
        if n_cut:
            warn_once(f"{path}: {n_cut:,} words are not UTF-8 and were skipped.")
        if not rows:
            which = "word." if keep is None else "of these words; is it for another language?"
            raise InputError(f"{path}: must have a vector for at least one {which}")
        return cls(list(rows), np.stack(list(rows.values())))


def _forms(word: str) -> Iterator[str]:
    """The forms under which a word may have a vector, the preferred one first."""
    yield word
    yield comparison_form(word, match_case=True)
    yield word.lower()
    yield comparison_form(word)


def _read_binary(path: str) -> Iterator[tuple[str, np.ndarray]]:
    keyed = import_extra("gensim.models", "Reading binary static vectors").KeyedVectors
    with compressed_damage_named(path):
        try:
            vectors = keyed.load_word2vec_format(
                path, binary=True, unicode_errors="surrogateescape"
            )
        except (ValueError, EOFError) as error:
            raise InputError(f"{path}: must be word2vec's text or binary form: {error}.") from error
    yield from zip(vectors.index_to_key, vectors.vectors, strict=True)


def _read_text(path: str) -> Iterator[tuple[str, np.ndarray]]:
    """A text file; gensim fails for GloVe's words with spaces, and keeps all words in memory."""
    dim, expected, n_read = 0, None, 0
    with open(path, "rb") as stream, compressed_damage_named(path):
        for number, raw in enumerate(decompressed(stream), start=1):
            # Not always UTF-8, because gensim truncates long words between bytes.
            line = raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape").rstrip()
            if number == 1 and _HEAD.fullmatch(line):
                expected, dim = map(int, line.split())
                continue
            dim = dim or (line.count(" ") if line.count(" ") > 1 else 0)
            word, *numbers = line.rsplit(" ", dim) if dim else [line]
            try:
                vector = np.array(numbers, np.float32)
                is_vector = word != "" and len(vector) == dim > 0 and np.isfinite(vector).all()
            except ValueError:
                is_vector = False
            if not is_vector:
                rule = f"{dim} numbers" if number > 1 else "its numbers, or two numbers"
                raise InputError(
                    f"{path}, line {number}: must be a word and {rule}, separated by single "
                    f"spaces, in UTF-8, got {line[:80]!r}."
                )
            n_read += 1
            yield word, vector
    if expected is not None and n_read != expected:
        raise InputError(f"{path}: must have {expected} words, as in its first line, got {n_read}.")


def train_word2vec(
    read: Callable[[], Iterable[str | Sentence]],
    *,
    method: str = "word2vec",
    dim: int = 100,
    min_count: int = 5,
    epochs: int = 5,
) -> StaticVectors:
    """Train word2vec (Mikolov et al. 2013) with gensim, in one thread, so that results repeat.

    Args:
        read: returns the sentences, lists of tokens or text that is split on white space; called
            once to count the words, and once per epoch.
        method: "word2vec": skip-gram; "cbow": a word is predicted from the mean of its context.
        min_count: words that occur less often are skipped.

    Raises:
        InputError: an argument is out of range, or no word is frequent enough.
    """
    require(one_of(("word2vec", "cbow")), method=method)
    require(integer(), epochs=epochs, min_count=min_count, dim=dim)
    model = import_extra("gensim.models", "word2vec").Word2Vec(
        vector_size=dim, min_count=min_count, sg=method != "cbow", seed=1, workers=1, epochs=epochs
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
    words = [word for word in counts if counts[word] >= min_count]
    if not words:
        raise InputError(f"min_count: no word of the text occurs {min_count} times.")
    return sorted(words, key=lambda word: (-counts[word], word))


def mean_vectors(
    elmo: ELMo, words: Sequence[str], sentences: Iterable[Sentence], layer: int | str = "top"
) -> StaticVectors:
    """The mean vector of each word over its occurrences in a text; other words are skipped."""
    sums: dict[str, np.ndarray] = {word: np.zeros(elmo.dim) for word in words}
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


def word_map(vectors: StaticVectors, groups: Mapping[str, Sequence[str]]) -> Any:
    """A figure of words in two dimensions by t-SNE on cosines, a colour per group; a word that is
    in several groups has the colour of the first."""
    manifold = import_extra("sklearn.manifold", "--picture")
    names: dict[str, str] = {}
    for name, words in groups.items():
        names |= {word: name for word in words if word not in names}
    table = vectors.table([*names])
    if len(names) < 3:
        raise InputError(f"a map must have three words, got {len(names)}.")
    tsne = manifold.TSNE(
        metric="cosine", perplexity=min(30, (len(names) - 1) / 3), init="random", random_state=0
    )
    points = tsne.fit_transform(table)
    figure = new_figure(8, 8)
    axes = figure.subplots()
    axes.set_axis_off()
    colours = {name: f"C{k % 10}" for k, name in enumerate(groups)}
    for (word, name), (x, y) in zip(names.items(), points, strict=True):
        axes.text(x, y, word, color=colours[name], ha="center", parse_math=False)
    axes.update_datalim(points)
    axes.autoscale_view()
    return figure
