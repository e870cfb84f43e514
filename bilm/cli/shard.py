"""Split a corpus into shuffled shards, and set a held-out part aside.

The corpus is UTF-8 text (plain, .gz, .xz), one sentence a line. Each sentence goes into one of
train-00.txt, train-01.txt ... or, drawn at random from the whole corpus, into heldout-00.txt ...
Training reads one shard into memory at a time and shuffles within it, so each shard should be a
sample of the whole corpus. Empty lines are skipped. The same text and seed give the same files.
Prints what was made, and the commands that come next.

  bilm shard 'text/*.txt' --out_dir corpus --heldout 0.01
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from bilm.cli.flags import positive_number, whole_number
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.data.sharding import ShardedCorpus

_MEGABYTE = 1_000_000
# From this many sentences on, words that occur once or twice are too many for the vocabulary.
_LARGE = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm shard`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="text files or globs of them")
    parser.add_argument(
        "--out_dir",
        metavar="FOLDER",
        required=True,
        help="where the shards go; a folder that already has shards is an error",
    )
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--n_shards", type=whole_number(1), metavar="N", help="number of shards")
    number.add_argument(
        "--shard_size",
        type=positive_number,
        metavar="MB",
        help="approximate size of a shard, uncompressed, in millions of bytes (default: 50)",
    )
    parser.add_argument(
        "--heldout",
        type=_number_or_share,
        metavar="N|FRACTION",
        default=0,
        help="sentences to set aside: a whole number, or a share of all such as 0.01 "
        "(default: none)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), metavar="N", default=0, help="random seed (default: 0)"
    )
    parser.add_argument(
        "--no_shuffle",
        action="store_true",
        help="keep the order of the text, within the shards and from shard to shard",
    )
    parser.add_argument("--compress", choices=("gz", "xz"), help="compress the shards")


def _number_or_share(text: str) -> int | float:
    """A type for flags: a whole number from 0, or a share between 0 and 1."""
    try:
        number = int(text)
        if number >= 0:
            return number
    except ValueError:
        try:
            share = float(text)
            if 0 < share < 1:
                return share
        except ValueError:
            pass
    raise argparse.ArgumentTypeError(
        f"a number of sentences or a share between 0 and 1 is expected, not {text!r}"
    )


def run(args: argparse.Namespace) -> int:
    """Write the shards."""
    from bilm.data.sharding import SHARD_BYTES, shard_corpus

    shard_bytes = SHARD_BYTES
    if args.shard_size is not None:
        shard_bytes = max(1, round(args.shard_size * _MEGABYTE))
    with ProgressDisplay() as display:
        made = shard_corpus(
            args.files,
            args.out_dir,
            n_shards=args.n_shards,
            shard_bytes=shard_bytes,
            heldout=args.heldout,
            seed=args.seed,
            shuffle=not args.no_shuffle,
            compress=args.compress,
            progress=lambda stage: display.update(*stage),
        )
    _print_made(made)
    print("next:")
    for command in _next_commands(made, args.out_dir):
        print(f"  {shlex.join(command)}")
    return 0


def _print_made(made: ShardedCorpus) -> None:
    parts = [("training", made.training)]
    if made.heldout is not None:
        parts.append(("held out", made.heldout))
    for name, part in parts:
        files = "1 file" if part.n_files == 1 else f"{part.n_files} files"
        print(f"{name:<12} {part.n_sentences} sentences in {files}: {part.pattern}")
    print(f"empty lines  {made.n_empty_lines} skipped")


def _next_commands(made: ShardedCorpus, out_dir: str) -> list[list[str]]:
    vocabulary = os.path.join(out_dir, "vocab.txt")
    count = ["bilm", "vocab", made.training.pattern, "--out", vocabulary]
    if made.training.n_sentences >= _LARGE:
        count += ["--min_count", "3"]
    train = ["bilm", "train", "--save_dir", "model", "--vocab_file", vocabulary]
    train += ["--train_prefix", made.training.pattern]
    if made.heldout is not None:
        train += ["--heldout_prefix", made.heldout.pattern]
    return [count, train]
