"""The state of a run, which its loop changes, checkpoints store and `train` returns.

A checkpoint holds the state as the JSON object `bilm/record`, next to the variables, the
optimizer's slots and the LSTM states.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, NotFiniteError
from bilm.core.options import Options
from bilm.data.corpus import IteratorState
from bilm.files import checkpoints
from bilm.files.weights import named_states
from bilm.inference.scorer import Perplexity, exp_of_loss

logger = logging.getLogger(__name__)

RECORD = f"{checkpoints.OURS}record"
WORD_COUNTS = f"{checkpoints.OURS}word_counts"
STATES_PREFIX = f"{checkpoints.OURS}state/"  # LSTM states

# How the learning rates fall after the warm-up, from the share of the remaining run that is done.
_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2,
}
# Of a run by time: the share of its time that the warm-up takes, and the least factor of the rates
# in it.
_WARMUP_SHARE, _LEAST_FACTOR = 0.05, 0.01
# The first step compiles, and workers learn the time of a step with the next one.
_STEPS_OF_SETUP = 2


_THIS_CALL = {"stored": False}  # metadata of the fields that checkpoints lack


@dataclass
class RunState:
    """The state of a run after a step: the result of `train`, and the argument of `progress`.

    Positions count tokens, that is predictions per direction, because a resumed run may have
    batches of another size. Without a time limit, the learning rates rise from `start` to `warmup`
    and fall from `decay` to `end`.

    Attributes:
        batch_shape: rows of a batch, over all workers, and tokens per row.
        seed, precision, init_from: the arguments of `train`; secrets are removed from `init_from`.
        step: global step, as in the log and in the names of checkpoints.
        position: tokens of this run.
        tokens, passes: training of the model in all its runs, in tokens and in passes over the
            text; None if unknown, as after a checkpoint of the original.
        run_seconds: duration of the steps of this run.
        elapsed: duration of this run, with set-up and evaluations.
        perplexity: perplexity of the last batch, before the update.
        n_train_tokens: tokens of a pass over the text.
        start, warmup, decay, end: see above; `end` is None for a run by time.
        length: the options that determine them: n_epochs, n_steps, n_train_tokens, warmup_steps.
        time_limit: seconds of a run by time.
        setup: seconds until the second step of a run by time.
        best, best_step: lowest held-out perplexity of the run, and its step, whose model is kept in
            the folder `best`.
        since_best: evaluations since then.
        measured_at: step of the last evaluation.
        heldout_predictions: shows whether the held-out text has changed.
        heldout_unigram: perplexity of the held-out text by word frequencies alone.
        iterator_state: one entry per worker, None if its data set cannot resume; a running worker
            has only its own.
        checkpoint: prefix of the last checkpoint.
        train_perplexity: perplexity of every step's batch in this call.
        heldout: evaluations of this call: pairs (step, `Perplexity`).
        stopped_early: whether `patience` ended this call.
        unigram: perplexity of the training text by word frequencies alone; None if the data cannot
            count words.
        unknown: proportion of unknown tokens in the training text.
        words_carried: words whose rows came from `init_from`, and words of the vocabulary; None
            without `init_from`, or if that model has no word rows.
    """

    batch_shape: tuple[int, int]
    seed: int = 0
    precision: str = "float32"
    init_from: str | None = None
    step: int = 0
    position: int = 0
    tokens: int | None = 0
    passes: float | None = 0.0
    run_seconds: float = 0.0
    elapsed: float = 0.0
    perplexity: float = 0.0
    n_train_tokens: int = 0
    start: int = 0
    warmup: int = 0
    decay: int = 0
    end: int | None = None
    length: tuple[int | None, ...] = ()
    time_limit: float | None = None
    setup: float = 0.0
    best: float | None = None
    best_step: int | None = None
    since_best: int = 0
    measured_at: int | None = None
    heldout_predictions: int | None = None
    heldout_unigram: float | None = None
    iterator_state: tuple[IteratorState | None, ...] = field(default=(None,), repr=False)

    checkpoint: str | None = field(default=None, metadata=_THIS_CALL)
    train_perplexity: list[float] = field(default_factory=list, repr=False, metadata=_THIS_CALL)
    heldout: list[tuple[int, Perplexity]] = field(default_factory=list, metadata=_THIS_CALL)
    stopped_early: bool = field(default=False, metadata=_THIS_CALL)
    unigram: float | None = field(default=None, metadata=_THIS_CALL)
    unknown: float | None = field(default=None, metadata=_THIS_CALL)
    words_carried: tuple[int, int] | None = field(default=None, metadata=_THIS_CALL)
    # `step`, `position` and `run_seconds` before the first step of this call.
    before: tuple[int, int, float] = field(default=(0, 0, 0.0), repr=False, metadata=_THIS_CALL)

    @property
    def tokens_per_step(self) -> int:
        """Predictions per direction and step."""
        return math.prod(self.batch_shape)

    @property
    def steps_per_epoch(self) -> int:
        """Complete steps of a pass over the training text, at least 1."""
        return max(1, self.n_train_tokens // self.tokens_per_step)

    @property
    def done(self) -> int:
        """Steps of this run, converted to the current batch shape."""
        return self.position // self.tokens_per_step

    @property
    def epoch(self) -> int:
        """The pass over the training text, 1-based."""
        return 1 + max(0, self.done - 1) // self.steps_per_epoch

    @property
    def n_steps(self) -> int:
        """Steps of this call."""
        return self.step - self.before[0]

    @property
    def n_tokens(self) -> int:
        """Tokens that this call trained on."""
        return self.position - self.before[1]

    @property
    def seconds(self) -> float:
        """Seconds that the steps of this call took."""
        return self.run_seconds - self.before[2]

    @property
    def share(self) -> float:
        """The share of the time after set-up that has passed in a run by time, from 0 to 1."""
        limit = self.time_limit or 0.0
        if limit <= self.setup:
            return 1.0
        return min(1.0, (self.elapsed - self.setup) / (limit - self.setup))

    @property
    def total_steps(self) -> int | None:
        """Global step at the end of the run; None for a run by time that has not ended."""
        if self.end is None:
            return self.step if self.is_over else None
        return self.step + max(0, -((self.position - self.end) // self.tokens_per_step))

    @property
    def is_over(self) -> bool:
        """Whether the run has reached its planned length."""
        if self.end is None:
            return self.share >= 1.0 and self.done >= _STEPS_OF_SETUP
        return self.position >= self.end

    def rate_factor(self, schedule: str) -> float:
        """The factor of the learning rates for the next step."""
        fall = _SCHEDULES[schedule]
        if self.end is None:
            warmup = _WARMUP_SHARE if self.warmup else 0.0
            if self.share < warmup:
                return max(_LEAST_FACTOR, self.share / warmup)
            return fall((self.share - warmup) / (1.0 - warmup))
        if self.position < self.warmup:
            risen = self.position + self.tokens_per_step - self.start
            return min(1.0, risen / (self.warmup - self.start))
        return fall(min(1.0, max(0, self.position - self.decay) / max(1, self.end - self.decay)))

    def set_length(self, options: Options, seconds: float | None = None) -> None:
        """Set the length of a run by its options, from `start` on, or by a time limit.

        The warm-up takes at most half of the run, so that the rate falls in short runs too.
        """
        n = self.tokens_per_step
        self.n_train_tokens, self.length = options.n_train_tokens or 0, _length(options)
        self.time_limit, self.end, self.warmup = seconds, None, options.warmup_steps * n
        if seconds is None:
            n_steps = options.n_steps
            if n_steps is None:
                n_steps = (options.n_epochs or 1) * self.steps_per_epoch
            self.end = n_steps * n
            self.warmup = self.start + min(self.warmup, max(1, (self.end - self.start) // 2))
        self.decay = self.warmup

    def change_length(self, options: Options) -> None:
        """Set the length of a resumed run if its options have another one. The rates of a finished
        run rise and fall once more."""
        has_length = options.n_steps is not None or options.n_epochs is not None
        if not has_length or self.length == _length(options):
            return
        over = self.is_over
        longer = dataclasses.replace(self, start=self.position if over else self.start)
        longer.set_length(options)
        if over and (longer.end or 0) <= self.position:
            return
        vars(self).update(vars(longer))
        if over and options.schedule != "constant":
            logger.warning(
                "the run had ended, with learning rates of zero, and is made longer: they rise "
                "again in a warm-up of %s tokens, and fall to zero at %s tokens",
                f"{self.warmup - self.position:,}", f"{self.end:,}",
            )  # fmt: skip

    def add_step(
        self, loss: float, iterator_state: IteratorState | None, seconds: float, elapsed: float
    ) -> None:
        """Count a step. `loss` is the mean of its batch, `seconds` the step's duration, `elapsed`
        the duration of the run before it."""
        n = self.tokens_per_step
        self.step += 1
        self.position += n
        if self.tokens is not None:
            self.tokens += n
        if self.passes is not None and self.n_train_tokens:
            self.passes += n / self.n_train_tokens
        self.iterator_state = (iterator_state,)
        self.run_seconds += seconds
        self.elapsed = elapsed
        if self.time_limit is not None and self.done <= _STEPS_OF_SETUP:
            self.setup = elapsed
        self.perplexity = exp_of_loss(loss)
        self.train_perplexity.append(self.perplexity)

    def add_evaluation(self, perplexity: Perplexity) -> None:
        """Count an evaluation of the held-out text."""
        if math.isnan(perplexity):
            raise NotFiniteError(f"Step {self.step}: the held-out loss is not a number.")
        if self.heldout_predictions not in (None, perplexity.n_predictions):
            logger.warning("the held-out text has changed: its best perplexity is measured again")
            self.best = None
        self.heldout_predictions = perplexity.n_predictions
        self.heldout.append((self.step, perplexity))
        self.measured_at, self.since_best = self.step, self.since_best + 1
        if self.best is None or perplexity < self.best:
            self.best, self.best_step, self.since_best = float(perplexity), self.step, 0

    def forget_best(self) -> None:
        """Start the best perplexity and patience again."""
        self.best = self.best_step = self.measured_at = None
        self.since_best = 0

    def to_dict(self) -> dict[str, Any]:
        """The stored state, for JSON."""
        states = [state and state.to_dict() for state in self.iterator_state]
        return {name: getattr(self, name) for name in _STORED} | {"iterator_state": states}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunState:
        """A state from the result of `to_dict`, or from a record of version 0.1."""
        if "plan" in values:
            values = _from_nested(values)
        lists = {name: tuple(values[name]) for name in ("batch_shape", "length")}
        states = tuple(
            state and IteratorState.from_dict(state) for state in values["iterator_state"]
        )
        return cls(**{name: values[name] for name in _STORED} | lists | {"iterator_state": states})


_STORED = [each.name for each in dataclasses.fields(RunState) if not each.metadata]


def _length(options: Options) -> tuple[int | None, ...]:
    return (options.n_epochs, options.n_steps, options.n_train_tokens, options.warmup_steps)


def _from_nested(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a record of version 0.1, which had groups and other names."""
    plan, heldout, states = values["plan"], values["heldout"], values["iterator_state"]
    return {
        **values,
        **values["run"],
        **plan,
        **heldout,
        "run_seconds": values["seconds"],
        "perplexity": values["train_perplexity"],
        "n_train_tokens": plan["settings"][2] or 0,
        "length": plan["settings"],
        "time_limit": plan["seconds"],
        "setup": 0.0,
        "heldout_predictions": heldout["n_predictions"],
        "heldout_unigram": heldout["unigram"],
        "iterator_state": states if isinstance(states, list) else [states],
    }


# Length and dropout

# A short text is read again until about this many tokens have been read.
_TOKENS_TO_READ = 15_000_000
_MOST_PASSES = 10


def choose_length(options: Options, tokens_per_step: int) -> Options:
    """Fill in the passes and the dropout if they are None."""
    n_train_tokens = options.n_train_tokens or 1
    if options.n_steps is None and options.n_epochs is None:
        passes = round(_TOKENS_TO_READ / n_train_tokens)
        options = dataclasses.replace(options, n_epochs=min(max(passes, 1), _MOST_PASSES))
    if options.dropout is None:
        n_passes = float(options.n_epochs or 1)
        if options.n_steps is not None:
            n_passes = options.n_steps * tokens_per_step / n_train_tokens
        options = dataclasses.replace(options, dropout=choose_dropout(n_passes))
    return options


def choose_dropout(n_passes: float) -> float:
    """The dropout for a number of passes over the text.

    On half of WikiText-2, 3.5 passes give a better model without dropout than with 0.1.
    """
    return 0.0 if n_passes < 4 else 0.1 if n_passes <= 5 else 0.2


# Reading from checkpoints


def read_state(ckpt_file: str) -> RunState | None:
    """The state of the run that wrote a checkpoint; None for one of the original program."""
    if not checkpoints.open_checkpoint(ckpt_file).has_tensor(RECORD):
        return None
    try:
        return RunState.from_dict(json.loads(checkpoints.read_value(ckpt_file, RECORD)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{ckpt_file}: {RECORD} must be the record of a run in JSON: "
            f"{type(error).__name__}: {error}"
        ) from error


def load_lstm_states(ckpt_file: str, zero_states: Any) -> Any:
    """The LSTM states in one of our checkpoints, in the structure of `zero_states`."""
    named = named_states(zero_states, STATES_PREFIX)
    shapes = {name: tuple(value.shape) for name, value in named.items()}
    others = ("lm/", checkpoints.STEP, checkpoints.PERPLEXITY, RECORD, WORD_COUNTS)
    values = checkpoints.read_checkpoint(ckpt_file, shapes, others)
    return tf.nest.pack_sequence_as(zero_states, [tf.constant(values[name]) for name in named])


def load_mean_states(ckpt_file: str, zero_states: Callable[[int], Any]) -> Any:
    """The LSTM states of a checkpoint, averaged over the rows: (1, ...) per direction; None for a
    checkpoint of the original. `zero_states` makes states for a number of rows."""
    state = read_state(ckpt_file)
    if state is None:
        return None
    return mean_over_rows(load_lstm_states(ckpt_file, zero_states(state.batch_shape[0])))


def mean_over_rows(states: Any) -> Any:
    """States (batch, ...) averaged to one row, (1, ...)."""
    return tf.nest.map_structure(lambda x: tf.reduce_mean(x, axis=0, keepdims=True), states)


def read_word_counts(ckpt_file: str) -> np.ndarray | None:
    """Occurrences of each vocabulary word in the training text or its beginning, int64
    (n_tokens_vocab,); None if the checkpoint lacks them."""
    if not checkpoints.open_checkpoint(ckpt_file).has_tensor(WORD_COUNTS):
        return None
    counts: np.ndarray = checkpoints.read_value(ckpt_file, WORD_COUNTS)
    return counts
