"""Weights in files: the one table from variables to HDF5 and TF1 names, and strict reading and
writing of HDF5.

Published files hold the token encoder and the LSTMs of both directions as float32 HDF5 datasets;
TF1 checkpoints hold the softmax and Adagrad's accumulators as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from bilm.data.encoding import from_bytes
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.hdf5 import (
    count_stored,
    dataset_shapes,
    open_hdf5,
    read_integers,
    read_numbers,
    read_words,
    writing_hdf5,
)
from bilm.layers import CharacterEncoder, DictionaryEncoder, LSTMStack, Softmax, WordEmbedding
from bilm.options import Options
from bilm.writing import atomic_write

Encoder = CharacterEncoder | WordEmbedding

# The groups that published files hold. Others may be beside them; no known reader minds.
ENCODER_GROUPS = ("char_embed", "CNN", "embedding", "dictionary/")
LSTM_GROUPS = ("RNN_", "rnn")
# Groups that our own files may have besides: of a softmax that is tied there is only b.
SOFTMAX_W, SOFTMAX_B, VOCABULARY = "softmax/W", "softmax/b", "vocabulary/words"
# The tokens of a dictionary by rows, as UTF-8 bytes, one a line.
DICTIONARY_CHARACTERS, DICTIONARY_WORDS = "tokens/characters", "tokens/words"
# The states in which texts begin, if they are not zeros: states/DIRECTION/LAYER/c and h.
STATES = "states/"
# An attribute of the file: how the model was trained, a JSON object.
TRAINING = "training"
_TRAINING_KEYS = ("steps", "tokens", "n_train_tokens", "n_tokens_vocab", "reset_rate")
_MOST_NAMED = 100


@dataclass(frozen=True)
class Weight:
    """A Keras variable and its names."""

    variable: Any
    # In HDF5; None for the softmax, which published files do not hold: `with_softmax_datasets`.
    dataset: str | None
    checkpoint: str
    # In HDF5, where the original dumped it under a name from which it could not load it again.
    odd_dataset: str | None = None


def weight_table(
    encoder: Encoder | None, stacks: Sequence[LSTMStack], softmax: Softmax | None = None
) -> list[Weight]:
    """All variables with their names, in the order of the network."""
    table = list(_encoder_weights(encoder)) if encoder is not None else []
    for d, stack in enumerate(stacks):
        table += _lstm_weights(stack, d, len(stacks))
    if softmax is not None:
        if not softmax.is_tied:
            table.append(Weight(softmax.W, None, "lm/softmax/W"))
        table.append(Weight(softmax.b, None, "lm/softmax/b"))
    return table


def with_softmax_datasets(table: Sequence[Weight]) -> list[Weight]:
    """`table` with datasets for the softmax too, for files that hold a whole language model."""
    return [
        weight if weight.dataset else replace(weight, dataset=weight.checkpoint.removeprefix("lm/"))
        for weight in table
    ]


def _encoder_weights(encoder: Encoder) -> Iterator[Weight]:
    def named(variable: Any, name: str) -> Weight:
        return Weight(variable, name, f"lm/{name}")

    if isinstance(encoder, WordEmbedding):
        yield named(encoder.embedding, "embedding")
        return
    if isinstance(encoder, DictionaryEncoder):
        # Under another name: who takes the rows for bytes would give wrong vectors.
        yield named(encoder.char_embed, "dictionary/char_embed")
        if encoder.word_embed is not None:
            yield named(encoder.word_embed, "dictionary/word_embed")
            yield named(encoder.W_word, "dictionary/W_word")
    else:
        yield named(encoder.char_embed, "char_embed")
    for i, (kernel, bias) in enumerate(encoder.convolutions):
        yield named(kernel, f"CNN/W_cnn_{i}")
        yield named(bias, f"CNN/b_cnn_{i}")
    for k, highway in enumerate(encoder.highways):
        for name, variable in highway.items():
            yield named(variable, f"CNN_high_{k}/{name}")
    if encoder.projection is not None:
        kernel, bias = encoder.projection
        yield named(kernel, "CNN_proj/W_proj")
        yield named(bias, "CNN_proj/b_proj")


def _lstm_weights(stack: LSTMStack, direction: int, n_directions: int) -> Iterator[Weight]:
    # TF1 left out what there was only one of: the direction's scope, and the cell's number.
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
            if variable is None:
                continue
            odd = None
            if n_directions == 1:  # the original renamed neither the scope nor what is below it
                odd = f"rnn/{odd_cell}/{tf1_name}"
            elif has_one:
                odd = f"RNN_{direction}/RNN/{odd_cell}/{name}"
            dataset = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell/{name}"
            yield Weight(variable, dataset, f"lm/{scope}/{cell}/{tf1_name}", odd)


def count_numbers(options: Options, n_tokens: int | None) -> int:
    """The numbers of a network; `n_tokens` as for `require_numbers`."""
    lstm, char_cnn, p = options.lstm, options.char_cnn, options.lstm.projection_dim
    layer = 4 * lstm.dim * (2 * p + 1) + (lstm.dim * p if lstm.has_projection else 0)
    count = options.n_directions * lstm.n_layers * layer
    if n_tokens is not None:
        return count + n_tokens * p
    if char_cnn is None:
        return count
    f, tokens = char_cnn.n_filters, char_cnn.dictionary
    count += char_cnn.embedding_dim * char_cnn.n_characters
    count += sum(n * (w * char_cnn.embedding_dim + 1) for w, n in char_cnn.filters)
    count += 2 * char_cnn.n_highway * f * (f + 1) + (p * (f + 1) if f != p else 0)
    return count + (tokens.n_words * tokens.word_dim if tokens else 0)


def require_numbers(
    options: Options, n_tokens: int | None, *files: PathLike, n_more: int = 0
) -> None:
    """Check that files have the numbers for a network of these sizes, before memory is taken.

    It leaves room for what `load_hdf5` says more exactly: up to twice what is there, and 64 MB.

    Args:
        n_tokens: rows of the table of words; None for an encoder of characters.
        files: the weights, and the token cache if it is a file of its own.
        n_more: numbers of other layers.

    Raises:
        FileNotFoundError, InputError: see `dataset_shapes`; the files have far fewer.
    """
    expected = n_more + count_numbers(options, n_tokens)
    found = sum(map(count_stored, dict.fromkeys(files)))
    if expected > 2 * found + 2**24:
        raise InputError(
            f"{' and '.join(map(str, files))}: the weights do not fit the options, which ask for "
            f"{expected:,} numbers; there are {found:,}."
        )


def load_hdf5(path: PathLike, table: Sequence[Weight], also: Iterable[str] = ()) -> None:
    """Set the variables of `table` from a weights file.

    Args:
        path: the file.
        table: what is to be read; the softmax is left out.
        also: groups (beginnings of names) that may be there and are not read.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: the file is not HDF5, or datasets are missing, superfluous or of the wrong
            shape: all of them are named, with both shapes; or one holds what are not finite
            floating-point numbers, or is not in the file itself.
    """
    shapes = dataset_shapes(path)
    found: dict[str, Weight] = {}
    problems = []
    for weight in table:
        if weight.dataset is None:
            continue
        names = (weight.dataset, weight.odd_dataset)
        name = next((name for name in names if name in shapes), None)
        expected = tuple(weight.variable.shape)
        if name is None:
            problems.append(f"{weight.dataset}: missing, shape {expected} is expected")
            continue
        found[name] = weight
        if shapes[name] != expected:
            problems.append(f"{weight.dataset}: shape {expected} is expected, not {shapes[name]}")
    problems += [
        f"{name}: superfluous, shape {shapes[name]}"
        for name in sorted(set(shapes) - set(found))
        if name.startswith((*ENCODER_GROUPS, *LSTM_GROUPS)) and not name.startswith(tuple(also))
    ]
    raise_all(path, problems)
    _assign(path, {name: weight.variable for name, weight in found.items()})


def _assign(path: PathLike, variables: Mapping[str, Any]) -> None:
    with open_hdf5(path) as file:
        for name, variable in variables.items():
            variable.assign(read_numbers(file, name))


def named_states(states: Sequence[Sequence[Any]], prefix: str = STATES) -> dict[str, Any]:
    """The LSTM states of each direction, or variables of their shape, by their names in a file."""
    return {
        f"{prefix}{d}/{i}/{part}": value
        for d, of_direction in enumerate(states)
        for i, state in enumerate(of_direction)
        for part, value in state._asdict().items()
    }


def load_initial_states(path: PathLike, stacks: Sequence[LSTMStack]) -> None:
    """Set the states in which texts begin from a weights file, if it holds any.

    Raises:
        FileNotFoundError, InputError: see `open_hdf5`; states are missing, superfluous or of
            another shape.
    """
    variables = named_states([stack.initial for stack in stacks])
    shapes = {n: shape for n, shape in dataset_shapes(path).items() if n.startswith(STATES)}
    if not shapes:
        return
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    problems = [
        f"{name}: shape {expected.get(name)} is expected, not {shapes.get(name)}"
        for name in sorted(expected | shapes)
        if expected.get(name) != shapes.get(name)
    ]
    raise_all(path, problems)
    _assign(path, variables)


def save_hdf5(
    path: PathLike,
    values: Mapping[str, np.ndarray],
    words: Sequence[str] | None = None,
    texts: Mapping[str, np.ndarray] | None = None,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write float32 `values`, a vocabulary, uint8 `texts`, and how the model was trained (see
    `read_training`), whole or not at all."""
    with atomic_write(path) as temporary, writing_hdf5(temporary) as file:
        for name, value in values.items():
            file.create_dataset(name, data=np.asarray(value, np.float32))
        for name, value in (texts or {}).items():
            file.create_dataset(name, data=value)
        if words is not None:
            file.create_dataset(VOCABULARY, data=list(words), dtype=h5py.string_dtype("utf-8"))
        if training is not None:
            file.attrs[TRAINING] = json.dumps(training)


def read_training(path: PathLike) -> dict[str, Any] | None:
    """How the model of a weights file was trained; None if the file does not say.

    Files that `dump_weights` wrote say "steps", "tokens" (predictions of each direction),
    "n_train_tokens" (of one epoch), "n_tokens_vocab" and "reset_rate". Errors as for `open_hdf5`,
    also if what it says is not a JSON object, or these are not numbers.
    """
    with open_hdf5(path) as file:
        text = file.attrs.get(TRAINING)
        value = None if text is None else json.loads(text)
        if text is not None and not isinstance(value, dict):
            raise ValueError(f"attribute {TRAINING}: a JSON object is expected")
        for key in _TRAINING_KEYS:
            number = (value or {}).get(key, 0)
            if number is not None and not (isinstance(number, int | float) and 0 <= number < 2**63):
                raise ValueError(f"attribute {TRAINING}: {key}: a number from 0 is expected")
    return value


def load_dictionaries(path: PathLike, sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """The tokens of dictionaries by their rows; `sizes` are their numbers, by names of datasets.

    Raises:
        FileNotFoundError, InputError: see `open_hdf5`; a dictionary is missing or has another
            number of tokens.
    """
    names = dataset_shapes(path)
    with open_hdf5(path) as file:
        found = {n: from_bytes(read_integers(file, n)) if n in names else [] for n in sizes}
    for name, size in sizes.items():
        if len(found[name]) != size:
            raise InputError(f"{path}: {name}: {size} tokens are expected, not {len(found[name])}.")
    return found


def load_vocabulary_words(path: PathLike) -> list[str]:
    """The words that a weights file holds beside the softmax, by their ids.

    Raises:
        FileNotFoundError, InputError: see `open_hdf5`; it has no vocabulary.
    """
    with open_hdf5(path) as file:
        return read_words(file, VOCABULARY)


def raise_all(path: PathLike, problems: list[str]) -> None:
    """Raise an InputError that names the problems, if there are any: the first hundred."""
    if problems:
        more = [f"and {len(problems) - _MOST_NAMED} more"] if len(problems) > _MOST_NAMED else []
        listed = "\n  ".join(problems[:_MOST_NAMED] + more)
        raise InputError(f"{path}: the weights do not fit the options:\n  {listed}")
