"""Checks and choices before the first step of `train`: length, dropout, folder, text; and the speed
of runs by time."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from bilm.core.errors import InputError
from bilm.core.options import Options
from bilm.data import LMDataset, Vocabulary
from bilm.data.vocabulary import require_same_words
from bilm.files.checkpoints import holds_checkpoint, is_intact, list_checkpoints
from bilm.files.reading import OPTIONS_FILE, PathLike, read_json_object
from bilm.files.run_log import LOG_FILE
from bilm.inference.feed import make_feed
from bilm.intervals import Interval
from bilm.training.replicas import Worker
from bilm.training.verdict import unknown_warning

logger = logging.getLogger(__name__)

# Tokens counted for a text's unigram perplexity and unknown words.
_SAMPLED_TOKENS = 1_000_000
# Fewest words of a vocabulary that are expected to be frequent.
_FEWEST_FIRST = 10
# A short text is read again until about this many tokens have been read.
_TOKENS_TO_READ = 15_000_000
_MOST_PASSES = 10


def fast_precision() -> str:
    """ "bfloat16" if the CPU multiplies it faster than float32 (AVX-512 BF16 or AMX, as Linux
    reports them), otherwise "float32"."""
    with contextlib.suppress(OSError):
        features = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if re.search(r"\b(avx512_bf16|amx_bf16)\b", features):
            return "bfloat16"
    return "float32"


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


# Runs by time

FIXED_AT = 0.2  # proportion of the time after which the length is fixed
_MEASURED_FROM = 0.1  # proportion of the time before which speed may not be typical
_SLOW_STEPS = 2  # first steps of a compiled function, which are not measured
_FEWEST_MEASURED = 3  # least number of steps to measure
_FEWEST_STEPS = 20  # least number of steps of a run


class SpeedMeter:
    """The speed of a run by time."""

    def __init__(self) -> None:
        self._first = 0  # first measured step of this call
        self._seconds = 0.0  # seconds of the steps before it

    def restart(self, n: int) -> None:
        """Measure again, because the step is compiled again at step `n`."""
        self._first = n + _SLOW_STEPS

    def seconds_per_step(self, n: int, seconds: float, share: float) -> float | None:
        """The mean seconds per step, or None while too few steps have been measured.

        Args:
            n: number of the step in this call, 1-based.
            seconds: seconds of all earlier steps.
            share: proportion of the run's time that has passed.
        """
        if n <= _SLOW_STEPS or share < _MEASURED_FROM:
            self._first = n + 1
        if n == self._first:
            self._seconds = seconds
        measured = n - self._first
        return (seconds - self._seconds) / measured if measured >= _FEWEST_MEASURED else None


def with_evaluations(
    step: float, seconds: float, evaluation: float, every: Interval, steps_per_epoch: int
) -> tuple[float, float]:
    """Seconds per step including its share of the evaluations, and the remaining seconds of a run
    before its last evaluation; from the seconds of a `step`, the remaining `seconds`, and the
    seconds of an `evaluation`."""
    if every.unit == "seconds":
        step *= 1 + evaluation / every.number
    else:
        step += evaluation / (every.number * (steps_per_epoch if every.unit == "epochs" else 1))
    return step, seconds - evaluation


def steps_in(step: float, seconds: float, done: int) -> int:
    """Number of steps in the remaining seconds of a run by time; a run has at least twenty."""
    n_steps = int(seconds / step)
    if done + n_steps < _FEWEST_STEPS:
        logger.warning(
            "the time allows %d steps of %.2g s, too few for a model: training for %d steps",
            done + max(0, n_steps), step, _FEWEST_STEPS,
        )  # fmt: skip
    return max(n_steps, _FEWEST_STEPS - done, 1)


# The folder and the data


def check_folder(tf_save_dir: PathLike, restart_ckpt_file: str | None) -> bool:
    """Require that no model is overwritten; return whether the checkpoint is in the folder."""
    folder = os.path.realpath(tf_save_dir)
    if not restart_ckpt_file or os.path.dirname(os.path.realpath(restart_ckpt_file)) != folder:
        if holds_checkpoint(tf_save_dir):
            raise InputError(
                f"{os.fspath(tf_save_dir)}: the folder holds a trained model; it is not "
                f"overwritten. Restart from its checkpoint, or choose another folder."
            )
        return False
    prefixes = list(list_checkpoints(folder).values())
    start = os.path.join(folder, os.path.basename(restart_ckpt_file))
    for prefix in prefixes[prefixes.index(start) + 1 :] if start in prefixes else []:
        # A damaged checkpoint may be replaced; a warning has been logged before.
        if is_intact(prefix):
            raise InputError(
                f"{restart_ckpt_file}: the folder has a newer checkpoint, "
                f"{os.path.basename(prefix)}, which would be lost. Resume from that one, or "
                "train into another folder."
            )
    return True


def check_options(tf_save_dir: PathLike, contents: dict[str, Any]) -> None:
    """Require that options can be written, and that no other options.json is overwritten, such as a
    model's inference options."""
    try:
        ours = json.loads(json.dumps(contents))
    except (TypeError, ValueError) as error:
        raise InputError(f"options must hold values of JSON only: {error}.") from None
    path = Path(tf_save_dir, OPTIONS_FILE)
    is_run = holds_checkpoint(tf_save_dir) or Path(tf_save_dir, LOG_FILE).exists()
    if is_run or not path.exists():
        return
    stored = read_json_object(path, "options file")
    for name in ("n_train_tokens", "n_epochs", "n_steps", "dropout"):  # `train` may choose these
        stored.pop(name, None)
        ours.pop(name, None)
    if stored != ours:
        raise InputError(
            f"{path} must not exist, because its options are not those of this run: choose another "
            "folder, or remove it."
        )


def check_shares(worker: Worker, *data_sets: Any) -> None:
    """Require that data sets with an attribute `worker` are this worker's share."""
    for data in data_sets:
        share = getattr(data, "worker", worker.share)
        if share != worker.share:
            raise InputError(
                f"The data is the share of worker {share[0]} of {share[1]}; this process is "
                f"worker {worker.index} of {worker.count}: make it with worker={worker.share}."
            )


def check_data(options: Options, data: Any, heldout: Any = None) -> None:
    """Require that texts fit the options, before the first step and not after the first epoch."""
    vocabulary = check_vocabulary(options, data)
    if (other := check_vocabulary(options, heldout)) is not None and vocabulary is not None:
        require_same_words(other, vocabulary)
    _ = getattr(heldout, "n_train_tokens", None)  # raises the errors of the text
    if isinstance(heldout, LMDataset):
        for batch in itertools.islice(heldout.iter_distinct(1, 1), 1):
            make_feed(batch, options)


def check_vocabulary(options: Options, data: Any) -> Vocabulary | None:
    """The vocabulary of a data set, which must have n_tokens_vocab words; None without one."""
    vocabulary = getattr(data, "vocab", None)
    if not isinstance(vocabulary, Vocabulary):
        return None
    if options.n_tokens_vocab not in (None, vocabulary.size):
        raise InputError(
            f"{vocabulary.source} must have n_tokens_vocab = {options.n_tokens_vocab} words, got "
            f"{vocabulary.size}."
        )
    return vocabulary


def with_train_tokens(options: Options, data: Any) -> Options:
    """Fill in `n_train_tokens` if the options lack it."""
    if options.n_train_tokens is not None:
        return options
    counted = getattr(data, "n_train_tokens", None)
    if counted is None:
        raise InputError("options must have n_train_tokens, because the data cannot count them.")
    return dataclasses.replace(options, n_train_tokens=counted)


def word_counts(data: Any, name: str) -> tuple[np.ndarray | None, float | None]:
    """The word counts of the beginning of a text, and its proportion of unknown tokens; None if the
    data set cannot count. Logs a warning if the proportion is high."""
    counts = data.word_counts(_SAMPLED_TOKENS) if hasattr(data, "word_counts") else None
    if counts is None:
        return None, None
    unknown = data.unknown_share(_SAMPLED_TOKENS) if hasattr(data, "unknown_share") else None
    if unknown is not None and (warning := unknown_warning(unknown, name)):
        logger.warning("%s", warning)
    return counts, unknown


def warn_if_unsorted(vocabulary: Vocabulary, counts: np.ndarray) -> None:
    """Log a warning if the first words are not frequent, as the sampled softmax assumes.

    A vocabulary of another text is sorted well enough.
    """
    words = np.delete(counts, [vocabulary.bos, vocabulary.eos, vocabulary.unk])
    n = max(_FEWEST_FIRST, len(words) // 10)
    first, most = words[:n].sum(), np.sort(words)[-n:].sum()
    if first < most / 2:
        logger.warning(
            "%s: for the sampled softmax the words must be sorted by descending frequency, as by "
            "`bilm vocab`: its first %s words occur %s times in the training text, the most "
            "frequent ones %s times",
            vocabulary.source, f"{n:,}", f"{first:,}", f"{most:,}",
        )  # fmt: skip
