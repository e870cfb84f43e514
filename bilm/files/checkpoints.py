"""Checkpoints in TF's bundle format, the original's and ours: finding and strict reading.

A folder of a training run holds `options.json`, `checkpoint` (which names the newest) and
`model.ckpt-N`, each in two files: an index, and the data. What ours hold beside the variables is
in `bilm.training.run_checkpoint`.
"""

from __future__ import annotations

import glob
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from bilm.core.errors import InputError, checked
from bilm.files.reading import (
    OPTIONS_FILE,
    PathLike,
    read_json_object,
    read_whole,
    require_file,
    require_path,
)
from bilm.files.weights import require_shapes

logger = logging.getLogger(__name__)

STATE_FILE = "checkpoint"
# The index is written last and removed first: a checkpoint that has one is whole.
SUFFIXES = (".data-00000-of-00001", ".index")

# Of the index, a table of LevelDB: bytes of its end, and the last eight of them.
_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
# Files of data that a checkpoint may have; those of one machine have one.
_MOST_SHARDS = 1000
# What TensorFlow's reader of checkpoints raises, as the damage may be.
_DAMAGED = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


def checkpoint_prefix(save_dir: PathLike, step: int) -> str:
    """What the names of a checkpoint's files begin with."""
    return os.path.join(os.fspath(save_dir), f"model.ckpt-{step}")


def holds_checkpoint(save_dir: PathLike) -> bool:
    """Whether a folder has a checkpoint in it, or had one."""
    folder = Path(save_dir)
    return (folder / STATE_FILE).exists() or any(folder.glob("model.ckpt-*.index"))


def list_checkpoints(save_dir: PathLike) -> dict[int, str]:
    """Steps and prefixes of a folder's checkpoints, oldest first."""
    names = [path.name for path in Path(save_dir).glob("model.ckpt-*.index")]
    matches = [re.fullmatch(r"model\.ckpt-(0|[1-9]\d*)\.index", name) for name in names]
    steps = sorted(int(match[1]) for match in matches if match)
    return {step: checkpoint_prefix(save_dir, step) for step in steps}


@checked
def load_options_latest_checkpoint(
    tf_save_dir: PathLike, *, verify: bool = False
) -> tuple[dict[str, Any], str]:
    """The training options of a folder and its newest checkpoint that is whole.

    Args:
        tf_save_dir: a folder of checkpoints, of ours or of the original program.
        verify: compare every tensor with its checksum, which takes about as long as to load them;
            otherwise one that was cut off is noticed, and damage within when it is loaded.

    Returns:
        the contents of options.json, and the checkpoint's prefix.

    Raises:
        FileNotFoundError: the folder, its options or a checkpoint are not there.
        InputError: no checkpoint is whole, or options.json is not a JSON object.
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
        logger.warning("%s: cut off or damaged, passed over", prefix)
    raise InputError(f"{folder}: none of its checkpoints is whole: {', '.join(found)}")


def is_whole(prefix: str, verify: bool = False) -> bool:
    """Whether the index can be read and the data reaches to the end of its last tensor.

    With `verify`, whether all of it is as its checksums say, too.
    """
    try:
        reader = open_checkpoint(prefix)
        types = reader.get_variable_to_dtype_map()
        # A text has a byte at least.
        expected = sum(
            math.prod(shape) * (1 if types[name] == tf.string else types[name].size)
            for name, shape in reader.get_variable_to_shape_map().items()
        )
        if os.path.getsize(prefix + SUFFIXES[0]) < expected:
            return False
        # Tensors are stored in the order of their names; the size of texts is not known before.
        for name in types if verify else [max(types)]:
            restore_tensor(prefix, name, types[name])
        return True
    except (OSError, InputError):
        return False


def open_checkpoint(path: str) -> Any:
    """A reader of a TF1 checkpoint or one of ours, by its prefix (`.../model.ckpt-10`).

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: it is cut off or damaged.
    """
    require_file(f"{path}.index", "checkpoint")
    for part in glob.glob(f"{glob.escape(path)}.data-*"):
        require_file(part, "checkpoint's data")
    _require_sound_index(path)
    try:
        return tf.train.load_checkpoint(path)
    except _DAMAGED as error:
        raise InputError(f"{path}: not a checkpoint, or cut off: {error}") from error


def _require_sound_index(path: str) -> None:
    """Check what TensorFlow's reader does not: at an entry that is none it ends the program, and it
    takes the memory of a tensor before it looks how much of it there is.

    Raises:
        InputError: the index is damaged, or the data has not the bytes that a tensor needs.
    """
    try:
        entries = dict(_entries(read_whole(f"{path}.index", "checkpoint")))
        header = _parsed(tensor_bundle_pb2.BundleHeaderProto, entries.pop(b""))
        sizes = [
            os.path.getsize(f"{path}.data-{shard:05}-of-{header.num_shards:05}")
            for shard in range(min(header.num_shards, _MOST_SHARDS))
        ]
        for name, content in entries.items():
            shown, entry = name.decode(), _parsed(tensor_bundle_pb2.BundleEntryProto, content)
            if not _is_there(entry, sizes):
                shape = [axis.size for axis in entry.shape.dim]
                raise InputError(
                    f"{path}: {shown} is damaged or cut off: no tensor of shape {shape} is in the "
                    "data."
                )
    except InputError:
        raise
    except FileNotFoundError as error:
        what = f"there is no {error.filename}."
        raise InputError(f"{path}: not a checkpoint, or cut off: {what}") from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a checkpoint, or cut off: its index: {error}") from error


def _parsed(kind: Any, content: bytes) -> Any:
    """A message of TensorFlow's."""
    try:
        return kind.FromString(content)
    except Exception as error:  # one of the library that TensorFlow brings for it
        raise ValueError(f"{kind.__name__}: {error}") from error


def _is_there(entry: Any, sizes: Sequence[int]) -> bool:
    """Whether a tensor, by its entry of the index, is within the data, files of these `sizes`."""
    n_numbers, dtype = math.prod(axis.size for axis in entry.shape.dim), tf.as_dtype(entry.dtype)
    is_text = dtype == tf.string  # of which each value has a byte or more
    has_size = n_numbers <= entry.size if is_text else n_numbers * dtype.size == entry.size
    return (
        has_size
        and not entry.slices
        and 0 <= entry.shard_id < len(sizes)
        and all(axis.size >= 0 for axis in entry.shape.dim)
        and 0 <= entry.offset <= sizes[entry.shard_id] - entry.size
    )


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table of LevelDB that is not compressed."""
    footer = table[-_FOOTER:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("it does not end as one")
    _, _, start, size = _varints(footer, 0, 4)[0]
    for _, handle in _block(table, start, size):
        yield from _block(table, *_varints(handle, 0, 2)[0])


def _block(table: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block: of a key only what differs from that before it is there."""
    block = table[start : start + size]
    if len(block) != size or table[start + size] != 0:
        raise ValueError("a block that is compressed, or not there")
    n_restarts = int.from_bytes(block[-4:], "little")
    end, place, key = size - 4 * (1 + n_restarts), 0, b""
    while place < end:
        (n_shared, n_key, n_value), place = _varints(block, place, 3)
        key = key[:n_shared] + block[place : place + n_key]
        value = block[place + n_key : place + n_key + n_value]
        if len(key) != n_shared + n_key or len(value) != n_value:
            raise ValueError("an entry that is cut off")
        yield key, value
        place += n_key + n_value


def _varints(data: bytes, place: int, n: int) -> tuple[list[int], int]:
    """Numbers of seven bits a byte, the lowest first, and the place after them."""
    numbers = []
    for _ in range(n):
        value = shift = 0
        while data[place] > 127:
            value, shift, place = value | (data[place] & 127) << shift, shift + 7, place + 1
        numbers.append(value | data[place] << shift)
        place += 1
    return numbers, place


def restore_tensor(path: str, name: str, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """A tensor of the checkpoint `path`, read once and checked against its checksum."""
    try:
        with tf.device("/cpu:0"):
            return tf.raw_ops.RestoreV2(
                prefix=path, tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
            )[0]
    except _DAMAGED as error:
        raise InputError(f"{path}: {name} is damaged or cut off: {error}") from error


def _finite(path: str, name: str) -> tf.Tensor:
    """A tensor of weights or states; without a copy, for it may be large."""
    value = restore_tensor(path, name)
    try:
        with tf.device("/cpu:0"):
            return tf.debugging.check_numerics(value, name)
    except tf.errors.InvalidArgumentError as error:
        raise InputError(f"{path}: {name}: finite numbers are expected.") from error


def read_checkpoint(
    path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str]
) -> dict[str, np.ndarray]:
    """Read the variables of a checkpoint.

    Args:
        path: the checkpoint's prefix.
        shapes: name to shape of each variable to read.
        also: beginnings of names that may be there and are not read.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: it is damaged, or variables are missing, superfluous, of the wrong shape or
            type: all of them are named, with both shapes; or one has numbers that are not finite.
    """
    _require_shapes(path, shapes, also)
    return {name: _finite(path, name).numpy() for name in shapes}


def load_checkpoint(path: str, targets: Mapping[str, Any], also: Sequence[str]) -> None:
    """Set variables from a checkpoint, in no more memory than they have.

    Arguments and errors as for `read_checkpoint`, with tf.Variables in place of shapes. When the
    checkpoint turns out to be damaged, some of them are left without values.
    """
    _require_shapes(path, {name: tuple(v.shape) for name, v in targets.items()}, also)
    for name, variable in targets.items():
        if isinstance(variable, tf.distribute.DistributedValues):
            variable.assign(_finite(path, name))
            continue
        # The old values go before the new ones come, and the new ones are not copied.
        _replace(variable, tf.zeros((0,)))
        _replace(variable, _finite(path, name))


def _replace(variable: tf.Variable, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value, validate_shape=False)


def _require_shapes(path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str]) -> None:
    """Check that a checkpoint holds variables of these shapes, and no others."""
    stored = open_checkpoint(path).get_variable_to_shape_map()
    relevant = {
        name: tuple(shape)
        for name, shape in stored.items()
        if name in shapes or not name.startswith(tuple(also))
    }
    require_shapes(path, shapes, relevant)
