"""The loop of a run: rate, step, log, evaluate, save.

With several workers, each runs the same loop. Decisions depend only on the state, which is the same
for all workers, or on the `Signals` of a step, which are averaged with its losses. If a worker
fails, its process ends, and then the other workers end too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilm.core.errors import InputError, NotFiniteError, TrainingError, WorkerLostError
from bilm.data import IteratorState, prefetch
from bilm.inference.scorer import Perplexity, Scorer, exp_of_loss
from bilm.intervals import Interval
from bilm.training import planning
from bilm.training.evaluation import evaluate
from bilm.training.inputs import read_inputs
from bilm.training.interrupts import Interrupts
from bilm.training.run_state import RunState, TrainingRecord, mean_over_rows
from bilm.training.saving import RunFiles
from bilm.training.schedule import steps_per_epoch
from bilm.training.trainer import Signals, Trainer

logger = logging.getLogger(__name__)

Progress = Callable[[TrainingRecord], bool | None]

_HELDOUT_ROWS = 128
_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches
# Errors after which the finished steps cannot be saved, with hints.
_HINTS: dict[type, str] = {
    NotFiniteError: " A lower learning_rate may help.",
    WorkerLostError: " To resume from it, start the same command for all workers.",
}


@dataclass
class Run:
    """A call of `train`: the loop over its steps."""

    trainer: Trainer
    data: Any
    files: RunFiles
    record: TrainingRecord
    begun: float  # by time.monotonic()
    save_seconds: float = math.inf  # between checkpoints
    progress: Progress | None = None
    heldout: Any = None  # this worker's held-out text
    every: Interval = Interval(1, "epochs")  # noqa: RUF009 - frozen; between evaluations
    patience: int | None = None
    word_counts: np.ndarray | None = None  # counts at the beginning of the training text

    def __post_init__(self) -> None:
        self._scorer = Scorer(self.trainer.model)
        self._evaluated_at = self._saved_at = time.monotonic()
        self._evaluation_seconds = 0.0  # of the fastest evaluation: the first one also compiles
        self._asks_to_stop = False  # by this worker's `progress`
        self._is_stopped = False  # by the signals of all workers
        self._saved: RunState | None = None  # the state in the last checkpoint
        self._meter = planning.SpeedMeter()

    @property
    def state(self) -> RunState:
        return self.record.state

    @state.setter
    def state(self, state: RunState) -> None:
        self.record.state = state
        self.record.epoch = 1 + max(0, state.done - 1) // self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.trainer.options, self.state.tokens_per_step)

    def train(self) -> TrainingRecord:
        """Do the remaining steps of the run."""
        self.record.first, self._interrupts = self.state, Interrupts()
        self.files.go_back(self.state.step)
        with self._interrupts.handled(), self._rescuing():
            inputs = read_inputs(self.trainer, self.data, lambda: self.state)
            with contextlib.closing(prefetch(inputs, _READ_AHEAD)) as batches:
                self._train_steps(batches)
            if self.state.position == 0:
                shape = "{} rows by {} tokens".format(*self.trainer.feed_shape)
                raise InputError(f"The data holds no batch of {shape}.")
            self._evaluate(True)
            self._save()
            self.files.tidy(self.state.step)
        return self.record

    def _train_steps(self, batches: Iterator[Any]) -> None:
        """The training loop: rate, step, log, evaluate, save, report."""
        self._evaluate(False)  # the last step of an earlier call may not have been evaluated
        while (batch := self._next(batches)) is not None:
            rate = self._set_rates()
            signals = self._train_step(*batch)
            self._log_step(rate)
            self._evaluate(signals.evaluate > 0)
            self._measure_speed(signals)
            if signals.save > 0:
                self._save()
            self._report(signals)

    def _next(self, batches: Iterator[Any]) -> Any:
        """The next batch; None at the end of the run."""
        self._interrupts.due()
        since_best, patience = self.state.heldout.since_best, self.patience
        if self._is_stopped:
            return None
        if patience is not None and since_best >= patience:
            self.record.stopped_early = not self.state.is_over
            return None
        self._step_begun = time.monotonic()
        batch = next(batches, None)
        # In a run by time, batches may have been read ahead before its length was fixed.
        if self.state.is_over:
            return None
        if batch is None and self.trainer.replicas.worker.count > 1:
            raise InputError("The data of a worker must not end before the run.")
        return batch

    def _set_rates(self) -> float:
        """Set the learning rates of the next step; return Adagrad's."""
        state, kind = self.state, self.trainer.options.schedule
        factor = state.plan.factor(kind, state.position, state.tokens_per_step)
        with self.trainer.replicas.scope():
            return self.trainer.optimizer.set_rates(factor, state.done)

    def _train_step(self, inputs: Any, iterator_state: IteratorState | None) -> Signals:
        """Do a step; if the loss is not finite, raise a NotFiniteError and keep the states."""
        trainer = self.trainer
        losses, states, signals = trainer.run_step(inputs, trainer.lstm_states, self._signals())
        loss = float(np.mean(losses))
        if not math.isfinite(loss):
            text = f"Step {self.state.step + 1}: the loss is {loss}."
            if hasattr(self.data, "describe_state"):
                where = self.data.describe_state(self.state.iterator_state[0])
                text += f" Its batch starts at {where}."
            raise NotFiniteError(text)
        trainer.lstm_states, now = states, time.monotonic()
        self.state = self.state.after_step(
            trainer.options.n_train_tokens,
            train_perplexity=exp_of_loss(loss),
            iterator_state=(iterator_state,),
            seconds=self.state.seconds + now - self._step_begun,
            elapsed=self.record.first.elapsed + now - self.begun,
        )
        self.record.train_perplexity.append(self.state.train_perplexity)
        return signals

    def _signals(self) -> Signals:
        """This worker's signals for the next step."""
        stop = float(self._asks_to_stop)
        if not self.trainer.replicas.worker.is_chief:
            return Signals(stop)
        now, every = time.monotonic(), self.every
        return Signals(
            stop,
            save=float(now - self._saved_at > self.save_seconds),
            evaluate=float(every.unit == "seconds" and now - self._evaluated_at >= every.number),
            elapsed=self.record.first.elapsed + now - self.begun,
            seconds=self.state.seconds,
            evaluation_seconds=self._evaluation_seconds,
        )

    def _report(self, signals: Signals) -> None:
        """Call `progress`. Any worker may end the run; with several workers, one step later."""
        self._asks_to_stop = self.progress is not None and bool(self.progress(self.record))
        is_alone = self.trainer.replicas.worker.is_alone
        self._is_stopped = self._asks_to_stop if is_alone else signals.stop > 0

    def _log_step(self, rate: float) -> None:
        done = self.state.done
        if done % _LOG_EVERY == 0 or done == 1 or self.state.is_over:
            self._log(
                train_perplexity=self.state.train_perplexity,
                sampled=self.trainer.model.samples,
                learning_rate=rate,
            )

    def _log(self, **facts: Any) -> None:
        state = self.state
        tokens, seconds = state.position, round(state.seconds, 3)
        self.files.log_line(
            step=state.step, epoch=self.record.epoch, **facts, tokens=tokens, seconds=seconds
        )

    def _evaluate(self, now: bool) -> None:
        """Evaluate the held-out text if the interval has passed, or `now` in any case, but at most
        once per step; and keep the best model. Each worker scores its share."""
        state, step, begun = self.state, self.state.step, time.monotonic()
        is_due = now or self.every.falls_on(state.done, self.steps_per_epoch)
        if self.heldout is None or not is_due or state.heldout.measured_at == step:
            return
        share = evaluate(
            self._scorer,
            self.heldout,
            _HELDOUT_ROWS,
            training_states=mean_over_rows(self.trainer.lstm_states[0]),
            show=lambda _: self._interrupts.due(),
        )
        values = share.losses.tolist(), share.n_predictions, share.checksum
        losses, counts, checksums = zip(*self.trainer.replicas.all_gather(values), strict=True)
        perplexity = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        perplexity.checksum = sum(checksums) % 2**32
        perplexity.unknown, perplexity.start_ratio = share.unknown, share.start_ratio
        heldout = state.heldout.after(perplexity, step)
        self.state = dataclasses.replace(state, heldout=heldout)
        if self.trainer.replicas.worker.is_chief:
            perplexity.warn_if_lost(self.trainer.options.reset_rate)
        ratios = perplexity.start_ratios().items()
        self._log(
            heldout_perplexity=float(perplexity),
            heldout_forward=perplexity.forward,
            heldout_backward=perplexity.backward,
            best=heldout.best_step == step,
            **{f"start_ratio_{name}": ratio for name, ratio in ratios if math.isfinite(ratio)},
        )
        self.record.heldout.append((step, perplexity))
        self._evaluated_at = time.monotonic()
        seconds = self._evaluated_at - begun
        self._evaluation_seconds = min(self._evaluation_seconds or seconds, seconds)
        if heldout.best_step == step:
            self.files.keep_best(self._save())

    def _measure_speed(self, signals: Signals) -> None:
        """Fix the length of a run by time once a fifth of its time has passed.

        Until then the learning rates do not decay. The dropout depends on the length, so it is
        chosen first, and the speed is measured again with it.
        """
        state, n = self.state, self.record.n_steps
        plan = state.plan
        if plan.seconds is None or plan.end is not None:
            return
        share = signals.elapsed / plan.seconds
        per_step = self._meter.seconds_per_step(n, signals.seconds, share)
        if per_step is None:
            return
        remaining = plan.seconds - signals.elapsed - per_step
        if self.trainer.options.dropout is None:
            tokens = state.position + remaining / per_step * state.tokens_per_step
            dropout = planning.choose_dropout(tokens / (self.trainer.options.n_train_tokens or 1))
            self.trainer.options = dataclasses.replace(self.trainer.options, dropout=dropout)
            if dropout:  # the compiled step has none
                self.trainer.compile_step()
                self._meter.restart(n + 1)
            return
        if share < planning.FIXED_AT:
            return
        if self.heldout is not None:
            if not signals.evaluation_seconds:
                self._evaluate(True)
                return  # its duration arrives with the signals of the next step
            # An evaluation after this step is not included in `signals.elapsed`.
            if self.state.heldout.measured_at == self.state.step:
                remaining -= signals.evaluation_seconds
            per_step, remaining = planning.with_evaluations(
                per_step, remaining, signals.evaluation_seconds, self.every, self.steps_per_epoch
            )
        n_steps = self.state.done + planning.steps_in(per_step, remaining, self.state.done)
        self.trainer.options = dataclasses.replace(self.trainer.options, n_steps=n_steps)
        end = n_steps * self.state.tokens_per_step
        plan = plan.fixed(self.state.position, end, self.trainer.options)
        self.state = dataclasses.replace(self.state, plan=plan)
        # From this checkpoint on, the run can be resumed bit for bit.
        self._save()
        self.files.write_options(self.trainer.options)

    def _save(self) -> str:
        """Write a checkpoint if the state has changed since the last one; return its prefix."""
        if self.record.checkpoint is None or self._saved is not self.state:
            self.mark_saved(self.files.save(self))
        self._saved_at = time.monotonic()
        return self.record.checkpoint or ""

    def mark_saved(self, ckpt_file: str) -> None:
        """Record that a checkpoint holds the current state."""
        self.record.checkpoint, self._saved = ckpt_file, self.state

    @contextlib.contextmanager
    def _rescuing(self) -> Iterator[None]:
        """On an error, save the finished steps and name the checkpoint to resume from."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._interrupts.insisted:
                self._rescue()
            raise
        except (InputError, OSError, TrainingError) as error:
            hint = _HINTS.get(type(error))
            if hint is None and self.record.n_steps == 0:
                raise
            text = str(error)
            if isinstance(error, OSError) and error.strerror is not None:
                text = f"{error.filename}: {error.strerror}."
            if hint is None:
                self._rescue()
            last = self.files.last_checkpoint()
            where = "there is no checkpoint" if last is None else f"the last checkpoint is {last}"
            text += f" Training stopped after step {self.state.step}; {where}."
            raise type(error)(text + (hint or "")) from error

    def _rescue(self) -> None:
        """Save the finished steps, if any. With several workers this is impossible, because the
        others are within a step."""
        if self.record.n_steps > 0 and self.trainer.replicas.worker.count == 1:
            try:
                self._save()
            except (OSError, TrainingError) as error:
                logger.warning("not saved: %s", error)
