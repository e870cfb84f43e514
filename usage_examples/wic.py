"""Same meaning or not? Pairs of sentences in the form of WiC, by the cosine of the word's vectors.

  python usage_examples/wic.py dev.data.txt dev.gold.txt --model elmo \\
      --train train.data.txt train.gold.txt

A line of the data has a word, its part of speech, the 0-based positions of the word (2-5) in both
sentences, and the sentences, separated by tabs (Pilehvar and Camacho-Collados 2019). Answers are T
for the same meaning, or F. The threshold of a layer is the best one for the training pairs, or
without --train for the other half of the pairs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from common.experiment import MODEL_HELP
from scipy import stats
from sklearn.tree import DecisionTreeClassifier

from bilm import ELMo
from bilm.analysis import Occurrences, Sample
from bilm.analysis.occurrences import unit
from bilm.cli import flags
from bilm.core.errors import InputError
from bilm.files.reading import read_lines
from bilm.terminal import table


def main(argv: Sequence[str] | None = None) -> None:
    """Print the accuracy of each layer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add(parser, {"data DATA": "pairs", "gold GOLD": "answers"})
    flags.add(parser, {"--model MODEL": MODEL_HELP}, required=True)
    flags.add(parser, {"--train FILE": "pairs and answers of the thresholds"}, nargs=2)
    args = parser.parse_args(argv)
    try:
        (pairs, answers), train = read(args.data, args.gold), args.train and read(*args.train)
    except InputError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")
    elmo = ELMo.from_pretrained(args.model)
    by_layer = cosines(elmo, pairs)
    trained = cosines(elmo, train[0]) if train else by_layer
    rows = [["", "pairs", "accuracy", "Spearman"]]
    for layer, (values, theirs) in enumerate(zip(by_layer, trained, strict=True)):
        right = accuracy(values, answers, (theirs, train[1]) if train else None)
        # Layer 0 has the same cosine for all pairs of one form.
        rho = stats.spearmanr(values, answers).statistic if np.ptp(values) > 0 else np.nan
        rows.append([f"layer {layer}", str(len(answers)), f"{100 * right:.1f} %", f"{rho:.3f}"])
    print(*table(rows), sep="\n")


def read(path: str, gold: str) -> tuple[Sample, np.ndarray]:
    """Occurrences 2k and 2k + 1 are pair k; answers are bool (pairs,)."""
    sentences: list[tuple[str, ...]] = []
    positions: list[tuple[int, int]] = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            word, _, places, *texts = line.rstrip("\n").split("\t")
            for text, place in zip(texts, map(int, places.split("-")), strict=True):
                sentences.append(tuple(text.split()))
                positions.append((len(positions), place))
                # With 1-based positions, the next word would be compared.
                if sentences[-1][place][:1].lower() != word[:1].lower():
                    raise ValueError
        except (ValueError, IndexError):
            raise InputError(
                f"{path}, line {number}: must be a word, its part of speech, 0-based positions of "
                "its forms such as 2-5, and two sentences, separated by tabs."
            ) from None
    answers = np.array([line.strip() == "T" for line in read_lines(gold)])
    if 2 * len(answers) != len(sentences):
        raise InputError(f"{gold}: must have {len(sentences) // 2} answers, got {len(answers)}.")
    return Sample(sentences, np.array(positions, np.int64)), answers


def cosines(elmo: ELMo, pairs: Sample) -> list[np.ndarray]:
    """The cosines of the pairs in each layer."""
    occurrences = Occurrences.encoded(elmo, pairs)
    layers = (unit(occurrences.layer(k).astype(float)) for k in range(occurrences.n_layers))
    return [np.round((units[::2] * units[1::2]).sum(axis=1), 5) for units in layers]


def accuracy(
    values: np.ndarray, answers: np.ndarray, train: tuple[np.ndarray, np.ndarray] | None
) -> float:
    """The proportion of right answers of the best threshold on other pairs: a decision stump."""
    right = np.zeros(len(answers))
    halves = np.arange(len(answers)) % 2
    for half in (0, 1):
        known, labels = train or (values[halves != half], answers[halves != half])
        stump = DecisionTreeClassifier(max_depth=1).fit(known[:, np.newaxis], labels)
        here = halves == half
        right[here] = stump.predict(values[here, np.newaxis]) == answers[here]
    return float(right.mean())


if __name__ == "__main__":
    main()
