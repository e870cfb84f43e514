"""The folder of a run: checkpoints, the best model, options and log; and resuming from them.

All workers contribute their LSTM states to a checkpoint; the chief writes the files.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import NotFiniteError
from bilm.core.options import Options
from bilm.data import IteratorState
from bilm.files import checkpoints
from bilm.files.reading import OPTIONS_FILE
from bilm.files.run_log import RunLog
from bilm.files.weights import named_states
from bilm.files.writing import write_json
from bilm.training.run_state import (
    RUN_STATE,
    STATES_PREFIX,
    WORD_COUNTS,
    HeldoutState,
    RunState,
    load_states,
    read_run_state,
)
from bilm.training.schedule import Plan

if TYPE_CHECKING:
    from bilm.training.loop import Run

logger = logging.getLogger(__name__)


@dataclass
class RunFiles:
    """The files of a run. `writes` is False for workers other than the chief."""

    folder: str
    keep: int = 1  # checkpoints
    log: RunLog | None = None
    writes: bool = True
    unknown_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # keys to keep
    _has_options: bool = False  # options were written by this call

    def write_options(self, options: Options) -> None:
        if self.writes:
            contents = {**self.unknown_options, **options.training_dict()}
            write_json(os.path.join(self.folder, OPTIONS_FILE), contents)
            self._has_options = True

    def go_back(self, step: int) -> None:
        """Drop lines of the log after a step."""
        if self.log is not None:
            self.log.go_back(step)

    def log_line(self, **facts: Any) -> None:
        if self.log is not None:
            self.log.write(**facts)

    def save(self, run: Run) -> str:
        """Write a checkpoint, keep the newest `keep`, and return its prefix.

        Nothing is written if a value is not finite.
        """
        state, trainer, replicas = run.state, run.trainer, run.trainer.replicas
        tensors: dict[str, Any] = {w.checkpoint: w.variable.value for w in trainer.table}
        tensors |= trainer.slots
        tensors |= named_states(replicas.gathered(trainer.lstm_states), STATES_PREFIX)
        for name, tensor in tensors.items():
            if not tf.reduce_all(tf.math.is_finite(tensor)):
                raise NotFiniteError(f"Step {state.step}: {name} has non-finite values.")
        saved = state.to_dict()
        iterator_states = replicas.all_gather(saved["iterator_state"])
        if self.writes:
            if not self._has_options:
                self.write_options(trainer.options)
            saved["iterator_state"] = (
                iterator_states if len(iterator_states) > 1 else iterator_states[0]
            )
            tensors[RUN_STATE] = json.dumps(saved)
            if run.word_counts is not None:
                tensors[WORD_COUNTS] = run.word_counts
            tensors[checkpoints.PERPLEXITY] = np.float32(state.train_perplexity)
            checkpoints.save_checkpoint(self.folder, state.step, tensors, self.keep)
        return checkpoints.checkpoint_prefix(self.folder, state.step)

    def keep_best(self, ckpt_file: str) -> None:
        if self.writes:
            checkpoints.keep_best(self.folder, ckpt_file)

    def tidy(self, step: int) -> None:
        if self.writes:
            checkpoints.tidy_folder(self.folder, step, self.keep)

    def last_checkpoint(self) -> str | None:
        return next(reversed(checkpoints.list_checkpoints(self.folder).values()), None)


def previous_plan(ckpt_file: str, saved: RunState, options: Options) -> Plan:
    """The plan of the run that wrote a checkpoint; by its options if an older version wrote it."""
    if saved.plan.settings:
        return saved.plan
    path = os.path.join(os.path.dirname(ckpt_file), OPTIONS_FILE)
    if os.path.exists(path):
        options = Options.from_file(path, training=True)
    return Plan.from_options(options, saved.tokens_per_step)


def resume(run: Run, ckpt_file: str, is_resumed: bool) -> None:
    """Continue from a checkpoint; `is_resumed`: it is in the run's own folder.

    The best model is copied to the folder, if it is missing there. If it is missing next to the
    checkpoint, the best perplexity and patience start again.
    """
    _restore(run, ckpt_file)
    best_step, best = run.state.heldout.best_step, None
    if is_resumed:
        # A crash may have occurred before this checkpoint was kept as the best one.
        best = ckpt_file if best_step == run.state.step else None
    elif best_step is not None:
        best = checkpoints.find_best(ckpt_file, best_step)
        if best is None:
            run.state = dataclasses.replace(run.state, heldout=HeldoutState())
            logger.warning(
                "%s: the best model of its run (step %d) is missing next to it: the best "
                "perplexity and patience start again", ckpt_file, best_step,
            )  # fmt: skip
    if best is not None:
        run.files.write_options(run.trainer.options)
        run.files.keep_best(best)


def _restore(run: Run, ckpt_file: str) -> None:
    """Set the variables, the LSTM states and the state of a run from a checkpoint."""
    trainer, state = run.trainer, run.state
    with trainer.replicas.scope():
        checkpoints.load_variables(ckpt_file, trainer.table, trainer.slots)
    saved = read_run_state(ckpt_file)
    if saved is None:
        # The original did not record its number of devices.
        step = checkpoints.read_step(ckpt_file)
        run.state = dataclasses.replace(state, step=step, tokens=None, passes=None)
        return
    worker, states = trainer.replicas.worker, saved.iterator_state
    if (saved.batch_shape, len(states)) == (state.batch_shape, worker.count):
        zeros = trainer.model.network.zero_states(state.batch_shape[0])
        trainer.lstm_states = trainer.local_states(load_states(ckpt_file, zeros))
        iterator_state = states[worker.index]
    else:
        iterator_state = _other_rows(run, ckpt_file, saved)
    # The seed determines the random numbers, so a resumed run keeps its own.
    settings = dataclasses.replace(
        state.settings, seed=saved.settings.seed, init_from=saved.settings.init_from
    )
    run.state = dataclasses.replace(
        saved,
        batch_shape=state.batch_shape,
        plan=state.plan,
        settings=settings,
        iterator_state=(iterator_state,),
    )


def _other_rows(run: Run, ckpt_file: str, saved: RunState) -> IteratorState | None:
    """The iterator state for another batch shape or number of workers."""
    worker, n_saved = run.trainer.replicas.worker, len(saved.iterator_state)
    is_same = n_saved == worker.count
    logger.warning(
        "%s: batches were %d rows by %d tokens and are now %d by %d%s; the LSTM states start at "
        "zero, and %s",
        ckpt_file, *saved.batch_shape, *run.state.batch_shape,
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
    return state.with_batches(*run.trainer.feed_shape)
