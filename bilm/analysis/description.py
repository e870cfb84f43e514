"""Descriptions of models as JSON-able dicts."""

import contextlib
import dataclasses
import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bilm.core.errors import InputError
from bilm.core.network import build_network
from bilm.core.options import Options
from bilm.data.vocabulary import Vocabulary
from bilm.files import weights as names
from bilm.files.checkpoints import SLOTS, open_checkpoint, read_step
from bilm.files.model_files import ModelFiles
from bilm.files.run_log import read_log
from bilm.files.weights import load_network, open_weights, weight_table
from bilm.training.state import read_state

_RUN_OPTIONS = (
    "batch_size", "unroll_steps", "n_train_tokens", "n_epochs", "n_steps", "n_tokens_vocab",
    "reset_rate", "dropout", "optimizer", "learning_rate",
)  # fmt: skip


def describe(files: ModelFiles) -> dict[str, Any]:
    """Describe a pretrained model or a training run.

    Returns a JSON-able dict: "model", "kind" ("weights" or "training"), "input", "tokenizer",
    "lstm", "vectors", "parameters" (of the token encoder, the LSTMs, both together, and a softmax),
    "vocabulary" (file and words, or None); and for

    - weights, which are loaded to check that they fit the options: "predicts" (number of words of
      the softmax, or None), "weights" (file, bytes, and unused datasets), "trained" (see
      `WeightsFile.training`), "initial_states" ("zeros", or "own" if the file holds some);
    - a run: "training" (the newest checkpoint and its step, the options of the run, the perplexity
      of the last batch, the seed, the log's last line).
    """
    options = files.read_options()
    about = _about_run if files.is_checkpoint else _about_weights
    n_tokens, shapes, facts = about(files, options)
    vocabulary = None
    if files.vocabulary is not None:
        words = Vocabulary(files.vocabulary).size
        vocabulary = {"file": os.path.basename(files.vocabulary), "words": words}
    return {
        "model": files.source,
        "kind": "training" if files.is_checkpoint else "weights",
        **_sizes(options, n_tokens),
        "parameters": _parameters(shapes),
        "vocabulary": vocabulary,
        **facts,
    }


# The number of words, the shapes of the weights by name, and further facts.
_About = tuple[int | None, dict[str, tuple[int, ...]], dict[str, Any]]


def _about_weights(files: ModelFiles, options: Options) -> _About:
    with open_weights(files.weights) as weights:
        n_tokens = None if options.char_cnn else weights.n_embedded()
        network = build_network(options, n_tokens)
        load_network(network, weights)
        shapes, trained = weights.shapes, weights.training()
    used = {w.dataset: tuple(w.variable.shape) for w in weight_table(network) if w.dataset}
    softmax = (names.SOFTMAX_W, names.SOFTMAX_B)
    standard = {*used, *softmax, names.SOFTMAX_SCALES, names.VOCABULARY, names.WORD_COUNTS}
    standard |= {names.DICTIONARY_CHARACTERS, names.DICTIONARY_WORDS}
    used |= {name: shapes[name] for name in softmax if name in shapes}
    states = {name for name in shapes if name.startswith(names.STATES)}
    others = {name for name in shapes if names.standard_name(name) not in standard}
    can_predict = {names.SOFTMAX_B, names.VOCABULARY} <= set(shapes)
    facts = {
        # With the softmax and its words, the file can also score text.
        "predicts": shapes[names.SOFTMAX_B][0] if can_predict else None,
        "weights": {
            "file": os.path.basename(files.weights),
            "bytes": os.path.getsize(files.weights),
            "other_datasets": sorted(others - states),
        },
        "trained": trained,
        "initial_states": "own" if states else "zeros",
    }
    return n_tokens, used, facts


def _about_run(files: ModelFiles, options: Options) -> _About:
    checkpoint = os.fspath(files.weights)
    shapes = {
        name: tuple(shape)
        for name, shape in open_checkpoint(checkpoint).get_variable_to_shape_map().items()
        if name.startswith("lm/") and name.rpartition("/")[2] not in SLOTS
    }
    state = read_state(checkpoint)
    has_adam = options.optimizer != "adagrad"
    last_line = None
    with contextlib.suppress(FileNotFoundError, InputError):  # a missing or damaged log
        last_line = read_log(os.path.dirname(checkpoint))[-1]
    facts = {
        "checkpoint": os.path.basename(checkpoint),
        "step": read_step(checkpoint),
        "tokens": state and state.tokens,
        "passes": state and state.passes,
        "time_limit": state and state.time_limit,
        **{name: getattr(options, name) for name in _RUN_OPTIONS},
        "adam_learning_rate": options.adam_learning_rate if has_adam else None,
        "sampled_softmax": options.sample_softmax,
        "train_perplexity": state and state.perplexity,
        "seed": state and state.seed,
        "log": last_line,
    }
    return options.n_tokens_vocab, shapes, {"training": facts}


def _sizes(options: Options, n_tokens: int | None) -> dict[str, Any]:
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
        "vectors": {"layers": lstm.n_layers + 1, "dim": options.n_directions * lstm.projection_dim},
    }


def _parameters(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Parameters of the parts of a network, by the HDF5 or checkpoint names of its weights."""
    counts = Counter(token_encoder=0, lstms=0)
    for name, shape in shapes.items():
        part = "token_encoder"
        if "softmax/" in name:
            part = "softmax"
        elif name.removeprefix("lm/").startswith(names.LSTM_GROUPS):
            part = "lstms"
        counts[part] += math.prod(shape)
    # Without the softmax, which published files lack.
    return {**counts, "total": counts["token_encoder"] + counts["lstms"]}
