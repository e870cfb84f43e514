"""Checkpoints in TensorFlow's bundle format: the original program's and ours.

A training folder holds `options.json`, `checkpoint` (which names the newest checkpoint) and for
each checkpoint `model.ckpt-N.index` and `model.ckpt-N.data-00000-of-00001`. Variables and
accumulators have the original's names, so both programs' checkpoints are read in the same way. Our
checkpoints also hold the run state (`bilm.training.state`). The best model of a run is kept
in the subfolder `best`, which is itself a training folder.

TensorFlow reads them: load only checkpoints that you trust.
"""

import atexit
import contextlib
import functools
import glob
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError
from bilm.files.reading import (
    OPTIONS_FILE,
    STATE_FILE,
    VOCABULARY_FILE,
    PathLike,
    add_input,
    read_json_object,
    require_file,
    require_path,
)
from bilm.files.reading import holds_checkpoint as holds_checkpoint
from bilm.files.weights import Weight, require_shapes
from bilm.files.writing import atomic_write, flush_to_disk

logger = logging.getLogger(__name__)

BEST_FOLDER = "best"
# Values in every checkpoint besides variables; the prefix of names in our checkpoints only.
STEP, PERPLEXITY, OURS = "global_step", "train_perplexity", "bilm/"
# The optimizer's slots of a variable, `NAME/SLOT`, as in TensorFlow 1.
ADAGRAD, ADAM, MOMENTUM = "Adagrad", ("Adam", "Adam_1"), "Momentum"
SLOTS = (ADAGRAD, *ADAM, MOMENTUM)
# The index is written last and removed first: a checkpoint that has an index is complete.
SUFFIXES = (".data-00000-of-00001", ".index")
_NAME = re.compile(r"model\.ckpt-(0|[1-9]\d*)")
_RECORDED = re.compile(r'^all_model_checkpoint_paths: "(?:.*/)?([^/"]+)"$', re.MULTILINE)
# A subfolder for the files of a checkpoint until they are renamed into place.
_SAVING = ".bilm-saving"

# Exceptions of TensorFlow's checkpoint reader, depending on the damage.
_DAMAGED = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


def checkpoint_prefix(save_dir: PathLike, step: int) -> str:
    """The common prefix of a checkpoint's files."""
    return os.path.join(os.fspath(save_dir), f"model.ckpt-{step}")


def list_checkpoints(save_dir: PathLike) -> dict[int, str]:
    """A folder's checkpoints, prefix by step, in ascending order."""
    names = [path.stem for path in Path(save_dir).glob("model.ckpt-*.index")]
    matches = [_NAME.fullmatch(name) for name in names]
    steps = sorted(int(match[1]) for match in matches if match)
    return {step: checkpoint_prefix(save_dir, step) for step in steps}


def load_options_latest_checkpoint(tf_save_dir: PathLike) -> tuple[dict[str, Any], str]:
    """The training options of a folder and its newest intact checkpoint.

    Args:
        tf_save_dir: A training folder, of ours or of the original program.

    Returns:
        The contents of options.json, and the checkpoint's prefix.

    Raises:
        FileNotFoundError: The folder, its options or a checkpoint does not exist.
        InputError: All checkpoints are damaged, or options.json is not a JSON object.
    """
    folder = require_path(tf_save_dir, "a folder of checkpoints")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"The folder {folder!r} does not exist.")
    options = read_json_object(os.path.join(folder, OPTIONS_FILE), "options file")
    _protect(folder)
    prefixes = list(list_checkpoints(folder).values())
    if not prefixes:
        raise FileNotFoundError(f"The folder {folder!r} holds no checkpoint (model.ckpt-N.index).")
    for prefix in reversed(prefixes):
        if is_intact(prefix):
            return options, prefix
        logger.warning("%s: damaged, skipped", prefix)
    raise InputError(f"{folder} must hold an intact checkpoint, damaged: {', '.join(prefixes)}.")


def run_files(folder: PathLike) -> list[Path]:
    """The files of a run, which nothing else may replace: in its folder, or in its folder `best`,
    both folders' files."""
    run = Path(folder)
    run = run.parent if run.name == BEST_FOLDER else run
    names = (OPTIONS_FILE, VOCABULARY_FILE, STATE_FILE, "model.ckpt-*", "train_log*.jsonl")
    return [path for each in (run, run / BEST_FOLDER) for name in names for path in each.glob(name)]


def _protect(folder: PathLike) -> None:
    """Record that the subcommand reads a run."""
    for path in run_files(folder):
        with contextlib.suppress(FileNotFoundError):  # the run may be going on
            add_input(str(path))


def is_intact(prefix: str) -> bool:
    """Whether all tensors of a checkpoint agree with their checksums."""
    try:
        for name, dtype in open_checkpoint(prefix).get_variable_to_dtype_map().items():
            restore_tensor(prefix, name, dtype)
        return True
    except (OSError, InputError):
        return False


def _escaped(path: str) -> str:
    """A path for TensorFlow, which reads * and the like as a pattern: if the folder's name has such
    characters, the path leads through a symbolic link."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(_link_to(folder), name) if glob.has_magic(folder) else path


@functools.cache
def _link_to(folder: str) -> str:
    links = tempfile.mkdtemp(prefix="bilm-")
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    link = os.path.join(links, "folder")
    os.symlink(folder, link)
    return link


def open_checkpoint(path: str) -> Any:
    """TensorFlow's reader of a checkpoint, by its prefix (`.../model.ckpt-10`)."""
    require_file(f"{path}.index", "checkpoint")
    _protect(os.path.dirname(path))
    try:
        return tf.train.load_checkpoint(_escaped(path))
    except _DAMAGED as error:
        raise InputError(f"{path}: not a checkpoint, or damaged: {error}") from error


def restore_tensor(path: str, name: str, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Read a tensor of a checkpoint without a copy, and compare it with its checksum."""
    try:
        with tf.device("/cpu:0"):
            return tf.raw_ops.RestoreV2(
                prefix=_escaped(path), tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
            )[0]
    except _DAMAGED as error:
        raise InputError(f"{path}: {name} cannot be read: {error}") from error


def _read_finite(path: str, name: str) -> tf.Tensor:
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
    """Variables of a checkpoint by name; names with a prefix in `also` are ignored."""
    _require_shapes(path, shapes, also)
    return {name: _read_finite(path, name).numpy() for name in shapes}


def load_variables(
    ckpt_file: str, table: Sequence[Weight], slots: Mapping[str, Any] | None = None
) -> None:
    """Set variables, and the optimizer's `slots` by name, from a checkpoint: one at a time and
    without copies. After an error, some variables may have no values."""
    targets = {weight.checkpoint: weight.variable.value for weight in table} | dict(slots or {})
    shapes = {name: tuple(variable.shape) for name, variable in targets.items()}
    _require_shapes(ckpt_file, shapes, names_beside(table))
    for name, variable in targets.items():
        if isinstance(variable, tf.distribute.DistributedValues):
            variable.assign(_read_finite(ckpt_file, name))
            continue
        # Free the old values before reading the new ones.
        _replace(variable, tf.zeros((0,)))
        _replace(variable, _read_finite(ckpt_file, name))


def _replace(variable: tf.Variable, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value, validate_shape=False)


def _require_shapes(path: str, shapes: Mapping[str, tuple[int, ...]], also: Sequence[str]) -> None:
    """Require exactly the variables of these shapes."""
    stored = open_checkpoint(path).get_variable_to_shape_map()
    relevant = {
        name: tuple(shape)
        for name, shape in stored.items()
        if name in shapes or not name.startswith(tuple(also))
    }
    require_shapes(path, shapes, relevant)


def names_beside(table: Sequence[Weight]) -> list[str]:
    """Name prefixes of the values in a checkpoint other than a network's variables."""
    slots = [f"{weight.checkpoint}/{slot}" for weight in table for slot in SLOTS]
    return [STEP, PERPLEXITY, OURS, *slots]


def read_step(ckpt_file: str) -> int:
    """The global step of a checkpoint."""
    return int(read_value(ckpt_file, STEP))


def read_value(ckpt_file: str, name: str) -> Any:
    """A scalar of a checkpoint: a NumPy number, or bytes of text."""
    types = open_checkpoint(ckpt_file).get_variable_to_dtype_map()
    return restore_tensor(ckpt_file, name, types.get(name, tf.float32)).numpy()


# Writing


def save_checkpoint(
    save_dir: PathLike, step: int, tensors: Mapping[str, Any], keep: int = 1
) -> str:
    """Write `model.ckpt-{step}`, remove all but the newest `keep`, and return its prefix.

    The files are renamed into place once they are on the disk, the index last. After an OSError, no
    new file remains. `tensors` may be arrays, tensors, variables or text.
    """
    prefix, folder = checkpoint_prefix(save_dir, step), Path(save_dir)
    values_by_name = {PERPLEXITY: np.float32(0.0), **tensors, STEP: np.float32(step)}
    names = sorted(values_by_name)
    with _saving(folder) as saving:
        temporary = checkpoint_prefix(saving, step)
        try:
            with tf.device("/cpu:0"):
                tf.raw_ops.SaveV2(
                    prefix=temporary,
                    tensor_names=names,
                    shape_and_slices=[""] * len(names),
                    tensors=[tf.convert_to_tensor(values_by_name[name]) for name in names],
                )
        except tf.errors.OpError as error:
            raise OSError(f"{prefix}: cannot be written: {error.message}") from error
        for suffix in SUFFIXES:
            flush_to_disk(temporary + suffix)
        _put_in_place(saving, folder, os.path.basename(prefix))
    tidy_folder(save_dir, step, keep)
    return prefix


def tidy_folder(save_dir: PathLike, step: int, keep: int) -> None:
    """Keep the newest `keep` checkpoints up to `step` of those that the file `checkpoint` names.

    The others that it names are removed, even later ones: a run resumes from an earlier checkpoint
    only if the later ones are damaged. Files of killed runs are removed as well.
    """
    folder = Path(save_dir)
    for each in (folder, folder / BEST_FOLDER):
        shutil.rmtree(each / _SAVING, ignore_errors=True)
    recorded = _read_record(folder)
    prefixes = {n: os.path.basename(prefix) for n, prefix in list_checkpoints(folder).items()}
    names = [name for n, name in prefixes.items() if n <= step and name in recorded][-keep:]
    if names:
        _keep_only(folder, names)


@contextlib.contextmanager
def _saving(folder: Path) -> Iterator[Path]:
    """An empty subfolder for the files of a checkpoint, removed after the block."""
    saving = folder / _SAVING
    shutil.rmtree(saving, ignore_errors=True)  # of a killed run
    saving.mkdir()
    try:
        yield saving
    finally:
        shutil.rmtree(saving, ignore_errors=True)


def _put_in_place(saving: Path, folder: Path, name: str) -> None:
    """Rename the files of a checkpoint, the index last; the caller then records it as the newest.

    It is recorded before as well, so that a later run removes what a killed one leaves.
    """
    _write_record(folder, [name, *(each for each in _read_record(folder) if each != name)])
    # An old index must never be next to new data.
    (folder / f"{name}.index").unlink(missing_ok=True)
    for suffix in SUFFIXES:
        os.replace(saving / f"{name}{suffix}", folder / f"{name}{suffix}")


def _keep_only(folder: Path, names: Sequence[str]) -> None:
    """Remove all other checkpoints in the file `checkpoint`, and record `names`, oldest first."""
    # The record changes last, so that it names every checkpoint even if the run is killed.
    for name in _read_record(folder):
        for suffix in reversed(SUFFIXES) if name not in names else ():  # the index first
            (folder / f"{name}{suffix}").unlink(missing_ok=True)
    _write_record(folder, names)


def _read_record(folder: Path) -> list[str]:
    """The names in the file `checkpoint`."""
    record = folder / STATE_FILE
    if not record.exists():
        return []
    return list(dict.fromkeys(_RECORDED.findall(record.read_text("utf-8", "replace"))))


def _write_record(folder: Path, names: Sequence[str]) -> None:
    """Write the file `checkpoint`, the newest name last.

    TensorFlow's own function writes absolute paths, which break when the folder is moved.
    """
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    with atomic_write(folder / STATE_FILE) as temporary:
        Path(temporary).write_text("\n".join(lines) + "\n", encoding="utf-8")


def keep_best(save_dir: PathLike, prefix: str) -> str:
    """Keep a checkpoint as the best one of the folder `save_dir`; return its prefix there.

    The files are hard links where the file system allows, so they take no extra disk space. The
    previous best checkpoint is removed once the new one is in place.
    """
    folder, name = Path(save_dir, BEST_FOLDER), os.path.basename(prefix)
    folder.mkdir(exist_ok=True)
    with _saving(folder) as saving:
        for suffix in SUFFIXES:
            _link(prefix + suffix, saving / f"{name}{suffix}")
        _put_in_place(saving, folder, name)
        for file in (OPTIONS_FILE, VOCABULARY_FILE):
            if os.path.exists(source := os.path.join(save_dir, file)):
                _link(source, saving / file)
                os.replace(saving / file, folder / file)
    _keep_only(folder, [name])
    return str(folder / name)


def _link(source: str, target: Path) -> None:
    """Give a file a second name, or copy it to a file system without links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        flush_to_disk(target)
