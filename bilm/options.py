"""The options of a model, `options.json`: the only place that reads its keys.

Two kinds of file share one format. A training file describes a run; an inference file describes
the network alone and lies beside the weights. They differ in what an absent `bidirectional` means
(one direction in a training file, two in an inference file) and in `n_characters`.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import InputError
from bilm.files import PathLike, read_json_object

logger = logging.getLogger(__name__)

# Byte values 0..255 and five marks: begin and end of sentence, begin and end of word, padding.
N_CHARACTERS = 261
# Of the character encoder, by their names in files.
ACTIVATIONS = ("relu", "tanh")

# The rules that values keep.
_COUNT = "a whole number from 1"
_POSITIVE = "a number above 0"
_PAIRS = "a list of [width, number]"


@dataclass(frozen=True)
class LSTMOptions:
    """The `lstm` part: the recurrent layers of each direction.

    Attributes:
        dim: units of the cell.
        projection_dim: size of a layer's input and output; equal to `dim`, there is no projection.
        n_layers: layers of each direction.
        cell_clip: bound of the cell state's absolute value; None is no bound.
        proj_clip: bound of the output's absolute value; None is no bound.
        use_skip_connections: from the second layer on, a layer's output is added to its input.
    """

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False

    def __post_init__(self) -> None:
        _require_counts(self, ("dim", "projection_dim", "n_layers"), "lstm.")
        for name in ("cell_clip", "proj_clip"):
            value = getattr(self, name)
            _require(value is None or _is_positive(value), f"lstm.{name}", _POSITIVE, value)
        _require_flags(self, ("use_skip_connections",), "lstm.")

    @property
    def has_projection(self) -> bool:
        """Whether the cell's output is projected (it is not when the sizes are equal)."""
        return self.projection_dim != self.dim


@dataclass(frozen=True)
class DictionaryOptions:
    """The `dictionary` of a `char_cnn`: characters and words by their rows, in place of bytes.

    Models that `bilm convert` made of those of ELMoForManyLangs have one.

    Attributes:
        n_characters: rows of the dictionary of characters, of which the last one is padding.
        n_words: rows of the dictionary of words; 0 if there is none.
        word_dim: size of a word's own vector, which is projected beside its characters'.
    """

    n_characters: int
    n_words: int = 0
    word_dim: int = 0

    def __post_init__(self) -> None:
        _require_counts(self, ("n_characters",), "char_cnn.dictionary.")
        _require_counts(self, ("n_words", "word_dim"), "char_cnn.dictionary.", low=0)


@dataclass(frozen=True)
class CharCNNOptions:
    """The `char_cnn` part: a word's vector from its characters.

    Attributes:
        filters: pairs (width in characters, number of filters).
        activation: "relu" or "tanh", after the maximum over positions.
        embedding_dim: size of a character's vector.
        n_highway: highway layers.
        max_characters_per_token: characters of a word, its begin and end marks among them.
        dictionary: what takes the place of bytes; None for the published models, which have them.
    """

    filters: tuple[tuple[int, int], ...]
    activation: str
    embedding_dim: int
    n_highway: int = 0
    max_characters_per_token: int = 50
    dictionary: DictionaryOptions | None = None

    def __post_init__(self) -> None:
        known = self.activation in ACTIVATIONS
        _require(known, "char_cnn.activation", " or ".join(ACTIVATIONS), self.activation)
        dim = self.embedding_dim
        _require(_is_count(dim), "char_cnn.embedding.dim", _COUNT, dim)
        _require_counts(self, ("n_highway",), "char_cnn.", low=0)
        _require_counts(self, ("max_characters_per_token",), "char_cnn.", low=3)
        longest = self.max_characters_per_token
        good = bool(self.filters) and all(
            len(pair) == 2 and all(map(_is_count, pair)) and pair[0] <= longest
            for pair in self.filters
        )
        rule = f"{_PAIRS} with widths of at most max_characters_per_token = {longest}"
        _require(good, "char_cnn.filters", rule, self.filters)

    @property
    def n_characters(self) -> int:
        """Rows of the table of characters; the last one is padding."""
        return N_CHARACTERS if self.dictionary is None else self.dictionary.n_characters

    @property
    def n_filters(self) -> int:
        """Size of the concatenated convolutions, which the highway layers keep."""
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class Options:
    """Everything that an options file says. `char_cnn` None means word input.

    Sizes are counts, `learning_rate` is Adagrad's, `all_clip_norm_val` bounds the gradient's
    global norm (None: no bound), `batch_size` is rows per device, `unroll_steps` tokens of a row.
    `n_train_tokens` counts the predictions of a direction in one pass over the text: the words and
    the end of each sentence. `reset_rate` is the probability with which a sentence begins, in
    training, from LSTM states of zero; otherwise it begins from the states after the sentence
    before it in the same row, as in the original, whose rate is 0.
    """

    lstm: LSTMOptions
    char_cnn: CharCNNOptions | None = None
    bidirectional: bool = True
    n_tokens_vocab: int | None = None
    dropout: float = 0.1
    all_clip_norm_val: float | None = 10.0
    n_epochs: int = 10
    n_train_tokens: int | None = None
    batch_size: int = 128
    unroll_steps: int = 20
    n_negative_samples_batch: int = 8192
    learning_rate: float = 0.2
    sample_softmax: bool = True
    share_embedding_softmax: bool = False
    reset_rate: float = 0.0

    def __post_init__(self) -> None:
        sizes = ("batch_size", "unroll_steps", "n_epochs", "n_negative_samples_batch")
        given = tuple(
            name for name in ("n_tokens_vocab", "n_train_tokens") if getattr(self, name) is not None
        )
        _require_counts(self, sizes + given)
        _require_flags(self, ("bidirectional", "sample_softmax", "share_embedding_softmax"))
        dropout, rate, clip = self.dropout, self.reset_rate, self.all_clip_norm_val
        good = _is_number(dropout) and 0 <= dropout < 1
        _require(good, "dropout", "from 0 to below 1", dropout)
        _require(_is_number(rate) and 0 <= rate <= 1, "reset_rate", "from 0 to 1", rate)
        _require(_is_positive(self.learning_rate), "learning_rate", _POSITIVE, self.learning_rate)
        _require(clip is None or _is_positive(clip), "all_clip_norm_val", _POSITIVE, clip)
        if self.share_embedding_softmax and self.char_cnn is not None:
            raise InputError(
                "share_embedding_softmax: true is for word input; a model with char_cnn has no "
                "table of words to share."
            )

    @property
    def max_word_length(self) -> int | None:
        """Characters of a word, or None for word input."""
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
            source: the name of the file, for messages.

        Raises:
            InputError: a key is missing, or has a value that breaks its rule.
        """
        try:
            return _read(values, training, source)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    @classmethod
    def from_file(cls, path: PathLike, training: bool) -> Options:
        """Read an options file; see `from_dict`."""
        return cls.from_dict(read_json_object(path, "options file"), training, str(path))

    def training_dict(self) -> dict[str, Any]:
        """The contents of a training file, in the original's keys."""
        run = {name: getattr(self, name) for name in _RUN_KEYS}
        for name in ("n_tokens_vocab", "n_train_tokens"):
            if run[name] is None:
                del run[name]
        return _network_dict(self, n_masks=0) | run

    def inference_dict(self) -> dict[str, Any]:
        """The contents of the file beside published weights.

        Nobody but us writes one-direction models for inference, so the key is there only then.
        """
        # The reader's row for the mask is counted: 262 for the same 261 rows of weights.
        network = _network_dict(self, n_masks=1)
        if not self.bidirectional:
            network["bidirectional"] = False
        if self.char_cnn is None and self.n_tokens_vocab is not None:
            network["n_tokens_vocab"] = self.n_tokens_vocab
        return network


# Named sizes: units, projection, highway layers.
_SIZES = {
    "tiny": (256, 64, 1),
    "small": (1024, 128, 1),
    "medium": (2048, 256, 1),
    "original": (4096, 512, 2),
}
PRESETS = tuple(_SIZES)
_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
_TINY_FILTERS = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 128))
# Found by training: see docs/states.md.
RESET_RATE = 0.1


def preset(name: str) -> dict[str, Any]:
    """The training options of a size: "tiny", "small", "medium" or "original" (the paper's).

    Returns:
        the contents of an options file, without `n_tokens_vocab` and `n_train_tokens`.

    Raises:
        InputError: there is no such size.

    >>> preset("small")["lstm"]["dim"]
    1024
    """
    if name not in _SIZES:
        raise InputError(f"preset: one of {', '.join(PRESETS)} is expected, not {name!r}.")
    dim, projection_dim, n_highway = _SIZES[name]
    is_tiny = name == "tiny"
    options = Options(
        lstm=LSTMOptions(
            dim, projection_dim, 2, cell_clip=3, proj_clip=3, use_skip_connections=True
        ),
        char_cnn=CharCNNOptions(
            _TINY_FILTERS if is_tiny else _FILTERS, "relu", embedding_dim=16, n_highway=n_highway
        ),
        batch_size=64 if is_tiny else 128,
        n_negative_samples_batch=2048 if is_tiny else 8192,
        reset_rate=RESET_RATE,
    )
    return options.training_dict()


def _names(part: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(part))


# The keys of each part. Those of a run are beside `lstm` and `char_cnn`.
_RUN_KEYS = _names(Options)[2:]
_LSTM_KEYS = _names(LSTMOptions)
_CHAR_CNN_KEYS = ({*_names(CharCNNOptions)} - {"embedding_dim"}) | {"embedding", "n_characters"}
_DICTIONARY_KEYS = _names(DictionaryOptions)


def _read(values: Mapping[str, Any], training: bool, source: str) -> Options:
    run = _known(values, _RUN_KEYS, source, also=("lstm", "char_cnn"))
    run.setdefault("bidirectional", not training)
    if run.get("n_train_tokens", 0) is None:
        del run["n_train_tokens"]
    lstm = _part(values, "lstm")
    for key in ("dim", "projection_dim"):
        _require_key(lstm, key, "lstm.", _COUNT)
    return Options(
        lstm=LSTMOptions(**_known(lstm, _LSTM_KEYS, f"{source}: lstm")),
        char_cnn=None if values.get("char_cnn") is None else _read_char_cnn(values, source),
        **run,
    )


def _read_char_cnn(options: Mapping[str, Any], source: str) -> CharCNNOptions:
    values = _part(options, "char_cnn")
    _require_key(values, "activation", "char_cnn.", " or ".join(ACTIVATIONS))
    _require_key(values, "filters", "char_cnn.", _PAIRS)
    embedding = _part(values, "embedding", "char_cnn.")
    _require_key(embedding, "dim", "char_cnn.embedding.", _COUNT)
    pairs = values["filters"]
    well_formed = isinstance(pairs, list | tuple) and all(
        isinstance(pair, list | tuple) for pair in pairs
    )
    _require(well_formed, "char_cnn.filters", _PAIRS, pairs)
    given = _known(values, _CHAR_CNN_KEYS, f"{source}: char_cnn")
    del given["embedding"]
    given["filters"] = tuple(map(tuple, pairs))
    given["dictionary"] = _read_dictionary(values, source) if given.get("dictionary") else None
    n_characters = given.pop("n_characters", None)
    options_read = CharCNNOptions(embedding_dim=embedding["dim"], **given)
    # Training files count the rows of the table, inference files the mask's row too.
    n_rows = options_read.n_characters
    if "n_characters" in values:
        is_known = n_characters in (n_rows, n_rows + 1)
        _require(is_known, "char_cnn.n_characters", f"{n_rows} or {n_rows + 1}", n_characters)
    return options_read


def _read_dictionary(char_cnn: Mapping[str, Any], source: str) -> DictionaryOptions:
    values = _part(char_cnn, "dictionary", "char_cnn.")
    _require_key(values, "n_characters", "char_cnn.dictionary.", _COUNT)
    return DictionaryOptions(**_known(values, _DICTIONARY_KEYS, f"{source}: char_cnn.dictionary"))


def _part(values: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    _require_key(values, key, prefix, "a JSON object")
    part: Mapping[str, Any] = values[key]
    _require(isinstance(part, Mapping), prefix + key, "a JSON object", part)
    return part


def _known(
    values: Mapping[str, Any], keys: Iterable[str], source: str, also: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Those of `keys` that are there; a warning names keys that are neither these nor `also`."""
    found = {key: values[key] for key in keys if key in values}
    unknown = sorted(set(values) - set(found) - set(also))
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


def _require(good: bool, key: str, rule: str, received: object) -> None:
    """Raise an InputError that names the key, its rule and what was received, unless `good`."""
    if not good:
        raise InputError(f"{key}: {rule} is expected, not {received!r}.")


def _require_key(values: Mapping[str, Any], key: str, prefix: str, rule: str) -> None:
    if key not in values:
        raise InputError(f"{prefix}{key}: {rule} is expected; it is missing.")


def _require_counts(part: object, names: Iterable[str], prefix: str = "", low: int = 1) -> None:
    for name in names:
        value = getattr(part, name)
        _require(_is_count(value, low), prefix + name, f"a whole number from {low}", value)


def _require_flags(part: object, names: Iterable[str], prefix: str = "") -> None:
    for name in names:
        value = getattr(part, name)
        _require(isinstance(value, bool), prefix + name, "true or false", value)


def _is_number(value: object) -> bool:
    """Whether a value is a number, true and false not being numbers, nor infinity."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any, low: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low
