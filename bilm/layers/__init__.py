"""Ids to tensors: the Keras layers that the language model is made of."""

from bilm.layers.cell import LSTMState, Mode
from bilm.layers.dictionary_encoder import DictionaryEncoder
from bilm.layers.lstm import BatchSlice, Dropout, LSTMStack, States
from bilm.layers.sampled_softmax import Negatives
from bilm.layers.scalar_mix import ScalarMix
from bilm.layers.softmax import Softmax
from bilm.layers.text_to_ids import CharacterIds, WordIds
from bilm.layers.token_encoder import CharacterEncoder, WordEmbedding
from bilm.layers.xla_lstm import WordLookup

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
    "ScalarMix",
    "Softmax",
    "States",
    "WordEmbedding",
    "WordIds",
    "WordLookup",
]
