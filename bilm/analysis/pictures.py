"""Pictures of occurrences in two dimensions, by PCA or t-SNE; pages and figures.

A picture is a PNG, an SVG, or an interactive page for a browser. The projected vectors are
`Occurrences.directions`; the neighbours on a page are computed from them too, not from the two
dimensions.
"""

import contextlib
import html
import json
import math
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size

from bilm.analysis.clusters import (
    Clusters,
    cluster_points,
    principal_components,
    typical_occurrences,
)
from bilm.analysis.contexts import direction
from bilm.analysis.occurrences import Occurrences, indices_by_name
from bilm.core.errors import InputError, import_extra, one_of, require
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write
from bilm.progress import ShowStage, counted, quiet
from bilm.terminal import printable

ENDINGS = (".html", ".png", ".svg")
_PERPLEXITY = 30.0

# Okabe and Ito's colour-blind safe colours, without yellow, which is faint on white. page.css and
# picture.html have the same colours and shapes.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
_MARKERS = "o^sDP"
_GREY = "#a0a0a0"
_MOST_KINDS = len(_COLOURS) * len(_MARKERS)
_UNLABELLED, _OTHERS = "unlabelled", "others"
_ACROSS = 3  # panels per row
_NEAREST = 3  # sentences listed for each cluster and as neighbours
_TOKENS = 40  # on each side of the word
_PER_INCH, _SWATCH = 13, 7  # columns of text in a legend, and those of a coloured dot
_EXTENT = 1000  # page coordinates are integers from 0 to this
_INVISIBLE = {"Zs", "Zl", "Zp", "Cc", "Cf"}  # spaces and control characters
_PURPOSE = "A picture of occurrences"
_NAMES = (
    " A cluster is named by its most typical words: the substitutes that the model predicts, or if "
    "it cannot predict words, nearby words that are more frequent than in other clusters."
)


@dataclass(frozen=True, eq=False)
class Projection:
    """Occurrences in two dimensions."""

    method: str  # "pca" or "tsne"
    layers: list[int]  # numbers of the m layers
    points: np.ndarray  # float32 (n, m, 2)
    # Float (m, 2): proportion of a layer's variance along each axis of PCA, zeros if all vectors
    # are equal; None for t-SNE.
    variance: np.ndarray | None
    n_distinct: list[int]  # different vectors in each layer; in layer 0, one for each spelling
    # Perplexity of t-SNE, lower in layers with few different vectors; None for PCA.
    perplexity: float | None


def project(
    occurrences: Occurrences,
    method: str = "pca",
    *,
    layers: Sequence[int | str] | None = None,
    perplexity: float | None = None,
    seed: int = 0,
    progress: ShowStage = quiet,
) -> Projection:
    """Project the vectors of each layer to two dimensions.

    Args:
        method: "pca", the two directions of highest variance, preserves large distances; "tsne"
            (van der Maaten and Hinton 2008) preserves neighbourhoods, while distances between its
            clusters, and their sizes, mean little.
        layers: numbers of layers, or "top"; None for all contextual layers (1 and up).
        perplexity: t-SNE's effective number of neighbours, less than a third of the occurrences.
            None: 30, or less for few occurrences.
        seed: random seed of t-SNE.
        progress: called with a `Stage` of layers.

    Raises:
        InputError: there are fewer than 3 occurrences, or too few for the perplexity.
    """
    if layers is None:
        layers = range(min(1, occurrences.n_layers - 1), occurrences.n_layers)
    numbers = [occurrences.layer_number(layer) for layer in layers]
    require(one_of(("pca", "tsne")), method=method)
    n, most, is_pca = len(occurrences), (len(occurrences) - 1) / 3, method == "pca"
    if n < 3:
        raise InputError(f"a picture needs at least 3 occurrences, got {n}.")
    perplexity = min(_PERPLEXITY, most) if perplexity is None else perplexity
    if not 0 < perplexity <= most:
        raise InputError(
            f"perplexity must be above 0 and at most {most:.4g}, a third of the other occurrences, "
            f"got {perplexity:g}."
        )
    manifold = import_extra("sklearn.manifold", _PURPOSE)
    points = np.zeros((n, len(numbers), 2), np.float32)
    variance, n_distinct = np.zeros((len(numbers), 2)), []
    # Several threads are slower for small data.
    with import_extra("threadpoolctl", _PURPOSE).threadpool_limits(1):
        counting = counted(numbers, progress, "projecting", len(numbers), "layers")
        for k, number in enumerate(counting):
            directions = occurrences.directions(number)
            rounded = directions.round(5)
            _, first, index = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
            distinct, index = directions[first], index.reshape(-1)
            n_distinct.append(len(distinct))
            components, proportions = principal_components(distinct[index], 2)
            points[:, k, : components.shape[1]] = components
            variance[k, : len(proportions)] = proportions
            # t-SNE needs at least four different vectors.
            if not is_pca and len(distinct) > 3:
                bound = min(perplexity, (len(distinct) - 1) / 3)
                tsne = manifold.TSNE(2, perplexity=bound, init="pca", random_state=seed, n_jobs=1)
                points[:, k] = tsne.fit_transform(distinct)[index]
    if is_pca:
        return Projection(method, numbers, points, variance, n_distinct, None)
    return Projection(method, numbers, points, None, n_distinct, perplexity)


# Pictures of occurrences


class Kinds(NamedTuple):
    """The kinds of occurrences that colours and shapes distinguish."""

    what: str  # "label", "cluster" or "word"
    names: list[str]  # most frequent first
    clusters: Clusters  # the occurrences by kind
    styles: list[int]  # number of a colour and shape for each kind; -1 for grey


def write_picture(
    path: PathLike,
    occurrences: Occurrences,
    projection: Projection,
    *,
    title: str | None = None,
    colour: str | None = None,
) -> int:
    """Write a picture as .png, .svg or .html, by the ending of the path.

    A page is one file that works offline. It lists typical sentences of each kind; pointing at a
    dot shows its sentence and nearest neighbours; the legend, a search, and a rectangle drawn with
    the mouse select dots in all panels and list their sentences; a menu enlarges a layer.

    Args:
        title: title of the picture; None lists the words, most frequent first.
        colour: property shown by colours: "label", "cluster" or "word"; None takes the first one
            that the occurrences have. Occurrences with an empty name are grey.

    Returns:
        size of the file in bytes.

    Raises:
        InputError: the occurrences have no labels or clusters for `colour`; a character of a PNG or
            SVG is missing from all fonts.
    """
    if picture_ending(path) != ".html":
        save_picture(draw(occurrences, projection, title=title, colour=colour), path)
        return os.path.getsize(path)
    kinds = _kinds(occurrences, projection, colour)
    data = _page_data(occurrences, projection, kinds)
    title = printable(title or _words(occurrences))
    return write_page(path, title, resource("picture.html"), data)


def picture_ending(path: PathLike, endings: Sequence[str] = ENDINGS) -> str:
    """The ending of a picture's file in lower case, one of `endings`."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in endings:
        raise InputError(f"the name of a picture must end in {', '.join(endings)}, got {path}.")
    return ending


def draw(
    occurrences: Occurrences,
    projection: Projection,
    *,
    title: str | None = None,
    colour: str | None = None,
) -> Any:
    """A `matplotlib.figure.Figure` with one panel per layer and a legend; see `write_picture`."""
    kinds = _kinds(occurrences, projection, colour)
    matplotlib = import_extra("matplotlib", _PURPOSE)
    title = printable(title or _words(occurrences))
    # Labels are not formulas.
    settings = {"text.parse_math": False, "font.family": _fonts(title + "".join(kinds.names))}
    n_panels = len(projection.layers)
    across = min(_ACROSS, n_panels)
    rows = math.ceil(n_panels / across)
    width = 8.9 if n_panels > 1 else 6.2
    labels = [shortened(legend_label(f"{name} ({n:,})"), int(width * _PER_INCH))
              for name, n in zip(kinds.names, kinds.clusters.sizes, strict=True)]  # fmt: skip
    columns = max(1, int(width * _PER_INCH / (max(map(cell_len, labels)) + _SWATCH)))
    legend_rows = math.ceil(len(labels) / columns)
    with matplotlib.rc_context(settings):
        figure = new_figure(width, rows * width / across + 0.7 + 0.2 * legend_rows)
        about = _about(occurrences, projection)
        figure.supxlabel(about, x=0.01, ha="left", fontsize=8, color="#555")
        for number in range(n_panels):
            _draw_panel(figure.add_subplot(rows, across, number + 1), projection, number, kinds)
        figure.legend(
            figure.axes[0].collections, labels, ncols=columns, title=title,
            loc="outside upper left", alignment="left", title_fontsize=13, fontsize=9,
            frameon=False, handletextpad=0.1, borderaxespad=0.2, markerscale=1.5,
        )  # fmt: skip
    return figure


def _draw_panel(axes: Any, projection: Projection, number: int, kinds: Kinds) -> None:
    axes.set_title(_panel_title(projection, number), loc="left", fontsize=9)
    axes.set(xticks=[], yticks=[], xlim=(-60, 1060), ylim=(1060, -60), aspect="equal")
    for spine in axes.spines.values():
        spine.set_color("#d0d0d0")
    points = _fitted(projection.points[:, number])
    area = float(np.clip(12000 / len(points), 6, 26))
    for kind, style in enumerate(kinds.styles):
        xy = points[kinds.clusters.of == kind]
        colour = _GREY if style < 0 else _COLOURS[style % len(_COLOURS)]
        marker = _MARKERS[max(style, 0) // len(_COLOURS)]
        axes.scatter(*xy.T, s=area, c=colour, marker=marker, linewidths=0, alpha=0.75)


def shortened(text: str, width: int) -> str:
    """The beginning of a text that fits into a number of columns."""
    fitting = set_cell_size(text, width - 1).rstrip() + "…"
    return text if cell_len(text) <= width else fitting


def _fonts(text: str) -> list[str]:
    """Installed font families that together cover all characters of a text."""
    fonts = import_extra("matplotlib.font_manager", _PURPOSE)
    entries = fonts.fontManager.ttflist
    new = set(fonts.findSystemFonts()) - {entry.fname for entry in entries}
    for path in new:  # installed since matplotlib listed them
        with contextlib.suppress(Exception):  # a damaged file raises FreeType's own errors
            fonts.fontManager.addfont(path)
    # Preferred: DejaVu Sans, which comes with matplotlib; regular weight, which some Chinese fonts
    # lack; sans serif; simplified Chinese.
    preferred = sorted(
        (e for e in entries if "Last Resort" not in e.name),
        key=lambda e: (e.name != "DejaVu Sans", e.weight != 400, "Mono" in e.name,
                       "Sans" not in e.name, "SC" not in e.name),
    )  # fmt: skip
    families = ["DejaVu Sans"]
    missing = {c for c in text if unicodedata.category(c) not in _INVISIBLE}
    for entry in preferred:
        if not missing:
            break
        index = fonts.get_font(entry.fname).get_char_index
        covered = {c for c in missing if index(ord(c))}
        if covered:
            families.append(entry.name)
            missing -= covered
    if missing:
        some = ", ".join(f"{c} (U+{ord(c):04X})" for c in sorted(missing)[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise InputError(
            f"fonts must have all characters of the picture, got none with {some}{more}: install "
            "Noto (`apt install fonts-noto-core fonts-noto-cjk` on Debian and Ubuntu), or write an "
            ".html picture, which uses the reader's fonts."
        )
    return families


def _kinds(occurrences: Occurrences, projection: Projection, colour: str | None) -> Kinds:
    if (n := len(projection.points)) != len(occurrences):
        rule = f"one point per occurrence, {len(occurrences)}, got {n}"
        raise InputError(f"the projection must have {rule}.")
    optional = {"label": occurrences.labels, "cluster": occurrences.clusters}
    properties = {name: values for name, values in optional.items() if values is not None}
    properties["word"] = occurrences.names.tolist()
    colour = colour or next(iter(properties))
    require(one_of(tuple(properties)), colour=colour)
    values = [printable(value) for value in properties[colour]]
    counts = Counter(sorted(filter(None, values)))
    coloured = [name for name, _ in counts.most_common(_MOST_KINDS)]
    kinds = [v if v in coloured else _OTHERS if v else _UNLABELLED for v in values]
    grey = [name for name in (_OTHERS, _UNLABELLED) if name in kinds and name not in coloured]
    names = coloured + grey
    of = np.array([names.index(kind) for kind in kinds])
    points = occurrences.directions(projection.layers[-1])
    if colour == "cluster":  # typical sentences are nearest in the vectors that were clustered
        points = np.zeros_like(points)
        for rows in indices_by_name(occurrences.names).values():
            part = cluster_points(occurrences.select(rows), occurrences.clusters_layer)
            points[rows, : part.shape[1]] = part
    clusters = Clusters.from_points(points, of)
    return Kinds(colour, names, clusters, [*range(len(coloured)), *[-1] * len(grey)])


def _words(occurrences: Occurrences) -> str:
    """The words, most frequent first, as a title."""
    words = [word for word, _ in Counter(occurrences.names.tolist()).most_common()]
    more = f" and {len(words) - 5} more words" if len(words) > 5 else ""
    return ", ".join(words[:5]) + more


def _about(occurrences: Occurrences, projection: Projection) -> str:
    per_panel = " per panel" if len(projection.layers) > 1 else ""
    text = f"{len(occurrences):,} occurrences, one dot each{per_panel}. "
    if projection.perplexity is None:
        return text + "PCA: the two directions of highest variance."
    perplexity = f"{projection.perplexity:.3g}"
    return f"{text}t-SNE, perplexity {perplexity}: distances between clusters mean little."


def _panel_title(projection: Projection, number: int) -> str:
    name = f"layer {projection.layers[number]}"
    if projection.n_distinct[number] == 1:
        return f"{name}: all vectors are equal"
    if projection.variance is None:
        return name
    first, second = 100 * projection.variance[number]
    return f"{name}: {first:.0f} % + {second:.0f} % of the variance"


def _fitted(points: np.ndarray) -> np.ndarray:
    """Coordinates (n, 2) scaled to integers that fill a square, with y downwards."""
    low, high = points.min(axis=0), points.max(axis=0)
    reach = max(float((high - low).max()), 1e-12)
    centred = (points - (low + high) / 2) / reach * (1, -1)
    return np.rint((centred + 0.5) * _EXTENT).astype(int)


def _page_data(occurrences: Occurrences, projection: Projection, kinds: Kinds) -> dict[str, Any]:
    clusters = kinds.clusters
    return {
        "about": _about(occurrences, projection) + _NAMES * (kinds.what == "cluster"),
        "what": f"{kinds.what}s",
        "kinds": [
            {
                "name": name,
                "style": kinds.styles[kind],
                "n": clusters.sizes[kind],
                "typical": typical_occurrences(occurrences, clusters, kind, _NEAREST),
            }
            for kind, name in enumerate(kinds.names)
        ],
        "rows": [
            [int(kind), *occurrences.around(k, _TOKENS), direction(occurrences.sentence(k))]
            for k, kind in enumerate(clusters.of)
        ],
        "panels": [
            {
                "name": f"layer {layer}",
                "title": _panel_title(projection, k),
                "points": _fitted(projection.points[:, k]).ravel().tolist(),
                "near": _neighbours(occurrences, layer),
            }
            for k, layer in enumerate(projection.layers)
        ],
    }


def _neighbours(occurrences: Occurrences, layer: int) -> list[list[int]]:
    """For each occurrence: indices and cosines (in hundredths) of the nearest ones of its word."""
    near: list[list[int]] = [[] for _ in range(len(occurrences))]
    for rows in indices_by_name(occurrences.names).values():
        uses = occurrences.select(rows)
        neighbours = uses.neighbours_of_each(uses, _NEAREST, layer)
        for row, nearest in zip(rows, neighbours, strict=True):
            for cosine, k in nearest:
                near[row] += [int(rows[k]), round(100 * cosine)]
    return near


# Pages for a browser: one file each, which works offline and has a light and a dark theme


def page(title: str, body: str, data: Any = None) -> bytes:
    """A page in UTF-8: a title in plain text, HTML, and JSON-able data in the element `data`."""
    if data is not None:
        # A token such as </script> would end the element.
        values = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        body = f'<script type="application/json" id="data">{values}</script>\n{body}'
    parts = {"title": html.escape(title), "style": resource("page.css"), "body": body}
    return resource("page.html").format(**parts).encode("utf-8", "backslashreplace")


def write_page(path: PathLike, title: str, body: str, data: Any = None) -> int:
    """Write a page, and return its size in bytes; see `page`."""
    with atomic_write(path) as temporary:
        return Path(temporary).write_bytes(page(title, body, data))


def resource(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("bilm.analysis").joinpath(name).read_text(encoding="utf-8")


# Figures of matplotlib


def check_picture(path: PathLike) -> None:
    """Raise an InputError unless `path` ends in .png or .svg and matplotlib is installed."""
    picture_ending(path, ENDINGS[1:])
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
    kind = picture_ending(path, ENDINGS[1:])[1:]
    matplotlib = import_extra("matplotlib", "--picture")
    # Reproducible files, with text as text in SVG.
    with (
        atomic_write(path) as temporary,
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bilm"}),
    ):
        date = {"Date": None} if kind == "svg" else {}
        figure.savefig(temporary, format=kind, dpi=200, metadata=date)
