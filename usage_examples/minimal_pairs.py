"""Which of two sentences is more probable? Minimal pairs in the form of BLiMP.

  python usage_examples/minimal_pairs.py 'blimp/data/*.jsonl' --model english

A line is a JSON object with sentence_good and sentence_bad, and perhaps the phenomenon as
linguistics_term, phenomenon or UID (Warstadt et al. 2020). For each phenomenon, the program prints
the percentage of pairs whose good sentence is more probable, by the log-probabilities of a
sentence with its end; equal scores count as half.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from common.experiment import MODEL_HELP

from bilm import Predictor
from bilm.cli import flags
from bilm.core.errors import TEXT, InputError, require, shown
from bilm.files.reading import find_all_files, parse_json, read_lines
from bilm.terminal import note, table

PHENOMENA = ("linguistics_term", "phenomenon", "UID")
# The column of each sum of log-probabilities.
TOTALS = {"forward": "forward_total", "backward": "backward_total", "both": "joint_total"}


class Pair(NamedTuple):
    """An acceptable sentence, an unacceptable one, and the phenomenon, "" if it is unknown."""

    good: str
    bad: str
    phenomenon: str


def main(argv: Sequence[str] | None = None) -> None:
    """Print the accuracy for each phenomenon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add(parser, {"files FILE": "files or globs of JSON lines"}, nargs="+")
    flags.add(parser, {"--model MODEL": MODEL_HELP}, required=True)
    flags.add(parser, {"--tokenizer CODE": "how text is split (default: as the model records)"})
    flags.add(parser, flags.PRECISION, default="float32")
    args = parser.parse_args(argv)
    try:
        pairs = list(read(find_all_files(args.files)))
        predictor = Predictor.from_pretrained(
            args.model, tokenizer=args.tokenizer, precision=args.precision
        )
    except InputError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    columns, points, n_unknown = score(predictor, pairs)
    rows = [["phenomenon", "pairs", *columns]]
    for name in [*sorted(filter(None, points)), ""]:
        accuracies = (f"{100 * share:.1f} %" for share in np.mean(points[name], axis=0))
        rows.append([name or "all", f"{len(points[name]):,}", *accuracies])
    print(*table(rows), sep="\n")
    note(f"{n_unknown:,} of {len(pairs):,} pairs have tokens outside the vocabulary")


def read(files: Iterable[str]) -> Iterator[Pair]:
    """The pairs of files."""
    for path in files:
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            values = parse_json(line, where)
            if not isinstance(values, dict):
                raise InputError(f"{where}: must be a JSON object, got {shown(line)}.")
            phenomenon = next((values[name] for name in PHENOMENA if name in values), "")
            pair = Pair(values.get("sentence_good", ""), values.get("sentence_bad", ""), phenomenon)
            require(TEXT, **{f"{where}: {name}": value for name, value in pair._asdict().items()})
            if not pair.good.strip() or not pair.bad.strip():
                raise InputError(f"{where}: must have sentence_good and sentence_bad.")
            yield pair


def score(
    predictor: Predictor, pairs: Sequence[Pair]
) -> tuple[list[str], dict[str, list[list[float]]], int]:
    """The columns, the points of the pairs in each column, by phenomenon and for all pairs (""),
    and the number of pairs with unknown tokens."""
    columns = list(TOTALS)[: 3 if predictor.options.n_directions > 1 else 1]
    points, n_unknown = defaultdict(list), 0
    scores = predictor.score_iter(text for pair in pairs for text in pair[:2])
    for pair, good, bad in zip(pairs, scores, scores, strict=True):
        values = ((getattr(good, TOTALS[c]), getattr(bad, TOTALS[c])) for c in columns)
        row = [((x > y) + (x >= y)) / 2 for x, y in values]
        for name in {"", pair.phenomenon}:
            points[name].append(row)
        n_unknown += not (good.known.all() and bad.known.all())
    return columns, points, n_unknown


if __name__ == "__main__":
    main()
