"""Weights in HDF5 files: strict reading and writing. The names are in `bilm.core.weight_names`.

Published files hold the token encoder and the LSTMs of both directions as float32 HDF5 datasets;
TF1 checkpoints hold the softmax and Adagrad's accumulators as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from bilm.core.errors import InputError
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
