"""Make static word vectors, or ask what is near in them: the baseline beside a model's.

A static vector is the same wherever its word stands. From a text come word2vec's (gensim), or ours:
layer 0 of a model, which knows no context, or the mean of a layer over all occurrences. The file is
text as word2vec and gensim's KeyedVectors write it; published GloVe and fastText files can be read
as well.

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

from bilm.cli import flags, word_job
from bilm.files import find_all_files
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis import StaticVectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm static`."""
    making = parser.add_argument_group("make vectors")
    making.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="files or globs (plain, .gz, .xz; UTF-8), one sentence a line, tokens separated by "
        "white space",
    )
    making.add_argument("--out", metavar="FILE", help="file to write")
    making.add_argument(
        "--method",
        choices=("word2vec", "layer0", "mean"),
        default="word2vec",
        help="word2vec (skip-gram); layer0: the model's token encoder; mean: the mean of a layer "
        "over the occurrences in the text (default: word2vec)",
    )
    whole = flags.whole_number(1)
    making.add_argument(
        "--min_count", type=whole, metavar="N", default=5, help="leave out rarer words (default: 5)"
    )
    making.add_argument(
        "--dim", type=whole, metavar="N", default=100, help="of word2vec (default: 100)"
    )
    making.add_argument(
        "--window",
        type=whole,
        metavar="N",
        default=5,
        help="words on either side, of word2vec (default: 5)",
    )
    making.add_argument(
        "--epochs", type=whole, metavar="N", default=5, help="of word2vec (default: 5)"
    )
    making.add_argument(
        "--threads",
        type=whole,
        metavar="N",
        default=1,
        help="of word2vec; with several the result differs a little each time (default: 1)",
    )
    making.add_argument(
        "--seed",
        type=flags.whole_number(0),
        metavar="N",
        default=0,
        help="of word2vec (default: 0)",
    )
    making.add_argument(
        "--layer",
        type=flags.whole_number(0),
        metavar="N",
        help="layer of `mean` (default: the top layer)",
    )
    flags.add_force(making)
    asking = parser.add_argument_group("ask vectors")
    asking.add_argument("--vectors", metavar="FILE", help="file of vectors to read")
    asking.add_argument(
        "--max_words", type=whole, metavar="N", help="read only the first N words of it"
    )
    asking.add_argument("--nearest", nargs="+", metavar="WORD", help="the nearest words of each")
    asking.add_argument(
        "--analogy", nargs=3, metavar=("A", "B", "C"), help="what is to C as B is to A?"
    )
    asking.add_argument(
        "--analogies",
        metavar="FILE",
        help="answer a file of questions, four words a line, and count what is right",
    )
    asking.add_argument(
        "--n", type=whole, metavar="N", default=10, help="words that are shown (default: 10)"
    )
    word_job.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Make vectors, or ask them."""
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
    flags.require_free(args, args.out)
    find_all_files(args.text)
    with ProgressDisplay() as display:
        vectors = _word2vec(args, display) if args.method == "word2vec" else _ours(args, display)
    vectors.save(args.out)
    print(f"{args.out}: {len(vectors):,} words, {vectors.dim} dimensions")
    return 0


def _word2vec(args: argparse.Namespace, display: ProgressDisplay) -> StaticVectors:
    from bilm.analysis.static import Word2VecSettings, train_word2vec

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
    from bilm.analysis.static import frequent_words, mean_vectors, token_vectors

    elmo = word_job.load_elmo(args)
    words = frequent_words(word_job.read_sentences(args.text, display), args.min_count)
    if args.method == "layer0":
        return token_vectors(elmo, words)
    layer = "top" if args.layer is None else args.layer
    sentences = word_job.read_sentences(args.text, display, "encoding")
    return mean_vectors(elmo, words, sentences, layer)


def _ask(args: argparse.Namespace) -> None:
    from bilm.analysis.static import StaticVectors, answer_analogies

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
