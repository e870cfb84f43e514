"""Compare a word in one sentence with a word in another, layer by layer.

QUERY is a sentence with the word in brackets, as "They [play] cards.".
Each pair is compared by the cosine of the words' vectors. Layer 0 and --static do not depend on the
sentence: there, a word always has the cosine 1 with itself.

  bilm compare "they [play] cards" "his first [play]" --model elmo
  bilm compare "they [play] cards" "his first [play]" "a [game] of cards" \\
      --model elmo --static vectors.txt

--pairs reads pairs in the form of WiC: word, part of speech, positions (as in 2-5, 0-based) and two
sentences, separated by tabs; the tokens at these positions must begin like the word. --gold has one
answer per line, T (the same meaning) or F, or a number. For each layer, the command then prints
the accuracy of the rule "the meaning is the same if the cosine is above a threshold", and
Spearman's correlation of the cosines with the answers. The threshold is the best one for
--train_pairs; without them, each half of the pairs gets the best one for the other half.

  bilm compare --pairs dev.data.txt --gold dev.gold.txt --model elmo \\
      --train_pairs train.data.txt --train_gold train.gold.txt
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from typing import TYPE_CHECKING

from bilm import analysis
from bilm.cli import flags, text_command, word_command
from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay
from bilm.terminal import count, note, show, table

if TYPE_CHECKING:
    import numpy as np

    from bilm.use.elmo import ELMo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY": "sentence with one [word]"}, nargs="*")
    text_command.add_elmo(parser)
    flags.add(
        parser,
        {
            "--static FILE": "static vectors to compare with, as `bilm static` and gensim write "
            "them",
            **word_command.FORMAT,
        },
    )
    flags.add(
        parser.add_argument_group("pairs, instead of queries"),
        {
            "--pairs FILE": "pairs of sentences",
            "--gold FILE": "answers for --pairs, one per line",
            "--train_pairs FILE": "pairs from which each layer's threshold is chosen",
            "--train_gold FILE": "answers for --train_pairs, one per line",
        },
    )
    parser.set_defaults(format="text")


def run(args: argparse.Namespace) -> int:
    _check_flags(args)
    from bilm.analysis import word_pairs

    if args.gold is not None:
        return _run_gold(args, word_pairs.read_word_pairs(args.pairs))
    elmo = text_command.load_model(args).elmo
    if args.pairs is None:
        pairs = word_pairs.pairs_of_queries(args.query, elmo.model.split)
    else:
        pairs = word_pairs.read_word_pairs(args.pairs)
    static = _static(args, pairs)
    cosines = _cosines(args, elmo, pairs, static)
    rows = zip(*cosines.values(), strict=True)
    words = [pairs.word(k) for k in range(len(pairs))]
    if args.format == "json":
        for number, values in enumerate(rows):
            both = slice(2 * number, 2 * number + 2)
            pair = {
                "words": words[both],
                "sentences": pairs.sentences[both],
                "positions": pairs.positions[both, 1].tolist(),
                "cosines": dict(zip(cosines, map(_finite, values), strict=True)),
            }
            print(json.dumps(pair, ensure_ascii=False))
        return 0
    if args.pairs is None:
        show([*(f"{k}  {query}" for k, query in enumerate(args.query, start=1)), ""])
        numbers = itertools.combinations(range(1, len(args.query) + 1), 2)
        names = [f"{one} - {other}" for one, other in numbers]
    else:
        couples = zip(words[::2], words[1::2], strict=True)
        names = [f"{k}  {one} - {other}" for k, (one, other) in enumerate(couples, start=1)]
    cells = [[name, *map(_shown, values)] for name, values in zip(names, rows, strict=True)]
    show(table([["pair", *cosines], *cells]))
    return 0


def _check_flags(args: argparse.Namespace) -> None:
    if args.pairs is not None and args.query:
        flags.usage_error(args, "--pairs replaces queries")
    if args.pairs is None and len(args.query) < 2:
        flags.usage_error(args, "name at least two queries, or --pairs")
    partners = [("gold", "pairs"), ("train_pairs", "gold"), ("train_pairs", "train_gold"),
                ("train_gold", "train_pairs")]  # fmt: skip
    for flag, partner in partners:
        if getattr(args, partner) is None:
            flags.require_effect(args, f"--{partner}", flag)


def _static(args: argparse.Namespace, *texts: analysis.Sample) -> analysis.StaticVectors | None:
    if args.static is None:
        return None
    words = {text.word(k) for text in texts for k in range(len(text))}
    return analysis.StaticVectors.load(args.static, keep=words)


def _cosines(
    args: argparse.Namespace,
    elmo: ELMo,
    pairs: analysis.Sample,
    static: analysis.StaticVectors | None,
) -> dict[str, np.ndarray]:
    from bilm.analysis.word_pairs import cosines

    text_command.warn_of_unseen(elmo.model, pairs.sentences, "the sentences")
    with ProgressDisplay() as display:
        return cosines(elmo, pairs, static, display.show)


def _run_gold(args: argparse.Namespace, pairs: analysis.Sample) -> int:
    from bilm.analysis import word_pairs

    gold = word_pairs.read_answers(args.gold, len(pairs) // 2)
    training = None if args.train_pairs is None else word_pairs.read_word_pairs(args.train_pairs)
    if training is not None:
        training_gold = word_pairs.read_answers(args.train_gold, len(training) // 2)
        for path, answers in ((args.gold, gold), (args.train_gold, training_gold)):
            if not word_pairs.is_binary(answers):
                raise InputError(f"{path}: answers must be T or F for a threshold.")
    static = _static(args, pairs, *filter(None, [training]))
    elmo = text_command.load_model(args).elmo
    thresholds = None
    if training is not None:
        cosines = _cosines(args, elmo, training, static).items()
        thresholds = {
            name: word_pairs.best_threshold(values, training_gold) for name, values in cosines
        }
    results = word_pairs.agreement_with_gold(_cosines(args, elmo, pairs, static), gold, thresholds)
    if args.format == "json":
        for result in results:
            print(json.dumps(result._asdict() | {"spearman": _finite(result.spearman)}))
        return 0
    is_binary = word_pairs.is_binary(gold)
    rows = [["", "pairs", *["accuracy", "threshold"] * is_binary, "Spearman"]]
    for result in results:
        row = [result.name, f"{result.n:,}"]
        if result.accuracy is not None and result.threshold is not None:
            row += [f"{100 * result.accuracy:.1f} %", f"{result.threshold:.3f}"]
        rows.append([*row, _shown(result.spearman)])
    show(table(rows))
    for result in results:
        if result.ties:
            where = "all cosines are equal" if result.ties == result.n else "at the threshold"
            note(f"{result.name}: {count(result.ties, 'tie')}, {where}.")
    if is_binary:
        note(f"{100 * gold.mean():.1f} % of the pairs have the answer T.")
        if thresholds is None:
            note("For each half of the pairs, the threshold is the best one for the other half.")
    return 0


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
