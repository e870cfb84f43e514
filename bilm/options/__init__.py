"""The options of a model, `options.json`: the only place that reads its keys."""

from bilm.options.network import N_CHARACTERS, CharCNNOptions, DictionaryOptions, LSTMOptions
from bilm.options.options import Options
from bilm.options.presets import PRESETS, preset

__all__ = [
    "N_CHARACTERS",
    "PRESETS",
    "CharCNNOptions",
    "DictionaryOptions",
    "LSTMOptions",
    "Options",
    "preset",
]
