"""Text to NumPy ids, without TensorFlow. Modules are imported when a name of them is used."""

# ruff: noqa: F403
import importlib
from typing import TYPE_CHECKING, Any

from bilm.core.errors import InputError
from bilm.data.prefetch import compute_ahead as compute_ahead
from bilm.data.prefetch import prefetch as prefetch  # a function with its module's name

if TYPE_CHECKING:  # `_PUBLIC` lists the public names of each module
    from bilm.data.batch import *
    from bilm.data.batch import _get_batch as _get_batch
    from bilm.data.corpus import *
    from bilm.data.counting import *
    from bilm.data.dataset import *
    from bilm.data.encoding import *
    from bilm.data.sharding import *
    from bilm.data.tokenized_text import *
    from bilm.data.tokenizer import *
    from bilm.data.vocabulary import *

_PUBLIC = {
    "batch": "Batch Stream _get_batch",
    "corpus": "IteratorState",
    "counting": "build_vocabulary count_words write_vocabulary",
    "dataset": "BidirectionalLMDataset LMDataset reading_method",
    "encoding": "encode_words network_ids",
    "sharding": "shard_corpus",
    "tokenized_text": "tokenize tokenize_files",
    "tokenizer": "Tokenizer",
    "vocabulary": "Batcher TokenBatcher UnicodeCharsVocabulary Vocabulary index_words load_vocab",
}
_NAMES = " ".join(_PUBLIC.values()).split()

# The original's name for a wrong number of characters in the options.
InvalidNumberOfCharacters = InputError

__all__ = sorted([*_NAMES, "InvalidNumberOfCharacters", "compute_ahead", "prefetch"])


def __getattr__(name: str) -> Any:
    for module, names in _PUBLIC.items():
        if name in names.split():
            return getattr(importlib.import_module(f"bilm.data.{module}"), name)
    raise AttributeError(f"module 'bilm.data' has no attribute {name!r}")
