"""Examples with one of several labels, and their measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from bilm.core.errors import InputError
from common.experiment import Example, Scores


def number_of(label: str, labels: Sequence[str], where: str) -> int:
    """The number of a label.

    Raises:
        InputError: the label does not occur in training.
    """
    if label not in labels:
        raise InputError(
            f"{where}: must be one of the labels of the training part ({', '.join(labels)}), got "
            f"{label!r:.80}."
        )
    return labels.index(label)


def class_loss() -> keras.losses.Loss:
    """The loss of a model whose output is a score for each label."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def highest(labels: Sequence[str]) -> Callable[..., list[str]]:
    """A function that takes the label with the highest score, as `Task.decode`."""

    def decode(model: keras.Model, scores: Any, batch: Sequence[Example]) -> list[str]:
        return [labels[number] for number in np.argmax(scores, axis=-1)]

    return decode


def accuracy(examples: Sequence[Example], predictions: Sequence[Any]) -> Scores:
    """The proportion of correct labels in per cent."""
    pairs = zip(examples, predictions, strict=True)
    right = sum(example.gold == prediction for example, prediction in pairs)
    return {"accuracy": 100 * right / len(examples)}
