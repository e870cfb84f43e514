"""Homographs of a treebank, as files of labelled occurrences for senses.py.

  python homographs.py --train la_proiel-ud-dev.conllu --test la_proiel-ud-test.conllu --out latin
  python senses.py --train latin-train.txt --test latin-test.txt --model latin

A homograph is a word form, in lower case, with at least two analyses (lemma and part of speech),
each of which occurs --min_count times in both files together: Latin *cum* is a preposition or a
conjunction. A line has an analysis, a tab, and a sentence with the word in brackets.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class AnalysedSentence(NamedTuple):
    """Words, and the analysis of each, such as "cum/ADP"."""

    words: list[str]
    analyses: list[str]


def read_conllu(path: Path) -> Iterator[AnalysedSentence]:
    """Read the sentences of a CoNLL-U file; ranges (1-2) and empty nodes (1.1) are skipped."""
    words: list[str] = []
    analyses: list[str] = []
    with open(path, encoding="utf-8") as lines:
        for line in [*lines, ""]:
            columns = line.rstrip("\n").split("\t")
            if columns[0].isdigit():
                words.append("".join(columns[1].split()))
                analyses.append(f"{columns[2].lower()}/{columns[3]}")
            elif not line.strip() and words:
                yield AnalysedSentence(words, analyses)
                words, analyses = [], []


def homographs(sentences: Sequence[AnalysedSentence], min_count: int) -> dict[str, set[str]]:
    """The analyses of each homograph that occur at least `min_count` times."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for word, analysis in zip(*sentence, strict=True):
            counts[word.lower()][analysis] += 1
    frequent = {
        word: {analysis for analysis, count in analyses.items() if count >= min_count}
        for word, analyses in counts.items()
    }
    return {word: analyses for word, analyses in frequent.items() if len(analyses) > 1}


def occurrences(
    sentences: Sequence[AnalysedSentence], analyses: dict[str, set[str]]
) -> Iterator[str]:
    """The lines of the occurrences of homographs."""
    for sentence in sentences:
        for position, (word, analysis) in enumerate(zip(*sentence, strict=True)):
            if analysis in analyses.get(word.lower(), ()):
                before, after = sentence.words[:position], sentence.words[position + 1 :]
                yield f"{analysis}\t{' '.join([*before, f'[{word}]', *after])}\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Write OUT-train.txt and OUT-test.txt, and print the number of occurrences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", type=Path, required=True, help="CoNLL-U file to train on")
    parser.add_argument("--test", type=Path, required=True, help="CoNLL-U file to measure on")
    parser.add_argument("--out", required=True, help="start of the names of both files")
    parser.add_argument("--min_count", type=int, default=30)
    args = parser.parse_args(argv)
    parts = {part: list(read_conllu(getattr(args, part))) for part in ("train", "test")}
    analyses = homographs([*parts["train"], *parts["test"]], args.min_count)
    if not analyses:
        sys.exit(f"homographs.py: error: no word has two analyses {args.min_count} times each.")
    for part, sentences in parts.items():
        lines = list(occurrences(sentences, analyses))
        Path(f"{args.out}-{part}.txt").write_text("".join(lines), encoding="utf-8")
        print(f"{args.out}-{part}.txt: {len(lines)} occurrences of {', '.join(sorted(analyses))}")


if __name__ == "__main__":
    main()
