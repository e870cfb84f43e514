"""The language model as such: how likely it finds text, and words in a place of a text."""

from bilm.prediction.predictor import Predictor
from bilm.prediction.scoring import SentenceScore, Substitutes

__all__ = ["Predictor", "SentenceScore", "Substitutes"]
