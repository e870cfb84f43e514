"""What a run tells: an event after every step, and a record at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilm.training.evaluation import Perplexity


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run stands after a step.

    Attributes:
        step: steps of this run so far, those before an interruption among them.
        n_steps: steps of the whole run.
        epoch: the pass over the training tokens, from 1.
        perplexity: of the step's batch before its update, of both directions; with a sampled
            softmax it is the sampled one, which is lower than the true one.
        tokens: tokens that this call has trained on.
        seconds: since the first step of this call began.
        n_epochs: passes of the whole run.
        sampled: whether `perplexity` is that of the sampled softmax.
        learning_rate: of the step.
        heldout: of the held-out text by the full softmax, if it was measured after this step.
        is_best: whether that is the lowest of the run so far.
        tokens_per_second: of this call without its first step, which compiles, and without the
            time for measuring and saving; None after the first step.
        seconds_left: to the end of the run at that rate; None after the first step.
    """

    step: int
    n_steps: int
    epoch: int
    perplexity: float
    tokens: int
    seconds: float
    n_epochs: int = 1
    sampled: bool = False
    learning_rate: float | None = None
    heldout: Perplexity | None = None
    is_best: bool = False
    tokens_per_second: float | None = None
    seconds_left: float | None = None


@dataclass
class TrainingRecord:
    """What a run did.

    Attributes:
        train_perplexity: exp(loss) of every step of this call, each before its update.
        n_steps: steps of this call.
        n_tokens: tokens that they trained on.
        seconds: how long they took.
        checkpoint: prefix of the last checkpoint.
        heldout: (global step, perplexity) of every measurement of this call.
        best: lowest held-out perplexity of the run, earlier calls among them; None if none was
            measured.
        best_step: global step of the best model, which is in the folder `best`.
        stopped_early: the held-out perplexity has not fallen for as long as `patience` allows.
        words_carried: words whose rows came from the model that the run began with, and words of
            the vocabulary; None without such a model, or if it has no rows of words.
    """

    train_perplexity: list[float] = field(default_factory=list)
    n_steps: int = 0
    n_tokens: int = 0
    seconds: float = 0.0
    checkpoint: str | None = None
    heldout: list[tuple[int, Perplexity]] = field(default_factory=list)
    best: float | None = None
    best_step: int | None = None
    stopped_early: bool = False
    words_carried: tuple[int, int] | None = None
