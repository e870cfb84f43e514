"""A part-of-speech tagger with ELMo at its input, trained with Keras on CoNLL-U files.

  python pos_tagging.py --model elmo \\
      --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --save tagger.keras

The language model is frozen; the mix of its layers is trained, saved and loaded with the tagger.
The tags are in the fourth column (UPOS).

--layers selects the input: `mix`, `average`, `top`, a layer number, or `none` for word vectors
learned by the tagger. --words adds these to ELMo, as in section 3.3 of Peters et al. (2018).
--probe omits the tagger's LSTMs, to measure a layer alone, as in section 5.3.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import tensorflow as tf

from bilm import ELMoEmbedding, InputError

# The tags of Universal Dependencies; "_" is a missing tag.
TAGS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X _".split()


class TaggedSentence(NamedTuple):
    """Words, and a tag for each."""

    words: list[str]
    tags: list[str]


def read_conllu(path: Path) -> Iterator[TaggedSentence]:
    """Sentences of a CoNLL-U file; ranges (1-2) and empty nodes (1.1) are skipped.

    Raises:
        InputError: a word has no tag of `TAGS`.
    """
    words: list[str] = []
    tags: list[str] = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate([*lines, ""], start=1):
            columns = line.rstrip("\n").split("\t")
            if columns[0].isdigit():
                if len(columns) < 4 or columns[3] not in TAGS:
                    raise InputError(
                        f"{path}, line {number}: the fourth column must be one of "
                        f"{', '.join(TAGS)}, got {line.rstrip()[:80]!r}."
                    )
                words.append(columns[1])
                tags.append(columns[3])
            elif not line.strip() and words:
                yield TaggedSentence(words, tags)
                words, tags = [], []


def encode(batch: Sequence[TaggedSentence]) -> tuple[tf.Tensor, tf.Tensor]:
    """Tensors of a batch, padded to its longest sentence.

    Returns:
        words string (batch, time), padded with "", and tags int32 (batch, time).
    """
    numbers = [[TAGS.index(tag) for tag in sentence.tags] for sentence in batch]
    words = tf.ragged.constant([sentence.words for sentence in batch])
    return words.to_tensor(""), tf.ragged.constant(numbers, tf.int32).to_tensor(0)


def make_dataset(sentences: Sequence[TaggedSentence], batch_size: int) -> tf.data.Dataset:
    """Batches of sentences of similar length, shuffled in each epoch; see `encode`."""
    ordered = sorted(sentences, key=lambda sentence: len(sentence.words))
    starts = range(0, len(ordered), batch_size)

    def generate() -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        for start in starts:
            yield encode(ordered[start : start + batch_size])

    signature = (tf.TensorSpec((None, None), tf.string), tf.TensorSpec((None, None), tf.int32))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    counted = dataset.apply(tf.data.experimental.assert_cardinality(len(starts)))
    return counted.cache().shuffle(len(starts)).prefetch(2)


def elmo_vectors(model: Sequence[str], layers: str) -> keras.layers.Layer:
    """The language model of a folder, a ZIP file, or a pair of options and weights."""
    source = model[0] if len(model) == 1 else tuple(model)
    chosen = int(layers) if layers.lstrip("-").isdecimal() else layers
    l2_coef = 0.001 if chosen == "mix" else None
    return ELMoEmbedding.from_pretrained(source, layers=chosen, l2_coef=l2_coef)


def learned_vectors(sentences: Sequence[TaggedSentence], dim: int = 128) -> keras.layers.Layer:
    """Trainable vectors for words that occur at least twice, and one for all others."""
    counts = Counter(word for sentence in sentences for word in sentence.words)
    words = [word for word, count in counts.items() if count > 1]
    ids = keras.layers.StringLookup(vocabulary=words, mask_token="")
    return keras.Sequential([ids, keras.layers.Embedding(len(words) + 2, dim, mask_zero=True)])


def build_tagger(
    vectors: Sequence[keras.layers.Layer], learning_rate: float, probe: bool = False
) -> keras.Model:
    """Words -> vectors -> LSTMs -> tags. The vectors have a mask, so padding is not in the loss."""
    words = keras.Input((None,), dtype="string")
    found = [layer(words) for layer in vectors]
    hidden = keras.layers.concatenate(found) if len(found) > 1 else found[0]
    hidden = keras.layers.Dropout(0.2)(hidden)
    if not probe:
        hidden = keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True))(hidden)
    tagger = keras.Model(words, keras.layers.Dense(len(TAGS), activation="softmax")(hidden))
    tagger.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return tagger


def accuracy(tagger: keras.Model, batches: tf.data.Dataset) -> float:
    """Proportion of correct tags."""
    return tagger.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


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
    parser.add_argument("--save", type=Path, default=Path("tagger.keras"), help="file to write")
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
    """Train a tagger, print its accuracy, save it, load it, and measure it again."""
    args = parse_arguments(argv)
    try:
        train_tagger(args)
    except (InputError, FileNotFoundError) as error:
        sys.exit(f"pos_tagging.py: error: {error}")


def train_tagger(args: argparse.Namespace) -> None:
    """Train, measure, save and load a tagger."""
    keras.utils.set_random_seed(args.seed)
    training = list(read_conllu(args.train))
    random.Random(args.seed).shuffle(training)
    training = training[: args.max_sentences]
    vectors = [] if args.layers == "none" else [elmo_vectors(args.model, args.layers)]
    if args.words or not vectors:
        vectors.append(learned_vectors(training))
    tagger = build_tagger(vectors, args.learning_rate, args.probe)
    train = make_dataset(training, args.batch_size)
    dev = make_dataset(list(read_conllu(args.dev)), args.batch_size)

    tagger.fit(train, epochs=args.epochs, shuffle=False, verbose=2)  # already shuffled
    print(f"train accuracy {accuracy(tagger, train):.4f}")
    print(f"dev accuracy {accuracy(tagger, dev):.4f}")
    tagger.save(args.save)
    loaded = keras.saving.load_model(args.save)
    print(f"dev accuracy of {args.save}, loaded again: {accuracy(loaded, dev):.4f}")


if __name__ == "__main__":
    main()
