"""ELMo: vectors of text, and the mix of layers. The names of the original program."""

from bilm.core.scalar_mix import weight_layers
from bilm.use.elmo import ELMo

__all__ = ["ELMo", "weight_layers"]
