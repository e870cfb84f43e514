"""Coreference: which of two names, if any, does a pronoun refer to? Pairs of mentions are scored as
in Lee et al. (2017), on the data of GAP (Webster et al. 2018).

  python usage_examples/coreference.py --data coref --model elmo --words vectors.txt --seeds 1 2 3

The folder has GAP's files: gap-development.tsv for training, gap-validation.tsv for early stopping,
and gap-test.tsv (also .gz, .xz): a header line, then 11 columns. A regular expression splits the
text into tokens (common/reading.py). As in GAP's scorer, the measures are F1 of pairs of a pronoun
and a name, for all, masculine and feminine pronouns, and bias, feminine F1 divided by masculine F1.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np
from common.experiment import Built, Example, Scores, Task, program
from common.layers import bilstm
from common.reading import find_file, read_columns, tokenise
from common.vectors import ModelInputs
from keras import ops

from bilm.core.errors import InputError

FILES = {"train": "gap-development.tsv", "dev": "gap-validation.tsv", "test": "gap-test.tsv"}
GENDERS = {"he": "masculine", "him": "masculine", "his": "masculine",
           "she": "feminine", "her": "feminine", "hers": "feminine"}  # fmt: skip
# Distances in tokens are grouped into 0, 1, 2-3, 4-7, ..., in each direction.
N_DISTANCES = 9
DISTANCE_DIM = 16
NEITHER = 2


class Passage(NamedTuple):
    """A line of GAP: tokens; first and last token of the pronoun and of names A and B; whether the
    pronoun refers to each name; the pronoun's gender."""

    tokens: tuple[str, ...]
    mentions: list[tuple[int, int]]
    meant: tuple[bool, bool]
    gender: str


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a model for each seed."""
    program(make_task, __doc__, argv)


def make_task(args: argparse.Namespace) -> Task:
    """Build the task from a data folder."""
    parts = {
        part: [as_example(passage) for passage in read(find_file(args.data, name))]
        for part, name in FILES.items()
    }
    build = functools.partial(build_scorer, size=args.size, dropout=args.dropout)
    return Task("coreference", parts, build, decode, score)


def as_example(passage: Passage) -> Example:
    """A passage as an example for the model."""
    pronoun = passage.mentions[0][0]
    distances = [distance_class(begin - pronoun) for begin, _ in passage.mentions[1:]]
    target = passage.meant.index(True) if any(passage.meant) else NEITHER
    features = {"mentions": np.array(passage.mentions, np.int32),
                "distances": np.array(distances, np.int32)}  # fmt: skip
    return Example({"passage": passage.tokens}, target, features, gold=passage)


def distance_class(distance: int) -> int:
    """The group number of a distance in tokens, negative distances first."""
    size = min(abs(distance).bit_length(), N_DISTANCES - 1)
    return N_DISTANCES + (size if distance > 0 else -size)


def read(path: str) -> Iterator[Passage]:
    """Read the passages of a file."""
    for where, line in read_columns(path, 11, header=True):
        if not line:
            continue
        _, text, pronoun, at, a, a_at, a_meant, b, b_at, b_meant, _ = line
        if pronoun.lower() not in GENDERS:
            raise InputError(f"{where}: must be one of {', '.join(GENDERS)}, got {pronoun!r}.")
        spans = tokenise(text)
        mentions = []
        for word, offset in ((pronoun, at), (a, a_at), (b, b_at)):
            begin = int(offset) if offset.isdecimal() else -1
            found = spans.covering(begin, begin + len(word)) if begin >= 0 else None
            if not word or found is None or text[begin : begin + len(word)] != word:
                raise InputError(f"{where}: {word!r} must be at character {offset!r:.80}.")
            mentions.append(found)
        meant = (is_true(a_meant, where), is_true(b_meant, where))
        if all(meant):
            raise InputError(f"{where}: at most one of the two names may be TRUE.")
        yield Passage(spans.tokens, mentions, meant, GENDERS[pronoun.lower()])


def is_true(text: str, where: str) -> bool:
    """Parse TRUE or FALSE."""
    if text.upper() not in ("TRUE", "FALSE"):
        raise InputError(f"{where}: must be TRUE or FALSE, got {text!r:.80}.")
    return text.upper() == "TRUE"


def build_scorer(inputs: ModelInputs, size: int, dropout: float) -> Built:
    """Words -> LSTM -> vectors of the three mentions -> a score for each name, and for neither."""
    drop = keras.layers.Dropout(dropout)
    text = inputs.text("passage")
    hidden = drop(bilstm(size)(text.vectors, mask=text.mask))
    hidden = inputs.at_output(text, hidden)
    dim = hidden.shape[-1]
    places = ops.reshape(inputs.number("mentions", (3, 2)), (-1, 6, 1))
    # (batch, time, dim) -> first and last token of each mention (batch, 3, 2 * dim)
    ends = ops.reshape(ops.take_along_axis(hidden, places, axis=1), (-1, 3, 2 * dim))
    mentions = keras.layers.Dense(size, activation="relu")(ends)
    pronoun, names = mentions[:, :1], mentions[:, 1:]  # (batch, 1, size), (batch, 2, size)
    distances = keras.layers.Embedding(2 * N_DISTANCES, DISTANCE_DIM)(
        inputs.number("distances", (2,))
    )  # (batch, 2, DISTANCE_DIM)
    both = ops.repeat(pronoun, 2, axis=1)
    pairs = keras.layers.concatenate([both, names, both * names, distances])
    pairs = drop(keras.layers.Dense(size, activation="relu")(pairs))
    of_names = keras.layers.Dense(1)(pairs)[..., 0]  # (batch, 2)
    neither = keras.layers.Dense(1)(pronoun)[..., 0]  # (batch, 1)
    scores = keras.layers.concatenate([of_names, neither])
    return Built(scores, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def decode(
    model: keras.Model, scores: np.ndarray, batch: Sequence[Example]
) -> list[tuple[bool, bool]]:
    """Whether the pronoun refers to each name."""
    return [(best == 0, best == 1) for best in scores.argmax(axis=-1).tolist()]


def score(examples: Sequence[Example], predictions: Sequence[tuple[bool, bool]]) -> Scores:
    """F1 in per cent for all pronouns and by gender, and the bias, as in GAP's scorer."""
    by_gender = {
        gender: [
            pair
            for example, predicted in zip(examples, predictions, strict=True)
            if gender in ("all", example.gold.gender)
            for pair in zip(example.gold.meant, predicted, strict=True)
        ]
        for gender in ("all", "masculine", "feminine")
    }
    f1 = {gender: pair_f1(pairs) for gender, pairs in by_gender.items()}
    bias = f1["feminine"] / f1["masculine"] if f1["masculine"] else 0.0
    return {"f1": f1["all"], "masculine": f1["masculine"], "feminine": f1["feminine"], "bias": bias}


def pair_f1(pairs: Sequence[tuple[bool, bool]]) -> float:
    """F1, in per cent, of (gold, predicted) pairs."""
    right = sum(gold and predicted for gold, predicted in pairs)
    total = sum(gold + predicted for gold, predicted in pairs)
    return 100 * 2 * right / total if total else 0.0


if __name__ == "__main__":
    main()
