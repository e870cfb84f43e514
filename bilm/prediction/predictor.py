"""A trained language model that scores text and finds words for places in it.

predictor = Predictor.from_pretrained("model")
scores = predictor.score(["They saw it ."])
words = predictor.substitutes(["They ___ it ."])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bilm.data import Vocabulary
from bilm.embedding.corpus import Tokens
from bilm.embedding.sentence_forms import check_stream, read_stream
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.model_files import ModelSource
from bilm.prediction.loading import load_language_model
from bilm.prediction.scoring import (
    LikeliestWords,
    Request,
    SentenceScore,
    SentenceScorer,
    Substitutes,
)
from bilm.training.language_model import LanguageModel
from bilm.warm_up import WarmUpText, read_text

GAP = "___"
_DIRECTIONS = {"forward": (0,), "backward": (1,)}

# Positions of tokens from 0, "gaps" (tokens that are `GAP`) or "all".
Places = str | Sequence[int]


class Predictor:
    """A language model with its softmax, which tells how likely words are.

    Made by `Predictor.from_pretrained`. Each sentence is read alone, from the states in which texts
    begin: its results depend neither on the others nor on how they are batched.

    Attributes:
        options: the model's options.
        vocabulary: the words that it predicts.
        scorer: runs the model; how many tokens are computed at a time can be set.
        window_tokens: tokens of a stream that are read ahead; can be set.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self.options = model.options
        self.vocabulary = vocabulary
        self._softmax = model.softmax
        self.scorer = SentenceScorer(model, vocabulary)
        self.window_tokens = 32768
        self._likeliest: dict[tuple[Any, ...], LikeliestWords] = {}

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
        check_stream(sentences, batch_size)
        requests = ((name, Request(s)) for name, s in read_stream(sentences, with_ids))
        return self._by_window(
            requests,
            lambda window: self.scorer.scores([r.tokens for r in window], batch_size),
            with_ids,
        )

    def _by_window(
        self,
        requests: Iterable[tuple[Any, Request]],
        compute: Callable[[list[Request]], Iterator[Any]],
        with_ids: bool,
    ) -> Iterator[Any]:
        """The results of a stream of pairs (id, request), computed a window at a time."""

        def results(window: list[tuple[Any, Request]]) -> Iterator[Any]:
            computed = compute([request for _, request in window])
            for (name, _), result in zip(window, computed, strict=True):
                yield (name, result) if with_ids else result

        window: list[tuple[Any, Request]] = []
        n_tokens = 0
        for item in requests:
            window.append(item)
            n_tokens += len(item[1].tokens) + 2
            if n_tokens >= self.window_tokens:
                yield from results(window)
                window, n_tokens = [], 0
        if window:
            yield from results(window)

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
            places: "gaps", the tokens that are `___`; "all" tokens; or positions of tokens from
                0, the same for each sentence. The token in a place is not read for it.
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
        check_stream(sentences, batch_size)
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
        words = self._likeliest_words(n, counted, prior)
        requests = (
            (name, Request(tokens, find_places(tokens, places, f"sentence {number}")))
            for number, (name, tokens) in enumerate(read_stream(sentences, with_ids))
        )
        return self._by_window(
            requests, lambda window: self.scorer.substitutes(window, words, batch_size), with_ids
        )

    def _likeliest_words(self, n: int, directions: tuple[int, ...], prior: float) -> LikeliestWords:
        """What ran before with the same arguments, if it did: it is traced once."""
        key = (n, directions, prior)
        if key not in self._likeliest:
            found = LikeliestWords(self._softmax, self.vocabulary, n, directions, prior)
            self._likeliest = {key: found}
        return self._likeliest[key]

    def _directions(self, wanted: str | None) -> tuple[int, ...]:
        of_model = tuple(range(self.options.n_directions))
        if wanted is None:
            return of_model
        if wanted not in _DIRECTIONS:
            raise InputError(
                f"directions: 'forward', 'backward' or None is expected, not {wanted!r}."
            )
        if not set(_DIRECTIONS[wanted]) <= set(of_model):
            raise InputError("directions: the model has the forward direction only.")
        return _DIRECTIONS[wanted]


def find_places(tokens: Tokens, places: Places, where: str) -> Sequence[int]:
    """The positions of the tokens that are places; arguments as for `Predictor.substitutes`.

    Raises:
        InputError: the sentence does not have them; `where` says which one it is.
    """
    if places == "all":
        return range(len(tokens))
    if places == "gaps":
        gaps = [position for position, token in enumerate(tokens) if token == GAP]
        if not gaps:
            raise InputError(f"{where}: no token is {GAP}, which stands for a place to fill.")
        return gaps
    for position in places:
        if not 0 <= int(position) < len(tokens):
            raise InputError(
                f"{where}: there is no token {position!r}; it has {len(tokens)}, counted from 0."
            )
    return [int(position) for position in places]
