"""The state of a run, which checkpoints store, and the record of a call of `train`.

`RunState` holds everything about a run except its tensors; each step and evaluation creates a new
one. A checkpoint stores it as the JSON object `bilm/record`, next to the variables, the optimizer's
slots and the LSTM states.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, NotFiniteError
from bilm.data import IteratorState
from bilm.files import checkpoints
from bilm.files.weights import named_states
from bilm.training.schedule import Plan

if TYPE_CHECKING:
    from bilm.inference.scorer import Perplexity

logger = logging.getLogger(__name__)

RUN_STATE = f"{checkpoints.OURS}record"
WORD_COUNTS = f"{checkpoints.OURS}word_counts"
STATES_PREFIX = f"{checkpoints.OURS}state/"  # LSTM states


@dataclass(frozen=True)
class RunSettings:
    """Arguments of `train` that stay the same for a whole run, besides the options."""

    seed: int = 0
    precision: str = "float32"
    init_from: str | None = None


@dataclass(frozen=True)
class HeldoutState:
    """Evaluations of the held-out text so far."""

    best: float | None = None  # lowest perplexity
    best_step: int | None = None  # its global step
    since_best: int = 0  # evaluations since then
    measured_at: int | None = None  # global step of the last evaluation
    n_predictions: int | None = None  # with the checksum, detects changes of the text
    checksum: int | None = None
    unigram: float | None = None  # perplexity of the text by word frequencies alone

    def after(self, perplexity: Perplexity, step: int) -> HeldoutState:
        """The state after an evaluation at a global step."""
        if math.isnan(perplexity):
            raise NotFiniteError(f"Step {step}: the held-out loss is not a number.")
        best, best_step, since_best = self.best, self.best_step, self.since_best + 1
        n, checksum = perplexity.n_predictions, perplexity.checksum
        if self.n_predictions not in (None, n) or self.checksum not in (None, checksum):
            logger.warning("the held-out text has changed: its best perplexity is measured again")
            best = None
        if best is None or perplexity < best:
            best, best_step, since_best = float(perplexity), step, 0
        return HeldoutState(best, best_step, since_best, step, n, checksum, self.unigram)


@dataclass(frozen=True)
class RunState:
    """The state of a run after a step."""

    batch_shape: tuple[int, int]  # rows of a batch, over all workers, and tokens per row
    step: int = 0  # global step, including the model's steps before this run
    position: int = 0  # tokens of this run: predictions per direction
    plan: Plan = Plan(None)  # noqa: RUF009 - a frozen value; its `settings` are empty if unknown
    # Training of the model including earlier runs, in tokens and in passes over the text; None if
    # unknown, as after a checkpoint of the original.
    tokens: int | None = 0
    passes: float | None = 0.0
    seconds: float = 0.0  # duration of the run's steps
    elapsed: float = 0.0  # duration of the run, including set-up and evaluations
    train_perplexity: float = 0.0  # last batch
    settings: RunSettings = RunSettings()
    heldout: HeldoutState = HeldoutState()
    # One entry per worker, None if its data set cannot resume. A running worker has only its entry.
    iterator_state: tuple[IteratorState | None, ...] = field(default=(None,), repr=False)

    @property
    def tokens_per_step(self) -> int:
        """Predictions per direction and step."""
        return math.prod(self.batch_shape)

    @property
    def done(self) -> int:
        """Steps of this run, converted to the current batch shape."""
        return self.position // self.tokens_per_step

    @property
    def is_over(self) -> bool:
        """Whether the run has reached its planned length."""
        return self.plan.end is not None and self.position >= self.plan.end

    def after_step(self, n_train_tokens: int | None, **changes: Any) -> RunState:
        n, passes = self.tokens_per_step, self.passes
        if passes is not None and n_train_tokens is not None:
            passes += n / n_train_tokens
        return dataclasses.replace(
            self,
            step=self.step + 1,
            position=self.position + n,
            tokens=None if self.tokens is None else self.tokens + n,
            passes=passes,
            **changes,
        )

    def to_dict(self) -> dict[str, Any]:
        """The state for JSON."""
        run, states = asdict(self.settings), [x and x.to_dict() for x in self.iterator_state]
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "plan": asdict(self.plan),
            "heldout": asdict(self.heldout),
            "seed": run.pop("seed"),
            "run": run,
            "iterator_state": states if len(states) > 1 else states[0],
        }

    @classmethod
    def from_dict(cls, values: Any) -> RunState:
        """A state from the result of `to_dict`, in this version or the previous one."""
        batch_shape, plan = tuple(values["batch_shape"]), values.get("plan", {"end": None})
        # The previous version stored steps instead of tokens, and no plan.
        if "done" in values:
            values = values | {"position": math.prod(batch_shape) * values["done"], "elapsed": 0.0}
        values = values | {"batch_shape": batch_shape}
        run, states = values["run"], values["iterator_state"]
        return cls(
            plan=Plan(**plan | {"settings": tuple(plan.get("settings", ()))}),
            settings=RunSettings(values["seed"], run["precision"], run["init_from"]),
            heldout=HeldoutState(**values["heldout"]),
            iterator_state=tuple(
                None if state is None else IteratorState.from_dict(state)
                for state in (states if isinstance(states, list) else [states])
            ),
            **{name: values[name] for name in _PLAIN},
        )


# Fields that JSON stores as they are.
_PLAIN = ("batch_shape", "step", "position", "tokens", "passes", "seconds", "elapsed",
          "train_perplexity")  # fmt: skip


@dataclass
class TrainingRecord:
    """Progress of a call of `train`: its result, and the argument of `progress`."""

    first: RunState = field(repr=False)  # before the first step of this call
    state: RunState  # after the last step
    # Perplexity of every step's batch, before the update.
    train_perplexity: list[float] = field(default_factory=list, repr=False)
    checkpoint: str | None = None  # prefix of the last checkpoint
    # Evaluations of this call: pairs (global step, perplexity).
    heldout: list[tuple[int, Perplexity]] = field(default_factory=list)
    stopped_early: bool = False  # by `patience`
    # Perplexity of the training text by its word frequencies alone; None if the data cannot count
    # words.
    unigram: float | None = None
    unknown: float | None = None  # proportion of unknown tokens in the training text
    # Words whose rows came from `init_from`, and words in the vocabulary; None without `init_from`,
    # or if that model has no word rows.
    words_carried: tuple[int, int] | None = None
    epoch: int = 1  # the pass over the training text, 1-based

    @property
    def step(self) -> int:
        """Global step, as in the log and in the names of checkpoints."""
        return self.state.step

    @property
    def total_steps(self) -> int | None:
        """Global step at the end of the run; None while a run by time measures its speed."""
        state = self.state
        if state.plan.end is None:
            return None
        return self.step + max(0, -((state.position - state.plan.end) // state.tokens_per_step))

    @property
    def n_steps(self) -> int:
        """Steps of this call."""
        return self.state.step - self.first.step

    @property
    def n_tokens(self) -> int:
        """Tokens that this call trained on."""
        return self.state.position - self.first.position

    @property
    def seconds(self) -> float:
        """Seconds that the steps of this call took."""
        return self.state.seconds - self.first.seconds

    @property
    def best(self) -> float | None:
        """Lowest held-out perplexity of the run, over all calls; None if none was measured."""
        return self.state.heldout.best

    @property
    def best_step(self) -> int | None:
        """Global step of the best model, which is kept in the folder `best`."""
        return self.state.heldout.best_step

    @property
    def tokens(self) -> int | None:
        """Tokens of training in all runs of the model; None if unknown."""
        return self.state.tokens

    @property
    def passes(self) -> float | None:
        """`tokens` in passes over the text; None if unknown."""
        return self.state.passes


# Reading from checkpoints


def read_run_state(ckpt_file: str) -> RunState | None:
    """The state of the run that wrote a checkpoint; None for one of the original program."""
    if not checkpoints.open_checkpoint(ckpt_file).has_tensor(RUN_STATE):
        return None
    try:
        return RunState.from_dict(json.loads(checkpoints.read_value(ckpt_file, RUN_STATE)))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{ckpt_file}: {RUN_STATE} must be the record of a run in JSON: "
            f"{type(error).__name__}: {error}"
        ) from error


def load_states(ckpt_file: str, zero_states: Any) -> Any:
    """The LSTM states in one of our checkpoints, in the structure of `zero_states`."""
    named = named_states(zero_states, STATES_PREFIX)
    shapes = {name: tuple(value.shape) for name, value in named.items()}
    values = checkpoints.read_checkpoint(
        ckpt_file,
        shapes,
        ("lm/", checkpoints.STEP, checkpoints.PERPLEXITY, RUN_STATE, WORD_COUNTS),
    )
    return tf.nest.pack_sequence_as(zero_states, [tf.constant(values[name]) for name in named])


def load_mean_states(ckpt_file: str, zero_states: Callable[[int], Any]) -> Any:
    """The LSTM states of a checkpoint, averaged over the rows: (1, ...) per direction; None for a
    checkpoint of the original. `zero_states` makes states for a number of rows."""
    state = read_run_state(ckpt_file)
    if state is None:
        return None
    return mean_over_rows(load_states(ckpt_file, zero_states(state.batch_shape[0])))


def mean_over_rows(states: Any) -> Any:
    """States (batch, ...) averaged to one row, (1, ...)."""
    return tf.nest.map_structure(lambda x: tf.reduce_mean(x, axis=0, keepdims=True), states)


def read_word_counts(ckpt_file: str) -> np.ndarray | None:
    """Occurrences of each vocabulary word at the beginning of the training text, int64
    (n_tokens_vocab,); None if the checkpoint lacks them."""
    if not checkpoints.open_checkpoint(ckpt_file).has_tensor(WORD_COUNTS):
        return None
    counts: np.ndarray = checkpoints.read_value(ckpt_file, WORD_COUNTS)
    return counts
