"""The options of a model, `options.json`: the only module that reads its keys.

A training file describes a run; an inference file describes the network and accompanies the
weights. They have the same format, except that `n_characters` differs by one, and that a missing
`bidirectional` means one direction in a training file and two in an inference file.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bilm.core.errors import (
    FLAG,
    OBJECT,
    TEXT,
    InputError,
    Rule,
    integer,
    one_of,
    optional,
    plain,
    real,
    require,
    shown,
)

logger = logging.getLogger(__name__)

# Byte values 0..255, then BOS, EOS, begin of word, end of word, padding.
N_CHARACTERS = 261
ACTIVATIONS = ("relu", "tanh")
# "adam" and "muon" train the dense weights only; Adagrad then trains the word rows.
OPTIMIZERS = ("adagrad", "adam", "muon")
SCHEDULES = ("constant", "linear", "cosine")
SOFTMAX_BIASES = ("zeros", "unigram")
SOFTMAX_WEIGHTS = ("normal", "cooccurrence")

# Bounds of integers, far above any trained model, to name typos before memory is exhausted.
_SIZE = 2**20  # units, dimensions, filters: the largest published number is 4,096
MOST_ROWS = _SIZE  # rows of a batch, and steps
_LAYERS = 100
MOST_CHARACTERS = 2**16  # characters per token
_WORDS = 10**8  # a table of 100 million words has 26 GB at 64 numbers per word

_FRACTION, _FLOAT32 = real(0, 1), real(0, 3e38)
_COUNT, _ROWS = integer(1, _SIZE), integer(1, _WORDS)
_POSITIVE = Rule("a number above 0 and up to 3e38", lambda x: _FLOAT32.holds(x) and x > 0)
_DROPOUT = Rule("a number >= 0 and below 1", lambda x: _FRACTION.holds(x) and x < 1)
_PAIRS = Rule(
    "a list of [width, number]",
    lambda x: isinstance(x, list | tuple) and all(isinstance(pair, list | tuple) for pair in x),
)


def _option(rule: Rule, default: Any = dataclasses.MISSING) -> Any:
    """A field with its rule; None is also allowed if it is the default."""
    return dataclasses.field(default=default, metadata={"rule": rule})


class _CheckedFields:
    """Checks the rules of its fields, and makes NumPy numbers Python numbers."""

    prefix = ""  # prefix of the keys in messages

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, rule = getattr(self, field.name), field.metadata.get("rule")
            if rule is not None and not (value is None and field.default is None):
                require(rule, **{self.key(field.name): value})
            object.__setattr__(self, field.name, plain(value))  # it is frozen

    @classmethod
    def key(cls, field: str) -> str:
        """The key of a field in the file, such as lstm.dim."""
        return cls.prefix + field.replace("embedding_dim", "embedding.dim")

    @classmethod
    def read(cls, values: Any, source: str) -> dict[str, Any]:
        """The values of the fields in a JSON object; keys that are not fields cause a warning."""
        fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for name, field in fields.items():
            if name not in values and field.default is dataclasses.MISSING:
                rule = field.metadata.get("rule", OBJECT)
                raise InputError(f"{cls.key(name)} is missing; it must be {rule.text}.")
        if unknown := sorted(map(str, set(values) - set(fields))):
            where = f"{source}: {cls.prefix[:-1]}".removesuffix(": ")
            logger.warning("%s: ignored unknown keys: %s", where, ", ".join(unknown))
        return {name: values[name] for name in fields if name in values}


@dataclass(frozen=True)
class LSTMOptions(_CheckedFields):
    """The object `lstm`: the recurrent layers of each direction."""

    prefix = "lstm."

    dim: int = _option(_COUNT)  # cell units
    # Size of a layer's input and output; without a projection it equals `dim`.
    projection_dim: int = _option(_COUNT)
    n_layers: int = _option(integer(1, _LAYERS), 1)
    # Bounds of the absolute values of the cell state and of the output; None: no bound.
    cell_clip: float | None = _option(_POSITIVE, None)
    proj_clip: float | None = _option(_POSITIVE, None)
    # From the second layer on, a layer's input is added to its output.
    use_skip_connections: bool = _option(FLAG, False)

    @property
    def has_projection(self) -> bool:
        return self.projection_dim != self.dim


@dataclass(frozen=True)
class DictionaryOptions(_CheckedFields):
    """The object `char_cnn.dictionary`: dictionary ids of characters and words instead of bytes.

    Used by ELMoForManyLangs models (`bilm convert`).
    """

    prefix = "char_cnn.dictionary."

    n_characters: int = _option(_ROWS)  # the last row is padding
    n_words: int = _option(integer(0, _WORDS), 0)  # 0: no word dictionary
    word_dim: int = _option(integer(0, _SIZE), 0)  # size of a vector in the word table


@dataclass(frozen=True)
class CharCNNOptions(_CheckedFields):
    """The object `char_cnn`: the encoder of a word's characters."""

    prefix = "char_cnn."

    filters: tuple[tuple[int, int], ...] = _option(_PAIRS)  # (width in characters, number)
    activation: str = _option(one_of(ACTIVATIONS))  # after max-pooling over positions
    embedding_dim: int = _option(_COUNT)  # size of a character's vector
    n_highway: int = _option(integer(0, _LAYERS), 0)  # highway layers
    # Characters per word, including the begin and end of the word.
    max_characters_per_token: int = _option(integer(3, MOST_CHARACTERS), 50)
    dictionary: DictionaryOptions | None = None  # None: characters are UTF-8 bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        filters = tuple(tuple(map(plain, pair)) for pair in self.filters)
        object.__setattr__(self, "filters", filters)
        longest = self.max_characters_per_token
        fit = all(
            len(pair) == 2 and all(map(_COUNT.holds, pair)) and pair[0] <= longest
            for pair in self.filters
        )
        fit = fit and 0 < self.n_filters <= _SIZE
        text = (
            f"{_PAIRS.text} with widths of at most max_characters_per_token = {longest}, and at "
            f"most {_SIZE:,} filters in all"
        )
        require(Rule(text, lambda _: fit), **{"char_cnn.filters": self.filters})

    @property
    def n_characters(self) -> int:
        """Rows of the character table; the last row is padding."""
        return N_CHARACTERS if self.dictionary is None else self.dictionary.n_characters

    @property
    def n_filters(self) -> int:
        """Size of the concatenated convolutions and of the highway layers."""
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class Options(_CheckedFields):
    """All keys of an options file.

    Attributes:
        char_cnn: None: a word-level model.
        dropout, n_epochs: None: chosen by the size of the text (`bilm.training.state`).
        all_clip_norm_val: bound of the gradient's global norm; None: no bound.
        n_train_tokens: predictions per direction and epoch: words and sentence ends.
        batch_size: rows per device.
        unroll_steps: tokens per row and step.
        learning_rate: Adagrad's rate.
        reset_rate: probability that a training sentence starts from zero states instead of the
            states after the previous sentence of its row.

    The original's files lack the keys from `n_steps` on; the defaults reproduce the original:
        n_steps: number of training steps; overrides `n_epochs`.
        optimizer: "adam" trains the dense weights with Adam at `adam_learning_rate`, and the rows
            of words (softmax, word embeddings) with Adagrad at `learning_rate`. "muon" trains the
            matrices of the LSTMs with Muon, also at `adam_learning_rate`, the others like "adam".
        initial_accumulator: initial value of Adagrad's sums of squares.
        softmax_bias: "unigram" initialises a word's bias with the logarithm of its frequency.
        softmax_weights: "cooccurrence" initialises a word's row from the words next to it in the
            training text and the words spelled like it (`bilm.training.softmax_start`).
        schedule, warmup_steps: schedule of the learning rates.
        tokenizer: tokenizer of the training text (`bilm.data.Tokenizer`); None: unknown.
    """

    lstm: LSTMOptions
    char_cnn: CharCNNOptions | None = None
    bidirectional: bool = _option(FLAG, True)
    n_tokens_vocab: int | None = _option(_ROWS, None)
    dropout: float | None = _option(optional(_DROPOUT), 0.1)
    all_clip_norm_val: float | None = _option(optional(_POSITIVE), 10.0)
    n_epochs: int | None = _option(optional(_COUNT), 10)
    n_train_tokens: int | None = _option(integer(1, 10**15), None)
    batch_size: int = _option(_COUNT, 128)
    unroll_steps: int = _option(_COUNT, 20)
    n_negative_samples_batch: int = _option(_COUNT, 8192)
    learning_rate: float = _option(_POSITIVE, 0.2)
    sample_softmax: bool = _option(FLAG, True)
    share_embedding_softmax: bool = _option(FLAG, False)
    reset_rate: float = _option(_FRACTION, 0.0)
    n_steps: int | None = _option(integer(1, 10**12), None)
    optimizer: str = _option(one_of(OPTIMIZERS), "adagrad")
    adam_learning_rate: float = _option(_POSITIVE, 0.001)
    initial_accumulator: float = _option(_POSITIVE, 1.0)
    softmax_bias: str = _option(one_of(SOFTMAX_BIASES), "zeros")
    softmax_weights: str = _option(one_of(SOFTMAX_WEIGHTS), "normal")
    schedule: str = _option(one_of(SCHEDULES), "constant")
    warmup_steps: int = _option(integer(0, 10**9), 0)
    tokenizer: str | None = _option(TEXT, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embedding_softmax and self.char_cnn is not None:
            raise InputError(
                "share_embedding_softmax must be false with char_cnn: there is no table of words "
                "to share, got true."
            )

    @property
    def max_word_length(self) -> int | None:
        return None if self.char_cnn is None else self.char_cnn.max_characters_per_token

    @property
    def n_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], training: bool, source: str = "options"
    ) -> Options:
        """Read the contents of an options file.

        Args:
            training: whether the file is for training; this sets the default of `bidirectional`.

        Raises:
            InputError: a key is missing or its value is invalid; the message names `source`.
        """
        require(OBJECT, **{source: values})
        try:
            options = cls.read({"bidirectional": not training, **values}, source)
            require(OBJECT, lstm=options["lstm"])
            options["lstm"] = LSTMOptions(**LSTMOptions.read(options["lstm"], source))
            if options.get("char_cnn") is not None:
                options["char_cnn"] = _read_char_cnn(options["char_cnn"], source)
            return cls(**options)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], training: bool) -> Options:
        """Read an options file; see `from_dict`. Also raises the errors of `open`, and an
        InputError if the file is not JSON in UTF-8."""
        with open(path, encoding="utf-8-sig") as file:
            try:
                values = json.load(file)
            # UnicodeDecodeError is a ValueError; deep nesting is a RecursionError
            except (ValueError, RecursionError) as error:
                raise InputError(f"{os.fspath(path)}: must be JSON in UTF-8: {error}") from error
        return cls.from_dict(values, training, os.fspath(path))

    def training_dict(self) -> dict[str, Any]:
        """The contents of a training file, in the original's keys."""
        run = {field.name: field.default for field in dataclasses.fields(self)[2:]}
        # As in the original's files, these keys are omitted if they have their defaults.
        omissible = {"n_tokens_vocab", "n_train_tokens", *list(run)[list(run).index("n_steps") :]}
        values = {name: getattr(self, name) for name in run}
        return _network_dict(self, n_masks=0) | {
            name: value
            for name, value in values.items()
            if value != run[name] or name not in omissible
        }

    def inference_dict(self) -> dict[str, Any]:
        """The contents of an inference file, which has `bidirectional` only if it is false."""
        # Padding, id 0, counts as a character: 262 for 261 rows of weights.
        network = _network_dict(self, n_masks=1)
        if not self.bidirectional:
            network["bidirectional"] = False
        if self.char_cnn is None and self.n_tokens_vocab is not None:
            network["n_tokens_vocab"] = self.n_tokens_vocab
        if self.tokenizer is not None:
            network["tokenizer"] = self.tokenizer
        return network


class _Size(NamedTuple):
    """A named size, with the settings of the default recipe that depend on it."""

    dim: int
    projection_dim: int
    n_highway: int
    filters: tuple[tuple[int, int], ...]
    batch_size: int
    n_negative_samples: int
    adam_learning_rate: float


_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
_SIZES = {
    "tiny": _Size(256, 64, 1, ((1, 16), (2, 16), (3, 32), (4, 64), (5, 128)), 32, 2048, 0.005),
    "base": _Size(512, 128, 1, _FILTERS[:5], 64, 2048, 0.006),
    "small": _Size(1024, 128, 1, _FILTERS, 64, 4096, 0.006),
    "medium": _Size(2048, 256, 1, _FILTERS, 128, 8192, 0.006),
    "original": _Size(4096, 512, 2, _FILTERS, 128, 8192, 0.006),
}
PRESETS = tuple(_SIZES)
RECIPES = ("default", "original")


def preset(name: str, recipe: str = "default") -> dict[str, Any]:
    """The contents of an options file for a model size and a training recipe.

    Args:
        name: "tiny", "base", "small", "medium" or "original" (the size of the paper's model).
        recipe: "default", for the lowest perplexity in a given time (docs/sizes.md), or "original",
            which trains exactly like the original program.

    Raises:
        InputError: the name or the recipe does not exist.
    """
    for argument, value, names in (("preset", name, PRESETS), ("recipe", recipe, RECIPES)):
        if value not in names:
            raise InputError(f"{argument} must be one of {', '.join(names)}, got {shown(value)}.")
    size = _SIZES[name]
    is_small = name in ("tiny", "base")
    lstm = LSTMOptions(
        size.dim, size.projection_dim, 2, cell_clip=3, proj_clip=3, use_skip_connections=True
    )
    char_cnn = CharCNNOptions(size.filters, "relu", embedding_dim=16, n_highway=size.n_highway)
    if recipe == "original":
        options = Options(
            lstm,
            char_cnn,
            batch_size=64 if is_small else 128,
            n_negative_samples_batch=2048 if is_small else 8192,
        )
    else:
        options = Options(
            lstm,
            char_cnn,
            dropout=None,
            n_epochs=None,
            batch_size=size.batch_size,
            n_negative_samples_batch=size.n_negative_samples,
            learning_rate=0.1,
            reset_rate=1.0,
            optimizer="muon",
            adam_learning_rate=size.adam_learning_rate,
            initial_accumulator=0.01,
            softmax_bias="unigram",
            softmax_weights="cooccurrence",
            schedule="linear",
            warmup_steps=200,
        )
    return options.training_dict()


def preset_like(network: Options, recipe: str = "default") -> Options:
    """Options to fine-tune a network by a recipe. Batch size and rates are those of the smallest
    preset with at least as many units; for larger networks, of the largest preset. For
    networks larger than base, the rate of Muon and Adam is at most 0.002 (docs/recipe.md)."""
    sizes = (name for name, size in _SIZES.items() if size.dim >= network.lstm.dim)
    options = Options.from_dict(preset(next(sizes, PRESETS[-1]), recipe), training=True)
    rate = options.adam_learning_rate
    return dataclasses.replace(
        options,
        adam_learning_rate=min(rate, 0.002) if network.lstm.dim > _SIZES["base"].dim else rate,
        lstm=network.lstm,
        char_cnn=network.char_cnn,
        bidirectional=network.bidirectional,
    )


def _read_char_cnn(values: Any, source: str) -> CharCNNOptions:
    require(OBJECT, char_cnn=values)
    keys = dict(values)
    embedding, n_characters = keys.pop("embedding", None), keys.pop("n_characters", None)
    require(OBJECT, **{"char_cnn.embedding": embedding})
    if "dim" in embedding:
        keys["embedding_dim"] = embedding["dim"]
    values = CharCNNOptions.read(keys, source)
    if (sizes := values.get("dictionary")) is not None:
        require(OBJECT, **{"char_cnn.dictionary": sizes})
        values["dictionary"] = DictionaryOptions(**DictionaryOptions.read(sizes, source))
    options = CharCNNOptions(**values)
    if n_characters is not None:
        # Training files count the rows of the table, inference files padding (id 0) as well.
        n_rows = options.n_characters, options.n_characters + 1
        require(one_of(n_rows), **{"char_cnn.n_characters": n_characters})
    return options


def _network_dict(options: Options, n_masks: int) -> dict[str, Any]:
    lstm = dataclasses.asdict(options.lstm)
    network = {"lstm": {key: value for key, value in lstm.items() if value is not None}}
    if options.char_cnn is not None:
        char_cnn = dataclasses.asdict(options.char_cnn)
        char_cnn["filters"] = [list(pair) for pair in options.char_cnn.filters]
        char_cnn["embedding"] = {"dim": char_cnn.pop("embedding_dim")}
        char_cnn["n_characters"] = options.char_cnn.n_characters + n_masks
        if char_cnn["dictionary"] is None:
            del char_cnn["dictionary"]
        network["char_cnn"] = char_cnn
    return network
