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

from bilm.cli import flags
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.data.sharding import ShardedCorpus

_MEGABYTE = 1_000_000
# From this many sentences on, words that occur once or twice are too many for the vocabulary.
_LARGE = 10_000
_number_or_share = flags.value(
    lambda text: float(text) if set(text) & set(".eE") else int(text),
    "must be a number of sentences or a proportion between 0 and 1",
    lambda number: 0 < number < 1 if isinstance(number, float) else number >= 0,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.TEXTS)
    folder = "where the shards go; a folder that already has shards is an error"
    flags.add(parser, {"--out_dir FOLDER": folder}, required=True)
    flags.add(
        parser.add_mutually_exclusive_group(),
        {
            "--n_shards N": "number of shards",
            "--shard_size MB": "approximate size of a shard, uncompressed, in millions of bytes "
            "(default: 50)",
        },
    )
    heldout = "sentences to set aside: a whole number, or a share of all such as 0.01 (default: "
    form = {"type": _number_or_share, "metavar": "N|FRACTION"}
    flags.add(parser, {"--heldout SENTENCES": heldout + "none)"}, **form)
    flags.add(
        parser,
        {
            "--seed N>=0": "random seed (default: 0)",
            "--no_shuffle": "keep the order of the text, within the shards and from shard to shard",
            "--compress gz|xz": "compress the shards",
        },
    )
    parser.set_defaults(heldout=0, seed=0, shard_size=50.0)


def run(args: argparse.Namespace) -> int:
    from bilm.data.sharding import shard_corpus

    with ProgressDisplay() as display:
        made = shard_corpus(
            args.files,
            args.out_dir,
            n_shards=args.n_shards,
            shard_bytes=max(1, round(args.shard_size * _MEGABYTE)),
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
