"""Cluster the occurrences of a word in a text, and show what is typical of each cluster.

For each cluster: its size, its typical lines (the occurrences nearest to its centre), and its
typical words. These are the words that the language model would put in its place more readily than
in the place of the other occurrences, if the model has its softmax (`bilm dump` keeps it; or
--substitutes_from a training folder); otherwise the words that occur more often near it. Join forms
of a word with +, as in bank+banks.

The clusters are found by k-means. Unless --clusters gives their number, it is the smallest one from
2 to --max_clusters whose mean silhouette is at least 0.9 times the highest, or 1 if none reaches
0.25. The occurrences in a cluster look alike to the model: they may share a sense, a part of speech
or a capital letter. With --labels, the agreement of clusters and labels is printed: ARI (0 by
chance, 1 if identical) and V-measure.

--occurrences keeps the clusters as well: `bilm project --occurrences` draws them.

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

from bilm.analysis.commands import word_job
from bilm.analysis.layout import in_context, terminal_width
from bilm.cli import flags
from bilm.cli.terminal import count, note, show, table
from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.analysis import Clusters, Occurrences
    from bilm.analysis.clusters import Words
    from bilm.use.predictor import Predictor

_JOIN = "+"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"word WORD": "word (default with --labels: every word there)"}, nargs="*")
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    group = parser.add_argument_group("clusters")
    layer = "layer number, top or average (default: 1)"
    flags.add(group, {"--layer LAYER": layer}, type=word_job.layer_or("top", "average"), default=1)
    number = flags.whole_number(1)
    group.add_argument(
        "--clusters", "--groups", metavar="N", type=number, help="number of clusters"
    )
    group.add_argument(
        "--max_clusters", "--max_groups", metavar="N", type=number, default=6,
        help="highest number to try without --clusters (default: 6)",
    )  # fmt: skip
    flags.add(group, {"--labels FILE": word_job.LABELS})
    flags.add(
        parser.add_argument_group("output"),
        {
            "--lines N>=0": "typical lines of each cluster (default: 5)",
            "--n_words N>=0": "typical words of each cluster (default: 8)",
            "--substitutes_from FOLDER": "language model that finds typical words (default: "
            "--model, if it has its softmax)",
            **word_job.FORMAT,
            "--out FILE": "file for all occurrences: name of the cluster, tab, sentence with the "
            "[word]; --labels reads it",
            **flags.FORCE,
        },
    )
    parser.set_defaults(lines=5, n_words=8, format="text")


def run(args: argparse.Namespace) -> int:
    from bilm.analysis.clusters import cluster_names, require_scikit_learn

    if args.labels is not None and args.text is not None:
        flags.usage_error(args, "--labels has the sentences: --text does not go with it")
    if args.labels is None and not args.word:
        flags.usage_error(args, "name a word, or --labels")
    flags.require_free(args, args.out)
    require_scikit_learn()
    word_job.check_files(args)
    predictor = word_job.load_predictor(args) if args.n_words else None
    occurrences = _occurrences(args)
    words = [_clustered(args, word, own, predictor) for word, own in _by_word(args, occurrences)]
    for number, word in enumerate(words):
        found = _described(args, word)
        if args.format == "json":
            print(json.dumps(found, ensure_ascii=False))
        else:
            show([""] * (number > 0) + _lines(found, terminal_width()))
    names = [
        cluster_names(own.clusters, own.words, own.word if len(words) > 1 else "") for own in words
    ]
    if args.out is not None:
        _write(args.out, words, names)
    if args.occurrences is not None:
        _keep(args.occurrences, words, names)
    return 0


def _forms(word: str) -> list[str]:
    """The forms joined by +; c++ and + are words."""
    forms = word.split(_JOIN)
    return forms if all(forms) else [word]


def _occurrences(args: argparse.Namespace) -> Occurrences:
    words = [form for word in args.word for form in _forms(word)]
    if args.labels is None:
        return word_job.load_occurrences(args, words or None)
    return word_job.labelled_occurrences(args, words)


def _by_word(
    args: argparse.Namespace, occurrences: Occurrences
) -> Iterator[tuple[str, Occurrences]]:
    """The occurrences of each word that is named, or of every word."""
    import numpy as np

    tokens = word_job.compared(args, map(occurrences.word, range(len(occurrences))))
    for name in dict.fromkeys(word_job.compared(args, args.word) or tokens):
        forms = _forms(name) if args.word else [name]
        yield name, occurrences.select(np.array([token in forms for token in tokens], bool))


class _WordClusters(NamedTuple):
    """The clusters of a word: for each its typical occurrences, and pairs of a score and a word."""

    word: str
    occurrences: Occurrences
    clusters: Clusters
    typical: list[list[int]]
    words: list[Words]
    kind: str


def _clustered(
    args: argparse.Namespace, word: str, occurrences: Occurrences, predictor: Predictor | None
) -> _WordClusters:
    from bilm.analysis import clusters

    if args.clusters is not None and args.clusters > len(occurrences):
        raise InputError(
            f"--clusters must be at most {len(occurrences)}, the occurrences of {word!r}, got "
            f"{args.clusters}."
        )
    found = clusters.cluster_occurrences(
        occurrences,
        layer=args.layer,
        n_clusters=args.clusters,
        max_clusters=args.max_clusters,
        seed=args.seed,
    )
    numbers, most = range(len(found)), max(args.lines, clusters.TYPICAL)
    typical = [clusters.typical_occurrences(occurrences, found, k, most) for k in numbers]
    if predictor is None:
        kind = "nearby"
        words = [clusters.nearby_words(occurrences, found, k, args.n_words) for k in numbers]
    else:
        kind = "substitutes"
        chosen = [own[: clusters.TYPICAL] for own in typical]
        words = clusters.substitute_words(predictor, occurrences, chosen, args.n_words)
    return _WordClusters(word, occurrences, found, typical, words, kind)


def _described(args: argparse.Namespace, own: _WordClusters) -> dict[str, Any]:
    """The clusters of a word, JSON-able."""
    from bilm.analysis import Context, fit_to_labels

    occurrences, n = own.occurrences, len(own.occurrences)

    def lines(cluster: int) -> list[dict[str, Any]]:
        return [
            Context(
                float(own.clusters.closeness[number]),
                occurrences.sentence(number),
                int(occurrences.positions[number, 1]),
            ).as_dict()
            for number in own.typical[cluster][: args.lines]
        ]

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
                "words": [{"score": round(s, 4), "word": word} for s, word in own.words[k]],
                "lines": lines(k),
            }
            for k, size in enumerate(own.clusters.sizes)
        ],
    }
    if occurrences.labels is not None:
        fit = fit_to_labels(own.clusters, occurrences.labels)._asdict()
        found["labels"] = {k: round(v, 4) if isinstance(v, float) else v for k, v in fit.items()}
    return found


def _lines(found: dict[str, Any], width: int) -> list[str]:
    """The clusters of a word for a terminal."""
    layer, clusters = found["layer"], found["clusters"]
    layer = f"layer {layer}" if isinstance(layer, int) else f"{layer} layer"
    n, many = count(found["occurrences"], "occurrence"), count(len(clusters), "cluster")
    lines = [f"{found['word']}: {n}, {layer}, {many}"]
    if found["silhouettes"]:
        values = "  ".join(f"{k}: {value:.2f}" for k, value in found["silhouettes"].items())
        lines.append(f"silhouette by number of clusters  {values}")
    for number, cluster in enumerate(clusters, start=1):
        size = count(cluster["size"], "occurrence")
        lines += ["", f"cluster {number}: {size}, {cluster['proportion']:.0%}"]
        if cluster["words"]:
            words = " ".join(found["word"] for found in cluster["words"])
            lines.append(f"  {found['typical_words']}: {words}")
        shown = [(line["sentence"], line["position"]) for line in cluster["lines"]]
        lines += [f"  {line}" for line in in_context(shown, width - 2)]
    if "labels" in found:
        fit = found["labels"]
        head = ["label", *(f"cluster {k + 1}" for k in range(len(clusters)))]
        rows = [[label, *map(str, counts)] for label, counts in fit["table"].items()]
        lines += [
            "",
            f"agreement with the labels: ARI {fit['ari']:.3f}, V-measure {fit['v_measure']:.3f} "
            f"(homogeneity {fit['homogeneity']:.3f}, completeness {fit['completeness']:.3f})",
            *table([head, *rows]),
        ]
    return lines


def _write(path: str, words: list[_WordClusters], names: list[list[str]]) -> None:
    """Write each occurrence with its cluster, those nearest to the centre first."""
    from bilm.analysis import parse_query
    from bilm.files.writing import atomic_write

    n_left_out = 0
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for own, own_names in zip(words, names, strict=True):
            for number in (k for c in range(len(own.clusters)) for k in own.clusters.members(c)):
                tokens = list(own.occurrences.sentence(number))
                position = int(own.occurrences.positions[number, 1])
                tokens[position] = f"[{tokens[position]}]"
                try:
                    parse_query(line := " ".join(tokens))
                except InputError:
                    n_left_out += 1
                    continue
                file.write(f"{own_names[number]}\t{line}\n")
    if n_left_out:
        left_out = count(n_left_out, "occurrence")
        note(f"{path}: {left_out} left out, whose sentences have other [tokens] in brackets.")


def _keep(path: str, words: list[_WordClusters], names: list[list[str]]) -> None:
    """Add the clusters to a file of occurrences."""
    from bilm.analysis import Occurrences

    kept = Occurrences.load(path)
    places = list(map(tuple, kept.positions.tolist()))
    clusters = dict(zip(places, kept.clusters or [""] * len(kept), strict=True))
    for own, own_names in zip(words, names, strict=True):
        own_places = map(tuple, own.occurrences.positions.tolist())
        clusters |= zip(own_places, own_names, strict=True)
    replace(kept, clusters=[clusters[place] for place in places]).save(path)
