"""The options of a model, `options.json`: the only place that reads its keys.

A training file describes a run; an inference file describes the network and accompanies the
weights. They have one format, except for `n_characters` and for a missing `bidirectional`, which
means one direction in a training file and two in an inference file.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bilm.core.errors import (
    FLAG,
    OBJECT,
    TEXT,
    InputError,
    Rule,
    one_of,
    optional,
    require,
    require_record,
    shown,
)

logger = logging.getLogger(__name__)

# Byte values 0..255, then BOS, EOS, begin of word, end of word, padding.
N_CHARACTERS = 261
ACTIVATIONS = ("relu", "tanh")
# "adam" trains the dense weights with Adam and the rows of words with Adagrad.
OPTIMIZERS = ("adagrad", "adam")
SCHEDULES = ("constant", "linear", "cosine")
SOFTMAX_BIASES = ("zeros", "unigram")

# Bounds of integers, far above any trained model: anything larger is a typo or would exhaust memory
# before a better error is possible.
_SIZE = 2**20  # units, dimensions, filters: the largest published number is 4,096
MOST_ROWS = _SIZE  # rows of a batch, and steps
_LAYERS = 100
_FILTERS_LISTED = 1000
MOST_CHARACTERS = 2**16  # characters per token
_WORDS = 10**8  # a table of 100 million words has 26 GB at 64 numbers per word
_HIGHEST = 3e38  # float32 ends above it


def _is_number(value: object) -> bool:
    """Whether a value is a finite number in the range of float32, but not a bool."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and -_HIGHEST <= value <= _HIGHEST  # type: ignore[operator]


def _is_count(value: Any, low: int = 1, high: int = _SIZE) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _are_lists(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(x, list | tuple) for x in value)


def _count(low: int = 1, high: int = _SIZE) -> Rule:
    return Rule(f"an integer from {low:,} to {high:,}", lambda value: _is_count(value, low, high))


_COUNT = _count()
_ROWS = _count(1, _WORDS)
_POSITIVE = Rule("a number above 0 and up to 3e38", lambda value: _is_number(value) and value > 0)
_CLIP = Rule(_POSITIVE.text, lambda value: value is None or _POSITIVE.holds(value))
_FRACTION = Rule("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
_DROPOUT = Rule(
    "a number >= 0 and below 1, or null", lambda x: x is None or (_is_number(x) and 0 <= x < 1)
)
_ACTIVATION = one_of(ACTIVATIONS)
_PAIRS = Rule("a list of [width, number]", _are_lists)


def _option(rule: Rule, default: Any = dataclasses.MISSING) -> Any:
    """A field with its rule; a default of None is allowed too."""
    return dataclasses.field(default=default, metadata={"rule": rule})


class _Part:
    """Checks the rules of its fields. `prefix` precedes its keys in messages."""

    prefix = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, rule = getattr(self, field.name), field.metadata.get("rule")
            if rule is not None and not (value is None and field.default is None):
                name = field.name.replace("embedding_dim", "embedding.dim")
                require(rule, **{self.prefix + name: value})


@dataclass(frozen=True)
class LSTMOptions(_Part):
    """The object `lstm`: the recurrent layers of each direction.

    Attributes:
        dim: units of the cell.
        projection_dim: size of a layer's input and output; if it equals `dim`, there is no
            projection.
        n_layers: layers of each direction.
        cell_clip: bound of the cell state's absolute value; None: no bound.
        proj_clip: bound of the output's absolute value; None: no bound.
        use_skip_connections: from the second layer on, a layer's input is added to its output.
    """

    prefix = "lstm."

    dim: int = _option(_COUNT)
    projection_dim: int = _option(_COUNT)
    n_layers: int = _option(_count(1, _LAYERS), 1)
    cell_clip: float | None = _option(_CLIP, None)
    proj_clip: float | None = _option(_CLIP, None)
    use_skip_connections: bool = _option(FLAG, False)

    @property
    def has_projection(self) -> bool:
        """Whether the cell's output is projected."""
        return self.projection_dim != self.dim


@dataclass(frozen=True)
class DictionaryOptions(_Part):
    """The object `char_cnn.dictionary`: ids of characters and words instead of bytes.

    Models of ELMoForManyLangs have one (`bilm convert`).

    Attributes:
        n_characters: rows of the dictionary of characters; the last one is padding.
        n_words: rows of the dictionary of words; 0: no dictionary.
        word_dim: size of a word's own vector, which is projected like its characters' vector.
    """

    prefix = "char_cnn.dictionary."

    n_characters: int = _option(_ROWS)
    n_words: int = _option(_count(0, _WORDS), 0)
    word_dim: int = _option(_count(0), 0)


@dataclass(frozen=True)
class CharCNNOptions(_Part):
    """The object `char_cnn`: a word's vector from its characters.

    Attributes:
        filters: pairs (width in characters, number of filters).
        activation: one of `ACTIVATIONS`, after the maximum over positions.
        embedding_dim: size of a character's vector.
        n_highway: number of highway layers.
        max_characters_per_token: characters of a word, including its begin and end marks.
        dictionary: ids of characters and words; None: characters are bytes.
    """

    prefix = "char_cnn."

    filters: tuple[tuple[int, int], ...] = _option(_PAIRS)
    activation: str = _option(_ACTIVATION)
    embedding_dim: int = _option(_COUNT)
    n_highway: int = _option(_count(0, _LAYERS), 0)
    max_characters_per_token: int = _option(_count(3, MOST_CHARACTERS), 50)
    dictionary: DictionaryOptions | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        longest = self.max_characters_per_token
        fit = bool(self.filters) and all(
            len(pair) == 2 and all(map(_is_count, pair)) and pair[0] <= longest
            for pair in self.filters
        )
        text = f"{_PAIRS.text} with widths of at most max_characters_per_token = {longest}"
        require(Rule(text, lambda _: fit), **{"char_cnn.filters": self.filters})
        if len(self.filters) > _FILTERS_LISTED or self.n_filters > _SIZE:
            raise InputError(
                f"char_cnn.filters must have at most {_FILTERS_LISTED:,} widths and {_SIZE:,} "
                f"filters in all, got {len(self.filters):,} and {self.n_filters:,}."
            )

    @property
    def n_characters(self) -> int:
        """Rows of the character table; the last one is padding."""
        return N_CHARACTERS if self.dictionary is None else self.dictionary.n_characters

    @property
    def n_filters(self) -> int:
        """Size of the concatenated convolutions and of the highway layers."""
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class Options(_Part):
    """All keys of an options file.

    Attributes:
        char_cnn: None: a word-level model.
        dropout, n_epochs: None: chosen by the size of the text (`bilm.training.planning`).
        all_clip_norm_val: bound of the gradient's global norm; None: no bound.
        n_train_tokens: predictions of one direction in an epoch: words and sentence ends.
        batch_size: rows per device.
        unroll_steps: tokens per row and step.
        learning_rate: Adagrad's.
        reset_rate: probability that a sentence starts, in training, from zero states instead of the
            states after the previous sentence of its row.

    The keys from `n_steps` on are not in the original's files; their defaults do what the original
    did:
        n_steps: number of training steps; overrides `n_epochs`.
        optimizer: "adam" trains the dense weights with Adam at `adam_learning_rate`, and the rows
            of words (softmax, word embeddings) with Adagrad at `learning_rate`.
        initial_accumulator: initial value of Adagrad's sums of squares.
        softmax_bias: "unigram" starts the bias of a word at the logarithm of its frequency.
        schedule, warmup_steps: schedule of the learning rates.
        tokenizer: tokenizer of the training text (`bilm.data.Tokenizer`); None: unknown.
    """

    lstm: LSTMOptions
    char_cnn: CharCNNOptions | None = None
    bidirectional: bool = _option(FLAG, True)
    n_tokens_vocab: int | None = _option(_ROWS, None)
    dropout: float | None = _option(_DROPOUT, 0.1)
    all_clip_norm_val: float | None = _option(_CLIP, 10.0)
    n_epochs: int | None = _option(optional(_COUNT), 10)
    n_train_tokens: int | None = _option(_count(1, 10**15), None)
    batch_size: int = _option(_COUNT, 128)
    unroll_steps: int = _option(_COUNT, 20)
    n_negative_samples_batch: int = _option(_COUNT, 8192)
    learning_rate: float = _option(_POSITIVE, 0.2)
    sample_softmax: bool = _option(FLAG, True)
    share_embedding_softmax: bool = _option(FLAG, False)
    reset_rate: float = _option(_FRACTION, 0.0)
    n_steps: int | None = _option(_count(1, 10**12), None)
    optimizer: str = _option(one_of(OPTIMIZERS), "adagrad")
    adam_learning_rate: float = _option(_POSITIVE, 0.001)
    initial_accumulator: float = _option(_POSITIVE, 1.0)
    softmax_bias: str = _option(one_of(SOFTMAX_BIASES), "zeros")
    schedule: str = _option(one_of(SCHEDULES), "constant")
    warmup_steps: int = _option(_count(0, 10**9), 0)
    tokenizer: str | None = _option(TEXT, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embedding_softmax and self.char_cnn is not None:
            raise InputError(
                "share_embedding_softmax: true is for word input; a model with char_cnn has no "
                "table of words to share."
            )

    @property
    def max_word_length(self) -> int | None:
        """Characters per word; None for a word-level model."""
        return None if self.char_cnn is None else self.char_cnn.max_characters_per_token

    @property
    def n_directions(self) -> int:
        """Two when `bidirectional`, else one."""
        return 2 if self.bidirectional else 1

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], training: bool, source: str = "options"
    ) -> Options:
        """Read the contents of an options file.

        Args:
            values: the JSON object.
            training: True for a training file, False for an inference file.
            source: name of the file, for messages.

        Raises:
            InputError: a key is missing or its value is invalid.
        """
        require_record(values, _LSTM_KEYS, source)
        if values.get("char_cnn") is not None:
            require_record(values, _CHAR_CNN_KEYS, source)
            if values["char_cnn"].get("dictionary"):
                require_record(values, _DICTIONARY_KEYS, source)
        try:
            return _read(values, training, source)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], training: bool) -> Options:
        """Read an options file; see `from_dict`."""
        with open(path, encoding="utf-8-sig") as file:
            try:
                values = json.load(file)
            except ValueError as error:  # UnicodeDecodeError is a ValueError
                raise InputError(f"{os.fspath(path)}: must be JSON in UTF-8: {error}") from error
        return cls.from_dict(values, training, os.fspath(path))

    def training_dict(self) -> dict[str, Any]:
        """The contents of a training file, in the original's keys."""
        run = {name: getattr(self, name) for name in _RUN_KEYS}
        for name in ("n_tokens_vocab", "n_train_tokens"):
            if run[name] is None:
                del run[name]
        for field in dataclasses.fields(self):
            if field.name in _OUR_KEYS and run[field.name] == field.default:
                del run[field.name]  # as in the original's files
        return _network_dict(self, n_masks=0) | run

    def inference_dict(self) -> dict[str, Any]:
        """The contents of an inference file, which has `bidirectional` only if it is false."""
        # Id 0 for padding is counted: 262 for 261 rows of weights.
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
    "base": _Size(512, 128, 1, _FILTERS[:5], 32, 2048, 0.004),
    "small": _Size(1024, 128, 1, _FILTERS, 64, 4096, 0.002),
    "medium": _Size(2048, 256, 1, _FILTERS, 128, 8192, 0.0015),
    "original": _Size(4096, 512, 2, _FILTERS, 128, 8192, 0.001),
}
PRESETS = tuple(_SIZES)
RECIPES = ("default", "original")


def preset(name: str, recipe: str = "default") -> dict[str, Any]:
    """The training options of a model size and a training recipe.

    Args:
        name: "tiny", "base", "small", "medium" or "original" (the size of the paper's model).
        recipe: "default", for the lowest perplexity in a given time (docs/train.md), or "original",
            which trains exactly as the program of 2018.

    Returns:
        the contents of an options file, without `n_tokens_vocab` and `n_train_tokens`.

    Raises:
        InputError: unknown size or recipe.
    """
    for what, value, names in (("preset", name, PRESETS), ("recipe", recipe, RECIPES)):
        if value not in names:
            raise InputError(f"{what} must be one of {', '.join(names)}, got {shown(value)}.")
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
            optimizer="adam",
            adam_learning_rate=size.adam_learning_rate,
            initial_accumulator=0.001,
            softmax_bias="unigram",
            schedule="linear",
            warmup_steps=200,
        )
    return options.training_dict()


def _names(part: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(part))


# All keys but `lstm` and `char_cnn`.
_RUN_KEYS = _names(Options)[2:]
_OUR_KEYS = _RUN_KEYS[_RUN_KEYS.index("n_steps") :]

# The required keys.
_LSTM_KEYS = {"lstm": OBJECT, "lstm.dim": _COUNT, "lstm.projection_dim": _COUNT}
_CHAR_CNN_KEYS = {
    "char_cnn": OBJECT,
    "char_cnn.activation": _ACTIVATION,
    "char_cnn.filters": _PAIRS,
    "char_cnn.embedding": OBJECT,
    "char_cnn.embedding.dim": _COUNT,
}
_DICTIONARY_KEYS = {"char_cnn.dictionary": OBJECT, "char_cnn.dictionary.n_characters": _ROWS}


def _read(values: Mapping[str, Any], training: bool, source: str) -> Options:
    run = _known(values, _RUN_KEYS, source, also=("lstm", "char_cnn"))
    run.setdefault("bidirectional", not training)
    if run.get("n_train_tokens", 0) is None:
        del run["n_train_tokens"]
    lstm, char_cnn = values["lstm"], values.get("char_cnn")
    return Options(
        lstm=LSTMOptions(**_known(lstm, _names(LSTMOptions), f"{source}: lstm")),
        char_cnn=None if char_cnn is None else _read_char_cnn(char_cnn, f"{source}: char_cnn"),
        **run,
    )


def _read_char_cnn(values: Mapping[str, Any], source: str) -> CharCNNOptions:
    keys = {*_names(CharCNNOptions), "embedding", "n_characters"} - {"embedding_dim"}
    given = _known(values, keys, source)
    n_characters = given.pop("n_characters", None)
    given["embedding_dim"] = given.pop("embedding")["dim"]
    given["filters"] = tuple(map(tuple, given["filters"]))
    dictionary = given.pop("dictionary", None)
    if dictionary:
        known = _known(dictionary, _names(DictionaryOptions), f"{source}.dictionary")
        given["dictionary"] = DictionaryOptions(**known)
    options_read = CharCNNOptions(**given)
    # Training files count the rows of the table, inference files id 0 for padding too.
    if "n_characters" in values:
        n_rows = (options_read.n_characters, options_read.n_characters + 1)
        rule = Rule("{} or {}".format(*n_rows), lambda value: value in n_rows)
        require(rule, **{"char_cnn.n_characters": n_characters})
    return options_read


def _known(
    values: Mapping[str, Any], keys: Iterable[str], source: str, also: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The given values of `keys`; a warning names keys that are neither in `keys` nor in `also`."""
    found = {key: values[key] for key in keys if key in values}
    unknown = sorted(map(str, set(values) - set(found) - set(also)))
    if unknown:
        logger.warning("%s: keys without a meaning here: %s", source, ", ".join(unknown))
    return found


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
