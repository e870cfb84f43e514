"""Find the occurrences of a word that are nearest to the word in a sentence, layer by layer.

QUERY is a sentence with the word in brackets and spaces between tokens, as "they [play] cards". It
is compared with the occurrences of the word in the text, by the cosine of their vectors after
subtracting their mean. --static also shows the nearest words by static vectors, which do not depend
on the sentence: table 4 of the paper (Peters et al., 2018).

  bilm neighbours "they [play] cards" --model elmo --text corpus.txt
  bilm neighbours "a [play] in three acts" "they [play] cards" --model elmo --text corpus.txt \\
      --static vectors.txt --any_word --occurrences play.npz
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from bilm import analysis
from bilm.analysis.commands import word_job
from bilm.analysis.contexts import in_context, terminal_width
from bilm.cli import flags
from bilm.cli.terminal import count, note, show, table
from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo

_STATIC_WORDS = 10
_STATIC_COLUMNS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY ...": "sentence with one [word]"})
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    group = parser.add_argument_group("neighbours")
    layer = "layer number, top, average, or all (default: all)"
    word_job.add_layer(group, layer, "top", "average", "all", default="all")
    flags.add(
        group,
        {
            "--n N": "occurrences shown for each layer (default: 5)",
            "--any_word": "also show the nearest occurrences of other words, from a sample of "
            "--max_occurrences of all words of the text",
            "--static FILE": "static vectors, as `bilm static` and gensim write them",
            **word_job.FORMAT,
        },
    )
    parser.set_defaults(n=5, format="text")


def run(args: argparse.Namespace) -> int:
    parsed = [analysis.parse_query(query) for query in args.query]
    asked = [tokens[position] for tokens, position in parsed]
    words = list(dict.fromkeys(word_job.compared(args, asked)))
    if args.text is None and args.occurrences is None:
        flags.usage_error(args, "name --text, or --occurrences with an existing file")
    word_job.check_files(args)
    static = None if args.static is None else analysis.StaticVectors.load(args.static)
    elmo = word_job.load_elmo(args)
    occurrences = _occurrences(args, words, elmo)
    for number, text in enumerate(args.query):
        query = analysis.Occurrences.of_query(elmo, text)
        word = query.word(0)
        own = occurrences.of(word, match_case=args.match_case)
        if len(own) <= 1:
            note(
                f"{word!r}: {count(len(own), 'occurrence')} to search; cosines require two, "
                "because their mean is subtracted."
            )
        is_searched = occurrences.words != query.words[0]
        is_searched[own] = True
        layers = analysis.nearest_contexts(
            query,
            occurrences.select(is_searched),
            range(elmo.n_layers) if args.layer == "all" else [args.layer],
            args.n,
            args.any_word,
        )
        near = None
        if static is not None and word in static:
            near = static.nearest(word, _STATIC_WORDS)
        if args.format == "json":
            listed = [{"cosine": round(c, 4), "word": other} for c, other in near or ()]
            found = {
                "query": text,
                "word": word,
                "occurrences": len(own),
                "static": None if near is None else listed,
                "layers": [layer.as_dict() for layer in layers],
            }
            print(json.dumps(found, ensure_ascii=False))
        else:
            heading = f"{word}, {count(len(own), 'occurrence')}"
            lines = _context_lines(layers, heading, terminal_width())
            if args.static is not None:
                static_lines = [f"static: {os.path.basename(args.static)}", ""]
                static_lines += [f"{word!r} is not in it"] * (near is None)
                static_lines += [f"{cosine:.2f}  {other}" for cosine, other in near or ()]
                lines = _beside(static_lines, layers, heading)
            show([""] * (number > 0) + [text, "", *lines])
    return 0


def _occurrences(args: argparse.Namespace, words: list[str], elmo: ELMo) -> analysis.Occurrences:
    """The occurrences of the words; with --any_word, a sample of all words too."""
    if args.text is None:
        found = word_job.load_occurrences(args, None if args.any_word else words)
        if found.about.get("model") != elmo.fingerprint():
            raise InputError(f"{args.occurrences}: must have been made with {args.model}.")
        return found
    if not args.any_word:
        return word_job.load_occurrences(args, words, elmo)
    with ProgressDisplay() as display:
        own, others = (word_job.sample(args, wanted, display) for wanted in (words, None))
        return word_job.encode(elmo, _joined(own, others), display, file=args.occurrences)


def _joined(own: analysis.Sample, others: analysis.Sample) -> analysis.Sample:
    """Two samples as one; words of the first are removed from the second."""
    import numpy as np

    words = {own.word(k).lower() for k in range(len(own))}
    kept = [
        (number + len(own.sentences), position)
        for number, position in others.positions
        if others.sentences[number][position].lower() not in words
    ]
    positions = np.concatenate([own.positions, np.array(kept, np.int64).reshape(-1, 2)])
    return replace(own, sentences=[*own.sentences, *others.sentences], positions=positions)


def _beside(left: list[str], layers: list[analysis.LayerContexts], heading: str) -> list[str]:
    """The contexts to the right of other lines."""
    left = [line[:_STATIC_COLUMNS] for line in left]
    right = _context_lines(layers, heading, terminal_width() - _STATIC_COLUMNS - 3)
    return table([*zip_longest(left, right, fillvalue="")], left=2)


def _context_lines(layers: list[analysis.LayerContexts], heading: str, width: int) -> list[str]:
    lines: list[str] = []
    for layer, same, other in layers:
        name = f"layer {layer}" if isinstance(layer, int) else f"{layer} layer"
        name = "average of all layers" if layer == "average" else name
        lines += [f"{name}: {heading}", *in_context(same, width), ""]
        if other:
            lines += [f"{name}: other words", *in_context(other, width), ""]
    return lines[:-1]
