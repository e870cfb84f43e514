"""Predict the words that fit at positions of a text, by both directions together.

IN is UTF-8 text (plain or compressed), one sentence per line, tokens separated by white space; - is
standard input. Words are predicted for each token ___, or for the tokens that --place or --every
selects. The forward direction reads the tokens before the position, the backward direction the
tokens after it, and neither reads the token itself. Their distributions are multiplied, divided by
p(word) and normalised over the vocabulary. Log-probabilities are natural logarithms (nats).

  bilm substitutes --text "They ___ it ." --model training-folder
  bilm substitutes text.txt --model elmo --every --n 5 --format tsv
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD
from bilm.files.reading import read_text

if TYPE_CHECKING:
    from bilm.use.predictor import Substitutes

_FIELDS = ("line", "place", "token", "rank", "word", "log_probability")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"input IN": "text; - is standard input"}, nargs="?")
    flags.add(parser, {"--text SENTENCE": "one sentence, instead of IN"})
    text_command.add_predictor(parser)
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
    predictor = text_command.load_predictor(args)
    places: Any = "all" if args.every else args.place or "gaps"
    predictions = predictor.substitutes_iter(
        _sentences(args, places),
        places,
        n=args.n,
        directions=args.direction,
        prior=args.prior,
        batch_size=args.batch_size,
        with_ids=True,
    )
    if args.input not in (None, STANDARD):
        from bilm.data.untokenized import warn_if_untokenized

        warn_if_untokenized(map(str.split, read_text(args.input)), args.input)
        sentences = map(str.split, read_text(args.input))
        text_command.warn_of_unseen(predictor.model, sentences, args.input)
    results = ((number, (line.split(), places)) for (number, line), places in predictions)
    text_command.write_results(args, results, _FIELDS, _rows, "predicting", _objects, _lines)
    return 0


def _sentences(
    args: argparse.Namespace, places: Any
) -> Iterator[tuple[tuple[int, str], list[str]]]:
    """The sentences of the input, after checking their places."""
    from bilm.use.predictor import find_places

    name, lines = "--text", iter([args.text])
    if args.text is None:
        name, lines = text_command.read_input(args.input)
    for (number, line), tokens in text_command.sentences(name, lines):
        find_places(tokens, places, f"{name}, line {number + 1}")
        yield (number, line), tokens


_Prediction = tuple[list[str], "list[Substitutes]"]  # a sentence's tokens and places


def _rows(prediction: _Prediction) -> Iterator[tuple[Any, ...]]:
    for place in prediction[1]:
        pairs = zip(place.words, place.log_probabilities.tolist(), strict=True)
        for rank, pair in enumerate(pairs, start=1):
            yield place.place, place.token, rank, *pair


def _objects(prediction: _Prediction) -> Iterator[dict[str, Any]]:
    return (place._asdict() for place in prediction[1])


def _lines(prediction: _Prediction) -> Iterator[str]:
    """The sentence with the place in brackets; then one word and its probability per line."""
    tokens, places = prediction
    for place in places:
        before, after = tokens[: place.place], tokens[place.place + 1 :]
        yield " ".join([*before, f"[{place.token}]", *after])
        for word, log in zip(place.words, place.log_probabilities.tolist(), strict=True):
            yield f"  {math.exp(log):.4f}  {word}"
