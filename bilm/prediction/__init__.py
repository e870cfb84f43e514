"""The language model as such: what it thinks of a text, and of a place in it."""

from bilm.prediction.predictor import Predictor
from bilm.prediction.scoring import SentenceScore, Substitutes

__all__ = ["Predictor", "SentenceScore", "Substitutes"]
