"""The folder of a run: options, checkpoints, the best model and the log; and resuming from them.

All workers contribute their LSTM states to a checkpoint; the chief writes the files.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import NotFiniteError
from bilm.core.options import Options
from bilm.data import IteratorState
from bilm.files import checkpoints
from bilm.files.reading import OPTIONS_FILE, read_json_object
from bilm.files.run_log import RunLog
from bilm.files.weights import named_states
from bilm.files.writing import write_json
from bilm.training.state import (
    RECORD,
    STATES_PREFIX,
    WORD_COUNTS,
    RunState,
    load_lstm_states,
    read_state,
)
from bilm.training.trainer import Trainer

logger = logging.getLogger(__name__)


class RunFolder:
    """The folder of a run, and its log.

    Args:
        path: the folder.
        keep: number of checkpoints to keep.
        log: None: no log.
        other_options: the run's options file, whose unknown keys are kept.
        writes: False for workers other than the chief.
    """

    def __init__(
        self,
        path: str,
        keep: int,
        log: RunLog | None,
        other_options: Mapping[str, Any],
        writes: bool = True,
    ) -> None:
        self.path = path
        self.log = log
        self.word_counts: np.ndarray | None = None  # of the training text, stored in checkpoints
        self._keep = keep
        self._other_options = other_options
        self._writes = writes
        self._written: Options | None = None  # by this call
        self._saved: dict[str, Any] | None = None  # the state in the last checkpoint

    def write_options(self, options: Options) -> None:
        """Write options.json, if it changes."""
        if self._writes and options != self._written:
            contents = with_unknown_keys(options.training_dict(), self._other_options)
            write_json(os.path.join(self.path, OPTIONS_FILE), contents)
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

    def resume(self, state: RunState, trainer: Trainer, ckpt_file: str, is_resumed: bool) -> None:
        """Continue from a checkpoint; `is_resumed`: it is in this folder.

        The best model is copied to the folder, if it is missing there. If it is missing next to the
        checkpoint, the best perplexity and patience start again.
        """
        _restore(state, trainer, ckpt_file)
        best = None
        if is_resumed:
            # A crash may have occurred before this checkpoint was kept as the best one.
            best = ckpt_file if state.best_step == state.step else None
        elif state.best_step is not None:
            best = checkpoints.find_best(ckpt_file, state.best_step)
            if best is None:
                logger.warning(
                    "%s: the best model of its run (step %d) is missing next to it: the best "
                    "perplexity and patience start again", ckpt_file, state.best_step,
                )  # fmt: skip
                state.forget_best()
        if best is not None:
            self.write_options(trainer.options)
            self.keep_best(best)


def with_unknown_keys(contents: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of an options file, with the keys of another one that are not options."""
    names = {each.name for each in dataclasses.fields(Options)}
    nested = {
        name: {**other[name], **values}
        for name, values in contents.items()
        if isinstance(values, dict) and isinstance(other.get(name), Mapping)
    }
    return {name: other[name] for name in other if name not in names} | contents | nested


def stored_options(path: str) -> Mapping[str, Any]:
    """The contents of a folder's options.json; empty if it is missing."""
    file = os.path.join(path, OPTIONS_FILE)
    return read_json_object(file, "options file") if os.path.exists(file) else {}


def _restore(state: RunState, trainer: Trainer, ckpt_file: str) -> None:
    """Set the variables, the LSTM states and the iterator state of a run; `state` has everything
    else of the checkpoint already, except its batch shape."""
    with trainer.replicas.scope():
        checkpoints.load_variables(ckpt_file, trainer.table, trainer.slots)
    saved = read_state(ckpt_file)
    if saved is None:
        # The original did not record its number of devices.
        state.step, state.tokens, state.passes = checkpoints.read_step(ckpt_file), None, None
        return
    worker, states = trainer.replicas.worker, saved.iterator_state
    if (saved.batch_shape, len(states)) == (trainer.batch_shape, worker.count):
        zeros = trainer.model.network.zero_states(trainer.batch_shape[0])
        trainer.lstm_states = trainer.local_states(load_lstm_states(ckpt_file, zeros))
        state.iterator_state = (states[worker.index],)
    else:
        state.iterator_state = (_other_rows(trainer, ckpt_file, saved),)


def _other_rows(trainer: Trainer, ckpt_file: str, saved: RunState) -> IteratorState | None:
    """The iterator state for another batch shape or number of workers."""
    worker, n_saved = trainer.replicas.worker, len(saved.iterator_state)
    is_same = n_saved == worker.count
    logger.warning(
        "%s: batches were %d rows by %d tokens and are now %d by %d%s; the LSTM states start at "
        "zero, and %s",
        ckpt_file, *saved.batch_shape, *trainer.batch_shape,
        "" if is_same else f", workers were {n_saved} and are now {worker.count}",
        "the text continues with new sentences" if is_same else
        "the shard that was being read is read again from its start",
    )  # fmt: skip
    states = [state for state in saved.iterator_state if state is not None]
    if not states:
        return None
    if is_same:
        state = states[worker.index]
    else:
        state = min(states, key=lambda state: state.shard).with_worker(*worker.share)
    return state.with_batches(*trainer.feed_shape)
