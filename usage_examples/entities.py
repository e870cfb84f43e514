"""Named entities: a tagger with a bidirectional LSTM and a CRF (Lample et al. 2016).

  python usage_examples/entities.py --data ner-en --model elmo --words vectors.txt --seeds 1 2 3

The folder has train.tsv, dev.tsv and test.tsv (also .gz, .xz): `token TAB tag` per line, an empty
line after each sentence, tags in IOB2 (B-PER, I-PER, O). The measure is F1 of entities: an entity
counts as found if its type, first and last token are correct.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from common.experiment import PARTS, Built, Example, Scores, Task, program
from common.layers import CRF, bilstm
from common.reading import as_tokens, find_file, read_columns
from common.tags import check_tags, span_scores
from common.vectors import ModelInputs


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a tagger for each seed."""
    program(make_task, __doc__, argv)


def make_task(args: argparse.Namespace) -> Task:
    """Build the task from a data folder."""
    sentences = {part: list(read(find_file(args.data, f"{part}.tsv"))) for part in PARTS}
    tags = sorted({tag for _, found in sentences["train"] for tag in found})
    numbers = {tag: number for number, tag in enumerate(tags)}
    parts = {
        part: [
            # A tag that does not occur in training cannot be learned, but counts in the score.
            Example({"sentence": words}, [numbers.get(tag, 0) for tag in found], gold=found)
            for words, found in sentences[part]
        ]
        for part in PARTS
    }
    build = functools.partial(build_tagger, tags=tags, size=args.size, dropout=args.dropout)
    return Task("entities", parts, build, decode, score)


def read(path: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Read the sentences of a file: words, and one tag per word."""
    words: list[str] = []
    tags: list[str] = []
    where = path
    for where, columns in read_columns(path, 2):
        if columns:
            words += as_tokens(columns[:1], where)
            tags.append(columns[1])
            check_tags(tags, where)
        elif words:
            yield tuple(words), tags
            words, tags = [], []
    if words:
        yield tuple(words), tags


def build_tagger(inputs: ModelInputs, tags: Sequence[str], size: int, dropout: float) -> Built:
    """Words -> LSTM -> tag scores -> CRF."""
    sentence = inputs.text("sentence")
    hidden = bilstm(size)(sentence.vectors, mask=sentence.mask)
    hidden = keras.layers.Dropout(dropout)(hidden)
    hidden = inputs.at_output(sentence, hidden)
    crf = CRF(tags)
    return Built(crf(keras.layers.Dense(len(tags))(hidden)), crf.loss)


def decode(model: keras.Model, scores: Any, batch: Sequence[Example]) -> list[list[str]]:
    """The tags of each sentence."""
    return model.get_layer("crf").decode(scores, [len(e.texts["sentence"]) for e in batch])


def score(examples: Sequence[Example], predictions: Sequence[Sequence[str]]) -> Scores:
    """F1, precision and recall of entities, in per cent."""
    return span_scores([example.gold for example in examples], predictions)


if __name__ == "__main__":
    main()
