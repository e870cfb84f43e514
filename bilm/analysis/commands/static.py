"""Make static word vectors, the baseline for a model's, or search them.

A static vector is the same wherever its word occurs. From a text come those of word2vec (gensim),
of layer 0 of a model, which knows no context, or the means of a layer over all occurrences. The
file is text as word2vec and gensim's KeyedVectors write it; published GloVe and fastText files can
be read as well.

  bilm static --text corpus.txt --out vectors.txt
  bilm static --text corpus.txt --out vectors.txt --method mean --model elmo --layer 1
  bilm static --vectors vectors.txt --nearest play bank
  bilm static --vectors vectors.txt --analogy man king woman
  bilm static --vectors vectors.txt --analogies questions-words.txt
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bilm.analysis.commands import word_job
from bilm.cli import flags
from bilm.files.reading import find_all_files
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis import StaticVectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    making = parser.add_argument_group("make vectors")
    flags.add(
        making,
        {
            "--text FILE ...": word_job.TEXT,
            "--out FILE": "file to write",
            "--method word2vec|layer0|mean": "word2vec (skip-gram); layer0: the model's token "
            "encoder; mean: the mean of a layer over the occurrences in the text (default: "
            "word2vec)",
            "--min_count N": "leave out rarer words (default: 5)",
            "--dim N": "of word2vec (default: 100)",
            "--window N": "words on either side, of word2vec (default: 5)",
            "--epochs N": "of word2vec (default: 5)",
            "--threads N": "of word2vec; with several the result differs a little each time "
            "(default: 1)",
            "--seed N>=0": "of word2vec (default: 0)",
            "--layer N>=0": "layer of `mean` (default: the top layer)",
            **flags.FORCE,
        },
    )
    asking = parser.add_argument_group("search vectors")
    flags.add(
        asking,
        {
            "--vectors FILE": "file of vectors to read",
            "--max_words N": "read only the first N words of it",
            "--nearest WORD ...": "the nearest words of each",
            "--analogies FILE": "answer a file of questions, four words a line, and count what is "
            "right",
            "--n N": "words that are shown (default: 10)",
        },
    )
    analogy = "what is to C as B is to A?"
    asking.add_argument("--analogy", nargs=3, metavar=("A", "B", "C"), help=analogy)
    word_job.add_model(parser)
    parser.set_defaults(
        method="word2vec", min_count=5, dim=100, window=5, epochs=5, threads=1, seed=0, n=10
    )


def run(args: argparse.Namespace) -> int:
    asks = args.nearest or args.analogy or args.analogies
    if args.vectors is not None:
        if args.text or args.out:
            flags.usage_error(args, "--vectors is read; --text and --out make new ones")
        if not asks:
            flags.usage_error(args, "--vectors goes with --nearest, --analogy or --analogies")
        _ask(args)
        return 0
    if not (args.text and args.out) or asks:
        flags.usage_error(args, "name --text and --out, or --vectors and a question")
    if args.method == "word2vec" and args.model is not None:
        flags.usage_error(args, "--model goes with --method layer0 or mean")
    if args.method != "mean" and args.layer is not None:
        flags.usage_error(args, "--layer goes with --method mean")
    flags.require_free(args, args.out)
    find_all_files(args.text)
    with ProgressDisplay() as display:
        vectors = _word2vec(args, display) if args.method == "word2vec" else _ours(args, display)
    vectors.save(args.out)
    print(f"{args.out}: {len(vectors):,} words, {vectors.dim} dimensions")
    return 0


def _word2vec(args: argparse.Namespace, display: ProgressDisplay) -> StaticVectors:
    from bilm.analysis.static_vectors import Word2VecSettings, train_word2vec

    settings = Word2VecSettings(
        dim=args.dim,
        window=args.window,
        min_count=args.min_count,
        epochs=args.epochs,
        seed=args.seed,
        threads=args.threads,
    )
    reading = 0

    def read() -> Iterator[list[str]]:
        nonlocal reading
        what = "counting" if reading == 0 else f"epoch {reading} of {args.epochs}"
        reading += 1
        return word_job.read_sentences(args.text, display, what)

    return train_word2vec(read, settings)


def _ours(args: argparse.Namespace, display: ProgressDisplay) -> StaticVectors:
    from bilm.analysis.static_vectors import frequent_words, mean_vectors, token_vectors

    elmo = word_job.load_elmo(args)
    words = frequent_words(word_job.read_sentences(args.text, display), args.min_count)
    if args.method == "layer0":
        return token_vectors(elmo, words)
    layer = "top" if args.layer is None else args.layer
    sentences = word_job.read_sentences(args.text, display, "encoding")
    return mean_vectors(elmo, words, sentences, layer)


def _ask(args: argparse.Namespace) -> None:
    from bilm.analysis.static_vectors import StaticVectors, answer_analogies

    vectors = StaticVectors.load(args.vectors, max_words=args.max_words)
    for word in args.nearest or ():
        print(f"{word}")
        for cosine, other in vectors.nearest(word, args.n):
            print(f"  {cosine:5.2f}  {other}")
    if args.analogy:
        a, b, c = args.analogy
        print(f"{a} : {b} = {c} : ?")
        for cosine, other in vectors.analogy(a, b, c, args.n):
            print(f"  {cosine:5.2f}  {other}")
    if args.analogies:
        for score in answer_analogies(vectors, args.analogies):
            if score.asked:
                share = 100 * score.right / score.asked
                print(f"{share:5.1f} %  {score.right:6,} of {score.asked:6,}  {score.section}")
