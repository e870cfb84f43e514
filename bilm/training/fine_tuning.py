"""Fine-tuning: start with the weights of a trained model.

Both models have the same network. Word rows (the softmax, and the table of a word-level model) are
copied by word, so the vocabularies may differ; rows of new words keep their initial values. The
optimizer starts from scratch.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bilm.core.errors import InputError, differences
from bilm.core.language_model import LanguageModel
from bilm.core.options import Options
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.files.checkpoints import names_beside, open_checkpoint, read_checkpoint
from bilm.files.model_files import ModelFiles, ModelSource, open_model
from bilm.files.reading import PathLike
from bilm.files.weights import (
    SOFTMAX_B,
    SOFTMAX_W,
    WORD_ROWS,
    Weight,
    WeightsFile,
    open_weights,
    weight_table,
    with_softmax_datasets,
)
from bilm.training.state import read_state


def require_same_network(options: Options, source: ModelFiles) -> None:
    """Require that options describe the network of a model."""
    ours, theirs = _network_of(options), _network_of(source.read_options())
    if not source.is_checkpoint:  # inference options lack it
        with open_weights(source.weights) as weights:
            has_softmax, is_shared = SOFTMAX_B in weights.shapes, shares_embedding(weights, options)
        name = "share_embedding_softmax"
        theirs[name] = is_shared if has_softmax else ours[name]
    if differing := differences(theirs, ours):
        raise InputError(
            f"The options must describe the network of {source.source}: {'; '.join(differing)}."
        )


def shares_embedding(weights: WeightsFile, options: Options) -> bool:
    """Whether the softmax in a weights file is tied to its word embeddings."""
    has_only_bias = SOFTMAX_B in weights.shapes and SOFTMAX_W not in weights.shapes
    return has_only_bias and options.char_cnn is None


def _network_of(options: Options) -> dict[str, Any]:
    values = asdict(options)
    names = ("bidirectional", "share_embedding_softmax", "lstm", "char_cnn")
    return {name: values[name] for name in names}


def load_pretrained(
    source: ModelSource,
    vocab_file: PathLike | None,
    model: LanguageModel,
    vocabulary: Vocabulary | None,
) -> tuple[int, int] | None:
    """Set the variables of a new model, with its `vocabulary`, from another model.

    `vocab_file` is the source's vocabulary; None: the file next to it, or the words in its weights.
    Returns the number of words whose rows were copied, and the size of the vocabulary; None if the
    source has no word rows.
    """
    with open_model(source) as files:
        require_same_network(model.options, files)
        table = weight_table(model)
        if files.is_checkpoint:
            stored_words, rows = None, _load_checkpoint(os.fspath(files.weights), table)
        else:
            stored_words, rows = _load_hdf5(files.weights, table)
        if not rows:
            return None
        if vocabulary is None:
            raise InputError(
                "init_from: the data must have a vocab, because word rows are copied by word."
            )
        theirs = vocabulary_of(vocab_file, stored_words, files.weights, files.vocabulary)
        if theirs is None:
            raise InputError(
                f"init_vocab: name the vocabulary that {files.weights} was trained with: word rows "
                "are copied by word."
            )
    words, ids = vocabulary.words, {word: k for k, word in enumerate(theirs.words)}
    our_rows = [k for k, word in enumerate(words) if word in ids]
    their_rows = [ids[words[k]] for k in our_rows]
    for weight in table:
        if weight.checkpoint in rows:
            value, ours = rows[weight.checkpoint], weight.variable.value.numpy().copy()
            if value.shape != (theirs.size, *ours.shape[1:]):
                raise InputError(
                    f"{files.weights}: {weight.checkpoint} has shape {value.shape}, but "
                    f"{theirs.source} has {theirs.size}: init_vocab names the right one."
                )
            ours[our_rows] = value[their_rows]
            weight.variable.assign(ours)
    return len(our_rows), vocabulary.size


def trained_amount(source: ModelSource) -> tuple[int | None, float | None]:
    """A model's amount of training in tokens, and in passes over its text; None: unknown."""
    with open_model(source) as files:
        if files.is_checkpoint:
            state = read_state(os.fspath(files.weights))
            return (None, None) if state is None else (state.tokens, state.passes)
        with open_weights(files.weights) as weights:
            trained = weights.training() or {}
        return trained.get("tokens"), trained.get("passes")


def _load_checkpoint(prefix: str, table: Sequence[Weight]) -> dict[str, np.ndarray]:
    """Load a checkpoint except its word rows; return them by name."""
    shapes = {weight.checkpoint: tuple(weight.variable.shape) for weight in table}
    stored = open_checkpoint(prefix).get_variable_to_shape_map()
    rows = shapes.keys() & stored.keys() & set(WORD_ROWS)
    shapes |= {name: tuple(stored[name]) for name in rows}
    values = read_checkpoint(prefix, shapes, names_beside(table))
    for weight in table:
        if weight.checkpoint not in WORD_ROWS:
            weight.variable.assign(values[weight.checkpoint])
    return {name: values[name] for name in rows}


def _load_hdf5(
    path: PathLike, table: Sequence[Weight]
) -> tuple[list[str] | None, dict[str, np.ndarray]]:
    """Load a weights file except its word rows; return its vocabulary, and the rows by name."""
    with open_weights(path) as weights:
        if SOFTMAX_B in weights.shapes:
            table = with_softmax_datasets(table)
        # Next to a character encoder, `embedding` is a token cache.
        weights.load([w for w in table if w.checkpoint not in WORD_ROWS], also=("embedding",))
        rows = {
            weight.checkpoint: weights.numbers(weight.dataset)
            for weight in table
            if weight.checkpoint in WORD_ROWS and weight.dataset is not None
        }
        return weights.words(), rows
