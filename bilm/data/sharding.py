"""Splitting a corpus of any size into shuffled shards, with a part of it held out."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass

from bilm.data.scattering import COMPRESSIONS, Plan, TextSize, measure, scatter, write_files
from bilm.data.text_files import ShowStage, corpus_files, quiet, work_folder
from bilm.errors import InputError
from bilm.files import PathLike

SHARD_BYTES = 50_000_000
"""Size of a shard, uncompressed, if nothing else is asked for."""

_NAMES = ("train", "heldout")


@dataclass(frozen=True)
class ShardedPart:
    """A part of a corpus that was split.

    Attributes:
        pattern: the glob of its files.
        n_files, n_sentences: how many it has.
    """

    pattern: str
    n_files: int
    n_sentences: int


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus that was split.

    Attributes:
        training: the shards to train on.
        heldout: the part set aside; None if there is none.
        n_empty_lines: lines without a word, which are in no shard.
    """

    training: ShardedPart
    heldout: ShardedPart | None
    n_empty_lines: int


def shard_corpus(
    patterns: PathLike | Iterable[PathLike],
    out_dir: PathLike,
    *,
    n_shards: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    heldout: int | float = 0,
    seed: int = 0,
    shuffle: bool = True,
    compress: str | None = None,
    progress: ShowStage = quiet,
) -> ShardedCorpus:
    """Split text files into `train-*.txt` and `heldout-*.txt`, every sentence in one of them.

    Sentences (lines with a word) stay as they are. The corpus is read twice: to learn its size,
    and to scatter it; so its size is bounded by the disk only, which has to hold it once more
    beside the result. The files get their names when all are whole; if anything fails before,
    none is there. The same text, arguments and seed give the same bytes, in every version of
    Python (compressed ones also depend on the version of the compressing library).

    Args:
        patterns: a glob, or several; plain, .gz or .xz; read in the order of their names.
        out_dir: a folder without such files; it is made if need be.
        n_shards: number of training files; None takes as many as `shard_bytes` asks for.
        shard_bytes: about how large a training file is, uncompressed.
        heldout: sentences to set aside, drawn from the whole corpus at random: a number (int), or
            a share of all (float, between 0 and 1); 0 sets none aside.
        seed: of the drawing and the shuffling; 0 or more.
        shuffle: deal the sentences to the shards evenly and at random, and shuffle each shard.
            Otherwise they keep their order, and the shards follow one another.
        compress: "gz" or "xz"; None writes plain text.
        progress: is called now and then with a `Stage`.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        InputError: a file is not UTF-8 (file and line), damaged, or changed while it was read;
            `out_dir` has shards; there are too few sentences; a number is out of its range.
    """
    _check(n_shards, shard_bytes, heldout, seed, compress)
    files = corpus_files(patterns)
    _require_no_shards(out_dir)
    size = measure(files, progress)
    plans = _plan(size, n_shards, shard_bytes, heldout)
    suffix = f".txt.{compress}" if compress else ".txt"
    with _folder_beside(out_dir) as folder:
        buckets, made = os.path.join(folder, "buckets"), os.path.join(folder, "made")
        os.mkdir(buckets)
        os.mkdir(made)
        scatter(files, size, plans, buckets, seed, shuffle, progress)
        write_files(plans, buckets, made, suffix, seed, shuffle, progress)
        _publish(made, out_dir)
    training, *aside = [
        ShardedPart(os.path.join(out_dir, f"{plan.name}-*{suffix}"), plan.n_files, plan.n_sentences)
        for plan in plans
    ]
    return ShardedCorpus(training, aside[0] if aside else None, size.n_empty_lines)


def _check(
    n_shards: int | None, shard_bytes: int, heldout: int | float, seed: int, compress: str | None
) -> None:
    if n_shards is not None and n_shards < 1:
        raise InputError(f"n_shards must be 1 or more, not {n_shards}.")
    if shard_bytes < 1:
        raise InputError(f"shard_bytes must be 1 or more, not {shard_bytes}.")
    if heldout < 0 or (isinstance(heldout, float) and not heldout < 1):
        raise InputError(
            f"heldout must be a number of sentences or a share between 0 and 1, not {heldout}."
        )
    if seed < 0:
        raise InputError(f"seed must be 0 or more, not {seed}.")
    if compress is not None and compress not in COMPRESSIONS:
        raise InputError(f"compress must be one of {', '.join(COMPRESSIONS)}, not {compress!r}.")


def _require_no_shards(out_dir: PathLike) -> None:
    folder = os.fspath(out_dir)
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder!r} is a file; a folder for shards is expected.")
    for name in _NAMES:
        found = sorted(glob.glob(os.path.join(glob.escape(folder), f"{name}-*.txt*")))
        if found:
            raise InputError(
                f"{folder} has shards already ({os.path.basename(found[0])}), which are never "
                "overwritten: name another folder, or remove them."
            )


def _plan(
    size: TextSize, n_shards: int | None, shard_bytes: int, heldout: int | float
) -> list[Plan]:
    """The training part and, if there is one, the held-out part, in files of like size."""
    n_heldout = int(heldout)
    if 0 < heldout < 1:
        n_heldout = max(1, round(heldout * size.n_sentences))
    n_training = size.n_sentences - n_heldout
    if n_training < 1:
        raise InputError(
            f"heldout = {heldout} leaves nothing to train on: the text has {size.n_sentences} "
            "sentences."
        )
    if n_shards is None:
        n_bytes = size.n_bytes * n_training // size.n_sentences
        n_shards = max(1, min(-(-n_bytes // shard_bytes), n_training))
    if n_shards > n_training:
        raise InputError(f"{n_shards} shards cannot be made of {n_training} sentences.")
    plans = [Plan.of("train", n_training, n_shards, size)]
    if n_heldout:
        n_files = -(-n_heldout * n_shards // n_training)
        plans.append(Plan.of("heldout", n_heldout, min(n_files, n_heldout), size))
    return plans


def _folder_beside(out_dir: PathLike) -> contextlib.AbstractContextManager[str]:
    """A folder to work in, on the disk of `out_dir`."""
    home = os.path.abspath(out_dir)
    if not os.path.isdir(home):
        home = os.path.dirname(home)
        os.makedirs(home, exist_ok=True)
    return work_folder(home, ".shards-")


def _publish(made: str, out_dir: PathLike) -> None:
    """Give all files their names: those of a new folder at once, others one after the other."""
    if not os.path.exists(out_dir):
        os.rename(made, out_dir)
        return
    _require_no_shards(out_dir)
    moved: list[str] = []
    try:
        for name in sorted(os.listdir(made)):
            os.rename(os.path.join(made, name), os.path.join(out_dir, name))
            moved.append(name)
    except BaseException:
        for name in moved:
            os.remove(os.path.join(out_dir, name))
        raise
