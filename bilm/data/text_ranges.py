"""Text files in spans of lines, which processes read independently.

The numbers of lines are unknown: `cut` divides files without reading them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bilm.files.reading import PLAIN, open_text


class Span(NamedTuple):
    """The lines that begin in the bytes `start` to `stop` of a file on the disk; all lines of a
    compressed file."""

    path: str
    start: int
    stop: int


def cut(files: Sequence[str], span_bytes: int) -> list[Span]:
    """Divide files into spans of about `span_bytes`; only plain, uncompressed text is divided."""
    spans = []
    for path in files:
        size = os.path.getsize(path)
        with open_text(path) as text:
            divisible = text.kind == PLAIN and not text.is_compressed
        step = span_bytes if divisible else max(1, size)
        spans += [Span(path, start, min(start + step, size)) for start in range(0, size, step)]
    return spans


def read_span(span: Span, block: int = 1 << 20) -> Iterator[tuple[str, int]]:
    """The sentences of a span in blocks, with the number of bytes read on the disk so far."""
    blocks: Iterable[str]
    with open_text(span.path) as text:
        if text.kind != PLAIN:
            blocks = (f"{sentence}\n" for sentence in text.sentences())
        elif text.is_compressed:
            blocks = text.blocks()
        else:
            blocks = text.span(span.start, span.stop, block)
        for content in blocks:
            yield content, min(text.bytes_read(), span.stop) - span.start
