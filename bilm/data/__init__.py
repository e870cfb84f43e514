"""Text to NumPy ids. Nothing here sees a tensor."""

from __future__ import annotations

from bilm.data.batch import Batch, Stream
from bilm.data.batching import Batcher, TokenBatcher, index_words
from bilm.data.counting import build_vocabulary, count_words, write_vocabulary
from bilm.data.dataset import BidirectionalLMDataset, LMDataset
from bilm.data.encoding import encode_words
from bilm.data.place import Place
from bilm.data.prefetch import prefetch
from bilm.data.rows import _get_batch
from bilm.data.sharding import shard_corpus
from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocab, vocab_of_words
from bilm.errors import InputError

# The original's name for a wrong number of characters in the options.
InvalidNumberOfCharacters = InputError

__all__ = [
    "Batch",
    "Batcher",
    "BidirectionalLMDataset",
    "InvalidNumberOfCharacters",
    "LMDataset",
    "Place",
    "Stream",
    "TokenBatcher",
    "UnicodeCharsVocabulary",
    "Vocabulary",
    "_get_batch",
    "build_vocabulary",
    "count_words",
    "encode_words",
    "index_words",
    "load_vocab",
    "prefetch",
    "shard_corpus",
    "vocab_of_words",
    "write_vocabulary",
]
