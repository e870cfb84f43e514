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

from bilm.data import Vocabulary
from bilm.data.vocabulary import vocab_of_words
from bilm.errors import InputError
from bilm.files import PathLike, require_file
from bilm.options import Options
from bilm.training.checkpoint import (
    IGNORED,
    OPTIONS_FILE,
    accumulator_name,
    holds_model,
    load_options_latest_checkpoint,
)
from bilm.training.checkpoint_reader import read_checkpoint
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

VOCABULARY_FILE = "vocab.txt"
_WORD_ROWS = ("lm/embedding", "lm/softmax/W", "lm/softmax/b")


@dataclass(frozen=True)
class Source:
    """A model to begin with.

    Attributes:
        path: prefix of a checkpoint, or a weights file.
        is_checkpoint: which of them; a checkpoint has a softmax, weights may have one.
        options: its options; of a weights file only the network is known.
        options_file: where they are from.
        vocab_file: its vocabulary; None if none stands beside it, but in the weights perhaps.
    """

    path: str
    is_checkpoint: bool
    options: Options
    options_file: str
    vocab_file: str | None


def find_source(path: PathLike, vocab_file: PathLike | None = None) -> Source:
    """Find weights and options.

    Args:
        path: a folder of checkpoints (ours or the original's), a checkpoint's prefix, a folder
            with model.hdf5 and options.json, or an HDF5 file. The options of a file NAME.hdf5 are
            in NAME.options.json, in NAME with options in the place of weights, or in options.json.
        vocab_file: the vocabulary; None takes vocab.txt in the same folder, if it is there.

    Raises:
        FileNotFoundError: there is no model, or its options are not there.
        InputError: its options are not right.
    """
    path = os.fspath(path)
    is_checkpoint = os.path.isfile(f"{path}.index")
    if os.path.isdir(path) and (holds_model(path) or not _hdf5_in(path)):
        path, is_checkpoint = load_options_latest_checkpoint(path)[1], True
    elif not is_checkpoint:
        path = _hdf5_in(path) or require_file(path, "model to begin with")
    folder = os.path.dirname(path)
    options_file = os.path.join(folder, OPTIONS_FILE) if is_checkpoint else _options_beside(path)
    options = Options.from_file(options_file, training=is_checkpoint)
    if vocab_file is None and os.path.isfile(os.path.join(folder, VOCABULARY_FILE)):
        vocab_file = os.path.join(folder, VOCABULARY_FILE)
    return Source(
        path,
        is_checkpoint,
        options,
        options_file,
        None if vocab_file is None else os.fspath(vocab_file),
    )


def _hdf5_in(folder: str) -> str | None:
    path = os.path.join(folder, "model.hdf5")
    return path if os.path.isfile(path) else None


def _options_beside(path: str) -> str:
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0]
    names = (f"{stem}.options.json", f"{stem.replace('weights', 'options')}.json", OPTIONS_FILE)
    for candidate in (os.path.join(folder, name) for name in names):
        if os.path.isfile(candidate):
            return candidate
    raise FileNotFoundError(
        f"The options of {path!r} are not beside it: {' or '.join(dict.fromkeys(names))}."
    )


def require_same_network(options: Options, source: Source) -> None:
    """Check that options ask for the network of a source.

    Raises:
        InputError: names every option that differs, with both values.
    """
    names = ["bidirectional"]
    if source.is_checkpoint:
        names.append("share_embedding_softmax")
    ours, theirs = _flat(options, names), _flat(source.options, names)
    differing = [
        f"{name} is {ours.get(name)!r}, and {theirs.get(name)!r} there"
        for name in sorted(ours | theirs)
        if ours.get(name) != theirs.get(name)
    ]
    if differing:
        raise InputError(
            f"The network is not that of {source.options_file}: {'; '.join(differing)}."
        )


def _flat(options: Options, names: list[str]) -> dict[str, Any]:
    flat = {name: getattr(options, name) for name in names}
    for part in ("lstm", "char_cnn"):
        values = getattr(options, part)
        if values is None:
            flat[part] = None
            continue
        flat |= {f"{part}.{name}": value for name, value in asdict(values).items()}
    return flat


def load_source(
    path: PathLike,
    vocab_file: PathLike | None,
    model: LanguageModel,
    vocabulary: Vocabulary | None,
) -> tuple[int, int] | None:
    """Set the variables of a model from those of another one.

    Args:
        path, vocab_file: see `find_source`.
        model: just made.
        vocabulary: of the model; None if its data has none.

    Returns:
        how many words of the vocabulary were carried over, and how many there are; None if the
        source has no rows of words.

    Raises:
        FileNotFoundError, InputError: see `find_source`; or the network is another one; or a
            vocabulary is missing; or the weights do not fit their options.
    """
    source = find_source(path, vocab_file)
    require_same_network(model.options, source)
    table = model.weight_table()
    if not source.is_checkpoint and SOFTMAX_B in dataset_shapes(source.path):
        table = with_softmax_datasets(table)
    rows = [weight for weight in table if weight.checkpoint in _WORD_ROWS]
    if not source.is_checkpoint:
        rows = [weight for weight in rows if weight.dataset is not None]
    if not rows:
        load_hdf5(source.path, table, also=("embedding",))
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


def _matches(source: Source, vocabulary: Vocabulary | None) -> _Matches:
    if vocabulary is None:
        raise InputError("init_from: rows of words are carried over; the data has no vocabulary.")
    theirs = _vocabulary_of(source)
    ids = {theirs.id_to_word(k): k for k in range(theirs.size)}
    pairs = [
        (k, ids[word]) for k in range(vocabulary.size) if (word := vocabulary.id_to_word(k)) in ids
    ]
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return _Matches(array[:, 0], array[:, 1], vocabulary.size, theirs.size)


def _vocabulary_of(source: Source) -> Vocabulary:
    if source.vocab_file is not None:
        return Vocabulary(source.vocab_file)
    if not source.is_checkpoint and VOCABULARY in dataset_shapes(source.path):
        return vocab_of_words(load_vocabulary_words(source.path), source.path, None)
    raise InputError(
        f"init_vocab: name the vocabulary that {source.path} was trained with; its rows of words "
        "are carried over."
    )


def _load_checkpoint(
    source: Source, others: list[Weight], rows: list[Weight], words: _Matches
) -> None:
    stated = source.options.n_tokens_vocab
    if stated is not None and stated != words.n_theirs:
        raise InputError(
            f"{source.options_file} is for n_tokens_vocab = {stated} words, but "
            f"{source.vocab_file} has {words.n_theirs}: init_vocab names the right one."
        )
    shapes = {weight.checkpoint: tuple(weight.variable.shape) for weight in others}
    for weight in rows:
        shapes[weight.checkpoint] = (words.n_theirs, *weight.variable.shape[1:])
    ignored = [*IGNORED, *(accumulator_name(weight) for weight in (*others, *rows))]
    values = read_checkpoint(source.path, shapes, ignored)
    for weight in others:
        weight.variable.assign(values[weight.checkpoint])
    for weight in rows:
        _carry(weight, values[weight.checkpoint], words)


def _load_hdf5(source: Source, others: list[Weight], rows: list[Weight], words: _Matches) -> None:
    stored = dataset_shapes(source.path)
    names = [weight.dataset or "" for weight in rows]
    for weight, name in zip(rows, names, strict=True):
        expected = (words.n_theirs, *weight.variable.shape[1:])
        if stored.get(name) != expected:
            raise InputError(
                f"{source.path}: {name}: shape {expected} is expected for the {words.n_theirs} "
                f"words of {source.vocab_file or VOCABULARY}, not {stored.get(name)}."
            )
    load_hdf5(source.path, others, also=names)
    with open_hdf5(source.path) as file:
        values = [file[name][...].astype(np.float32) for name in names]
    for weight, of_weight in zip(rows, values, strict=True):
        _carry(weight, of_weight, words)


def _carry(weight: Weight, values: np.ndarray, words: _Matches) -> None:
    """Set the rows of the words that both have."""
    mine = weight.variable.value.numpy().copy()
    mine[words.ours] = values[words.theirs]
    weight.variable.assign(mine)
