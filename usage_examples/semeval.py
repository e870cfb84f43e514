"""Semantic change as in SemEval-2020, task 1: lemmas with tags, and agreement with gold scores.

  python usage_examples/semeval.py corpus1.txt corpus2.txt --targets targets.txt --model elmo \\
      --out change.tsv --gold graded.txt

Targets may end in a part of speech, as attack_nn. In a corpus with such tokens, the complete token
must match in any case, and the model reads all tokens without their tags; in other corpora, the
word must match. For each measure of change.tsv, the program prints Spearman's correlation with the
gold scores (lines of word, tab, score, which must rise with change), or for scores of 0 and 1 the
accuracy of "above the mean" and the AUC, with 95 % bootstrap intervals over the words.

--save_uses writes the vectors of each word as the programs of semeval2020 read them.
"""

from __future__ import annotations

import argparse
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from common.experiment import MODEL_HELP
from scipy import stats
from sklearn import metrics

from bilm import ELMo
from bilm.analysis import Occurrences, Sample, measure_change, sample_uses
from bilm.analysis.occurrences import indices_by_name
from bilm.analysis.semantic_change import read_targets, write_table
from bilm.cli import flags
from bilm.core.errors import InputError
from bilm.files.reading import read_lines
from bilm.terminal import table

MEASURES = ("excess", "JSD", "PRT", "APD", "geometric_mean")
_TAG = re.compile(r"_[^_]+$")
_RESAMPLES = 1000
_STATISTICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "Spearman": lambda x, gold: stats.spearmanr(x, gold).statistic,
    "accuracy": lambda x, gold: np.mean(x == gold),
    "AUC": lambda x, gold: metrics.roc_auc_score(gold, x),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table of changes, and print the agreement with gold scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add(parser, {"old OLD": "older corpus", "new NEW": "newer corpus"})
    needed = {"--targets FILE": "target words", "--model MODEL": MODEL_HELP, "--out FILE": "table"}
    flags.add(parser, needed, required=True)
    flags.add(parser, {"--gold FILE": "gold scores", "--save_uses FOLDER": "folder for vectors"})
    args = parser.parse_args(argv)
    try:
        targets = read_targets(args.targets)
        gold = None if args.gold is None else read_gold(args.gold)
        elmo = ELMo.from_pretrained(args.model)
        samples = [sample_tagged(path, targets) for path in (args.old, args.new)]
        old, new = (Occurrences.encoded(elmo, sample, layer="top") for sample in samples)
        frequencies = (samples[0].per_million(), samples[1].per_million())
        write_table(args.out, measure_change(old, new, targets, per_million=frequencies))
        for name, uses in (("old", old), ("new", new)) if args.save_uses else ():
            os.makedirs(args.save_uses, exist_ok=True)
            save_uses(os.path.join(args.save_uses, f"{name}.npz"), uses, targets)
        if gold is not None:
            print(*table(agreement(args.out, gold)), sep="\n")
    except InputError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")


def sample_tagged(path: str, targets: Sequence[str]) -> Sample:
    """Draw the occurrences of targets such as attack_nn; the sentences have no tags."""
    sample = sample_uses(read_lines(path), targets, may_be_missing=True)
    if not len(sample):
        by_word = {_TAG.sub("", target): target for target in targets}
        sample = sample_uses(read_lines(path), list(by_word), may_be_missing=True)
        counts = {by_word[word]: n for word, n in sample.counts.items()}
        names = [by_word[name] for name in sample.targets or ()]
        return replace(sample, targets=names, counts=counts)
    sentences = [tuple(_TAG.sub("", token) or token for token in s) for s in sample.sentences]
    return replace(sample, sentences=sentences)


def save_uses(path: str, occurrences: Occurrences, targets: Sequence[str]) -> None:
    """Write an .npz file of {word: matrix (occurrences, dim)}."""
    rows, vectors = indices_by_name(occurrences.names), occurrences.layer(0)
    # `numpy.savez` takes the words as keyword arguments, and so fails for the word "file".
    with zipfile.ZipFile(path, "w") as archive:
        for word in targets:
            with archive.open(f"{word}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, vectors[rows.get(word, [])])


def read_gold(path: str) -> dict[str, float]:
    """Gold scores: `word TAB score`, one per line."""
    gold = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, _, score = line.rstrip().partition("\t")
        try:
            gold[word] = float(score)
        except ValueError:
            rule = f"a word, a tab and a number, got {line[:80]!r}"
            raise InputError(f"{path}, line {number}: must be {rule}.") from None
    return gold


def agreement(path: str, gold: dict[str, float], seed: int = 0) -> list[list[str]]:
    """Rows of a table: how well each measure of a file of changes agrees with gold scores."""
    head, *rows = (line.split("\t") for line in read_lines(path))
    changes = [dict(zip(head, row, strict=True)) for row in rows]
    changes = [row for row in changes if row["word"] in gold and row["excess"] != "nan"]
    scores = np.array([gold[row["word"]] for row in changes])
    if len(scores) < 3 or len(set(scores)) == 1:
        raise InputError(f"{path}: at least 3 measured words must have gold scores that differ.")
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(scores), size=(_RESAMPLES, len(scores)))
    samples = [rows for rows in draws if len(set(scores[rows])) > 1]
    cells = [["measure", "statistic", "value", "95 % interval", "words"]]
    for name in MEASURES:
        values = np.nan_to_num([float(row[name]) for row in changes])
        is_binary = set(scores) == {0.0, 1.0}
        above = (values > values.mean()).astype(float)
        for title in ("accuracy", "AUC") if is_binary else ("Spearman",):
            statistic, x = _STATISTICS[title], above if title == "accuracy" else values
            resampled = [statistic(x[rows], scores[rows]) for rows in samples]
            low, high = np.nanpercentile(resampled, [2.5, 97.5])
            value = f"{statistic(x, scores):.3f}"
            cells.append([name, title, value, f"{low:.3f} to {high:.3f}", str(len(scores))])
    return cells


if __name__ == "__main__":
    main()
