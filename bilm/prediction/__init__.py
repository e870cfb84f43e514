"""The language model as such: what it thinks of a text, and of a place in it."""

from bilm.prediction.predictor import Predictor
from bilm.prediction.scores import SentenceScore
from bilm.prediction.substitutes import Substitutes

__all__ = ["Predictor", "SentenceScore", "Substitutes"]
