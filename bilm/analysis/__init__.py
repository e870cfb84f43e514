"""Looking at vectors: search, cluster, draw and measure words in their contexts."""

from bilm.analysis.change import Change, measure_change, sample_targets
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
from bilm.analysis.occurrences import (
    Occurrences,
    Sample,
    parse_query,
    sample_sentences,
    sample_uses,
)
from bilm.analysis.pictures import LARGE_PAGE, draw, picture_ending, write_picture
from bilm.analysis.probing import ProbeCell, ProbeSettings, probe
from bilm.analysis.projection import Projection, project
from bilm.analysis.report import Report, make_report
from bilm.analysis.static_vectors import StaticVectors, train_word2vec
from bilm.analysis.tensorboard_folder import write_projector
from bilm.analysis.word_sense import (
    SenseResult,
    SenseRow,
    SenseSettings,
    first_sense,
    nearest_sense,
    sense_table,
    with_static,
)

__all__ = [
    "LARGE_PAGE",
    "Change",
    "measure_change",
    "sample_targets",
    "Clusters",
    "Context",
    "Fit",
    "LayerContexts",
    "LayerGeometry",
    "Occurrences",
    "ProbeCell",
    "ProbeSettings",
    "Projection",
    "Report",
    "Sample",
    "SenseResult",
    "SenseRow",
    "SenseSettings",
    "StaticVectors",
    "cluster_names",
    "cluster_occurrences",
    "draw",
    "first_sense",
    "fit_to_labels",
    "limited",
    "make_report",
    "measure_change",
    "measure_layers",
    "nearby_words",
    "nearest_contexts",
    "nearest_sense",
    "parse_query",
    "picture_ending",
    "probe",
    "project",
    "read_labelled",
    "read_labelled_uses",
    "sample_sentences",
    "sample_targets",
    "sample_uses",
    "sense_table",
    "substitute_words",
    "train_word2vec",
    "typical_occurrences",
    "with_clusters",
    "with_static",
    "write_picture",
    "write_projector",
]
