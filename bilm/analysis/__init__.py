"""Looking at vectors: what a word means where it stands, searched, grouped, drawn and measured."""

from bilm.analysis.occurrences import (
    Occurrences,
    Sample,
    parse_query,
    read_labelled_uses,
    sample_uses,
)
from bilm.analysis.static import StaticVectors

__all__ = [
    "Occurrences",
    "Sample",
    "StaticVectors",
    "parse_query",
    "read_labelled_uses",
    "sample_uses",
]
