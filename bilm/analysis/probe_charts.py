"""Figures of probing and of word senses, by matplotlib.

Accuracy by training size, and the weights of the mix: figures 1 and 2 of Peters et al. (2018).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bilm.analysis.probing import MAJORITY, ProbeCell, Summary, mix_weights, summarised
from bilm.analysis.word_sense import SenseRow
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write

FORMATS = (".png", ".svg")


def check_picture(path: PathLike) -> None:
    """Raise an InputError unless `path` ends in .png or .svg and matplotlib is installed."""
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise InputError(f"{path}: must end in {' or '.join(FORMATS)}.")
    import_extra("matplotlib", "--picture")


def new_figure(width: float, height: float) -> Any:
    """An empty `matplotlib.figure.Figure`, which needs no display; size in inches."""
    figures = import_extra("matplotlib.figure", "--picture")
    return figures.Figure(figsize=(width, height), layout="constrained")


def legend_label(text: str) -> str:
    """A label for a legend; matplotlib leaves out those that begin with an underscore."""
    return f" {text}" if text.startswith("_") else text


def save_picture(figure: Any, path: PathLike) -> None:
    """Write a figure as PNG or SVG, by the ending of the path."""
    check_picture(path)
    kind = os.path.splitext(path)[1].lower()[1:]
    matplotlib = import_extra("matplotlib", "--picture")
    # Reproducible files, with text as text in SVG.
    with (
        atomic_write(path) as temporary,
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bilm"}),
    ):
        date = {"Date": None} if kind == "svg" else {}
        figure.savefig(temporary, format=kind, dpi=200, metadata=date)


def probe_chart(cells: Iterable[ProbeCell], n_sentences: int) -> Any:
    """Accuracy by training size, a line for each representation, and the weights of the mix.

    Args:
        cells: from `probe`.
        n_sentences: number of sentences of the complete training text.

    Returns:
        a figure; error bars are one standard deviation over the seeds.
    """
    cells = list(cells)
    weights = mix_weights(cells)
    if not weights:
        figure = new_figure(6, 4)
        _draw_accuracy(figure.subplots(), cells, n_sentences)
        return figure
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    _draw_accuracy(left, cells, n_sentences)
    width = 0.8 / len(weights)
    for k, (size, layers) in enumerate(weights.items()):
        means, deviations = zip(*layers, strict=True)
        x = np.arange(len(layers))
        label = f"{n_sentences if size is None else size:,} sentences"
        right.bar(x + (k + 0.5) * width - 0.4, means, width, yerr=deviations, label=label)
        right.set_xticks(x, [f"layer {number}" for number in x])
    right.set_ylabel("weight in the mix")
    right.margins(y=0.3)  # space for the legend above the bars
    right.legend(fontsize="small")
    return figure


def _draw_accuracy(axes: Any, cells: Sequence[ProbeCell], n_sentences: int) -> None:
    # The majority baseline is so low that the other curves would be indistinguishable.
    cells = [cell for cell in cells if cell.representation != MAJORITY] or cells
    accuracies = summarised(cells, lambda cell: cell.accuracy)
    curves: defaultdict[str, dict[int, Summary]] = defaultdict(dict)
    for (name, size), accuracy in accuracies.items():
        curves[name][size or n_sentences] = accuracy
    sizes = sorted({size for curve in curves.values() for size in curve})
    for name, curve in curves.items():
        means, deviations = 100 * np.transpose([*curve.values()])
        x = list(curve) if len(sizes) > 1 else [name]
        axes.errorbar(x, means, deviations, marker="o", label=name)
    axes.set_ylabel("accuracy, %")
    axes.grid(alpha=0.3)
    if len(sizes) > 1:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("training sentences")
        axes.legend(fontsize="small")
    else:
        axes.tick_params(axis="x", rotation=30)


def sense_chart(rows: Sequence[SenseRow]) -> Any:
    """A figure with bars for each row's accuracy on all occurrences and on ambiguous words."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    values = {
        "all occurrences": [row.accuracy for row in rows],
        "words with several senses": [
            np.nan if row.ambiguous_accuracy is None else row.ambiguous_accuracy for row in rows
        ],
    }
    x = np.arange(len(rows))
    for k, (name, accuracies) in enumerate(values.items()):
        axes.bar(x + 0.4 * k - 0.2, 100 * np.array(accuracies), 0.4, label=name)
    axes.set_xticks(x, [row.representation for row in rows], rotation=30)
    axes.set_ylabel("accuracy, %")
    axes.legend(fontsize="small")
    return figure
