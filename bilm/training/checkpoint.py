"""Checkpoints: the original's folder and names, with what a resumed run needs beside them.

A folder holds `options.json`, `checkpoint` (which names the newest) and `model.ckpt-N` in TF's
bundle format. Variables and accumulators have the names of the original's, so that one reader
serves its checkpoints and ours. Ours add `bilm/record`, a JSON object, and the LSTM states.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import InputError
from bilm.files import (
    PathLike,
    atomic_write,
    flush_to_disk,
    read_json_object,
)
from bilm.training.checkpoint_reader import (
    load_checkpoint,
    open_checkpoint,
    read_checkpoint,
    read_tensor,
    restore_tensor,
)
from bilm.weights import Weight

logger = logging.getLogger(__name__)

OPTIONS_FILE = "options.json"
RECORD = "bilm/record"
_STATES = "bilm/state"
_TEMPORARY = ".model.ckpt-"
_STEP, _PERPLEXITY = "global_step", "train_perplexity"
# Beginnings of what stands in a checkpoint beside variables and accumulators.
IGNORED = (_STEP, _PERPLEXITY, "bilm/")
CHECKPOINT_SUFFIXES = (".data-00000-of-00001", ".index")


def checkpoint_prefix(save_dir: PathLike, step: int) -> str:
    """What the names of a checkpoint's files begin with."""
    return os.path.join(os.fspath(save_dir), f"model.ckpt-{step}")


def holds_model(save_dir: PathLike) -> bool:
    """Whether a folder has a checkpoint in it."""
    folder = Path(save_dir)
    return (folder / "checkpoint").exists() or any(folder.glob("model.ckpt-*.index"))


def checkpoints(save_dir: PathLike) -> list[str]:
    """The prefixes of a folder's checkpoints, oldest first."""
    found = []
    for path in Path(save_dir).glob("model.ckpt-*.index"):
        match = re.fullmatch(r"model\.ckpt-(\d+)\.index", path.name)
        if match:
            found.append((int(match[1]), str(path)[: -len(".index")]))
    return [prefix for _, prefix in sorted(found)]


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
    folder = os.fspath(tf_save_dir)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"The folder {folder!r} does not exist.")
    options = read_json_object(os.path.join(folder, OPTIONS_FILE), "options file")
    found = checkpoints(folder)
    if not found:
        raise FileNotFoundError(f"The folder {folder!r} holds no checkpoint (model.ckpt-N.index).")
    for prefix in reversed(found):
        if is_whole(prefix, verify):
            return options, prefix
        logger.warning("%s: cut off or damaged, passed over", prefix)
    raise InputError(f"{folder}: none of its checkpoints is whole: {', '.join(found)}")


def is_whole(prefix: str, verify: bool = False) -> bool:
    """Whether the index can be read and the data reaches to the end of its last tensor.

    Args:
        prefix: of a checkpoint.
        verify: whether all of it is as its checksums say, too.
    """
    try:
        reader = open_checkpoint(prefix)
        types = reader.get_variable_to_dtype_map()
        expected = sum(
            math.prod(shape) * types[name].size
            for name, shape in reader.get_variable_to_shape_map().items()
            if types[name] != tf.string
        )
        # Tensors stand in the order of their names; the size of texts is not known beforehand.
        for name in types if verify else [max(types)]:
            restore_tensor(prefix, name, types[name])
        return os.path.getsize(prefix + CHECKPOINT_SUFFIXES[0]) >= expected
    except (OSError, InputError):
        return False


def accumulator_name(weight: Weight) -> str:
    """The name of a variable's Adagrad accumulator."""
    return f"{weight.checkpoint}/Adagrad"


def save_checkpoint(
    save_dir: PathLike, step: int, tensors: Mapping[str, Any], record: Mapping[str, Any], keep: int
) -> str:
    """Write `model.ckpt-{step}` and remove all but the newest `keep`.

    The files get their names when they are on the disk, the index last: a checkpoint whose index
    is there is whole. Checkpoints of later steps, which were found damaged when the run went back
    to an earlier one, and what a crash left half-written are removed.

    Args:
        save_dir: an existing folder.
        step: global step.
        tensors: name to float32 array, tensor or variable.
        record: JSON-able facts that a resumed run needs.
        keep: how many checkpoints to keep.

    Returns:
        the checkpoint's prefix.

    Raises:
        OSError: the disk does not take it; no file is left of the attempt.
    """
    folder = os.fspath(save_dir)
    prefix = checkpoint_prefix(folder, step)
    temporary = os.path.join(folder, f"{_TEMPORARY}{uuid.uuid4().hex[:8]}")
    named = dict(tensors)
    named[_STEP] = np.float32(step)
    named[_PERPLEXITY] = np.float32(record.get("train_perplexity", 0.0))
    named[RECORD] = json.dumps(record)
    try:
        _write_bundle(temporary, named)
        for suffix in CHECKPOINT_SUFFIXES:
            flush_to_disk(temporary + suffix)
        # An older index must not stand beside newer data, not even for a moment.
        Path(f"{prefix}.index").unlink(missing_ok=True)
        for suffix in CHECKPOINT_SUFFIXES:
            os.replace(temporary + suffix, prefix + suffix)
    except tf.errors.OpError as error:
        raise OSError(f"{prefix}: cannot be written: {error.message}") from error
    finally:
        # Its own, and those of a process that was killed: a folder belongs to one run.
        for pattern in (f"{_TEMPORARY}*", ".checkpoint.*.tmp"):
            for left in Path(folder).glob(pattern):
                left.unlink(missing_ok=True)
    _remove_old(folder, step, keep)
    return prefix


def _write_bundle(prefix: str, named: Mapping[str, Any]) -> None:
    names = sorted(named)
    with tf.device("/cpu:0"):
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(named[name]) for name in names],
        )


def _remove_old(folder: str, step: int, keep: int) -> None:
    found = checkpoints(folder)
    earlier = [prefix for prefix in found if step_of_name(prefix) <= step]
    kept = earlier[-keep:]
    name_checkpoints(folder, [os.path.basename(prefix) for prefix in kept])
    for prefix in found:
        if prefix not in kept:
            for suffix in reversed(CHECKPOINT_SUFFIXES):
                Path(prefix + suffix).unlink(missing_ok=True)


def step_of_name(prefix: str) -> int:
    """N of `model.ckpt-N`."""
    return int(prefix.rpartition("-")[2])


def name_checkpoints(folder: PathLike, names: Sequence[str]) -> None:
    """Write the file `checkpoint`, which names a folder's checkpoints, oldest first."""
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    with atomic_write(os.path.join(folder, "checkpoint")) as temporary:
        Path(temporary).write_text("\n".join(lines) + "\n", encoding="utf-8")


def named_states(states: Any) -> dict[str, Any]:
    """The LSTM states with names, for a checkpoint."""
    return {
        f"{_STATES}/{d}/{i}/{part}": value
        for d, of_direction in enumerate(states)
        for i, state in enumerate(of_direction)
        for part, value in state._asdict().items()
    }


def read_record(ckpt_file: str) -> dict[str, Any] | None:
    """What `save_checkpoint` recorded; None for a checkpoint of the original program."""
    reader = open_checkpoint(ckpt_file)
    if not reader.has_tensor(RECORD):
        return None
    return json.loads(read_tensor(ckpt_file, reader, RECORD))


def read_step(ckpt_file: str) -> int:
    """The global step of a checkpoint."""
    return int(read_tensor(ckpt_file, open_checkpoint(ckpt_file), _STEP))


def load_variables(
    ckpt_file: str, table: Sequence[Weight], accumulators: Sequence[Any] = ()
) -> None:
    """Set variables, and Adagrad's accumulators if they are given, from a checkpoint.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: it is damaged, or does not fit; everything that does not is named.
    """
    targets = {weight.checkpoint: weight.variable.value for weight in table}
    ignored = [*IGNORED]
    if accumulators:
        names = [accumulator_name(weight) for weight in table]
        targets |= dict(zip(names, accumulators, strict=True))
    else:
        ignored += [accumulator_name(weight) for weight in table]
    load_checkpoint(ckpt_file, targets, ignored)


def load_mean_states(ckpt_file: str, zero_states: Callable[[int], Any]) -> Any:
    """The LSTM states of a checkpoint of ours, averaged over the rows: (1, ...) of each direction.

    Args:
        zero_states: gives states for a number of rows.

    Returns:
        None for a checkpoint that holds none, as one of the original program.
    """
    shape = (read_record(ckpt_file) or {}).get("batch_shape")
    if shape is None:
        return None
    return mean_over_rows(load_states(ckpt_file, zero_states(shape[0])))


def mean_over_rows(states: Any) -> Any:
    """States (batch, ...) averaged to one row, (1, ...)."""
    return tf.nest.map_structure(lambda x: tf.reduce_mean(x, axis=0, keepdims=True), states)


def load_states(ckpt_file: str, zero_states: Any) -> Any:
    """The LSTM states of a checkpoint of ours, in the form of `zero_states`.

    Raises:
        InputError: the checkpoint holds states of another batch size.
    """
    named = named_states(zero_states)
    shapes = {name: tuple(value.shape) for name, value in named.items()}
    values = read_checkpoint(ckpt_file, shapes, ("lm/", _STEP, _PERPLEXITY, RECORD))
    return tf.nest.pack_sequence_as(zero_states, [tf.constant(values[name]) for name in named])
