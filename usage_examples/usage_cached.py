"""ELMo vectors of a data set, computed once and read back from a file.

Use it when a data set is read many times with a frozen language model: then only the mix of the
layers is computed. Without arguments it uses a tiny random model from the tests.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bilm import dump_bilm_embeddings, weight_layers

GOLDEN = Path(__file__).parent.parent / "tests" / "fixtures" / "golden"
MODEL = GOLDEN / "inference" / "base"

# One sentence per line, tokens separated by white space.
DATA_SET = """\
Pretrained biLMs compute representations useful for NLP tasks .
They give state of the art performance .
"""


def read_sentence(embedding_file: Path, number: int) -> np.ndarray:
    """All layers of one sentence: float32 (n_layers + 1, tokens, 2 * projection_dim).

    Args:
        number: 0-based line number of the sentence, which is its key in the file.
    """
    with h5py.File(embedding_file, "r") as file:
        return file[str(number)][...]


def embed(vocab_file: Path, options_file: Path, weight_file: Path, folder: Path) -> list[Any]:
    """ELMo vectors of the data set's sentences; files are written to `folder`.

    Returns:
        one float32 tensor (1, tokens, 2 * projection_dim) per sentence.
    """
    dataset_file, embedding_file = folder / "dataset.txt", folder / "embeddings.hdf5"
    dataset_file.write_text(DATA_SET, encoding="utf-8")
    dump_bilm_embeddings(vocab_file, dataset_file, options_file, weight_file, embedding_file)

    vectors, mix = [], None
    for number in range(len(DATA_SET.splitlines())):
        layers = read_sentence(embedding_file, number)[np.newaxis]
        every_token = np.ones((1, layers.shape[2]), bool)
        result = weight_layers("elmo", {"lm_embeddings": layers, "mask": every_token}, mix=mix)
        mix = result["mix"]
        vectors.append(result["weighted_op"])
    return vectors


def main(argv: Sequence[str] | None = None) -> None:
    """Print the shapes of the vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab_file", type=Path, default=GOLDEN / "vocab.txt")
    parser.add_argument("--options_file", type=Path, default=MODEL / "options.json")
    parser.add_argument("--weight_file", type=Path, default=MODEL / "weights.hdf5")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for vectors in embed(args.vocab_file, args.options_file, args.weight_file, Path(folder)):
            print(tuple(vectors.shape))


if __name__ == "__main__":
    main()
