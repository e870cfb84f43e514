"""Descriptions of models as JSON-able dicts."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping
from typing import Any

from bilm.core.errors import InputError
from bilm.core.network import build_network
from bilm.core.options import Options
from bilm.data import Vocabulary
from bilm.files.checkpoints import open_checkpoint, read_step
from bilm.files.model_files import ModelFiles
from bilm.files.weights import (
    DICTIONARY_CHARACTERS,
    DICTIONARY_WORDS,
    SOFTMAX_B,
    SOFTMAX_W,
    STATES,
    VOCABULARY,
    open_weights,
)
from bilm.training.log import read_log
from bilm.training.state import read_run_state
from bilm.use.word_vectors import load_network

_OF_THE_RUN = (
    "batch_size", "unroll_steps", "n_train_tokens", "n_epochs", "n_steps", "n_tokens_vocab",
    "reset_rate", "dropout", "optimizer", "learning_rate",
)  # fmt: skip
_SOFTMAX = "softmax/"
_TEXTS = {VOCABULARY, DICTIONARY_CHARACTERS, DICTIONARY_WORDS}


def describe_model(files: ModelFiles) -> dict[str, Any]:
    """Describe a pretrained model. Its weights are loaded to check that they fit the options.

    Returns a JSON-able dict: "model", "kind" ("weights"), the keys of `describe_options`,
    "parameters" (of the token encoder, the LSTMs, both together, and a softmax), "predicts" (number
    of words of the softmax, or None), "weights" (file, bytes, and unused datasets), "trained" (see
    `WeightsFile.training`), "initial_states" ("zeros", or "own" if the file holds some), and
    "vocabulary" (file and words, or None).
    """
    options = files.read_options()
    with open_weights(files.weights) as weights:
        n_tokens = None if options.char_cnn else weights.n_embedded()
        network = build_network(options, n_tokens)
        load_network(network, weights)
        shapes, trained = weights.shapes, weights.training()
    table = network.weight_table()
    used = {name for weight in table for name in (weight.dataset, weight.odd_dataset)}
    softmax = {name: shape for name, shape in shapes.items() if name in (SOFTMAX_W, SOFTMAX_B)}
    others = sorted(
        name for name in set(shapes) - used - set(softmax) - _TEXTS if not name.startswith(STATES)
    )
    return {
        "model": files.source,
        "kind": "weights",
        **describe_options(options, n_tokens),
        "parameters": count_parameters(
            {weight.dataset or "": tuple(weight.variable.shape) for weight in table} | softmax
        ),
        # With the softmax and its words, the file can also score text.
        "predicts": softmax[SOFTMAX_B][0] if {SOFTMAX_B, VOCABULARY} <= set(shapes) else None,
        "weights": {
            "file": os.path.basename(files.weights),
            "bytes": os.path.getsize(files.weights),
            "other_datasets": others,
        },
        "trained": trained,
        "initial_states": "own" if any(n.startswith(STATES) for n in shapes) else "zeros",
        "vocabulary": describe_vocabulary(files.vocabulary),
    }


def describe_training(files: ModelFiles) -> dict[str, Any]:
    """Describe a training run by its options, newest checkpoint and log.

    Returns a JSON-able dict: "model", "kind" ("training"), the keys of `describe_options`,
    "parameters" and "vocabulary" as for a pretrained model, and "training" (the checkpoint and its
    step, the options of the run, the perplexity of the last batch, the seed, the log's last line).
    """
    options, checkpoint = files.read_options(), os.fspath(files.weights)
    shapes = open_checkpoint(checkpoint).get_variable_to_shape_map()
    weights = {
        name: tuple(shape)
        for name, shape in shapes.items()
        if name.startswith("lm/") and not re.search(r"/(Adagrad|Adam|Adam_1)$", name)
    }
    state = read_run_state(checkpoint)
    return {
        "model": files.source,
        "kind": "training",
        **describe_options(options, options.n_tokens_vocab),
        "parameters": count_parameters(weights),
        "vocabulary": describe_vocabulary(files.vocabulary),
        "training": {
            "checkpoint": os.path.basename(checkpoint),
            "step": read_step(checkpoint),
            "tokens": state and state.tokens,
            "passes": state and state.passes,
            **{name: getattr(options, name) for name in _OF_THE_RUN},
            "adam_learning_rate": (
                options.adam_learning_rate if options.optimizer != "adagrad" else None
            ),
            "sampled_softmax": options.sample_softmax,
            "train_perplexity": state and state.train_perplexity,
            "seed": state and state.settings.seed,
            "log": _last_line(os.path.dirname(checkpoint)),
        },
    }


def _last_line(folder: str) -> dict[str, Any] | None:
    """The last complete line of a run's log; None without a readable log."""
    try:
        return read_log(folder)[-1]
    except (FileNotFoundError, InputError):
        return None


def describe_vocabulary(path: Any) -> dict[str, Any] | None:
    """The file's name and its number of words; None without a file."""
    if path is None:
        return None
    return {"file": os.path.basename(path), "words": Vocabulary(path).size}


def describe_options(options: Options, n_tokens: int | None) -> dict[str, Any]:
    """The sizes of a model: input, token encoder, LSTMs and vectors. `n_tokens` is the number of
    words in a word-level model's table."""
    lstm, char_cnn = options.lstm, options.char_cnn
    if char_cnn is None:
        source: dict[str, Any] = {"kind": "words", "words": n_tokens}
    else:
        source = {
            "kind": "characters",
            "max_characters_per_token": char_cnn.max_characters_per_token,
            "character_dim": char_cnn.embedding_dim,
            "filters": [list(pair) for pair in char_cnn.filters],
            "activation": char_cnn.activation,
            "highway_layers": char_cnn.n_highway,
            "projection": char_cnn.n_filters != lstm.projection_dim,
            "dictionary": char_cnn.dictionary and dataclasses.asdict(char_cnn.dictionary),
        }
    return {
        "input": source,
        "tokenizer": options.tokenizer,
        "lstm": {
            "directions": options.n_directions,
            "layers": lstm.n_layers,
            "dim": lstm.dim,
            "projection_dim": lstm.projection_dim,
            "skip_connections": lstm.use_skip_connections,
            "cell_clip": lstm.cell_clip,
            "proj_clip": lstm.proj_clip,
        },
        "vectors": {
            "layers": lstm.n_layers + 1,
            "dim": options.n_directions * lstm.projection_dim,
        },
    }


def count_parameters(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Parameters of the parts of a network, from the HDF5 or checkpoint names of its weights.

    The total is without the softmax, which published files lack.
    """
    counts = {"token_encoder": 0, "lstms": 0}
    for name, shape in shapes.items():
        name = name.removeprefix("lm/")
        if name.startswith(_SOFTMAX):
            counts["softmax"] = counts.get("softmax", 0) + math.prod(shape)
        else:
            part = "lstms" if name.startswith(("RNN_", "rnn")) else "token_encoder"
            counts[part] += math.prod(shape)
    counts["total"] = counts["token_encoder"] + counts["lstms"]
    return counts
