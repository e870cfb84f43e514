"""The length of a run: passes over the text, or a time limit.

The learning rate falls to zero at the last step, so the number of steps must be known at the
first one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import statistics
import time
from typing import Any

from bilm.core.errors import InputError, shown
from bilm.core.options import Options
from bilm.data import prefetch
from bilm.training.replicas import Replicas
from bilm.training.run import Run
from bilm.training.state import RunSettings

# A short text is read again until about this many tokens have been read.
_TOKENS_TO_READ = 15_000_000
_MOST_PASSES = 10
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MEASURED_SECONDS = 8.0
_MEASURED_STEPS = (5, 200)
_FEWEST_STEPS = 20


def parse_duration(text: str) -> float:
    """Seconds in "90s", "30min", "2h" or "1.5 days".

    >>> parse_duration("30min")
    1800.0
    """
    match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    seconds = float(match[1]) * _SECONDS[match[2][0]] if match else 0.0
    if not seconds:
        raise InputError(f"time must be a duration such as 30min or 2h, got {shown(text)}.")
    return seconds


def n_passes(options: Options, tokens_per_step: int) -> float:
    """Passes over the training text in the run that `options` describe."""
    if options.n_steps is None:
        return float(options.n_epochs or 1)
    return options.n_steps * tokens_per_step / (options.n_train_tokens or 1)


def choose_length(options: Options, tokens_per_step: int) -> Options:
    """Fill in the passes and the dropout if the options leave them open (None).

    A text that is read once needs no dropout; more passes need more.
    """
    if options.n_steps is None and options.n_epochs is None:
        passes = round(_TOKENS_TO_READ / (options.n_train_tokens or 1))
        options = dataclasses.replace(options, n_epochs=min(max(passes, 1), _MOST_PASSES))
    if options.dropout is None:
        passes_read = n_passes(options, tokens_per_step)
        dropout = 0.0 if passes_read <= 2 else 0.1 if passes_read <= 5 else 0.2
        options = dataclasses.replace(options, dropout=dropout)
    return options


def steps_for(
    seconds: float, options: Options, data: Any, replicas: Replicas, settings: RunSettings
) -> int:
    """The number of steps that fit in a time, measured by steps that are then discarded.

    `seconds` includes this measurement, compiling again and the steps.
    """
    started = time.monotonic()
    run = Run(options, replicas, settings, data)
    times: list[float] = []
    n_measured = _MEASURED_STEPS[0]
    with contextlib.closing(prefetch(run.inputs(), 2)) as batches:
        compiled = started
        for item in batches:
            before = time.monotonic()
            run.set_learning_rate()
            run.train_step(*item)
            times.append(time.monotonic() - before)
            if len(times) == 1:
                compiled = time.monotonic()
            if len(times) == 3:
                # All workers do the chief's number of steps.
                fitting = int(_MEASURED_SECONDS / max(times[-1], 1e-4))
                low, high = _MEASURED_STEPS
                n_measured = replicas.group.all_gather(min(max(fitting, low), high))[0]
            if len(times) >= 3 + n_measured:
                break
    step = statistics.fmean(times[1:]) if len(times) > 1 else sum(times)
    left = seconds - (time.monotonic() - started) - (compiled - started)
    n_steps = int(replicas.group.all_gather(left / max(step, 1e-6))[0])
    if n_steps < _FEWEST_STEPS:
        raise InputError(
            f"time must allow at least {_FEWEST_STEPS} steps; here compiling takes "
            f"{compiled - started:.0f} s and a step {step:.2g} s."
        )
    return n_steps
