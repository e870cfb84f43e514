"""ELMo in plain NumPy and float64: a second implementation that shares no code with bilm.

Weights are a dict from HDF5 name to array, options the JSON object of options.json. Tests compare
the program with these formulas, and `test_oracle.py` compares the formulas with the original.
"""

from tests.oracle.embeddings import LMEmbeddings, embed, weight_layers, zero_states
from tests.oracle.encoder import encode, encode_gradient, table_with_padding
from tests.oracle.files import Checkpoint, read_checkpoint, read_hdf5, write_hdf5, write_model
from tests.oracle.lstm import layers_of, run_direction, run_direction_gradient
from tests.oracle.models import MODELS, random_characters, random_softmax, random_weights
from tests.oracle.softmax import (
    full_softmax,
    full_softmax_gradient,
    log_uniform_expected_count,
    log_uniform_probability,
    sampled_softmax,
    sampled_softmax_gradient,
)
from tests.oracle.text import character_ids, word_characters
from tests.oracle.training import (
    adagrad,
    clip_by_global_norm,
    loss_and_gradients,
    replay,
    sentence_losses,
)

__all__ = [
    "MODELS",
    "Checkpoint",
    "LMEmbeddings",
    "adagrad",
    "character_ids",
    "clip_by_global_norm",
    "embed",
    "encode",
    "encode_gradient",
    "full_softmax",
    "full_softmax_gradient",
    "layers_of",
    "log_uniform_expected_count",
    "log_uniform_probability",
    "loss_and_gradients",
    "random_characters",
    "random_softmax",
    "random_weights",
    "read_checkpoint",
    "read_hdf5",
    "replay",
    "run_direction",
    "run_direction_gradient",
    "sampled_softmax",
    "sampled_softmax_gradient",
    "sentence_losses",
    "table_with_padding",
    "weight_layers",
    "word_characters",
    "write_hdf5",
    "write_model",
    "zero_states",
]
