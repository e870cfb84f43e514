"""Group the uses of a word in a text by their vectors, and show what is typical of each group.

For each group: its size, its typical lines (the uses nearest to its centre), and its typical words:
those that the language model would rather put in place of these uses than of the others, if the
model has its softmax (`bilm dump` writes it; or name a training folder, --substitutes_from);
else those that occur near the uses of the group more often. Several forms of a word are joined with
+, as in bank+banks.

Groups come from k-means. Their number is the smallest from 2 to --max_groups whose mean silhouette
has nine tenths of the highest one, or 1 if none reaches 0.25; --groups sets it. A group holds uses
that are alike to the model: that may be a sense, a part of speech, or a capital letter. With
--labels it is measured how well the groups fit the labels: ARI (0 by chance, 1 if both are the
same) and V-measure.

  bilm senses bank spring --model elmo --text corpus.txt
  bilm senses bank+banks --model elmo --text corpus.txt --groups 3 --out bank.tsv
  bilm senses --model elmo --labels uses.tsv
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bilm.analysis.commands import columns, word_job
from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow, note
from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.analysis import Fit, Groups, Occurrences
    from bilm.use.predictor import Predictor

_TYPICAL_USES = 20  # whose substitutes are taken together
_JOIN = "+"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    word = {"word WORD": "word (with --labels by default each in the file)"}
    flags.add(parser, word, nargs="*")
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    group = parser.add_argument_group("groups")
    layer = "a number from 0, top or average (default: 1)"
    flags.add(group, {"--layer LAYER": layer}, type=word_job.layer_or("top", "average"), default=1)
    flags.add(
        group,
        {
            "--groups N": "number of groups (default: chosen)",
            "--max_groups N": "groups at most, where the number is chosen (default: 6)",
            "--labels FILE": "uses with labels, instead of --text: label, tab, sentence with one "
            "[word] a line",
        },
    )
    flags.add(
        parser.add_argument_group("output"),
        {
            "--lines N>=0": "typical lines of each group (default: 5)",
            "--n_words N>=0": "typical words of each group (default: 8)",
            "--substitutes_from FOLDER": "language model whose substitutes are the typical words "
            "(default: --model, if it has its softmax)",
            **word_job.FORMAT,
            "--out FILE": "write each use with its group there: word.group, tab, sentence with "
            "[word], which --labels reads",
            **flags.FORCE,
        },
    )
    parser.set_defaults(max_groups=6, lines=5, n_words=8, format="text")


def run(args: argparse.Namespace) -> int:
    from bilm.analysis.senses import require_scikit_learn

    if args.labels is not None and args.text is not None:
        flags.usage_error(args, "--labels has the sentences: --text does not go with it")
    if args.labels is None and not args.word:
        flags.usage_error(args, "name a word, or --labels")
    flags.require_free(args, args.out)
    require_scikit_learn()
    word_job.check_files(args)
    predictor = _predictor(args)
    occurrences = _occurrences(args)
    found = [
        _Found(args, name, own, predictor) for name, own in _by_word(args, occurrences).items()
    ]
    for number, word in enumerate(found):
        if args.format == "json":
            print(json.dumps(word.as_dict(), ensure_ascii=False))
        else:
            print("\n" * (number > 0) + "\n".join(word.as_lines(columns.terminal_width())))
    if args.out is not None:
        _write(args.out, found)
    return 0


def _forms(word: str) -> list[str]:
    """The forms that are joined: bank+banks; c++ and + are words."""
    forms = word.split(_JOIN)
    return forms if all(forms) else [word]


def _occurrences(args: argparse.Namespace) -> Occurrences:
    words = [form for word in args.word for form in _forms(word)]
    words = words if args.match_case else [word.lower() for word in words]
    if args.labels is None:
        return word_job.load_occurrences(args, words or None)
    from bilm.analysis import read_labelled_uses
    from bilm.progress import ProgressDisplay

    sample = read_labelled_uses(args.labels)
    tokens = [sample.sentences[number][position] for number, position in sample.positions]
    tokens = tokens if args.match_case else [token.lower() for token in tokens]
    missing = [word for word in words if word not in tokens]
    if missing:
        raise InputError(f"{args.labels}: there is no use of {', '.join(map(repr, missing))}.")
    if words:
        kept = [k for k, token in enumerate(tokens) if token in words]
        labels = [(sample.labels or [])[k] for k in kept]
        sample = replace(sample, positions=sample.positions[kept], labels=labels)
    elmo = word_job.load_elmo(args)
    with ProgressDisplay() as display:
        return word_job.encode(elmo, sample, display, args.occurrences)


def _by_word(args: argparse.Namespace, occurrences: Occurrences) -> dict[str, Occurrences]:
    """The occurrences of each word; without words, of each that there is."""
    import numpy as np

    tokens = [occurrences.word(k) for k in range(len(occurrences))]
    tokens = tokens if args.match_case else [token.lower() for token in tokens]
    names = args.word if args.match_case else [word.lower() for word in args.word]
    chosen = {name: _forms(name) for name in names} or {token: [token] for token in tokens}
    return {
        name: occurrences.select(np.array([token in forms for token in tokens], bool))
        for name, forms in chosen.items()
    }


def _predictor(args: argparse.Namespace) -> Predictor | None:
    """The language model that finds typical words, if there is one."""
    source = args.substitutes_from
    if not args.n_words or (source is None and args.model is None and args.weight_file is None):
        return None
    import_tensorflow()
    from bilm.use.predictor import Predictor

    try:
        return Predictor.from_pretrained(
            source or flags.model_source(args), precision=args.precision, warm_up=args.warm_up
        )
    except InputError as error:
        if source is not None:
            raise
        note(f"Typical words are those that occur nearby: {error}")
        return None


class _Found:
    """The groups of a word, for people and for programs."""

    def __init__(
        self,
        args: argparse.Namespace,
        word: str,
        occurrences: Occurrences,
        predictor: Predictor | None,
    ) -> None:
        from bilm.analysis import fit_to_labels, group_uses, typical_uses

        n_groups = args.groups
        if n_groups is not None and n_groups > len(occurrences):
            raise InputError(
                f"--groups: {word!r} has {columns.count(len(occurrences), 'use')}, too few for "
                f"{n_groups} groups."
            )
        self.word, self.occurrences, self.layer = word, occurrences, args.layer
        self.groups: Groups = group_uses(
            occurrences,
            layer=args.layer,
            n_groups=n_groups,
            max_groups=args.max_groups,
            seed=args.seed,
        )
        self.fit: Fit | None = None
        if occurrences.labels is not None:
            self.fit = fit_to_labels(self.groups, occurrences.labels)
        self.kind = "nearby" if predictor is None else "substitutes"
        typical = [
            typical_uses(occurrences, self.groups, group, max(args.lines, _TYPICAL_USES))
            for group in range(len(self.groups))
        ]
        self.lines = [uses[: args.lines] for uses in typical]
        self.words = self._words(predictor, typical, args.n_words)

    def _words(
        self, predictor: Predictor | None, typical: list[list[int]], n: int
    ) -> list[list[tuple[float, str]]]:
        from bilm.analysis import nearby_words, substitute_words

        if predictor is None:
            groups = range(len(self.groups))
            return [nearby_words(self.occurrences, self.groups, group, n) for group in groups]
        return substitute_words(
            predictor, self.occurrences, [uses[:_TYPICAL_USES] for uses in typical], n
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        groups = self.groups
        result = {
            "word": self.word,
            "uses": len(self.occurrences),
            "layer": self.layer,
            "silhouettes": {str(k): round(value, 4) for k, value in groups.silhouettes.items()},
            "typical_words": self.kind,
            "groups": [
                {
                    "size": size,
                    "share": round(size / len(self.occurrences), 4),
                    "words": [{"score": round(s, 4), "word": word} for s, word in self.words[k]],
                    "lines": [self._line_dict(use) for use in self.lines[k]],
                }
                for k, size in enumerate(groups.sizes)
            ],
        }
        if self.fit is not None:
            fit = self.fit._asdict()
            result["labels"] = {
                k: round(v, 4) if isinstance(v, float) else v for k, v in fit.items()
            }
        return result

    def _line_dict(self, use: int) -> dict[str, Any]:
        return {
            "cosine": round(float(self.groups.closeness[use]), 4),
            "sentence": list(self.occurrences.sentence(use)),
            "position": int(self.occurrences.positions[use, 1]),
        }

    def as_lines(self, width: int) -> list[str]:
        """For a terminal."""
        n, groups = len(self.occurrences), self.groups
        uses, number = columns.count(n, "use"), columns.count(len(groups), "group")
        lines = [f"{self.word}: {uses}, layer {self.layer}, {number}"]
        if groups.silhouettes:
            values = "  ".join(f"{k}: {value:.2f}" for k, value in groups.silhouettes.items())
            lines.append(f"silhouette by number of groups  {values}")
        for k, size in enumerate(groups.sizes):
            lines += ["", f"group {k + 1}: {columns.count(size, 'use')}, {size / n:.0%}"]
            if self.words[k]:
                lines.append(f"  {self.kind}: {' '.join(word for _, word in self.words[k])}")
            shown = [
                (self.occurrences.sentence(use), int(self.occurrences.positions[use, 1]))
                for use in self.lines[k]
            ]
            lines += [f"  {line}" for line in columns.in_context(shown, width - 2)]
        return lines + (self._fit_lines(self.fit) if self.fit is not None else [])

    def _fit_lines(self, fit: Fit) -> list[str]:
        head = ["label", *(f"group {k + 1}" for k in range(len(self.groups)))]
        rows = [[label, *map(str, counts)] for label, counts in fit.table.items()]
        return [
            "",
            f"fit to the labels: ARI {fit.ari:.3f}, V-measure {fit.v_measure:.3f} (homogeneity "
            f"{fit.homogeneity:.3f}, completeness {fit.completeness:.3f})",
            *columns.table([head, *rows]),
        ]


def _write(path: str, found: list[_Found]) -> None:
    """Each use with its group, the nearest to its centre first."""
    from bilm.analysis import parse_query
    from bilm.files.writing import atomic_write

    n_left_out = 0
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for word in found:
            for group in range(len(word.groups)):
                for use in word.groups.members(group):
                    tokens = list(word.occurrences.sentence(use))
                    position = int(word.occurrences.positions[use, 1])
                    tokens[position] = f"[{tokens[position]}]"
                    try:
                        parse_query(line := " ".join(tokens))
                    except InputError:
                        n_left_out += 1
                        continue
                    file.write(f"{word.word}.{group + 1}\t{line}\n")
    if n_left_out:
        note(
            f"{path}: {columns.count(n_left_out, 'use')} left out, whose sentence has other tokens "
            "in [brackets] as well."
        )
