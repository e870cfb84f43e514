"""The loop of a run: rate, step, log, evaluate, save.

With several workers, each runs the same loop. Decisions depend only on the state, which is the same
for all workers, or on the signals of a step, which are averaged with its losses. If a worker fails,
its process ends, and then the other workers end too.
"""

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
from bilm.data.batch import Batch
from bilm.data.corpus import IteratorState
from bilm.data.dataset import reading_method
from bilm.data.prefetch import prefetch
from bilm.inference.scorer import Perplexity, Scorer
from bilm.progress import Interval
from bilm.training.evaluation import data_vocabulary, evaluate
from bilm.training.folder import RunFolder
from bilm.training.inputs import StepInputs, make_feed, sentence_marks, step_inputs
from bilm.training.interrupts import Interrupts
from bilm.training.state import RunState, choose_dropout, mean_over_rows
from bilm.training.trainer import Signals, Trainer

logger = logging.getLogger(__name__)

Progress = Callable[[RunState], bool | None]

_HELDOUT_ROWS = 128
_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches
# Steps of a call between which a run by time measures its speed, to choose the dropout.
_TIMED_STEPS = (3, 10)
# Errors after which the finished steps cannot be saved, with hints.
_HINTS: dict[type, str] = {
    NotFiniteError: " A lower learning_rate may help.",
    WorkerLostError: " To resume from it, start the same command for all workers.",
}


@dataclass
class Loop:
    """The loop over the steps of a call of `train`; attributes as there.

    `state` is changed by every step; `begun` is time.monotonic() at the beginning of the call.
    """

    state: RunState
    trainer: Trainer
    folder: RunFolder
    data: Any
    heldout: Any
    every: Interval
    patience: int | None
    save_seconds: float
    progress: Progress | None
    begun: float

    def __post_init__(self) -> None:
        self._zero_time = self.begun - self.state.elapsed  # when an uninterrupted run would begin
        self._scorer = Scorer(self.trainer.model)
        self._interrupts = Interrupts()
        self._evaluated_at = self._saved_at = time.monotonic()
        self._is_consistent = True  # False while a step changes the variables

    def run(self) -> RunState:
        """Do the remaining steps of the run."""
        state, trainer, folder = self.state, self.trainer, self.folder
        worker = trainer.replicas.worker
        state.before = (state.step, state.position, state.run_seconds)
        asks_to_stop = stops = False
        if folder.log is not None:
            folder.log.go_back(state.step)
        with self._interrupts.handled(), self._rescuing(), contextlib.ExitStack() as stack:
            inputs = prefetch(self._inputs(self._open_data()), _READ_AHEAD)
            batches = stack.enter_context(contextlib.closing(inputs))
            self._evaluate(False)  # the last step of an earlier call may not have been evaluated
            while not (stops or state.is_over or self._is_out_of_patience()):
                self._interrupts.due()
                step_begun = time.monotonic()
                if (batch := next(batches, None)) is None:
                    break
                step_batch, iterator_state = batch
                rate = self._set_rates()
                loss, stop, save, is_due, elapsed = self._do_step(step_batch, asks_to_stop)
                seconds = time.monotonic() - step_begun
                state.add_step(loss, iterator_state, seconds, elapsed)
                self._is_consistent = True
                if state.done % _LOG_EVERY == 0 or state.done == 1 or state.is_over:
                    folder.log_line(
                        state,
                        train_perplexity=state.perplexity,
                        sampled=trainer.model.samples,
                        learning_rate=rate,
                    )
                self._choose_dropout()
                self._evaluate(is_due > 0)
                if save > 0:
                    self._save()
                asks_to_stop = self.progress is not None and bool(self.progress(state))
                # Any worker may end the run; with several workers, one step later.
                stops = asks_to_stop if worker.is_alone else stop > 0
            if state.position == 0:
                shape = "{} rows by {} tokens".format(*trainer.feed_shape)
                raise InputError(f"The data holds no batch of {shape}.")
            if not (worker.is_alone or stops or state.is_over or self._is_out_of_patience()):
                raise InputError("The data of a worker must not end before the run.")
            state.stopped_early = self._is_out_of_patience() and not (stops or state.is_over)
            self._evaluate(True)
            self._save()
            folder.tidy(state.step)
        return state

    def _is_out_of_patience(self) -> bool:
        return self.patience is not None and self.state.since_best >= self.patience

    def _open_data(self) -> Iterator[Any]:
        """The batches from the run's position on. Raises an error if the text is another one, even
        if the run is over."""
        data, (start,) = self.data, self.state.iterator_state
        if self.state.position and start is None:
            logger.warning("the data cannot resume where the run stopped: its text starts again")
        if reading_method(data, "iter_distinct", "iter_batches") == "iter_batches":
            return iter(data.iter_batches(*self.trainer.feed_shape))
        state = {} if start is None else {"state": start}
        return iter(data.iter_distinct(*self.trainer.feed_shape, **state))

    def _inputs(
        self, batches: Iterator[Any]
    ) -> Iterator[tuple[tuple[StepInputs, ...], IteratorState | None]]:
        """The inputs of the remaining steps, and the state of the data set after each. No batch is
        read after the last step."""
        state, trainer, options = self.state, self.trainer, self.trainer.options
        shape, position, n = trainer.feed_shape, state.position, state.tokens_per_step
        marks = sentence_marks(options, data_vocabulary(self.data))
        while state.end is None or position < state.end:
            batch = next(batches, None)
            if batch is None or (isinstance(batch, Batch) and not batch.mask.all()):
                return  # the last batch is skipped if incomplete, as in the original
            feed, seeds = make_feed(batch, options, shape), (state.seed, position // n)
            replicas = trainer.replicas.n_local, trainer.rows()
            yield step_inputs(feed, options, seeds, marks, *replicas), getattr(batch, "state", None)
            position += n

    def _set_rates(self) -> float:
        """Set the learning rates of the next step; return Adagrad's."""
        trainer = self.trainer
        factor = self.state.rate_factor(trainer.options.schedule)
        with trainer.replicas.scope():
            return trainer.optimizer.set_rates(factor, self.state.done)

    def _do_step(self, inputs: Any, asks_to_stop: bool) -> tuple[float, ...]:
        """Do a step; return the mean loss and the signals. If the loss is not finite, raise a
        NotFiniteError and keep the LSTM states."""
        trainer, state, self._is_consistent = self.trainer, self.state, False
        sent = self._signals(asks_to_stop)
        losses, lstm_states, signals = trainer.run_step(inputs, trainer.lstm_states, sent)
        loss = float(np.mean(losses))
        if not math.isfinite(loss):
            raise NotFiniteError(f"Step {state.step + 1}: the loss is {loss}.")
        trainer.lstm_states = lstm_states
        return loss, *signals

    def _signals(self, asks_to_stop: bool) -> Signals:
        """This worker's signals for the next step."""
        if not self.trainer.replicas.worker.is_chief:
            return (float(asks_to_stop), 0.0, 0.0, 0.0)
        now, every = time.monotonic(), self.every
        save = now - self._saved_at > self.save_seconds
        evaluate = every.unit == "seconds" and now - self._evaluated_at >= every.number
        return (float(asks_to_stop), float(save), float(evaluate), now - self._zero_time)

    def _choose_dropout(self) -> None:
        """Choose the dropout of a run by time once its speed is known."""
        state, options = self.state, self.trainer.options
        if options.dropout is not None or state.time_limit is None:
            return
        first, last = _TIMED_STEPS
        if state.n_steps == first:
            self._timed_from = state.elapsed
        if state.n_steps == last:
            per_step = max((state.elapsed - self._timed_from) / (last - first), 1e-9)
            n_steps = state.done + (state.time_limit - state.elapsed) / per_step
            dropout = choose_dropout(n_steps / state.steps_per_epoch)
            self.trainer.options = dataclasses.replace(options, dropout=dropout)
            self.folder.write_options(self.trainer.options)
            if dropout:  # the compiled step has none
                self.trainer.compile_step()

    def _evaluate(self, now: bool) -> None:
        """Evaluate the held-out text if the interval has passed, or `now` in any case, but at most
        once per step; and keep the best model. Each worker scores its share."""
        state, trainer = self.state, self.trainer
        is_due = now or self.every.falls_on(state.done, state.steps_per_epoch)
        if self.heldout is None or not is_due or state.measured_at == state.step:
            return
        share = evaluate(
            self._scorer,
            self.heldout,
            _HELDOUT_ROWS,
            training_states=mean_over_rows(trainer.lstm_states[0]),
            show=lambda _: self._interrupts.due(),
        )
        values = share.losses.tolist(), share.n_predictions
        losses, counts = zip(*trainer.replicas.all_gather(values), strict=True)
        perplexity = Perplexity.of_losses(np.sum(losses, axis=0), sum(counts))
        perplexity.unknown, perplexity.start_ratio = share.unknown, share.start_ratio
        state.add_evaluation(perplexity)
        if trainer.replicas.worker.is_chief:
            perplexity.warn_if_lost(trainer.options.reset_rate)
        ratios = perplexity.start_ratios().items()
        self.folder.log_line(
            state,
            heldout_perplexity=float(perplexity),
            heldout_forward=perplexity.forward,
            heldout_backward=perplexity.backward,
            best=state.best_step == state.step,
            **{f"start_ratio_{name}": ratio for name, ratio in ratios if math.isfinite(ratio)},
        )
        self._evaluated_at = time.monotonic()
        if state.best_step == state.step:
            self._save()
            self.folder.keep_best(state.checkpoint or "")

    def _save(self) -> None:
        self.folder.save(self.state, self.trainer)
        self._saved_at = time.monotonic()

    @contextlib.contextmanager
    def _rescuing(self) -> Iterator[None]:
        """On an error, save the finished steps and name the checkpoint to resume from."""
        try:
            yield
        except KeyboardInterrupt:
            self._rescue()
            raise
        except Exception as error:
            state, hint = self.state, _HINTS.get(type(error))
            if hint is None and state.n_steps == 0:
                raise
            if hint is None:
                self._rescue()
            last = self.folder.last_checkpoint()
            where = "there is no checkpoint" if last is None else f"the last checkpoint is {last}"
            text = f"Training stopped after step {state.step}; {where}."
            if not isinstance(error, InputError | OSError | TrainingError):
                logger.error("%s", text)
                raise
            reason = str(error)
            if isinstance(error, OSError) and error.filename and error.strerror:
                reason = f"{error.filename}: {error.strerror}."
            raise type(error)(f"{reason} {text}{hint or ''}") from error

    def _rescue(self) -> None:
        """Save the finished steps, if any. This is impossible within a step, and with several
        workers, because the others are within a step."""
        is_alone = self.trainer.replicas.worker.is_alone
        if self.state.n_steps > 0 and is_alone and self._is_consistent:
            try:
                self._save()
            except (OSError, TrainingError) as error:
                logger.warning("not saved: %s", error)
