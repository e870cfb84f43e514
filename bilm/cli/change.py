"""Measure how much the use of words differs between two corpora.

OLD and NEW are text files or quoted globs (UTF-8, plain or compressed), one sentence per line,
tokens separated by spaces. --out is a table with one row per target word, by descending excess_low:

  excess    mean cosine distance between the corpora minus the mean distance
            within them: about 0 for a word that did not change
  JSD       Jensen-Shannon divergence over clusters, in nats
  ..._p     probability of such a value if the corpora do not differ, by 999
            random exchanges of occurrences, or with --by_file of files
  PRT       1 / cosine of the mean vectors
  APD       mean cosine distance of an old and a new occurrence

excess_low and excess_high are a 95 % interval; clusters_old and clusters_new have the proportion of
each cluster with its 95 % interval.

  bilm change old.txt new.txt --targets words.txt --model elmo \\
      --out change.tsv --page change.html
  bilm change 'old/*.txt' 'new/*.txt' --by_file --targets words.txt \\
      --model elmo --out change.tsv

A target is a word, or forms of a word joined with +, as in bank+banks.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.core.errors import InputError, import_extra
from bilm.files.reading import find_all_files, read_files
from bilm.progress import ProgressDisplay, Stage
from bilm.terminal import count, note

_CORPORA = ("old", "new")
_MAX_SHOWN = 10
_MIN_FILES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"old OLD": "first corpus", "new NEW": "second corpus"})
    flags.add(parser, text_command.COLUMN)
    words = "target words, one per line; text after a tab is ignored"
    files = {"--targets FILE": words, "--out FILE": "tab-separated table to write"}
    flags.add(parser, files, required=True)
    text_command.add_model(parser)
    group = parser.add_argument_group("occurrences")
    flags.add(group, {"--layer LAYER": "layer number, or top (default: top)"}, default="top")
    flags.add(
        group,
        {
            "--min_occurrences N>=2": "measure words that occur at least N times in each corpus "
            "(default: 3)",
            "--by_file": "each file is a document or an author: tests and intervals exchange "
            "complete files; a word must be in three files of each corpus",
            **text_command.SAMPLE,
        },
    )
    flags.add(
        parser.add_argument_group("output"),
        {
            "--page FILE": "HTML page of the 20 most changed words: sentences of the clusters that "
            "grew and shrank",
            **flags.FORCE,
        },
    )
    parser.set_defaults(max_occurrences=1000, min_occurrences=3, seed=0)


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    flags.require_inputs(args)
    if args.max_occurrences < args.min_occurrences:
        flags.usage_error(args, "--max_occurrences must be at least --min_occurrences")
    if args.page is not None and not args.page.lower().endswith(".html"):
        flags.usage_error(args, f"--page must end in .html, got {args.page}")
    outputs = flags.outputs(args, out=args.out, page=args.page)
    text_command.check_layer(args)
    files = [find_all_files(pattern) for pattern in (args.old, args.new)]
    if both := set.intersection(*(set(map(os.path.realpath, names)) for names in files)):
        note(f"{count(len(both), 'file')} in both corpora, such as {min(both)}")
    if args.by_file and min(map(len, files)) < _MIN_FILES:
        flags.usage_error(args, f"--by_file requires {_MIN_FILES} files in OLD and in NEW")

    from bilm.analysis import semantic_change as change

    import_extra("sklearn.cluster", "bilm change")
    targets = change.read_targets(args.targets)
    with ProgressDisplay() as display:
        texts = [_read(args, pattern, targets, display) for pattern in (args.old, args.new)]
        samples, documents = zip(*texts, strict=True)
        counts, least = [sample.counts for sample in samples], args.min_occurrences
        if not any(min(corpus.get(t, 0) for corpus in counts) >= least for t in targets):
            raise InputError(
                f"{args.targets}: no word occurs {least} times in {args.old} and in {args.new}."
            )
        has_page = args.page is not None
        model = text_command.load_model(args, softmax=None if has_page else False)
        predictor = text_command.predictor_of(model) if has_page else None
        occurrences = []
        for name, sample in zip(_CORPORA, samples, strict=True):
            text_command.warn_of_unseen(model, sample.sentences, getattr(args, name))

            def show(stage: Stage, doing: str = f"encoding {name}") -> None:
                display.show(stage._replace(doing=doing))

            occurrences.append(
                analysis.Occurrences.encoded(model.elmo, sample, layer=args.layer, progress=show)
            )
        old, new = occurrences
        results = change.measure_change(
            old,
            new,
            targets,
            documents=documents if args.by_file else None,
            per_million=(samples[0].per_million(), samples[1].per_million()),
            progress=display.show,
            **flags.keywords(args, "min_occurrences", "seed"),
        )
    if rare := [result.word for result in results if not result.is_measured]:
        more = f" and {len(rare) - _MAX_SHOWN} more" if len(rare) > _MAX_SHOWN else ""
        least_files = f" or {_MIN_FILES} files" if args.by_file else ""
        note(
            f"Not measured, with fewer than {least} occurrences{least_files} in a corpus: "
            f"{', '.join(rare[:_MAX_SHOWN])}{more}"
        )
    if args.page is not None:
        names = [args.old, args.new]
        if len(short := {os.path.basename(name): None for name in names}) == 2:
            names = [*short]
        change.write_change_page(args.page, old, new, results, corpora=names, predictor=predictor)
    change.write_table(args.out, results)
    print(*outputs.paths, sep="\n")
    return 0


def _read(
    args: argparse.Namespace, pattern: str, targets: Sequence[str], display: ProgressDisplay
) -> tuple[analysis.Sample, list[int]]:
    """The occurrences in a corpus, and the number of each one's file."""
    starts: list[int] = []
    files, tokens = find_all_files([pattern]), text_command.model_tokens(args)

    def sentences() -> Iterator[Sequence[str]]:
        n_lines = 0
        doing = f"reading {pattern}"
        for _, lines in read_files(files, doing, display.show, tokens.read, tokens.column):
            starts.append(n_lines)
            for line in lines:
                yield line
                n_lines += 1

    settings = flags.keywords(args, "max_occurrences", "seed", "match_case")
    sample = analysis.sample_uses(sentences(), targets, may_be_missing=True, **settings)
    return sample, sample.documents(starts)
