"""Models for programs that have TensorFlow and nothing of ours."""

from bilm.serving.saved_model import export_saved_model
from bilm.serving.trained_mix import read_mix

__all__ = ["export_saved_model", "read_mix"]
