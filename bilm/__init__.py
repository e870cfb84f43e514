"""Bidirectional language models and ELMo on TensorFlow 2 and Keras 3.

Source of the model: Peters et al. (2018), "Deep contextualized word representations".

Every public name is loaded when it is first used, so that ``import bilm`` and ``bilm --help``
do not wait for TensorFlow.
"""

# ruff: noqa: F403
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import wrapt

__version__ = "0.1.0"

if sys.platform == "win32":
    raise ImportError("bilm locks files with fcntl, which Windows lacks: use WSL 2.")

if TYPE_CHECKING:  # `_PUBLIC` lists the public names of each module
    from bilm.core.errors import InputError as InputError
    from bilm.core.errors import TrainingError as TrainingError
    from bilm.core.options import Options as Options
    from bilm.core.options import preset as preset
    from bilm.core.scalar_mix import ScalarMix as ScalarMix
    from bilm.core.scalar_mix import weight_layers as weight_layers
    from bilm.data.counting import *
    from bilm.data.dataset import *
    from bilm.data.sentences import read_fasta as read_fasta
    from bilm.data.sharding import *
    from bilm.data.tokenized_text import *
    from bilm.data.tokenizer import *
    from bilm.data.vocabulary import *
    from bilm.files.model_files import published_models as published_models
    from bilm.model import *
    from bilm.training import *
    from bilm.use.elmo import ELMo as ELMo
    from bilm.use.predictor import Predictor as Predictor
    from bilm.use.pretrained import Model as Model
    from bilm.use.pretrained import Pretrained as Pretrained
    from bilm.use.saved_model import export_saved_model as export_saved_model
    from bilm.use.text_layers import CharacterIds as CharacterIds
    from bilm.use.text_layers import WordIds as WordIds
    from bilm.vectors.embedding import embed_file as embed_file
    from bilm.vectors.tables import TableEmbedder as TableEmbedder

_PUBLIC = {
    "data.vocabulary": "Batcher TokenBatcher UnicodeCharsVocabulary Vocabulary load_vocab",
    "data.dataset": "BidirectionalLMDataset LMDataset",
    "data.counting": "build_vocabulary",
    "data.sharding": "shard_corpus",
    "data.tokenized_text": "tokenize tokenize_files",
    "data.tokenizer": "Tokenizer",
    "use.elmo": "ELMo",
    "use.pretrained": "Model Pretrained",
    "data.sentences": "read_fasta",
    "vectors.embedding": "embed_file",
    "core.errors": "InputError TrainingError",
    "files.model_files": "published_models",
    "core.scalar_mix": "ScalarMix weight_layers",
    "use.text_layers": "CharacterIds WordIds",
    "model": "BidirectionalLanguageModel ELMoEmbedding dump_bilm_embeddings dump_token_embeddings",
    "core.options": "Options preset",
    "use.predictor": "Predictor",
    "use.saved_model": "export_saved_model",
    "vectors.tables": "TableEmbedder",
    "training": "LanguageModel Perplexity dump_weights load_options_latest_checkpoint test train",
}
_NAMES = " ".join(_PUBLIC.values()).split()

# The layers that saved models may hold.
_KERAS_LAYERS = (
    "BidirectionalLanguageModel", "CharacterIds", "ELMoEmbedding", "ScalarMix", "WordIds",
)  # fmt: skip

# `test` is left out, because a star import would hide it among a user's own tests.
__all__ = sorted({*_NAMES} - {"test"})


def __getattr__(name: str) -> Any:
    for module, names in _PUBLIC.items():
        if name in names.split():
            return getattr(importlib.import_module(f"bilm.{module}"), name)
    if not name.startswith("_") and importlib.util.find_spec(f"bilm.{name}"):
        return importlib.import_module(f"bilm.{name}")
    raise AttributeError(f"module 'bilm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _RegisteredLayer(NamedTuple):
    """A placeholder in Keras' register for a layer whose module is not imported yet."""

    name: str

    def from_config(self, config: dict[str, Any]) -> Any:
        """Import the class, which then registers itself, and build the layer."""
        return __getattr__(self.name).from_config(config)


@wrapt.when_imported("keras")
def _register_layers(keras: ModuleType) -> None:
    """Let `load_model` find our layers after `import bilm` alone, before or after `import keras`.

    Keras looks up the classes of a saved model in its register only, and imports no modules except
    its own.
    """
    register = keras.saving.get_custom_objects()
    for name in _KERAS_LAYERS:
        register.setdefault(f"bilm>{name}", _RegisteredLayer(name))
