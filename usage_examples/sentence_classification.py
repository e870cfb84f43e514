"""A sentence classifier with ELMo at its input: which genre does a sentence belong to?

  python sentence_classification.py --model elmo \\
      --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --save classifier.keras

The English Web Treebank names a sentence's genre in its `sent_id`: `weblog-...`, `email-...` and
so on, five in all. The classifier's input is strings with spaces between tokens. --layers, --words
and --probe are as in pos_tagging.py; --probe averages the vectors without LSTMs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from pos_tagging import (
    classifier,
    elmo_vectors,
    hidden_states,
    learned_vectors,
    parse_arguments,
    train_and_save,
)


class GenreSentence(NamedTuple):
    """A sentence, with spaces between tokens, and its genre."""

    sentence: str
    genre: str


def read_genres(path: Path) -> Iterator[GenreSentence]:
    """Read the sentences of a CoNLL-U file; the genre is the `sent_id` up to the first hyphen."""
    words: list[str] = []
    genre = ""
    with open(path, encoding="utf-8") as lines:
        for line in [*lines, ""]:
            columns = line.rstrip("\n").split("\t")
            if columns[0].isdigit():
                words.append("".join(columns[1].split()))
            elif line.startswith("# sent_id = "):
                genre = line.removeprefix("# sent_id = ").partition("-")[0].strip()
            elif not line.strip() and words:
                yield GenreSentence(" ".join(words), genre)
                words = []


def make_dataset(
    examples: Sequence[GenreSentence], genres: Sequence[str], batch_size: int
) -> tf.data.Dataset:
    """Batches of sentences of similar length, shuffled in each epoch: sentences string (batch,),
    and genre numbers int32 (batch,)."""
    ordered = sorted(examples, key=lambda example: example.sentence.count(" "))
    sentences = [example.sentence for example in ordered]
    numbers = np.array([genres.index(example.genre) for example in ordered], np.int32)
    batches = tf.data.Dataset.from_tensor_slices((sentences, numbers)).batch(batch_size)
    return batches.cache().shuffle(len(batches)).prefetch(2)


def word_ids(vocabulary: list[str]) -> keras.layers.Layer:
    """Sentences to word ids."""
    return keras.layers.TextVectorization(
        vocabulary=vocabulary, standardize=None, split="whitespace", output_mode="int"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train a classifier, print its accuracy, save it, load it, and evaluate it again."""
    args = parse_arguments(argv, __doc__, "classifier.keras")
    keras.utils.set_random_seed(args.seed)
    training, dev = list(read_genres(args.train)), list(read_genres(args.dev))
    genres = sorted({example.genre for example in [*training, *dev]})
    random.Random(args.seed).shuffle(training)
    training = training[: args.max_sentences]
    vectors = [] if args.layers == "none" else [elmo_vectors(args.model, args.layers)]
    if args.words or not vectors:
        words = (example.sentence.split() for example in training)
        vectors.append(learned_vectors(words, word_ids))
    sentences = keras.Input((), dtype="string")
    hidden = hidden_states(sentences, vectors, args.probe)
    # The vectors have a mask, so the average does not include padding.
    pooled = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling1D()(hidden))
    model = classifier(sentences, pooled, len(genres), args.learning_rate)
    ((_, count),) = Counter(example.genre for example in dev).most_common(1)
    print(f"most frequent of {len(genres)} genres: {count / len(dev):.4f} of the dev sentences")
    train, heldout = (make_dataset(part, genres, args.batch_size) for part in (training, dev))
    train_and_save(model, train, heldout, args)


if __name__ == "__main__":
    main()
