"""Fine-tuning: begin with the weights of a model that was trained before.

The network follows the source. Rows of words (the softmax, and the table of a word-input model)
are carried over by word, so that the vocabulary may be another one; rows of words that the source
does not know keep their initial values, and the optimizer starts anew.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bilm.checkpoints import read_checkpoint
from bilm.data import Vocabulary
from bilm.data.vocabulary import vocab_of_words
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.model_files import ModelFiles, ModelSource, open_model
from bilm.options import Options
from bilm.training.checkpoint import IGNORED, accumulator_name
from bilm.training.language_model import LanguageModel
from bilm.weights import (
    SOFTMAX_B,
    VOCABULARY,
    Weight,
    dataset_shapes,
    load_hdf5,
    load_vocabulary_words,
    open_hdf5,
    with_softmax_datasets,
)

_WORD_ROWS = ("lm/embedding", "lm/softmax/W", "lm/softmax/b")


def require_same_network(options: Options, source: ModelFiles) -> None:
    """Check that options ask for the network of a model.

    Raises:
        InputError: names every option that differs, with both values; or the model's are not
            right.
    """
    names = ["bidirectional"]
    if source.is_checkpoint:
        names.append("share_embedding_softmax")
    ours, theirs = _flat(options, names), _flat(source.read_options(), names)
    differing = [
        f"{name} is {ours.get(name)!r}, and {theirs.get(name)!r} there"
        for name in sorted(ours | theirs)
        if ours.get(name) != theirs.get(name)
    ]
    if differing:
        raise InputError(f"The network is not that of {source.source}: {'; '.join(differing)}.")


def _flat(options: Options, names: list[str]) -> dict[str, Any]:
    flat = {name: getattr(options, name) for name in names}
    for part in ("lstm", "char_cnn"):
        values = getattr(options, part)
        if values is None:
            flat[part] = None
            continue
        flat |= {f"{part}.{name}": value for name, value in asdict(values).items()}
    return flat


def load_pretrained(
    source: ModelSource,
    vocab_file: PathLike | None,
    model: LanguageModel,
    vocabulary: Vocabulary | None,
) -> tuple[int, int] | None:
    """Set the variables of a model from those of another one.

    Args:
        source: see `bilm.model_files`; a checkpoint has a softmax, weights may have one.
        vocab_file: of the source; None takes the one beside it, or in its weights.
        model: just made.
        vocabulary: of the model; None if its data has none.

    Returns:
        how many words of the vocabulary were carried over, and how many there are; None if the
        source has no rows of words.

    Raises:
        FileNotFoundError, InputError: there is no such model; or the network is another one; or a
            vocabulary is missing; or the weights do not fit their options.
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
    if not source.is_checkpoint and SOFTMAX_B in dataset_shapes(source.weights):
        table = with_softmax_datasets(table)
    rows = [weight for weight in table if weight.checkpoint in _WORD_ROWS]
    if not source.is_checkpoint:
        rows = [weight for weight in rows if weight.dataset is not None]
    if not rows:
        load_hdf5(source.weights, table, also=("embedding",))
        return None
    words = _matches(source, vocabulary)
    others = [weight for weight in table if weight.checkpoint not in _WORD_ROWS]
    if source.is_checkpoint:
        _load_checkpoint(source, others, rows, words)
    else:
        _load_hdf5(source, others, rows, words)
    return len(words.ours), words.n_ours


@dataclass(frozen=True)
class _Matches:
    """Ids of the words that both vocabularies have, and the size of each vocabulary."""

    ours: np.ndarray
    theirs: np.ndarray
    n_ours: int
    n_theirs: int


def _matches(source: ModelFiles, vocabulary: Vocabulary | None) -> _Matches:
    if vocabulary is None:
        raise InputError("init_from: rows of words are carried over; the data has no vocabulary.")
    theirs = _vocabulary_of(source)
    ids = {theirs.id_to_word(k): k for k in range(theirs.size)}
    pairs = [
        (k, ids[word]) for k in range(vocabulary.size) if (word := vocabulary.id_to_word(k)) in ids
    ]
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return _Matches(array[:, 0], array[:, 1], vocabulary.size, theirs.size)


def _vocabulary_of(source: ModelFiles) -> Vocabulary:
    if source.vocabulary is not None:
        return Vocabulary(source.vocabulary)
    if not source.is_checkpoint and VOCABULARY in dataset_shapes(source.weights):
        return vocab_of_words(load_vocabulary_words(source.weights), source.weights, None)
    raise InputError(
        f"init_vocab: name the vocabulary that {source.weights} was trained with; its rows of "
        "words are carried over."
    )


def _load_checkpoint(
    source: ModelFiles, others: list[Weight], rows: list[Weight], words: _Matches
) -> None:
    stated = source.read_options().n_tokens_vocab
    if stated is not None and stated != words.n_theirs:
        raise InputError(
            f"{source.options} is for n_tokens_vocab = {stated} words, but "
            f"{source.vocabulary} has {words.n_theirs}: init_vocab names the right one."
        )
    shapes = {weight.checkpoint: tuple(weight.variable.shape) for weight in others}
    for weight in rows:
        shapes[weight.checkpoint] = (words.n_theirs, *weight.variable.shape[1:])
    ignored = [*IGNORED, *(accumulator_name(weight) for weight in (*others, *rows))]
    values = read_checkpoint(os.fspath(source.weights), shapes, ignored)
    for weight in others:
        weight.variable.assign(values[weight.checkpoint])
    for weight in rows:
        _carry(weight, values[weight.checkpoint], words)


def _load_hdf5(
    source: ModelFiles, others: list[Weight], rows: list[Weight], words: _Matches
) -> None:
    stored = dataset_shapes(source.weights)
    names = [weight.dataset or "" for weight in rows]
    for weight, name in zip(rows, names, strict=True):
        expected = (words.n_theirs, *weight.variable.shape[1:])
        if stored.get(name) != expected:
            raise InputError(
                f"{source.weights}: {name}: shape {expected} is expected for the {words.n_theirs} "
                f"words of {source.vocabulary or VOCABULARY}, not {stored.get(name)}."
            )
    load_hdf5(source.weights, others, also=names)
    with open_hdf5(source.weights) as file:
        values = [file[name][...].astype(np.float32) for name in names]
    for weight, of_weight in zip(rows, values, strict=True):
        _carry(weight, of_weight, words)


def _carry(weight: Weight, values: np.ndarray, words: _Matches) -> None:
    """Set the rows of the words that both have."""
    mine = weight.variable.value.numpy().copy()
    mine[words.ours] = values[words.theirs]
    weight.variable.assign(mine)
