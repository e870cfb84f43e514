"""Pages for a browser: one file each, which works offline and has a light and a dark theme."""

from __future__ import annotations

import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write


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
