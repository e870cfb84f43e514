"""The checkpoints of a run: what they hold, and how they are written.

Variables and accumulators have the names of the original's, so that one reader serves its
checkpoints and ours. Ours add `bilm/record`, a JSON object (`RunRecord`), and the LSTM states.
The best model of a run is kept in the folder `best` within that of the run, which has the same
form: whatever reads the folder of a run reads that one as well.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import (
    OBJECT,
    TEXT,
    InputError,
    Rule,
    integer,
    one_of,
    optional,
    real,
    require_record,
)
from bilm.core.products import PRECISIONS
from bilm.core.weight_names import Weight
from bilm.files.checkpoints import (
    STATE_FILE,
    SUFFIXES,
    checkpoint_prefix,
    is_whole,
    list_checkpoints,
    load_checkpoint,
    open_checkpoint,
    read_checkpoint,
    restore_tensor,
)
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, PathLike
from bilm.files.weights import named_states
from bilm.files.writing import atomic_write, flush_to_disk
from bilm.training.optimizer import SCHEDULES, Schedule

BEST_FOLDER = "best"
RECORD = "bilm/record"
# What the names of the LSTM states begin with.
STATES_PREFIX = "bilm/state/"
_TEMPORARY = ".model.ckpt-"
_NAME = re.compile(r"model\.ckpt-(0|[1-9]\d*)")
# Temporary files of a run: of checkpoints, and of the other files in its folder.
_FILES = "|".join(map(re.escape, (STATE_FILE, OPTIONS_FILE, VOCABULARY_FILE, "train_log.jsonl")))
_TEMPORARY_NAME = re.compile(rf"\.model\.ckpt-.*|\.({_FILES})\.[0-9a-f]{{8}}\.tmp")
_STEP, _PERPLEXITY = "global_step", "train_perplexity"


@dataclass(frozen=True)
class RunSettings:
    """What stays the same from the first step of a run to the last, beside the options.

    As for `train`; `init_from` is None for a run that began with initial values.
    """

    seed: int = 0
    precision: str = "float32"
    schedule: Schedule = Schedule()  # noqa: RUF009 - a frozen value
    init_from: str | None = None


@dataclass(frozen=True)
class HeldoutState:
    """What a checkpoint keeps of the held-out measurements.

    Attributes:
        best: lowest perplexity; None before the first measurement.
        best_step: global step of it.
        since_best: measurements since then.
        measured_at: global step of the last measurement.
        n_predictions: of the text, by which another text is noticed.
    """

    best: float | None = None
    best_step: int | None = None
    since_best: int = 0
    measured_at: int | None = None
    n_predictions: int | None = None


@dataclass(frozen=True)
class RunRecord:
    """What a checkpoint of ours says of its run.

    Attributes:
        step: global step.
        done: steps of the run.
        batch_shape: rows of a batch, of all workers, and tokens of a row.
        tokens: predictions of each direction that the model was trained on, by all
            calls; None if not known, as after a checkpoint of the original.
        passes: `tokens` as passes over the text; None if not known.
        seconds: time of the run's steps.
        train_perplexity: perplexity of the last batch.
        settings: of the run.
        heldout: what is known of the held-out text.
        iterator_state: of each worker's data set; None where the data set has none.
    """

    step: int
    done: int
    batch_shape: tuple[int, int]
    tokens: int | None
    passes: float | None
    seconds: float
    train_perplexity: float
    settings: RunSettings
    heldout: HeldoutState
    iterator_state: list[dict[str, Any] | None]

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON takes it; the seed is beside the step, a lone state is no list."""
        values = asdict(self)
        run, states = values.pop("settings"), values.pop("iterator_state")
        state = states if len(states) > 1 else states[0]
        return values | {"seed": run.pop("seed"), "run": run, "iterator_state": state}

    @classmethod
    def from_dict(cls, values: Any, source: str) -> RunRecord:
        """A record from what `to_dict` gave, read from JSON.

        Raises:
            InputError: it is not such an object; names `source` and the key.
        """
        if isinstance(values, dict) and "place" in values:  # its name in earlier versions
            values = {"iterator_state": values["place"]} | values
        if isinstance(values, dict):  # earlier versions did not count these
            values = {"tokens": None, "passes": None} | values
        require_record(values, _RULES, source)
        run = values["run"]
        state = values["iterator_state"]
        schedule = Schedule(run["schedule"]["kind"], run["schedule"]["warmup_steps"])
        return cls(
            values["step"],
            values["done"],
            tuple(values["batch_shape"]),
            values["tokens"],
            values["passes"],
            values["seconds"],
            values["train_perplexity"],
            RunSettings(values["seed"], run["precision"], schedule, run["init_from"]),
            HeldoutState(*(values["heldout"][field.name] for field in fields(HeldoutState))),
            state if isinstance(state, list) else [state],
        )


def _is_state(value: Any) -> bool:
    return value is None or isinstance(value, dict)


_COUNT = integer(0)
# A perplexity may be infinite.
_MEASURED = Rule(
    "a number >= 0", lambda x: isinstance(x, int | float) and not isinstance(x, bool) and x >= 0
)
_PAIR = Rule(
    "two integers >= 1",
    lambda x: isinstance(x, list) and len(x) == 2 and all(map(integer().holds, x)),
)
_STATES = Rule(
    "an object or null, or a list of them",
    lambda x: all(map(_is_state, x)) and x != [] if isinstance(x, list) else _is_state(x),
)
_RULES = {
    "step": _COUNT,
    "done": _COUNT,
    "seed": _COUNT,
    "batch_shape": _PAIR,
    "tokens": optional(_COUNT),
    "passes": optional(real(0)),
    "seconds": real(0),
    "train_perplexity": _MEASURED,
    "iterator_state": _STATES,
    "run": OBJECT,
    "run.precision": one_of(PRECISIONS),
    "run.init_from": optional(TEXT),
    "run.schedule": OBJECT,
    "run.schedule.kind": one_of(SCHEDULES),
    "run.schedule.warmup_steps": _COUNT,
    "heldout": OBJECT,
    "heldout.best": optional(_MEASURED),
    "heldout.best_step": optional(_COUNT),
    "heldout.since_best": _COUNT,
    "heldout.measured_at": optional(_COUNT),
    "heldout.n_predictions": optional(_COUNT),
}


def names_beside(table: Sequence[Weight]) -> list[str]:
    """Beginnings of the names that a checkpoint has besides the variables of a network."""
    slots = [f"{weight.checkpoint}/{slot}" for weight in table for slot in ("Adagrad", "Adam")]
    return [_STEP, _PERPLEXITY, "bilm/", *slots]


# Writing


def save_checkpoint(
    save_dir: PathLike,
    step: int,
    tensors: Mapping[str, Any],
    record: RunRecord | None = None,
    keep: int = 1,
) -> str:
    """Write `model.ckpt-{step}`, remove all but the newest `keep`, and return its prefix.

    The files get their names when they are on the disk, the index last: a checkpoint whose index
    is there is whole. Checkpoints of later steps, which were found damaged when the run went back
    to an earlier one, are removed.

    Args:
        save_dir: an existing folder.
        step: global step.
        tensors: name to float32 array, tensor or variable.
        record: what a resumed run needs; None writes none, as the original.
        keep: how many checkpoints to keep.

    Raises:
        OSError: the disk does not take it; no file is left of the attempt.
    """
    folder = os.fspath(save_dir)
    prefix = checkpoint_prefix(folder, step)
    temporary = os.path.join(folder, f"{_TEMPORARY}{uuid.uuid4().hex[:8]}")
    perplexity = 0.0 if record is None else record.train_perplexity
    named = {**tensors, _STEP: np.float32(step), _PERPLEXITY: np.float32(perplexity)}
    if record is not None:
        named[RECORD] = json.dumps(record.to_dict())
    names = sorted(named)
    try:
        with tf.device("/cpu:0"):
            values = [tf.convert_to_tensor(named[name]) for name in names]
            no_slices = [""] * len(names)
            tf.raw_ops.SaveV2(
                prefix=temporary, tensor_names=names, shape_and_slices=no_slices, tensors=values
            )
        for suffix in SUFFIXES:
            flush_to_disk(temporary + suffix)
        # An older index must not be there beside newer data, not even for a moment.
        Path(f"{prefix}.index").unlink(missing_ok=True)
        for suffix in SUFFIXES:
            os.replace(temporary + suffix, prefix + suffix)
    except tf.errors.OpError as error:
        raise OSError(f"{prefix}: cannot be written: {error.message}") from error
    finally:
        for left in Path(folder).glob(f"{_TEMPORARY}*"):
            left.unlink(missing_ok=True)
    tidy_folder(folder, step, keep)
    return prefix


def tidy_folder(save_dir: PathLike, step: int, keep: int) -> None:
    """Keep the newest `keep` checkpoints up to `step`, name them in the file `checkpoint`, and
    remove the others and what killed runs left of their files.

    Checkpoints of later steps were found damaged when the run went back to an earlier one. Files
    that a run does not write stay, also temporary ones.
    """
    folder = Path(save_dir)
    found = list_checkpoints(folder)
    kept = [os.path.basename(prefix) for n, prefix in found.items() if n <= step][-keep:]
    _write_state(folder, kept)
    _remove_checkpoints(folder, kept)
    for place in (folder, folder / BEST_FOLDER):
        if not place.is_symlink():
            for left in place.glob(".*"):
                if _TEMPORARY_NAME.fullmatch(left.name):
                    left.unlink()


def _remove_checkpoints(folder: Path, kept: Sequence[str]) -> None:
    """Remove the checkpoints of a folder other than those with the names `kept`."""
    for suffix in reversed(SUFFIXES):  # the index first
        for path in folder.glob(f"model.ckpt-*{suffix}"):
            name = path.name.removesuffix(suffix)
            if _NAME.fullmatch(name) and name not in kept:
                path.unlink()


def _write_state(folder: PathLike, names: Sequence[str]) -> None:
    """Write the file `checkpoint`, which names a folder's checkpoints, oldest first.

    TensorFlow's own function writes absolute paths, which are wrong when the folder is moved.
    """
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    with atomic_write(os.path.join(folder, STATE_FILE)) as temporary:
        Path(temporary).write_text("\n".join(lines) + "\n", encoding="utf-8")


def keep_best(save_dir: PathLike, prefix: str) -> str:
    """Keep a checkpoint as the best one of the folder `save_dir`; return its prefix there.

    The files are hard links where the file system allows, so they take no extra disk space. The
    previous best checkpoint is removed once the new one is in place.
    """
    folder = Path(save_dir, BEST_FOLDER)
    folder.mkdir(exist_ok=True)
    name = os.path.basename(prefix)
    for suffix in SUFFIXES:
        _link(prefix + suffix, folder / f"{name}{suffix}")
    _link(os.path.join(save_dir, OPTIONS_FILE), folder / OPTIONS_FILE)
    _write_state(folder, [name])
    _remove_checkpoints(folder, [name])
    return str(folder / name)


def find_best(ckpt_file: str, best_step: int) -> str | None:
    """The checkpoint of a run's best model, given another checkpoint of that run.

    None if it is not in the folder of `ckpt_file` or in its `best`, or is damaged.
    """
    folder = os.path.dirname(ckpt_file)
    places = (folder, os.path.join(folder, BEST_FOLDER))
    prefixes = [checkpoint_prefix(place, best_step) for place in places]
    return next((prefix for prefix in prefixes if is_whole(prefix)), None)


def require_own_best(save_dir: PathLike, is_resumed: bool) -> None:
    """Check that the best model can be kept in the folder `best` without touching other files.

    Args:
        save_dir: folder of the run.
        is_resumed: whether the run is resumed from a checkpoint in `save_dir`: then what is in
            `best` is its own.

    Raises:
        InputError: `best` is a link or not a folder, or holds files that are not this run's.
    """
    folder = Path(save_dir, BEST_FOLDER)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} must be a folder or not exist: the best model is kept there.")
    if not is_resumed and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"{folder} must be empty or not exist: the best model of the new run is kept there. "
            "Remove it, or choose another folder."
        )


def _link(source: str, target: Path) -> None:
    """Give a file a second name, in the place of a file that has it already."""
    with atomic_write(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(source, temporary)


# Reading


def read_record(ckpt_file: str) -> RunRecord | None:
    """What `save_checkpoint` recorded; None for a checkpoint of the original program.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        InputError: it is damaged, or the record is not right.
    """
    if not open_checkpoint(ckpt_file).has_tensor(RECORD):
        return None
    source = f"{ckpt_file}: {RECORD}"
    text = _read_value(ckpt_file, RECORD)
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise InputError(f"{source}: JSON in UTF-8 is expected: {error}") from error
    return RunRecord.from_dict(values, source)


def read_step(ckpt_file: str) -> int:
    """The global step of a checkpoint; errors as for `read_record`."""
    step = _read_value(ckpt_file, _STEP)
    if isinstance(step, np.number) and np.isfinite(step) and step >= 0:
        return int(step)
    raise InputError(f"{ckpt_file}: {_STEP}: a number from 0 is expected, not {step!r}.")


def _read_value(ckpt_file: str, name: str) -> Any:
    types = open_checkpoint(ckpt_file).get_variable_to_dtype_map()
    return restore_tensor(ckpt_file, name, types.get(name, tf.float32)).numpy()


def load_variables(
    ckpt_file: str, table: Sequence[Weight], slots: Mapping[str, Any] | None = None
) -> None:
    """Set variables, and the optimizer's slots if they are given by name, from a checkpoint.

    Errors as for `bilm.files.checkpoints.read_checkpoint`.
    """
    targets = {weight.checkpoint: weight.variable.value for weight in table}
    targets |= slots or {}
    load_checkpoint(ckpt_file, targets, names_beside(table))


def load_states(ckpt_file: str, zero_states: Any) -> Any:
    """The LSTM states of a checkpoint of ours, in the form of `zero_states`."""
    named = named_states(zero_states, STATES_PREFIX)
    shapes = {name: tuple(value.shape) for name, value in named.items()}
    values = read_checkpoint(ckpt_file, shapes, ("lm/", _STEP, _PERPLEXITY, RECORD))
    return tf.nest.pack_sequence_as(zero_states, [tf.constant(values[name]) for name in named])


def load_mean_states(ckpt_file: str, zero_states: Callable[[int], Any]) -> Any:
    """The LSTM states of a checkpoint of ours, averaged over the rows: (1, ...) of each direction.

    None for one that holds none, as those of the original program; `zero_states` gives states for
    a number of rows.
    """
    record = read_record(ckpt_file)
    if record is None:
        return None
    return mean_over_rows(load_states(ckpt_file, zero_states(record.batch_shape[0])))


def mean_over_rows(states: Any) -> Any:
    """States (batch, ...) averaged to one row, (1, ...)."""
    return tf.nest.map_structure(lambda x: tf.reduce_mean(x, axis=0, keepdims=True), states)
