"""The chart of a projection: what is drawn, in the terms of Altair and Vega-Lite."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bilm.analysis.fonts import font_for
from bilm.analysis.occurrences import Occurrences
from bilm.analysis.projection import Projection, nearest

# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow, faint on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
_SHAPES = ("circle", "triangle-up", "square", "diamond", "cross")
_GREY, _FAINT = "#a0a0a0", "#e4e4e4"
_UNLABELLED, _OTHERS = "unlabelled", "others"

# In pixels: the whole picture, between panels, a panel alone, and a listed line.
_WIDTH, _GAP, _LARGE, _LINE = 890, 14, 620, 18
_ACROSS = 3  # panels beside each other
_EXTENT = 1000  # coordinates are whole numbers up to this
_LINES = 20  # listed at a time
_TOKENS = 40  # of a sentence on each side of the word, at most
_NEIGHBOURS = ("nearest", "second", "third")
_NEIGHBOUR_LENGTH = 45  # characters on each side of a neighbour's word
_ALL = "all"
_PANEL, _CHOSEN = "panel", "chosen"

_IS_FOUND = (
    "search === '' || indexof(lower(datum.l + ' ' + datum.w + ' ' + datum.r), lower(search)) >= 0"
)
_IS_LISTED = {
    "and": [
        {"param": "brush"},
        _IS_FOUND,
        {"or": [{"param": "brush", "empty": False}, "search !== ''"]},
    ]
}


class Drawing:
    """A chart of occurrences, one panel a layer.

    All panels are drawn from one table with a row for each occurrence: `k`, its kind, which the
    colour tells; `l`, `w` and `r`, the text before the word, the word, and the text after it; and
    for the first layer of the projection `x0`, `y0`, and `n0`, its nearest occurrences:
    number,cosine in hundredths, and so on; likewise for the other layers. It is text, of which
    Altair has less to check.

    A rectangle that is drawn in one panel is a range of that panel's x and y; as each row has the
    coordinates of all panels, the same occurrences are in it everywhere.

    Each panel is a facet of one cell: one that the menu leaves without rows takes no room.

    Args:
        altair: the package.
        occurrences: what is drawn.
        projection: of them.
        kinds: what the colour tells of each; "" is grey.
        told: what it is that the colour tells, such as "label".
        is_page: for a browser, with a search, a menu and the list of lines.
    """

    def __init__(
        self,
        altair: Any,
        occurrences: Occurrences,
        projection: Projection,
        kinds: Sequence[str],
        told: str,
        is_page: bool,
    ) -> None:
        self.alt = altair
        self.occurrences = occurrences
        self.projection = projection
        self.told = told
        self.is_page = is_page
        self.kinds, self.palette = _with_palette(kinds)
        self.has_menu = is_page and len(projection.layers) > 1

    def written(self, title: str) -> str:
        """All text that is drawn outside the page's list."""
        return "".join([title, *(name for name, _, _ in self.palette)])

    def chart(self, title: str) -> Any:
        """The whole picture."""
        alt = self.alt
        panels = range(len(self.projection.layers))
        across = min(_ACROSS, len(panels))
        size = (_WIDTH - (across - 1) * _GAP) // across if len(panels) > 1 else _LARGE
        parts = [
            alt.hconcat(*(self._panel(k, size) for k in panels[start : start + across]))
            for start in range(0, len(panels), across)
        ]
        if self.has_menu:
            parts += [self._panel(k, _LARGE, chosen=True) for k in panels]
        if self.is_page:
            parts += [self._count(), self._lines()]
        heading = alt.TitleParams(
            title, subtitle=self._subtitle(), anchor="start", fontSize=17, subtitleFontSize=12.5,
            subtitleColor="#666", subtitlePadding=6, offset=14,
        )  # fmt: skip
        chart = alt.vconcat(*parts, spacing=4).properties(
            data=self._data(),
            title=heading,
            # The menu makes the picture higher or lower.
            autosize=alt.AutoSizeParams(type="pad", resize=True),
        )
        chart.params = self._parameters()
        return (
            chart.configure(font=font_for(self.written(title)), background="white")
            .configure_view(stroke="#d0d0d0", strokeWidth=1)
            .configure_concat(spacing=_GAP)
        )

    def _parameters(self) -> list[Any]:
        """The rectangle that one draws in a panel, the menu of layers, and the search."""
        alt = self.alt
        numbers = self.projection.layers
        names = [_PANEL] + [_CHOSEN] * self.has_menu
        found = [
            alt.TopLevelSelectionParameter(
                name="brush",
                select=alt.IntervalSelectionConfig(type="interval"),
                views=[f"{name}{k}" for name in names for k in range(len(numbers))],
            )
        ]
        if self.has_menu:
            menu = alt.binding_select(
                options=[_ALL, *map(str, numbers)],
                labels=["all layers", *(f"layer {number}" for number in numbers)],
                name="Show",
            )
            found.append(alt.VariableParameter(name="layer", value=_ALL, bind=menu))
        if self.is_page:
            search = alt.binding(
                input="search", name="Search", placeholder="part of a sentence", debounce=200
            )
            found.append(alt.VariableParameter(name="search", value="", bind=search))
        return found

    def _subtitle(self) -> list[str]:
        where = "a dot in every panel" if len(self.projection.layers) > 1 else "a dot"
        shown = f"{len(self.occurrences):,} occurrences, each of them {where}. "
        if self.projection.perplexity is None:
            shown += "PCA: the two directions in which the layer's vectors differ most."
        else:
            shown += f"t-SNE with perplexity {self.projection.perplexity:.3g}: "
            shown += "distances between groups mean little."
        lines = [shown]
        for layer, n in zip(self.projection.layers, self.projection.n_distinct, strict=True):
            if layer == 0 and n < len(self.occurrences):
                lines.append(
                    f"Layer 0 knows no context: {n} vector{'s' * (n > 1)}, one for each word and "
                    "spelling, so that many dots lie on each other."
                )
        return lines

    def _panel_title(self, k: int) -> str:
        name = f"layer {self.projection.layers[k]}"
        if self.projection.variance is None:
            return name
        first, second = 100 * self.projection.variance[k]
        if first == 0:
            return f"{name}: all vectors are equal"
        return f"{name}: {first:.0f} % + {second:.0f} % of the variance"

    def _panel(self, k: int, size: int, chosen: bool = False) -> Any:
        """The panel of a layer: one of all, or the one that the menu has chosen."""
        alt = self.alt
        chart = alt.Chart()
        if self.has_menu:
            menu = str(self.projection.layers[k]) if chosen else _ALL
            chart = chart.transform_filter(f"layer === {menu!r}")
        chart = chart.transform_calculate(
            panel=json.dumps(self._panel_title(k), ensure_ascii=False),
            sentence="datum.l + ' [' + datum.w + '] ' + datum.r",
            **{name: _neighbour(k, j) for j, name in enumerate(_NEIGHBOURS)},
        )
        wanted = [{"param": "brush"}, *([_IS_FOUND] if self.is_page else [])]
        marked = {"test": {"and": wanted}}
        scale = alt.Scale(domain=[-1.06 * _EXTENT, 1.06 * _EXTENT], nice=False, zero=False)
        header = alt.Header(
            labelFontSize=12.5, labelFontWeight="bold", labelColor="#333", labelPadding=6
        )
        return (
            chart.mark_point(
                aria=False, filled=True, size=_dot_size(len(self.kinds), size), strokeWidth=0
            )
            .encode(
                x=alt.X(f"x{k}:Q", axis=None, scale=scale),
                y=alt.Y(f"y{k}:Q", axis=None, scale=scale),
                column=alt.Column("panel:N", title=None, header=header),
                color=alt.condition(marked, self._colour(), alt.value(_FAINT)),
                opacity=alt.condition(marked, alt.value(0.75), alt.value(0.5)),
                tooltip=self._tooltip(),
                **self._shape(),
            )
            .properties(width=size, height=size, name=f"{_CHOSEN if chosen else _PANEL}{k}")
        )

    def _tooltip(self) -> list[Any]:
        alt = self.alt
        kind = [alt.Tooltip("k:N", title=self.told)] if len(self.palette) > 1 else []
        return [alt.Tooltip("sentence:N"), *kind, *(alt.Tooltip(f"{n}:N") for n in _NEIGHBOURS)]

    def _colour(self) -> Any:
        names, colours, _ = zip(*self.palette, strict=True)
        if len(names) == 1:
            return self.alt.value(colours[0])
        scale = self.alt.Scale(domain=list(names), range=list(colours))
        return self.alt.Color("k:N", scale=scale, legend=self._legend())

    def _shape(self) -> dict[str, Any]:
        names, _, shapes = zip(*self.palette, strict=True)
        if len(set(shapes)) == 1:
            return {}
        scale = self.alt.Scale(domain=list(names), range=list(shapes))
        return {"shape": self.alt.Shape("k:N", scale=scale, legend=self._legend())}

    def _legend(self) -> Any:
        return self.alt.Legend(
            title=None, orient="top", direction="horizontal", columns=8, symbolSize=90,
            symbolOpacity=1, symbolLimit=0, labelFontSize=12.5, labelLimit=220, offset=10,
        )  # fmt: skip

    def _count(self) -> Any:
        """How many lines there are, or how to get some."""
        alt = self.alt
        # The parameter has the range of whichever panel the rectangle is in.
        brushed = [f"isArray(brush.x{k})" for k in range(len(self.projection.layers))]
        idle = f"!({' || '.join(brushed)} || search !== '')"
        hint = "Draw a rectangle in a panel, or search: the lines are listed here."
        amount = (
            f"datum.n > {_LINES} ? format(datum.n, ',') + ' lines, of which the first {_LINES}:'"
            " : datum.n === 1 ? '1 line:' : datum.n + ' lines:'"
        )
        counted = alt.Chart().transform_filter(_IS_LISTED).transform_aggregate(n="count()")
        waiting = alt.Chart().transform_filter(idle).transform_aggregate(n="count()")
        parts = [
            chart.mark_text(align="left", fontSize=13, fontWeight=weight, color="#333").encode(
                x=alt.value(0), y=alt.value(12), text="said:N"
            )
            for chart, weight in (
                (counted.transform_calculate(said=amount), "bold"),
                (waiting.transform_calculate(said=repr(hint)), "normal"),
            )
        ]
        return alt.layer(*parts).properties(
            width=_WIDTH, height=20, view=alt.ViewBackground(stroke=None)
        )

    def _lines(self) -> Any:
        """The lines of what is marked, the words below each other (key word in context)."""
        alt = self.alt
        listed = (
            alt.Chart()
            .transform_filter(_IS_LISTED)
            .transform_window(row="row_number()")
            .transform_filter(f"datum.row <= {_LINES}")
            .encode(
                y=alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[_LINES + 0.5, 0.5], nice=False))
            )
        )
        colour = self._colour()
        side = {"fontSize": 12.5, "limit": 372, "color": "#444"}
        middle = _WIDTH / 2
        parts = [
            listed.mark_point(filled=True, size=50, opacity=1).encode(x=alt.value(6), color=colour),
            listed.mark_text(align="right", dir="rtl", **side).encode(
                x=alt.value(middle - 55), text="l:N"
            ),
            listed.mark_text(align="center", limit=104, fontSize=12.5, fontWeight="bold").encode(
                x=alt.value(middle), text="w:N", color=colour
            ),
            listed.mark_text(align="left", **side).encode(x=alt.value(middle + 55), text="r:N"),
        ]
        return alt.layer(*parts).properties(
            width=_WIDTH, height=_LINE * _LINES, view=alt.ViewBackground(stroke=None)
        )

    def _data(self) -> Any:
        """The table, tab-separated."""
        columns: list[Sequence[Any]] = [self.kinds]
        columns += zip(*(_around(self.occurrences, k) for k in range(len(self.kinds))), strict=True)
        names = ["k", "l", "w", "r"]
        for k, layer in enumerate(self.projection.layers):
            columns += zip(*_fitted(self.projection.points[:, k]), strict=True)
            columns.append(_nearest_as_text(self.occurrences, layer))
            names += [f"x{k}", f"y{k}", f"n{k}"]
        text = io.StringIO()
        writer = csv.writer(text, "excel-tab", lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))
        # The others are text as it stands.
        numbers = {name: "number" for name in names if name[0] in "xy"}
        return self.alt.InlineData(
            values=text.getvalue(),
            format=self.alt.DsvDataFormat(delimiter="\t", type="dsv", parse=numbers),
            name="uses",
        )


def _nearest_as_text(occurrences: Occurrences, layer: int) -> list[str]:
    numbers, cosines = nearest(occurrences, layer, len(_NEIGHBOURS))
    return [
        ",".join(
            f"{other},{round(100 * float(cosine))}"
            for other, cosine in zip(*pair, strict=True)
            if other >= 0
        )
        for pair in zip(numbers, cosines, strict=True)
    ]


def _with_palette(kinds: Sequence[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The kinds as they are shown, and the name, colour and shape of each, the largest first.

    What has no kind is grey, and so are the smallest where there are more than can be told apart.
    """
    known = sorted(Counter(filter(None, kinds)).items(), key=lambda item: (-item[1], item[0]))
    names = [name for name, _ in known[: len(_COLOURS) * len(_SHAPES)]]
    palette = [
        (name, _COLOURS[k % len(_COLOURS)], _SHAPES[k // len(_COLOURS)])
        for k, name in enumerate(names)
    ]
    chosen = set(names)
    shown = [kind if kind in chosen else _OTHERS if kind else _UNLABELLED for kind in kinds]
    present = set(shown)
    palette += [
        (name, _GREY, "circle") for name in (_OTHERS, _UNLABELLED) if name in present - chosen
    ]
    return shown, palette


def _dot_size(n: int, panel: int) -> float:
    """The area of a dot in square pixels: the more there are, the smaller."""
    return float(np.clip(panel * panel / n / 12, 9, 46))


def _fitted(points: np.ndarray) -> list[list[int]]:
    """Coordinates (n, 2) as whole numbers that fill a square; both axes have one scale."""
    low, high = points.min(axis=0), points.max(axis=0)
    reach = max(float((high - low).max()) / 2, 1e-12)
    return np.rint((points - (low + high) / 2) / reach * _EXTENT).astype(int).tolist()


def _around(occurrences: Occurrences, number: int) -> tuple[str, str, str]:
    """The text before an occurrence, the word itself, and the text after it."""
    position = int(occurrences.positions[number, 1])
    sentence = occurrences.sentence(number)
    left = list(sentence[max(0, position - _TOKENS) : position])
    right = list(sentence[position + 1 : position + 1 + _TOKENS])
    if position > _TOKENS:
        left.insert(0, "…")
    if position + 1 + _TOKENS < len(sentence):
        right.append("…")
    return " ".join(left), sentence[position], " ".join(right)


def _neighbour(k: int, j: int) -> str:
    """The cosine and the line of a row's neighbour number `j`, as a Vega expression."""
    near = f"split(datum.n{k}, ',')"
    row = f"data('uses')[toNumber({near}[{2 * j}])]"
    n = _NEIGHBOUR_LENGTH
    left = f"(length({row}.l) > {n} ? '…' + slice({row}.l, -{n}) : {row}.l)"
    right = f"(length({row}.r) > {n} ? slice({row}.r, 0, {n}) + '…' : {row}.r)"
    line = f"{left} + ' [' + {row}.w + '] ' + {right}"
    cosine = f"format({near}[{2 * j + 1}] / 100, '.2f')"
    return f"length({near}) > {2 * j + 1} ? {cosine} + '  ' + {line} : ''"
