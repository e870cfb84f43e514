"""Occurrences of words in sentences, with the vectors of all layers: what analysis begins with.

    sample = sample_uses(sentences, ["bank", "spring"], max_occurrences=500)
    occurrences = Occurrences.encoded(elmo, sample)
    occurrences.neighbours(0, n=3, layer=1)

Only the sampled sentences are kept, and only the vectors of the words that are asked for: memory
depends on the sample and not on the text.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, checked, require_iterable, require_words, shown
from bilm.files.reading import PathLike, read_lines, require_file
from bilm.files.writing import atomic_write, require_place

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

Sentence = Sequence[str]
# The number of a layer, "top", or "average".
Layer = int | str

_MARKED = re.compile(r"\[(\S+)\]")
_ARRAYS = ("positions", "text", "vectors")
# Vectors that differ by less than this part of their length differ by rounding errors.
_SMALLEST_DIFFERENCE = 1e-5


@dataclass(frozen=True, eq=False)
class Sample:
    """Uses of words that were drawn from a text.

    Attributes:
        sentences: the sentences that hold them, in the order of the text.
        positions: int64 (n, 2): the number of the sentence, ascending, and the position of the
            token in it, both from 0.
        labels: a label for each use, such as its sense; None without labels.
        counts: how often each word that was asked for occurs in the whole text, by the word as it
            is compared; under "" the number of all words, where none was asked for.
    """

    sentences: list[tuple[str, ...]]
    positions: np.ndarray
    labels: list[str] | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.positions)


class Neighbours(NamedTuple):
    """What is nearest to an occurrence: pairs of a cosine and an occurrence, nearest first."""

    same_word: list[tuple[float, int]]
    other_words: list[tuple[float, int]]


def unit(vectors: np.ndarray) -> np.ndarray:
    """The rows (n, dim) at length 1; zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def is_word(token: str) -> bool:
    """Whether a token is a word and not a number, a mark or a name in code."""
    return token.isalpha() and (len(token) > 1 or not token.isascii())


@checked
def parse_query(text: str) -> tuple[tuple[str, ...], int]:
    """The tokens of a sentence such as "they [play] cards", and the position of the marked one.

    Raises:
        InputError: no token, or more than one, is in brackets.
    """
    tokens = text.split()
    marked = [k for k, token in enumerate(tokens) if _MARKED.fullmatch(token)]
    if len(marked) != 1:
        found = "none does" if not marked else f"{len(marked)} do"
        raise InputError(
            f'{shown(text)}: one token in brackets is expected, as in "they [play] cards", with '
            f"spaces around it; {found}."
        )
    position = marked[0]
    tokens[position] = tokens[position][1:-1]
    return tuple(tokens), position


@checked
def sample_uses(
    sentences: Iterable[str | Sentence],
    words: Iterable[str] | None = None,
    *,
    max_occurrences: int = 1000,
    seed: int = 0,
    match_case: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Sample:
    """Draw uses of words from a text that is read once, whatever its size.

    Args:
        sentences: lists of tokens, or text that is split on white space.
        words: words to look for; what is drawn of one does not depend on the others. None draws
            from all words of the text, without numbers and marks.
        max_occurrences: uses that are kept of each word, of all words together if `words` is None:
            each use is as likely as any other to be kept.
        seed: of the drawing.
        match_case: tell apple from Apple.
        progress: called with the number of sentences and of tokens so far.

    Raises:
        InputError: no word is named, or a word does not occur.
    """
    if max_occurrences < 1:
        raise InputError(
            f"max_occurrences: a whole number from 1 is expected, not {shown(max_occurrences)}."
        )
    if words is not None:
        require_iterable("words", words=words)
        words = list(words)
        require_words(words=words)
    fold = (lambda token: token) if match_case else str.lower
    wanted = None if words is None else list(dict.fromkeys(map(fold, words)))
    if wanted is not None and not wanted:
        raise InputError("words: at least one word is expected.")
    drawn = {word: _Reservoir(max_occurrences, f"{seed} {word}") for word in wanted or [""]}
    everything = None if wanted is not None else drawn[""]
    n_tokens = 0
    for number, tokens in enumerate(_tokens(sentences)):
        for position, token in enumerate(tokens):
            if everything is None:
                reservoir = drawn.get(fold(token))
            else:
                reservoir = everything if is_word(token) else None
            if reservoir is not None:
                reservoir.offer(number, position, tokens)
        n_tokens += len(tokens)
        if progress is not None:
            progress(number + 1, n_tokens)
    missing = [word for word in drawn if not drawn[word].n_offered]
    if missing:
        if everything:
            raise InputError("there are no words in the text.")
        verb = "does" if len(missing) == 1 else "do"
        raise InputError(f"{', '.join(map(repr, missing))} {verb} not occur in the text.")
    uses = sorted(use for reservoir in drawn.values() for use in reservoir.uses)
    numbers = list(dict.fromkeys(number for number, _, _ in uses))
    index = {number: k for k, number in enumerate(numbers)}
    texts = {number: tokens for number, _, tokens in uses}
    return Sample(
        [tuple(texts[number]) for number in numbers],
        np.array([(index[number], position) for number, position, _ in uses], np.int64),
        counts={word: reservoir.n_offered for word, reservoir in drawn.items()},
    )


@checked
def sample_sentences(
    sentences: Iterable[str | Sentence], n: int, *, seed: int = 0
) -> list[tuple[str, ...]]:
    """Draw up to `n` sentences that are not empty, each as likely as any other, in their order."""
    drawn = _Reservoir(n, str(seed))
    for number, tokens in enumerate(_tokens(sentences)):
        if len(tokens):
            drawn.offer(number, 0, tokens)
    return [tuple(tokens) for _, _, tokens in sorted(drawn.uses, key=lambda use: use[0])]


def ordinary_words(sentences: Iterable[Sentence], n: int) -> list[str]:
    """Up to `n` frequent words that have a meaning to look at, by falling count.

    The most frequent ones, which mostly have a grammatical role, are left out, and names and short
    words where the script has capitals.
    """
    counts = Counter(token for sentence in sentences for token in sentence)
    kept = [
        word
        for word in counts
        if word.isalpha() and ((word.islower() and len(word) > 3) or _is_of_script(word))
    ]
    ranked = sorted(kept, key=lambda word: (-counts[word], word))
    return ranked[min(100, len(ranked) // 4) :][:n]


def _is_of_script(word: str) -> bool:
    """Whether a word is of a script that does not tell small from capital letters."""
    return len(word) > 1 and word.lower() == word.upper()


def _tokens(sentences: Iterable[str | Sentence]) -> Iterator[Sentence]:
    require_iterable("sentences", sentences=sentences)
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            yield sentence.split()
            continue
        require_words(**{f"sentence {number}": sentence})
        yield sentence


class _Reservoir:
    """A uniform sample of a stream (reservoir sampling, Vitter's algorithm R)."""

    def __init__(self, size: int, seed: str) -> None:
        self.uses: list[tuple[int, int, Sentence]] = []
        self.n_offered = 0
        self._size = size
        # As bytes, which a lone surrogate has too; Python makes the same of text.
        self._draw = random.Random(seed.encode("utf-8", "surrogatepass")).random

    def offer(self, number: int, position: int, tokens: Sentence) -> None:
        self.n_offered += 1
        if len(self.uses) < self._size:
            self.uses.append((number, position, tokens))
            return
        slot = int(self._draw() * self.n_offered)
        if slot < self._size:
            self.uses[slot] = (number, position, tokens)


@checked
def read_labelled_uses(path: PathLike) -> Sample:
    """Uses of words with a label each: `label TAB sentence with one [word] in brackets` a line.

    Lines of the same sentence that follow each other are uses within one sentence.

    Raises:
        FileNotFoundError, InputError: there is no such file, or a line is not of this form.
    """
    sentences: list[tuple[str, ...]] = []
    positions, labels = [], []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            raise InputError(
                f"{path}, line {number}: a label, a tab and a sentence with one [word] in brackets "
                f"are expected, not {line[:80]!r}."
            )
        try:
            tokens, position = parse_query(text)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        # Uses in one sentence are often one after the other: it is then encoded once.
        if not sentences or sentences[-1] != tokens:
            sentences.append(tokens)
        positions.append((len(sentences) - 1, position))
        labels.append(label.strip())
    if not sentences:
        raise InputError(f"{path}: there is no labelled use of a word.")
    return Sample(sentences, np.array(positions, np.int64), labels)


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Words where they occur, with their vectors in all layers.

    An occurrence is a number from 0, the index into these arrays:

    Attributes:
        sentences: the sentences, which hold other tokens too.
        positions: int64 (n, 2): the number of the sentence, and of the token in it.
        vectors: float32 (n, layers, dim).
        labels: a label for each, such as its sense; None without labels.
        clusters: the name of each occurrence's cluster, "" for none; None before `bilm senses`.
        about: what they were made from, JSON-able; `encoded` writes "model" (a fingerprint),
            "sample" (a checksum of the uses) and "n" (uses in the sample).
    """

    sentences: Sequence[Sentence]
    positions: np.ndarray
    vectors: np.ndarray
    labels: Sequence[str] | None = None
    about: dict[str, Any] = field(default_factory=dict)
    clusters: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def n_layers(self) -> int:
        """Layers that there are, layer 0 (the token encoder's) among them."""
        return self.vectors.shape[1]

    @classmethod
    def encoded(
        cls,
        elmo: ELMo,
        sample: Sample,
        *,
        file: PathLike | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Occurrences:
        """The uses of a sample with their vectors.

        Args:
            elmo: the model.
            sample: from `sample_uses`, `read_labelled_uses`, or one's own.
            file: a file of occurrences (see `save`): what it holds of this sample and model is
                not computed again; it is written at the end, and also when the work is stopped
                by Ctrl-C or an error, with what has been computed.
            progress: called with occurrences done, and all of them.

        Raises:
            FileNotFoundError: there is no folder for `file`.
            InputError: `file` is of another model or sample, or a word has no vector, or one that
                is not finite; the positions of the sample are not those of tokens in ascending
                order.
        """
        _check_sample(sample)
        if file is not None:
            require_place(file)
        about = {"model": elmo.fingerprint(), "sample": _checksum(sample), "n": len(sample)}
        shape = (len(sample), elmo.n_layers, elmo.dim)
        vectors = np.empty(shape, np.float32)
        done = 0
        if file is not None and os.path.exists(file):
            earlier = cls.load(file)
            if earlier.about != about:
                raise InputError(
                    f"{file}: made with another model, other words, or another sample of the text; "
                    "name another file, or remove it."
                )
            done = len(earlier)
            vectors[:done] = earlier.vectors
        whole = cls(sample.sentences, sample.positions, vectors, sample.labels, about)
        try:
            for done in _fill(elmo, sample, vectors, done):  # noqa: B020
                if progress is not None:
                    progress(done, len(sample))
        except BaseException as error:
            if file is not None and done:
                whole.select(np.arange(done)).save(file)
                if isinstance(error, KeyboardInterrupt):
                    raise KeyboardInterrupt(
                        f"{file} has {done:,} of {len(sample):,} occurrences; the same command "
                        "continues from it."
                    ) from None
            raise
        if file is not None:
            whole.save(file)
        return whole

    @classmethod
    def of_query(cls, elmo: ELMo, text: str) -> Occurrences:
        """The one marked word of a sentence such as "they [play] cards"; see `parse_query`."""
        tokens, position = parse_query(text)
        return cls.encoded(elmo, Sample([tokens], np.array([(0, position)], np.int64)))

    def select(self, chosen: np.ndarray) -> Occurrences:
        """Some of the occurrences: their numbers in any order, or a mask (n,)."""
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        parallel = {
            name: [values[int(k)] for k in chosen]
            for name, values in (("labels", self.labels), ("clusters", self.clusters))
            if values is not None
        }
        return replace(
            self, positions=self.positions[chosen], vectors=self.vectors[chosen], **parallel
        )

    def word(self, occurrence: int) -> str:
        """The token itself."""
        number, position = self.positions[occurrence]
        return self.sentences[number][position]

    def sentence(self, occurrence: int) -> Sentence:
        """The sentence that it occurs in."""
        return self.sentences[self.positions[occurrence, 0]]

    def in_context(self, occurrence: int, width: int = 6) -> str:
        """The token in brackets among `width` tokens on each side."""
        number, position = self.positions[occurrence]
        sentence = self.sentences[number]
        left = sentence[max(0, position - width) : position]
        right = sentence[position + 1 : position + 1 + width]
        before = "... " if position > width else ""
        after = " ..." if position + 1 + width < len(sentence) else ""
        return f"{before}{' '.join([*left, f'[{sentence[position]}]', *right])}{after}"

    def frame(self, occurrence: int) -> tuple[Sentence, str, Sentence]:
        """The token before, itself, and after it; empty where the sentence ends."""
        number, position = self.positions[occurrence]
        tokens = tuple(self.sentences[number])
        return tokens[max(0, position - 1) : position], tokens[position], tokens[position + 1 :][:1]

    def of(self, word: str, *, match_case: bool = False) -> np.ndarray:
        """The occurrences of a word, by default however capitalised: integers, ascending."""
        found = np.flatnonzero(self.words == word.lower())
        return found[[self.word(int(k)) == word for k in found]] if match_case else found

    @cached_property
    def words(self) -> np.ndarray:
        """The words in small letters: (n,) of Python's str, each as long as it is."""
        return np.array([self.word(k).lower() for k in range(len(self))], object)

    def layer_number(self, layer: Layer) -> int | None:
        """The number of a layer that "top" or a number from 0 names; None for "average".

        Raises:
            InputError: there is no such layer.
        """
        if isinstance(layer, str) and layer == "average":
            return None
        is_top = isinstance(layer, str) and layer == "top"
        number = self.n_layers - 1 if is_top else layer
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            number = -1
        if not 0 <= number < self.n_layers:
            raise InputError(
                f"layer: 'top', 'average' or a number from 0 to {self.n_layers - 1} is expected, "
                f"not {shown(layer)}."
            )
        return int(number)

    def layer(self, layer: Layer) -> np.ndarray:
        """The vectors of a layer, or the mean of all layers: float32 (n, dim)."""
        number = self.layer_number(layer)
        return self.vectors.mean(axis=1) if number is None else self.vectors[:, number]

    def directions(self, layer: Layer = "top") -> np.ndarray:
        """The vectors of a layer without their mean, at length 1: float32 (n, dim).

        What all vectors share would otherwise make all contexts alike.
        """
        return self.directions_of(self.layer(layer), layer)

    def directions_of(self, vectors: np.ndarray, layer: Layer = "top") -> np.ndarray:
        """Vectors (m, dim) of the same layer from elsewhere, as `directions` has those of here.

        A vector that is the mean but for rounding errors has no direction: zeros.
        """
        centred = vectors - self.layer(layer).mean(axis=0)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        has_direction = norms > np.maximum(_SMALLEST_DIFFERENCE * lengths, 1e-12)
        return np.where(has_direction, unit(centred), 0)

    @checked
    def neighbours(self, query: int | Occurrences, n: int = 3, layer: Layer = "top") -> Neighbours:
        """The `n` nearest contexts of the same word and of other words, in other sentences.

        Text is often repeated with small changes: contexts that share the word before and the word
        after count once.

        Args:
            query: number of an occurrence, or one occurrence from elsewhere (`of_query`), whose
                word need not occur here.
            n: number of contexts of each kind.
            layer: the layer whose vectors are compared, by the cosine after subtracting their mean.
        """
        if isinstance(query, Occurrences):
            direction = self.directions_of(query.layer(layer)[:1], layer)[0]
            return self._nearest(self.directions(layer), direction, query, 0, -1, n)
        is_number = isinstance(query, int | np.integer) and not isinstance(query, bool)
        if not is_number or not 0 <= query < len(self):
            raise InputError(
                f"query must be an `Occurrences` or a number from 0 to {len(self) - 1}, got "
                f"{shown(query)}."
            )
        return self._own_nearest(self.directions(layer), int(query), n)

    def neighbours_of_all(self, n: int = 3, layer: Layer = "top") -> list[Neighbours]:
        """`neighbours` of each occurrence."""
        directions = self.directions(layer)
        return [self._own_nearest(directions, number, n) for number in range(len(self))]

    def _own_nearest(self, directions: np.ndarray, number: int, n: int) -> Neighbours:
        own = int(self.positions[number, 0])
        return self._nearest(directions, directions[number], self, number, own, n)

    def _nearest(
        self,
        directions: np.ndarray,
        direction: np.ndarray,
        asked: Occurrences,
        number: int,
        own: int,
        n: int,
    ) -> Neighbours:
        """The nearest contexts to occurrence `number` of `asked`, outside sentence `own`."""
        cosines = directions @ direction
        if not direction.any():  # layer 0, when all occurrences have one spelling
            cosines[~directions.any(axis=1)] = 1
        ranked = np.argsort(-cosines, kind="stable")
        is_same = (self.words == asked.words[number])[ranked]
        sentence = tuple(asked.sentence(number))
        found: list[list[tuple[float, int]]] = []
        for candidates in (ranked[is_same], ranked[~is_same]):
            seen, nearest = {asked.frame(number)}, []
            for other in map(int, candidates):
                if len(nearest) == n:
                    break
                is_own = self.positions[other, 0] == own or tuple(self.sentence(other)) == sentence
                if not is_own and (frame := self.frame(other)) not in seen:
                    seen.add(frame)
                    nearest.append((float(cosines[other]), other))
            found.append(nearest)
        return Neighbours(*found)

    def contrasting_pair(self, word: str, layer: Layer = "top") -> tuple[int, int]:
        """Two occurrences of `word` in contexts as different as most of its contexts allow.

        They are a tenth of the way from either end of the line along which the word's vectors
        differ most (their first principal component); the ends themselves are oddities.

        Raises:
            KeyError: the word does not occur.
        """
        own = self.of(word)
        if not len(own):
            raise KeyError(word)
        vectors = self.directions(layer)[own]
        _, _, components = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        order = np.argsort(vectors @ components[0], kind="stable")
        tenth = len(own) // 10
        return int(own[order[tenth]]), int(own[order[-1 - tenth]])

    def save(self, path: PathLike) -> None:
        """Write a file (npz: the arrays, and sentences, labels and `about` as JSON)."""
        text = json.dumps(
            {
                "sentences": [list(sentence) for sentence in self.sentences],
                "labels": None if self.labels is None else list(self.labels),
                "clusters": None if self.clusters is None else list(self.clusters),
                "about": self.about,
            },
            ensure_ascii=False,
        )
        # A lone surrogate, which has no UTF-8 form, becomes a question mark.
        content = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        with atomic_write(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, vectors=self.vectors, positions=self.positions, text=content)

    @classmethod
    @checked
    def load(cls, path: PathLike) -> Occurrences:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: it is not a file of occurrences, or its parts do not fit each other.
        """
        path = require_file(path, "file of occurrences")
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                positions, text, vectors = (arrays[name] for name in _ARRAYS)
            values = json.loads(text.tobytes())
            loaded = cls(
                [tuple(sentence) for sentence in values["sentences"]],
                positions,
                vectors,
                values["labels"],
                values["about"],
                values.get("clusters"),  # files written before clusters were kept lack it
            )
            _check(loaded)
        except Exception as error:  # NumPy and zipfile do not say what they raise
            raise InputError(f"{path}: not a file of occurrences, or damaged: {error}") from error
        return loaded


def require_occurrences(value: Any) -> None:
    """Check an argument.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(value, Occurrences):
        raise InputError(f"occurrences: `Occurrences` are expected, not {shown(value)}.")


def _check(loaded: Occurrences) -> None:
    """Raise a ValueError unless the parts fit each other."""
    n = len(loaded.positions)
    if loaded.positions.shape != (n, 2) or loaded.positions.dtype.kind != "i":
        raise ValueError(f"positions: integers ({n}, 2) are expected")
    shape = loaded.vectors.shape
    if loaded.vectors.dtype != np.float32 or len(shape) != 3 or shape[0] != n:
        raise ValueError(f"vectors: float32 ({n}, layers, dim) is expected, not {shape}")
    if not np.isfinite(loaded.vectors).all():
        raise ValueError("vectors: not all numbers are finite")
    if not isinstance(loaded.about, dict):
        raise ValueError("about: an object is expected")
    for name, values in (("labels", loaded.labels), ("clusters", loaded.clusters)):
        if values is None:
            continue
        if len(values) != n or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name} must be null or a list of {n} texts")
        "".join(values).encode()  # fails for a lone surrogate, which no file can hold
    lengths = [len(sentence) for sentence in loaded.sentences]
    for number, position in loaded.positions:
        if not (0 <= number < len(lengths) and 0 <= position < lengths[number]):
            raise ValueError(f"positions: there is no token {position} in sentence {number}")
    for sentence in loaded.sentences:
        if not all(isinstance(token, str) for token in sentence):
            raise ValueError("sentences must be lists of texts")
        "".join(sentence).encode()


def _check_sample(sample: Sample) -> None:
    """Raise an InputError unless the uses are tokens of the sentences, in their order."""
    lengths = np.array([len(sentence) for sentence in sample.sentences])
    number, position = sample.positions.reshape(-1, 2).T
    good = len(number) > 0 and ((number >= 0) & (number < len(lengths))).all()
    good = good and ((position >= 0) & (position < lengths[number])).all()
    if not (good and (np.diff(number) >= 0).all()):
        raise InputError(
            "sample: positions (n, 2) of tokens within the sentences are expected, ascending."
        )


def _fill(elmo: ELMo, sample: Sample, vectors: np.ndarray, done: int) -> Iterable[int]:
    """Compute the vectors from number `done` on; yield how many are there, after each sentence."""
    ends = np.searchsorted(sample.positions[:, 0], np.arange(len(sample.sentences)), "right")
    first = int(sample.positions[done, 0]) if done < len(sample) else len(sample.sentences)
    sentences = ([*sentence] for sentence in sample.sentences[first:])
    for number, layers in enumerate(elmo.encode_iter(sentences, "all"), start=first):
        stop = int(ends[number])
        # (layers, tokens, dim) -> (uses, layers, dim)
        found = layers[:, sample.positions[done:stop, 1]].transpose(1, 0, 2)
        if not np.isfinite(found).all():
            raise InputError(
                "the model's vectors hold numbers that are not finite: its weights are damaged, or "
                "its training diverged."
            )
        vectors[done:stop] = found
        done = stop
        yield done


def _checksum(sample: Sample) -> str:
    text = io.StringIO()
    for sentence in sample.sentences:
        text.write(" ".join(sentence) + "\n")
    value = zlib.crc32(text.getvalue().encode("utf-8", "surrogatepass"))
    value = zlib.crc32(np.ascontiguousarray(sample.positions, "<i8").tobytes(), value)
    return f"{zlib.crc32(json.dumps(sample.labels).encode(), value):08x}"
