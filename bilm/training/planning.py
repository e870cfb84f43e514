"""Everything settled before a run's first step: its length, its folder, its text.

The learning rate falls to zero at the last step, so the number of steps must be known at the
first one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import time
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError
from bilm.core.options import Options
from bilm.data import prefetch
from bilm.files.checkpoints import holds_checkpoint, is_whole, list_checkpoints
from bilm.files.reading import PathLike
from bilm.training.replicas import Replicas, Worker
from bilm.training.run_state import RunSettings, TrainingRecord
from bilm.training.step import Run
from bilm.training.verdict import unigram_perplexity, unknown_warning

logger = logging.getLogger(__name__)

# Tokens of a text that are counted for its unigram perplexity and unknown words.
_SAMPLED_TOKENS = 1_000_000
# A short text is read again until about this many tokens have been read.
_TOKENS_TO_READ = 15_000_000
_MOST_PASSES = 10
_MEASURED_SECONDS = 8.0
_MEASURED_STEPS = 200
_FEWEST_STEPS = 20


def fast_precision() -> str:
    """ "bfloat16" if the processor multiplies it faster than float32 (AVX-512 BF16 or AMX, as Linux
    reports them), otherwise "float32"."""
    with contextlib.suppress(OSError):
        found = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if re.search(r"\b(avx512_bf16|amx_bf16)\b", found):
            return "bfloat16"
    return "float32"


def choose_length(options: Options, tokens_per_step: int) -> Options:
    """Fill in the passes and the dropout if the options leave them open (None).

    On half of WikiText-2, 3.5 passes were still better without dropout than with 0.1.
    """
    n_train_tokens = options.n_train_tokens or 1
    if options.n_steps is None and options.n_epochs is None:
        passes = round(_TOKENS_TO_READ / n_train_tokens)
        options = dataclasses.replace(options, n_epochs=min(max(passes, 1), _MOST_PASSES))
    if options.dropout is None:
        n_passes = float(options.n_epochs or 1)
        if options.n_steps is not None:
            n_passes = options.n_steps * tokens_per_step / n_train_tokens
        dropout = 0.0 if n_passes < 4 else 0.1 if n_passes <= 5 else 0.2
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
    ends: list[float] = []
    with contextlib.closing(prefetch(run.inputs(), 2)) as batches:
        for item in batches:
            run.set_learning_rate()
            run.train_step(*item)
            ends.append(time.monotonic())
            is_enough = len(ends) > 5 and ends[-1] - ends[0] > _MEASURED_SECONDS
            if replicas.group.all_gather(is_enough or len(ends) > _MEASURED_STEPS)[0]:
                break  # all workers follow the chief's clock
    # The first step compiles. The time between steps includes waiting for their batches.
    compiled = ends[0] if ends else started
    step = (ends[-1] - compiled) / (len(ends) - 1) if len(ends) > 1 else compiled - started
    remaining = seconds - (time.monotonic() - started) - (compiled - started)
    n_steps = int(replicas.group.all_gather(remaining / max(step, 1e-6))[0])
    if n_steps < _FEWEST_STEPS:
        raise InputError(
            f"time must allow at least {_FEWEST_STEPS} steps; here compiling takes "
            f"{compiled - started:.0f} s and a step {step:.2g} s."
        )
    return n_steps


# The folder and the data


def check_folder(tf_save_dir: PathLike, restart_ckpt_file: str | None) -> bool:
    """Refuse to overwrite a model; return whether the checkpoint is in the folder itself."""
    folder = os.path.realpath(tf_save_dir)
    if not restart_ckpt_file or os.path.dirname(os.path.realpath(restart_ckpt_file)) != folder:
        if holds_checkpoint(tf_save_dir):
            raise InputError(
                f"{os.fspath(tf_save_dir)}: the folder holds a trained model; it is not "
                f"overwritten. Restart from its checkpoint, or choose another folder."
            )
        return False
    found = list(list_checkpoints(folder).values())
    own = os.path.join(folder, os.path.basename(restart_ckpt_file))
    for prefix in found[found.index(own) + 1 :] if own in found else []:
        # A damaged checkpoint may be replaced; finding the newest one has logged a warning.
        if is_whole(prefix):
            raise InputError(
                f"{restart_ckpt_file}: the folder has a newer checkpoint, "
                f"{os.path.basename(prefix)}, which would be lost. Resume from that one, or "
                "train into another folder."
            )
    return True


def check_shares(worker: Worker, *data_sets: Any) -> None:
    """Require that data sets with an attribute `worker` are this worker's share."""
    for data in data_sets:
        share = getattr(data, "worker", worker.share)
        if share != worker.share:
            raise InputError(
                f"The data is the share of worker {share[0]} of {share[1]}; this process is "
                f"worker {worker.index} of {worker.count}: make it with worker={worker.share}."
            )


def with_train_tokens(options: Options, data: Any) -> Options:
    """Fill in `n_train_tokens` if the options lack it."""
    if options.n_train_tokens is not None:
        return options
    counted = getattr(data, "n_train_tokens", None)
    if counted is None:
        raise InputError("options must have n_train_tokens, because the data cannot count them.")
    return dataclasses.replace(options, n_train_tokens=counted)


def record_word_counts(record: TrainingRecord, data: Any, heldout: Any) -> None:
    """Record the unigram perplexity and the proportion of unknown words; warn if it is high."""
    counts, record.unknown = _word_counts(data, "the training text")
    predicted = counts if heldout is None else _word_counts(heldout, "the held-out text")[0]
    if counts is not None and predicted is not None:
        record.unigram = unigram_perplexity(counts, predicted)


def _word_counts(data: Any, name: str) -> tuple[Any, float | None]:
    """A data set's word counts and proportion of unknown tokens; None if it has no counts."""
    counts = data.word_counts(_SAMPLED_TOKENS) if hasattr(data, "word_counts") else None
    if counts is None:
        return None, None
    unknown = data.unknown_share(_SAMPLED_TOKENS) if hasattr(data, "unknown_share") else None
    if unknown is not None and (warning := unknown_warning(unknown, name)):
        logger.warning("%s", warning)
    return counts, unknown
