"""Find the occurrences of a word that are nearest to the word in a sentence, layer by layer.

QUERY is a sentence with the word in brackets and spaces between tokens, as "they [play] cards". The
occurrences of the word in the text are compared with it by the cosine of their vectors, after
subtracting their mean. --static also shows the nearest words in a static model, which does not see
the sentence: table 4 of the paper (Peters et al., 2018).

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
from typing import TYPE_CHECKING, Any

from bilm.analysis.commands import word_job
from bilm.analysis.layout import in_context, terminal_width
from bilm.cli import flags
from bilm.cli.terminal import count, note, show, table
from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis import Occurrences, Sample, StaticVectors
    from bilm.use.elmo import ELMo

_STATIC_COLUMNS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY ...": "sentence with one [word]"})
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    group = parser.add_argument_group("neighbours")
    flags.add(
        group,
        {"--layer LAYER": "layer number, top, average, or all (default: all)"},
        type=word_job.layer_or("top", "average", "all"),
        default="all",
    )
    flags.add(
        group,
        {
            "--n N": "occurrences shown for each layer (default: 5)",
            "--any_word": "also show the nearest occurrences of other words, from a sample of "
            "--max_occurrences of all words of the text",
            "--static FILE": "static vectors, as `bilm static` and gensim write them",
            "--n_static N": "words of the static model shown (default: 10)",
            **word_job.FORMAT,
        },
    )
    parser.set_defaults(n=5, n_static=10, format="text")


def run(args: argparse.Namespace) -> int:
    from bilm.analysis import StaticVectors, parse_query

    parsed = [parse_query(query) for query in args.query]
    asked = [tokens[position] for tokens, position in parsed]
    words = list(dict.fromkeys(word_job.compared(args, asked)))
    if args.text is None and args.occurrences is None:
        flags.usage_error(args, "--text is needed, or --occurrences with an existing file")
    word_job.check_files(args)
    static = None if args.static is None else StaticVectors.load(args.static)
    elmo = word_job.load_elmo(args)
    occurrences = _occurrences(args, words, elmo)
    for number, query in enumerate(args.query):
        found = _neighbours(args, query, elmo, occurrences, static)
        if args.format == "json":
            print(json.dumps(found, ensure_ascii=False))
        else:
            show([""] * (number > 0) + _lines(args, found, terminal_width()))
    return 0


def _occurrences(args: argparse.Namespace, words: list[str], elmo: ELMo) -> Occurrences:
    """The occurrences of the words, and with --any_word a sample of all words."""
    if args.text is None:
        found = word_job.load_occurrences(args, None if args.any_word else words)
        if found.about.get("model") != elmo.fingerprint():
            raise InputError(f"{args.occurrences}: made with another model than {args.model}.")
        return found
    if not args.any_word:
        return word_job.load_occurrences(args, words, elmo)
    with ProgressDisplay() as display:
        own, others = (word_job.sample(args, wanted, display) for wanted in (words, None))
        return word_job.encode(elmo, _joined(own, others), display, args.occurrences)


def _joined(own: Sample, others: Sample) -> Sample:
    """Two samples as one, without the words of the first in the second."""
    import numpy as np

    words = {own.sentences[number][position].lower() for number, position in own.positions}
    kept = [
        (number + len(own.sentences), position)
        for number, position in others.positions
        if others.sentences[number][position].lower() not in words
    ]
    positions = np.concatenate([own.positions, np.array(kept, np.int64).reshape(-1, 2)])
    return replace(own, sentences=[*own.sentences, *others.sentences], positions=positions)


def _neighbours(
    args: argparse.Namespace,
    query: str,
    elmo: ELMo,
    occurrences: Occurrences,
    static: StaticVectors | None,
) -> dict[str, Any]:
    """The neighbours of a query, JSON-able."""
    import numpy as np

    from bilm.analysis import Occurrences, nearest_contexts

    asked = Occurrences.of_query(elmo, query)
    word = asked.word(0)
    own = occurrences.of(word, match_case=args.match_case)
    kept = occurrences.words != word.lower()
    kept[own] = True
    layers = nearest_contexts(
        asked,
        occurrences.select(np.flatnonzero(kept)),
        list(range(elmo.n_layers)) if args.layer == "all" else [args.layer],
        args.n,
        args.any_word,
    )
    if len(own) <= 1:
        note(
            f"{word!r}: {count(len(own), 'occurrence')} to search; cosines need two, because their "
            "mean is subtracted."
        )
    nearest = static.nearest(word, args.n_static) if static is not None and word in static else None
    return {
        "query": query,
        "word": word,
        "occurrences": len(own),
        "static": nearest and [{"cosine": round(c, 4), "word": other} for c, other in nearest],
        "layers": [
            {
                "layer": layer,
                "same_word": [context.as_dict() for context in same],
                "other_words": [context.as_dict() for context in other],
            }
            for layer, same, other in layers
        ],
    }


def _lines(args: argparse.Namespace, found: dict[str, Any], width: int) -> list[str]:
    """The contexts, to the right of the static neighbours if there are any."""
    title = [found["query"], ""]
    if args.static is None:
        return title + _context_lines(found, width)
    left = [f"static: {os.path.basename(args.static)}", ""]
    if found["static"] is None:
        left.append(f"{found['word']!r} is not in it")
    left += [f"{near['cosine']:.2f}  {near['word']}" for near in found["static"] or ()]
    right = _context_lines(found, width - _STATIC_COLUMNS - 3)
    left = [line[:_STATIC_COLUMNS] for line in left]
    return title + table([*zip_longest(left, right, fillvalue="")], left=2)


def _context_lines(found: dict[str, Any], width: int) -> list[str]:
    lines: list[str] = []
    for layer in found["layers"]:
        which = layer["layer"]
        name = f"layer {which}" if isinstance(which, int) else f"{which} layer"
        name = "average of all layers" if which == "average" else name
        headings = {
            "same_word": f"{name}: {found['word']}, {count(found['occurrences'], 'occurrence')}",
            "other_words": f"{name}: other words",
        }
        for kind, heading in headings.items():
            contexts = layer[kind]
            if contexts or kind == "same_word":
                shown = in_context([(c["sentence"], c["position"]) for c in contexts], width - 7)
                cosines = ["" if c["cosine"] is None else f"{c['cosine']:.2f}" for c in contexts]
                lines += [heading, *(f"{c:>5}  {s}" for c, s in zip(cosines, shown, strict=True))]
                lines.append("")
    return lines[:-1]
