"""A sentence classifier with ELMo at its input: which genre does a sentence belong to?

  python sentence_classification.py --model elmo \\
      --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --save classifier.keras

The English Web Treebank names a sentence's genre in its `sent_id`: `weblog-...`, `email-...` and
so on, five in all. The classifier's input is strings with spaces between tokens. --layers, --words
and --probe are as in pos_tagging.py; --probe averages the vectors without LSTMs.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm import ELMoEmbedding


class GenreSentence(NamedTuple):
    """A sentence with spaces between tokens, and its genre."""

    sentence: str
    genre: str


def read_genres(path: Path) -> Iterator[GenreSentence]:
    """Sentences of a CoNLL-U file, with the part of their `sent_id` before the first hyphen."""
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
    """Batches of sentences of similar length, shuffled in each epoch: string (batch,), and genre
    numbers int32 (batch,)."""
    ordered = sorted(examples, key=lambda example: example.sentence.count(" "))
    sentences = [example.sentence for example in ordered]
    numbers = np.array([genres.index(example.genre) for example in ordered], np.int32)
    batches = tf.data.Dataset.from_tensor_slices((sentences, numbers)).batch(batch_size)
    return batches.cache().shuffle(len(batches)).prefetch(2)


def elmo_vectors(model: Sequence[str], layers: str) -> keras.layers.Layer:
    """The language model of a folder, a ZIP file, or a pair of options and weights."""
    source = model[0] if len(model) == 1 else tuple(model)
    chosen = int(layers) if layers.lstrip("-").isdecimal() else layers
    l2_coef = 0.001 if chosen == "mix" else None
    return ELMoEmbedding.from_pretrained(source, layers=chosen, l2_coef=l2_coef)


def learned_vectors(examples: Sequence[GenreSentence], dim: int = 128) -> keras.layers.Layer:
    """Trainable vectors for words that occur at least twice, and one for all others."""
    counts = Counter(word for example in examples for word in example.sentence.split())
    words = [word for word, count in counts.items() if count > 1]
    ids = keras.layers.TextVectorization(
        vocabulary=words, standardize=None, split="whitespace", output_mode="int"
    )
    return keras.Sequential([ids, keras.layers.Embedding(len(words) + 2, dim, mask_zero=True)])


def build_classifier(
    vectors: Sequence[keras.layers.Layer],
    n_classes: int,
    learning_rate: float,
    probe: bool = False,
) -> keras.Model:
    """Sentences -> vectors -> LSTMs -> average -> genres. The vectors have a mask, so the average
    does not include padding."""
    sentences = keras.Input((), dtype="string")
    found = [layer(sentences) for layer in vectors]
    hidden = keras.layers.concatenate(found) if len(found) > 1 else found[0]
    hidden = keras.layers.Dropout(0.2)(hidden)
    if not probe:
        hidden = keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True))(hidden)
    pooled = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling1D()(hidden))
    genres = keras.layers.Dense(n_classes, activation="softmax")(pooled)
    classifier = keras.Model(sentences, genres)
    classifier.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return classifier


def accuracy(classifier: keras.Model, batches: tf.data.Dataset) -> float:
    """Proportion of correct genres."""
    return classifier.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = "language model: a folder, ZIP file or name; or options.json and weights.hdf5"
    parser.add_argument("--model", nargs="+", metavar="MODEL", help=model)
    parser.add_argument("--layers", default="mix", help="mix, average, top, a number, or none")
    parser.add_argument("--words", action="store_true", help="add learned word vectors")
    parser.add_argument("--probe", action="store_true", help="omit the LSTMs")
    parser.add_argument("--train", type=Path, required=True, help="CoNLL-U file to train on")
    parser.add_argument("--dev", type=Path, required=True, help="CoNLL-U file to measure on")
    parser.add_argument("--save", type=Path, default=Path("classifier.keras"), help="to write")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=32, help="sentences per batch")
    parser.add_argument("--learning_rate", type=float, default=0.003, help="learning rate of Adam")
    parser.add_argument(
        "--max_sentences", type=int, help="train on N random sentences", metavar="N"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.model is None and args.layers != "none":
        parser.error("--model is required, unless --layers is none")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Train a classifier, print its accuracy, save it, load it, and measure it again."""
    args = parse_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    training, dev = list(read_genres(args.train)), list(read_genres(args.dev))
    genres = sorted({example.genre for example in [*training, *dev]})
    random.Random(args.seed).shuffle(training)
    training = training[: args.max_sentences]
    vectors = [] if args.layers == "none" else [elmo_vectors(args.model, args.layers)]
    if args.words or not vectors:
        vectors.append(learned_vectors(training))
    classifier = build_classifier(vectors, len(genres), args.learning_rate, args.probe)

    train = make_dataset(training, genres, args.batch_size)
    heldout = make_dataset(dev, genres, args.batch_size)
    classifier.fit(train, epochs=args.epochs, shuffle=False, verbose=2)
    ((_, count),) = Counter(example.genre for example in dev).most_common(1)
    print(f"most frequent of {len(genres)} genres: {count / len(dev):.4f} of the dev sentences")
    print(f"dev accuracy {accuracy(classifier, heldout):.4f}")
    classifier.save(args.save)
    loaded = keras.saving.load_model(args.save)
    print(f"dev accuracy of {args.save}, loaded again: {accuracy(loaded, heldout):.4f}")


if __name__ == "__main__":
    main()
