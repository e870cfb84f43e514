"""Splitting a corpus of any size into shuffled shards, with an optional held-out text.

Sentences are distributed at random over bucket files, and each bucket is shuffled in memory;
together, this shuffles the complete corpus. A shard is one bucket, or several if it is large. All
random numbers come from `random.Random(...).random`, which is documented never to change.
"""

import glob
import itertools
import os
import random
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from pathlib import Path
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bilm.core.errors import InputError, Rule, integer, real, require, require_at_least
from bilm.data.prefetch import windows
from bilm.data.sentences import read_record, warn_if_untokenized, write_record
from bilm.files.reading import (
    TOKENIZER_FILE,
    PathLike,
    find_all_files,
    plain_start,
    read_files,
    read_text,
    require_path,
    size_of,
)
from bilm.files.writing import Outputs, work_folder
from bilm.progress import ShowStage, Stage, quiet

SHARD_BYTES = 50_000_000
"""Default size of a shard, uncompressed."""

# Bytes of text to shuffle in memory at once; bytes of memory to buffer for the buckets.
_BUCKET_BYTES = 64_000_000
_WAITING_BYTES = 48_000_000
_POINTERS = 16  # bytes of the two pointers to a buffered line

_HELDOUT = Rule(
    "a number of sentences >= 0 or a proportion between 0 and 1",
    lambda value: integer(0).holds(value) or (real(0).holds(value) and value < 1),
)

Items = TypeVar("Items", bound=MutableSequence[Any])


class ShardedPart(NamedTuple):
    """The training or held-out text of a split corpus; `pattern` is the glob of its files."""

    pattern: str
    n_files: int
    n_sentences: int


class ShardedCorpus(NamedTuple):
    """A split corpus."""

    training: ShardedPart
    heldout: ShardedPart | None
    n_empty_lines: int  # skipped
    n_tokens: int  # approximate, unless tokens are separated by single spaces


def shard_corpus(
    patterns: PathLike | Iterable[PathLike],
    out_dir: PathLike,
    *,
    n_shards: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    heldout: int | float = 0,
    seed: int = 0,
    progress: ShowStage = quiet,
    bucket_bytes: int = _BUCKET_BYTES,
) -> ShardedCorpus:
    """Split text files into `train-*.txt` and `heldout-*.txt`, every sentence in one of them.

    Sentences (lines with a token) are copied unchanged. The corpus is read twice, to measure and to
    split it; this needs disk space for the result and another uncompressed copy. The files appear
    when all are complete; if anything fails, none appears. The same text, arguments and seed give
    the same bytes in every version of Python.

    Args:
        patterns: one glob or several; plain or compressed; read in the order of their names.
        out_dir: a folder without such files; created if missing.
        n_shards: number of training files; None: derived from `shard_bytes`.
        shard_bytes: approximate size of a training file, uncompressed.
        heldout: sentences to hold out, drawn at random from the complete corpus: a number (int) or
            a proportion (float between 0 and 1); 0: none.
        seed: random seed, >= 0, of the held-out sentences and of the order.
        progress: called regularly with a `Stage`.
        bucket_bytes: bytes shuffled in memory at once; the order of the sentences depends on it.

    Returns:
        the patterns and sizes of both texts.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        InputError: a file is not UTF-8 (names file and line), damaged, or changed while it was
            read; `out_dir` has shards; there are too few sentences; a number is out of range.
    """
    require_at_least(1, n_shards=n_shards, shard_bytes=shard_bytes)
    require(integer(0), seed=seed)
    require(_HELDOUT, heldout=heldout)
    out_dir, files = require_path(out_dir), find_all_files(patterns)
    _require_no_shards(out_dir)
    warn_if_untokenized(map(str.split, read_text(files[0])), files[0])
    n_sentences, n_empty_lines, n_bytes, n_tokens = _measure(files, progress)
    sizes = _divide(n_sentences, n_bytes, n_shards, shard_bytes, heldout)
    names = [
        f"{name}-{number:0{max(2, len(str(n_files - 1)))}}.txt"
        for name, _, n_files in sizes
        for number in range(n_files)
    ]
    tokenizer = read_record(files)
    records = [] if tokenizer is None else [TOKENIZER_FILE]
    paths = [os.path.join(out_dir, name) for name in names + records]
    outputs = Outputs(paths, inputs={"patterns": files}, folders=[out_dir])
    with (
        outputs.temporaries() as temporaries,
        work_folder(os.path.join(out_dir, "buckets")) as folder,
    ):
        parts, remaining = [], iter(temporaries)
        for name, n_in_part, n_files in sizes:
            needed = -(-(n_bytes * n_in_part // n_sentences // n_files) // bucket_bytes)
            n_buckets = max(1, min(needed, n_in_part // n_files))  # no bucket is empty
            buckets_by_file = {
                path: [os.path.join(folder, f"{name}-{number}.{k}") for k in range(n_buckets)]
                for number, path in enumerate(itertools.islice(remaining, n_files))
            }
            parts.append(_Part(n_in_part, buckets_by_file, f"{seed} {name}"))
        _scatter(_read_lines(files, "scattering", progress), parts, seed)
        _assemble(parts, progress)
        if tokenizer is not None:
            sizes_on_disk = map(os.path.getsize, temporaries)
            write_record(temporaries[-1], tokenizer, dict(zip(names, sizes_on_disk, strict=False)))
    texts = [
        ShardedPart(os.path.join(out_dir, f"{name}-*.txt"), n_files, n_in_part)
        for name, n_in_part, n_files in sizes
    ]
    return ShardedCorpus(texts[0], texts[1] if len(texts) > 1 else None, n_empty_lines, n_tokens)


def _require_no_shards(out_dir: str) -> None:
    """Require that a folder has no shards."""
    patterns = ("train-*.txt*", "heldout-*.txt*")
    shards = [name for pattern in patterns for name in glob.glob(pattern, root_dir=out_dir)]
    if shards:
        raise InputError(
            f"{out_dir!r} must hold no shards, which are never overwritten, got {min(shards)}: "
            "choose another folder, or remove them."
        )


def _divide(
    n_sentences: int, n_bytes: int, n_shards: int | None, shard_bytes: int, heldout: int | float
) -> list[tuple[str, int, int]]:
    """(name, sentences, files) of the training part and, if there is one, of the held-out part."""
    n_heldout = max(1, round(heldout * n_sentences)) if 0 < heldout < 1 else int(heldout)
    n_training = n_sentences - n_heldout
    if n_training < 1:
        raise InputError(
            f"heldout must be below the number of sentences, {n_sentences:,}, got {heldout}."
        )
    if n_shards is None:
        n_shards = -(-(n_bytes * n_training // n_sentences) // shard_bytes)
        n_shards = max(1, min(n_shards, n_training))
    if n_shards > n_training:
        raise InputError(
            f"n_shards must be at most the number of training sentences, {n_training:,}, got "
            f"{n_shards:,}."
        )
    sizes = [("train", n_training, n_shards)]
    if n_heldout:
        n_files = min(n_heldout, -(-n_heldout * n_shards // n_training))
        sizes.append(("heldout", n_heldout, n_files))
    return sizes


def _measure(files: Sequence[str], progress: ShowStage) -> tuple[int, int, int, int]:
    """Sentences, empty lines, bytes of the sentences with their line ends, and tokens.

    Raises the errors of the text.
    """
    n_lines = n_sentences = n_bytes = n_tokens = 0
    for line in _read_lines(files, "measuring", progress):
        n_lines += 1
        if not line.isspace():
            n_sentences += 1
            n_bytes += len(line.encode("utf-8"))
            n_tokens += line.count(" ") + 1
    if not n_sentences:
        raise InputError(f"{files[0]}{' ...' if len(files) > 1 else ''}: no sentence.")
    return n_sentences, n_lines - n_sentences, n_bytes, n_tokens


def _read_lines(files: Sequence[str], doing: str, progress: ShowStage) -> Iterator[str]:
    """The lines of files, each with a newline at its end."""
    files_read = read_files(files, doing, progress)
    return (f"{line}\n" for _, lines in files_read for line in lines)


class _Part(NamedTuple):
    """The training or the held-out text."""

    n_sentences: int
    buckets_by_file: dict[str, list[str]]
    seed: str

    @property
    def buckets(self) -> list[str]:
        return [*itertools.chain.from_iterable(self.buckets_by_file.values())]

    def deal(self) -> Iterator[str]:
        """The bucket of each sentence, evenly at random."""
        draw = random.Random(f"{self.seed} buckets").random
        return itertools.chain.from_iterable(
            shuffled(self.buckets, draw) for _ in itertools.count()
        )


def _scatter(lines: Iterable[str], parts: Sequence[_Part], seed: int) -> None:
    """Write every sentence to a bucket of one of the parts; `parts[1]`, the held-out text, is a
    random sample of exactly the planned size (Knuth, TAOCP, section 3.4.2, algorithm S)."""
    draw = random.Random(f"{seed} sample").random
    deals = [part.deal() for part in parts]
    n_remaining = sum(part.n_sentences for part in parts)
    n_heldout = n_remaining - parts[0].n_sentences
    changed = InputError("The text must not change while it is read.")
    sentences = (line for line in lines if not line.isspace())
    for window, _ in windows(sentences, lambda line: getsizeof(line) + _POINTERS, _WAITING_BYTES):
        by_bucket: dict[str, list[str]] = defaultdict(list)
        for sentence in window:
            if not n_remaining:
                raise changed
            is_heldout = bool(n_heldout) and draw() * n_remaining < n_heldout
            n_remaining -= 1
            n_heldout -= is_heldout
            by_bucket[next(deals[is_heldout])].append(sentence)
        for path, new_sentences in by_bucket.items():  # one at a time: there may be thousands
            with open(path, "a", encoding="utf-8", newline="\n") as file:
                file.writelines(new_sentences)
    if n_remaining:
        raise changed


def _assemble(parts: Sequence[_Part], progress: ShowStage) -> None:
    """Write the files of all parts from their buckets, which are removed."""
    done, total = 0, sum(size_of(part.buckets) for part in parts)
    progress(Stage("writing", done, total))
    for part in parts:
        draw = random.Random(f"{part.seed} order").random
        for path, buckets in part.buckets_by_file.items():
            with open(path, "wb") as file:
                for bucket in buckets:
                    text = Path(bucket).read_bytes()
                    os.remove(bucket)
                    # Offsets take less memory than lines.
                    is_end = np.frombuffer(text, np.uint8) == ord("\n")
                    ends = array("Q", [0])
                    ends.frombytes((np.flatnonzero(is_end) + 1).tobytes())
                    order = shuffled(array("I", range(len(ends) - 1)), draw)
                    if not file.tell():
                        first = text[ends[order[0]] : ends[order[0] + 1]]
                        file.write(plain_start(first.decode()).encode())
                    file.writelines(text[ends[k] : ends[k + 1]] for k in order)
                    done += len(text)
                    progress(Stage("writing", done, total))


def shuffled(items: Items, draw: Callable[[], float]) -> Items:
    """`items`, shuffled in place; `draw` returns numbers in [0, 1)."""
    for end in range(len(items), 1, -1):
        chosen = int(draw() * end)
        items[end - 1], items[chosen] = items[chosen], items[end - 1]
    return items
