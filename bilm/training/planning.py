"""Checks and choices before the first step of `train`: length, dropout, folder, text."""

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
from bilm.data.dataset import unknown_share
from bilm.data.vocabulary import require_same_words
from bilm.files.checkpoints import holds_checkpoint, is_intact, list_checkpoints
from bilm.files.reading import OPTIONS_FILE, PathLike, read_json_object
from bilm.files.run_log import LOG_FILE
from bilm.inference.feed import make_feed
from bilm.training.replicas import Worker
from bilm.training.state import RunState
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


def with_length(
    options: Options, state: RunState, seconds: float | None, *, is_new: bool
) -> Options:
    """Set the length of a run in its state, and fill in the options that it determines."""
    if is_new:
        if seconds is None:
            options = choose_length(options, state.tokens_per_step)
        state.set_length(options, seconds)
        return options
    if options.n_epochs is None and options.n_steps is None:
        n_epochs, n_steps, *_ = state.length
        options = dataclasses.replace(options, n_epochs=n_epochs, n_steps=n_steps)
    state.change_length(options)
    state.n_train_tokens = options.n_train_tokens or 0
    return options if state.end is None else choose_length(options, state.tokens_per_step)


def choose_dropout(n_passes: float) -> float:
    """The dropout for a number of passes over the text.

    On half of WikiText-2, 3.5 passes give a better model without dropout than with 0.1.
    """
    return 0.0 if n_passes < 4 else 0.1 if n_passes <= 5 else 0.2


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


def data_vocabulary(data: Any) -> Vocabulary | None:
    """The vocabulary of a data set, its attribute `vocab`; None without one."""
    vocabulary = getattr(data, "vocab", None)
    return vocabulary if isinstance(vocabulary, Vocabulary) else None


def check_vocabulary(options: Options, data: Any) -> Vocabulary | None:
    """The vocabulary of a data set, which must have n_tokens_vocab words; None without one."""
    vocabulary = data_vocabulary(data)
    if vocabulary is not None and options.n_tokens_vocab not in (None, vocabulary.size):
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


def word_counts(
    data: Any, name: str, counts: np.ndarray | None = None
) -> tuple[np.ndarray | None, float | None]:
    """The word counts of a text or its beginning, unless `counts` has them, and its proportion of
    unknown tokens; None if the data set cannot count. Logs a warning if the proportion is high."""
    if counts is None and hasattr(data, "word_counts"):
        counts = data.word_counts(_SAMPLED_TOKENS)
    vocabulary = data_vocabulary(data)
    if counts is None or vocabulary is None:
        return counts, None
    unknown = unknown_share(counts, vocabulary)
    if warning := unknown_warning(unknown, name):
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
