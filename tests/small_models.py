"""Pretrained models with random weights, written to folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests import oracle


class SmallModel(NamedTuple):
    """A model in files, and its options and weights for the formulas."""

    options: dict[str, Any]
    weights: dict[str, Any]
    folder: Path

    @property
    def files(self) -> tuple[str, str]:
        """The paths (options, weights)."""
        return str(self.folder / "options.json"), str(self.folder / "weights.hdf5")

    @property
    def vocab_file(self) -> Path:
        """vocab.txt, if words were given."""
        return self.folder / "vocab.txt"


def write_small_model(folder, kind, words=None, *, seed=7, **changes) -> SmallModel:
    """Write a model of `oracle.MODELS`.

    Args:
        folder: folder to write to.
        kind: key of `oracle.MODELS`.
        words: words of vocab.txt; for a word-level model, w0, w1, ... fill it to n_tokens_vocab.
        seed: random seed of the weights.
        changes: options to change; those in "lstm" are merged.
    """
    lstm = {"lstm": oracle.MODELS[kind]["lstm"] | changes.pop("lstm", {})}
    options = oracle.MODELS[kind] | lstm | changes
    weights = oracle.random_weights(options, seed=seed)
    oracle.write_model(folder, options, weights)
    if words is not None:
        n_words = options.get("n_tokens_vocab", len(words))
        words = [*words, *(f"w{n}" for n in range(n_words - len(words)))]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return SmallModel(options, weights, folder)
