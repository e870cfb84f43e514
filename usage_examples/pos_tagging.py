"""A part-of-speech tagger with ELMo at its input, trained by Keras on CoNLL-U files.

  python pos_tagging.py --options_file options.json --weight_file weights.hdf5 \\
      --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --save tagger.keras

The language model stays as it is; the mix of its layers trains with the tagger, is saved with it,
and is loaded with it. The tags are those of the fourth column (UPOS).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm import Batcher, BidirectionalLanguageModel, weight_layers

# The tags of Universal Dependencies; "_" stands where a file gives none.
TAGS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X _".split()


class TaggedSentence(NamedTuple):
    """Words and their tags, as many."""

    words: list[str]
    tags: list[str]


def read_conllu(path: Path) -> Iterator[TaggedSentence]:
    """Sentences of a CoNLL-U file; ranges (1-2) and empty nodes (1.1) are no words."""
    words: list[str] = []
    tags: list[str] = []
    with open(path, encoding="utf-8") as lines:
        for line in [*lines, ""]:
            columns = line.rstrip("\n").split("\t")
            if columns[0].isdigit():
                words.append(columns[1])
                tags.append(columns[3])
            elif not line.strip() and words:
                yield TaggedSentence(words, tags)
                words, tags = [], []


def encode(
    batcher: Batcher, batch: Sequence[TaggedSentence]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrays of a batch, padded with zeros to its longest sentence.

    Returns:
        character ids int32 (batch, time + 2, characters), tags int32 (batch, time), and weights
        float32 (batch, time): 1 where there is a word.
    """
    ids = batcher.batch_sentences([sentence.words for sentence in batch])
    shape = (len(batch), ids.shape[1] - 2)
    tags, weights = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for row, sentence in enumerate(batch):
        tags[row, : len(sentence.tags)] = [TAGS.index(tag) for tag in sentence.tags]
        weights[row, : len(sentence.tags)] = 1
    return ids, tags, weights


def make_dataset(
    sentences: Sequence[TaggedSentence], max_word_length: int, batch_size: int
) -> tf.data.Dataset:
    """Batches of sentences of like length, in another order each time: see `encode`."""
    ordered = sorted(sentences, key=lambda sentence: len(sentence.words))
    batcher = Batcher(None, max_word_length)
    starts = range(0, len(ordered), batch_size)

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for start in starts:
            yield encode(batcher, ordered[start : start + batch_size])

    signature = (
        tf.TensorSpec((None, None, max_word_length), tf.int32),
        tf.TensorSpec((None, None), tf.int32),
        tf.TensorSpec((None, None), tf.float32),
    )
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    counted = dataset.apply(tf.data.experimental.assert_cardinality(len(starts)))
    return counted.cache().shuffle(len(starts)).prefetch(2)


def build_tagger(options_file: Path, weight_file: Path, learning_rate: float) -> keras.Model:
    """Character ids -> language model -> mix of its layers -> LSTMs -> tags."""
    bilm = BidirectionalLanguageModel(options_file, weight_file)
    ids = keras.Input((None, bilm.options.max_word_length), dtype="int32")
    elmo = weight_layers("elmo", bilm(ids), l2_coef=0.001)["weighted_op"]
    hidden = keras.layers.Dropout(0.3)(elmo)
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True))(hidden)
    tagger = keras.Model(ids, keras.layers.Dense(len(TAGS), activation="softmax")(hidden))
    tagger.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        weighted_metrics=["accuracy"],
    )
    return tagger


def accuracy(tagger: keras.Model, batches: tf.data.Dataset) -> float:
    """Share of the words that get their tag."""
    return tagger.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--options_file", type=Path, required=True)
    parser.add_argument("--weight_file", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True, help="CoNLL-U file to train on")
    parser.add_argument("--dev", type=Path, required=True, help="CoNLL-U file to measure on")
    parser.add_argument("--save", type=Path, default=Path("tagger.keras"), help="file to write")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=32, help="sentences of a batch")
    parser.add_argument("--learning_rate", type=float, default=0.003, help="Adam's")
    parser.add_argument("--max_sentences", type=int, help="use only the first of the training file")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train a tagger, print its accuracy, save it, and measure it again as it was loaded."""
    args = parse_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    training = list(read_conllu(args.train))[: args.max_sentences]
    tagger = build_tagger(args.options_file, args.weight_file, args.learning_rate)
    max_word_length = tagger.input_shape[-1]
    train = make_dataset(training, max_word_length, args.batch_size)
    dev = make_dataset(list(read_conllu(args.dev)), max_word_length, args.batch_size)

    tagger.fit(train, epochs=args.epochs, shuffle=False, verbose=2)  # the data set shuffles itself
    print(f"train accuracy {accuracy(tagger, train):.4f}")
    print(f"dev accuracy {accuracy(tagger, dev):.4f}")
    tagger.save(args.save)
    loaded = keras.saving.load_model(args.save)
    print(f"dev accuracy of {args.save}, loaded again: {accuracy(loaded, dev):.4f}")


if __name__ == "__main__":
    main()
