"""Find the occurrences of a word that are nearest to the word in a sentence, layer by layer.

QUERY is a sentence with the word in brackets, as "They [play] cards." In "They [play+plays] cards."
the word is play, and both forms are searched. The word is compared with its occurrences in the
text, by the cosine of their vectors after subtracting their mean. --static also shows the nearest
words by static vectors, which do not depend on the sentence: table 4 of the paper (Peters et al.,
2018).

  bilm neighbours "they [play] cards" --model elmo --text corpus.txt
  bilm neighbours "a [play] in three acts" "they [play] cards" \\
      --model elmo --text corpus.txt --static vectors.txt --any_word \\
      --occurrences play.npz
"""

from __future__ import annotations

import argparse
import os
from collections import Counter

from bilm import analysis
from bilm.analysis.contexts import in_context
from bilm.cli import flags, text_command
from bilm.terminal import count, note, show

_STATIC_WORDS = 10
_N_OTHERS = 5000
_FREQUENT = 100  # words such as "the", which are not content words
_DRAWN = 4  # tokens drawn for each: most are frequent words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"query QUERY ...": "sentence with one [word]"})
    text_command.add_model(parser)
    text_command.add_occurrences(parser)
    group = parser.add_argument_group("neighbours")
    layer = "layer number, top, or all (default: all)"
    layers = flags.layer_value("top", "all")
    flags.add(group, {"--layer LAYER": layer}, type=layers, default="all")
    flags.add(
        group,
        {
            "--n N": "occurrences shown for each layer (default: 5)",
            "--any_word": f"also show the nearest occurrences of other words, from a sample of "
            f"{_N_OTHERS:,} content words of the text",
            "--static FILE": "static vectors, as `bilm static` and gensim write them",
        },
    )
    parser.set_defaults(n=5)


def run(args: argparse.Namespace) -> int:
    from bilm.analysis.occurrences import forms_of, parse_target
    from bilm.files.identity import require_same_model

    # Only the words in brackets are needed now; the model splits the sentences.
    targets = {query: parse_target(query, lambda t: t.split())[2] for query in args.query}
    flags.model_source(args)
    text_command.use_sample(args)
    if args.text is None:
        flags.require_effect(args, "--text", "seed")
    uses = _uses(args, text_command.distinct(args, targets.values()))
    static = None if args.static is None else analysis.StaticVectors.load(args.static)
    model = text_command.load_model(args)
    elmo = model.elmo
    occurrences = text_command.with_vectors(args, uses, model)
    theirs = occurrences.about.get("model")
    require_same_model(args.occurrences or "the text", theirs, "the model", elmo.fingerprint())
    layers = range(elmo.n_layers) if args.layer == "all" else [args.layer]
    for number, (query, word) in enumerate(targets.items()):
        n_occurrences = len(occurrences.of(word, match_case=args.match_case))
        if n_occurrences <= 1:
            note(
                f"{word!r}: {count(n_occurrences, 'occurrence')} to search; cosines require two, "
                "because their mean is subtracted."
            )
        contexts = analysis.nearest_contexts(
            analysis.Occurrences.of_query(elmo, query),
            occurrences,
            layers,
            args.n,
            any_word=args.any_word,
            match_case=args.match_case,
        )
        if args.any_word and not any(layer.other_words for layer in contexts):
            source = args.occurrences or ", ".join(args.text)
            note(f"{source} has no occurrences of words other than {word!r}.")
        heading = f"{word}, {count(n_occurrences, 'occurrence')}"
        lines = _context_lines(contexts, heading)
        if static is not None:
            form = forms_of(word)[0]
            nearest = static.nearest(form, _STATIC_WORDS) if form in static else []
            words = ", ".join(f"{other} {cosine:.2f}" for cosine, other in nearest)
            head = f"static, {os.path.basename(args.static)}:"
            lines = [f"{head} {words or f'{form!r} is not in it'}", "", *lines]
        show([""] * (number > 0) + [query, "", *lines])
    return 0


def _uses(args: argparse.Namespace, targets: list[str]) -> analysis.Sample | analysis.Occurrences:
    """The occurrences of the targets; with --any_word, a sample of content words too."""
    n_others = _DRAWN * _N_OTHERS if args.any_word else 0
    uses = text_command.read_uses(args, targets, n_others)
    if args.text is None or not args.any_word:
        return uses
    others = [k for k, name in enumerate(uses.names) if name not in targets]
    ranked = [word for word, _ in Counter(uses.names[k] for k in others).most_common()]
    frequent = set(ranked[: min(_FREQUENT, len(ranked) // 4)])
    content = [k for k in others if uses.names[k] not in frequent]
    step = max(1, len(content) / _N_OTHERS)
    chosen = {content[int(k * step)] for k in range(int(len(content) / step))}
    return uses.select(sorted({*range(len(uses))} - {*others} | chosen))


def _context_lines(layers: list[analysis.LayerContexts], heading: str) -> list[str]:
    lines: list[str] = []
    for layer in layers:
        name = f"layer {layer.layer}" if isinstance(layer.layer, int) else f"{layer.layer} layer"
        lines += [f"{name}: {heading}", *in_context(layer.same_word), ""]
        if layer.other_words:
            lines += [f"{name}: other words", *in_context(layer.other_words), ""]
    return lines[:-1]
