"""Measure how well each layer predicts labels: parts of speech, features, your own.

Label files are UTF-8 (plain or compressed), in one of two forms:

  CoNLL-U                 the labels are in --column
  token TAB label         an empty line after each sentence

A softmax is fitted on the vectors of each layer, on the mix of the layers with learned weights, and
on static vectors. The baselines are the most frequent label overall, and for each word. Accuracies
are of all words, and of words that the training sentences lack.

  bilm probe --train train.conllu --test test.conllu --model elmo --column UPOS
  bilm probe --train train.conllu --test test.conllu --model elmo \\
      --static vectors.txt --sizes 100,1000,all \\
      --out result.json --picture result.svg
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.files.writing import write_json
from bilm.progress import ProgressDisplay
from bilm.terminal import note, show, table

if TYPE_CHECKING:
    from bilm.analysis.probing import Score


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labels")
    files = {"--train FILE": "labels to learn from", "--test FILE": "labels to measure with"}
    flags.add(group, files, required=True)
    column = (
        "label column of CoNLL-U: LEMMA, UPOS, XPOS, FEATS, DEPREL, or a feature such as Case "
        "(default: UPOS)"
    )
    flags.add(group, {"--column NAME": column})
    text_command.add_model(parser)
    flags.add(parser, {"--static FILE": "static vectors to compare with, from `bilm static`"})
    sizes = {"--sizes N,N,...": "numbers of training sentences, or `all` (default: all)"}
    flags.add(parser, sizes, type=_sizes, default=(None,))
    seeds = {"--seeds N": "repetitions with other training sentences (default: 3)"}
    flags.add(parser, seeds, type=flags.whole_number(1, bits=10), default=3)
    flags.add(parser, {"--picture FILE": "draw the accuracies: .png or .svg"})
    flags.add(parser, {"--out FILE": "save the results as JSON", **flags.FORCE})


def _sizes(text: str) -> tuple[int | None, ...]:
    """Parse "100,1000,all" into distinct sizes; "all" is None, and last."""
    parse = flags.whole_number(1)
    parts = [part.strip() for part in text.split(",")]
    numbers = sorted({parse(part) for part in parts if part != "all"})
    return (*numbers, *((None,) if "all" in parts else ()))


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    flags.require_inputs(args)
    from bilm.analysis.labelled import n_repeated
    from bilm.analysis.pictures import check_picture, save_picture
    from bilm.analysis.probing import check_sizes, probe_chart

    if args.picture is not None:
        check_picture(args.picture)
    flags.outputs(args, out=args.out, picture=args.picture)
    train, test = texts = [_read(path, args) for path in (args.train, args.test)]
    if n_seen := n_repeated(train, test):
        note(
            f"{args.test}: {n_seen:,} of {len(test):,} labelled tokens are in the same sentence in "
            f"{args.train}: on these, the probe measures memorisation."
        )
    n_sentences = len(train.sentences)
    check_sizes(args.sizes, n_sentences)
    static = None
    if args.static is not None:
        words = {*itertools.chain(*train.sentences, *test.sentences)}
        static = analysis.StaticVectors.load(args.static, keep=words)
        n_vectors = sum(test.word(k) in static for k in range(len(test)))
        note(f"{args.static}: {n_vectors / len(test):.1%} of the test tokens have a vector")
    elmo = text_command.load_model(args).elmo
    with ProgressDisplay() as display:
        for text, path in zip(texts, (args.train, args.test), strict=True):
            text_command.warn_of_unseen(elmo.model, text.sentences, path)
        ours, theirs = (
            analysis.Occurrences.encoded(elmo, text, progress=display.show) for text in texts
        )
        rows = analysis.probe(
            ours, theirs, sizes=args.sizes, seeds=range(args.seeds), static=static,
            progress=display.show,
        )  # fmt: skip
    if args.out is not None:
        settings = flags.keywords(args, "train", "test", "column", "static")
        settings |= {"model": elmo.fingerprint()}
        write_json(args.out, {"settings": settings, "rows": [*map(asdict, rows)]})
    if args.picture is not None:
        save_picture(probe_chart(rows, n_sentences), args.picture)
    show(_tables(rows, n_sentences))
    return 0


def _read(path: str, args: argparse.Namespace) -> analysis.Sample:
    text = analysis.read_labelled(path, args.column)
    n_labels = len(set(text.labels or ()))
    n_sentences = len(text.sentences)
    note(f"{path}: {n_sentences:,} sentences, {len(text):,} labelled tokens, {n_labels:,} labels")
    return text


def _tables(rows: Sequence[analysis.ProbeRow], n_sentences: int) -> list[str]:
    """A table for each measure, and one of the weights of the mix."""
    sizes = list(dict.fromkeys(row.size for row in rows))
    head = ["training sentences", *(f"{s:,}" if s else f"all {n_sentences:,}" for s in sizes)]

    def score(value: Score | None) -> str:
        if value is None:
            return "-"
        return "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * number for number in value))

    def mix(row: analysis.ProbeRow) -> str | None:
        if row.weights is None:
            return None
        return " ".join(f"{weight:.2f}" for weight in [*row.weights, row.gamma])

    lines = []
    for title, cell in (
        ("accuracy, % [95 % interval]", lambda row: score(row.accuracy)),
        ("accuracy on words that the training sentences lack, %", lambda row: score(row.unseen)),
        ("macro-F1, %", lambda row: f"{100 * row.macro_f1:.1f}"),
        ("weights of the layers in the mix, and gamma", mix),
    ):
        cells: dict[str, list[str]] = {}
        for row in rows:
            if (text := cell(row)) is not None:
                cells.setdefault(row.representation, [row.representation]).append(text)
        lines += [title, *table([head, *cells.values()]), ""]
    return lines[:-1]
