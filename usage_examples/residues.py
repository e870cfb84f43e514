"""A tagger of residues, such as secondary structure, over the layers of a protein language model.

  python residues.py --model seqvec --train train.3line --dev dev.3line \\
      --predict proteins.fasta --out predicted.3line

Files for training have three lines per protein: ">" and an id, the residues, and one label per
residue, any character. The label "." marks residues without a known label, which do not count.

    >1ABC
    MKVLAWGH
    .CHHHHEC

The language model is frozen, so each protein is encoded once. The weights of its layers (equation 1
of Peters et al. 2018) are trained with a small network that classifies one residue at a time.
Predictions are written in the same three-line form; proteins may have any length.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from bilm import ELMo, ScalarMix, read_fasta

UNKNOWN = "."


class Protein(NamedTuple):
    """Residues and their labels, one character each."""

    key: str
    residues: str
    labels: str


def read_proteins(path: Path) -> list[Protein]:
    """The proteins of a file with three lines per protein; a wrong line is a ValueError."""
    lines = path.read_text(encoding="utf-8").splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    proteins = []
    for number in range(0, len(lines), 3):
        header, *rest = (line.strip() for line in lines[number : number + 3])
        if not header.startswith(">") or not header[1:].split() or len(rest) < 2:
            raise ValueError(
                f"{path}, line {number + 1}: must be three lines: '>' and an id, residues, labels."
            )
        residues, labels = rest
        if len(residues) != len(labels):
            raise ValueError(
                f"{path}, line {number + 3}: must be one label per residue, got {len(labels)} "
                f"labels for {len(residues)} residues."
            )
        proteins.append(Protein(header[1:].split()[0], residues.upper(), labels))
    if not proteins:
        raise ValueError(f"{path}: must have at least one protein.")
    return proteins


class ProteinBatch(NamedTuple):
    """Concatenated residues of several proteins.

    Attributes:
        layers: float32 (1, n_layers, residues, dim).
        labels: int32 (1, residues).
        known: float32 (1, residues), 1 for residues with a known label.
    """

    layers: np.ndarray
    labels: np.ndarray
    known: np.ndarray


def encode(
    elmo: ELMo, proteins: Sequence[Protein], alphabet: str, most_residues: int
) -> list[ProteinBatch]:
    """Batches of at most `most_residues`, or of one longer protein."""
    batches: list[list[tuple[np.ndarray, str]]] = [[]]
    size = 0
    found = elmo.encode_iter(((p, list(p.residues)) for p in proteins), "all", with_ids=True)
    for protein, layers in found:
        if batches[-1] and size + len(protein.residues) > most_residues:
            batches.append([])
            size = 0
        batches[-1].append((layers, protein.labels))
        size += len(protein.residues)
    return [_joined(batch, alphabet) for batch in batches]


def _joined(batch: Sequence[tuple[np.ndarray, str]], alphabet: str) -> ProteinBatch:
    labels = "".join(labels for _, labels in batch)
    # Labels that do not occur in training count as errors.
    numbers = [alphabet.find(label) for label in labels]
    known = [float(label != UNKNOWN) for label in labels]
    layers = np.concatenate([layers for layers, _ in batch], axis=1)
    return ProteinBatch(
        layers[np.newaxis], np.array([numbers], np.int32), np.array([known], np.float32)
    )


def build_tagger(n_layers: int, dim: int, n_labels: int) -> keras.Model:
    """(batch, n_layers, residues, dim) -> probabilities (batch, residues, n_labels)."""
    layers = keras.Input((n_layers, None, dim))
    mask = keras.Input((None,), dtype="bool")
    mixed = ScalarMix(n_layers, l2_coef=0.001)(layers, mask)
    hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Dropout(0.2)(mixed))
    probabilities = keras.layers.Dense(n_labels, activation="softmax")(hidden)
    tagger = keras.Model([layers, mask], probabilities)
    tagger.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy")
    return tagger


def predict(tagger: keras.Model, layers: np.ndarray) -> np.ndarray:
    """The likeliest label of each residue: (1, residues)."""
    mask = np.ones((1, layers.shape[2]), bool)
    return np.argmax(tagger.predict_on_batch([layers, mask]), axis=-1)


def accuracy(tagger: keras.Model, batches: Sequence[ProteinBatch]) -> float:
    """Proportion of correct labels, over residues with a known label."""
    right = sum(float(((predict(tagger, b.layers) == b.labels) * b.known).sum()) for b in batches)
    return right / max(sum(float(batch.known.sum()) for batch in batches), 1)


def train(tagger: keras.Model, batches: Sequence[ProteinBatch], epochs: int, seed: int) -> None:
    """Train on each batch once per epoch, in random order."""
    draw = np.random.default_rng(seed)
    for epoch in range(1, epochs + 1):
        losses = []
        for number in draw.permutation(len(batches)):
            batch = batches[number]
            inputs = [batch.layers, np.ones(batch.labels.shape, bool)]
            labels = np.maximum(batch.labels, 0)
            losses.append(tagger.train_on_batch(inputs, labels, sample_weight=batch.known))
        print(f"epoch {epoch}  loss {np.mean(losses):.4f}")


def predictions(tagger: keras.Model, elmo: ELMo, fasta: Path, alphabet: str) -> Iterator[Protein]:
    """The proteins of a FASTA file with predicted labels."""
    pairs = ((pair, pair[1]) for pair in read_fasta(fasta))
    for (key, residues), layers in elmo.encode_iter(pairs, "all", with_ids=True):
        labels = predict(tagger, layers[np.newaxis])[0] if residues else []
        yield Protein(key, "".join(residues), "".join(alphabet[k] for k in labels))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="folder, ZIP file or name of the model")
    parser.add_argument("--train", type=Path, required=True, help="three-line file to train on")
    parser.add_argument("--dev", type=Path, required=True, help="three-line file to measure on")
    parser.add_argument("--predict", type=Path, help="FASTA file to label")
    parser.add_argument("--out", type=Path, default=Path("predicted.3line"))
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_residues", type=int, default=500, help="residues per batch")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train a tagger, print its accuracy and layer weights, and label a FASTA file."""
    args = parse_arguments(argv)
    try:
        training, dev = read_proteins(args.train), read_proteins(args.dev)
    except (ValueError, OSError) as error:
        raise SystemExit(f"residues.py: error: {error}") from None
    keras.utils.set_random_seed(args.seed)
    counts = Counter(label for protein in training for label in protein.labels)
    counts.pop(UNKNOWN, None)
    alphabet = "".join(sorted(counts))
    elmo = ELMo.from_pretrained(args.model)
    tagger = build_tagger(elmo.n_layers, elmo.dim, len(alphabet))
    train(tagger, encode(elmo, training, alphabet, args.batch_residues), args.epochs, args.seed)

    most_frequent = counts.most_common(1)[0][0]
    labels = "".join(protein.labels for protein in dev).replace(UNKNOWN, "")
    measured = accuracy(tagger, encode(elmo, dev, alphabet, args.batch_residues))
    print(f"dev accuracy {measured:.4f}")
    print(f"always {most_frequent}: {labels.count(most_frequent) / max(len(labels), 1):.4f}")
    mix = next(layer for layer in tagger.layers if isinstance(layer, ScalarMix))
    weights = keras.ops.convert_to_numpy(keras.ops.softmax(mix.W))
    print("layer weights " + " ".join(f"{weight:.3f}" for weight in weights))
    if args.predict is not None:
        with open(args.out, "w", encoding="utf-8") as file:
            for protein in predictions(tagger, elmo, args.predict, alphabet):
                file.write(f">{protein.key}\n{protein.residues}\n{protein.labels}\n")
        print(args.out)


if __name__ == "__main__":
    main()
