"""Occurrences of words in sentences, with their vectors: the basis of all analysis.

    sample = sample_uses(sentences, ["bank", "spring"], max_occurrences=500)
    occurrences = Occurrences.encoded(elmo, sample)
    occurrences.neighbours(0, n=3, layer=1)

Memory depends on the sample, not on the size of the text.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bilm.core.errors import SENTENCES, WORDS, InputError, integer, not_finite, require
from bilm.data.sentences import parse_query, read_stream
from bilm.files.identity import require_same_model, without_old_digests
from bilm.files.reading import PathLike, new_digest, require_file
from bilm.files.writing import Outputs, atomic_write
from bilm.inference.layers import layer_number
from bilm.progress import ShowStage, Stage, quiet

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

Sentence = Sequence[str]
# The number of a layer, or "top".
Layer = int | str
_Words = TypeVar("_Words", bound="WordsInSentences")

# Relative difference below which two vectors differ by rounding only.
_SMALLEST_DIFFERENCE = 1e-5
_JOINERS = "\u200c\u200d"  # zero width, also within words


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (..., dim) to length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def indices_by_name(names: Iterable[str]) -> dict[str, np.ndarray]:
    """The indices of each distinct name, ascending."""
    indices: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(names):
        indices[name].append(index)
    return {name: np.array(numbers) for name, numbers in indices.items()}


def comparison_form(word: str, match_case: bool = False) -> str:
    """The form in which words are compared: in NFC, and in lower case without `match_case`.

    Keyboards and texts encode the same letter differently, as Yiddish and Bengali ones do.
    """
    return unicodedata.normalize("NFC", word if match_case else word.lower())


def forms_of(target: str) -> list[str]:
    """The forms of a target: `bank+banks` has two; `c++` and `+` have one."""
    forms = target.split("+")
    return list(dict.fromkeys(forms)) if all(forms) else [target]


def parse_target(
    text: str, split: Callable[[str], list[str]] = str.split
) -> tuple[tuple[str, ...], int, str]:
    """The tokens of a sentence such as "they [play] cards", the position of the marked token, and
    the target. If the target has several forms, as in "they [play+plays] cards", the tokens have
    its first form. `split` as for `parse_query`."""
    target = next(iter(re.findall(r"\[([^\s\[\]]+)\]", text)), "")
    text = text.replace(f"[{target}]", f"[{forms_of(target)[0]}]")
    tokens, position = parse_query(text, split)
    return tokens, position, target


def is_word(token: str) -> bool:
    """Whether a token is a word, not a number, punctuation or an identifier.

    Vowel signs, accents and joiners, as in Hindi and Persian words, are not letters for Python.
    """
    if not token.isalpha():
        token = "".join(c for c in token if c not in _JOINERS and unicodedata.category(c)[0] != "M")
    return token.isalpha() and (len(token) > 1 or not token.isascii())


# Words in sentences


@dataclass(frozen=True, eq=False)
class WordsInSentences:
    """Words in their sentences; an occurrence is a 0-based index."""

    sentences: Sequence[Sentence]
    positions: np.ndarray  # int64 (n, 2): sentence index and token index

    def __len__(self) -> int:
        return len(self.positions)

    def word(self, occurrence: int) -> str:
        """The token itself."""
        number, position = self.positions[occurrence]
        return self.sentences[number][position]

    def sentence(self, occurrence: int) -> Sentence:
        """The sentence of an occurrence."""
        return self.sentences[self.positions[occurrence, 0]]

    def sides(self, occurrence: int, width: int | None = None) -> tuple[Sentence, Sentence]:
        """Up to `width` tokens before the word and after it; None takes all of them."""
        number, position = self.positions[occurrence]
        sentence = self.sentences[number]
        start = 0 if width is None else max(0, position - width)
        return sentence[start:position], sentence[position + 1 :][:width]

    def around(self, occurrence: int, width: int) -> tuple[str, str, str]:
        """The text before a word, the word, and the text after it; dots for omitted tokens."""
        (left, right), all_tokens = self.sides(occurrence, width), self.sides(occurrence)
        before, after = (["..."] * (len(side) > width) for side in all_tokens)
        return " ".join([*before, *left]), self.word(occurrence), " ".join([*right, *after])

    def in_context(self, occurrence: int, width: int = 6) -> str:
        """The token in brackets among `width` tokens on each side."""
        left, word, right = self.around(occurrence, width)
        return " ".join(filter(None, (left, f"[{word}]", right)))

    @cached_property
    def words(self) -> np.ndarray:
        """The words in lower case and NFC: object array (n,) of str."""
        return np.array([comparison_form(self.word(k)) for k in range(len(self))], object)

    @cached_property
    def names(self) -> np.ndarray:
        """The target of each occurrence, or without targets the word in lower case: object array
        (n,) of str."""
        targets = getattr(self, "targets", None)
        return self.words if targets is None else np.array(targets, object)

    def of(self, target: str, *, match_case: bool = False) -> np.ndarray:
        """The occurrences of a word or of all forms of a target such as `bank+banks`, by default
        in any case: int64, ascending."""
        forms = forms_of(comparison_form(target, match_case))
        words = (
            (comparison_form(self.word(k), True) for k in range(len(self)))
            if match_case
            else self.words
        )
        return np.flatnonzero([word in forms for word in words])

    def of_targets(self: _Words, targets: Sequence[str], *, match_case: bool = False) -> _Words:
        """The occurrences of targets, each with its target.

        Raises:
            InputError: a target does not occur; callers prefix the message with the text's name.
        """
        matches = [(int(k), t) for t in targets for k in self.of(t, match_case=match_case)]
        matches.sort(key=lambda match: match[0])
        names = [target for _, target in matches]
        if missing := [repr(target) for target in targets if target not in names]:
            raise InputError(f"must have an occurrence of {', '.join(missing)}.")
        subset: Any = self.select([k for k, _ in matches])
        return replace(subset, targets=names)

    def select(self: _Words, chosen: np.ndarray | Sequence[int]) -> _Words:
        """Some of the occurrences: indices in any order, or a mask (n,)."""
        rows = np.asarray(chosen)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        parallel: dict[str, Any] = {}
        for name in ("positions", "vectors", "labels", "clusters", "targets"):
            values = getattr(self, name, None)
            if isinstance(values, np.ndarray):
                parallel[name] = values[rows]
            elif values is not None:
                parallel[name] = [values[k] for k in rows.tolist()]
        return replace(self, **parallel)

    def distinct(self, ranked: Iterable[int], n: int) -> list[int]:
        """The first `n` ranked occurrences in different contexts.

        Text is often repeated with small changes: contexts of a word differ in their sentence and
        in the words next to it.
        """
        occurrences: list[int] = []
        earlier: set[object] = set()
        for k in map(int, ranked):
            if len(occurrences) == n:
                break
            left, right = self.sides(k, 1)
            keys = {tuple(self.sentence(k)), (*left, None, self.word(k), None, *right)}
            if earlier.isdisjoint(keys):
                occurrences.append(k)
            earlier |= keys
        return occurrences


@dataclass(frozen=True, eq=False)
class Sample(WordsInSentences):
    """Occurrences of words drawn from a text, without vectors; sentence indices ascend."""

    labels: Sequence[str] | None = None  # of each occurrence, such as its sense
    # Occurrences of each target in the text, under "" if all words were requested.
    counts: dict[str, int] = field(default_factory=dict)
    targets: Sequence[str] | None = None  # of each occurrence; None: its word
    lines: np.ndarray | None = None  # int64: the 0-based number of each sentence in the text
    n_tokens: int = 0  # of the text

    def per_million(self) -> dict[str, float]:
        """Occurrences of each target per million tokens of the text."""
        return {target: 1e6 * n / self.n_tokens for target, n in self.counts.items()}

    def documents(self, starts: Sequence[int]) -> list[int]:
        """The document of each occurrence; `starts` are the numbers of their first lines."""
        numbers = np.asarray(self.lines)[self.positions[:, 0]]
        return (np.searchsorted(starts, numbers, "right") - 1).tolist()


# Drawing


class Reservoir:
    """A uniform sample of `size` occurrences from a stream (reservoir sampling, algorithm R)."""

    def __init__(self, size: int, seed: str) -> None:
        self.uses: list[tuple[int, int, Sentence]] = []  # sentence number, token position, sentence
        self.n_offered = 0  # length of the stream so far
        self._size = size
        # Bytes give the same draws as text, and can encode lone surrogates.
        self._draw = random.Random(seed.encode("utf-8", "surrogatepass")).random

    def offer(self, number: int, position: int, sentence: Sentence) -> None:
        self.n_offered += 1
        if len(self.uses) < self._size:
            self.uses.append((number, position, sentence))
            return
        slot = int(self._draw() * self.n_offered)
        if slot < self._size:
            self.uses[slot] = (number, position, sentence)


def sample_uses(
    sentences: Iterable[str | Sentence],
    words: Sequence[str] | None = None,
    *,
    max_occurrences: int = 1000,
    seed: int = 0,
    match_case: bool = False,
    n_others: int = 0,
    may_be_missing: bool = False,
) -> Sample:
    """Draw occurrences of words uniformly from a text, which is read once.

    Args:
        sentences: lists of tokens, or text that is split on white space.
        words: words to look for; `bank+banks` is one target with two forms, whose occurrences are
            drawn together; one form may be missing. The draw for a target depends on the target
            and the seed only. None draws from all words of the text, but not from numbers and
            punctuation.
        max_occurrences: size of the sample for each target, or for all words together if `words`
            is None.
        match_case: distinguish apple from Apple.
        n_others: size of an additional sample of all other words.
        may_be_missing: targets need not occur.

    Raises:
        InputError: `words` is empty, or a target does not occur.
    """
    require(integer(), max_occurrences=max_occurrences)
    require(SENTENCES, sentences=sentences)
    fold = functools.partial(comparison_form, match_case=match_case)
    name_of: Callable[[str], str | None] = fold
    targets: dict[str, str] = {}  # by their form for comparison
    if words is None:
        targets, name_of = {"": ""}, lambda token: "" if is_word(token) else None
    else:
        require(WORDS, words=words)
        for word in words:
            targets.setdefault(fold(word), word)
    if not targets:
        raise InputError("words must name at least one word.")
    reservoirs, n_tokens = {}, 0
    by_form: defaultdict[str | None, list[Reservoir]] = defaultdict(list)
    for name, target in targets.items():
        reservoirs[target] = Reservoir(max_occurrences, f"{seed} {target}")
        for form in forms_of(name):
            by_form[form].append(reservoirs[target])
    others = Reservoir(n_others, str(seed))
    for number, tokens in read_stream(sentences, with_ids=False):
        n_tokens += len(tokens)
        for position, token in enumerate(tokens):
            matches = by_form.get(name_of(token), ())
            for reservoir in matches:
                reservoir.offer(number, position, tokens)
            if n_others and not matches and is_word(token):
                others.offer(number, position, tokens)
    counts = {target: reservoir.n_offered for target, reservoir in reservoirs.items()}
    missing = [repr(target) if target else "a word" for target, n in counts.items() if not n]
    if missing and not may_be_missing:
        raise InputError(f"the text must have an occurrence of {', '.join(missing)}.")
    drawn = [(*use, target) for target, pool in reservoirs.items() for use in pool.uses]
    drawn += [(*use, fold(use[2][use[1]])) for use in others.uses]
    uses = sorted((number, position, target) for number, position, _, target in drawn)
    texts = {number: tokens for number, _, tokens, _ in drawn}
    lines = sorted(texts)
    index = {number: k for k, number in enumerate(lines)}
    return Sample(
        [tuple(texts[number]) for number in lines],
        np.array([(index[number], k) for number, k, _ in uses], np.int64).reshape(-1, 2),
        counts=counts,
        targets=None if words is None else [target for _, _, target in uses],
        lines=np.array(lines, np.int64),
        n_tokens=n_tokens,
    )


def sample_sentences(
    sentences: Iterable[str | Sentence], n: int, *, seed: int = 0
) -> list[tuple[str, ...]]:
    """Draw up to `n` non-empty sentences uniformly, in their order."""
    reservoir = Reservoir(n, str(seed))
    for number, tokens in read_stream(sentences, with_ids=False):
        if tokens:
            reservoir.offer(number, 0, tokens)
    return [tuple(tokens) for _, _, tokens in sorted(reservoir.uses)]


# With vectors


@dataclass(frozen=True, eq=False)
class Occurrences(WordsInSentences):
    """Occurrences with their vectors in all layers."""

    vectors: np.ndarray  # float32 (n, layers, dim)
    labels: Sequence[str] | None = None  # of each occurrence, such as its sense
    # The source of the vectors, JSON-able: "model" (a fingerprint), "sample" (a digest), and
    # "layer" and "context" if they were given to `encoded`.
    about: dict[str, Any] = field(default_factory=dict)
    clusters: Sequence[str] | None = None  # names, or ""; None before `bilm senses`
    clusters_layer: Layer = "top"  # whose vectors were clustered
    targets: Sequence[str] | None = None  # of each occurrence; None: its word

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
        progress: ShowStage = quiet,
    ) -> Occurrences:
        """Compute the vectors of a sample.

        Args:
            elmo: the model.
            sample: from `sample_uses`, `read_labelled_uses`, or your own.
            layer: keep only this layer, as (n, 1, dim); None keeps all layers.
            context: add a last layer that does not see the word: the forward state at the previous
                token and the backward state at the next token, in the top layer (or `layer`);
                zeros at the ends of a sentence.
            file: a file of occurrences (see `save`), which is written, or if it exists read instead
                of computing the vectors.
            progress: called with a `Stage` of occurrences after each sentence.

        Raises:
            InputError: `file` has another model or sample; a vector is not finite; the sample's
                positions are not tokens in ascending order.
        """
        _require_tokens(sample)
        about: dict[str, Any] = {"model": elmo.fingerprint(), "sample": _digest(sample)}
        about |= {"layer": layer} if layer is not None else {}
        about |= {"context": True} if context else {}
        about |= {"precision": elmo.precision} if elmo.precision != "float32" else {}
        Outputs([], updated=[file])  # checks that it can be written
        if file is not None and os.path.exists(file):
            earlier = cls.load(file)
            if without_old_digests(earlier.about, about) != about:
                raise InputError(
                    f"{file}: made with another model, other words, or another sample of the text; "
                    "name another file, or remove it."
                )
            return replace(earlier, targets=sample.targets)
        n_layers = (elmo.n_layers if layer is None else 1) + context
        vectors = np.empty((len(sample), n_layers, elmo.dim), np.float32)
        done = 0
        progress(Stage("encoding", done, len(sample), "occurrences"))
        for block in _sentence_vectors(elmo, sample, layer, context):
            vectors[done : done + len(block)] = block
            done += len(block)
            progress(Stage("encoding", done, len(sample), "occurrences"))
        occurrences = cls(
            sample.sentences,
            sample.positions,
            vectors,
            labels=sample.labels,
            about=about,
            targets=sample.targets,
        )
        if file is not None:
            occurrences.save(file, overwrite=False)
        return occurrences

    @classmethod
    def of_query(cls, elmo: ELMo, text: str) -> Occurrences:
        """The marked word of a sentence such as "they [play] cards"; see `parse_target`."""
        tokens, position, target = parse_target(text, elmo.model.split)
        targets = None if target == tokens[position] else [target]
        positions = np.array([(0, position)], np.int64)
        return cls.encoded(elmo, Sample([tokens], positions, targets=targets))

    def layer_number(self, layer: Layer) -> int:
        """The number of a layer given as a number or "top", the highest layer without `context`."""
        is_context = self.has_context and layer == self.n_layers - 1
        n_layers = self.n_layers - (self.has_context and not is_context)
        return layer_number(layer, n_layers)

    @property
    def has_context(self) -> bool:
        """Whether the last layer is the context; see `encoded`."""
        return bool(self.about.get("context"))

    def layer(self, layer: Layer) -> np.ndarray:
        """The vectors of a layer: float32 (n, dim)."""
        return self.vectors[:, self.layer_number(layer)]

    def directions(self, layer: Layer = "top", of: Occurrences | None = None) -> np.ndarray:
        """The vectors of a layer minus their mean, scaled to length 1: float32 (n, dim).

        The common mean would make all contexts look similar. A vector equal to the mean, up to
        rounding, becomes zeros. `of` gives the directions of other occurrences from this mean.
        """
        vectors = (self if of is None else of).layer(layer)
        # A float32 sum of thousands of equal vectors would differ from them by more than rounding.
        mean = self.layer(layer).mean(axis=0, dtype=np.float64)
        centred = vectors - mean.astype(np.float32)
        norms = np.linalg.norm(centred, axis=1, keepdims=True)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        has_direction = norms > np.maximum(_SMALLEST_DIFFERENCE * lengths, 1e-12)
        return np.where(has_direction, unit(centred), 0)

    def neighbours(
        self, query: int | Occurrences, n: int = 3, layer: Layer = "top"
    ) -> list[tuple[float, int]]:
        """The `n` nearest occurrences in different sentences: pairs (cosine, occurrence), nearest
        first.

        `query` is an index, or a single occurrence from elsewhere (`of_query`). The directions of
        the layer are compared by their cosine. Contexts of a word that share the previous and the
        next word count once.
        """
        if not isinstance(query, Occurrences):
            require(integer(0, len(self) - 1), query=query)
            query = self.select([query])
        return self.neighbours_of_each(query, n, layer)[0]

    def neighbours_of_each(
        self, queries: Occurrences, n: int, layer: Layer
    ) -> list[list[tuple[float, int]]]:
        """`neighbours` of each of several occurrences."""
        require_one_kind(self, queries)
        directions, neighbours = self.directions(layer), []
        for k, direction in enumerate(self.directions(layer, queries)):
            cosines = directions @ direction
            if not direction.any():  # layer 0, when all occurrences have one spelling
                cosines[~directions.any(axis=1)] = 1
            ranked = np.argsort(-cosines, kind="stable")
            sentence = tuple(queries.sentence(k))
            near = self.distinct((j for j in ranked if tuple(self.sentence(j)) != sentence), n)
            neighbours.append([(float(cosines[j]), j) for j in near])
        return neighbours

    def save(self, path: PathLike, *, overwrite: bool = True) -> None:
        """Write an .npz file: the arrays, and everything else as JSON.

        Lone surrogates, which UTF-8 cannot encode, become question marks.
        """
        names = ("sentences", "labels", "clusters", "clusters_layer", "targets", "about")
        text = json.dumps({name: getattr(self, name) for name in names}, ensure_ascii=False)
        content = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        with atomic_write(path, overwrite=overwrite) as temporary, open(temporary, "wb") as file:
            np.savez(file, vectors=self.vectors, positions=self.positions, text=content)

    @classmethod
    def load(cls, path: PathLike) -> Occurrences:
        """Read a file written by `save`."""
        path = require_file(path, "file of occurrences")
        try:
            if not zipfile.is_zipfile(path):
                raise ValueError("it is not an .npz file")
            with np.load(path, allow_pickle=False) as arrays:
                values = json.loads(arrays["text"].tobytes())
                values["sentences"] = [tuple(sentence) for sentence in values["sentences"]]
                vectors = arrays["vectors"]
                occurrences = cls(vectors=vectors, positions=arrays["positions"], **values)
            _require_tokens(occurrences)
            parallel = [getattr(occurrences, name) for name in ("labels", "clusters", "targets")]
            lengths = {len(occurrences), len(vectors), *map(len, filter(None, parallel))}
            if len(lengths) > 1 or vectors.ndim != 3 or not np.isfinite(vectors).all():
                raise ValueError("there must be a finite vector of each layer per occurrence")
            return occurrences
        except Exception as error:  # NumPy and zipfile do not document what they raise
            raise InputError(f"{path}: not a file of occurrences, or damaged: {error}") from error


def require_one_kind(one: Occurrences, other: Occurrences) -> None:
    """Require vectors of the same layers of one model; its fingerprint may be unknown."""
    models = [text.about.get("model") for text in (one, other)]
    require_same_model("the vectors of one text", models[0], "the other text's", models[1])
    shapes = [text.vectors.shape[1:] for text in (one, other)]
    layers = [(text.about.get("layer"), text.has_context) for text in (one, other)]
    if shapes[0] != shapes[1] or layers[0] != layers[1]:
        raise InputError(
            "the vectors of both texts must be from the same layers of one model, got (layers, dim)"
            f" {shapes[0]} and {shapes[1]}."
        )


def _require_tokens(sample: WordsInSentences) -> None:
    number, position = sample.positions.T
    lengths = np.array([*map(len, sample.sentences)])
    if (
        not len(sample)
        or (np.diff(number) < 0).any()
        or not 0 <= number[0] <= number[-1] < len(lengths)
        or not ((position >= 0) & (position < lengths[number])).all()
    ):
        raise InputError("sample: positions (n, 2) must be tokens of the sentences, ascending.")


def _sentence_vectors(
    elmo: ELMo, sample: Sample, layer: Layer | None, context: bool
) -> Iterator[np.ndarray]:
    """The vectors (occurrences, layers, dim) in each sentence."""
    sentences = map(list, sample.sentences)
    encoded = elmo.encode_iter(sentences, "all" if layer is None else layer)
    bounds = np.searchsorted(sample.positions[:, 0], np.arange(1, len(sample.sentences)))
    for vectors, positions in zip(encoded, np.split(sample.positions[:, 1], bounds), strict=True):
        vectors = vectors.reshape(-1, *vectors.shape[-2:])  # (layers, tokens, dim)
        if context:
            forward = elmo.dim // elmo.options.n_directions
            around = np.zeros_like(vectors[:1])
            around[:, 1:, :forward] = vectors[-1, :-1, :forward]
            around[:, :-1, forward:] = vectors[-1, 1:, forward:]
            vectors = np.concatenate([vectors, around])
        vectors = vectors[:, positions].transpose(1, 0, 2)
        if not np.isfinite(vectors).all():
            raise not_finite("the model's vectors")
        yield vectors


def _digest(sample: Sample) -> str:
    digest = new_digest()
    for sentence in sample.sentences:
        digest.update(f"{' '.join(sentence)}\n".encode("utf-8", "surrogatepass"))
    digest.update(np.ascontiguousarray(sample.positions, "<i8").tobytes())
    digest.update(json.dumps(sample.labels).encode())
    return digest.hexdigest()
