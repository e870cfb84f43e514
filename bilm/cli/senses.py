"""Cluster the occurrences of a word in a text, and show the typical words of each cluster.

For each cluster, it prints the size, typical lines (the occurrences nearest to the centre) and
typical words. If the model has its softmax (`bilm dump` keeps it), typical words are substitutes
that are likelier in this cluster than in the others; otherwise they are words that occur more often
nearby. bank+banks is one target with two forms, whose occurrences are clustered together.

Clustering is by k-means. Without --clusters, numbers from 2 to 6 are tried. A number qualifies if
its mean silhouette is at least 0.25 and its clusters are clearer than the clusters of unstructured
Gaussian clouds with the same covariance. The smallest qualifying number within 0.9 times the
highest silhouette is chosen, or 1 if none qualifies; the first line says why. The occurrences in a
cluster have similar vectors: they may share a sense, a part of speech or a capital letter.

--occurrences also saves the clusters, and `bilm project --occurrences` draws them.

  bilm senses bank spring --model elmo --text corpus.txt
  bilm senses bank+banks --model elmo --text corpus.txt --clusters 3 \\
      --out bank.tsv
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm import analysis
from bilm.analysis.contexts import in_context, terminal_width
from bilm.cli import flags, word_command
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.writing import text_file
from bilm.terminal import count, note, show

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"word WORD": "word"}, nargs="+")
    word_command.add_model(parser)
    word_command.add_occurrences(parser)
    group = parser.add_argument_group("clusters")
    layer = "layer number, top or average (default: top)"
    word_command.add_layer(group, layer, "top", "average", default="top")
    flags.add(group, {"--clusters N": "number of clusters"})
    flags.add(
        parser.add_argument_group("output"),
        {
            "--lines N>=0": "typical lines of each cluster (default: 5)",
            **word_command.FORMAT,
            "--out FILE": "write all occurrences: name of the cluster, tab, sentence with the "
            "[word]",
            **flags.FORCE,
        },
    )
    parser.set_defaults(lines=5, format="text")


def run(args: argparse.Namespace) -> int:
    outputs = flags.outputs(args, out=args.out, updated=["occurrences"])
    import_extra("sklearn.cluster", "bilm senses")
    targets = word_command.distinct(args, args.word)
    uses = word_command.read_uses(args, targets)
    needs_vectors = not isinstance(uses, analysis.Occurrences)
    model, predictor = word_command.load_models(args, True, needs_vectors)
    words = _cluster_words(args, word_command.with_vectors(args, uses, model), targets, predictor)
    # Files first: a reader of standard output, such as `head`, may end the command.
    for path in outputs.paths:
        with outputs.temporaries() as (temporary,):
            n_skipped = _write(temporary, words)
        if n_skipped:
            skipped = count(n_skipped, "occurrence")
            note(f"{path}: {skipped} skipped, because other tokens are in [brackets].")
    if args.occurrences is not None:
        _save_clusters(args.occurrences, words, args.layer)
    for number, word in enumerate(words):
        if args.format == "json":
            print(json.dumps(word.summary, ensure_ascii=False, default=asdict))
        else:
            show([""] * (number > 0) + _lines(word.summary, terminal_width() - 2))
    return 0


class _WordClusters(NamedTuple):
    """The clusters of a word's occurrences."""

    occurrences: analysis.Occurrences
    clusters: analysis.Clusters
    names: list[str]  # the cluster of each occurrence
    summary: dict[str, Any]  # for printing; JSON except for `Context` objects


def _cluster_words(
    args: argparse.Namespace,
    occurrences: analysis.Occurrences,
    words: list[str],
    predictor: Predictor | None,
) -> list[_WordClusters]:
    """The clusters of each word."""
    from bilm.analysis.clusters import typical_words

    result = []
    for word in words:
        subset = occurrences.select(occurrences.names == word)
        clusters = analysis.cluster_occurrences(subset, layer=args.layer, n_clusters=args.clusters)
        typical = typical_words(subset, clusters, predictor)
        names = analysis.cluster_names(clusters, typical, word if len(words) > 1 else "")
        summary = {
            "word": word,
            "occurrences": len(subset),
            "layer": args.layer,
            "reason": clusters.reason,
            "silhouettes": {str(k): round(x, 4) for k, x in clusters.silhouettes.items()},
            "typical_words": "nearby" if predictor is None else "substitutes",
            "clusters": [],
        }
        for number, (size, scores) in enumerate(zip(clusters.sizes, typical, strict=True)):
            indices = analysis.typical_occurrences(subset, clusters, number, args.lines)
            cluster = {
                "size": size,
                "proportion": round(size / len(subset), 4),
                "words": [{"score": round(score, 4), "word": other} for score, other in scores],
                "lines": [
                    analysis.Context.of(subset, k, float(clusters.closeness[k])) for k in indices
                ],
            }
            summary["clusters"].append(cluster)
        result.append(_WordClusters(subset, clusters, names, summary))
    return result


def _lines(summary: dict[str, Any], width: int) -> list[str]:
    """The clusters of a word for a terminal."""
    layer, clusters = summary["layer"], summary["clusters"]
    layer = f"layer {layer}" if isinstance(layer, int) else f"{layer} layer"
    lines = [
        f"{summary['word']}: {count(summary['occurrences'], 'occurrence')}, {layer}, "
        f"{count(len(clusters), 'cluster')}" + f" ({summary['reason']})" * bool(summary["reason"])
    ]
    if summary["silhouettes"]:
        values = "  ".join(f"{k}: {value:.2f}" for k, value in summary["silhouettes"].items())
        lines.append(f"silhouette by number of clusters  {values}")
    for number, cluster in enumerate(clusters, start=1):
        size, words = cluster["size"], [item["word"] for item in cluster["words"]]
        share = size / summary["occurrences"]
        lines += ["", f"cluster {number}: {count(size, 'occurrence')}, {share:.0%}"]
        lines += [f"  {summary['typical_words']}: {' '.join(words)}"] * bool(words)
        lines += [f"  {line}" for line in in_context(cluster["lines"], width, cosines=False)]
    return lines


def _write(path: str, words: list[_WordClusters]) -> int:
    """Write each occurrence with its cluster, by distance from the centre; return the number of
    occurrences skipped."""
    n_skipped = 0
    with text_file(path) as file:
        for word in words:
            for number in (k for c in range(len(word.clusters)) for k in word.clusters.members(c)):
                line = word.occurrences.in_context(number, len(word.occurrences.sentence(number)))
                try:
                    analysis.parse_query(line)
                    file.write(f"{word.names[number]}\t{line}\n")
                except InputError:
                    n_skipped += 1
    return n_skipped


def _save_clusters(path: str, words: list[_WordClusters], layer: int | str) -> None:
    occurrences = analysis.Occurrences.load(path)
    targets = set(occurrences.names)
    # A position may belong to several targets, such as bank and bank+banks. If a target is not in
    # the file, its occurrences are there under other targets: None stands for any target.
    clusters: dict[tuple[str | None, int, int], str] = {}
    for word in words:
        uses = word.occurrences
        for name, place, cluster in zip(
            uses.names, uses.positions.tolist(), word.names, strict=True
        ):
            clusters[(name if name in targets else None, *place)] = cluster
    before = occurrences.clusters or [""] * len(occurrences)
    new = [
        clusters.get((name, *place), clusters.get((None, *place), earlier))
        for name, place, earlier in zip(
            occurrences.names, occurrences.positions.tolist(), before, strict=True
        )
    ]
    replace(occurrences, clusters=new, clusters_layer=layer).save(path)
