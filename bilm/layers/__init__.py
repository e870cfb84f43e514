"""Ids to tensors: the Keras layers that the language model is made of."""

from bilm.layers.cell import LSTMState, Mode
from bilm.layers.lstm import BatchSlice, Dropout, LSTMStack, States
from bilm.layers.recurrence import ProductLookup, WordLookup
from bilm.layers.scalar_mix import ScalarMix
from bilm.layers.softmax import Negatives, Softmax
from bilm.layers.text import CharacterIds, WordIds
from bilm.layers.token_encoder import CharacterEncoder, DictionaryEncoder, WordEmbedding

__all__ = [
    "BatchSlice",
    "CharacterEncoder",
    "CharacterIds",
    "DictionaryEncoder",
    "Dropout",
    "LSTMStack",
    "LSTMState",
    "Mode",
    "Negatives",
    "ProductLookup",
    "ScalarMix",
    "Softmax",
    "States",
    "WordEmbedding",
    "WordIds",
    "WordLookup",
]
