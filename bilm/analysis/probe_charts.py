"""Figures by matplotlib: probing, as figures 1 and 2 of Peters et al. (2018), and maps of words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write

if TYPE_CHECKING:
    from bilm.analysis.probing import ProbeRow
    from bilm.analysis.static_vectors import StaticVectors

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


def probe_chart(rows: Sequence[ProbeRow], n_sentences: int) -> Any:
    """A figure of the accuracy by training size with 95 % intervals, a line per representation,
    and of the weights of the mix.

    Args:
        rows: from `probe`.
        n_sentences: number of sentences of the complete training text.
    """
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    sizes = list(dict.fromkeys(row.size or n_sentences for row in rows))
    # The majority baseline is so low that the other curves would be indistinguishable.
    for name in dict.fromkeys(
        row.representation for row in rows if row.representation != "majority"
    ):
        curve = [row for row in rows if row.representation == name]
        x = [row.size or n_sentences for row in curve] if len(sizes) > 1 else [name]
        values, lows, highs = 100 * np.transpose([row.accuracy for row in curve])
        # A mean over seeds can lie outside its interval by rounding.
        errors = np.maximum([values - lows, highs - values], 0)
        left.errorbar(x, values, errors, marker="o", label=name)
    left.set_ylabel("accuracy, %")
    left.grid(alpha=0.3)
    if len(sizes) > 1:
        left.set_xscale("log")
        left.set_xticks(sizes, [f"{size:,}" for size in sizes])
        left.minorticks_off()
        left.set_xlabel("training sentences")
        left.legend(fontsize="small")
    else:
        left.tick_params(axis="x", rotation=30)
    mixes = [row for row in rows if row.weights is not None]
    width = 0.8 / len(mixes)
    for k, row in enumerate(mixes):
        layers = np.arange(len(row.weights or ()))
        label = f"{row.size or n_sentences:,} sentences"
        right.bar(layers + (k + 0.5) * width - 0.4, row.weights, width, label=label)
        right.set_xticks(layers, [f"layer {number}" for number in layers])
    right.set_ylabel("weight in the mix")
    right.margins(y=0.3)  # space for the legend above the bars
    right.legend(fontsize="small")
    return figure


def word_map(vectors: StaticVectors, groups: Mapping[str, Sequence[str]]) -> Any:
    """A figure of words in two dimensions by t-SNE on cosines, a colour per group; a word that is
    in several groups has the colour of the first."""
    manifold = import_extra("sklearn.manifold", "--picture")
    names: dict[str, str] = {}
    for name, words in groups.items():
        names |= {word: name for word in words if word not in names}
    table = vectors.table([*names])
    if len(names) < 3:
        raise InputError(f"a map must have three words, got {len(names)}.")
    tsne = manifold.TSNE(
        metric="cosine", perplexity=min(30, (len(names) - 1) / 3), init="random", random_state=0
    )
    points = tsne.fit_transform(table)
    figure = new_figure(8, 8)
    axes = figure.subplots()
    axes.set_axis_off()
    colours = {name: f"C{k % 10}" for k, name in enumerate(groups)}
    for (word, name), (x, y) in zip(names.items(), points, strict=True):
        axes.text(x, y, word, color=colours[name], ha="center", parse_math=False)
    axes.update_datalim(points)
    axes.autoscale_view()
    return figure
