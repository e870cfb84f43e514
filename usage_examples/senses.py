"""Word senses by the nearest labelled occurrences, by layer: table 5 of Peters et al. (2018).

  python usage_examples/senses.py --train train.txt --test test.txt --model english

Each test occurrence gets the sense of the most similar training occurrences of its word. A word
that does not occur in training counts as wrong; the paper assigns WordNet's first sense. A line of
a file, UTF-8 (plain or compressed), is a sense, a tab and a sentence with the word in [brackets];
or in a file called .jsonl, .jsonl.gz or .jsonl.xz, a sentence with senses of its tokens:

  {"tokens": ["the", "line", "coach"], "senses": [[2, "coach", "NOUN", "coach%1:18:01::"]]}

With these, occurrences are compared if they have the same lemma and part of speech; otherwise, if
they have the same form in lower case.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from common.experiment import MODEL_HELP
from common.reading import as_tokens, read_json_lines

from bilm import ELMo
from bilm.analysis import Occurrences, Sample, read_labelled_uses
from bilm.analysis.labelled import n_repeated
from bilm.analysis.occurrences import indices_by_name, require_one_kind, unit
from bilm.cli import flags
from bilm.core.errors import InputError, one_of, require
from bilm.progress import ProgressDisplay
from bilm.terminal import note, table

METHODS = ("use", "mean", "prior")
KAPPAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_FOLDS = 5
_EQUAL = 1e-5  # smaller differences of cosines are rounding errors


def main(argv: Sequence[str] | None = None) -> None:
    """Print the accuracy of each layer and of the baselines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    needed = {
        "--train FILE": "occurrences to learn from",
        "--test FILE": "occurrences to measure with",
        "--model MODEL ...": MODEL_HELP,
    }
    flags.add(parser, needed, required=True)
    flags.add(
        parser,
        {
            f"--method {'|'.join(METHODS)}": "use: the nearest occurrence; mean: the nearest mean "
            "of a sense, as in the paper; prior: log frequency of a sense + kappa * cosine with "
            "its mean, where kappa is chosen by cross-validation (default: use)",
            "--pos POS ...": "use only these parts of speech of a .jsonl file, such as VERB",
            "--format text|json": "format of the results",
        },
    )
    parser.set_defaults(method="use", format="text")
    args = parser.parse_args(argv)
    try:
        report(args)
    except (InputError, FileNotFoundError) as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")


def read(path: str, pos: Sequence[str] | None = None) -> tuple[Sample, list[str] | None]:
    """Read occurrences, with their senses as labels, and lemmas with parts of speech ("coach/NOUN")
    or None."""
    if not re.search(r"\.jsonl(\.gz|\.xz)?$", path):
        if pos is not None:
            raise InputError(f"{path}: must be .jsonl for --pos.")
        return read_labelled_uses(path), None
    sentences: list[tuple[str, ...]] = []
    positions, labels, words = [], [], []
    for where, line in read_json_lines(path, {"tokens": list, "senses": list}):
        tokens = as_tokens(line["tokens"], where)
        for sense in line["senses"]:
            if not isinstance(sense, list) or [type(x) for x in sense] != [int, str, str, str]:
                raise InputError(f"{where}: must be [index, lemma, pos, key], got {sense!r}.")
            index, lemma, kind, key = sense
            if not 0 <= index < len(tokens):
                raise InputError(f"{where}: index must be below {len(tokens)}, got {index}.")
            if pos is None or kind in pos:
                positions.append((len(sentences), index))
                labels.append(key)
                words.append(f"{lemma}/{kind}")
        sentences.append(tokens)
    if not labels:
        raise InputError(f"{path}: must have a sense{f' of {pos}' if pos else ''}.")
    return Sample(sentences, np.array(positions, np.int64), labels), words


def report(args: argparse.Namespace) -> None:
    """Compute the table and print it."""
    (train, lemmas), (test, test_lemmas) = (
        read(path, args.pos) for path in (args.train, args.test)
    )
    if (lemmas is None) != (test_lemmas is None):
        raise InputError(f"{args.test}: must be of the same form as {args.train}.")
    if n_seen := n_repeated(train, test):
        note(f"{args.test}: {n_seen:,} of {len(test):,} occurrences are in {args.train}, too: on "
             "these, memory is measured.")  # fmt: skip
    words = None if lemmas is None or test_lemmas is None else (lemmas, test_lemmas)
    elmo = ELMo.from_pretrained(args.model[0] if len(args.model) == 1 else args.model)
    with ProgressDisplay() as display:
        uses, asked = (
            Occurrences.encoded(elmo, sample, context=True, progress=display.show)
            for sample in (train, test)
        )
    rows = sense_table(uses, asked, args.method, words=words)
    if args.format == "json":
        settings = {key: value for key, value in vars(args).items() if key != "format"}
        print(json.dumps({"task": "senses", "settings": settings, "rows": [*map(asdict, rows)]}))
        return
    kinds = np.array([lemma.rpartition("/")[2] for lemma in test_lemmas or ()])
    names = sorted(set(kinds))
    is_weighed = args.method == "prior"
    cells = [["", "all", "several senses", "by sense", *names, *["kappa"] * is_weighed]]
    for row in rows:
        accuracies = [row.accuracy, row.several_accuracy, row.macro_accuracy]
        accuracies += [np.array(row.right)[kinds == name].mean() for name in names]
        texts = ["-" if x is None else f"{100 * x:.1f}" for x in accuracies]
        kappa = ["-" if row.kappa is None else f"{row.kappa:g}"] * is_weighed
        cells.append([row.representation, *texts, *kappa])
    print("\n".join([f"{len(asked):,} occurrences; accuracy, %", *table(cells)]))


@dataclass(frozen=True)
class SenseRow:
    """How well a representation ("first sense", "layer 0" ...) finds senses."""

    representation: str
    senses: list[str | None]  # of the test occurrences; None if the word is not in training
    right: list[bool]  # whether each of them is correct
    accuracy: float
    several_accuracy: float | None  # of words with several senses in training; None without any
    macro_accuracy: float  # mean over the senses of the test occurrences
    kappa: float | None = None  # of the method "prior"


def sense_table(
    train: Occurrences,
    test: Occurrences,
    method: str = "use",
    *,
    words: tuple[Sequence[str], Sequence[str]] | None = None,
) -> list[SenseRow]:
    """Table 5 of the paper: each layer next to baselines and combinations.

    A word without training occurrences gets no sense. The more frequent sense wins ties.

    Args:
        train, test: occurrences with their senses as labels.
        method: "use": the sense of the nearest training occurrence; "mean": the sense whose mean
            vector is nearest, as in the paper; "prior": the highest
            log(n_s + 1) + kappa cos(v, mean_s), for a sense s with n_s training occurrences. Of
            `KAPPAS`, the best in a cross-validation on the training occurrences is taken.
        words: the words of both lists, such as lemmas; None takes the tokens in lower case.

    Returns:
        rows for "first sense"; "layer 0", "layer 1", ...; "layers", all but layer 0 together; and
        "context", the states before and after the word, if the occurrences were encoded with them.

    Raises:
        InputError: labels are missing, the vectors differ in shape, or for "prior" no
            training occurrence can be left out, because no sense of a word with several senses
            has two.
    """
    require(one_of(METHODS), method=method)
    if not train.labels or not test.labels:
        raise InputError("word sense: the occurrences must have labels.")
    require_one_kind(train, test)
    n_layers = train.n_layers - train.has_context
    layers = [(train.layer(k), test.layer(k)) for k in range(train.n_layers)]
    # Vectors of training (n, dim) and test occurrences (m, dim); several pairs are concatenated.
    blocks = {f"layer {k}": [layers[k]] for k in range(n_layers)}
    if n_layers > 2:
        blocks["layers"] = layers[1:n_layers]
    if train.has_context:
        blocks["context"] = layers[-1:]
    task = _Uses(train.labels, test.labels, *(words or (train.words, test.words)))
    first = task.row("first sense", [layers[0]], "prior", 0.0)
    return [first, *(task.row(name, pairs, method) for name, pairs in blocks.items())]


class _Uses:
    """The training occurrences of each word, and the test occurrences to compare with them."""

    def __init__(
        self, labels: Sequence[str], gold: Sequence[str], train: Sequence[str], test: Sequence[str]
    ) -> None:
        self._labels, self._gold = np.array(labels, object), np.array(gold, object)
        self._train, self._test = indices_by_name(train), indices_by_name(test)
        n_senses = {word: len(set(self._labels[uses])) for word, uses in self._train.items()}
        self._several = np.array([n_senses.get(word, 0) > 1 for word in test], bool)

    def row(
        self,
        name: str,
        blocks: list[tuple[np.ndarray, np.ndarray]],
        method: str,
        kappa: float | None = None,
    ) -> SenseRow:
        """The sense of each test occurrence, and the scores."""
        train, test = _joined(blocks)
        if method == "prior" and kappa is None:
            kappa = self._best_kappa(train)
        senses = np.full(len(self._gold), None)
        for word, rows in self._test.items():
            if word in self._train:
                uses = self._train[word]
                names, ranks = _ranked(self._labels[uses])
                kappas = (kappa or 0.0,)
                senses[rows] = names[_best(train[uses], test[rows], ranks, method, kappas)[0]]
        right = (senses == self._gold).astype(bool)
        several = right[self._several]
        return SenseRow(
            name,
            senses.tolist(),
            right.tolist(),
            float(right.mean()),
            float(several.mean()) if len(several) else None,
            float(np.mean([right[rows].mean() for rows in indices_by_name(self._gold).values()])),
            None if name == "first sense" else kappa,
        )

    def _best_kappa(self, train: np.ndarray) -> float:
        """The value of kappa by cross-validation, with occurrences of each sense in each fold."""
        right, n_heldout = np.zeros(len(KAPPAS)), 0
        for uses in self._train.values():
            names, ranks = _ranked(self._labels[uses])
            folds = np.full(len(uses), -1)  # a single occurrence is never left out
            for rank, n in enumerate(np.bincount(ranks)):
                if n > 1:  # contiguous, so that documents are rarely divided
                    folds[ranks == rank] = np.arange(n) * _FOLDS // n
            for fold in range(_FOLDS if len(names) > 1 else 0):
                heldout, rest = uses[folds == fold], uses[folds != fold]
                if len(heldout):
                    rest_names, rest_ranks = _ranked(self._labels[rest])
                    best = _best(train[rest], train[heldout], rest_ranks, "prior", KAPPAS)
                    right += (rest_names[best] == self._labels[heldout]).sum(axis=1)
                    n_heldout += len(heldout)
        if not n_heldout:
            raise InputError(
                "method prior: a sense of a word with several senses must have two training "
                "occurrences, so that one can be left out to choose kappa; use method mean."
            )
        return KAPPAS[int(np.argmax(right))]


def _joined(blocks: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of training and test occurrences whose dot products are mean cosines over the blocks,
    after subtracting the mean of the training occurrences."""
    sides = []
    for pair in blocks:
        mean = pair[0].mean(axis=0)
        sides.append([unit(uses - mean) / len(blocks) ** 0.5 for uses in pair])
    train, test = (np.concatenate(side, axis=1) for side in zip(*sides, strict=True))
    return train, test


def _best(
    train: np.ndarray, test: np.ndarray, ranks: np.ndarray, method: str, kappas: Sequence[float]
) -> np.ndarray:
    """The rank of the best sense for each kappa and test occurrence (kappas, m) of one word.

    `ranks` has the rank of each training occurrence's sense; see `_ranked`.
    """
    counts = np.bincount(ranks)
    if method == "use":
        cosines = test @ train.T  # (m, n)
        nearest = [cosines[:, ranks == k].max(axis=1) for k in range(len(counts))]
        scores = np.stack(nearest, axis=1)[np.newaxis]
    else:
        means = unit(np.eye(len(counts))[ranks].T @ train)  # (senses, dim)
        scores = (unit(test) @ means.T)[np.newaxis]
    if method == "prior":
        scores = np.log(counts + 1) + np.reshape(kappas, (-1, 1, 1)) * scores
    # Ties go to the more frequent sense.
    return np.argmax(scores >= scores.max(axis=-1, keepdims=True) - _EQUAL, axis=-1)


def _ranked(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The senses by descending frequency, ties in order of occurrence, and each label's rank."""
    names = [sense for sense, _ in Counter(labels).most_common()]
    ranks = {sense: rank for rank, sense in enumerate(names)}
    return np.array(names, object), np.array([ranks[label] for label in labels], np.int64)


if __name__ == "__main__":
    main()
