"""Fine-tuning: start with the weights of a trained model.

The network is the source's. Word rows (the softmax, and the table of a word-input model) are
carried over by word, so the vocabulary may differ; rows of words that the source does not have
keep their initial values, and the optimizer starts afresh.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bilm.core.errors import InputError, differences
from bilm.core.language_model import LanguageModel
from bilm.core.options import Options
from bilm.core.weight_names import WORD_ROWS, Weight, with_softmax_datasets
from bilm.data import Vocabulary
from bilm.data.vocabulary import vocabulary_of
from bilm.files.checkpoints import names_beside, read_checkpoint
from bilm.files.hdf5 import dataset_shapes, open_hdf5, read_numbers
from bilm.files.model_files import ModelFiles, ModelSource, open_model
from bilm.files.reading import PathLike
from bilm.files.weights import SOFTMAX_B, VOCABULARY, load_hdf5, open_weights


def require_same_network(options: Options, source: ModelFiles) -> None:
    """Require that options describe the network of a model."""
    ours, theirs = _network_of(options), _network_of(source.read_options())
    if not source.is_checkpoint:
        theirs["share_embedding_softmax"] = ours["share_embedding_softmax"]
    if differing := differences(theirs, ours):
        raise InputError(
            f"The options must describe the network of {source.source}: {'; '.join(differing)}."
        )


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
    """Set the variables of a new model from another model.

    Args:
        source: see `bilm.files.model_files`; a checkpoint has a softmax, weights may have one.
        vocab_file: the source's vocabulary; None takes the one next to it, or in its weights.
        model: the new model.
        vocabulary: the new model's vocabulary; None if its data has none.

    Returns:
        How many words of the vocabulary were carried over, and how many there are; None if the
        source has no word rows.
    """
    with open_model(source) as files:
        if vocab_file is not None:
            files = files._replace(vocabulary=vocab_file)
        return _load(files, model, vocabulary)


def _load(
    source: ModelFiles, model: LanguageModel, vocabulary: Vocabulary | None
) -> tuple[int, int] | None:
    require_same_network(model.options, source)
    table = model.weight_table()
    stored = {} if source.is_checkpoint else dataset_shapes(source.weights)
    if SOFTMAX_B in stored:
        table = with_softmax_datasets(table)
    others = [weight for weight in table if weight.checkpoint not in WORD_ROWS]
    rows = [weight for weight in table if weight.checkpoint in WORD_ROWS]
    if not source.is_checkpoint:
        rows = [weight for weight in rows if weight.dataset is not None]
    if not rows:
        load_hdf5(source.weights, table, also=("embedding",))
        return None
    if vocabulary is None:
        raise InputError(
            "init_from: the data needs a vocab, because word rows are carried over by word."
        )
    theirs = _vocabulary_of(source, VOCABULARY in stored)
    read = _read_checkpoint if source.is_checkpoint else _read_hdf5
    values = read(source, others, rows, theirs.size)
    ids = {theirs.id_to_word(k): k for k in range(theirs.size)}
    words = vocabulary.words
    here = [k for k, word in enumerate(words) if word in ids]
    there = [ids[words[k]] for k in here]
    for weight, of_weight in zip(rows, values, strict=True):
        mine = weight.variable.value.numpy().copy()
        mine[here] = of_weight[there]
        weight.variable.assign(mine)
    return len(here), vocabulary.size


def _vocabulary_of(source: ModelFiles, is_stored: bool) -> Vocabulary:
    stored = None
    if is_stored:
        with open_weights(source.weights) as weights:
            stored = weights.words()
    found = vocabulary_of(source.vocabulary, stored, source.weights, None)
    if found is not None:
        return found
    raise InputError(
        f"init_vocab: name the vocabulary that {source.weights} was trained with; its rows of "
        "words are carried over."
    )


def _read_checkpoint(
    source: ModelFiles, others: Sequence[Weight], rows: Sequence[Weight], n_words: int
) -> list[np.ndarray]:
    """Set the other weights from a checkpoint, and return its rows of `n_words` words."""
    stated = source.read_options().n_tokens_vocab
    if stated is not None and stated != n_words:
        raise InputError(
            f"{source.options} is for n_tokens_vocab = {stated} words, but "
            f"{source.vocabulary} has {n_words}: init_vocab names the right one."
        )
    shapes = {weight.checkpoint: tuple(weight.variable.shape) for weight in others}
    shapes |= {weight.checkpoint: _shape(weight, n_words) for weight in rows}
    values = read_checkpoint(os.fspath(source.weights), shapes, names_beside([*others, *rows]))
    for weight in others:
        weight.variable.assign(values[weight.checkpoint])
    return [values[weight.checkpoint] for weight in rows]


def _read_hdf5(
    source: ModelFiles, others: Sequence[Weight], rows: Sequence[Weight], n_words: int
) -> list[np.ndarray]:
    """Set the other weights from a weights file, and return its rows of `n_words` words."""
    stored = dataset_shapes(source.weights)
    names = [weight.dataset or "" for weight in rows]
    for weight, name in zip(rows, names, strict=True):
        expected = _shape(weight, n_words)
        if stored.get(name) != expected:
            raise InputError(
                f"{source.weights}: {name} must have shape {expected} for the {n_words} words of "
                f"{source.vocabulary or VOCABULARY}, got {stored.get(name)}."
            )
    load_hdf5(source.weights, others, also=names)
    with open_hdf5(source.weights) as file:
        return [read_numbers(file, name) for name in names]


def _shape(weight: Weight, n_words: int) -> tuple[int, ...]:
    return (n_words, *weight.variable.shape[1:])
