"""Weights in HDF5 files. The names of the datasets are in `bilm.core.weight_names`.

Published files hold the token encoder and the LSTMs of both directions as float32 datasets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from bilm.core.errors import InputError, shown
from bilm.core.lstm import LSTMStack
from bilm.core.weight_names import Weight
from bilm.files.hdf5 import (
    dataset_shapes,
    open_hdf5,
    read_numbers,
    read_words,
    writing_hdf5,
)
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write

# Name prefixes in published files. Other datasets are ignored, as by all known readers.
ENCODER_GROUPS = ("char_embed", "CNN", "embedding", "dictionary/")
LSTM_GROUPS = ("RNN_", "rnn")
# What our own files may add. A softmax tied to the word embedding has only b.
SOFTMAX_W, SOFTMAX_B, VOCABULARY = "softmax/W", "softmax/b", "vocabulary/words"
# The tokens of a dictionary in the order of their rows, one per line, as UTF-8 bytes.
DICTIONARY_CHARACTERS, DICTIONARY_WORDS = "tokens/characters", "tokens/words"
# Initial LSTM states, if they are not zeros: states/DIRECTION/LAYER/c and h.
STATES = "states/"
# A file attribute: how the model was trained, as a JSON object.
TRAINING = "training"
_TRAINING_KEYS = (
    "steps", "tokens", "passes", "n_train_tokens", "n_tokens_vocab", "reset_rate",
)  # fmt: skip
_MOST_NAMED = 100


def load_hdf5(path: PathLike, table: Sequence[Weight], also: Iterable[str] = ()) -> None:
    """Set the variables of `table`, except the softmax, from a weights file.

    Args:
        path: The file.
        table: The variables and their names.
        also: Name prefixes of datasets to ignore.

    Raises:
        FileNotFoundError: The file does not exist.
        InputError: The file is not HDF5; datasets are missing, unexpected or of the wrong shape
            (one error names all of them); or one is not in the file itself or does not hold finite
            floating-point numbers.
    """
    stored = dataset_shapes(path)
    expected: dict[str, tuple[int, ...]] = {}
    variables = {}
    for weight in table:
        if weight.dataset is not None:
            names = (weight.dataset, weight.odd_dataset)
            name = next((name for name in names if name in stored), weight.dataset)
            expected[name], variables[name] = tuple(weight.variable.shape), weight.variable
    groups = (*ENCODER_GROUPS, *LSTM_GROUPS)
    relevant = {
        name: shape
        for name, shape in stored.items()
        if name in expected or (name.startswith(groups) and not name.startswith(tuple(also)))
    }
    require_shapes(path, expected, relevant)
    _assign(path, variables)


def _assign(path: PathLike, variables: Mapping[str, Any]) -> None:
    with open_hdf5(path) as file:
        for name, variable in variables.items():
            variable.assign(read_numbers(file, name))


def named_states(states: Sequence[Sequence[Any]], prefix: str = STATES) -> dict[str, Any]:
    """LSTM states of each direction and layer (or variables) by their names in a file."""
    return {
        f"{prefix}{d}/{i}/{part}": value
        for d, of_direction in enumerate(states)
        for i, state in enumerate(of_direction)
        for part, value in state._asdict().items()
    }


def load_initial_states(path: PathLike, stacks: Sequence[LSTMStack]) -> None:
    """Set the initial LSTM states from a weights file that holds some.

    Raises:
        FileNotFoundError, InputError: As for `load_hdf5`.
    """
    variables = named_states([stack.initial for stack in stacks])
    stored = {n: shape for n, shape in dataset_shapes(path).items() if n.startswith(STATES)}
    if stored:
        require_shapes(path, {n: tuple(v.shape) for n, v in variables.items()}, stored)
        _assign(path, variables)


def save_hdf5(
    path: PathLike,
    values: Mapping[str, np.ndarray],
    words: Sequence[str] | None = None,
    texts: Mapping[str, np.ndarray] | None = None,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write a weights file, which appears only when complete.

    Args:
        path: The file.
        values: Arrays by name, written as float32.
        words: The vocabulary, by ids.
        texts: uint8 arrays by name.
        training: How the model was trained; see `read_training`.
    """
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
    """How the model of a weights file was trained, or None if the file does not say.

    `dump_weights` writes "steps", "tokens" (predictions per direction), "passes" (over the
    training text), "n_train_tokens" (per epoch), "n_tokens_vocab" and "reset_rate"; each is None
    if it is not known.

    Raises:
        FileNotFoundError, InputError: As for `open_hdf5`, or these are not numbers.
    """
    with open_hdf5(path) as file:
        text = file.attrs.get(TRAINING)
        if text is None:
            return None
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError(f"attribute {TRAINING} must be a JSON object, got {shown(value)}")
        for key in _TRAINING_KEYS:
            number = value.get(key)
            if number is not None and not (isinstance(number, int | float) and 0 <= number < 2**63):
                raise ValueError(f"attribute {TRAINING}: {key} must be >= 0, got {shown(number)}")
    return value


def load_vocabulary_words(path: PathLike) -> list[str]:
    """The vocabulary that a weights file holds for its softmax, by ids.

    Raises:
        FileNotFoundError, InputError: As for `open_hdf5`, or the file holds no vocabulary.
    """
    with open_hdf5(path) as file:
        return read_words(file, VOCABULARY)


def require_shapes(
    path: PathLike, expected: Mapping[str, Sequence[int]], stored: Mapping[str, Sequence[int]]
) -> None:
    """Require that a file stores exactly the expected arrays; name all that differ, up to 100.

    Raises:
        InputError: An array is missing, unexpected, or of another shape.
    """
    problems = []
    for name in [*expected, *sorted(set(stored) - set(expected))]:
        if name not in stored:
            problems.append(f"{name}: missing, must have shape {expected[name]}")
        elif name not in expected:
            problems.append(f"{name}: unexpected, has shape {stored[name]}")
        elif stored[name] != expected[name]:
            problems.append(f"{name}: must have shape {expected[name]}, got {stored[name]}")
    if problems:
        more = [f"and {len(problems) - _MOST_NAMED} more"] if len(problems) > _MOST_NAMED else []
        listed = "\n  ".join(problems[:_MOST_NAMED] + more)
        raise InputError(f"{path}: the weights do not fit the options:\n  {listed}")
