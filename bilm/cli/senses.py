"""Cluster the occurrences of a word in a text, and show the typical words of each cluster.

For each cluster, it prints the size, typical lines (the occurrences nearest to the centre) and
typical words. If the model has its softmax (`bilm dump` keeps it; or use --substitutes_from with a
training folder), typical words are substitutes that are likelier in this cluster than in the
others; otherwise they are words that occur more often nearby. bank+banks is one target with two
forms: its occurrences are those of both.

Clustering is by k-means. Without --clusters, numbers from 2 to --max_clusters are tried. A number
counts if its mean silhouette is at least 0.25 and its clusters are clearer than those of Gaussian
clouds with the same covariance, which have none. The smallest such number within 0.9 times the
highest silhouette is taken, or 1 if there is none. The occurrences in a cluster have similar
vectors: they may share a sense, a part of speech or a capital letter. With --labels, it also prints
the agreement of clusters and labels: ARI (0 by chance, 1 if identical) and V-measure.

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
from bilm.terminal import count, note, show, table

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"word WORD": "word (default with --labels: every word there)"}, nargs="*")
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
    outputs = flags.outputs(args, out=args.out, updated=["occurrences"])
    import_extra("sklearn.cluster", "bilm senses")
    targets = word_command.distinct(args, args.word)
    uses = word_command.read_uses(args, targets)
    predictor = word_command.load_substitutes_model(args) if args.n_words else None
    words = _clustered(args, word_command.with_vectors(args, uses), targets, predictor)
    for number, word in enumerate(words):
        if args.format == "json":
            print(json.dumps(word.found, ensure_ascii=False, default=asdict))
        else:
            show([""] * (number > 0) + _lines(word.found, terminal_width() - 2))
    for path in outputs.paths:
        with outputs.temporaries() as (temporary,):
            n_left_out = _write(temporary, words)
        if n_left_out:
            left_out = count(n_left_out, "occurrence")
            note(f"{path}: {left_out} skipped, because other tokens are in [brackets].")
    if args.occurrences is not None:
        _keep(args.occurrences, words)
    return 0


class _WordClusters(NamedTuple):
    """The clusters of a word's occurrences."""

    occurrences: analysis.Occurrences
    clusters: analysis.Clusters
    names: list[str]  # of each occurrence's cluster
    found: dict[str, Any]  # what is printed: JSON with `Context` objects


def _clustered(
    args: argparse.Namespace,
    occurrences: analysis.Occurrences,
    words: list[str],
    predictor: Predictor | None,
) -> list[_WordClusters]:
    """The clusters of each word, or of every word of --labels."""
    from bilm.analysis.clusters import typical_words

    words = words or list(dict.fromkeys(occurrences.names))
    settings = flags.given(args, "layer", "max_clusters", "seed")
    result = []
    for word in words:
        own = occurrences.select(occurrences.names == word)
        clusters = analysis.cluster_occurrences(own, n_clusters=args.clusters, **settings)
        typical = typical_words(own, clusters, predictor, args.n_words)
        names = analysis.cluster_names(clusters, typical, word if len(words) > 1 else "")
        found = {
            "word": word,
            "occurrences": len(own),
            "layer": args.layer,
            "silhouettes": {str(k): round(x, 4) for k, x in clusters.silhouettes.items()},
            "typical_words": "nearby" if predictor is None else "substitutes",
            "clusters": [],
        }
        for number, (size, scored) in enumerate(zip(clusters.sizes, typical, strict=True)):
            uses = analysis.typical_occurrences(own, clusters, number, args.lines)
            cluster = {
                "size": size,
                "proportion": round(size / len(own), 4),
                "words": [{"score": round(score, 4), "word": other} for score, other in scored],
                "lines": [analysis.Context.of(own, k, float(clusters.closeness[k])) for k in uses],
            }
            found["clusters"].append(cluster)
        if own.labels is not None:
            fit = analysis.fit_to_labels(clusters, own.labels)._asdict().items()
            found["labels"] = {k: round(v, 4) if isinstance(v, float) else v for k, v in fit}
        result.append(_WordClusters(own, clusters, names, found))
    return result


def _lines(found: dict[str, Any], width: int) -> list[str]:
    """The clusters of a word for a terminal."""
    layer, clusters = found["layer"], found["clusters"]
    layer = f"layer {layer}" if isinstance(layer, int) else f"{layer} layer"
    lines = [
        f"{found['word']}: {count(found['occurrences'], 'occurrence')}, {layer}, "
        f"{count(len(clusters), 'cluster')}"
    ]
    if found["silhouettes"]:
        values = "  ".join(f"{k}: {value:.2f}" for k, value in found["silhouettes"].items())
        lines.append(f"silhouette by number of clusters  {values}")
    for number, cluster in enumerate(clusters, start=1):
        size, words = cluster["size"], [scored["word"] for scored in cluster["words"]]
        share = size / found["occurrences"]
        lines += ["", f"cluster {number}: {count(size, 'occurrence')}, {share:.0%}"]
        lines += [f"  {found['typical_words']}: {' '.join(words)}"] * bool(words)
        lines += [f"  {line}" for line in in_context(cluster["lines"], width, cosines=False)]
    if fit := found.get("labels"):
        head = ["label", *(f"cluster {k + 1}" for k in range(len(clusters)))]
        lines += [
            "",
            f"agreement with the labels: ARI {fit['ari']:.3f}, V-measure {fit['v_measure']:.3f} "
            f"(homogeneity {fit['homogeneity']:.3f}, completeness {fit['completeness']:.3f})",
            *table([head, *([label, *map(str, counts)] for label, counts in fit["table"].items())]),
        ]
    return lines


def _write(path: str, words: list[_WordClusters]) -> int:
    """Write each occurrence with its cluster, in the order of distance from the centre; return the
    number of occurrences that cannot be written."""
    n_left_out = 0
    with open(path, "w", encoding="utf-8") as file:
        for own in words:
            for number in (k for c in range(len(own.clusters)) for k in own.clusters.members(c)):
                line = own.occurrences.in_context(number, len(own.occurrences.sentence(number)))
                try:
                    analysis.parse_query(line)
                    file.write(f"{own.names[number]}\t{line}\n")
                except InputError:
                    n_left_out += 1
    return n_left_out


def _keep(path: str, words: list[_WordClusters]) -> None:
    kept = analysis.Occurrences.load(path)
    places = list(map(tuple, kept.positions.tolist()))
    clusters = dict(zip(places, kept.clusters or [""] * len(kept), strict=True))
    for own in words:
        clusters |= zip(map(tuple, own.occurrences.positions.tolist()), own.names, strict=True)
    replace(kept, clusters=[clusters[place] for place in places]).save(path)
