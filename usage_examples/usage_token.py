"""ELMo vectors from word ids: the words of a vocabulary are encoded once, in advance.

Use it when the vocabulary of the text is known, to skip the character encoder. Words outside the
vocabulary become <UNK>. Without arguments it uses a tiny random model from the tests.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from usage_character import CONTEXT, MODEL, QUESTION

from bilm import BidirectionalLanguageModel, TokenBatcher, dump_token_embeddings, weight_layers


def write_vocabulary(vocab_file: Path) -> None:
    """Write the vocabulary of all the text: the special tokens, then every word."""
    words = {word for sentence in CONTEXT + QUESTION for word in sentence}
    lines = ["<S>", "</S>", "<UNK>", *sorted(words)]
    vocab_file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def embed(options_file: Path, weight_file: Path, folder: Path) -> dict[str, Any]:
    """ELMo vectors of context and question; files are written to `folder`.

    Returns:
        float32 tensors (batch, time, 2 * projection_dim): "context" and "question".
    """
    vocab_file, token_file = folder / "vocab.txt", folder / "token_embeddings.hdf5"
    write_vocabulary(vocab_file)
    dump_token_embeddings(vocab_file, options_file, weight_file, token_file)

    bilm = BidirectionalLanguageModel(
        options_file, weight_file, use_character_inputs=False, embedding_weight_file=token_file
    )
    batcher = TokenBatcher(vocab_file)
    context = weight_layers("input", bilm(batcher.batch_sentences(CONTEXT)))
    question = weight_layers("input", bilm(batcher.batch_sentences(QUESTION)), mix=context["mix"])
    return {"context": context["weighted_op"], "question": question["weighted_op"]}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the shapes of the vectors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options_file", type=Path, default=MODEL / "options.json")
    parser.add_argument("--weight_file", type=Path, default=MODEL / "weights.hdf5")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for name, vectors in embed(args.options_file, args.weight_file, Path(folder)).items():
            print(name, tuple(vectors.shape))


if __name__ == "__main__":
    main()
