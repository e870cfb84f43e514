"""The folder of a run: options, vocabulary, checkpoints, the best model and the log.

All workers contribute their LSTM states to a checkpoint; the chief writes the files.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, NotFiniteError
from bilm.core.options import Options
from bilm.data.vocabulary import Vocabulary
from bilm.files import checkpoints
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, PathLike, read_json_object
from bilm.files.run_log import LOG_FILE, RunLog
from bilm.files.weights import named_states
from bilm.files.writing import atomic_write, write_json
from bilm.training.state import RECORD, STATES_PREFIX, WORD_COUNTS, RunState
from bilm.training.trainer import Trainer


class RunFolder:
    """The folder of a run, and its log.

    Args:
        path: the folder.
        keep: number of checkpoints to keep.
        log: None: no log.
        other_options: the run's options file, whose unknown keys are kept.
        vocabulary: written as vocab.txt unless that exists; None: not written.
        writes: False for workers other than the chief.
    """

    def __init__(
        self,
        path: str,
        keep: int,
        log: RunLog | None,
        other_options: Mapping[str, Any],
        vocabulary: Vocabulary | None,
        writes: bool = True,
    ) -> None:
        self.path = path
        self.log = log
        self.word_counts: np.ndarray | None = None  # of the training text, stored in checkpoints
        self._keep = keep
        self._other_options = other_options
        self._vocabulary = vocabulary
        self._writes = writes
        self._written: Options | None = None  # by this call
        self._saved: dict[str, Any] | None = None  # the state in the last checkpoint

    def write_options(self, options: Options) -> None:
        """Write options.json, if it changes, and vocab.txt, if it is missing."""
        if not self._writes or options == self._written:
            return
        contents = with_unknown_keys(options.training_dict(), self._other_options)
        write_json(os.path.join(self.path, OPTIONS_FILE), contents)
        words = os.path.join(self.path, VOCABULARY_FILE)
        if self._vocabulary is not None and not os.path.exists(words):
            with atomic_write(words) as temporary:
                lines = "".join(f"{word}\n" for word in self._vocabulary.words)
                Path(temporary).write_text(lines, encoding="utf-8", newline="\n")
        self._written = options

    def log_line(self, state: RunState, **facts: Any) -> None:
        if self.log is not None:
            seconds = round(state.run_seconds, 3)
            self.log.write(
                step=state.step, epoch=state.epoch, **facts, tokens=state.position, seconds=seconds
            )

    def save(self, state: RunState, trainer: Trainer) -> None:
        """Write a checkpoint if the state has changed since the last one, and keep the newest.

        Nothing is written if a value is not finite.
        """
        stored = state.to_dict()
        if stored == self._saved:
            return
        tensors: dict[str, Any] = {w.checkpoint: w.variable.value for w in trainer.table}
        tensors |= trainer.slots
        lstm_states = trainer.replicas.gathered(trainer.lstm_states)
        tensors |= named_states(lstm_states, STATES_PREFIX)
        for name, tensor in tensors.items():
            if not tf.reduce_all(tf.math.is_finite(tensor)):
                raise NotFiniteError(f"Step {state.step}: {name} has non-finite values.")
        iterator_states = trainer.replicas.all_gather(stored["iterator_state"])
        if self._writes:
            self.write_options(trainer.options)
            of_all = stored | {"iterator_state": [each for [each] in iterator_states]}
            tensors[RECORD] = json.dumps(of_all)
            if self.word_counts is not None:
                tensors[WORD_COUNTS] = self.word_counts
            tensors[checkpoints.PERPLEXITY] = np.float32(state.perplexity)
            checkpoints.save_checkpoint(self.path, state.step, tensors, self._keep)
        self.set_saved(state, checkpoints.checkpoint_prefix(self.path, state.step))

    def set_saved(self, state: RunState, ckpt_file: str) -> None:
        """Record that a checkpoint holds the current state."""
        state.checkpoint, self._saved = ckpt_file, state.to_dict()

    def keep_best(self, ckpt_file: str) -> None:
        if self._writes:
            checkpoints.keep_best(self.path, ckpt_file)

    def tidy(self, step: int) -> None:
        if self._writes:
            checkpoints.tidy_folder(self.path, step, self._keep)

    def last_checkpoint(self) -> str | None:
        return next(reversed(checkpoints.list_checkpoints(self.path).values()), None)


def with_unknown_keys(contents: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of an options file, with the keys of another one that are not options."""
    names = {each.name for each in dataclasses.fields(Options)}
    nested = {
        name: {**other[name], **values}
        for name, values in contents.items()
        if isinstance(values, dict) and isinstance(other.get(name), Mapping)
    }
    return {name: other[name] for name in other if name not in names} | contents | nested


# Checks before a run


def check_folder(tf_save_dir: PathLike, restart_ckpt_file: str | None, *, uses_best: bool) -> bool:
    """Require that no model is overwritten; return whether the checkpoint is in the folder.

    If it is, the best model in the folder belongs to the run. With `uses_best`, the folder must
    otherwise not have the files of another best model.
    """
    folder = os.path.realpath(tf_save_dir)
    best = os.path.join(tf_save_dir, checkpoints.BEST_FOLDER)
    is_resumed = bool(restart_ckpt_file) and folder == os.path.dirname(
        os.path.realpath(restart_ckpt_file or "")
    )
    if not is_resumed and checkpoints.holds_checkpoint(tf_save_dir):
        raise InputError(
            f"{os.fspath(tf_save_dir)}: the folder holds a trained model; it is not "
            f"overwritten. Restart from its checkpoint, or choose another folder."
        )
    is_free = os.path.isdir(best) and (is_resumed or not os.listdir(best))
    if uses_best and os.path.lexists(best) and not is_free:
        raise InputError(
            f"{best}, for the best model of the run, must be an empty folder or not exist: "
            "remove it, or choose another folder."
        )
    if not is_resumed:
        return False
    prefixes = list(checkpoints.list_checkpoints(folder).values())
    start = os.path.join(folder, os.path.basename(restart_ckpt_file or ""))
    for prefix in prefixes[prefixes.index(start) + 1 :] if start in prefixes else []:
        # A damaged checkpoint may be replaced; a warning has been logged before.
        if checkpoints.is_intact(prefix):
            raise InputError(
                f"{restart_ckpt_file}: the folder has a newer checkpoint, "
                f"{os.path.basename(prefix)}, which would be lost. Resume from that one, or "
                "train into another folder."
            )
    return True


def check_options(tf_save_dir: PathLike, contents: dict[str, Any]) -> None:
    """Require that options can be written, and that no other options.json is overwritten, such as a
    model's inference options."""
    try:
        ours = json.loads(json.dumps(contents))
    except (TypeError, ValueError) as error:
        raise InputError(f"options must hold values of JSON only: {error}.") from None
    is_run = checkpoints.holds_checkpoint(tf_save_dir) or Path(tf_save_dir, LOG_FILE).exists()
    if is_run or not (stored := dict(stored_options(tf_save_dir))):
        return
    for name in ("n_train_tokens", "n_epochs", "n_steps", "dropout"):  # `train` may choose these
        stored.pop(name, None)
        ours.pop(name, None)
    if stored != ours:
        raise InputError(
            f"{Path(tf_save_dir, OPTIONS_FILE)} must not exist, because its options are not those "
            "of this run: choose another folder, or remove it."
        )


def stored_options(path: PathLike) -> Mapping[str, Any]:
    """The contents of a folder's options.json; empty if it is missing."""
    file = os.path.join(path, OPTIONS_FILE)
    return read_json_object(file, "options file") if os.path.exists(file) else {}
