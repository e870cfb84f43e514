"""Reading of checkpoints, TF1's and ours: strict, checked, and in little memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import InputError
from bilm.files import require_file
from bilm.weights import raise_all

# What TensorFlow's reader of checkpoints raises, as the damage may be.
_DAMAGED = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


def open_checkpoint(path: str) -> Any:
    """A reader of a TF1 checkpoint or one of ours, by its prefix (`.../model.ckpt-10`).

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: it is cut off or damaged.
    """
    require_file(f"{path}.index", "checkpoint")
    try:
        return tf.train.load_checkpoint(path)
    except _DAMAGED as error:
        raise InputError(f"{path}: not a checkpoint, or cut off: {error}") from error


def read_tensor(path: str, reader: Any, name: str) -> Any:
    """A tensor of the checkpoint `path` that `open_checkpoint` gave a reader of.

    Raises:
        InputError: it is not there, or it is damaged.
    """
    try:
        return reader.get_tensor(name)
    except _DAMAGED as error:
        raise InputError(f"{path}: {name} is damaged or cut off: {error}") from error


def restore_tensor(path: str, name: str, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """A tensor of the checkpoint `path`, read once and checked against its checksum.

    Raises:
        InputError: it is damaged or cut off.
    """
    try:
        with tf.device("/cpu:0"):
            return tf.raw_ops.RestoreV2(
                prefix=path, tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
            )[0]
    except _DAMAGED as error:
        raise InputError(f"{path}: {name} is damaged or cut off: {error}") from error


def read_checkpoint(
    path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Read the variables of a checkpoint.

    Args:
        path: the checkpoint's prefix.
        shapes: name to shape of each variable to read.
        also: beginnings of names that may be there and are not read.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: it is damaged, or variables are missing, superfluous or of the wrong shape:
            all of them are named, with both shapes.
    """
    require_shapes(path, shapes, also)
    return {name: restore_tensor(path, name).numpy() for name in shapes}


def load_checkpoint(path: str, targets: Mapping[str, Any], also: Sequence[str] = ()) -> None:
    """Set variables from a checkpoint, in no more memory than they have.

    Args:
        path: the checkpoint's prefix.
        targets: name to tf.Variable. When the checkpoint turns out to be damaged, some of them are
            left without values.
        also: beginnings of names that may be there and are not read.

    Raises:
        FileNotFoundError, InputError: as for `read_checkpoint`.
    """
    require_shapes(path, {name: tuple(v.shape) for name, v in targets.items()}, also)
    for name, variable in targets.items():
        if isinstance(variable, tf.distribute.DistributedValues):
            variable.assign(restore_tensor(path, name))
            continue
        # The old values go before the new ones come, and the new ones are not copied.
        _replace(variable, tf.zeros((0,)))
        _replace(variable, restore_tensor(path, name))


def _replace(variable: tf.Variable, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value, validate_shape=False)


def require_shapes(
    path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str] = ()
) -> None:
    """Check that a checkpoint holds variables of these shapes, and no others.

    Arguments and errors as for `read_checkpoint`; the values are not read.
    """
    reader = open_checkpoint(path)
    stored = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    problems = []
    for name, shape in shapes.items():
        if name not in stored:
            problems.append(f"{name}: missing, shape {tuple(shape)} is expected")
        elif stored[name] != tuple(shape):
            problems.append(f"{name}: shape {tuple(shape)} is expected, not {stored[name]}")
    for name in sorted(set(stored) - set(shapes)):
        if not name.startswith(tuple(also)):
            problems.append(f"{name}: superfluous, shape {stored[name]}")
    raise_all(path, problems)
