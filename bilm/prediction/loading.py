"""A language model with its softmax and its words, from a training run or from weights."""

from __future__ import annotations

import dataclasses
import os

from bilm.data import Vocabulary, load_vocab, vocab_of_words
from bilm.errors import InputError
from bilm.files import VOCABULARY_FILE, PathLike
from bilm.model_files import ModelFiles, ModelSource, open_model
from bilm.training.checkpoint import load_variables
from bilm.training.language_model import LanguageModel
from bilm.weights import (
    SOFTMAX_B,
    SOFTMAX_W,
    VOCABULARY,
    dataset_shapes,
    load_hdf5,
    load_initial_states,
    load_vocabulary_words,
    with_softmax_datasets,
)


def load_language_model(
    source: ModelSource, vocab_file: PathLike | None = None, precision: str = "float32"
) -> tuple[LanguageModel, Vocabulary]:
    """Load a language model that predicts words.

    Args:
        source: see `bilm.model_files`: a folder of checkpoints or a checkpoint, ours or the
            original's; or weights that hold the softmax (`bilm dump --with_softmax`).
        vocab_file: overrides the vocabulary that is with the model.
        precision: "float32", or "bfloat16" for products in bfloat16.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not what it should be, they do not fit each other, or the weights
            hold no softmax or no vocabulary.
    """
    with open_model(source) as files:
        load = _from_checkpoint if files.is_checkpoint else _from_weights
        return load(files, vocab_file, precision)


def _from_checkpoint(
    files: ModelFiles, vocab_file: PathLike | None, precision: str
) -> tuple[LanguageModel, Vocabulary]:
    options = files.read_options()
    vocab_file = vocab_file or files.vocabulary
    if vocab_file is None:
        raise InputError(
            f"{files.source} has no {VOCABULARY_FILE}: vocab_file names the words of the model."
        )
    vocabulary = load_vocab(vocab_file, options.max_word_length)
    model = LanguageModel(options, is_training=False, seed=None, precision=precision)
    _require_size(vocabulary, model.softmax.n_tokens, vocab_file, files.source)
    load_variables(os.fspath(files.weights), model.weight_table())
    return model, vocabulary


def _from_weights(
    files: ModelFiles, vocab_file: PathLike | None, precision: str
) -> tuple[LanguageModel, Vocabulary]:
    shapes = dataset_shapes(files.weights)
    if SOFTMAX_B not in shapes:
        raise InputError(
            f"{files.source}: {os.path.basename(files.weights)} holds no softmax ({SOFTMAX_B}), so "
            "it predicts no words; published weights never do. Name the folder of the training, "
            "or weights that `bilm dump --with_softmax` wrote."
        )
    options = dataclasses.replace(
        files.read_options(),
        n_tokens_vocab=shapes[SOFTMAX_B][0] if shapes[SOFTMAX_B] else 0,
        share_embedding_softmax=SOFTMAX_W not in shapes,
    )
    vocab_file = vocab_file or (None if VOCABULARY in shapes else files.vocabulary)
    if vocab_file is not None:
        vocabulary = load_vocab(vocab_file, options.max_word_length)
    elif VOCABULARY in shapes:
        words = load_vocabulary_words(files.weights)
        vocabulary = vocab_of_words(words, files.weights, options.max_word_length)
    else:
        raise InputError(
            f"{files.source}: the weights hold no vocabulary ({VOCABULARY}): vocab_file names it."
        )
    model = LanguageModel(options, is_training=False, seed=None, precision=precision)
    _require_size(vocabulary, model.softmax.n_tokens, vocab_file or VOCABULARY, files.source)
    load_hdf5(files.weights, with_softmax_datasets(model.weight_table()))
    load_initial_states(files.weights, model.stacks)
    return model, vocabulary


def _require_size(
    vocabulary: Vocabulary, n_tokens: int, vocab_file: PathLike, source: PathLike
) -> None:
    if vocabulary.size != n_tokens:
        raise InputError(
            f"{os.fspath(vocab_file)}: {n_tokens} words are expected, as many as the softmax of "
            f"{os.fspath(source)} has, not {vocabulary.size}."
        )
