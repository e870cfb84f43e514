"""Occurrences of words in sentences, with their vectors: the basis of all analysis.

    sample = sample_uses(sentences, ["bank", "spring"], max_occurrences=500)
    occurrences = Occurrences.encoded(elmo, sample)
    occurrences.neighbours(0, n=3, layer=1)

Only the sampled sentences and the vectors of the sampled words are kept: memory depends on the
sample, not on the size of the text.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.core.errors import SENTENCES, WORDS, InputError, Rule, integer, iterable, require
from bilm.data.sentences import as_tokens, parse_query
from bilm.files.reading import PathLike, require_file
from bilm.files.writing import atomic_write, require_place

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

Sentence = Sequence[str]
# The number of a layer, "top", or "average".
Layer = int | str

# Relative difference below which two vectors differ by rounding only.
_SMALLEST_DIFFERENCE = 1e-5


class Reservoir:
    """A uniform sample of `size` occurrences from a stream (reservoir sampling, algorithm R).

    Attributes:
        uses: the sample: sentence number, token position, and sentence of each occurrence.
        n_offered: length of the stream so far.
    """

    def __init__(self, size: int, seed: str) -> None:
        self.uses: list[tuple[int, int, str | Sentence]] = []
        self.n_offered = 0
        self._size = size
        # A text seed with a lone surrogate cannot be encoded; its bytes give the same numbers.
        self._draw = random.Random(seed.encode("utf-8", "surrogatepass")).random

    def offer(self, number: int, position: int, sentence: str | Sentence) -> None:
        self.n_offered += 1
        if len(self.uses) < self._size:
            self.uses.append((number, position, sentence))
            return
        slot = int(self._draw() * self.n_offered)
        if slot < self._size:
            self.uses[slot] = (number, position, sentence)


@dataclass(frozen=True, eq=False)
class Sample:
    """Occurrences of words drawn from a text, without vectors.

    Attributes:
        sentences: the sentences with occurrences, in the order of the text.
        positions: int64 (n, 2): sentence index, ascending, and token index.
        labels: a label for each occurrence, such as its sense; None without labels.
        counts: occurrences of each requested word in the text; the key is "" if all words
            were requested.
        lines: 0-based line number of each sentence in the text; empty if unknown.
    """

    sentences: list[tuple[str, ...]]
    positions: np.ndarray
    labels: list[str] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.positions)

    def word(self, occurrence: int) -> str:
        """The token itself."""
        number, position = self.positions[occurrence]
        return self.sentences[number][position]

    @classmethod
    def drawn(cls, reservoirs: Mapping[str, Reservoir], *, labelled: bool = False) -> Sample:
        """The occurrences in named reservoirs; if `labelled`, the names become the labels."""
        uses = sorted(
            (number, position, name)
            for name, reservoir in reservoirs.items()
            for number, position, _ in reservoir.uses
        )
        texts = {number: text for r in reservoirs.values() for number, _, text in r.uses}
        lines = sorted(texts)
        index = {number: k for k, number in enumerate(lines)}
        return cls(
            [tuple(as_tokens(texts[number], f"sentence {number}")) for number in lines],
            np.array([(index[number], k) for number, k, _ in uses], np.int64).reshape(-1, 2),
            [name for _, _, name in uses] if labelled else None,
            {name: reservoir.n_offered for name, reservoir in reservoirs.items()},
            lines,
        )


class Neighbours(NamedTuple):
    """The occurrences nearest to another one: pairs (cosine, occurrence), nearest first."""

    same_word: list[tuple[float, int]]
    other_words: list[tuple[float, int]]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (..., dim) to length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def indices_by_name(names: Iterable[str]) -> dict[str, np.ndarray]:
    """The indices of each distinct name, ascending."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        found[name].append(index)
    return {name: np.array(indices) for name, indices in found.items()}


def is_word(token: str) -> bool:
    """Whether a token is a word, not a number, punctuation or an identifier."""
    return token.isalpha() and (len(token) > 1 or not token.isascii())


def sample_uses(
    sentences: Iterable[str | Sentence],
    words: Iterable[str] | None = None,
    *,
    max_occurrences: int = 1000,
    seed: int = 0,
    match_case: bool = False,
) -> Sample:
    """Draw occurrences of words uniformly from a text, which is read once.

    Args:
        sentences: lists of tokens, or text that is split on white space.
        words: words to look for; the draw for one word does not depend on the others. None draws
            from all words of the text, without numbers and punctuation.
        max_occurrences: size of the sample for each word, or for all words together if `words` is
            None.
        match_case: distinguish apple from Apple.

    Raises:
        InputError: `words` is empty, or a word does not occur.
    """
    require(integer(), max_occurrences=max_occurrences)
    name_of: Callable[[str], str | None] = (lambda token: token) if match_case else str.lower
    if words is None:
        names, name_of = [""], lambda token: "" if is_word(token) else None
    else:
        require(iterable("words"), words=words)
        require(WORDS, words=(words := list(words)))
        names = [name_of(word) or "" for word in words]
    if not names:
        raise InputError("words must name at least one word.")
    drawn = {name: Reservoir(max_occurrences, f"{seed} {name}") for name in names}
    wanted: dict[str | None, list[Reservoir]] = {name: [r] for name, r in drawn.items()}
    offer_tokens(sentences, lambda token: wanted.get(name_of(token), ()))
    missing = [name for name in names if not drawn[name].n_offered]
    if missing and words is None:
        raise InputError("the text must have at least one word.")
    if missing:
        verb = "does" if len(missing) == 1 else "do"
        raise InputError(f"{', '.join(map(repr, missing))} {verb} not occur in the text.")
    return Sample.drawn({name: drawn[name] for name in names})


def offer_tokens(
    sentences: Iterable[str | Sentence], reservoirs_of: Callable[[str], Iterable[Reservoir]]
) -> None:
    """Offer each token of a text to the reservoirs of its word."""
    for number, sentence, tokens in numbered(sentences):
        for position, token in enumerate(tokens):
            for reservoir in reservoirs_of(token):
                reservoir.offer(number, position, sentence)


def sample_sentences(
    sentences: Iterable[str | Sentence], n: int, *, seed: int = 0
) -> list[tuple[str, ...]]:
    """Draw up to `n` non-empty sentences uniformly, in their order."""
    drawn = Reservoir(n, str(seed))
    for number, sentence, tokens in numbered(sentences):
        if len(tokens):
            drawn.offer(number, 0, sentence)
    chosen = sorted(drawn.uses, key=lambda use: use[0])
    return [tuple(as_tokens(text, f"sentence {number}")) for number, _, text in chosen]


def ordinary_words(sentences: Iterable[Sentence], n: int) -> list[str]:
    """Up to `n` frequent content words, by descending frequency.

    The most frequent words, which are mostly grammatical, are skipped; in scripts with capitals,
    names and words of up to three letters are skipped too.
    """
    counts = Counter(token for sentence in sentences for token in sentence)
    kept = [
        word
        for word in counts
        if word.isalpha()
        and ((word.islower() and len(word) > 3) or (len(word) > 1 and word.lower() == word.upper()))
    ]
    ranked = sorted(kept, key=lambda word: (-counts[word], word))
    return ranked[min(100, len(ranked) // 4) :][:n]


def numbered(
    sentences: Iterable[str | Sentence],
) -> Iterator[tuple[int, str | Sentence, Sentence]]:
    """The number of each sentence, the sentence as given, and its tokens."""
    require(SENTENCES, sentences=sentences)
    for number, sentence in enumerate(sentences):
        yield number, sentence, as_tokens(sentence, f"sentence {number}")


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Words in their sentences, with their vectors in all layers.

    An occurrence is a 0-based index into these arrays:

    Attributes:
        sentences: the sentences of the occurrences.
        positions: int64 (n, 2): sentence index and token index.
        vectors: float32 (n, layers, dim).
        labels: a label for each, such as its sense; None without labels.
        clusters: the name of each occurrence's cluster, or ""; None before `bilm senses`.
        about: the source of the vectors, JSON-able; `encoded` writes "model" (a fingerprint),
            "sample" (a checksum), "n" (size of the sample), and "layer" and "context" if given.
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
        """Number of layers, including layer 0 (the token encoder's)."""
        return self.vectors.shape[1]

    @classmethod
    def encoded(
        cls,
        elmo: ELMo,
        sample: Sample,
        *,
        layer: Layer | None = None,
        context: bool = False,
        file: PathLike | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Occurrences:
        """Compute the vectors of a sample.

        Args:
            elmo: the model.
            sample: from `sample_uses`, `read_labelled_uses`, or your own.
            layer: keep only this layer, as (n, 1, dim); None keeps all layers.
            context: add a last layer that does not see the word: the forward state at the previous
                token and the backward state at the next token, in the top layer (or `layer`);
                zeros at the ends of a sentence.
            file: a file of occurrences (see `save`), which is resumed if it exists. It is written
                at the end, and if Ctrl-C or an error stops the work.
            progress: called with the number of occurrences done, and the total.

        Raises:
            InputError: `file` has another model or sample; a vector is not finite; the sample's
                positions are not tokens in ascending order.
        """
        are_tokens = len(sample) > 0 and _are_tokens(sample.positions, sample.sentences)
        if not are_tokens or (np.diff(sample.positions[:, 0]) < 0).any():
            raise InputError("sample: positions (n, 2) must be tokens of the sentences, ascending.")
        about = {"model": elmo.fingerprint(), "sample": _checksum(sample), "n": len(sample)}
        about |= {"layer": layer} if layer is not None else {}
        about |= {"context": True} if context else {}
        n_layers = (elmo.n_layers if layer is None else 1) + context
        vectors = np.empty((len(sample), n_layers, elmo.dim), np.float32)
        done = 0
        if file is not None and os.path.exists(require_place(file)):
            earlier = cls.load(file)
            if earlier.about != about:
                raise InputError(
                    f"{file}: made with another model, other words, or another sample of the text; "
                    "name another file, or remove it."
                )
            done = len(earlier)
            vectors[:done] = earlier.vectors
        made = cls(sample.sentences, sample.positions, vectors, sample.labels, about)
        try:
            for done in _fill(elmo, sample, layer, context, vectors, done):  # noqa: B020
                if progress is not None:
                    progress(done, len(sample))
        except BaseException as error:
            if file is not None and done:
                made.select(np.arange(done)).save(file)
                if isinstance(error, KeyboardInterrupt):
                    raise KeyboardInterrupt(
                        f"{file} has {done:,} of {len(sample):,} occurrences; the same command "
                        "continues from it."
                    ) from None
            raise
        if file is not None:
            made.save(file)
        return made

    @classmethod
    def of_query(cls, elmo: ELMo, text: str) -> Occurrences:
        """The one marked word of a sentence such as "they [play] cards"; see `parse_query`."""
        tokens, position = parse_query(text)
        return cls.encoded(elmo, Sample([tokens], np.array([(0, position)], np.int64)))

    def select(self, chosen: np.ndarray | Sequence[int]) -> Occurrences:
        """Some of the occurrences: indices in any order, or a mask (n,)."""
        rows = np.asarray(chosen)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        parallel: dict[str, Any] = {
            name: [values[k] for k in rows.tolist()]
            for name, values in (("labels", self.labels), ("clusters", self.clusters))
            if values is not None
        }
        return replace(self, positions=self.positions[rows], vectors=self.vectors[rows], **parallel)

    def word(self, occurrence: int) -> str:
        """The token itself."""
        number, position = self.positions[occurrence]
        return self.sentences[number][position]

    def sentence(self, occurrence: int) -> Sentence:
        """The sentence of an occurrence."""
        return self.sentences[self.positions[occurrence, 0]]

    def around(self, occurrence: int, width: int | None) -> list[str]:
        """Up to `width` tokens on each side, without the word; None takes the sentence."""
        number, position = self.positions[occurrence]
        sentence = self.sentences[number]
        left, right = sentence[:position], sentence[position + 1 :]
        return [*left, *right] if width is None else [*left[-width or position :], *right[:width]]

    def in_context(self, occurrence: int, width: int = 6) -> str:
        """The token in brackets among `width` tokens on each side."""
        sentence, position = self.sentence(occurrence), int(self.positions[occurrence, 1])
        left = sentence[max(0, position - width) : position]
        right = sentence[position + 1 :]
        words = [*left, f"[{sentence[position]}]", *right[:width]]
        before, after = position > len(left), len(right) > width
        return " ".join(["..."] * before + words + ["..."] * after)

    def frame(self, occurrence: int) -> tuple[Sentence, str, Sentence]:
        """The previous token, the token and the next one; empty at the ends of the sentence."""
        number, position = self.positions[occurrence]
        tokens = tuple(self.sentences[number])
        return tokens[max(0, position - 1) : position], tokens[position], tokens[position + 1 :][:1]

    def of(self, word: str, *, match_case: bool = False) -> np.ndarray:
        """The occurrences of a word, by default in any case: int64, ascending."""
        found = np.flatnonzero(self.words == word.lower())
        return found[[self.word(int(k)) == word for k in found]] if match_case else found

    @cached_property
    def words(self) -> np.ndarray:
        """The words in lower case: object array (n,) of str."""
        return np.array([self.word(k).lower() for k in range(len(self))], object)

    def layer_number(self, layer: Layer) -> int | None:
        """The number of a layer given as a number or "top"; None for "average"."""
        if layer == "average":
            return None
        most = self.n_layers - 1
        number = most if layer == "top" else layer
        rule = f"'top', 'average' or a number from 0 to {most}"
        require(Rule(rule, integer(0, most).holds), layer=number)
        return int(number)

    def layer(self, layer: Layer) -> np.ndarray:
        """The vectors of a layer, or the mean of all layers: float32 (n, dim)."""
        number = self.layer_number(layer)
        return self.vectors.mean(axis=1) if number is None else self.vectors[:, number]

    def directions(self, layer: Layer = "top") -> np.ndarray:
        """The vectors of a layer minus their mean, scaled to length 1: float32 (n, dim).

        The common mean would make all contexts look similar.
        """
        return self.directions_of(self.layer(layer), layer)

    def directions_of(self, vectors: np.ndarray, layer: Layer = "top") -> np.ndarray:
        """The directions of other vectors (m, dim) of the layer from the mean of this sample.

        A vector equal to the mean, up to rounding, becomes zeros.
        """
        centred = vectors - self.layer(layer).mean(axis=0)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        has_direction = norms > np.maximum(_SMALLEST_DIFFERENCE * lengths, 1e-12)
        return np.where(has_direction, unit(centred), 0)

    def neighbours(self, query: int | Occurrences, n: int = 3, layer: Layer = "top") -> Neighbours:
        """The `n` nearest contexts of the same word and of other words, in other sentences.

        Text is often repeated with small changes, so contexts that share the previous and the next
        word count once.

        Args:
            query: an index, or a single occurrence from elsewhere (`of_query`), whose word need
                not occur here.
            n: number of contexts of each kind.
            layer: the layer whose directions are compared, by their cosine.
        """
        if isinstance(query, Occurrences):
            direction = self.directions_of(query.layer(layer)[:1], layer)[0]
            return self._nearest(self.directions(layer), direction, query, 0, n)
        require(integer(0, len(self) - 1), query=query)
        directions = self.directions(layer)
        return self._nearest(directions, directions[query], self, query, n)

    def neighbours_of_all(self, n: int = 3, layer: Layer = "top") -> list[Neighbours]:
        """`neighbours` of each occurrence."""
        directions = self.directions(layer)
        return [self._nearest(directions, directions[k], self, k, n) for k in range(len(self))]

    def _nearest(
        self, directions: np.ndarray, direction: np.ndarray, asked: Occurrences, number: int, n: int
    ) -> Neighbours:
        """The nearest contexts to occurrence `number` of `asked`, in other sentences."""
        cosines = directions @ direction
        if not direction.any():  # layer 0, when all occurrences have one spelling
            cosines[~directions.any(axis=1)] = 1
        ranked = np.argsort(-cosines, kind="stable")
        is_same = (self.words == asked.words[number])[ranked]
        sentence = tuple(asked.sentence(number))
        found = Neighbours([], [])
        for nearest, candidates in zip(found, (ranked[is_same], ranked[~is_same]), strict=True):
            seen = {asked.frame(number)}
            for other in map(int, candidates):
                if len(nearest) == n:
                    break
                frame = self.frame(other)
                if frame not in seen and tuple(self.sentence(other)) != sentence:
                    seen.add(frame)
                    nearest.append((float(cosines[other]), other))
        return found

    def contrasting_pair(self, word: str, layer: Layer = "top") -> tuple[int, int]:
        """Two occurrences of `word` in very different contexts.

        The occurrences are sorted along the first principal component of the word's vectors; the
        two are a tenth of the way from either end, since the ends are outliers.
        """
        own = self.of(word)
        vectors = self.directions(layer)[own]
        _, _, components = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        order = np.argsort(vectors @ components[0], kind="stable")
        tenth = len(own) // 10
        return int(own[order[tenth]]), int(own[order[-1 - tenth]])

    def save(self, path: PathLike) -> None:
        """Write an .npz file: the arrays, and everything else as JSON.

        Lone surrogates, which UTF-8 cannot encode, become question marks.
        """
        names = ("sentences", "labels", "clusters", "about")
        text = json.dumps({name: getattr(self, name) for name in names}, ensure_ascii=False)
        content = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        with atomic_write(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, vectors=self.vectors, positions=self.positions, text=content)

    @classmethod
    def load(cls, path: PathLike) -> Occurrences:
        """Read a file written by `save`."""
        path = require_file(path, "file of occurrences")
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                values = json.loads(arrays["text"].tobytes())
                values["sentences"] = [tuple(sentence) for sentence in values["sentences"]]
                loaded = cls(vectors=arrays["vectors"], positions=arrays["positions"], **values)
            parallel = [loaded.vectors, loaded.labels, loaded.clusters]
            fits = all(len(values) == len(loaded) for values in parallel if values is not None)
            fits = fits and loaded.vectors.ndim == 3 and bool(np.isfinite(loaded.vectors).all())
            if not (fits and _are_tokens(loaded.positions, loaded.sentences)):
                raise ValueError("its arrays do not fit each other, or have non-finite values")
            texts = itertools.chain(*loaded.sentences, loaded.labels or (), loaded.clusters or ())
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("its tokens, labels and clusters must be text")
        except Exception as error:  # NumPy and zipfile do not document what they raise
            raise InputError(f"{path}: not a file of occurrences, or damaged: {error}") from error
        return loaded


def require_one_model(one: Occurrences, other: Occurrences) -> None:
    """Require vectors with the same numbers of layers and dimensions."""
    shapes = [text.vectors.shape[1:] for text in (one, other)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"both texts must have vectors of one model, got (layers, dim) {shapes[0]} and "
            f"{shapes[1]}."
        )


def _are_tokens(positions: np.ndarray, sentences: Sequence[Sentence]) -> bool:
    """Whether all positions (n, 2) are tokens of the sentences."""
    if positions.shape != (len(positions), 2) or positions.dtype.kind != "i":
        return False
    number, position = positions.T
    lengths = np.array([*map(len, sentences), 0])
    number = np.where((number >= 0) & (number < len(sentences)), number, len(sentences))
    return bool(((position >= 0) & (position < lengths[number])).all())


def _fill(
    elmo: ELMo,
    sample: Sample,
    layer: Layer | None,
    context: bool,
    vectors: np.ndarray,
    done: int,
) -> Iterable[int]:
    """Compute the vectors from index `done` on; yield the number done after each sentence."""
    ends = np.searchsorted(sample.positions[:, 0], np.arange(len(sample.sentences)), "right")
    first = int(sample.positions[done, 0]) if done < len(sample) else len(sample.sentences)
    sentences = ([*sentence] for sentence in sample.sentences[first:])
    layers = "all" if layer is None else layer
    for number, found in enumerate(elmo.encode_iter(sentences, layers), start=first):
        stop = int(ends[number])
        # (layers, tokens, dim) or (tokens, dim) -> (occurrences, layers, dim)
        found = found.reshape(-1, *found.shape[-2:])
        if context:
            forward = elmo.dim // elmo.options.n_directions
            around = np.zeros_like(found[:1])
            around[:, 1:, :forward] = found[-1, :-1, :forward]
            around[:, :-1, forward:] = found[-1, 1:, forward:]
            found = np.concatenate([found, around])
        found = found[:, sample.positions[done:stop, 1]]
        if not np.isfinite(found).all():
            raise InputError(
                "the model's vectors are not finite: its weights are damaged, or its training "
                "diverged."
            )
        vectors[done:stop] = found.transpose(1, 0, 2)
        done = stop
        yield done


def _checksum(sample: Sample) -> str:
    value = 0
    for sentence in sample.sentences:
        value = zlib.crc32(f"{' '.join(sentence)}\n".encode("utf-8", "surrogatepass"), value)
    value = zlib.crc32(np.ascontiguousarray(sample.positions, "<i8").tobytes(), value)
    return f"{zlib.crc32(json.dumps(sample.labels).encode(), value):08x}"
