"""Split a corpus into shuffled shards, and set a held-out part aside.

The corpus is UTF-8 text (plain or compressed), one sentence per line, tokens separated by spaces,
or CoNLL-U. Each sentence goes into one of train-00.txt, train-01.txt, ..., or into heldout-00.txt,
..., whose sentences are drawn at random from the complete corpus. Training reads one shard at a
time and shuffles within it, so each shard is a sample of the complete corpus. Empty lines are
skipped. The same text and seed give the same files. Prints the files written, and the next
commands.

  bilm shard 'text/*.txt' --out_dir corpus --heldout 0.01
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from bilm.cli import flags
from bilm.progress import ProgressDisplay
from bilm.terminal import count

if TYPE_CHECKING:
    from bilm.data.sharding import ShardedCorpus

_MEGABYTE = 1_000_000
# From this many sentences on, the next command leaves words that occur once or twice out of the
# vocabulary.
_LARGE = 10_000
# The largest corpus for a preset, in tokens; larger ones suit the paper's size.
_PRESETS = (
    (500_000, "tiny"), (20_000_000, "base"), (100_000_000, "small"), (800_000_000, "medium"),
)  # fmt: skip
_number_or_proportion = flags.value(
    lambda text: float(text) if set(text) & set(".eE") else int(text),
    "must be a number of sentences or a proportion between 0 and 1",
    lambda number: 0 < number < 1 if isinstance(number, float) else number >= 0,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.TEXTS)
    folder = "where to write the shards; a folder that already has shards is an error"
    flags.add(parser, {"--out_dir FOLDER": folder}, required=True)
    flags.add(
        parser.add_mutually_exclusive_group(),
        {
            "--n_shards N": "number of shards",
            "--shard_size MB": "approximate size of a shard, uncompressed, in millions of bytes "
            "(default: 50)",
        },
    )
    heldout = "sentences to set aside: a number, or a proportion such as 0.01 (default: none)"
    form = {"type": _number_or_proportion, "metavar": "N|FRACTION"}
    flags.add(parser, {"--heldout SENTENCES": heldout}, **form)
    flags.add(parser, {"--seed N>=0": "random seed (default: 0)"})
    parser.set_defaults(heldout=0, seed=0, shard_size=50.0)


def run(args: argparse.Namespace) -> int:
    from bilm.data.sharding import shard_corpus

    with ProgressDisplay() as display:
        corpus = shard_corpus(
            args.files,
            args.out_dir,
            n_shards=args.n_shards,
            shard_bytes=max(1, round(args.shard_size * _MEGABYTE)),
            heldout=args.heldout,
            seed=args.seed,
            progress=display.show,
        )
    for name, part in (("training", corpus.training), ("held out", corpus.heldout)):
        if part is not None:
            amounts = f"{count(part.n_sentences, 'sentence')} in {count(part.n_files, 'file')}"
            print(f"{name:<12} {amounts}: {shlex.quote(part.pattern)}")
    print(f"empty lines  {corpus.n_empty_lines:,} skipped")
    print("next:")
    for command in _next_commands(corpus, args.out_dir):
        print(f"  {shlex.join(command)}")
    return 0


def _next_commands(corpus: ShardedCorpus, out_dir: str) -> list[list[str]]:
    vocabulary = os.path.join(out_dir, "vocab.txt")
    vocab = ["bilm", "vocab", corpus.training.pattern, "--out", vocabulary]
    if corpus.training.n_sentences >= _LARGE:
        vocab += ["--min_count", "3"]
    preset = next((name for most, name in _PRESETS if corpus.n_tokens <= most), "original")
    train = ["bilm", "train", "--save_dir", "model", "--vocab_file", vocabulary]
    train += ["--train_prefix", corpus.training.pattern]
    if corpus.heldout is not None:
        train += ["--heldout_prefix", corpus.heldout.pattern]
    return [vocab, [*train, "--preset", preset]]
