"""Accuracy by the amount of text that a language model was trained on: results of `bilm probe` side
by side.

  python usage_examples/text_curve.py 0.1=100/pos.json 0.3=300/pos.json 1=1000/pos.json \\
      --train_sentences 1000 --picture curve.svg

Each argument is the text in millions of words, an equals sign and a file of `bilm probe --out`. The
figure has a line with 95 % intervals for each representation, on all words and on words that the
training sentences lack; the tables have the same numbers. All files must be of the same labels and
representations.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

from bilm import InputError
from bilm.analysis.pictures import check_picture, new_figure, save_picture
from bilm.files.reading import read_json_object
from bilm.files.writing import Outputs

MEASURES = {"accuracy": "all words", "unseen": "words that the training sentences lack"}


def read_results(texts: Sequence[str], n_sentences: int | None) -> dict[float, dict[str, Any]]:
    """By millions of words and representation, the scores (value, low, high) of each measure, for
    one training size; `texts` are WORDS=FILE."""
    results: dict[float, dict[str, Any]] = {}
    task = None
    for text in texts:
        number, _, path = text.partition("=")
        try:
            words = float(number)
        except ValueError:
            words = math.nan
        if not (0 < words < math.inf and path) or words in results:
            raise InputError(f"must be WORDS=FILE with different numbers above 0, got {text}.")
        content = read_json_object(path, "result of bilm probe")
        if not {"settings", "rows"} <= set(content):
            raise InputError(f"{path}: must be a file of `bilm probe --out`.")
        rows = {row["representation"]: {name: row[name] for name in MEASURES}
                for row in content["rows"] if row["size"] == n_sentences}  # fmt: skip
        if not rows:
            raise InputError(f"{path}: must have rows of size {n_sentences or 'all'}.")
        labels = [content["settings"].get(name) for name in ("train", "test", "column")]
        task = task or (labels, list(rows))
        if task != (labels, list(rows)):
            raise InputError(f"{path}: must be of the same labels as {texts[0]}, {task}, got "
                             f"{(labels, list(rows))}.")  # fmt: skip
        results[words] = rows
    return dict(sorted(results.items()))


def table(results: dict[float, dict[str, Any]], measure: str) -> list[str]:
    """A Markdown table: a row for each representation, a column for each amount of text."""
    lines = ["| | " + " | ".join(f"{words:g} M words" for words in results) + " |",
             "| --- |" + " --- |" * len(results)]  # fmt: skip
    for name in next(iter(results.values())):
        scores = (rows[name][measure] for rows in results.values())
        cells = ("{:.1f} [{:.1f}, {:.1f}]".format(*(100 * x for x in s)) if s else "-"
                 for s in scores)  # fmt: skip
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def chart(results: dict[float, dict[str, Any]]) -> Any:
    """A figure with a panel for each measure."""
    figure = new_figure(9, 4)
    words = list(results)
    for axes, (measure, title) in zip(figure.subplots(1, 2), MEASURES.items(), strict=True):
        for name in next(iter(results.values())):
            scores = [rows[name][measure] for rows in results.values()]
            if name == "majority" or None in scores:
                continue
            values, lows, highs = ([100 * score[k] for score in scores] for k in range(3))
            errors = [
                [max(value - low, 0) for value, low in zip(values, lows, strict=True)],
                [max(high - value, 0) for value, high in zip(values, highs, strict=True)],
            ]
            axes.errorbar(words, values, errors, marker="o", capsize=2, label=name)
        axes.set_title(title, fontsize="medium")
        axes.set_xscale("log")
        axes.set_xticks(words, [f"{n:g}" for n in words])
        axes.minorticks_off()
        axes.set_xlabel("millions of words of text")
        axes.set_ylabel("accuracy, %")
        axes.grid(alpha=0.3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, and draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", metavar="WORDS=FILE", help="text, and its results")
    sentences = "number of training sentences of the probes (default: all)"
    parser.add_argument("--train_sentences", type=int, metavar="N", help=sentences)
    parser.add_argument("--picture", metavar="FILE", help="draw the figure there: .png or .svg")
    args = parser.parse_args(argv)
    try:
        if args.picture is not None:
            check_picture(args.picture)
            Outputs([args.picture])
        results = read_results(args.results, args.train_sentences)
    except (InputError, OSError) as error:
        sys.exit(f"text_curve.py: error: {error}")
    for measure, title in MEASURES.items():
        print("\n".join([f"{title}, %", "", *table(results, measure), ""]))
    if args.picture is not None:
        save_picture(chart(results), args.picture)


if __name__ == "__main__":
    main()
