"""Training, evaluation and checkpoints of a language model."""

from bilm.core.language_model import LanguageModel
from bilm.data.vocabulary import load_vocab
from bilm.files.checkpoints import load_options_latest_checkpoint
from bilm.inference.scorer import Perplexity, SentenceScores
from bilm.training.dumping import dump_weights
from bilm.training.evaluation import test
from bilm.training.replicas import Replicas, find_replicas
from bilm.training.start import train
from bilm.training.state import RunState

__all__ = [
    "LanguageModel", "Perplexity", "Replicas", "RunState", "SentenceScores", "dump_weights",
    "find_replicas", "load_options_latest_checkpoint", "load_vocab", "test", "train",
]  # fmt: skip
