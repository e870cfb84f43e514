"""See it all work: train a small model on this machine and look at its vectors.

Needs no download. Gathers the English docstrings of the installed Python, NumPy, Keras and
TensorFlow, builds a vocabulary, trains the tiny preset for a few minutes, measures held-out
perplexity beside a unigram model's, dumps the weights, loads them again, and shows words in
context with their nearest neighbours in other contexts.

  bilm demo
  bilm demo --corpus my-text.txt --out my-demo

Text given by --corpus is raw prose: it is split into sentences, and words from punctuation, by
simple rules for English. Text that has one sentence a line and its tokens parted by white space
is taken as it is with --tokenized.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from typing import TYPE_CHECKING

from bilm.cli.arguments import positive_number, usage_error, whole_number
from bilm.cli.progress import ProgressLine, TrainingLine, duration
from bilm.cli.tensorflow_import import import_tensorflow
from bilm.cli.training_run import note
from bilm.errors import InputError

if TYPE_CHECKING:
    from bilm.demo.corpus import Corpus
    from bilm.demo.job import DemoFolder
    from bilm.demo.neighbours import Neighbours

# Words of docstrings that mean more than one thing.
_WORDS = ("left", "call", "set", "like", "run", "order")
_HELDOUT_SHARE = 0.03
_MAX_HELDOUT_TOKENS = 50_000
_POOL_SENTENCES = 6_000
_MIN_OCCURRENCES = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm demo`."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        default="bilm-demo",
        help="folder for text, model and weights; it must not exist yet (default: bilm-demo)",
    )
    parser.add_argument(
        "--minutes",
        type=positive_number,
        metavar="X",
        default=3.0,
        help="time to train for; the rest takes about a minute (default: 3)",
    )
    parser.add_argument(
        "--corpus", nargs="+", metavar="FILE", help="your own text (plain, .gz, .xz; UTF-8)"
    )
    parser.add_argument(
        "--tokenized",
        action="store_true",
        help="--corpus has one sentence a line, tokens parted by white space",
    )
    parser.add_argument(
        "--max_tokens",
        type=whole_number(1),
        metavar="N",
        default=3_000_000,
        help="read no more of --corpus than this many tokens (default: 3,000,000)",
    )
    parser.add_argument(
        "--words", nargs="+", metavar="WORD", help="words to show in context (default: chosen)"
    )
    parser.add_argument(
        "--seed", type=whole_number(0), metavar="N", default=0, help="random seed (default: 0)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    if args.tokenized and not args.corpus:
        usage_error(args, "--tokenized goes with --corpus")
    if os.path.exists(args.out):
        raise InputError(
            f"{args.out} exists, perhaps from an earlier demo, and is never overwritten: name "
            "another folder by --out, or remove it."
        )
    corpus = _gather(args)
    note("loading TensorFlow ...")
    import_tensorflow()
    from bilm.demo.job import DemoFolder, write_text

    folder = DemoFolder(args.out)
    words = write_text(folder, corpus, _min_count(corpus))
    _print_text(corpus, words)
    _train(args, folder, len(words))
    _measure(folder, corpus, words)
    _show_contexts(args, folder, corpus)
    print(f"\nAll files are in {folder.path}; `bilm train --help` tells how to train your own.")
    return 0


def _gather(args: argparse.Namespace) -> Corpus:
    from bilm.demo import corpus

    if args.corpus:
        source = ", ".join(args.corpus)
        documents = corpus.read_texts(args.corpus, args.tokenized, args.max_tokens)
    else:
        source = "the docstrings of Python, NumPy, Keras and TensorFlow"
        line = ProgressLine(sys.stderr)
        documents = corpus.gather_docstrings(
            os.cpu_count() or 1,
            lambda n, total: line.show(f"reading {n:,} of {total:,} files", last=n == total),
        )
    _title(f"Text: {source}")
    return corpus.part(documents, _HELDOUT_SHARE, _MAX_HELDOUT_TOKENS, args.seed)


def _min_count(corpus: Corpus) -> int:
    """Rare words stay out of the vocabulary, so that <UNK> is trained too."""
    from bilm.demo.corpus import count_tokens

    return 3 if count_tokens(corpus.training) >= 100_000 else 2


def _print_text(corpus: Corpus, words: list[str]) -> None:
    from bilm.demo.corpus import count_tokens

    for name, sentences in (("training", corpus.training), ("held-out", corpus.heldout)):
        print(f"{name:<11}{len(sentences):>9,} sentences {count_tokens(sentences):>10,} tokens")
    known = frozenset(words)
    n_known = sum(token in known for sentence in corpus.heldout for token in sentence)
    covered = n_known / max(1, count_tokens(corpus.heldout))
    print(f"vocabulary {len(words):>9,} words, {covered:.1%} of the held-out tokens")


def _train(args: argparse.Namespace, folder: DemoFolder, n_words: int) -> None:
    from bilm.demo.job import demo_options, train_for

    _title(f"Training: the tiny preset, for {args.minutes:g} minutes")
    note("compiling ...")
    line = ProgressLine(sys.stderr)
    show = TrainingLine(line, demo_options(n_words).sample_softmax)
    try:
        record = train_for(folder, n_words, 60 * args.minutes, args.seed, show)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"What there is lies in {folder.path}.") from None
    finally:
        line.close()
    print(f"{record.n_steps:,} steps, {record.n_tokens:,} tokens in {duration(record.seconds)}")


def _measure(folder: DemoFolder, corpus: Corpus, words: list[str]) -> None:
    from bilm.demo.job import heldout_perplexity
    from bilm.demo.unigram import UnigramModel

    _title("Held-out perplexity (lower is better)")
    unigram = UnigramModel(corpus.training, words).perplexity(corpus.heldout)
    print(f"unigram model           {unigram:8.1f}", flush=True)
    perplexity = heldout_perplexity(folder)
    print(f"forward language model  {perplexity.forward:8.1f}")
    print(f"backward language model {perplexity.backward:8.1f}")
    print(f"both                    {float(perplexity):8.1f}")


def _show_contexts(args: argparse.Namespace, folder: DemoFolder, corpus: Corpus) -> None:
    from bilm.demo.job import load_embedder
    from bilm.demo.neighbours import Contexts, sample_with, telling_words

    chosen = args.words or (telling_words(corpus.training, len(_WORDS)) if args.corpus else _WORDS)
    sentences = corpus.heldout + corpus.training
    pool = sample_with(sentences, chosen, _POOL_SENTENCES, args.seed)
    embed = load_embedder(folder, layer=2)
    _title(f"Words in context, and the contexts nearest to them in {len(pool):,} sentences")
    print(f"two contexts of each word; cosines of the top layer's vectors; {folder.weights}")
    contexts = Contexts(pool, embed)
    shown = contexts.frequent_words(chosen, 3 if args.words else _MIN_OCCURRENCES)
    for word in chosen:
        if word in shown:
            for query in contexts.apart(word):
                _print_neighbours(contexts.neighbours(query))
        elif args.words:
            note(f"{word!r} does not occur three times in the text.")


def _print_neighbours(found: Neighbours) -> None:
    print(f"\n{found.query.in_context()}")
    for title, neighbours in (("same word", found.same_word), ("other words", found.other_words)):
        for number, (cosine, place) in enumerate(neighbours):
            label = title if number == 0 else ""
            print(textwrap.indent(f"{label:<12}{cosine:5.2f}  {place.in_context()}", "  "))


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)
