"""An options file, read and written: `options.json`.

Two kinds of file share one format. A training file describes a run; an inference file stands
beside the weights and describes the network alone. They differ in what an absent `bidirectional`
means (one direction in a training file, two in an inference file) and in `n_characters`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import InputError
from bilm.files import PathLike, read_json_object
from bilm.options.network import N_CHARACTERS, CharCNNOptions, DictionaryOptions, LSTMOptions
from bilm.options.rules import (
    COUNT,
    PAIRS,
    POSITIVE,
    is_count,
    is_number,
    is_positive,
    require,
    require_key,
)

logger = logging.getLogger(__name__)


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
        for name in ("batch_size", "unroll_steps", "n_epochs", "n_negative_samples_batch"):
            require(is_count(getattr(self, name)), name, COUNT, getattr(self, name))
        for name in ("n_tokens_vocab", "n_train_tokens"):
            value = getattr(self, name)
            require(value is None or is_count(value), name, COUNT, value)
        for name in ("bidirectional", "sample_softmax", "share_embedding_softmax"):
            value = getattr(self, name)
            require(isinstance(value, bool), name, "true or false", value)
        require(
            is_number(self.dropout) and 0 <= self.dropout < 1,
            "dropout",
            "from 0 to below 1",
            self.dropout,
        )
        rate = self.reset_rate
        require(is_number(rate) and 0 <= rate <= 1, "reset_rate", "from 0 to 1", rate)
        require(is_positive(self.learning_rate), "learning_rate", POSITIVE, self.learning_rate)
        clip = self.all_clip_norm_val
        require(clip is None or is_positive(clip), "all_clip_norm_val", POSITIVE, clip)
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
            return _read(cls, values, training, source)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    @classmethod
    def from_file(cls, path: PathLike, training: bool) -> Options:
        """Read an options file; see `from_dict`."""
        return cls.from_dict(read_json_object(path, "options file"), training, str(path))

    def training_dict(self) -> dict[str, Any]:
        """The contents of a training file, in the original's keys."""
        network = _network_dict(self, n_masks=0)
        names = [field.name for field in dataclasses.fields(self)][2:]
        run = {name: getattr(self, name) for name in names}
        absent = {name for name in ("n_tokens_vocab", "n_train_tokens") if run[name] is None}
        return network | {name: value for name, value in run.items() if name not in absent}

    def inference_dict(self) -> dict[str, Any]:
        """The contents of the file that stands beside published weights.

        Nobody but us writes one-direction models for inference, so the key is there only then.
        """
        # The reader's row for the mask is counted: 262 for the same 261 rows of weights.
        network = _network_dict(self, n_masks=1)
        if not self.bidirectional:
            network["bidirectional"] = False
        if self.char_cnn is None and self.n_tokens_vocab is not None:
            network["n_tokens_vocab"] = self.n_tokens_vocab
        return network


_LSTM_KEYS = tuple(field.name for field in dataclasses.fields(LSTMOptions))
_CHAR_CNN_KEYS = (
    "activation", "filters", "embedding", "n_characters", "n_highway", "max_characters_per_token",
    "dictionary",
)  # fmt: skip


def _read(cls: type[Options], values: Mapping[str, Any], training: bool, source: str) -> Options:
    run_keys = [field.name for field in dataclasses.fields(cls)][2:]
    run = {key: values[key] for key in run_keys if key in values}
    run.setdefault("bidirectional", not training)
    if run.get("n_train_tokens", 0) is None:
        del run["n_train_tokens"]
    _warn_unknown(values, [*run_keys, "lstm", "char_cnn"], source)
    lstm = _part(values, "lstm")
    for key in ("dim", "projection_dim"):
        require_key(lstm, key, "lstm.", COUNT)
    _warn_unknown(lstm, _LSTM_KEYS, f"{source}: lstm")
    options = cls(
        lstm=LSTMOptions(**{key: lstm[key] for key in _LSTM_KEYS if key in lstm}),
        char_cnn=None if values.get("char_cnn") is None else _read_char_cnn(values, source),
        **run,
    )
    return options


def _read_char_cnn(options: Mapping[str, Any], source: str) -> CharCNNOptions:
    values = _part(options, "char_cnn")
    require_key(values, "activation", "char_cnn.", "relu or tanh")
    require_key(values, "filters", "char_cnn.", PAIRS)
    embedding = _part(values, "embedding", "char_cnn.")
    require_key(embedding, "dim", "char_cnn.embedding.", COUNT)
    dictionary = _read_dictionary(values, source) if values.get("dictionary") else None
    n_rows = N_CHARACTERS if dictionary is None else dictionary.n_characters
    n_characters = values.get("n_characters", n_rows)
    # Training files count the rows of the table, inference files the mask's row too.
    rule = f"{n_rows} or {n_rows + 1}"
    known = n_characters in (n_rows, n_rows + 1)
    require(known, "char_cnn.n_characters", rule, n_characters)
    _warn_unknown(values, _CHAR_CNN_KEYS, f"{source}: char_cnn")
    pairs = values["filters"]
    well_formed = isinstance(pairs, list | tuple) and all(
        isinstance(pair, list | tuple) for pair in pairs
    )
    require(well_formed, "char_cnn.filters", PAIRS, pairs)
    return CharCNNOptions(
        filters=tuple((pair[0], pair[1]) if len(pair) == 2 else tuple(pair) for pair in pairs),
        activation=values["activation"],
        embedding_dim=embedding["dim"],
        dictionary=dictionary,
        **{key: values[key] for key in ("n_highway", "max_characters_per_token") if key in values},
    )


def _read_dictionary(char_cnn: Mapping[str, Any], source: str) -> DictionaryOptions:
    values = _part(char_cnn, "dictionary", "char_cnn.")
    keys = [field.name for field in dataclasses.fields(DictionaryOptions)]
    _warn_unknown(values, keys, f"{source}: char_cnn.dictionary")
    require_key(values, "n_characters", "char_cnn.dictionary.", COUNT)
    return DictionaryOptions(**{key: values[key] for key in keys if key in values})


def _part(values: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    require_key(values, key, prefix, "a JSON object")
    part: Mapping[str, Any] = values[key]
    require(isinstance(part, Mapping), prefix + key, "a JSON object", part)
    return part


def _warn_unknown(values: Mapping[str, Any], known: Any, source: str) -> None:
    unknown = sorted(set(values) - set(known))
    if unknown:
        logger.warning("%s: keys without a meaning here: %s", source, ", ".join(unknown))


def _network_dict(options: Options, n_masks: int) -> dict[str, Any]:
    lstm = dataclasses.asdict(options.lstm)
    network: dict[str, Any] = {
        "lstm": {key: value for key, value in lstm.items() if value is not None}
    }
    if options.char_cnn is not None:
        network["char_cnn"] = {
            "activation": options.char_cnn.activation,
            "filters": [list(pair) for pair in options.char_cnn.filters],
            "n_highway": options.char_cnn.n_highway,
            "embedding": {"dim": options.char_cnn.embedding_dim},
            "n_characters": options.char_cnn.n_characters + n_masks,
            "max_characters_per_token": options.char_cnn.max_characters_per_token,
        }
        if options.char_cnn.dictionary is not None:
            network["char_cnn"]["dictionary"] = dataclasses.asdict(options.char_cnn.dictionary)
    return network
