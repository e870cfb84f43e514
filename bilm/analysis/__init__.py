"""Looking at vectors: search, cluster, draw and measure words in their contexts.

A public name is loaded when it is first used, so that `bilm --help` does not wait for NumPy.
"""

# ruff: noqa: F401
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bilm.analysis.clusters import (
        Clusters,
        Fit,
        cluster_names,
        cluster_occurrences,
        fit_to_labels,
        nearby_words,
        substitute_words,
        typical_occurrences,
        with_clusters,
    )
    from bilm.analysis.contexts import Context, LayerContexts, nearest_contexts
    from bilm.analysis.geometry import LayerGeometry, measure_layers
    from bilm.analysis.labelled import limited, read_labelled, read_labelled_uses
    from bilm.analysis.model_report import Report, make_report
    from bilm.analysis.occurrences import (
        Occurrences,
        Sample,
        parse_query,
        sample_sentences,
        sample_uses,
    )
    from bilm.analysis.pictures import (
        LARGE_PAGE,
        draw,
        picture_ending,
        write_picture,
        write_projector,
    )
    from bilm.analysis.probing import ProbeCell, ProbeSettings, probe
    from bilm.analysis.projection import Projection, project
    from bilm.analysis.semantic_change import Change, measure_change, sample_targets
    from bilm.analysis.static_vectors import StaticVectors, train_word2vec
    from bilm.analysis.word_sense import (
        SenseResult,
        SenseRow,
        SenseSettings,
        first_sense,
        nearest_sense,
        sense_table,
        with_static,
    )

_PUBLIC = {
    "semantic_change": "Change measure_change sample_targets",
    "clusters": "Clusters Fit cluster_names cluster_occurrences fit_to_labels nearby_words "
    "substitute_words typical_occurrences with_clusters",
    "contexts": "Context LayerContexts nearest_contexts",
    "geometry": "LayerGeometry measure_layers",
    "labelled": "limited read_labelled read_labelled_uses",
    "model_report": "Report make_report",
    "occurrences": "Occurrences Sample parse_query sample_sentences sample_uses",
    "pictures": "LARGE_PAGE draw picture_ending write_picture write_projector",
    "probing": "ProbeCell ProbeSettings probe",
    "projection": "Projection project",
    "static_vectors": "StaticVectors train_word2vec",
    "word_sense": "SenseResult SenseRow SenseSettings first_sense nearest_sense sense_table "
    "with_static",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"bilm.analysis.{_HOME[name]}"), name)
    raise AttributeError(f"module 'bilm.analysis' has no attribute {name!r}")
