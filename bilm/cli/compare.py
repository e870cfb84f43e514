"""Compare a word in one sentence with a word in another, layer by layer.

QUERY is a sentence with the word in brackets, as "They [play] cards.".
Each pair is compared by the cosine of the words' vectors. Layer 0 and --static do not depend on the
sentence: there, a word always has the cosine 1 with itself. Words next to the word, and the end of
the sentence, often change the vector more than the sense does.

  bilm compare "they [play] cards" "his first [play]" --model elmo
  bilm compare "they [play] cards" "his first [play]" "a [game] of cards" \\
      --model elmo --static vectors.txt
"""

import argparse
import itertools

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.terminal import show, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY": "sentence with one [word]"}, nargs="*")
    text_command.add_model(parser)
    static = "static vectors to compare with, as `bilm static` and gensim write them"
    flags.add(parser, {"--static FILE": static})


def run(args: argparse.Namespace) -> int:
    if len(args.query) < 2:
        flags.usage_error(args, "name at least two queries")
    import numpy as np

    from bilm.analysis.occurrences import unit

    model = text_command.load_model(args)
    uses = [analysis.Occurrences.of_query(model.elmo, query) for query in args.query]
    text_command.warn_of_unseen(model, [use.sentence(0) for use in uses], "the sentences")
    layers = np.concatenate([use.vectors for use in uses]).swapaxes(0, 1)
    vectors = {f"layer {k}": unit(layer.astype(float)) for k, layer in enumerate(layers)}
    if args.static is not None:
        words = [use.word(0) for use in uses]
        static = analysis.StaticVectors.load(args.static, keep=words).table(words)
        static[~static.any(axis=1)] = np.nan  # words without a vector
        vectors["static"] = unit(static.astype(float))
    show([*(f"{k}  {query}" for k, query in enumerate(args.query, start=1)), ""])
    rows = [["pair", *vectors]]
    for one, other in itertools.combinations(range(len(uses)), 2):
        cells = (f"{v[one] @ v[other]:.3f}".replace("nan", "-") for v in vectors.values())
        rows.append([f"{one + 1} - {other + 1}", *cells])
    show(table(rows))
    return 0
