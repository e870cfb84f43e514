"""A tagger with ELMo at its input, trained with Keras on CoNLL-U files.

  python pos_tagging.py --model elmo \\
      --train en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --save tagger.keras

The language model is frozen; the mix of its layers is trained, saved and loaded with the tagger.
The tags are parts of speech (UPOS), or with --column the values of a feature such as Case; a word
without the feature has the tag `_`.

--layers selects the input: `mix`, `average`, `top`, a layer number, or `none` for vectors that the
tagger learns itself. --words adds learned vectors of words to ELMo, as in section 3.3 of Peters et
al. (2018), and --characters a learned character CNN. --probe omits the tagger's LSTMs, to measure a
layer alone, as in section 5.3.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bilm import CharacterIds, ELMoEmbedding, InputError

# The parts of speech of Universal Dependencies; "_" is a missing tag.
TAGS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X _".split()
UPOS = "UPOS"
N_FILTERS = {1: 16, 2: 32, 3: 64, 4: 64}  # of the character CNN, by width
_FLAGS = {
    "--characters": {"action": "store_true", "help": "add a learned character CNN"},
    "--column": {"default": UPOS, "help": "UPOS, or a feature such as Case (default: UPOS)"},
}


class TaggedSentence(NamedTuple):
    """Words, and one tag per word."""

    words: list[str]
    tags: list[str]


def read_conllu(path: Path, column: str = UPOS) -> Iterator[TaggedSentence]:
    """Read the sentences of a CoNLL-U file; ranges (1-2) and empty nodes (1.1) are skipped.

    Args:
        column: "UPOS", or the name of a feature of the sixth column.
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
                tags.append(columns[3] if column == UPOS else feature(columns, column))
            elif not line.strip() and words:
                yield TaggedSentence(words, tags)
                words, tags = [], []


def feature(columns: Sequence[str], name: str) -> str:
    """The value of a feature in FEATS; "_" if it is missing."""
    pairs = (pair.partition("=") for pair in "".join(columns[5:6]).split("|"))
    return next((value for key, _, value in pairs if key == name), "_")


def encode(batch: Sequence[TaggedSentence], tags: Sequence[str]) -> tuple[tf.Tensor, tf.Tensor]:
    """Tensors of a batch, padded to its longest sentence.

    Returns:
        words string (batch, time), padded with "", and tags int32 (batch, time).
    """
    numbers = [[tags.index(tag) for tag in sentence.tags] for sentence in batch]
    words = tf.ragged.constant([sentence.words for sentence in batch])
    return words.to_tensor(""), tf.ragged.constant(numbers, tf.int32).to_tensor(0)


def make_dataset(
    sentences: Sequence[TaggedSentence], tags: Sequence[str], batch_size: int
) -> tf.data.Dataset:
    """Batches of sentences of similar length, shuffled in each epoch; see `encode`."""
    ordered = sorted(sentences, key=lambda sentence: len(sentence.words))
    starts = range(0, len(ordered), batch_size)

    def generate() -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        for start in starts:
            yield encode(ordered[start : start + batch_size], tags)

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


@keras.saving.register_keras_serializable(package="usage_examples")
class CharacterCNN(keras.layers.Layer):
    """Words (batch, time) to vectors (batch, time, sum of `N_FILTERS`), from their characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.ids = CharacterIds(24)
        self.table = keras.layers.Embedding(262, 16)
        self.convolutions = [
            keras.layers.Conv1D(n, width, activation="relu") for width, n in N_FILTERS.items()
        ]
        self.table.build()
        for convolution in self.convolutions:
            convolution.build((None, self.ids.max_characters_per_token, 16))
        self.built = True

    def call(self, words: tf.Tensor) -> tf.Tensor:
        ids = self.ids(words)[:, 1:-1]  # without BOS and EOS: (batch, time, characters)
        shape = tf.shape(ids)
        # (batch, time, characters) -> (batch * time, characters, 16)
        characters = self.table(tf.reshape(ids, (-1, ids.shape[-1])))
        vectors = keras.layers.concatenate(
            [tf.reduce_max(convolution(characters), axis=1) for convolution in self.convolutions]
        )
        # (batch * time, filters) -> (batch, time, filters)
        vectors = tf.reshape(vectors, (shape[0], shape[1], sum(N_FILTERS.values())))
        vectors._keras_mask = tf.not_equal(words, "")
        return vectors

    def compute_output_spec(self, words: Any) -> keras.KerasTensor:
        """The shape (batch, time, filters)."""
        return keras.KerasTensor((*words.shape, sum(N_FILTERS.values())), "float32")


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


def accuracy_on_unseen(
    model: keras.Model, batches: tf.data.Dataset, seen: Iterable[str]
) -> tuple[float, int]:
    """Proportion of correct tags among words that are not in `seen`, and the number of words."""
    known = {"", *seen}
    n_right = n_words = 0
    for words, tags in batches:
        right = tf.argmax(model.predict_on_batch(words), axis=-1).numpy() == tags.numpy()
        for word, is_right in zip(words.numpy().ravel(), right.ravel(), strict=True):
            if word.decode() not in known:
                n_right += int(is_right)
                n_words += 1
    return n_right / max(n_words, 1), n_words


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
    argv: Sequence[str] | None,
    description: str | None,
    save: str,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> argparse.Namespace:
    """Parse the command line; `save` is the default of --save, `more` has other flags."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    model = "language model: a folder, ZIP file or name; or options.json and weights.hdf5"
    add("--model", nargs="+", metavar="MODEL", help=model)
    add("--layers", default="mix", help="mix, average, top, a number, or none")
    add("--words", action="store_true", help="add learned word vectors")
    for flag, settings in (more or {}).items():
        add(flag, **settings)
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
    args = parse_arguments(argv, __doc__, "tagger.keras", _FLAGS)
    keras.utils.set_random_seed(args.seed)
    try:
        training, dev = (list(read_conllu(path, args.column)) for path in (args.train, args.dev))
        vectors = [] if args.layers == "none" else [elmo_vectors(args.model, args.layers)]
    except (InputError, FileNotFoundError) as error:
        sys.exit(f"pos_tagging.py: error: {error}")
    random.Random(args.seed).shuffle(training)
    training = training[: args.max_sentences]
    if args.characters:
        vectors.append(CharacterCNN())
    if args.words or not vectors:
        vectors.append(learned_vectors((sentence.words for sentence in training), word_ids))
    tags = sorted({tag for sentence in [*training, *dev] for tag in sentence.tags})
    words = keras.Input((None,), dtype="string")
    hidden = hidden_states(words, vectors, args.probe)
    tagger = classifier(words, hidden, len(tags), args.learning_rate)
    train, heldout = (make_dataset(part, tags, args.batch_size) for part in (training, dev))
    train_and_save(tagger, train, heldout, args)
    seen = {word for sentence in training for word in sentence.words}
    unseen, n_unseen = accuracy_on_unseen(tagger, heldout, seen)
    print(f"dev accuracy on {n_unseen} words that are not in the training data: {unseen:.4f}")


if __name__ == "__main__":
    main()
