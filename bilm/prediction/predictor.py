"""A trained language model that scores text and fills places in it.

predictor = Predictor.from_pretrained("model")
scores = predictor.score(["They saw it ."])
words = predictor.substitutes(["They ___ it ."])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bilm.data import Vocabulary
from bilm.embedding.sentence_forms import as_tokens, id_and_sentence, windows
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.model_files import ModelSource
from bilm.prediction.loading import load_language_model
from bilm.prediction.scores import SentenceScore, score_window
from bilm.prediction.substitutes import (
    LikeliestWords,
    Request,
    Substitutes,
    window_substitutes,
)
from bilm.prediction.text import SentenceParts
from bilm.training.evaluation import Scorer
from bilm.training.language_model import LanguageModel
from bilm.warm_up import WarmUpText, read_text

GAP = "___"
_DIRECTIONS = {"forward": (0,), "backward": (1,)}
_WINDOW_TOKENS = 32768

# Numbers of tokens from 0, "gaps" (tokens that are `GAP`) or "all".
Places = str | Sequence[int]


class Predictor:
    """A language model with its softmax, which tells how likely words are.

    Made by `Predictor.from_pretrained`. Each sentence stands alone: it is read from zero states,
    and what is said of it depends neither on the others nor on how they are batched.

    Attributes:
        options: the model's options.
        vocabulary: the words that it predicts.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self.options = model.options
        self.vocabulary = vocabulary
        self._softmax = model.softmax
        self._scorer = Scorer(model)

    @classmethod
    def from_pretrained(
        cls,
        source: ModelSource,
        *,
        vocab_file: PathLike | None = None,
        precision: str = "float32",
        warm_up: WarmUpText | None = None,
    ) -> Predictor:
        """Load a model; arguments and errors as for `bilm.prediction.loading`.

        Args:
            warm_up: a text file, or sentences, after which each sentence begins in place of zero
                states; for models that were trained without resets, see `bilm.warm_up`.
        """
        model, vocabulary = load_language_model(source, vocab_file, precision)
        if warm_up is not None:
            model.warm_up(read_text(warm_up), vocabulary)
        return cls(model, vocabulary)

    def score(
        self, sentences: Iterable[str | Sequence[str]], *, batch_size: int | None = None
    ) -> list[SentenceScore]:
        """Log-probabilities of each token of sentences, in nats.

        Args:
            sentences: lists of tokens, or text that is split on white space.
            batch_size: sentences that are computed together, at most; None takes as many as are
                fast. The scores are the same.

        Raises:
            InputError: a sentence that is neither text nor a list of tokens, or a `batch_size`
                below 1.
        """
        return list(self.score_iter(sentences, batch_size=batch_size))

    def score_iter(
        self, sentences: Iterable[Any], *, batch_size: int | None = None, with_ids: bool = False
    ) -> Iterator[Any]:
        """The scores of a stream of sentences, in bounded memory and in the order of the input.

        Args:
            sentences, batch_size: as for `score`; with `with_ids` pairs (id, sentence).
            with_ids: yield pairs (id, `SentenceScore`), the ids as they came.
        """
        parts = self._parts(sentences, batch_size)
        named = _named(sentences, with_ids)
        return self._score(named, parts, with_ids)

    def _score(
        self, named: Iterator[tuple[Any, list[str]]], parts: SentenceParts, with_ids: bool
    ) -> Iterator[Any]:
        for window in windows(named, _WINDOW_TOKENS, size=lambda item: len(item[1])):
            scores = score_window(self._scorer, [tokens for _, tokens in window], parts)
            for (name, _), score in zip(window, scores, strict=True):
                yield (name, score) if with_ids else score

    def substitutes(
        self,
        sentences: Iterable[str | Sequence[str]],
        places: Places = "gaps",
        *,
        n: int = 10,
        directions: str | None = None,
        prior: float | None = None,
        batch_size: int | None = None,
    ) -> list[list[Substitutes]]:
        """The likeliest words in places of sentences.

        Args:
            sentences: lists of tokens, or text that is split on white space.
            places: "gaps", the tokens that are `___`; "all" tokens; or numbers of tokens from 0,
                the same for each sentence. What stands in a place is not read for it.
            n: how many words.
            directions: "forward" or "backward" takes one direction alone; None takes all that the
                model has, as a product (see `bilm.prediction.substitutes`).
            prior: 0 to 1: divide by p(word) to this power. None is 1 for two directions, which
                both have counted it, and 0 for one.
            batch_size: as for `score`.

        Returns:
            for each sentence a list of `Substitutes`, one for each of its places.

        Raises:
            InputError: an argument that is not one of the above; a sentence without the place.
        """
        found = self.substitutes_iter(
            sentences, places, n=n, directions=directions, prior=prior, batch_size=batch_size
        )
        return list(found)

    def substitutes_iter(
        self,
        sentences: Iterable[Any],
        places: Places = "gaps",
        *,
        n: int = 10,
        directions: str | None = None,
        prior: float | None = None,
        batch_size: int | None = None,
        with_ids: bool = False,
    ) -> Iterator[Any]:
        """The substitutes of a stream of sentences, in bounded memory; see `substitutes`.

        Args:
            with_ids: take pairs (id, sentence) and yield pairs (id, list), the ids as they came.
        """
        parts = self._parts(sentences, batch_size)
        if n < 1:
            raise InputError(f"n: a whole number from 1 is expected, not {n!r}.")
        if prior is not None and not 0 <= prior <= 1:
            raise InputError(f"prior: a number from 0 to 1 is expected, not {prior!r}.")
        if isinstance(places, str) and places not in ("gaps", "all"):
            raise InputError(
                f"places: 'gaps', 'all' or numbers of tokens are expected, not {places!r}."
            )
        counted = self._directions(directions)
        if prior is None:
            prior = float(len(counted) - 1)
        words = LikeliestWords(self._softmax, self.vocabulary, n, counted, prior)
        requests = (
            (name, Request(tokens, find_places(tokens, places, f"sentence {number}")))
            for number, (name, tokens) in enumerate(_named(sentences, with_ids))
        )
        return self._substitutes(requests, parts, words, with_ids)

    def _substitutes(
        self,
        requests: Iterator[tuple[Any, Request]],
        parts: SentenceParts,
        words: LikeliestWords,
        with_ids: bool,
    ) -> Iterator[Any]:
        for window in windows(requests, _WINDOW_TOKENS, size=lambda item: len(item[1].tokens)):
            found = window_substitutes(self._scorer, [r for _, r in window], parts, words)
            for (name, _), result in zip(window, found, strict=True):
                yield (name, result) if with_ids else result

    def _parts(self, sentences: Any, batch_size: int | None) -> SentenceParts:
        if isinstance(sentences, str):
            raise InputError(f"a list of sentences is expected, not the text {sentences!r}.")
        if batch_size is not None and batch_size < 1:
            raise InputError(f"batch_size: a whole number from 1 is expected, not {batch_size!r}.")
        return SentenceParts(self.options, self.vocabulary, batch_size)

    def _directions(self, wanted: str | None) -> tuple[int, ...]:
        there = tuple(range(self.options.n_directions))
        if wanted is None:
            return there
        if wanted not in _DIRECTIONS:
            raise InputError(
                f"directions: 'forward', 'backward' or None is expected, not {wanted!r}."
            )
        if not set(_DIRECTIONS[wanted]) <= set(there):
            raise InputError("directions: the model has the forward direction only.")
        return _DIRECTIONS[wanted]


def _named(sentences: Iterable[Any], with_ids: bool) -> Iterator[tuple[Any, list[str]]]:
    for number, item in enumerate(sentences):
        name, sentence = id_and_sentence(item, number) if with_ids else (number, item)
        yield name, list(as_tokens(sentence, number))


def find_places(tokens: Sequence[str], places: Places, where: str) -> Sequence[int]:
    """The numbers of the tokens that are places; arguments as for `Predictor.substitutes`.

    Raises:
        InputError: the sentence does not have them; `where` says which one it is.
    """
    if places == "all":
        return range(len(tokens))
    if places == "gaps":
        gaps = [place for place, token in enumerate(tokens) if token == GAP]
        if not gaps:
            raise InputError(f"{where}: no token is {GAP}, which stands for a place to fill.")
        return gaps
    for place in places:
        if not 0 <= int(place) < len(tokens):
            raise InputError(
                f"{where}: there is no token {place!r}; it has {len(tokens)}, counted from 0."
            )
    return [int(place) for place in places]
