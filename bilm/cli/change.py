"""Measure how much the use of words differs between two corpora.

OLD and NEW are text files or quoted globs (UTF-8, plain or compressed), one sentence per line,
tokens separated by spaces. --out is a table with one row per target word, by descending excess:

  excess          mean cosine distance between the corpora minus the mean
                  distance within them: about 0 for a word that did not change
  PRT             1 / cosine of the mean vectors
  APD             mean cosine distance of an old and a new occurrence
  geometric_mean  sqrt(PRT * APD)
  JSD             Jensen-Shannon divergence over clusters, in nats

  bilm change old.txt new.txt --targets words.txt --model elmo \\
      --out change.tsv --page change.html
  bilm change old.txt.gz new.txt.gz --targets targets.txt --lemma_pos \\
      --model elmo --out change.tsv --gold graded.txt --save_uses uses

A target is a word, forms of a word joined with +, as in bank+banks, or with --lemma_pos a word with
a part of speech, as in attack_nn.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from bilm import analysis
from bilm.cli import flags, text_command, word_command
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.reading import find_all_files
from bilm.progress import ProgressDisplay
from bilm.terminal import count, note

if TYPE_CHECKING:
    from bilm.analysis.semantic_change import Agreement
    from bilm.use.predictor import Predictor
    from bilm.use.pretrained import Model

_CORPORA = ("old", "new")
_MAX_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"old OLD": "first corpus", "new NEW": "second corpus"})
    flags.add(parser, text_command.COLUMN)
    words = "target words, one per line; text after a tab is ignored"
    files = {"--targets FILE": words, "--out FILE": "tab-separated table to write"}
    flags.add(parser, files, required=True)
    text_command.add_elmo(parser)
    group = parser.add_argument_group("occurrences")
    layer = "layer number, top or average (default: top)"
    word_command.add_layer(group, layer, "top", "average", default="top")
    flags.add(
        group,
        {
            "--min_occurrences N>=2": "measure words that occur at least N times in each corpus "
            "(default: 3)",
            "--lemma_pos": "targets end in a part of speech, as attack_nn: look for such tokens, "
            "or for the word alone in a corpus without them; the model reads the word alone",
            **word_command.SAMPLE,
        },
    )
    flags.add(
        parser.add_argument_group("output"),
        {
            "--page FILE": "HTML page of the most changed words: sentences of the clusters that "
            "grew and shrank",
            "--page_words N": "words on the page (default: 20)",
            "--substitutes_from FOLDER": "language model whose substitutes name the clusters "
            "(default: --model, if it has its softmax)",
            "--gold FILE": "gold scores, one line per word: word, tab, score. They must rise with "
            "change, unlike scores of relatedness (DURel). Prints Spearman's correlation with each "
            "measure, or for scores of 0 and 1 accuracy and AUC, with 95 %% bootstrap intervals",
            "--save_uses FOLDER": "write the vectors of the occurrences to old.npz and new.npz "
            "there, for the programs of semeval2020: {word: matrix (occurrences, dim)}",
            **flags.FORCE,
        },
    )
    parser.set_defaults(max_occurrences=1000, min_occurrences=3, seed=0, page_words=20)


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    flags.require_inputs(args)
    if args.max_occurrences < args.min_occurrences:
        flags.usage_error(args, "--max_occurrences must be at least --min_occurrences")
    if args.page is not None and not args.page.lower().endswith(".html"):
        flags.usage_error(args, f"--page must end in .html, got {args.page}")
    if args.page is None:
        flags.require_effect(args, "--page", "page_words", "substitutes_from")
    folders = [] if args.save_uses is None else [args.save_uses]
    uses = [os.path.join(folder, f"{name}.npz") for folder in folders for name in _CORPORA]
    outputs = flags.outputs(args, out=args.out, page=args.page, save_uses=uses, folders=folders)
    text_command.check_layer(args)
    old_files, new_files = (map(os.path.realpath, find_all_files(p)) for p in (args.old, args.new))
    if both := {*old_files} & {*new_files}:
        note(f"{count(len(both), 'file')} in both corpora, such as {min(both)}")

    from bilm.analysis import semantic_change as change

    import_extra("sklearn.cluster", "bilm change")
    targets = change.read_targets(args.targets)
    gold = None if args.gold is None else change.read_gold(args.gold)
    if gold is not None:
        change.gold_scores(targets, gold)  # raises errors before the work
    with ProgressDisplay() as display:
        samples = _samples(args, targets, display)
        counts, least = [sample.counts for sample in samples], args.min_occurrences
        frequent = [t for t in targets if min(corpus.get(t, 0) for corpus in counts) >= least]
        if not frequent:
            raise InputError(
                f"{args.targets}: no word occurs {least} times in {args.old} and in {args.new}."
            )
        if gold is not None:
            change.gold_scores(frequent, gold)
        model, predictor = word_command.load_models(args, args.page is not None, True)
        old, new = _occurrences(args, cast("Model", model), samples, display)
        settings = flags.keywords(args, "min_occurrences", "seed")
        results = change.measure_change(old, new, targets, **settings, progress=display.show)
    _note_rare(results, args.min_occurrences)
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
    for path, occurrences in zip(uses, (old, new), strict=False):
        change.save_uses(path, occurrences, targets)
    if args.page is not None:
        _write_page(args, args.page, old, new, results, predictor)
    change.write_table(args.out, results)
    print(*outputs.paths, sep="\n")
    if gold is not None:
        _print_agreement(change.agreement(results, gold, seed=args.seed))
    return 0


def _note_rare(results: Sequence[analysis.Change], least: int) -> None:
    if rare := [c.word for c in results if min(c.n_old, c.n_new) < least]:
        more = f" and {len(rare) - _MAX_SHOWN} more" if len(rare) > _MAX_SHOWN else ""
        note(
            f"Not measured, with fewer than {least} occurrences in a corpus: "
            f"{', '.join(rare[:_MAX_SHOWN])}{more}"
        )


def _write_page(
    args: argparse.Namespace,
    path: str,
    old: analysis.Occurrences,
    new: analysis.Occurrences,
    results: Sequence[analysis.Change],
    predictor: Predictor | None,
) -> None:
    from bilm.analysis.change_page import write_change_page

    names = [os.path.basename(pattern) for pattern in (args.old, args.new)]
    write_change_page(
        path,
        old,
        new,
        results,
        n_words=args.page_words,
        seed=args.seed,
        corpora=(args.old, args.new) if names[0] == names[1] else (names[0], names[1]),
        predictor=predictor,
    )


def _print_agreement(lines: Sequence[Agreement]) -> None:
    print()
    for line in lines:
        print(
            f"{line.statistic:<10}{line.measure:<15}{line.value:6.3f}  95 % interval "
            f"{line.low:.3f} to {line.high:.3f}  {line.n} words"
        )
        if line.measure == "excess" and line.statistic == "Spearman" and line.high < 0:
            note("Gold scores must rise with change; are these scores of relatedness, which fall?")


def _samples(
    args: argparse.Namespace, targets: Sequence[str], display: ProgressDisplay
) -> list[analysis.Sample]:
    """The occurrences in both corpora."""
    samples = []
    settings = flags.keywords(args, "max_occurrences", "seed", "match_case", "lemma_pos")
    for pattern in (args.old, args.new):
        sentences = word_command.read_tokens(args, display, f"reading {pattern}", [pattern])
        try:
            samples.append(analysis.sample_targets(sentences, targets, **settings))
        except InputError as error:
            if str(error).startswith(tuple(find_all_files([pattern]))):
                raise
            raise InputError(f"{pattern}: {error}") from None
    return samples


def _occurrences(
    args: argparse.Namespace,
    model: Model,
    samples: Sequence[analysis.Sample],
    display: ProgressDisplay,
) -> Iterator[analysis.Occurrences]:
    """The occurrences in both corpora, with the vectors of the chosen layer."""
    for name, sample in zip(_CORPORA, samples, strict=True):
        text_command.warn_of_unseen(model, sample.sentences, getattr(args, name))
        yield word_command.encode(model.elmo, sample, display, f"encoding {name}", layer=args.layer)
