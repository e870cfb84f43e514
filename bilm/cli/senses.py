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
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from bilm import analysis
from bilm.analysis.contexts import Context, in_context
from bilm.cli import flags, text_command
from bilm.core.errors import InputError, import_extra
from bilm.files.writing import text_file
from bilm.terminal import count, note, show

if TYPE_CHECKING:
    from bilm.analysis.clusters import ScoredWords
    from bilm.use.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"word WORD": "word"}, nargs="+")
    text_command.add_model(parser)
    text_command.add_occurrences(parser)
    group = parser.add_argument_group("clusters")
    flags.add(group, {"--layer LAYER": "layer number, or top (default: top)"}, default="top")
    flags.add(group, {"--clusters N": "number of clusters"})
    flags.add(
        parser.add_argument_group("output"),
        {
            "--lines N>=0": "typical lines of each cluster (default: 5)",
            "--out FILE": "write all occurrences: name of the cluster, tab, sentence with the "
            "[word]",
            **flags.FORCE,
        },
    )
    parser.set_defaults(lines=5)


def run(args: argparse.Namespace) -> int:
    outputs = flags.outputs(args, out=args.out, updated=["occurrences"])
    import_extra("sklearn.cluster", "bilm senses")
    targets = args.word = text_command.distinct(args, args.word)
    uses = text_command.read_uses(args, targets)
    model = predictor = None
    if args.model is not None or not isinstance(uses, analysis.Occurrences):
        model = text_command.load_model(args, softmax=None)
        predictor = text_command.predictor_of(model)
    occurrences = text_command.with_vectors(args, uses, model)
    words = [_cluster(args, occurrences, word, predictor) for word in targets]
    # Files first: a reader of standard output, such as `head`, may end the command.
    for path in outputs.paths:
        with outputs.temporaries() as (temporary,):
            n_skipped = _write(temporary, words)
        if n_skipped:
            skipped = count(n_skipped, "occurrence")
            note(f"{path}: {skipped} skipped, because other tokens are in [brackets].")
    if args.occurrences is not None:
        _save_clusters(args.occurrences, words, args.layer)
    kind = "nearby" if predictor is None else "substitutes"
    for number, word in enumerate(words):
        show([""] * (number > 0) + _lines(args, word, kind))
    return 0


class _WordClusters(NamedTuple):
    """The clusters of a word's occurrences."""

    word: str
    occurrences: analysis.Occurrences
    clusters: analysis.Clusters
    typical: list[ScoredWords]  # words of each cluster
    names: list[str]  # the cluster of each occurrence


def _cluster(
    args: argparse.Namespace,
    occurrences: analysis.Occurrences,
    word: str,
    predictor: Predictor | None,
) -> _WordClusters:
    from bilm.analysis.clusters import typical_words

    uses = occurrences.select(occurrences.names == word)
    clusters = analysis.cluster_occurrences(uses, layer=args.layer, n_clusters=args.clusters)
    typical = typical_words(uses, clusters, predictor)
    names = analysis.cluster_names(clusters, typical, word if len(args.word) > 1 else "")
    return _WordClusters(word, uses, clusters, typical, names)


def _lines(args: argparse.Namespace, word: _WordClusters, kind: str) -> list[str]:
    """The clusters of a word for a terminal; `kind` is the kind of its typical words."""
    uses, clusters = word.occurrences, word.clusters
    layer = f"layer {args.layer}" if isinstance(args.layer, int) else f"{args.layer} layer"
    reason = f" ({clusters.reason})" if clusters.reason else ""
    lines = [
        f"{word.word}: {count(len(uses), 'occurrence')}, {layer}, "
        f"{count(len(clusters), 'cluster')}{reason}"
    ]
    if clusters.silhouettes:
        values = "  ".join(f"{k}: {value:.2f}" for k, value in clusters.silhouettes.items())
        lines.append(f"silhouette by number of clusters  {values}")
    for number, (size, scores) in enumerate(zip(clusters.sizes, word.typical, strict=True)):
        share = size / len(uses)
        lines += ["", f"cluster {number + 1}: {count(size, 'occurrence')}, {share:.0%}"]
        if scores:
            lines.append(f"  {kind}: {' '.join(other for _, other in scores)}")
        typical = analysis.typical_occurrences(uses, clusters, number, args.lines)
        contexts = [Context.of(uses, k) for k in typical]
        lines += [f"  {line}" for line in in_context(contexts, margin=2, cosines=False)]
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
    targets, positions = set(occurrences.names), [*map(tuple, occurrences.positions.tolist())]
    clusters = list(occurrences.clusters or [""] * len(occurrences))
    # A position may belong to several targets, such as bank and bank+banks. If a target is not in
    # the file, its occurrences are there under other targets, whose own clusters come last.
    for word in sorted(words, key=lambda word: word.word in targets):
        found = dict(zip(map(tuple, word.occurrences.positions.tolist()), word.names, strict=True))
        for k, name in enumerate(occurrences.names):
            if name == word.word or word.word not in targets:
                clusters[k] = found.get(positions[k], clusters[k])
    replace(occurrences, clusters=clusters, clusters_layer=layer).save(path)
