"""The exceptions of the package, as other programs import them."""

from bilm.core.errors import InputError, TrainingError

__all__ = ["InputError", "TrainingError"]
