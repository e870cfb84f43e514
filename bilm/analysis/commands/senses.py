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
from typing import TYPE_CHECKING, Any

from bilm.analysis.commands import word_job
from bilm.analysis.layout import count, in_context, table, terminal_width
from bilm.cli import flags
from bilm.cli.terminal import note, show
from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.analysis import Fit, Occurrences
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
    from bilm.analysis.clusters import require_scikit_learn

    if args.labels is not None and args.text is not None:
        flags.usage_error(args, "--labels has the sentences: --text does not go with it")
    if args.labels is None and not args.word:
        flags.usage_error(args, "name a word, or --labels")
    flags.require_free(args, args.out)
    require_scikit_learn()
    word_job.check_files(args)
    predictor = word_job.load_predictor(args) if args.n_words else None
    occurrences = _occurrences(args)
    words = [WordClusters(args, word, own, predictor) for word, own in _by_word(args, occurrences)]
    for number, word in enumerate(words):
        if args.format == "json":
            print(json.dumps(word.as_dict(), ensure_ascii=False))
        else:
            show([""] * (number > 0) + word.as_lines(terminal_width()))
    several = len(words) > 1
    if args.out is not None:
        _write(args.out, words, several)
    if args.occurrences is not None:
        _keep(args.occurrences, words, several)
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


class WordClusters:
    """The clusters of a word with their typical lines and words.

    Attributes:
        words: for each cluster pairs of a score and a typical word.
        names: for each occurrence the name of its cluster.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        word: str,
        occurrences: Occurrences,
        predictor: Predictor | None,
    ) -> None:
        from bilm.analysis import clusters

        if args.clusters is not None and args.clusters > len(occurrences):
            raise InputError(
                f"--clusters must be at most {len(occurrences)}, the occurrences of {word!r}, got "
                f"{args.clusters}."
            )
        self.word, self.occurrences, self.layer = word, occurrences, args.layer
        self.clusters = clusters.cluster_occurrences(
            occurrences,
            layer=args.layer,
            n_clusters=args.clusters,
            max_clusters=args.max_clusters,
            seed=args.seed,
        )
        self.fit: Fit | None = None
        if occurrences.labels is not None:
            self.fit = clusters.fit_to_labels(self.clusters, occurrences.labels)
        numbers = range(len(self.clusters))
        most = max(args.lines, clusters.TYPICAL)
        typical = [
            clusters.typical_occurrences(occurrences, self.clusters, k, most) for k in numbers
        ]
        self.lines = [chosen[: args.lines] for chosen in typical]
        self.kind = "nearby" if predictor is None else "substitutes"
        if predictor is None:
            self.words = [
                clusters.nearby_words(occurrences, self.clusters, k, args.n_words) for k in numbers
            ]
        else:
            chosen = [own[: clusters.TYPICAL] for own in typical]
            self.words = clusters.substitute_words(predictor, occurrences, chosen, args.n_words)

    def names(self, prefixed: bool) -> list[str]:
        """The name of each occurrence's cluster, with the word as a prefix or without."""
        from bilm.analysis.clusters import cluster_names

        return cluster_names(self.clusters, self.words, self.word if prefixed else "")

    def as_dict(self) -> dict[str, Any]:
        """The clusters for JSON."""
        n, clusters = len(self.occurrences), self.clusters
        result = {
            "word": self.word,
            "occurrences": n,
            "layer": self.layer,
            "silhouettes": {str(k): round(value, 4) for k, value in clusters.silhouettes.items()},
            "typical_words": self.kind,
            "clusters": [
                {
                    "size": size,
                    "proportion": round(size / n, 4),
                    "words": [{"score": round(s, 4), "word": word} for s, word in self.words[k]],
                    "lines": [
                        {
                            "cosine": round(float(clusters.closeness[number]), 4),
                            "sentence": list(self.occurrences.sentence(number)),
                            "position": int(self.occurrences.positions[number, 1]),
                        }
                        for number in self.lines[k]
                    ],
                }
                for k, size in enumerate(clusters.sizes)
            ],
        }
        if self.fit is not None:
            fit = self.fit._asdict()
            result["labels"] = {
                k: round(v, 4) if isinstance(v, float) else v for k, v in fit.items()
            }
        return result

    def as_lines(self, width: int) -> list[str]:
        """The clusters for a terminal."""
        n, clusters = len(self.occurrences), self.clusters
        layer = f"layer {self.layer}" if isinstance(self.layer, int) else f"{self.layer} layer"
        found = count(len(clusters), "cluster")
        lines = [f"{self.word}: {count(n, 'occurrence')}, {layer}, {found}"]
        if clusters.silhouettes:
            values = "  ".join(f"{k}: {value:.2f}" for k, value in clusters.silhouettes.items())
            lines.append(f"silhouette by number of clusters  {values}")
        for k, size in enumerate(clusters.sizes):
            lines += ["", f"cluster {k + 1}: {count(size, 'occurrence')}, {size / n:.0%}"]
            if self.words[k]:
                lines.append(f"  {self.kind}: {' '.join(word for _, word in self.words[k])}")
            shown = [
                (self.occurrences.sentence(number), int(self.occurrences.positions[number, 1]))
                for number in self.lines[k]
            ]
            lines += [f"  {line}" for line in in_context(shown, width - 2)]
        return lines + (self._fit_lines(self.fit) if self.fit is not None else [])

    def _fit_lines(self, fit: Fit) -> list[str]:
        head = ["label", *(f"cluster {k + 1}" for k in range(len(self.clusters)))]
        rows = [[label, *map(str, counts)] for label, counts in fit.table.items()]
        return [
            "",
            f"agreement with the labels: ARI {fit.ari:.3f}, V-measure {fit.v_measure:.3f} "
            f"(homogeneity {fit.homogeneity:.3f}, completeness {fit.completeness:.3f})",
            *table([head, *rows]),
        ]


def _write(path: str, words: list[WordClusters], prefixed: bool) -> None:
    """Write each occurrence with its cluster, those nearest to the centre first."""
    from bilm.analysis import parse_query
    from bilm.files.writing import atomic_write

    n_left_out = 0
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for word in words:
            names = word.names(prefixed)
            for cluster in range(len(word.clusters)):
                for number in word.clusters.members(cluster):
                    tokens = list(word.occurrences.sentence(number))
                    position = int(word.occurrences.positions[number, 1])
                    tokens[position] = f"[{tokens[position]}]"
                    try:
                        parse_query(line := " ".join(tokens))
                    except InputError:
                        n_left_out += 1
                        continue
                    file.write(f"{names[number]}\t{line}\n")
    if n_left_out:
        left_out = count(n_left_out, "occurrence")
        note(f"{path}: {left_out} left out, whose sentences have other [tokens] in brackets.")


def _keep(path: str, words: list[WordClusters], prefixed: bool) -> None:
    """Add the clusters to a file of occurrences."""
    from bilm.analysis import Occurrences

    kept = Occurrences.load(path)
    found = {
        tuple(place): name
        for word in words
        for place, name in zip(
            word.occurrences.positions.tolist(), word.names(prefixed), strict=True
        )
    }
    earlier = kept.clusters or [""] * len(kept)
    places = map(tuple, kept.positions.tolist())
    clusters = [found.get(place, old) for place, old in zip(places, earlier, strict=True)]
    replace(kept, clusters=clusters).save(path)
