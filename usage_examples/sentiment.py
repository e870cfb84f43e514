"""Sentiment: how positive is a sentence? A small biattentive classifier (BCN, McCann et al. 2017).

  python usage_examples/sentiment.py --data sentiment --model elmo --words vectors.txt --seeds 1 2 3

The folder has train.tsv, test.tsv and optionally dev.tsv (also .gz, .xz); without it, the last
tenth of train.tsv is the dev part. A line is `label TAB sentence`, with spaces between tokens and
any labels. The measure is accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import keras
from common.classes import accuracy, class_loss, highest, number_of
from common.experiment import Built, Example, Task, program
from common.layers import bilstm, masked_max, masked_mean, masked_softmax
from common.reading import as_tokens, parts_of, read_columns
from common.vectors import ModelInputs
from keras import ops


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a classifier for each seed."""
    program(make_task, __doc__, argv)


def make_task(args: argparse.Namespace) -> Task:
    """The task of a folder of data."""
    lines = parts_of(args.data, ".tsv", read)
    labels = sorted({label for label, _, _ in lines["train"]})
    parts = {
        part: [
            Example({"sentence": tokens}, number_of(label, labels, where), gold=label)
            for label, tokens, where in lines[part]
        ]
        for part in lines
    }

    def build(inputs: ModelInputs) -> Built:
        return build_classifier(inputs, len(labels), args.size, args.dropout)

    return Task("sentiment", parts, build, highest(labels), accuracy)


def read(path: str) -> list[tuple[str, tuple[str, ...], str]]:
    """The lines of a file: label, tokens, and file and line for messages.

    Raises:
        InputError: a line is not `label TAB sentence`.
    """
    lines = read_columns(path, 2)
    return [(line[0], as_tokens(line[1], where), where) for where, line in lines if line]


def build_classifier(inputs: ModelInputs, n_labels: int, size: int, dropout: float) -> Built:
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
    return Built(keras.layers.Dense(n_labels)(drop(hidden)), class_loss())


if __name__ == "__main__":
    main()
