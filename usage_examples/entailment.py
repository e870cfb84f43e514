"""Entailment: does a sentence imply another one? ESIM (Chen et al. 2017).

  python usage_examples/entailment.py --data nli --model elmo --words vectors.txt --seeds 1 2 3

The folder has train.jsonl, test.jsonl and optionally dev.jsonl (also .gz, .xz); without it, the
last tenth of train.jsonl is the dev part. One pair per line as in SNLI, tokens separated by spaces:

  {"premise": "A man sleeps .", "hypothesis": "Nobody sleeps .", "label": "contradiction"}

Any labels are possible. The measure is accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import keras
from common.classes import Labelled, class_task
from common.experiment import Task, program
from common.layers import bilstm, masked_max, masked_mean, masked_softmax
from common.reading import as_tokens, read_json_lines
from common.vectors import ModelInputs
from keras import ops

FIELDS = {"premise": str, "hypothesis": str, "label": str}


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a classifier for each seed."""
    program(make_task, __doc__, argv)


def make_task(args: argparse.Namespace) -> Task:
    """Build the task from a data folder."""
    return class_task("entailment", args, ".jsonl", read, class_scores)


def read(path: str) -> list[Labelled]:
    """Read the pairs of a file; a malformed line raises an InputError."""
    return [
        ({name: as_tokens(line[name], where) for name in ("premise", "hypothesis")},
         line["label"], where)
        for where, line in read_json_lines(path, FIELDS)
    ]  # fmt: skip


def class_scores(inputs: ModelInputs, n_labels: int, size: int, dropout: float) -> Any:
    """Both sentences -> LSTM -> each token with similar tokens of the other sentence -> LSTM ->
    mean and maximum -> labels."""
    encoder, composer = bilstm(size), bilstm(size)
    projection = keras.layers.Dense(size, activation="relu")
    drop = keras.layers.Dropout(dropout)
    texts = [inputs.text(name) for name in ("premise", "hypothesis")]
    # ELMo "at the output" is added before the attention, as in section 5.2.
    read = [inputs.at_output(text, drop(encoder(text.vectors, mask=text.mask))) for text in texts]
    likeness = ops.matmul(read[0], ops.transpose(read[1], (0, 2, 1)))  # (batch, time, other time)
    likenesses = [likeness, ops.transpose(likeness, (0, 2, 1))]
    pooled = []
    for k, text in enumerate(texts):
        own, other, other_mask = read[k], read[1 - k], texts[1 - k].mask
        # (batch, time, other time) x (batch, other time, dim) -> (batch, time, dim)
        aligned = ops.matmul(masked_softmax(likenesses[k], other_mask[:, None, :]), other)
        compared = [own, aligned, own - aligned, own * aligned]
        hidden = drop(projection(keras.layers.concatenate(compared)))
        hidden = composer(hidden, mask=text.mask)
        pooled += [masked_mean(hidden, text.mask), masked_max(hidden, text.mask)]
    hidden = keras.layers.Dense(size, activation="tanh")(drop(keras.layers.concatenate(pooled)))
    return keras.layers.Dense(n_labels)(drop(hidden))


if __name__ == "__main__":
    main()
