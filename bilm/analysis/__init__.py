"""Looking at vectors: what a word means where it stands, searched, grouped, drawn and measured."""

from bilm.analysis.nearest import Context, LayerContexts, nearest_contexts
from bilm.analysis.occurrences import (
    Occurrences,
    Sample,
    parse_query,
    read_labelled_uses,
    sample_uses,
)
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
    "Context",
    "Fit",
    "Groups",
    "LayerContexts",
    "Occurrences",
    "Sample",
    "StaticVectors",
    "fit_to_labels",
    "group_uses",
    "nearby_words",
    "nearest_contexts",
    "parse_query",
    "read_labelled_uses",
    "sample_uses",
    "substitute_words",
    "typical_uses",
]
