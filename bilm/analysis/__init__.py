"""Looking at vectors: search, cluster, draw and measure words in their contexts.

A public name is loaded when it is first used, so that `bilm --help` does not wait for NumPy.
"""

# ruff: noqa: F403
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `_PUBLIC` lists the public names of each module
    from bilm.analysis.clusters import *
    from bilm.analysis.contexts import *
    from bilm.analysis.labelled import *
    from bilm.analysis.model_report import *
    from bilm.analysis.occurrences import *
    from bilm.analysis.pictures import *
    from bilm.analysis.probing import *
    from bilm.analysis.semantic_change import *
    from bilm.analysis.static_vectors import *

_PUBLIC = {
    "semantic_change": "Change measure_change",
    "clusters": "Clusters cluster_names cluster_occurrences nearby_words substitute_words "
    "typical_occurrences with_clusters",
    "contexts": "Context LayerContexts nearest_contexts",
    "labelled": "read_labelled read_labelled_uses",
    "model_report": "LayerGeometry Report make_report measure_layers",
    "occurrences": "Occurrences Sample parse_query sample_sentences sample_uses",
    "pictures": "Projection draw picture_ending project write_picture",
    "probing": "ProbeRow Score probe",
    "static_vectors": "StaticVectors train_word2vec",
}
__all__ = sorted(" ".join(_PUBLIC.values()).split())


def __getattr__(name: str) -> Any:
    for module, names in _PUBLIC.items():
        if name in names.split():
            return getattr(importlib.import_module(f"bilm.analysis.{module}"), name)
    raise AttributeError(f"module 'bilm.analysis' has no attribute {name!r}")
