"""Make static word vectors, or search them.

A static vector does not depend on the sentence: it is the baseline for a model's vectors. Static
vectors are trained on a text with word2vec (gensim), or taken from a model: its layer 0, or the
mean of a layer over all occurrences. Files are text in the form of word2vec and gensim; published
GloVe, fastText and word2vec files (.bin too) can also be searched.

  bilm static --text corpus.txt --out vectors.txt
  bilm static --text corpus.txt --out vectors.txt --method mean \\
      --model elmo --layer 1
  bilm static --vectors vectors.txt --nearest play bank
  bilm static --vectors vectors.txt --analogy man king woman
  bilm static --vectors vectors.txt --analogies google
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.files.reading import find_all_files
from bilm.progress import ProgressDisplay
from bilm.terminal import show, table

_WORD2VEC = ("dim", "epochs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    making = parser.add_argument_group("make vectors")
    flags.add(
        making,
        {
            "--text FILE ...": text_command.TEXT,
            **text_command.COLUMN,
            "--out FILE": "file to write",
            "--method word2vec|cbow|layer0|mean": "word2vec: its skip-gram; cbow: its continuous "
            "bag of words, which is faster; layer0: the model's token encoder; mean: the mean of a "
            "layer over the occurrences in the text (default: word2vec)",
            "--min_count N": "skip rarer words (default: 5)",
            "--dim N": "word2vec, cbow: dimensions (default: 100)",
            "--epochs N": "word2vec, cbow: passes over the text (default: 5)",
            "--layer N>=0": "mean: the layer (default: the top layer)",
        },
    )
    asking = parser.add_argument_group("search vectors")
    flags.add(
        asking,
        {
            "--vectors FILE": "file of vectors to read",
            "--nearest WORD ...": "show the nearest words of each",
            "--n N": "words to show (default: 10)",
            "--picture FILE": "draw the words of --nearest on a map by t-SNE: .png or .svg",
            "--analogies FILE": "count the analogies of a file that the vectors answer, by gensim; "
            "`google` is Google's file, which is part of gensim",
        },
    )
    analogy = {"--analogy A": "solve A : B = C : ?"}
    flags.add(asking, analogy, nargs=3, metavar=("A", "B", "C"))
    flags.add(parser, flags.FORCE)
    text_command.add_model(parser)
    parser.set_defaults(method="word2vec", min_count=5, dim=100, epochs=5, n=10)


def run(args: argparse.Namespace) -> int:
    is_search = args.nearest or args.analogy or args.analogies
    if args.vectors is not None:
        if args.text or args.out:
            flags.usage_error(args, "--vectors reads vectors; --text and --out make new ones")
        if not is_search:
            flags.usage_error(args, "--vectors requires --nearest, --analogy or --analogies")
        making = ("method", "min_count", "layer", *_WORD2VEC, "model")
        flags.require_effect(args, "--text and --out, which make vectors", *making)
        _search(args)
        return 0
    if not (args.text and args.out) or is_search:
        flags.usage_error(args, "name --text and --out, or --vectors and --nearest or --analogy")
    flags.require_effect(args, "--vectors", "n", "picture")
    if args.method != "mean":
        flags.require_effect(args, "--method mean", "layer")
    if is_word2vec := args.method in ("word2vec", "cbow"):
        flags.require_effect(args, "--method layer0 or mean", "model")
    else:
        flags.require_effect(args, "--method word2vec or cbow", *_WORD2VEC)
        flags.model_source(args)
    flags.require_inputs(args)
    if args.out.lower().endswith((".bin", ".bin.gz", ".npz")):
        flags.usage_error(args, f"--out is written as text, such as vectors.txt, got {args.out}")
    flags.outputs(args, out=args.out)
    find_all_files(args.text)
    text_command.check_layer(args)
    with ProgressDisplay() as display:
        vectors = (_word2vec if is_word2vec else _means)(args, display)
    vectors.save(args.out)
    print(f"{args.out}: {len(vectors):,} words, {vectors.dim} dimensions")
    return 0


def _word2vec(args: argparse.Namespace, display: ProgressDisplay) -> analysis.StaticVectors:
    epochs = (f"epoch {k} of {args.epochs}" for k in range(1, args.epochs + 1))
    steps = itertools.chain(["counting"], epochs)

    def read() -> Iterator[list[str]]:
        return text_command.read_tokens(args, display, next(steps))

    names = ("method", "dim", "min_count", "epochs")
    return analysis.train_word2vec(read, **flags.keywords(args, *names))


def _means(args: argparse.Namespace, display: ProgressDisplay) -> analysis.StaticVectors:
    from bilm.analysis.static_vectors import frequent_words, mean_vectors

    words = frequent_words(text_command.read_tokens(args, display), args.min_count)
    elmo = text_command.load_model(args).elmo
    text_command.warn_of_unseen(elmo.model, [words], "the text")
    if args.method == "layer0":  # the same in all contexts
        return mean_vectors(elmo, words, ([word] for word in words), 0)
    sentences = text_command.read_tokens(args, display, "encoding")
    return mean_vectors(elmo, words, sentences, "top" if args.layer is None else args.layer)


def _search(args: argparse.Namespace) -> None:
    from bilm.analysis.pictures import check_picture, save_picture
    from bilm.analysis.static_vectors import word_map

    if not args.nearest:
        flags.require_effect(args, "--nearest", "picture")
    if args.picture is not None:
        check_picture(args.picture)
    flags.outputs(args, picture=args.picture)
    vectors = analysis.StaticVectors.load(args.vectors)
    results = [(word, vectors.nearest(word, args.n)) for word in args.nearest or ()]
    if args.picture is not None:
        groups = {word: [word, *(near for _, near in pairs)] for word, pairs in results}
        save_picture(word_map(vectors, groups), args.picture)
    if args.analogy:
        a, b, c = args.analogy
        results.append((f"{a} : {b} = {c} : ?", vectors.analogy(a, b, c, args.n)))
    for title, neighbours in results:
        show([title, *(f"  {cosine:5.2f}  {word}" for cosine, word in neighbours)])
    if args.analogies:
        rows = [["", "right", "asked", "%"]]
        for name, right, asked in vectors.answered_analogies(args.analogies):
            share = f"{100 * right / asked:.1f}" if asked else "-"
            rows.append([name, f"{right:,}", f"{asked:,}", share])
        show(table(rows))
