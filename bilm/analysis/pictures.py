"""Pictures of occurrences: one Altair chart, as PNG, SVG, or a page that one explores in a browser.

    projection = project(occurrences, "tsne")
    write_picture("bank.html", occurrences, projection, title="bank")

Neighbours that a picture lists are those of the original space: two dimensions cannot keep them.
"""

from __future__ import annotations

import html
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.analysis.drawing import Drawing
from bilm.analysis.fonts import require_font
from bilm.analysis.occurrences import Occurrences
from bilm.analysis.projection import Projection
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write

ENDINGS = (".html", ".png", ".svg")
LARGE_PAGE = 10_000_000
"""Bytes of a page from which browsers are slow with it."""

_NAMED_WORDS = 5  # in a title
_PURPOSE = "A picture of occurrences"
# Added to Altair's page: inputs above the picture, and a tooltip that is wide enough for sentences.
_HEAD = """<head>
  <title>{title}</title>
  <link rel="icon" href="data:,">
  <style>
    body {{ font: 14px/1.45 sans-serif; color: #222; margin: 20px auto; max-width: 940px; }}
    #vis.vega-embed {{ flex-direction: column; align-items: flex-start; padding: 0; }}
    form.vega-bindings {{ order: -1; display: flex; gap: 28px; margin: 0 0 14px 5px; }}
    .vega-bindings .vega-bind-name {{ margin-right: 8px; }}
    .vega-bindings input, .vega-bindings select {{ font: inherit; padding: 3px 6px; }}
    .vega-bindings input {{ width: 280px; }}
    #vg-tooltip-element.vg-tooltip {{ max-width: 600px; font-size: 13px; line-height: 1.4; }}
    #vg-tooltip-element.vg-tooltip table tr td.key {{ vertical-align: top; }}
    #vg-tooltip-element.vg-tooltip table tr td.value {{
      display: table-cell; max-width: 480px; max-height: none; white-space: normal;
    }}
  </style>"""


def write_picture(
    path: PathLike,
    occurrences: Occurrences,
    projection: Projection,
    *,
    title: str | None = None,
    colour: str | None = None,
    groups: Sequence[int] | None = None,
) -> int:
    """Write the chart of `draw` as .png, .svg or .html, as the path ends.

    A page is one file that reads nothing from a network. It has more than a PNG or SVG: pointing
    at a dot shows its sentence and its nearest neighbours; a search, and a rectangle drawn with
    the mouse, mark dots in all panels and list their lines; a menu enlarges a layer.

    Returns:
        the size of the file in bytes; from LARGE_PAGE on, browsers are slow with a page.

    Raises:
        InputError: the path has another ending, the machine has no font for a character of a PNG
            or SVG, and what `draw` raises.
    """
    ending = picture_ending(path)
    is_page = ending == ".html"
    title = title or _words(occurrences)
    drawing = _drawing(occurrences, projection, colour, groups, is_page)
    if not is_page:
        require_font(drawing.written(title))
    chart = drawing.chart(title)
    content = _page(chart, title) if is_page else _image(chart, ending)
    with atomic_write(path) as temporary:
        Path(temporary).write_bytes(content)
    return len(content)


def picture_ending(path: PathLike) -> str:
    """The ending of a picture's file, which says what it is to be.

    Raises:
        InputError: it is none of ENDINGS.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: a file name that ends in {', '.join(ENDINGS)} is expected.")
    return ending


def draw(
    occurrences: Occurrences,
    projection: Projection,
    *,
    title: str | None = None,
    colour: str | None = None,
    groups: Sequence[int] | None = None,
) -> Any:
    """A chart with a panel for each layer; every panel has a dot for each occurrence.

    Args:
        occurrences: what is drawn.
        projection: of these occurrences.
        title: of the picture; None: the words, the most frequent first.
        colour: what colours tell apart: "word", "label" or "group"; None: labels where there are
            any, else groups, else words. What has an empty label or a negative group is grey.
        groups: the number of a group for each occurrence; negative for none.

    Returns:
        an `altair.VConcatChart`, which notebooks show.

    Raises:
        InputError: the projection or the groups are not of these occurrences, or there is nothing
            of the kind that `colour` names; Altair is not installed.
    """
    drawing = _drawing(occurrences, projection, colour, groups, is_page=False)
    return drawing.chart(title or _words(occurrences))


def _words(occurrences: Occurrences) -> str:
    """The words, the most frequent first, as a title."""
    words = [word for word, _ in Counter(occurrences.words.tolist()).most_common()]
    more = len(words) - _NAMED_WORDS
    return ", ".join(words[:_NAMED_WORDS]) + (f" and {more} more words" if more > 0 else "")


def _drawing(
    occurrences: Occurrences,
    projection: Projection,
    colour: str | None,
    groups: Sequence[int] | None,
    is_page: bool,
) -> Drawing:
    if len(projection.points) != len(occurrences):
        raise InputError(
            f"projection: it has {len(projection.points)} occurrences, and {len(occurrences)} "
            "are to be drawn."
        )
    told, kinds = _kinds(occurrences, colour, groups)
    altair = import_extra("altair", _PURPOSE)
    return Drawing(altair, occurrences, projection, kinds, told, is_page)


def _kinds(
    occurrences: Occurrences, colour: str | None, groups: Sequence[int] | None
) -> tuple[str, list[str]]:
    """What colours tell apart: its name, and what it is of each occurrence; "" is grey."""
    labels = occurrences.labels
    if colour not in (None, "word", "label", "group"):
        raise InputError(f"colour: 'word', 'label' or 'group' is expected, not {colour!r}.")
    if groups is not None and len(groups) != len(occurrences):
        raise InputError(f"groups: {len(occurrences)} are expected, not {len(groups)}.")
    if (colour == "label" and labels is None) or (colour == "group" and groups is None):
        raise InputError(f"colour: the occurrences have no {colour}s.")
    if labels is not None and colour in (None, "label"):
        return "label", [str(label) for label in labels]
    if groups is not None and colour in (None, "group"):
        return "group", [f"group {int(group)}" if group >= 0 else "" for group in groups]
    return "word", [str(word) for word in occurrences.words]


def _image(chart: Any, ending: str) -> bytes:
    vl_convert = import_extra("vl_convert", _PURPOSE)
    svg = vl_convert.vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
    return svg.encode() if ending == ".svg" else vl_convert.svg_to_png(svg, scale=2)


class _ScriptEncoder(json.JSONEncoder):
    """JSON within a script of a page, which a token such as </script> would end."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")


def _page(chart: Any, title: str) -> bytes:
    import_extra("vl_convert", _PURPOSE)
    page = chart.to_html(
        inline=True,
        embed_options={"actions": False, "renderer": "canvas"},
        json_kwds={
            "cls": _ScriptEncoder,
            "ensure_ascii": False,
            "separators": (",", ":"),
        },
    )
    return page.replace("<head>", _HEAD.format(title=html.escape(title)), 1).encode()
