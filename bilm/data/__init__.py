"""Text to NumPy ids, without TensorFlow. Modules are imported when a name of them is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bilm.core.errors import InputError
from bilm.data.prefetch import compute_ahead, prefetch  # a function with its module's name

if TYPE_CHECKING:
    from bilm.data.batch import Batch, Stream, _get_batch
    from bilm.data.batcher import Batcher, TokenBatcher, index_words
    from bilm.data.corpus import IteratorState
    from bilm.data.counting import build_vocabulary, count_words, write_vocabulary
    from bilm.data.dataset import BidirectionalLMDataset, LMDataset, reading_method
    from bilm.data.encoding import encode_words, network_ids
    from bilm.data.sharding import shard_corpus
    from bilm.data.tokenized_text import tokenize, tokenize_files
    from bilm.data.tokenizer import Tokenizer
    from bilm.data.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocab, vocab_of_words

# The public names, by the module that defines them.
_PUBLIC = {
    "batch": "Batch Stream _get_batch",
    "batcher": "Batcher TokenBatcher index_words",
    "corpus": "IteratorState",
    "counting": "build_vocabulary count_words write_vocabulary",
    "dataset": "BidirectionalLMDataset LMDataset reading_method",
    "encoding": "encode_words network_ids",
    "sharding": "shard_corpus",
    "tokenized_text": "tokenize tokenize_files",
    "tokenizer": "Tokenizer",
    "vocabulary": "UnicodeCharsVocabulary Vocabulary load_vocab vocab_of_words",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}

# The original's name for a wrong number of characters in the options.
InvalidNumberOfCharacters = InputError

__all__ = [
    "Batch",
    "Batcher",
    "BidirectionalLMDataset",
    "InvalidNumberOfCharacters",
    "IteratorState",
    "LMDataset",
    "Stream",
    "TokenBatcher",
    "Tokenizer",
    "UnicodeCharsVocabulary",
    "Vocabulary",
    "_get_batch",
    "build_vocabulary",
    "compute_ahead",
    "count_words",
    "encode_words",
    "index_words",
    "load_vocab",
    "network_ids",
    "prefetch",
    "reading_method",
    "shard_corpus",
    "tokenize",
    "tokenize_files",
    "vocab_of_words",
    "write_vocabulary",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"bilm.data.{_HOME[name]}"), name)
    raise AttributeError(f"module 'bilm.data' has no attribute {name!r}")
