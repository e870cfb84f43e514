"""Tasks whose examples have one of several labels: their classes, loss and measure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bilm.core.errors import InputError
from common.experiment import Built, Example, Scores, Sentence, Task
from common.reading import parts_of
from common.vectors import ModelInputs

# The texts of an example by name, its label, and its file and line for messages.
Labelled = tuple[Mapping[str, Sentence], str, str]


def class_task(
    name: str,
    args: argparse.Namespace,
    ending: str,
    read: Callable[[str], Sequence[Labelled]],
    outputs: Callable[[ModelInputs, int, int, float], Any],
) -> Task:
    """The task of a folder of data.

    Args:
        ending: of the files "train", "dev" and "test".
        read: returns the examples of a file.
        outputs: returns the scores of a model (batch, labels), from its inputs, the number of
            labels, --size and --dropout.
    """
    found = parts_of(args.data, ending, read)
    labels = sorted({label for _, label, _ in found["train"]})

    def example(texts: Mapping[str, Sentence], label: str, where: str) -> Example:
        if label not in labels:
            raise InputError(
                f"{where}: must be one of the labels of the training part ({', '.join(labels)}), "
                f"got {label!r:.80}."
            )
        return Example(texts, labels.index(label), gold=label)

    def build(inputs: ModelInputs) -> Built:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return Built(outputs(inputs, len(labels), args.size, args.dropout), loss)

    def decode(model: keras.Model, scores: Any, batch: Sequence[Example]) -> list[str]:
        return [labels[number] for number in np.argmax(scores, axis=-1)]

    parts = {part: [example(*line) for line in lines] for part, lines in found.items()}
    return Task(name, parts, build, decode, accuracy)


def accuracy(examples: Sequence[Example], predictions: Sequence[Any]) -> Scores:
    """The proportion of correct labels in per cent."""
    pairs = zip(examples, predictions, strict=True)
    right = sum(example.gold == prediction for example, prediction in pairs)
    return {"accuracy": 100 * right / len(examples)}
