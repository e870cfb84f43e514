"""Find the uses of a word that are nearest to its use in a sentence, layer by layer.

QUERY is a sentence with the word in brackets and spaces between tokens, as "they [play] cards". The
uses of the word in the text are compared with it by the cosine of their vectors, from which the
mean of all these uses is subtracted. --static also shows the words that are nearest to the word in
a static model, which does not see the sentence: table 4 of the paper (Peters et al., 2018).

  bilm neighbours "they [play] cards" --model elmo --text corpus.txt
  bilm neighbours "a [play] in three acts" "they [play] cards" --model elmo --text corpus.txt \\
      --static vectors.txt --any_word --occurrences play.npz
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bilm.analysis.commands import columns, word_job
from bilm.cli import flags
from bilm.cli.terminal import note
from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.analysis import Occurrences, StaticVectors
    from bilm.analysis.contexts import Context, LayerContexts
    from bilm.use.elmo import ELMo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY ...": "sentence with one [word]"})
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    group = parser.add_argument_group("neighbours")
    layer = "a number from 0, top, average, or all, one after the other (default: all)"
    flags.add(
        group,
        {"--layer LAYER": layer},
        type=word_job.layer_or("top", "average", "all"),
        default="all",
    )
    flags.add(
        group,
        {
            "--n N": "uses to show for each layer (default: 5)",
            "--any_word": "show the nearest uses of other words as well, from a sample of "
            "--max_occurrences of all words of the text",
            "--static FILE": "static vectors, as `bilm static` and gensim write them",
            "--n_static N": "words of the static model to show (default: 10)",
            **word_job.FORMAT,
        },
    )
    parser.set_defaults(n=5, n_static=10, format="text")


def run(args: argparse.Namespace) -> int:
    from bilm.analysis import StaticVectors, parse_query

    parsed = [parse_query(query) for query in args.query]
    asked = [tokens[position] for tokens, position in parsed]
    words = list(dict.fromkeys(asked if args.match_case else map(str.lower, asked)))
    if args.text is None and args.occurrences is None:
        flags.usage_error(args, "--text is needed, or --occurrences with a file that is there")
    word_job.check_files(args)
    static = None if args.static is None else StaticVectors.load(args.static)
    elmo = word_job.load_elmo(args)
    occurrences = _occurrences(args, words, elmo)
    for number, query in enumerate(args.query):
        found = _Found(args, query, elmo, occurrences, static)
        if args.format == "json":
            print(json.dumps(found.as_dict(), ensure_ascii=False))
        else:
            print("\n" * (number > 0) + "\n".join(found.lines(columns.terminal_width())))
    return 0


def _occurrences(args: argparse.Namespace, words: list[str], elmo: ELMo) -> Occurrences:
    """Those of the words, and with --any_word a sample of all words."""
    from bilm.analysis.contexts import joined
    from bilm.progress import ProgressDisplay

    if args.text is None:
        found = word_job.load_occurrences(args, None if args.any_word else words)
        if found.about.get("model") != elmo.fingerprint():
            raise InputError(f"{args.occurrences}: made with another model than {args.model}.")
        return found
    if not args.any_word:
        return word_job.load_occurrences(args, words, elmo)
    with ProgressDisplay() as display:
        sample = word_job.sample(args, words, display)
        sample = joined(
            sample, word_job.sample(args, None, display), without={word.lower() for word in words}
        )
        return word_job.encode(elmo, sample, display, args.occurrences)


class _Found:
    """The neighbours of a query, for people and for programs."""

    def __init__(
        self,
        args: argparse.Namespace,
        query: str,
        elmo: ELMo,
        occurrences: Occurrences,
        static: StaticVectors | None,
    ) -> None:
        import numpy as np

        from bilm.analysis import Occurrences
        from bilm.analysis.contexts import nearest_contexts

        asked = Occurrences.of_query(elmo, query)
        self.query, self.word = query, asked.word(0)
        uses = occurrences.of(self.word, match_case=args.match_case)
        is_other = ~np.isin(np.arange(len(occurrences)), occurrences.of(self.word))
        occurrences = occurrences.select(np.sort([*uses, *np.flatnonzero(is_other)]).astype(int))
        self.n_uses = len(uses)
        layers = list(range(elmo.n_layers)) if args.layer == "all" else [args.layer]
        self.layers: list[LayerContexts] = nearest_contexts(
            asked, occurrences, layers, args.n, args.any_word
        )
        self.static_file, self.static = args.static, None
        if static is not None and self.word in static:
            self.static = static.nearest(self.word, args.n_static)
        if self.n_uses <= 1:
            note(
                f"{self.word!r}: {columns.count(self.n_uses, 'use')} to search; cosines need two, "
                "as their mean is taken away."
            )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        static = [{"cosine": round(c, 4), "word": word} for c, word in self.static or ()]
        return {
            "query": self.query,
            "word": self.word,
            "uses": self.n_uses,
            "static": None if self.static is None else static,
            "layers": [
                {
                    "layer": layer,
                    "same_word": [_context_dict(context) for context in same],
                    "other_words": [_context_dict(context) for context in other],
                }
                for layer, same, other in self.layers
            ],
        }

    def lines(self, width: int) -> list[str]:
        """Both columns, or that of contexts alone."""
        title = [self.query, ""]
        if self.static_file is None:
            return title + self._context_lines(width)
        left = [f"static: {os.path.basename(self.static_file)}", ""]
        if self.static is None:
            left.append(f"{self.word!r} is not in it")
        for cosine, word in self.static or ():
            left.append(f"{cosine:.2f}  {word}")
        taken = max(map(columns.width_of, left)) + 3
        return title + columns.beside(left, self._context_lines(width - taken))

    def _context_lines(self, width: int) -> list[str]:
        lines: list[str] = []
        for layer, same, other in self.layers:
            name = f"layer {layer}" if isinstance(layer, int) else f"{layer} layer"
            name = "average of all layers" if layer == "average" else name
            kinds = [(f"{name}: {self.word}, {columns.count(self.n_uses, 'use')}", same)]
            if other:
                kinds.append((f"{name}: other words", other))
            for heading, contexts in kinds:
                lines += [heading, *_shown(contexts, width), ""]
        return lines[:-1]


def _shown(contexts: Sequence[Context], width: int) -> list[str]:
    shown = columns.in_context([(c.sentence, c.position) for c in contexts], width - 7)
    cosines = ["" if c.cosine is None else f"{c.cosine:.2f}" for c in contexts]
    return [f"{cosine:>5}  {line}" for cosine, line in zip(cosines, shown, strict=True)]


def _context_dict(context: Context) -> dict[str, Any]:
    cosine = None if context.cosine is None else round(context.cosine, 4)
    return {"cosine": cosine, "sentence": list(context.sentence), "position": context.position}
