"""A small corpus in shards, and models that train on it quickly."""

from __future__ import annotations

import random
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

import bilm
from tests import oracle

WORDS = "the of and a to in is cat dog house tree runs sees Größe 苹果".split()
UNKNOWN = ["unheard-of", "nirgends", "x" * 70]
VOCABULARY = ["<S>", "</S>", "<UNK>", *WORDS]
N_TOKENS = len(VOCABULARY)
ROWS, STEPS = 3, 4


@dataclass
class Corpus:
    """Three training shards, a held-out text, and their vocabulary, in a folder."""

    folder: object
    sentences: list[list[str]]  # training sentences, in order
    heldout: list[list[str]]

    def data(self, options, part="train-*.txt", **settings):
        """A data set with the input and directions of the options."""
        width = options.get("char_cnn", {}).get("max_characters_per_token", 50)
        vocab = bilm.load_vocab(
            str(self.folder / "vocab.txt"), width if "char_cnn" in options else None
        )
        both = options.get("bidirectional", False)
        kind = bilm.BidirectionalLMDataset if both else bilm.LMDataset
        return kind(str(self.folder / part), vocab, **settings)


def write_corpus(folder, seed=3):
    draw = random.Random(seed)
    sentences = [
        draw.choices([*WORDS, *UNKNOWN], k=draw.choice([1, 2, 3, 5, 9, 14])) for _ in range(40)
    ]
    training, heldout = sentences[:30], sentences[30:]
    for name, part in (
        ("train-0.txt", training[:8]),
        ("train-1.txt", training[8:20]),
        ("train-2.txt", training[20:]),
        ("heldout.txt", heldout),
    ):
        text = "\n\n".join(" ".join(sentence) for sentence in part)  # empty lines are skipped
        (folder / name).write_text(text + "\n", encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return Corpus(folder, training, heldout)


def small_options(kind="one_direction_one_layer_words", **changes):
    """Training options of a kind of model; by default the one that is traced fastest."""
    options = {"bidirectional": True} | oracle.MODELS[kind]
    return options | {
        "n_tokens_vocab": N_TOKENS,
        "n_train_tokens": 2 * ROWS * STEPS,
        "n_epochs": 2,
        "batch_size": ROWS,
        "unroll_steps": STEPS,
        "dropout": 0.0,
        "sample_softmax": False,
        "n_negative_samples_batch": 8,
        **changes,
    }


class Batches:
    """Data with the original's interface: only `iter_batches`."""

    def __init__(self, batches):
        self.batches = batches
        self.asked = []

    def iter_batches(self, batch_size, num_steps):
        self.asked.append((batch_size, num_steps))
        yield from self.batches


def train(options, data, folder, *arguments, **settings):
    """Train with checkpoints in folder/model and the log in folder/log."""
    places = (str(folder / "model"), str(folder / "log"))
    return bilm.train(options, data, 1, *places, *arguments, **settings)


class Events(list):
    """A `progress` that keeps the numbers of every step."""

    def __call__(self, record):
        names = ("step", "total_steps", "epoch", "n_tokens", "seconds")
        heldout = dict(record.heldout).get(record.step)
        perplexity = record.perplexity
        facts = {name: getattr(record, name) for name in names}
        self.append(SimpleNamespace(**facts, perplexity=perplexity, heldout=heldout))


def random_batch(seed=0, shape=(ROWS, STEPS), **changes):
    random = np.random.default_rng(seed)
    names = ("token_ids", "next_token_id")
    return {name: random.integers(0, N_TOKENS, shape) for name in names} | changes
