"""Word senses by the nearest labelled occurrences, by layer: table 5 of Peters et al. (2018).

  python usage_examples/senses.py --data senses-en --model elmo

The folder has train.jsonl and test.jsonl (also .gz, .xz), one sentence per line; a sense belongs to
the token at its index:

  {"tokens": ["the", "line", "coach"], "senses": [[2, "coach", "NOUN", "coach%1:18:01::"]]}

Each test occurrence is compared with the training occurrences of the same lemma and part of speech:
with the mean of each sense, as in the paper, or by another --method. A word that does not occur in
training counts as wrong; the paper assigns WordNet's first sense. `bilm probe` does the same for
other file formats, and table 6, parts of speech by layer.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from common.experiment import MODEL_HELP
from common.reading import as_tokens, find_file, read_json_lines

from bilm import ELMo
from bilm.analysis import Occurrences, Sample, sense_table
from bilm.analysis.word_sense import METHODS
from bilm.cli import flags
from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay
from bilm.terminal import table


def main(argv: Sequence[str] | None = None) -> None:
    """Print the accuracy of each layer and of the baselines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    needed = {"--data FOLDER": "folder with the examples", "--model MODEL ...": MODEL_HELP}
    flags.add(parser, needed, required=True)
    flags.add(
        parser,
        {
            f"--method {'|'.join(METHODS)}": "use: the nearest occurrence; mean: the nearest mean "
            "of a sense; prior: log frequency of a sense + kappa * cosine with its mean (default: "
            "mean)",
            "--pos POS ...": "use only these parts of speech, such as VERB",
            "--format text|json": "format of the results",
        },
    )
    parser.set_defaults(method="mean", format="text")
    args = parser.parse_args(argv)
    try:
        report(args, *(read(find_file(args.data, f"{part}.jsonl"), args.pos)
                       for part in ("train", "test")))  # fmt: skip
    except (InputError, FileNotFoundError) as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")


def read(path: str, pos: Sequence[str] | None = None) -> tuple[Sample, list[str]]:
    """Read occurrences, with their senses as labels, and the lemma and part of speech of each."""
    sentences: list[tuple[str, ...]] = []
    positions, labels, words = [], [], []
    for where, line in read_json_lines(path, {"tokens": list, "senses": list}):
        tokens = as_tokens(line["tokens"], where)
        for sense in line["senses"]:
            if not isinstance(sense, list) or [type(x) for x in sense] != [int, str, str, str]:
                raise InputError(f"{where}: must be [index, lemma, pos, key], got {sense!r}.")
            index, lemma, kind, key = sense
            if not 0 <= index < len(tokens):
                raise InputError(f"{where}: index must be below {len(tokens)}, got {index}.")
            if pos is None or kind in pos:
                positions.append((len(sentences), index))
                labels.append(key)
                words.append(f"{lemma}/{kind}")
        sentences.append(tokens)
    if not labels:
        raise InputError(f"{path}: must have a sense{f' of {pos}' if pos else ''}.")
    return Sample(sentences, np.array(positions, np.int64), labels), words


def report(
    args: argparse.Namespace, train: tuple[Sample, list[str]], test: tuple[Sample, list[str]]
) -> None:
    """Compute the table and print it."""
    elmo = ELMo.from_pretrained(args.model[0] if len(args.model) == 1 else args.model)
    with ProgressDisplay() as display:
        uses, asked = (
            Occurrences.encoded(elmo, sample, context=True, progress=display.show)
            for sample, _ in (train, test)
        )
    rows = sense_table(uses, asked, args.method, words=(train[1], test[1]))
    kinds = np.array([word.rpartition("/")[2] for word in test[1]])
    names = sorted(set(kinds))
    if args.format == "json":
        settings = {key: value for key, value in vars(args).items() if key != "format"}
        print(json.dumps({"task": "senses", "settings": settings, "rows": [*map(asdict, rows)]}))
        return
    cells = [["", "all", *names, "kappa"]]
    for row in rows:
        accuracies = [row.accuracy, *(np.array(row.right)[kinds == name].mean() for name in names)]
        kappa = "-" if row.kappa is None else f"{row.kappa:g}"
        cells.append([row.representation, *(f"{100 * x:.1f}" for x in accuracies), kappa])
    print("\n".join([f"{len(asked):,} occurrences; accuracy, %", *table(cells)]))


if __name__ == "__main__":
    main()
