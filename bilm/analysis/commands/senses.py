"""Cluster the occurrences of a word in a text, and show the typical words of each cluster.

For each cluster, it prints the size, typical lines (the occurrences nearest to the centre) and
typical words. If the model has its softmax (`bilm dump` keeps it; or use --substitutes_from with a
training folder), typical words are substitutes that are likelier in this cluster than in the
others; otherwise they are words that occur more often nearby. Join forms of a word with +, as in
bank+banks.

Clustering is by k-means. Without --clusters, the number of clusters is the smallest from 2 to
--max_clusters whose mean silhouette is at least 0.9 times the highest, or 1 if all are below 0.25.
The occurrences in a cluster have similar vectors: they may share a sense, a part of speech or a
capital letter. With --labels, it also prints the agreement of clusters and labels: ARI (0 by
chance, 1 if identical) and V-measure.

--occurrences also saves the clusters, and `bilm project --occurrences` draws them.

  bilm senses bank spring --model elmo --text corpus.txt
  bilm senses bank+banks --model elmo --text corpus.txt --clusters 3 --out bank.tsv
  bilm senses --model elmo --labels occurrences.tsv
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm import analysis
from bilm.analysis.commands import word_job
from bilm.analysis.contexts import in_context, terminal_width
from bilm.cli import flags
from bilm.cli.terminal import count, note, show, table
from bilm.core.errors import InputError
from bilm.extras import import_extra

if TYPE_CHECKING:
    from bilm.analysis.clusters import ScoredWords
    from bilm.use.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"word WORD": "word (default with --labels: every word there)"}, nargs="*")
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    group = parser.add_argument_group("clusters")
    layer = "layer number, top or average (default: 1)"
    word_job.add_layer(group, layer, "top", "average", default=1)
    flags.add(
        group,
        {
            "--clusters N": "number of clusters",
            "--max_clusters N": "highest number to try without --clusters (default: 6)",
            "--labels FILE": word_job.LABELS,
        },
    )
    flags.add(
        parser.add_argument_group("output"),
        {
            "--lines N>=0": "typical lines of each cluster (default: 5)",
            "--n_words N>=0": "typical words of each cluster (default: 8)",
            "--substitutes_from FOLDER": "language model for typical words (default: --model, if "
            "it has its softmax)",
            **word_job.FORMAT,
            "--out FILE": "write all occurrences, in the form of --labels: name of the cluster, "
            "tab, sentence with the [word]",
            **flags.FORCE,
        },
    )
    parser.set_defaults(max_clusters=6, lines=5, n_words=8, format="text")


def run(args: argparse.Namespace) -> int:
    from bilm.analysis.clusters import cluster_names

    if args.labels is not None and args.text is not None:
        flags.usage_error(args, "--labels replaces --text")
    if args.labels is None and not args.word:
        flags.usage_error(args, "name a word, or --labels")
    flags.require_free(args, args.out)
    import_extra("sklearn.cluster", "bilm senses")
    word_job.check_files(args)
    predictor = word_job.load_predictor(args) if args.n_words else None
    words = [_clustered(args, word, own, predictor) for word, own in _by_word(args)]
    for number, word in enumerate(words):
        if args.format == "json":
            print(json.dumps(_as_dict(args, word), ensure_ascii=False))
        else:
            show([""] * (number > 0) + _lines(args, word, terminal_width()))
    names = [
        cluster_names(own.clusters, own.words, own.word if len(words) > 1 else "") for own in words
    ]
    if args.out is not None:
        _write(args.out, words, names)
    if args.occurrences is not None:
        _keep(args.occurrences, words, names)
    return 0


def _by_word(args: argparse.Namespace) -> Iterator[tuple[str, analysis.Occurrences]]:
    """The occurrences of each given word, or of every word of --labels."""
    from bilm.analysis.semantic_change import forms_of

    words = [form for word in args.word for form in forms_of(word)]
    if args.labels is None:
        occurrences = word_job.load_occurrences(args, words or None)
    else:
        occurrences = word_job.labelled_occurrences(args, words)
    tokens = word_job.compared(args, map(occurrences.word, range(len(occurrences))))
    for name in dict.fromkeys(word_job.compared(args, args.word) or tokens):
        forms = forms_of(name) if args.word else [name]
        yield name, occurrences.select([k for k, token in enumerate(tokens) if token in forms])


class _WordClusters(NamedTuple):
    """The clusters of a word, with the typical occurrences and words of each."""

    word: str
    occurrences: analysis.Occurrences
    clusters: analysis.Clusters
    typical: list[list[analysis.Context]]
    words: list[ScoredWords]
    kind: str

    def fit(self) -> analysis.Fit | None:
        """The agreement with the labels, or None without labels."""
        labels = self.occurrences.labels
        return None if labels is None else analysis.fit_to_labels(self.clusters, labels)


def _clustered(
    args: argparse.Namespace,
    word: str,
    occurrences: analysis.Occurrences,
    predictor: Predictor | None,
) -> _WordClusters:
    from bilm.analysis.clusters import typical_words

    if args.clusters is not None and args.clusters > len(occurrences):
        raise InputError(
            f"--clusters must be at most {len(occurrences)}, the occurrences of {word!r}, got "
            f"{args.clusters}."
        )
    found = analysis.cluster_occurrences(
        occurrences,
        layer=args.layer,
        n_clusters=args.clusters,
        max_clusters=args.max_clusters,
        seed=args.seed,
    )
    typical = [
        [analysis.Context.of(occurrences, use, float(found.closeness[use]))
         for use in analysis.typical_occurrences(occurrences, found, cluster, args.lines)]
        for cluster in range(len(found))
    ]  # fmt: skip
    words = typical_words(occurrences, found, predictor, args.n_words)
    kind = "nearby" if predictor is None else "substitutes"
    return _WordClusters(word, occurrences, found, typical, words, kind)


def _as_dict(args: argparse.Namespace, own: _WordClusters) -> dict[str, Any]:
    """The clusters of a word for JSON."""
    n = len(own.occurrences)
    found = {
        "word": own.word,
        "occurrences": n,
        "layer": args.layer,
        "silhouettes": {str(k): round(x, 4) for k, x in own.clusters.silhouettes.items()},
        "typical_words": own.kind,
        "clusters": [
            {
                "size": size,
                "proportion": round(size / n, 4),
                "words": [{"score": round(s, 4), "word": word} for s, word in words],
                "lines": [context.as_dict() for context in typical],
            }
            for size, words, typical in zip(own.clusters.sizes, own.words, own.typical, strict=True)
        ],
    }
    if (fit := own.fit()) is not None:
        values = fit._asdict().items()
        found["labels"] = {k: round(v, 4) if isinstance(v, float) else v for k, v in values}
    return found


def _lines(args: argparse.Namespace, own: _WordClusters, width: int) -> list[str]:
    """The clusters of a word for a terminal."""
    layer = f"layer {args.layer}" if isinstance(args.layer, int) else f"{args.layer} layer"
    n, sizes = len(own.occurrences), own.clusters.sizes
    lines = [f"{own.word}: {count(n, 'occurrence')}, {layer}, {count(len(sizes), 'cluster')}"]
    if own.clusters.silhouettes:
        values = "  ".join(f"{k}: {value:.2f}" for k, value in own.clusters.silhouettes.items())
        lines.append(f"silhouette by number of clusters  {values}")
    for number, size in enumerate(sizes):
        lines += ["", f"cluster {number + 1}: {count(size, 'occurrence')}, {size / n:.0%}"]
        if own.words[number]:
            lines.append(f"  {own.kind}: {' '.join(word for _, word in own.words[number])}")
        shown = in_context(own.typical[number], width - 2, cosines=False)
        lines += [f"  {line}" for line in shown]
    if (fit := own.fit()) is not None:
        head = ["label", *(f"cluster {k + 1}" for k in range(len(sizes)))]
        rows = [[label, *map(str, counts)] for label, counts in fit.table.items()]
        lines += [
            "",
            f"agreement with the labels: ARI {fit.ari:.3f}, V-measure {fit.v_measure:.3f} "
            f"(homogeneity {fit.homogeneity:.3f}, completeness {fit.completeness:.3f})",
            *table([head, *rows]),
        ]
    return lines


def _write(path: str, words: list[_WordClusters], names: list[list[str]]) -> None:
    """Write each occurrence with its cluster, in the order of distance from the centre."""
    from bilm.files.writing import atomic_write

    n_left_out = 0
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for own, own_names in zip(words, names, strict=True):
            for number in (k for c in range(len(own.clusters)) for k in own.clusters.members(c)):
                tokens = list(own.occurrences.sentence(number))
                position = int(own.occurrences.positions[number, 1])
                tokens[position] = f"[{tokens[position]}]"
                try:
                    analysis.parse_query(line := " ".join(tokens))
                except InputError:
                    n_left_out += 1
                    continue
                file.write(f"{own_names[number]}\t{line}\n")
    if n_left_out:
        left_out = count(n_left_out, "occurrence")
        note(f"{path}: {left_out} skipped, because other tokens are in [brackets].")


def _keep(path: str, words: list[_WordClusters], names: list[list[str]]) -> None:
    """Add the clusters to a file of occurrences."""
    kept = analysis.Occurrences.load(path)
    places = list(map(tuple, kept.positions.tolist()))
    clusters = dict(zip(places, kept.clusters or [""] * len(kept), strict=True))
    for own, own_names in zip(words, names, strict=True):
        own_places = map(tuple, own.occurrences.positions.tolist())
        clusters |= zip(own_places, own_names, strict=True)
    replace(kept, clusters=[clusters[place] for place in places]).save(path)
