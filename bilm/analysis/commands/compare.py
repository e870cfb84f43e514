"""Compare a word in one sentence with a word in another, layer by layer.

QUERY is a sentence with the word in brackets and spaces between tokens, as "they [play] cards".
Every two of them are compared by the cosine of the words' vectors. Layer 0 and --static do not see
the sentence: there, one word always has the cosine 1 with itself.

  bilm compare "they [play] cards" "his first [play]" --model elmo
  bilm compare "they [play] cards" "his first [play]" "a [game] of cards" --model elmo \\
      --static vectors.txt

--pairs reads pairs in the form of WiC: word, part of speech, positions (as in 2-5, 0-based) and two
sentences, separated by tabs. --gold has one answer per line, T (the same meaning) or F, or a
number. It prints, for each layer, the accuracy of "the meaning is the same if the cosine is above
a threshold", and Spearman's correlation of the cosines with the answers. The threshold is chosen
on --train_pairs, given by --threshold, or else chosen for each half of the pairs on the other half.

  bilm compare --pairs dev.data.txt --gold dev.gold.txt --model elmo \\
      --train_pairs train.data.txt --train_gold train.gold.txt
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bilm import analysis
from bilm.analysis.commands import word_job
from bilm.cli import flags, text_job
from bilm.cli.terminal import note, show, table
from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    import numpy as np

    from bilm.analysis.compare import WordPair
    from bilm.use.elmo import ELMo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY": "sentence with one [word]"}, nargs="*")
    word_job.add_model(parser)
    flags.add(
        parser,
        {
            "--static FILE": "static vectors to compare with, as `bilm static` and gensim write "
            "them",
            **word_job.FORMAT,
        },
    )
    group = parser.add_argument_group("pairs, instead of queries")
    threshold = flags.value(float, "must be a number from -1 to 1", lambda x: -1 <= x <= 1)
    flags.add(group, {"--pairs FILE": "pairs of sentences", "--gold FILE": "an answer for each"})
    flags.add(group, {"--threshold X": "cosine above which a meaning is the same"}, type=threshold)
    flags.add(
        group,
        {
            "--train_pairs FILE": "pairs to choose the threshold of each layer on",
            "--train_gold FILE": "their answers",
        },
    )
    parser.set_defaults(format="text")


def run(args: argparse.Namespace) -> int:
    _require_fitting_flags(args)
    from bilm.analysis.compare import pair_of_queries, read_word_pairs

    if args.pairs is None:
        pairs = [pair_of_queries(*two) for two in itertools.combinations(args.query, 2)]
    else:
        pairs = read_word_pairs(args.pairs)
    static = None if args.static is None else analysis.StaticVectors.load(args.static)
    if args.gold is not None:
        return _run_gold(args, pairs, static)
    found = _cosines(text_job.load_elmo(args), pairs, static)
    if args.format == "json":
        for number, pair in enumerate(pairs):
            print(json.dumps(_as_dict(pair, found, number), ensure_ascii=False))
        return 0
    if args.pairs is None:
        show([*(f"{k}  {query}" for k, query in enumerate(args.query, start=1)), ""])
        numbers = itertools.combinations(range(1, len(args.query) + 1), 2)
        names = [f"{one} - {other}" for one, other in numbers]
    else:
        words = ((pair.first.word, pair.second.word) for pair in pairs)
        names = [f"{k}  {one} - {other}" for k, (one, other) in enumerate(words, start=1)]
    rows = zip(names, *found.values(), strict=True)
    show(table([["pair", *found], *([name, *map(_shown, values)] for name, *values in rows)]))
    return 0


def _require_fitting_flags(args: argparse.Namespace) -> None:
    if args.pairs is not None and args.query:
        flags.usage_error(args, "--pairs does not go with queries")
    if args.pairs is None and len(args.query) < 2:
        flags.usage_error(args, "name at least two queries, or --pairs")
    for flag, partner in (
        ("gold", "pairs"),
        ("threshold", "gold"),
        ("train_pairs", "gold"),
        ("train_pairs", "train_gold"),
        ("train_gold", "train_pairs"),
    ):
        if getattr(args, flag) is not None and getattr(args, partner) is None:
            flags.usage_error(args, f"--{flag} goes with --{partner}")
    if args.threshold is not None and args.train_pairs is not None:
        flags.usage_error(args, "--threshold does not go with --train_pairs")


def _cosines(
    elmo: ELMo, pairs: list[WordPair], static: analysis.StaticVectors | None
) -> dict[str, np.ndarray]:
    from bilm.analysis.compare import cosines

    with ProgressDisplay() as display:
        return cosines(
            elmo, pairs, static, lambda n, total: display.update("encoding", n, total, "words")
        )


def _run_gold(
    args: argparse.Namespace, pairs: list[WordPair], static: analysis.StaticVectors | None
) -> int:
    from bilm.analysis.compare import (
        agreement_with_gold,
        best_threshold,
        read_gold,
        read_word_pairs,
    )

    gold = read_gold(args.gold, len(pairs))
    training: list[WordPair] = []
    if args.train_pairs is not None:
        training = read_word_pairs(args.train_pairs)
    training_gold = read_gold(args.train_gold, len(training)) if training else None
    for path, answers in ((args.gold, gold), (args.train_gold, training_gold)):
        if answers is not None and not answers.is_binary and (args.threshold or training):
            raise InputError(f"{path}: answers must be T or F for a threshold.")
    elmo = text_job.load_elmo(args)
    found = _cosines(elmo, pairs, static)
    thresholds: Mapping[str, float] | None = None
    if args.threshold is not None:
        thresholds = dict.fromkeys(found, args.threshold)
    elif training_gold is not None:
        values = _cosines(elmo, training, static)
        thresholds = {name: best_threshold(values[name], training_gold.values) for name in values}
    results = agreement_with_gold(found, gold, thresholds)
    if args.format == "json":
        for result in results:
            print(json.dumps(result._asdict() | {"spearman": _finite(result.spearman)}))
        return 0
    head = ["", "pairs", *["accuracy", "threshold"] * gold.is_binary, "Spearman"]
    rows = []
    for result in results:
        row = [result.name, f"{result.n:,}"]
        if result.accuracy is not None and result.threshold is not None:
            row += [f"{100 * result.accuracy:.1f} %", f"{result.threshold:.3f}"]
        rows.append([*row, _shown(result.spearman)])
    show(table([head, *rows]))
    if gold.is_binary:
        note(f"{100 * gold.values.mean():.1f} % of the pairs have the answer T.")
        if thresholds is None:
            note("Each half of the pairs is judged by the best threshold of the other half.")
    return 0


def _as_dict(pair: WordPair, found: Mapping[str, np.ndarray], number: int) -> dict[str, Any]:
    return {
        "words": [word.word for word in pair],
        "sentences": [list(word.tokens) for word in pair],
        "positions": [word.position for word in pair],
        "cosines": {name: _finite(float(values[number])) for name, values in found.items()},
    }


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
