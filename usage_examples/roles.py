"""Semantic roles: who did what to whom, by stacked LSTMs of alternating direction (a small version
of He et al. 2017).

  python usage_examples/roles.py --data srl --model elmo --words vectors.txt --seeds 1 2 3

The folder has train.jsonl, dev.jsonl and test.jsonl (also .gz, .xz), one sentence per line:

  {"tokens": ["They", "saw", "it"],
   "frames": [{"predicate": 1, "tags": ["B-ARG0", "B-V", "B-ARG1"]}]}

An example is a frame: the sentence with its predicate marked. The measure is F1 of arguments as in
CoNLL-2005: an argument counts as found if its label and all its tokens are correct, an argument in
several parts (ARG1 and C-ARG1) counts once, and the predicate (V) does not count.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from common.experiment import NO_TARGET, PARTS, Built, Example, Scores, Task, program
from common.layers import allowed_steps, best_paths
from common.reading import as_tokens, find_file, read_json_lines
from common.tags import check_tags, set_scores, spans
from common.vectors import ModelInputs
from keras import ops

from bilm.core.errors import InputError

# Number of stacked LSTMs; the paper uses eight.
DEPTH = 4
MARK_DIM = 16


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a tagger for each seed."""
    program(make_task, __doc__, argv, learning_rate=0.002)


def make_task(args: argparse.Namespace) -> Task:
    """Build the task from a data folder."""
    frames = {part: list(read(find_file(args.data, f"{part}.jsonl"))) for part in PARTS}
    tags = sorted({tag for _, _, found in frames["train"] for tag in found})
    numbers = {tag: number for number, tag in enumerate(tags)}
    parts = {
        part: [
            Example(
                {"sentence": tokens},
                # Tags that do not occur in training are not learned.
                [numbers.get(tag, NO_TARGET) for tag in found],
                {"mark": [int(k == predicate) for k in range(len(tokens))]},
                gold=arguments(found),
            )
            for tokens, predicate, found in frames[part]
        ]
        for part in PARTS
    }
    build = functools.partial(build_tagger, n_tags=len(tags), size=args.size, dropout=args.dropout)
    start, steps = allowed_steps(tags)

    def decode(model: keras.Model, scores: Any, batch: Sequence[Example]) -> list[Any]:
        lengths = [len(example.texts["sentence"]) for example in batch]
        paths = best_paths(scores, lengths, start, steps)
        return [arguments([tags[tag] for tag in path]) for path in paths]

    return Task("roles", parts, build, decode, score)


def read(path: str) -> Iterator[tuple[tuple[str, ...], int, list[str]]]:
    """Read the frames of a file: tokens, the predicate's position, and one tag per token."""
    for where, line in read_json_lines(path, {"tokens": list, "frames": list}):
        tokens = as_tokens(line["tokens"], where)
        for frame in line["frames"]:
            predicate, tags = (
                (frame.get("predicate"), frame.get("tags")) if isinstance(frame, dict) else (0, 0)
            )
            if not isinstance(predicate, int) or not 0 <= predicate < len(tokens):
                raise InputError(
                    f"{where}: 'predicate' must be a token number from 0 to {len(tokens) - 1}, got "
                    f"{predicate!r:.80}."
                )
            if not isinstance(tags, list) or len(tags) != len(tokens):
                raise InputError(
                    f"{where}: 'tags' must be a list of {len(tokens)} tags, got {tags!r:.80}."
                )
            for end in range(1, len(tags) + 1):
                check_tags(tags[:end], where)
            yield tokens, predicate, tags


def arguments(tags: Sequence[str]) -> list[tuple[Any, ...]]:
    """The arguments of a frame, without its predicate: a label, and the first and last token of
    each part. A part C-X continues the last X; without an X, it is a new argument."""
    found: list[list[Any]] = []
    for label, begin, end in spans(tags):
        base = label.removeprefix("C-")
        before = [argument for argument in found if argument[0] == base]
        if label != base and before:
            before[-1].append((begin, end))
        else:
            found.append([base, (begin, end)])
    return [tuple(argument) for argument in found if argument[0] != "V"]


def build_tagger(inputs: ModelInputs, n_tags: int, size: int, dropout: float) -> Built:
    """Words and a marker for the predicate -> LSTMs -> tag scores."""
    sentence = inputs.text("sentence")
    mark = keras.layers.Embedding(2, MARK_DIM)(inputs.number("mark", (None,)))
    hidden = keras.layers.concatenate([sentence.vectors, mark])
    for depth in range(DEPTH):
        lower = hidden
        backwards = depth % 2 == 1
        lstm = keras.layers.LSTM(size, return_sequences=True, go_backwards=backwards)
        hidden = lstm(lower, mask=sentence.mask)
        if backwards:
            hidden = ops.flip(hidden, axis=1)
        hidden = keras.layers.Dropout(dropout / 2)(hidden)
        if depth:
            hidden = hidden + lower  # the paper has a highway gate here
    hidden = inputs.at_output(sentence, hidden)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=NO_TARGET)
    return Built(keras.layers.Dense(n_tags)(hidden), loss)


def score(examples: Sequence[Example], predictions: Sequence[Any]) -> Scores:
    """F1, precision and recall of arguments, in per cent."""
    return set_scores([example.gold for example in examples], predictions)


if __name__ == "__main__":
    main()
