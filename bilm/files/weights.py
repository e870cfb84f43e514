"""The names of all weights in files, one table for HDF5 and for TensorFlow 1's checkpoints; and
HDF5 files of weights.

Published files hold the token encoder and the LSTMs of both directions as float32 datasets.
"""

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from bilm.core.errors import InputError, shown
from bilm.core.language_model import LanguageModel
from bilm.core.lstm import LSTMStack
from bilm.core.network import BiLM
from bilm.core.softmax import Softmax
from bilm.core.token_encoder import DictionaryEncoder, Encoder, WordEmbedding
from bilm.files.hdf5 import (
    damage_named,
    read_integers,
    read_numbers,
    read_scaled_rows,
    read_words,
    shapes_in,
    writing_hdf5,
)
from bilm.files.identity import fingerprint, require_same_model
from bilm.files.reading import PathLike, require_file

# Names in checkpoints of the weights with one row or number per word of the vocabulary.
WORD_ROWS = ("lm/embedding", "lm/softmax/W", "lm/softmax/b")


def lstm_blocks(name: str) -> tuple[int, int] | None:
    """The grid of blocks, (rows, columns), in the LSTM matrix with this checkpoint name.

    A kernel has (2, 4): input and state by four gates; a projection is one block. None for biases
    and for weights outside the LSTMs.
    """
    if "lstm_cell/" not in name or not name.endswith("kernel"):
        return None
    return (1, 1) if name.endswith("projection/kernel") else (2, 4)


@dataclass(frozen=True)
class Weight:
    variable: Any
    dataset: str | None  # in HDF5; None for the softmax, see `with_softmax_datasets`
    checkpoint: str  # in TensorFlow 1's checkpoints
    # A name under which the original dumped some models, but could not load them.
    odd_dataset: str | None = None


def weight_table(model: BiLM | LanguageModel) -> list[Weight]:
    """All variables with their names, in network order."""
    table = [*encoder_weights(model.encoder), *lstm_weights(model.stacks)]
    return [*table, *softmax_weights(model.softmax)] if isinstance(model, LanguageModel) else table


def with_softmax_datasets(table: Sequence[Weight]) -> list[Weight]:
    """`table` including datasets of the softmax, for files of a complete language model."""
    return [
        weight if weight.dataset else replace(weight, dataset=weight.checkpoint.removeprefix("lm/"))
        for weight in table
    ]


def encoder_weights(encoder: Encoder) -> Iterator[Weight]:
    """The variables of a token encoder."""
    named: dict[str, Any] = {}
    if isinstance(encoder, WordEmbedding):
        named["embedding"] = encoder.embedding
    elif isinstance(encoder, DictionaryEncoder):
        # Named differently, because readers that expect bytes would compute wrong vectors.
        named["dictionary/char_embed"] = encoder.char_embed
        named["dictionary/word_embed"] = encoder.word_embed
        named["dictionary/W_word"] = encoder.W_word
    else:
        named["char_embed"] = encoder.char_embed
    if not isinstance(encoder, WordEmbedding):
        for i, (kernel, bias) in enumerate(encoder.convolutions):
            named |= {f"CNN/W_cnn_{i}": kernel, f"CNN/b_cnn_{i}": bias}
        for k, highway in enumerate(encoder.highways):
            named |= {f"CNN_high_{k}/{name}": variable for name, variable in highway.items()}
        kernel, bias = encoder.projection or (None, None)
        named |= {"CNN_proj/W_proj": kernel, "CNN_proj/b_proj": bias}
    for name, variable in named.items():
        if variable is not None:
            yield Weight(variable, name, f"lm/{name}")


def softmax_weights(softmax: Softmax) -> Iterator[Weight]:
    """The variables of a softmax; a tied matrix belongs to the encoder."""
    if not softmax.is_tied:
        yield Weight(softmax.W, None, "lm/softmax/W")
    yield Weight(softmax.b, None, "lm/softmax/b")


def lstm_weights(stacks: Sequence[LSTMStack]) -> Iterator[Weight]:
    """The variables of the LSTMs of each direction."""
    for direction, stack in enumerate(stacks):
        yield from _stack_weights(stack, direction, len(stacks))


def _stack_weights(stack: LSTMStack, direction: int, n_directions: int) -> Iterator[Weight]:
    # TF1 omitted the direction's scope or the cell's number if there was only one.
    scope = f"RNN_{direction}/rnn" if n_directions > 1 else "rnn"
    has_one = len(stack.layer_weights) == 1
    for i, layer in enumerate(stack.layer_weights):
        cell = "lstm_cell" if has_one else f"multi_rnn_cell/cell_{i}/lstm_cell"
        odd_cell = "LSTMCell" if has_one else f"MultiRNNCell/Cell{i}/LSTMCell"
        for variable, name, tf1_name in (
            (layer.kernel, "W_0", "kernel"),
            (layer.bias, "B", "bias"),
            (layer.projection, "W_P_0", "projection/kernel"),
        ):
            odd = None
            if n_directions == 1:  # the original did not rename these
                odd = f"rnn/{odd_cell}/{tf1_name}"
            elif has_one:
                odd = f"RNN_{direction}/RNN/{odd_cell}/{name}"
            dataset = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell/{name}"
            if variable is not None:
                yield Weight(variable, dataset, f"lm/{scope}/{cell}/{tf1_name}", odd)


# Name prefixes in published files. Other datasets are ignored, as in all known readers.
ENCODER_GROUPS = ("char_embed", "CNN", "embedding", "dictionary/")
LSTM_GROUPS = ("RNN_", "rnn")
# Additional datasets in our files. A softmax tied to the word embedding has only b.
SOFTMAX_W, SOFTMAX_B, VOCABULARY = "softmax/W", "softmax/b", "vocabulary/words"
# Occurrences of each word of the vocabulary at the beginning of the training text.
WORD_COUNTS = "vocabulary/counts"
# The factor of each row of an int8 softmax.
SOFTMAX_SCALES = "softmax/W_scales"
# The tokens of a dictionary in the order of their rows, one per line, as UTF-8 bytes.
DICTIONARY_CHARACTERS, DICTIONARY_WORDS = "tokens/characters", "tokens/words"
# Initial LSTM states, if they are not zeros: states/DIRECTION/LAYER/c and h.
STATES = "states/"
# File attributes: a JSON object about the training; the fingerprint of the token cache's model.
TRAINING, MODEL = "training", "model"


class WeightsFile:
    """An open weights file, with its path and the shape of each dataset; see `open_weights`."""

    def __init__(self, path: str, file: h5py.File) -> None:
        self.path = path
        self.shapes = shapes_in(file)
        self._file = file

    def load(self, table: Sequence[Weight], also: Iterable[str] = ()) -> None:
        """Set the variables of `table`, except the softmax; ignore datasets with a prefix in
        `also`."""
        expected: dict[str, tuple[int, ...]] = {}
        variables = {}
        for weight in table:
            if weight.dataset is not None:
                names = (weight.dataset, weight.odd_dataset)
                name = next((name for name in names if name in self.shapes), weight.dataset)
                expected[name], variables[name] = tuple(weight.variable.shape), weight.variable
        groups = (*ENCODER_GROUPS, *LSTM_GROUPS)
        relevant = {
            name: shape
            for name, shape in self.shapes.items()
            if name in expected or (name.startswith(groups) and not name.startswith(tuple(also)))
        }
        require_shapes(self.path, expected, relevant)
        self._assign(variables)

    def load_initial_states(self, stacks: Sequence[LSTMStack]) -> None:
        """Set the initial LSTM states, if the file holds any; errors as for `load`."""
        variables = named_states([stack.initial for stack in stacks])
        stored = {n: shape for n, shape in self.shapes.items() if n.startswith(STATES)}
        if stored:
            require_shapes(self.path, {n: tuple(v.shape) for n, v in variables.items()}, stored)
            self._assign(variables)

    def _assign(self, variables: Mapping[str, Any]) -> None:
        for name, variable in variables.items():
            variable.assign(self.numbers(name))

    def numbers(self, name: str) -> np.ndarray:
        """A dataset as float32; errors as for `load`."""
        if name == SOFTMAX_W and SOFTMAX_SCALES in self.shapes:
            with damage_named(self.path):
                return read_scaled_rows(self._file, name, SOFTMAX_SCALES)
        return self._read(read_numbers, name)

    def words(self) -> list[str] | None:
        """The vocabulary of the softmax, the word table or the token cache, by ids; None if the
        file holds no vocabulary."""
        return self._read(read_words, VOCABULARY) if VOCABULARY in self.shapes else None

    def text(self, name: str) -> np.ndarray:
        """A dataset of integers (n,), such as the bytes of a text; empty if it is missing."""
        return self._read(read_integers, name) if name in self.shapes else np.empty(0, np.int64)

    def n_embedded(self) -> int:
        """Rows of the dataset `embedding`: a word table or a token cache."""
        shape = self.shapes.get("embedding")
        if shape is None or len(shape) != 2:
            raise InputError(
                f"{self.path} must hold a dataset 'embedding' of shape (tokens, projection_dim), "
                f"got {shape}."
            )
        return shape[0]

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """The fingerprint of the network: the attribute `model`, which a separate token cache or
        softmax has; otherwise computed from the token encoder and the LSTMs. None if the file has
        neither the attribute nor a complete network."""
        with damage_named(self.path):
            if (model := self._file.attrs.get(MODEL)) is not None:
                return str(model)
        groups = (*ENCODER_GROUPS, *LSTM_GROUPS, STATES)
        names = {standard_name(name): name for name in self.shapes if name.startswith(groups)}
        if not {"char_embed", "dictionary/char_embed"}.isdisjoint(names):
            names.pop("embedding", None)  # a token cache
        elif "embedding" not in names:
            return None
        if not any(name.startswith(LSTM_GROUPS) for name in names):
            return None
        return fingerprint(names, lambda name: self.numbers(names[name]))

    def training(self) -> dict[str, Any] | None:
        """Facts about the training; None if the file has none.

        `dump_weights` writes "steps", "tokens" (predictions per direction), "passes" (over the
        training text), "n_train_tokens" (per epoch), "n_tokens_vocab" and "reset_rate"; unknown
        values are None.
        """
        with damage_named(self.path):
            text = self._file.attrs.get(TRAINING)
            return None if text is None else dict(json.loads(text))

    def _read(self, reader: Callable[[h5py.File, str], Any], name: str) -> Any:
        with damage_named(self.path):
            return reader(self._file, name)


@contextlib.contextmanager
def open_weights(path: PathLike) -> Iterator[WeightsFile]:
    """Open a weights file for the block."""
    path = require_file(path, "weights file")
    with contextlib.ExitStack() as stack:
        with damage_named(path):
            weights = WeightsFile(path, stack.enter_context(h5py.File(path, "r")))
        yield weights


def require_same_network(part: WeightsFile | None, weights: WeightsFile | None) -> None:
    """Require that a separate file with a token cache or a softmax belongs to a model; files
    without a fingerprint pass."""
    if part is not None and weights is not None and part is not weights:
        require_same_model(part.path, part.fingerprint, weights.path, weights.fingerprint)


def load_network(network: BiLM, weights: WeightsFile, table: WeightsFile | None = None) -> None:
    """Load the layers, and the initial states if the file holds any; `table` is the file of a token
    cache, or of the word table if it is not in `weights`."""
    weights.load_initial_states(network.stacks)
    if table is None:
        weights.load(weight_table(network))
    else:
        # The file may also hold the encoder that created the cache.
        weights.load([*lstm_weights(network.stacks)], also=ENCODER_GROUPS)
        load_table(network.encoder, table)


def load_table(encoder: Encoder, table: WeightsFile) -> None:
    """Load a token cache, or the table of a word-level model, from a file that may hold a complete
    model."""
    table.load([*encoder_weights(encoder)], also=(*ENCODER_GROUPS, *LSTM_GROUPS))


_CELL = re.compile(r"(?:RNN_(\d)/RNN|rnn)/(?:MultiRNNCell/Cell(\d+)/)?LSTMCell/(.+)")
_VARIABLES = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}


def standard_name(name: str) -> str:
    """The name of a dataset in our files; the original used other names for one layer or one
    direction."""
    match = _CELL.fullmatch(name)
    if match is None:
        return name
    direction, layer, variable = match[1] or 0, match[2] or 0, _VARIABLES.get(match[3], match[3])
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{variable}"


def named_states(states: Sequence[Sequence[Any]], prefix: str = STATES) -> dict[str, Any]:
    """LSTM states or variables of each direction and layer by their names in a file."""
    return {
        f"{prefix}{d}/{i}/{part}": value
        for d, layers in enumerate(states)
        for i, state in enumerate(layers)
        for part, value in state._asdict().items()
    }


def save_hdf5(
    path: PathLike,
    values: Mapping[str, np.ndarray],
    words: Sequence[str] | None = None,
    texts: Mapping[str, np.ndarray] | None = None,
    training: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    softmax_dtype: str | None = None,
) -> None:
    """Write a weights file.

    Args:
        values: arrays by name.
        words: the vocabulary, by ids.
        texts: uint8 arrays by name.
        training: facts about the training; see `WeightsFile.training`.
        dtype: "float32", or "float16" for half the size; biases are always float32, and all
            readers compute in float32.
        softmax_dtype: the softmax's, by default `dtype`; "int8" rounds each row of its matrix to
            integers and stores a factor per row.
    """
    softmax_dtype = softmax_dtype or dtype
    with writing_hdf5(path) as file:
        for name, value in values.items():
            value = np.asarray(value)
            number = softmax_dtype if name in (SOFTMAX_W, SOFTMAX_B) else dtype
            if value.ndim == 1:
                # AllenNLP adds the forget gate's 1 in the type of the bias.
                number = "float32"
            elif number == "int8":
                value, file[SOFTMAX_SCALES] = _as_int8(value)
            # Smaller types are chosen for small files, so they are compressed as well.
            compression = {} if number == "float32" else {"compression": "gzip", "shuffle": True}
            try:
                with np.errstate(over="raise"):
                    value = value.astype(number, copy=False)
            except FloatingPointError as error:
                largest = float(np.abs(value).max())
                raise InputError(
                    f"dtype: values of {number} are at most 65504, and {name} has {largest:g}."
                ) from error
            file.create_dataset(name, data=value, **compression)
        for name, value in (texts or {}).items():
            file.create_dataset(name, data=value)
        if words is not None:
            write_words(file, words)
        if training is not None:
            file.attrs[TRAINING] = json.dumps(training)


def _as_int8(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, dim) rounded to int8, and the factors float32 (n,) to multiply them by."""
    scales = (np.abs(rows).max(axis=1) / 127).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1)[:, np.newaxis]
    return np.rint(rows / divisors).astype(np.int8), scales


def write_words(file: h5py.File, words: Sequence[str]) -> None:
    """Write the vocabulary of a softmax, a word table or a token cache."""
    if (wrong := next((word for word in words if "\0" in word), None)) is not None:
        raise InputError(f"words of a vocabulary must not have NUL characters, got {shown(wrong)}.")
    file.create_dataset(VOCABULARY, data=list(words), dtype=h5py.string_dtype("utf-8"))


def require_shapes(
    path: PathLike, expected: Mapping[str, Sequence[int]], stored: Mapping[str, Sequence[int]]
) -> None:
    """Require that a file holds exactly the expected arrays; name the arrays that differ."""
    problems = []
    for name in [*expected, *sorted(set(stored) - set(expected))]:
        if name not in stored:
            problems.append(f"{name}: missing, must have shape {expected[name]}")
        elif name not in expected:
            problems.append(f"{name}: unexpected, has shape {stored[name]}")
        elif stored[name] != expected[name]:
            problems.append(f"{name}: must have shape {expected[name]}, got {stored[name]}")
    if problems:
        listed = "\n  ".join(problems)
        raise InputError(f"{path}: the weights do not fit the options:\n  {listed}")
