"""Looking at vectors: what a word means where it stands, searched, grouped, drawn and measured."""

from bilm.analysis.nearest import Context, LayerContexts, nearest_contexts
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
from bilm.analysis.senses import (
    Fit,
    Groups,
    fit_to_labels,
    group_uses,
    nearby_words,
    substitute_words,
    typical_uses,
)
from bilm.analysis.static import StaticVectors

__all__ = [
    "LARGE_PAGE",
    "Context",
    "Fit",
    "Groups",
    "LayerContexts",
    "Occurrences",
    "Projection",
    "Sample",
    "StaticVectors",
    "draw",
    "fit_to_labels",
    "group_uses",
    "nearby_words",
    "nearest",
    "nearest_contexts",
    "parse_query",
    "picture_ending",
    "project",
    "read_labelled_uses",
    "sample_uses",
    "substitute_words",
    "typical_uses",
    "write_picture",
    "write_projector",
]
