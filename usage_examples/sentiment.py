"""Sentiment: how positive is a sentence? A small biattentive classifier (BCN, McCann et al. 2017).

  python usage_examples/sentiment.py --data sentiment --model elmo --words vectors.txt --seeds 1 2 3

The folder has train.tsv, test.tsv and optionally dev.tsv (also .gz, .xz); without it, the last
tenth of train.tsv is the dev part. Each line is `label TAB sentence`, with any label and spaces
between tokens. The measure is accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import keras
from common.classes import Labelled, class_task
from common.experiment import Task, program
from common.layers import bilstm, masked_max, masked_mean, masked_softmax
from common.reading import as_tokens, read_columns
from common.vectors import ModelInputs
from keras import ops


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a classifier for each seed."""
    program(make_task, __doc__, argv)


def make_task(args: argparse.Namespace) -> Task:
    """Build the task from a data folder."""
    return class_task("sentiment", args, ".tsv", read, class_scores)


def read(path: str) -> list[Labelled]:
    """Read the lines of a file; one that is not `label TAB sentence` raises an InputError."""
    lines = read_columns(path, 2)
    return [
        ({"sentence": as_tokens(line[1], where)}, line[0], where) for where, line in lines if line
    ]


def class_scores(inputs: ModelInputs, n_labels: int, size: int, dropout: float) -> Any:
    """Words -> LSTM -> each token with similar tokens of the sentence -> LSTM -> maximum, mean, and
    a weighted mean -> labels."""
    drop = keras.layers.Dropout(dropout)
    sentence = inputs.text("sentence")
    mask = sentence.mask
    hidden = keras.layers.Dense(size, activation="relu")(sentence.vectors)
    own = inputs.at_output(sentence, bilstm(size)(hidden, mask=mask))
    # (batch, time, dim) x (batch, dim, time) -> (batch, time, time)
    likeness = ops.matmul(own, ops.transpose(own, (0, 2, 1)))
    aligned = ops.matmul(masked_softmax(likeness, mask[:, None, :]), own)
    compared = keras.layers.concatenate([own, own - aligned, own * aligned])
    hidden = bilstm(size)(drop(compared), mask=mask)
    weights = masked_softmax(keras.layers.Dense(1)(hidden)[..., 0], mask)  # (batch, time)
    pooled = [
        masked_max(hidden, mask),
        masked_mean(hidden, mask),
        ops.sum(weights[..., None] * hidden, axis=1),
    ]
    hidden = keras.layers.Dense(size, activation="relu")(drop(keras.layers.concatenate(pooled)))
    return keras.layers.Dense(n_labels)(drop(hidden))


if __name__ == "__main__":
    main()
