"""ELMo: vectors of text, and the mix of layers. The names of the original program."""

from bilm.use.elmo import ELMo, weight_layers

__all__ = ["ELMo", "weight_layers"]
