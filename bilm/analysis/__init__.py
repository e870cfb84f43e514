"""Looking at vectors: what a word means where it stands, searched, grouped, drawn and measured."""

from bilm.analysis.occurrences import (
    Occurrences,
    Sample,
    parse_query,
    read_labelled_uses,
    sample_uses,
)
from bilm.analysis.pictures import LARGE_PAGE, draw, picture_ending, write_picture
from bilm.analysis.projection import Projection, nearest, project
from bilm.analysis.projector import write_projector

__all__ = [
    "LARGE_PAGE",
    "Occurrences",
    "Projection",
    "Sample",
    "draw",
    "nearest",
    "parse_query",
    "picture_ending",
    "project",
    "read_labelled_uses",
    "sample_uses",
    "write_picture",
    "write_projector",
]
