"""Predict the words that fit at positions of a text, by both directions together.

IN is UTF-8 text (plain or compressed), one sentence per line; - is standard input. Words are
predicted for each token ___, or for the tokens that --place or --every selects. The forward
direction reads the tokens before the position, the backward direction the tokens after it, and
neither reads the token itself. Their distributions are multiplied, divided by p(word) and
normalised over the vocabulary. Log-probabilities are natural logarithms (nats).

  bilm substitutes --text "They ___ it." --model training-folder
  bilm substitutes text.txt --model elmo --every --n 5 --format tsv
"""

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD, InputText
from bilm.data.tokenizer import tokenizer_for

if TYPE_CHECKING:
    from bilm.use.predictor import Substitutes

_FIELDS = ("line", "place", "token", "token_rank", "rank", "word", "log_probability")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"input IN": "text; - is standard input"}, nargs="?")
    flags.add(parser, {"--text SENTENCE": "one sentence, instead of IN"} | text_command.COLUMN)
    text_command.add_model(parser, text_command.PREDICTOR)
    places = parser.add_mutually_exclusive_group()
    place = "predict token N (0-based) of each sentence; may be repeated (default: the "
    flags.add(places, {"--place N>=0": place + "tokens ___)"}, action="append")
    flags.add(places, {"--every": "predict each token of each sentence"})
    flags.add(
        parser,
        {
            "--n N": "number of words per position (default: 10)",
            "--direction forward|backward": "one direction alone (default: both)",
            "--prior P": "divide by p(word) to the power of P, 0 to 1; p is estimated from the "
            "rank in the vocabulary (default: 1 for both directions, which both include p(word); 0 "
            "for one)",
        },
    )
    text_command.add_result(parser, "text|jsonl|tsv")
    parser.set_defaults(n=10)


def run(args: argparse.Namespace) -> int:
    if (args.input is None) == (args.text is None):
        flags.usage_error(args, "name a text, IN, or a sentence, --text")
    places: Any = "all" if args.every else args.place or "gaps"
    text = _read(args)
    predictor = text_command.load_predictor(args)
    predictions = predictor.substitutes_iter(
        _sentences(text, places),
        places,
        n=args.n,
        directions=args.direction,
        prior=args.prior,
        with_ids=True,
    )
    if args.input not in (None, STANDARD):  # a stream is read only once
        again = text_command.read_input(args)
        sentences = map(again.split, again.lines)
        text_command.warn_of_unseen(predictor.model, sentences, args.input)
    results = ((number, (tokens, places)) for (number, tokens), places in predictions)
    text_command.write_results(args, results, _FIELDS, _rows, "predicting", _objects, _lines)
    return 0


def _read(args: argparse.Namespace) -> InputText:
    if args.text is not None:
        split = tokenizer_for(text_command.model_tokens(args).recorded, args.tokenizer)
        return InputText("--text", "line", _around_gaps(split), iter([args.text]))
    text = text_command.read_input(args)
    return text._replace(split=_around_gaps(text.split))


def _around_gaps(split: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A function that splits text into tokens, and keeps ___ as one."""

    def tokens(text: str) -> list[str]:
        from bilm.use.predictor import GAP

        parts = [[GAP, *split(part)] for part in text.split(GAP)]
        return list(itertools.chain.from_iterable(parts))[1:]

    return split if split is str.split else tokens


def _sentences(text: InputText, places: Any) -> Iterator[tuple[tuple[int, list[str]], list[str]]]:
    """The sentences of the input, after checking their places."""
    from bilm.use.predictor import find_places

    for (number, _), tokens in text_command.sentences(text):
        find_places(tokens, places, f"{text.name}, {text.unit} {number + 1}")
        yield (number, tokens), tokens


_Prediction = tuple[list[str], "list[Substitutes]"]  # a sentence's tokens and places


def _rows(prediction: _Prediction) -> Iterator[tuple[Any, ...]]:
    for place in prediction[1]:
        pairs = zip(place.words, place.log_probabilities.tolist(), strict=True)
        for rank, pair in enumerate(pairs, start=1):
            yield place.place, place.token, place.rank, rank, *pair


def _objects(prediction: _Prediction) -> Iterator[dict[str, Any]]:
    return (place._asdict() for place in prediction[1])


def _lines(prediction: _Prediction) -> Iterator[str]:
    """The sentence with the place in brackets; then one word and its probability per line."""
    tokens, places = prediction
    for place in places:
        before, after = tokens[: place.place], tokens[place.place + 1 :]
        rank = "" if place.rank is None else f"   rank of {place.token}: {place.rank:,}"
        yield " ".join([*before, f"[{place.token}]", *after]) + rank
        for word, log in zip(place.words, place.log_probabilities.tolist(), strict=True):
            yield f"  {math.exp(log):.4f}  {word}"
