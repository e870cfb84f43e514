"""ELMo vectors from characters, for any word, with or without a vocabulary.

Use it when the text is not known in advance or the model is fine-tuned. Without arguments it uses a
tiny random model from the tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm import Batcher, BidirectionalLanguageModel, weight_layers

MODEL = Path(__file__).parent.parent / "tests" / "fixtures" / "golden" / "inference" / "base"

CONTEXT = [
    ["Pretrained", "biLMs", "compute", "representations", "useful", "for", "NLP", "tasks", "."],
    ["They", "give", "state", "of", "the", "art", "performance", "."],
]
QUESTION = [["What", "are", "biLMs", "useful", "for", "?"]]


def embed(options_file: Path, weight_file: Path) -> dict[str, Any]:
    """ELMo vectors of context and question, as for question answering.

    Returns:
        float32 tensors (batch, time, 2 * projection_dim): "context" and "question" for the input
        of a model, and "context_output" with other weights of the layers for its output.
    """
    bilm = BidirectionalLanguageModel(options_file, weight_file)
    # Without a vocabulary, the batcher encodes the characters of each word on the fly.
    batcher = Batcher(None, bilm.options.max_word_length or 50)
    context = bilm(batcher.batch_sentences(CONTEXT))
    question = bilm(batcher.batch_sentences(QUESTION))

    at_input = weight_layers("input", context, l2_coef=0.0)
    # Both texts share the weights of their mix.
    question_input = weight_layers("input", question, mix=at_input["mix"])
    at_output = weight_layers("output", context, l2_coef=0.0)
    return {
        "context": at_input["weighted_op"],
        "question": question_input["weighted_op"],
        "context_output": at_output["weighted_op"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print the shapes of the vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options_file", type=Path, default=MODEL / "options.json")
    parser.add_argument("--weight_file", type=Path, default=MODEL / "weights.hdf5")
    args = parser.parse_args(argv)
    for name, vectors in embed(args.options_file, args.weight_file).items():
        print(name, tuple(vectors.shape))


if __name__ == "__main__":
    main()
