"""Looking at vectors: what a word means where it stands, searched, grouped, drawn and measured."""

from bilm.analysis.labelled import limited, read_labelled
from bilm.analysis.occurrences import (
    Occurrences,
    Sample,
    parse_query,
    read_labelled_uses,
    sample_uses,
)
from bilm.analysis.probing import ProbeCell, ProbeSettings, probe
from bilm.analysis.static import StaticVectors
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
    "Occurrences",
    "ProbeCell",
    "ProbeSettings",
    "Sample",
    "SenseResult",
    "SenseRow",
    "SenseSettings",
    "StaticVectors",
    "first_sense",
    "limited",
    "nearest_sense",
    "parse_query",
    "probe",
    "read_labelled",
    "read_labelled_uses",
    "sample_uses",
    "sense_table",
    "with_static",
]
