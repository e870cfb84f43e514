"""Checkpoints in TensorFlow's bundle format: the original program's and ours.

A training folder holds `options.json`, `checkpoint` (which names the newest checkpoint) and for
each checkpoint `model.ckpt-N.index` and `model.ckpt-N.data-00000-of-00001`. What ours hold besides
the variables is in `bilm.training.run_checkpoint`.

TensorFlow reads them: load only checkpoints that you trust.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError
from bilm.files.reading import (
    OPTIONS_FILE,
    PathLike,
    read_json_object,
    require_file,
    require_path,
)
from bilm.files.weights import require_shapes

logger = logging.getLogger(__name__)

STATE_FILE = "checkpoint"
# The index is written last and removed first: a checkpoint that has an index is complete.
SUFFIXES = (".data-00000-of-00001", ".index")

# What TensorFlow's checkpoint reader raises, depending on the damage.
_DAMAGED = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


def checkpoint_prefix(save_dir: PathLike, step: int) -> str:
    """The common beginning of the names of a checkpoint's files."""
    return os.path.join(os.fspath(save_dir), f"model.ckpt-{step}")


def holds_checkpoint(save_dir: PathLike) -> bool:
    """Whether a folder holds a checkpoint, or once held one."""
    folder = Path(save_dir)
    return (folder / STATE_FILE).exists() or any(folder.glob("model.ckpt-*.index"))


def list_checkpoints(save_dir: PathLike) -> dict[int, str]:
    """A folder's checkpoints: steps and prefixes, in ascending order of the steps."""
    names = [path.name for path in Path(save_dir).glob("model.ckpt-*.index")]
    matches = [re.fullmatch(r"model\.ckpt-(0|[1-9]\d*)\.index", name) for name in names]
    steps = sorted(int(match[1]) for match in matches if match)
    return {step: checkpoint_prefix(save_dir, step) for step in steps}


def load_options_latest_checkpoint(
    tf_save_dir: PathLike, *, verify: bool = False
) -> tuple[dict[str, Any], str]:
    """The training options of a folder and its newest intact checkpoint.

    Args:
        tf_save_dir: A training folder, of ours or of the original program.
        verify: Compare every tensor with its checksum, which takes about as long as loading the
            checkpoint. Otherwise a checkpoint that is cut off is noticed here, and damage within
            it when it is loaded.

    Returns:
        The contents of options.json, and the checkpoint's prefix.

    Raises:
        FileNotFoundError: The folder, its options or a checkpoint does not exist.
        InputError: No checkpoint is intact, or options.json is not a JSON object.
    """
    folder = require_path(tf_save_dir, "a folder of checkpoints")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"The folder {folder!r} does not exist.")
    options = read_json_object(os.path.join(folder, OPTIONS_FILE), "options file")
    found = list(list_checkpoints(folder).values())
    if not found:
        raise FileNotFoundError(f"The folder {folder!r} holds no checkpoint (model.ckpt-N.index).")
    for prefix in reversed(found):
        if is_whole(prefix, verify):
            return options, prefix
        logger.warning("%s: damaged, skipped", prefix)
    raise InputError(f"{folder}: all checkpoints are damaged: {', '.join(found)}.")


def is_whole(prefix: str, verify: bool = False) -> bool:
    """Whether the index is intact and the data reaches to the end of its last tensor.

    With `verify`, whether all tensors match their checksums.
    """
    try:
        types = open_checkpoint(prefix).get_variable_to_dtype_map()
        # Tensors are stored in the order of their names.
        for name in types if verify else [max(types)]:
            restore_tensor(prefix, name, types[name])
        return True
    except (OSError, InputError):
        return False


def open_checkpoint(path: str) -> Any:
    """TensorFlow's reader of a checkpoint, by its prefix (`.../model.ckpt-10`)."""
    require_file(f"{path}.index", "checkpoint")
    try:
        return tf.train.load_checkpoint(path)
    except _DAMAGED as error:
        raise InputError(f"{path}: not a checkpoint, or damaged: {error}") from error


def restore_tensor(path: str, name: str, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """A tensor of a checkpoint, read without a copy and compared with its checksum."""
    try:
        with tf.device("/cpu:0"):
            return tf.raw_ops.RestoreV2(
                prefix=path, tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
            )[0]
    except _DAMAGED as error:
        raise InputError(f"{path}: {name} cannot be read: {error}") from error


def _finite(path: str, name: str) -> tf.Tensor:
    """A float32 tensor of finite numbers."""
    value = restore_tensor(path, name)
    try:
        with tf.device("/cpu:0"):
            return tf.debugging.check_numerics(value, name)
    except tf.errors.InvalidArgumentError as error:
        raise InputError(f"{path}: {name} must be finite in float32.") from error


def read_checkpoint(
    path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str]
) -> dict[str, np.ndarray]:
    """Read variables of a checkpoint.

    Args:
        path: The checkpoint's prefix.
        shapes: The shape of each variable by name.
        also: Prefixes of names to ignore.
    """
    _require_shapes(path, shapes, also)
    return {name: _finite(path, name).numpy() for name in shapes}


def load_checkpoint(path: str, targets: Mapping[str, Any], also: Sequence[str]) -> None:
    """Set variables from a checkpoint, one at a time and without copies.

    Arguments and errors as for `read_checkpoint`, with variables instead of shapes. After an error
    some variables have no values.
    """
    _require_shapes(path, {name: tuple(v.shape) for name, v in targets.items()}, also)
    for name, variable in targets.items():
        if isinstance(variable, tf.distribute.DistributedValues):
            variable.assign(_finite(path, name))
            continue
        # Free the old values before reading the new ones.
        _replace(variable, tf.zeros((0,)))
        _replace(variable, _finite(path, name))


def _replace(variable: tf.Variable, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value, validate_shape=False)


def _require_shapes(path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str]) -> None:
    """Require variables of these shapes, and no others."""
    stored = open_checkpoint(path).get_variable_to_shape_map()
    relevant = {
        name: tuple(shape)
        for name, shape in stored.items()
        if name in shapes or not name.startswith(tuple(also))
    }
    require_shapes(path, shapes, relevant)
