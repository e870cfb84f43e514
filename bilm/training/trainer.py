"""The training loop: batches in, checkpoints, a log and a record out."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bilm.data import Vocabulary, prefetch
from bilm.errors import InputError, NotFiniteError, TrainingError, WorkerLostError, WorkersError
from bilm.files import PathLike
from bilm.training.best import keep_best
from bilm.training.checkpoint import checkpoints
from bilm.training.clock import Clock
from bilm.training.evaluation import Perplexity
from bilm.training.initial import load_source
from bilm.training.interrupts import Interrupts, interrupts
from bilm.training.monitor import Monitor
from bilm.training.record import TrainingProgress, TrainingRecord
from bilm.training.run import Run
from bilm.training.run_log import Log

logger = logging.getLogger(__name__)

Progress = Callable[[TrainingProgress], bool | None]

_LOG_EVERY = 10  # steps
_READ_AHEAD = 4  # batches


@dataclass
class Saver:
    """Where and how often checkpoints are written.

    Attributes:
        folder: of the run.
        seconds: between two of them.
        keep: how many stay.
    """

    folder: str
    seconds: float
    keep: int


class Due(NamedTuple):
    """What a worker wishes before a step: to end here, or to save or measure after the step."""

    end: bool
    save: bool
    measure: bool


class Trainer:
    """Goes from step to step; logs, measures, saves and tells."""

    def __init__(
        self,
        run: Run,
        saver: Saver,
        logs: Sequence[Log],
        monitor: Monitor | None,
        progress: Progress | None,
    ) -> None:
        self.record = TrainingRecord()
        self._run = run
        self._saver = saver
        self._logs = logs
        self._monitor = monitor
        self._progress = progress
        self._clock = Clock()
        self._saved: tuple[int, Any] | None = None  # step and standing of the last checkpoint
        self._team = run.replicas.team

    def restart(self, ckpt_file: str, own: bool) -> None:
        """Go on from a checkpoint.

        Args:
            own: it is one of the folder's, so that there is nothing to save before the next step.
        """
        run = self._run
        run.restart(ckpt_file)
        if own:
            self.record.checkpoint = ckpt_file
            self._saved = (run.global_step, run.standing)
            if run.standing.best_step == run.global_step:
                # A crash may have come between the checkpoint and its second name.
                self._keep_best(ckpt_file)

    def begin_with(
        self, source: PathLike, vocab_file: PathLike | None, words: Vocabulary | None
    ) -> None:
        """Begin with the weights of a model that is trained, see `load_source`."""
        with self._run.replicas.scope():
            self.record.words_carried = load_source(source, vocab_file, self._run.model, words)

    def go(self, data: Any) -> TrainingRecord:
        """Train until the last step, the end of the data, patience or a wish of `progress`."""
        run, record = self._run, self.record
        with self._team.own_work():
            for log in self._logs:
                log.go_back(run.global_step)
        self._clock.start()
        with interrupts() as signals, self._until_all_know(signals):
            batches: Any = prefetch(run.inputs(data), _READ_AHEAD)
            try:
                with contextlib.closing(batches):
                    self._train(batches, signals, data)
                if record.n_steps == 0 and run.done == 0:
                    raise InputError(
                        "The data holds no batch of {} rows by {} tokens.".format(*run.feed_shape)
                    )
                if self._monitor is not None and run.standing.measured_at != run.global_step:
                    self._measure(self._monitor)
                self._save()
                self._team.exchange()
            except KeyboardInterrupt:
                if not signals.is_torn:
                    self._rescue()
                raise
            except WorkerLostError as error:
                raise WorkerLostError(
                    f"{error} Training stops; {self._last_checkpoint()}. To go on from it, start "
                    "the same command for all workers."
                ) from error
            except (InputError, OSError, WorkersError) as error:
                if record.n_steps == 0:
                    raise
                raise type(error)(self._with_state(error)) from error
        record.best, record.best_step = run.standing.best, run.standing.best_step
        return record

    def _until_all_know(self, signals: Interrupts) -> contextlib.AbstractContextManager[None]:
        """One of several workers is interrupted at places where the others hear of it."""
        return contextlib.nullcontext() if self._team.worker.is_alone else signals.held()

    def _train(self, batches: Generator[Any, None, None], signals: Interrupts, data: Any) -> None:
        self._measure_if_due()
        event = None
        while True:
            item, due = self._next(batches, signals, event)
            if item is None:
                return
            with signals.held():
                self._advance(data, *item)
            heldout = self._measure_if_due(due.measure)
            if due.save:
                self._save()
            event = self._event(heldout)

    def _next(
        self, batches: Iterator[Any], signals: Interrupts, event: TrainingProgress | None
    ) -> tuple[Any, Due]:
        """The next batch, None if the run is to end, and what is due after its step.

        Several workers go on together, or not at all; the time is that of the chief's clock.
        """
        item, run, monitor = None, self._run, self._monitor
        with self._team.own_work():
            signals.due()
            if event is None or self._progress is None or not self._progress(event):
                if monitor is not None and monitor.has_enough(run.standing):
                    self.record.stopped_early = run.done < run.n_steps
                else:
                    item = next(batches, None)
        due = Due(
            item is None,
            self._clock.since_save() > self._saver.seconds,
            monitor is not None and monitor.minutes_are_over(),
        )
        wishes = [Due(*wish) for wish in self._team.exchange(due)]
        return None if any(wish.end for wish in wishes) else item, wishes[0]

    def _advance(self, data: Any, inputs: Any, place: Any) -> None:
        """Do a step and log it."""
        run, record = self._run, self.record
        with self._not_finite(data):
            run.advance(inputs, place)
        record.train_perplexity.append(run.perplexity)
        record.n_steps += 1
        record.n_tokens += run.tokens_per_step
        record.seconds = self._clock.step()
        if run.done % _LOG_EVERY == 0 or run.done in (1, run.n_steps):
            self._log(
                train_perplexity=run.perplexity if math.isfinite(run.perplexity) else None,
                sampled=run.model.samples,
                learning_rate=run.last_learning_rate,
            )

    def _log(self, **facts: Any) -> None:
        run = self._run
        with self._team.own_work():
            for log in self._logs:
                log.write(
                    step=run.global_step,
                    epoch=run.epoch,
                    **facts,
                    tokens=run.done * run.tokens_per_step,
                    seconds=round(run.seconds + self.record.seconds, 3),
                )

    @contextlib.contextmanager
    def _not_finite(self, data: Any = None) -> Iterator[None]:
        """Say what is known when the numbers have run away."""
        try:
            yield
        except NotFiniteError as error:
            place = ""
            known = self._run.place is not None or not self._run.done
            if known and hasattr(data, "describe_state"):
                place = f" Its batch begins at {data.describe_state(self._run.place)}."
            raise TrainingError(
                f"{error}{place} Training stops; {self._last_checkpoint()}. "
                "A lower learning_rate may help."
            ) from error

    def _last_checkpoint(self) -> str:
        found = checkpoints(self._saver.folder)
        if not found:
            return "nothing was saved, there is no earlier checkpoint"
        return f"nothing was saved since the last good checkpoint, {found[-1]}"

    def _measure_if_due(self, by_time: bool = False) -> Perplexity | None:
        run, monitor = self._run, self._monitor
        if monitor is None or run.standing.measured_at == run.global_step:
            return None
        is_due = by_time or monitor.falls_on(run.done, run.steps_per_epoch)
        return self._measure(monitor) if is_due else None

    def _measure(self, monitor: Monitor) -> Perplexity:
        """Measure the held-out text; keep the model if it is the best."""
        run = self._run
        with self._clock.stopped(), self._not_finite():
            perplexity, run.standing = monitor.measure(
                run.standing, run.global_step, run.mean_states()
            )
            is_best = run.standing.best_step == run.global_step
            self._log(
                heldout_perplexity=float(perplexity),
                heldout_forward=perplexity.forward,
                heldout_backward=perplexity.backward,
                best=is_best,
                **_start_ratios(perplexity),
            )
            self.record.heldout.append((run.global_step, perplexity))
            if is_best:
                self._keep_best(self._save())
        return perplexity

    def _keep_best(self, ckpt_file: str) -> None:
        if self._team.worker.is_chief:
            with self._team.own_work():
                keep_best(self._saver.folder, ckpt_file)

    def _save(self) -> str:
        """Write a checkpoint if anything has changed since the last one; return the last one."""
        run, saver = self._run, self._saver
        now = (run.global_step, run.standing)
        if self.record.checkpoint is None or self._saved != now:
            with self._clock.stopped(), self._not_finite():
                seconds = run.seconds + self.record.seconds
                self.record.checkpoint = run.save(saver.folder, saver.keep, seconds)
            self._saved = now
        self._clock.saved()
        return self.record.checkpoint

    def _rescue(self) -> bool:
        """Save what is done when the run is about to end by an error; whether that went well."""
        if self.record.n_steps == 0:
            return False
        try:
            self._save()
        except (OSError, TrainingError) as error:
            logger.warning("not saved: %s", error)
            return False
        return True

    def _with_state(self, error: Exception) -> str:
        """The message of an error, and what there is to go on from."""
        n = self._run.global_step
        if self._rescue():
            state = f"Training stopped after step {n}, which is saved as {self.record.checkpoint}."
        else:
            state = f"Training stopped after step {n}; {self._last_checkpoint()}."
        text = str(error)
        if isinstance(error, OSError) and error.strerror is not None:
            text = f"{error.filename}: {error.strerror}."
        return f"{text} {state}"

    def _event(self, heldout: Perplexity | None) -> TrainingProgress:
        run, record = self._run, self.record
        rate = self._clock.steps_per_second()
        return TrainingProgress(
            run.done,
            run.n_steps,
            run.epoch,
            run.perplexity,
            record.n_tokens,
            record.seconds,
            n_epochs=run.options.n_epochs,
            sampled=run.model.samples,
            learning_rate=run.last_learning_rate,
            heldout=heldout,
            is_best=heldout is not None and run.standing.best_step == run.global_step,
            tokens_per_second=None if rate is None else rate * run.tokens_per_step,
            seconds_left=None if rate is None else (run.n_steps - run.done) / rate,
        )


def _start_ratios(perplexity: Perplexity) -> dict[str, float]:
    """What the log says of the states in which texts begin."""
    names = ("start_ratio_forward", "start_ratio_backward")
    ratios = perplexity.start_ratio or ()
    return {name: x for name, x in zip(names, ratios, strict=False) if math.isfinite(x)}
