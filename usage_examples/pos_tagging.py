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
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bilm import ELMoEmbedding, InputError

# The tags of Universal Dependencies; "_" is a missing tag.
TAGS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X _".split()


class TaggedSentence(NamedTuple):
    """Words, and one tag per word."""

    words: list[str]
    tags: list[str]


def read_conllu(path: Path) -> Iterator[TaggedSentence]:
    """Read the sentences of a CoNLL-U file; ranges (1-2) and empty nodes (1.1) are skipped."""
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
    """Load a language model from a folder, a ZIP file, or an options and a weights file."""
    source = model[0] if len(model) == 1 else tuple(model)
    chosen = int(layers) if layers.lstrip("-").isdecimal() else layers
    l2_coef = 0.001 if chosen == "mix" else None
    return ELMoEmbedding.from_pretrained(source, layers=chosen, l2_coef=l2_coef)


def learned_vectors(
    sentences: Iterable[Sequence[str]],
    ids: Callable[[list[str]], keras.layers.Layer],
    dim: int = 128,
) -> keras.layers.Layer:
    """Trainable vectors for words that occur at least twice, and one for all others.

    Args:
        ids: function from a vocabulary to the layer that turns text into word ids.
    """
    counts = Counter(word for words in sentences for word in words)
    words = [word for word, count in counts.items() if count > 1]
    table = keras.layers.Embedding(len(words) + 2, dim, mask_zero=True)
    return keras.Sequential([ids(words), table])


def word_ids(vocabulary: list[str]) -> keras.layers.Layer:
    """Words to ids; "" is padding."""
    return keras.layers.StringLookup(vocabulary=vocabulary, mask_token="")


def hidden_states(text: Any, vectors: Sequence[keras.layers.Layer], probe: bool) -> Any:
    """Text -> vectors -> LSTMs. The vectors have a mask."""
    found = [layer(text) for layer in vectors]
    hidden = keras.layers.concatenate(found) if len(found) > 1 else found[0]
    hidden = keras.layers.Dropout(0.2)(hidden)
    if probe:
        return hidden
    return keras.layers.Bidirectional(keras.layers.LSTM(64, return_sequences=True))(hidden)


def classifier(text: Any, hidden: Any, n_classes: int, learning_rate: float) -> keras.Model:
    """A softmax classifier on hidden states; the loss ignores padding."""
    model = keras.Model(text, keras.layers.Dense(n_classes, activation="softmax")(hidden))
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def accuracy(model: keras.Model, batches: tf.data.Dataset) -> float:
    """Proportion of correct answers."""
    return model.evaluate(batches, verbose=0, return_dict=True)["accuracy"]


def train_and_save(
    model: keras.Model, train: tf.data.Dataset, dev: tf.data.Dataset, args: argparse.Namespace
) -> None:
    """Train and evaluate a model, save it, load it, and evaluate it again."""
    model.fit(train, epochs=args.epochs, shuffle=False, verbose=2)  # already shuffled
    print(f"train accuracy {accuracy(model, train):.4f}")
    print(f"dev accuracy {accuracy(model, dev):.4f}")
    model.save(args.save)
    loaded = keras.saving.load_model(args.save)
    print(f"dev accuracy of {args.save}, loaded again: {accuracy(loaded, dev):.4f}")


def parse_arguments(
    argv: Sequence[str] | None, description: str | None, save: str
) -> argparse.Namespace:
    """Parse the command line; `save` is the default of --save."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    model = "language model: a folder, ZIP file or name; or options.json and weights.hdf5"
    add("--model", nargs="+", metavar="MODEL", help=model)
    add("--layers", default="mix", help="mix, average, top, a number, or none")
    add("--words", action="store_true", help="add learned word vectors")
    add("--probe", action="store_true", help="omit the LSTMs")
    add("--train", type=Path, required=True, help="CoNLL-U file to train on")
    add("--dev", type=Path, required=True, help="CoNLL-U file to measure on")
    add("--save", type=Path, default=Path(save), help="file to write")
    add("--epochs", type=int, default=5)
    add("--batch_size", type=int, default=32, help="sentences per batch")
    add("--learning_rate", type=float, default=0.003, help="learning rate of Adam")
    add("--max_sentences", type=int, help="train on N random sentences", metavar="N")
    add("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.model is None and args.layers != "none":
        parser.error("--model is required, unless --layers is none")
    if args.save.suffix != ".keras" or not args.save.parent.is_dir():
        parser.error(f"--save must be a file .keras in an existing folder, got {args.save}")
    return args


def main(argv: Sequence[str] | None = None) -> None:
    """Train a tagger, print its accuracy, save it, load it, and evaluate it again."""
    args = parse_arguments(argv, __doc__, "tagger.keras")
    keras.utils.set_random_seed(args.seed)
    try:
        training, dev = list(read_conllu(args.train)), list(read_conllu(args.dev))
        vectors = [] if args.layers == "none" else [elmo_vectors(args.model, args.layers)]
    except (InputError, FileNotFoundError) as error:
        sys.exit(f"pos_tagging.py: error: {error}")
    random.Random(args.seed).shuffle(training)
    training = training[: args.max_sentences]
    if args.words or not vectors:
        vectors.append(learned_vectors((sentence.words for sentence in training), word_ids))
    words = keras.Input((None,), dtype="string")
    hidden = hidden_states(words, vectors, args.probe)
    tagger = classifier(words, hidden, len(TAGS), args.learning_rate)
    train, heldout = (make_dataset(part, args.batch_size) for part in (training, dev))
    train_and_save(tagger, train, heldout, args)


if __name__ == "__main__":
    main()
