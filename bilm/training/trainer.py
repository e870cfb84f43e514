"""A run: the loop over its steps, and the step: loss, gradients, update.

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
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, NotFiniteError, TrainingError, WorkerLostError
from bilm.core.language_model import LanguageModel
from bilm.core.lstm import BatchSlice, Dropout, Mode, States
from bilm.core.options import Options
from bilm.core.softmax import Negatives
from bilm.core.weight_names import WORD_ROWS, lstm_blocks
from bilm.data import Batch, IteratorState, prefetch, reading_method
from bilm.inference.feed import make_feed
from bilm.inference.scorer import Perplexity, exp_of_loss
from bilm.intervals import Interval
from bilm.training import planning
from bilm.training.inputs import StepInputs, step_inputs
from bilm.training.interrupts import Interrupts
from bilm.training.optimizer import Optimizer
from bilm.training.replicas import Replicas
from bilm.training.run_state import RunSettings, RunState, TrainingRecord, mean_over_rows
from bilm.training.saving import RunFiles
from bilm.training.schedule import Plan, steps_per_epoch
from bilm.training.softmax_start import SoftmaxStart

logger = logging.getLogger(__name__)

AllStates = tuple[tuple[States, ...], ...]  # per replica of this worker and direction
Progress = Callable[[TrainingRecord], bool | None]

_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches
# Errors after which the finished steps cannot be saved, with hints.
_HINTS: dict[type, str] = {
    NotFiniteError: " A lower learning_rate may help.",
    WorkerLostError: " To resume from it, start the same command for all workers.",
}


class Signals(NamedTuple):
    """Numbers that the workers exchange with a step; all but `stop` come from the chief."""

    stop: float = 0.0  # > 0 if `progress` asked to end the run
    save: float = 0.0  # > 0 if a checkpoint is due
    evaluate: float = 0.0  # > 0 if an evaluation is due
    elapsed: float = 0.0  # seconds of the run
    seconds: float = 0.0  # seconds of its steps
    evaluation: float = 0.0  # seconds of an evaluation, 0 before the first one


_QUIET = Signals()


class Trainer:
    """A model in training, with its optimizer, its LSTM states, and the state of its run.

    Args:
        options: training options.
        replicas: devices of the run; None: one device.
        settings: seed and precision.
        data: text to train on.
        plan: length of the run; None: from the options.
    """

    record: TrainingRecord
    files: RunFiles
    score: Callable[..., Perplexity] | None = None  # scores this worker's held-out text
    every: Interval = Interval(1, "epochs")  # between evaluations
    patience: int | None = None
    word_counts: np.ndarray | None = None  # counts at the beginning of the training text
    progress: Progress | None = None
    save_seconds = math.inf

    def __init__(
        self,
        options: Options,
        replicas: Replicas | None = None,
        settings: RunSettings | None = None,
        data: Any = None,
        plan: Plan | None = None,
    ) -> None:
        self.options, self.data = options, data
        self.replicas = replicas = replicas or Replicas()
        settings = settings or RunSettings()
        shape = (options.batch_size * replicas.n, options.unroll_steps)
        plan = plan or Plan.from_options(options, math.prod(shape))
        self.state = RunState(shape, plan=plan, settings=settings)
        # Rows of this worker in a batch, and tokens per row.
        self.feed_shape = (options.batch_size * replicas.n_local, options.unroll_steps)
        self.steps_per_epoch = steps_per_epoch(options, math.prod(shape))
        with replicas.scope(), replicas.reachable():
            self.model = LanguageModel(
                options, seed=settings.seed, precision=settings.precision, mode=Mode.TRAINING
            )
            variables = self.model.trainable_variables
            self.table = self.model.weight_table()
            by_variable = {id(weight.variable): weight.checkpoint for weight in self.table}
            names = [by_variable[id(variable)] for variable in variables]
            uses_adam, uses_muon = options.optimizer != "adagrad", options.optimizer == "muon"
            self.optimizer = Optimizer(
                variables,
                options.learning_rate,
                options.all_clip_norm_val,
                initial_accumulator=options.initial_accumulator,
                adam_learning_rate=options.adam_learning_rate if uses_adam else None,
                adam_variables=[name not in WORD_ROWS for name in names],
                muon_blocks=[lstm_blocks(name) for name in names] if uses_muon else (),
                precision=settings.precision,
            )
        # By name in checkpoints.
        self.slots = {
            f"{name}/{slot}": value
            for name, slots in zip(names, self.optimizer.slots, strict=True)
            for slot, value in slots.items()
        }
        self.lstm_states = self.zero_states()  # after the last batch
        self.begun = self._evaluated_at = self._saved_at = time.monotonic()
        self._evaluation = 0.0  # seconds of the fastest evaluation
        self._asks_to_stop = self._is_stopped = False
        self._saved: RunState | None = None  # the state in the last checkpoint
        self._meter = planning.SpeedMeter()
        self.compile_step()

    def assign_softmax(self, start: SoftmaxStart) -> None:
        """Set the softmax of a new model."""
        softmax = self.model.softmax
        with self.replicas.scope():
            for variable, value in zip((softmax.W, softmax.b), start, strict=True):
                if value is not None:
                    variable.assign(value)

    @property
    def epoch(self) -> int:
        """The pass of the last step over the training text, 1-based."""
        return 1 + max(0, self.state.done - 1) // self.steps_per_epoch

    # The loop

    def train(self) -> TrainingRecord:
        """Do the remaining steps of the run."""
        record, self._interrupts = self.record, Interrupts()
        record.first = record.state = self.state
        record.epoch = self.epoch
        self.files.go_back(self.state.step)
        with self._interrupts.handled(), self._rescuing():
            with contextlib.closing(prefetch(self.inputs(), _READ_AHEAD)) as batches:
                self._train_steps(batches)
            if self.state.position == 0:
                raise InputError(
                    "The data holds no batch of {} rows by {} tokens.".format(*self.feed_shape)
                )
            self._evaluate(True)
            self._save()
            self.files.tidy(self.state.step)
        return record

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
        if batch is None and self.replicas.worker.count > 1 and not self.state.is_over:
            raise InputError("The data of a worker must not end before the run.")
        return batch

    def _set_rates(self) -> float:
        """Set the learning rates of the next step; return Adagrad's."""
        state, kind = self.state, self.options.schedule
        factor = state.plan.factor(kind, state.position, state.tokens_per_step)
        with self.replicas.scope():
            return self.optimizer.set_rates(factor, state.done)

    def _train_step(
        self, inputs: tuple[StepInputs, ...], iterator_state: IteratorState | None
    ) -> Signals:
        """Do a step; if the loss is not finite, raise an error and keep the states."""
        losses, lstm_states, signals = self.run_step(inputs, self.lstm_states, self._signals())
        loss = float(np.mean(losses))
        if not math.isfinite(loss):
            text = f"Step {self.state.step + 1}: the loss is {loss}."
            if hasattr(self.data, "describe_state"):
                where = self.data.describe_state(self.state.iterator_state[0])
                text += f" Its batch starts at {where}."
            raise NotFiniteError(text)
        self.lstm_states, now = lstm_states, time.monotonic()
        self.state = self.state.after_step(
            self.options.n_train_tokens,
            train_perplexity=exp_of_loss(loss),
            iterator_state=(iterator_state,),
            seconds=self.state.seconds + now - self._step_begun,
            elapsed=self.record.first.elapsed + now - self.begun,
        )
        self.record.state = self.state
        self.record.epoch = self.epoch
        self.record.train_perplexity.append(self.state.train_perplexity)
        return signals

    def _signals(self) -> Signals:
        """This worker's signals for the next step."""
        stop = float(self._asks_to_stop)
        if not self.replicas.worker.is_chief:
            return Signals(stop)
        now, every = time.monotonic(), self.every
        return Signals(
            stop,
            float(now - self._saved_at > self.save_seconds),
            float(every.unit == "seconds" and now - self._evaluated_at >= every.number),
            self.record.first.elapsed + now - self.begun,
            self.state.seconds,
            self._evaluation,
        )

    def _report(self, signals: Signals) -> None:
        """Call `progress`. Any worker may end the run; with several workers, one step later."""
        self._asks_to_stop = self.progress is not None and bool(self.progress(self.record))
        is_alone = self.replicas.worker.count == 1
        self._is_stopped = self._asks_to_stop if is_alone else signals.stop > 0

    def _log_step(self, rate: float) -> None:
        done, perplexity = self.state.done, self.state.train_perplexity
        if done % _LOG_EVERY == 0 or done == 1 or self.state.is_over:
            self._log(
                train_perplexity=perplexity if math.isfinite(perplexity) else None,
                sampled=self.model.samples,
                learning_rate=rate,
            )

    def _log(self, **facts: Any) -> None:
        state = self.state
        tokens, seconds = state.position, round(state.seconds, 3)
        self.files.log_line(
            step=state.step, epoch=self.record.epoch, **facts, tokens=tokens, seconds=seconds
        )

    def _evaluate(self, is_due: bool) -> None:
        """Evaluate the held-out text if `is_due` or the interval has passed, at most once per step,
        and keep the best model. Each worker scores its share."""
        state, step, begun = self.state, self.state.step, time.monotonic()
        is_due = is_due or self.every.falls_on(state.done, self.steps_per_epoch)
        if self.score is None or not is_due or state.heldout.measured_at == step:
            return
        share = self.score(
            training_states=mean_over_rows(self.lstm_states[0]),
            show=lambda _: self._interrupts.due(),
        )
        values = share.losses.tolist(), share.n_predictions, share.checksum
        losses, counts, checksums = zip(*self.replicas.all_gather(values), strict=True)
        perplexity = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        perplexity.checksum = sum(checksums)
        perplexity.unknown, perplexity.start_ratio = share.unknown, share.start_ratio
        heldout = state.heldout.after(perplexity, step)
        self.state = self.record.state = dataclasses.replace(state, heldout=heldout)
        if self.replicas.worker.is_chief:
            perplexity.warn_if_lost(self.options.reset_rate)
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
        self._evaluation = min(self._evaluation or seconds, seconds)
        if heldout.best_step == step:
            self.files.keep_best(self._save())

    def _measure_speed(self, signals: Signals) -> None:
        """Fix the length of a run by time once a fifth of its time has passed.

        Until then the rates stay high. The dropout depends on the length, so it is chosen
        first, and the speed is measured again with it.
        """
        state, n = self.state, self.record.n_steps
        plan = state.plan
        if plan.seconds is None or plan.end is not None:
            return
        share = signals.elapsed / plan.seconds
        step = self._meter.seconds_per_step(n, signals.seconds, share)
        if step is None:
            return
        remaining = plan.seconds - signals.elapsed - step
        if self.options.dropout is None:
            tokens = state.position + remaining / step * state.tokens_per_step
            dropout = planning.choose_dropout(tokens / (self.options.n_train_tokens or 1))
            self.options = dataclasses.replace(self.options, dropout=dropout)
            if dropout:
                self.compile_step()
                self._meter.restart(n + 1)
            return
        if share < planning.FIXED_AT:
            return
        if not signals.evaluation:
            self._evaluate(True)  # to measure its duration
        if self.state.heldout.measured_at == self.state.step:
            return  # the signals of the next step include it
        if self.score is not None:
            step, remaining = planning.with_evaluations(
                step, remaining, signals.evaluation, self.every, self.steps_per_epoch
            )
        n_steps = self.state.done + planning.steps_in(step, remaining, self.state.done)
        self.options = dataclasses.replace(self.options, n_steps=n_steps)
        end = n_steps * self.state.tokens_per_step
        plan = plan.fixed(self.state.position, end, self.options)
        self.state = self.record.state = dataclasses.replace(self.state, plan=plan)
        # From this checkpoint on, the run can be resumed bit for bit.
        self._save()
        self.files.write_options(self.options)

    def _save(self) -> str:
        """Write a checkpoint if the state has changed since the last one; return its prefix."""
        if self.record.checkpoint is None or self._saved is not self.state:
            self.is_saved_as(self.files.save(self))
        self._saved_at = time.monotonic()
        return self.record.checkpoint or ""

    def is_saved_as(self, ckpt_file: str) -> None:
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
            last = "there is no checkpoint" if last is None else f"the last checkpoint is {last}"
            text += f" Training stopped after step {self.state.step}; {last}."
            raise type(error)(text + (hint or "")) from error

    def _rescue(self) -> None:
        """Save the finished steps, if any; impossible with several workers, which are in a step."""
        if self.record.n_steps > 0 and self.replicas.worker.count == 1:
            try:
                self._save()
            except (OSError, TrainingError) as error:
                logger.warning("not saved: %s", error)

    # The step

    def run_step(
        self, inputs: tuple[StepInputs, ...], states: AllStates, signals: Signals = _QUIET
    ) -> tuple[np.ndarray, AllStates, Signals]:
        """Do the compiled step.

        Inputs and states have one entry per replica of this worker. All replicas share the negative
        samples, and gradients are averaged before repeated rows are summed, the norm is clipped and
        anything is squared, so the step equals a step of one device with all rows.

        Returns:
            The mean losses over all replicas before the update, float32 (n_directions,) in nats;
            the states after the batch; and the signals of all workers.
        """
        n, count = self.model.options.n_directions, self.replicas.worker.count
        # Only the chief sends nonzero values; `count` undoes the mean over the workers.
        sent = tf.constant([signals.stop, *(count * value for value in signals[1:])], tf.float32)
        with self.replicas.reachable():
            reduced, states = self._step(inputs, states, sent)
        values = reduced.numpy()
        return values[:n], states, Signals(*values[n:].tolist())

    def compile_step(self) -> None:
        """Compile the step for the current options."""
        signature = [(each,) * self.replicas.n_local for each in self._signature()]
        signals = tf.TensorSpec((len(Signals._fields),), tf.float32)
        self._step = tf.function(
            self._all_replicas, input_signature=[*signature, signals], autograph=False
        )

    def _all_replicas(
        self, inputs: tuple[StepInputs, ...], states: AllStates, signals: tf.Tensor
    ) -> tuple[tf.Tensor, AllStates]:
        def replica(k: int) -> Any:
            rows = None if self.replicas.n == 1 else self.rows(k)
            losses, after, gradients = self.gradients(inputs[k], states[k], rows)
            reduced, *gradients = self.replicas.mean([tf.concat([losses, signals], 0), *gradients])
            self.optimizer.apply(gradients)
            return reduced, after

        results = self.replicas.run(replica)
        return results[0][0], tuple(after for _, after in results)

    def gradients(
        self, inputs: StepInputs, states: tuple[States, ...], rows: BatchSlice | None = None
    ) -> tuple[tf.Tensor, tuple[States, ...], list[Any]]:
        """The losses of a replica, its states after the batch, and the gradients of the variables.

        `rows` is the position of the replica's rows in the global batch; None: the complete batch.
        """
        options, seed = self.options, tf.stack(inputs.dropout_seed)
        dropout = Dropout(options.dropout, seed, rows) if options.dropout else None
        with tf.GradientTape() as tape:
            by_position, after = self.model.losses(
                inputs.feed, states, inputs.negatives, dropout, resets=inputs.resets
            )
            losses = tf.stack([tf.reduce_mean(direction) for direction in by_position])
            # The original trained on the sum over time and the mean over rows.
            objective = options.unroll_steps * tf.reduce_mean(losses)
        variables = [variable.value for variable in self.model.trainable_variables]
        return losses, after, tape.gradient(objective, variables)

    def _signature(self) -> list[Any]:
        options = self.options
        n, positions = options.n_directions, (options.unroll_steps, options.batch_size)
        feed, states = self.model.signature(*positions)
        drawn = Negatives(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
        inputs = StepInputs(
            feed,
            (drawn,) * (n if self.model.samples else 0),
            (tf.TensorSpec((), tf.int64),) * 2,
            (tf.TensorSpec(positions, tf.bool),) * (n if options.reset_rate else 0),
        )
        return [inputs, states]

    def zero_states(self) -> AllStates:
        states = self.model.network.zero_states(self.options.batch_size)
        return (states,) * self.replicas.n_local

    def local_states(self, states: tuple[States, ...]) -> AllStates:
        """This worker's rows of the states of all rows in a checkpoint."""
        first, size = self.rows().first, self.options.batch_size
        return tuple(
            tf.nest.map_structure(lambda x, k=k: x[k : k + size], states)
            for k in range(first, first + self.replicas.n_local * size, size)
        )

    def rows(self, k: int = 0) -> BatchSlice:
        """The rows of this worker's replica `k` in the global batch."""
        replicas, size = self.replicas, self.options.batch_size
        return BatchSlice((replicas.first + k) * size, replicas.n * size)

    # The text

    def inputs(self) -> Iterator[tuple[tuple[StepInputs, ...], IteratorState | None]]:
        """The inputs of the remaining steps, and the state of the data set after each."""
        data, shape, (state,) = self.data, self.feed_shape, self.state.iterator_state
        marks = self._sentence_marks()
        if reading_method(data, "iter_distinct", "iter_batches") == "iter_distinct":
            batches = data.iter_distinct(*shape, **({} if state is None else {"state": state}))
        else:
            batches = data.iter_batches(*shape)
        position, n = self.state.position, self.state.tokens_per_step
        if position and state is None:
            logger.warning("the data cannot resume where the run was: its text starts again")
        batches = iter(batches)
        # No batch is read after the last step. The end of a run by time is set during the run.
        while self.state.plan.end is None or position < self.state.plan.end:
            batch = next(batches, None)
            if batch is None or (isinstance(batch, Batch) and not batch.mask.all()):
                return  # the last batch is skipped if incomplete, as in the original
            feed = make_feed(batch, self.options, shape)
            seeds = self.state.settings.seed, position // n
            replicas = self.replicas.n_local, self.rows()
            inputs = step_inputs(feed, self.options, seeds, marks, *replicas)
            yield inputs, getattr(batch, "state", None)
            position += n

    def _sentence_marks(self) -> tuple[int, int] | None:
        """The ids of `<S>` and `</S>` if sentence starts must be recognised by word ids."""
        if self.options.char_cnn is not None or not self.options.reset_rate:
            return None
        vocabulary = getattr(self.data, "vocab", None)
        if vocabulary is None:
            raise InputError(
                f"reset_rate = {self.options.reset_rate}: the data must have a vocab, whose ids of "
                "<S> and </S> show where sentences start; or train with reset_rate = 0."
            )
        return vocabulary.bos, vocabulary.eos
