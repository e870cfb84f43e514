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
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from bilm import ELMo, ScalarMix, read_fasta
from bilm.files.reading import require_file
from bilm.files.writing import Outputs

UNKNOWN = "."


class Protein(NamedTuple):
    """Residues and their labels, one character each."""

    key: str
    residues: str
    labels: str


def read_proteins(path: Path) -> list[Protein]:
    """Read proteins, three lines for each; a malformed line raises a ValueError."""
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


def encode(elmo: ELMo, proteins: Sequence[Protein]) -> np.ndarray:
    """All layers of the residues of all proteins: float32 (residues, n_layers, 1, dim)."""
    found = elmo.encode_iter((list(protein.residues) for protein in proteins), "all")
    return np.concatenate([as_rows(layers) for layers in found])


def as_rows(layers: np.ndarray) -> np.ndarray:
    """(n_layers, residues, dim) -> (residues, n_layers, 1, dim)"""
    return layers.swapaxes(0, 1)[:, :, np.newaxis]


def build_tagger(n_layers: int, dim: int, n_labels: int) -> keras.Model:
    """(batch, n_layers, 1, dim) -> probabilities (batch, 1, n_labels)."""
    layers = keras.Input((n_layers, 1, dim))
    mixed = ScalarMix(n_layers, l2_coef=0.001)(layers, keras.ops.ones_like(layers[:, 0, :, 0]) > 0)
    hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Dropout(0.2)(mixed))
    probabilities = keras.layers.Dense(n_labels, activation="softmax")(hidden)
    tagger = keras.Model(layers, probabilities)
    tagger.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy")
    return tagger


def predict(tagger: keras.Model, layers: np.ndarray, alphabet: str) -> str:
    """The likeliest label of each residue."""
    numbers = np.argmax(tagger.predict_on_batch(layers)[:, 0], axis=-1)
    return "".join(alphabet[number] for number in numbers)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
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
        inputs = {name: getattr(args, name) for name in ("train", "dev", "predict")}
        outputs = Outputs([args.out if args.predict else None], inputs=inputs, overwrite=True)
        if args.predict is not None:
            require_file(args.predict, "FASTA file")
    except (ValueError, OSError) as error:
        raise SystemExit(f"residues.py: error: {error}") from None
    keras.utils.set_random_seed(args.seed)
    labels = "".join(protein.labels for protein in training)
    counts = Counter(labels.replace(UNKNOWN, ""))
    alphabet = "".join(sorted(counts))
    elmo = ELMo.from_pretrained(args.model)
    tagger = build_tagger(elmo.n_layers, elmo.dim, len(alphabet))
    tagger.fit(
        encode(elmo, training),
        np.array([[max(alphabet.find(label), 0)] for label in labels]),
        sample_weight=np.array([float(label != UNKNOWN) for label in labels]),
        batch_size=args.batch_residues,
        epochs=args.epochs,
        verbose=2,
    )

    gold = "".join(protein.labels for protein in dev)
    found = predict(tagger, encode(elmo, dev), alphabet)
    known = [pair for pair in zip(gold, found, strict=True) if pair[0] != UNKNOWN]
    print(f"dev accuracy {sum(a == b for a, b in known) / max(len(known), 1):.4f}")
    ((most_frequent, _),) = counts.most_common(1)
    print(f"always {most_frequent}: {gold.count(most_frequent) / max(len(known), 1):.4f}")
    mix = next(layer for layer in tagger.layers if isinstance(layer, ScalarMix))
    weights = keras.ops.convert_to_numpy(keras.ops.softmax(mix.W))
    print("layer weights " + " ".join(f"{weight:.3f}" for weight in weights))
    if args.predict is not None:
        pairs = ((pair, pair[1]) for pair in read_fasta(args.predict))
        with (
            outputs.temporaries() as (temporary,),
            open(temporary, "w", encoding="utf-8") as file,
        ):
            for (key, residues), layers in elmo.encode_iter(pairs, "all", with_ids=True):
                labels = predict(tagger, as_rows(layers), alphabet) if residues else ""
                file.write(f">{key}\n{''.join(residues)}\n{labels}\n")
        print(args.out)


if __name__ == "__main__":
    main()
