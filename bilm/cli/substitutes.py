"""Predict the words that fit at positions of a text, by both directions together.

IN is UTF-8 text (plain, .gz, .xz), one sentence a line, tokens separated by white space; - is
standard input. Words are predicted for each token ___, or for the tokens that --place or --every
name. The forward direction reads what is before the position, the backward direction what is after
it, and neither reads the token itself. Their distributions are multiplied, divided by p(word) and
normalised over the vocabulary. Log-probabilities are natural logarithms (nats).

  bilm substitutes --text "They ___ it ." --model training-folder
  bilm substitutes text.txt --model elmo --every --n 5 --format tsv
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from bilm.cli import flags, text_job
from bilm.cli.text_job import TextInput, rounded, tabbed
from bilm.errors import InputError

if TYPE_CHECKING:
    from bilm.prediction import Substitutes

_FIELDS = ("line", "place", "token", "rank", "word", "log_probability")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm substitutes`."""
    parser.add_argument("input", metavar="IN", nargs="?", help="text; - is standard input")
    parser.add_argument("--text", metavar="SENTENCE", help="one sentence, instead of IN")
    text_job.add_predictor(parser)
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--place",
        type=flags.whole_number(0),
        action="append",
        metavar="N",
        help="predict token N of each sentence, counted from 0; may be repeated (default: the "
        "tokens ___)",
    )
    places.add_argument("--every", action="store_true", help="predict each token of each sentence")
    parser.add_argument(
        "--n",
        type=flags.whole_number(1),
        metavar="N",
        default=10,
        help="how many words to give (default: 10)",
    )
    parser.add_argument(
        "--direction", choices=("forward", "backward"), help="one direction alone (default: both)"
    )
    parser.add_argument(
        "--prior",
        type=flags.probability,
        metavar="X",
        help="divide by p(word) to the power of X, 0 to 1; p is estimated from the rank in the "
        "vocabulary (default: 1 for both directions, each of which contains it, 0 for one)",
    )
    text_job.add_result(parser)


def run(args: argparse.Namespace) -> int:
    """Write the substitutes."""
    if (args.input is None) == (args.text is None):
        flags.usage_error(args, "name a text, IN, or a sentence, --text")
    predictor = text_job.load_predictor(args)
    places: Any = "all" if args.every else args.place or "gaps"
    found = predictor.substitutes_iter(
        _sentences(args, places),
        places,
        n=args.n,
        directions=args.direction,
        prior=args.prior,
        batch_size=args.batch_size,
        with_ids=True,
    )
    with text_job.opened(args) as out, text_job.progress_display(args.out) as display:
        if args.format == "tsv":
            out.write(tabbed(_FIELDS))
        for count, (number, result) in enumerate(found, start=1):
            for substitutes in result:
                write = _write_tsv if args.format == "tsv" else _write_json
                write(out, number, substitutes)
            display.update("predicting", count, unit="sentences")
    return 0


def _sentences(args: argparse.Namespace, places: Any) -> Iterator[tuple[int, list[str]]]:
    """(line from 0, tokens), each of which has its places."""
    from bilm.prediction import find_places

    name, lines = "--text", iter([(0, args.text)])
    if args.text is None:
        text = TextInput(args.input)
        name, lines = text.name, text.sentences()
    n_sentences = 0
    for number, line in lines:
        tokens = line.split()
        if tokens:
            find_places(tokens, places, f"{name}, line {number + 1}")
            yield number, tokens
            n_sentences += 1
    if not n_sentences:
        raise InputError(f"{name}: there is no sentence.")


def _write_json(out: TextIO, number: int, substitutes: Substitutes) -> None:
    values = {
        "line": number,
        "place": substitutes.place,
        "token": substitutes.token,
        "words": substitutes.words,
        "log_probabilities": rounded(substitutes.log_probabilities),
        "of_token": rounded(substitutes.of_token),
        "rank": substitutes.rank,
    }
    out.write(json.dumps(values, ensure_ascii=False) + "\n")


def _write_tsv(out: TextIO, number: int, substitutes: Substitutes) -> None:
    pairs = zip(substitutes.words, substitutes.log_probabilities.tolist(), strict=True)
    for rank, (word, log_probability) in enumerate(pairs, start=1):
        fields = (number, substitutes.place, substitutes.token, rank, word, log_probability)
        out.write(tabbed(fields))
