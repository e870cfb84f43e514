"""Cluster the occurrences of a word in a text, and show the typical words of each cluster.

For each cluster, it prints the size, typical lines (the occurrences nearest to the centre) and
typical words. If the model has its softmax (`bilm dump` keeps it; or use --substitutes_from with a
training folder), typical words are substitutes that are likelier in this cluster than in the
others; otherwise they are words that occur more often nearby. bank+banks is one target with two
forms, whose occurrences are clustered together.

Clustering is by k-means. Without --clusters, numbers from 2 to --max_clusters are tried. A number
qualifies if its mean silhouette is at least 0.25 and its clusters are clearer than the clusters of
unstructured Gaussian clouds with the same covariance. The smallest qualifying number within 0.9
times the highest silhouette is chosen, or 1 if none qualifies; the first line says why. The
occurrences in a cluster have similar vectors: they may share a sense, a part of speech or a capital
letter. With --labels, it also prints the agreement of clusters and labels: ARI (0 by chance, 1 if
identical) and V-measure.

--occurrences also saves the clusters, and `bilm project --occurrences` draws them.

  bilm senses bank spring --model elmo --text corpus.txt
  bilm senses bank+banks --model elmo --text corpus.txt --clusters 3 \\
      --out bank.tsv
  bilm senses --model elmo --labels occurrences.tsv
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm import analysis
from bilm.analysis.contexts import in_context, terminal_width
from bilm.cli import flags, text_command, word_command
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.files.writing import text_file
from bilm.terminal import count, note, show, table

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"word WORD": "word (default with --labels: all its words)"}, nargs="*")
    text_command.add_elmo(parser)
    word_command.add_occurrences(parser)
    group = parser.add_argument_group("clusters")
    layer = "layer number, top or average (default: top)"
    word_command.add_layer(group, layer, "top", "average", default="top")
    flags.add(
        group,
        {
            "--clusters N": "number of clusters",
            "--max_clusters N": "highest number to try without --clusters (default: 6)",
            "--labels FILE": word_command.LABELS,
        },
    )
    flags.add(
        parser.add_argument_group("output"),
        {
            "--lines N>=0": "typical lines of each cluster (default: 5)",
            "--n_words N>=0": "typical words of each cluster (default: 8)",
            "--substitutes_from FOLDER": "language model for typical words (default: --model, if "
            "it has its softmax)",
            **word_command.FORMAT,
            "--out FILE": "write all occurrences, in the form of --labels: name of the cluster, "
            "tab, sentence with the [word]",
            **flags.FORCE,
        },
    )
    parser.set_defaults(max_clusters=6, lines=5, n_words=8, format="text")


def run(args: argparse.Namespace) -> int:
    if args.labels is not None and args.text is not None:
        flags.usage_error(args, "--labels replaces --text")
    if args.labels is None and not args.word:
        flags.usage_error(args, "name a word, or --labels")
    if args.clusters is not None:
        flags.require_effect(args, "a search, which --clusters replaces", "max_clusters")
    if args.n_words == 0:
        flags.require_effect(args, "--n_words above 0", "substitutes_from")
    outputs = flags.outputs(args, out=args.out, updated=["occurrences"])
    import_extra("sklearn.cluster", "bilm senses")
    targets = word_command.distinct(args, args.word)
    uses = word_command.read_uses(args, targets)
    needs_vectors = not isinstance(uses, analysis.Occurrences)
    model, predictor = word_command.load_models(args, args.n_words > 0, needs_vectors)
    words = _cluster_words(args, word_command.with_vectors(args, uses, model), targets, predictor)
    # Files first: a reader of standard output, such as `head`, may end the command.
    for path in outputs.paths:
        with outputs.temporaries() as (temporary,):
            n_skipped = _write(temporary, words)
        if n_skipped:
            skipped = count(n_skipped, "occurrence")
            note(f"{path}: {skipped} skipped, because other tokens are in [brackets].")
    if args.occurrences is not None:
        _save_clusters(args.occurrences, words)
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
    """The clusters of each word, or of every word of --labels."""
    from bilm.analysis.clusters import typical_words

    words = words or list(dict.fromkeys(occurrences.names))
    settings = flags.keywords(args, "layer", "max_clusters")
    result = []
    for word in words:
        subset = occurrences.select(occurrences.names == word)
        clusters = analysis.cluster_occurrences(subset, n_clusters=args.clusters, **settings)
        typical = typical_words(subset, clusters, predictor, args.n_words)
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
        if subset.labels is not None:
            fit = analysis.fit_to_labels(clusters, subset.labels)._asdict().items()
            summary["labels"] = {k: round(v, 4) if isinstance(v, float) else v for k, v in fit}
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
    if fit := summary.get("labels"):
        head = ["label", *(f"cluster {k + 1}" for k in range(len(clusters)))]
        lines += [
            "",
            f"agreement with the labels: ARI {fit['ari']:.3f}, V-measure {fit['v_measure']:.3f} "
            f"(homogeneity {fit['homogeneity']:.3f}, completeness {fit['completeness']:.3f})",
            *table([head, *([label, *map(str, counts)] for label, counts in fit["table"].items())]),
        ]
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


def _save_clusters(path: str, words: list[_WordClusters]) -> None:
    occurrences = analysis.Occurrences.load(path)
    targets = set(occurrences.names)
    # A position may belong to several targets, such as bank and bank+banks. If a target is not in
    # the file, its occurrences are there under other targets: None stands for any target.
    clusters: dict[tuple[str | None, int, int], str] = {}
    for word in words:
        found = word.occurrences
        for name, (sentence, index), cluster in zip(
            found.names, found.positions.tolist(), word.names, strict=True
        ):
            clusters[name if name in targets else None, sentence, index] = cluster
    new = []
    for k, (name, (sentence, index)) in enumerate(
        zip(occurrences.names, occurrences.positions.tolist(), strict=True)
    ):
        before = occurrences.clusters[k] if occurrences.clusters else ""
        of_others = clusters.get((None, sentence, index), before)
        new.append(clusters.get((name, sentence, index), of_others))
    replace(occurrences, clusters=new).save(path)
