"""Pictures of probing: accuracy by training size, and the weights of the mix.

They are figures 1 and 2 of Peters et al. (2018) for labels of one's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from bilm.analysis.probing import MAJORITY, ProbeCell, mix_weights, summarised
from bilm.analysis.word_sense import SenseRow
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write

FORMATS = (".png", ".svg")
_WIDTH, _HEIGHT = 420, 300
_PURPOSE = "--picture"


def check_picture(path: PathLike) -> None:
    """Raise an InputError unless a picture can be written there."""
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise InputError(f"{path}: a file name that ends in {' or '.join(FORMATS)} is expected.")
    import_extra("altair", _PURPOSE)
    import_extra("vl_convert", _PURPOSE)


def save_picture(chart: Any, path: PathLike) -> None:
    """Write a chart as PNG or SVG.

    Raises:
        InputError: another ending, or a package is missing.
    """
    check_picture(path)
    kind = os.path.splitext(path)[1].lower()[1:]
    with atomic_write(path) as temporary:
        chart.save(temporary, format=kind, **({"scale_factor": 2} if kind == "png" else {}))


def probe_chart(cells: Iterable[ProbeCell], n_sentences: int) -> Any:
    """Accuracy by training size, a line for each representation, and the weights of the mix.

    Args:
        cells: from `probe`.
        n_sentences: of the whole training text.

    Returns:
        an Altair chart; bars of one standard deviation over the seeds, where there are several.
    """
    altair = import_extra("altair", _PURPOSE)
    cells = list(cells)
    charts = [_accuracy_chart(altair, cells, n_sentences)]
    if any(cell.weights is not None for cell in cells):
        charts.append(_weights_chart(altair, cells, n_sentences))
    return altair.hconcat(*charts).resolve_scale(color="independent")


def sense_chart(rows: Sequence[SenseRow]) -> Any:
    """Bars of the accuracy of each way of finding senses; an Altair chart."""
    altair = import_extra("altair", _PURPOSE)
    values = []
    for row in rows:
        several = row.ambiguous_accuracy
        for uses, accuracy in (("all", row.accuracy), ("of words with several senses", several)):
            if accuracy is not None:
                values.append({"by": row.representation, "uses": uses, "accuracy": accuracy})
    names = [row.representation for row in rows]
    return (
        altair.Chart(altair.Data(values=values), width=_WIDTH, height=_HEIGHT)
        .mark_bar()
        .encode(
            x=altair.X("by:N", sort=names, title=None),
            xOffset="uses:N",
            y=altair.Y("accuracy:Q", axis=altair.Axis(format="%")),
            color=altair.Color("uses:N", title="uses"),
        )
    )


def _accuracy_chart(altair: Any, cells: Sequence[ProbeCell], n_sentences: int) -> Any:
    # The most frequent label is so far below the rest that these would look alike.
    cells = [cell for cell in cells if cell.representation != MAJORITY] or cells
    names = list(dict.fromkeys(cell.representation for cell in cells))
    values = [
        {
            "by": name,
            "sentences": n_sentences if size is None else size,
            "accuracy": found.mean,
            "low": found.mean - found.deviation,
            "high": found.mean + found.deviation,
        }
        for (name, size), found in summarised(cells, lambda cell: cell.accuracy).items()
    ]
    sizes = {n_sentences if cell.size is None else cell.size for cell in cells}
    base = altair.Chart(altair.Data(values=values), width=_WIDTH, height=_HEIGHT)
    scale = altair.Scale(zero=False)
    color = altair.Color("by:N", sort=names, title=None)
    if len(sizes) == 1:
        x = altair.X("by:N", sort=names, title=None)
        marks = base.mark_point(filled=True, size=60)
    else:
        x = altair.X(
            "sentences:Q",
            scale=altair.Scale(type="log", nice=False),
            axis=altair.Axis(values=sorted(sizes), format=","),
            title="training sentences",
        )
        marks = base.mark_line(point=True)
    # The bars name the axis as well, or Vega-Lite puts "low, high" beside its title.
    accuracy = altair.Axis(format="%", title="accuracy")
    shown = marks.encode(x=x, y=altair.Y("accuracy:Q", scale=scale, axis=accuracy), color=color)
    bars = base.mark_rule().encode(
        x=x, y=altair.Y("low:Q", scale=scale, axis=accuracy), y2="high:Q", color=color
    )
    return bars + shown


def _weights_chart(altair: Any, cells: Sequence[ProbeCell], n_sentences: int) -> Any:
    values, sizes = [], []
    for size, layers in mix_weights(cells).items():
        sizes.append(f"{n_sentences if size is None else size:,}")
        for layer, found in enumerate(layers):
            values.append(
                {
                    "layer": f"layer {layer}",
                    "sentences": sizes[-1],
                    "weight": found.mean,
                    "low": found.mean - found.deviation,
                    "high": found.mean + found.deviation,
                }
            )
    base = altair.Chart(altair.Data(values=values), width=_WIDTH // 2, height=_HEIGHT)
    x = altair.X("layer:N", title=None, axis=altair.Axis(labelAngle=0))
    offset = altair.XOffset("sentences:N", sort=sizes)
    axis = altair.Axis(title="weight in the mix")
    bars = base.mark_bar().encode(
        x=x,
        xOffset=offset,
        y=altair.Y("weight:Q", axis=axis),
        color=altair.Color("sentences:N", sort=sizes, title="training sentences"),
    )
    rules = base.mark_rule().encode(
        x=x, xOffset=offset, y=altair.Y("low:Q", axis=axis), y2="high:Q"
    )
    return bars + rules
