"""Models of ELMoForManyLangs (Che et al. 2018, "Towards better UD parsing") as models of bilm.

Known from that program's source (version 0.0.4 on PyPI) and checked against what it computes:

- `config.json` is the training's arguments; its `config_path` names a second file with the sizes,
  which is beside it, or one of two that come with the program, which are alike.
- `char.dic` and `word.dic`: a token, a tab and its id a line. A line without a token (white space
  that stripping took) is that of U+3000. Special tokens: <bos>, <eos>, <oov>, <pad>, and for
  characters <bow> and <eow>.
- A word is cut to max_characters_per_token - 2 characters (not bytes). Its characters stand
  between the marks, and the program takes <eow> for the first mark and <bow> for the last one.
- `token_embedder.pkl`: the vectors of characters and words; convolutions, maximum, activation,
  highway layers over the characters; and a projection of [word; characters]. The highway gate
  lets the input through, ours what is new: the sign of its weights is turned. The projection is
  a sum of two, of the word's vector and of the characters'.
- `encoder.pkl`: for each direction and layer input_linearity, state_linearity and
  state_projection. The gates' order is i, f, j, o, ours i, j, f, o; the forget gate's 1.0 is in
  its bias, ours is added when the network runs. Skip connections from the second layer on.

The program carries the LSTM states from batch to batch; bilm computes each sentence alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.conversion.many_langs_files import (
    CHARACTERS,
    ENCODER,
    TOKEN_EMBEDDER,
    WORDS,
    opened_folder,
)
from bilm.conversion.many_langs_options import options_of, read_config
from bilm.conversion.torch_file import read_tensors
from bilm.data.encoding import (
    BEGIN,
    END,
    PADDING,
    UNKNOWN,
    WORD_BEGIN,
    WORD_END,
    as_bytes,
)
from bilm.errors import InputError
from bilm.files import PathLike, require_file, write_json
from bilm.options import Options
from bilm.weights import DICTIONARY_CHARACTERS, DICTIONARY_WORDS, save_hdf5


class Dictionary(NamedTuple):
    """Tokens by their rows; "" for a row that has no token."""

    rows: list[str]
    path: str

    def row(self, token: str) -> int:
        """The row of a special token.

        Raises:
            InputError: it is not there.
        """
        if token not in self.rows:
            raise InputError(f"{self.path}: {token} is missing.")
        return self.rows.index(token)


def convert_many_langs(source: PathLike, weight_file: PathLike, options_file: PathLike) -> None:
    """Write a model of ELMoForManyLangs as weights and options of bilm.

    `ELMo.from_pretrained((options_file, weight_file))` computes what that program computes for
    the sentences of its first batch. The weights hold two dictionaries, of characters and of
    words, in place of the 261 bytes, so other programs that read published weights cannot use
    them, and say so: they find no `char_embed`.

    Args:
        source: a folder or a ZIP file with config.json, char.dic, word.dic, encoder.pkl,
            token_embedder.pkl, and the file that config.json names, if it is not one of the
            program's own.
        weight_file: the HDF5 file to write.
        options_file: the JSON file to write.

    Raises:
        FileNotFoundError: a file is not there.
        InputError: a file is not what it should be, they do not fit each other, or the model is
            of a kind that bilm does not have.
    """
    with opened_folder(source) as folder:
        _convert(folder, weight_file, options_file)


def _convert(folder: str, weight_file: PathLike, options_file: PathLike) -> None:
    config, config_file = read_config(folder)
    embedder = read_tensors(os.path.join(folder, TOKEN_EMBEDDER))
    characters = _read_dictionary(folder, CHARACTERS, embedder, "char_emb_layer.embedding.weight")
    words = None
    if config["token_embedder"].get("word_dim"):
        words = _read_dictionary(folder, WORDS, embedder, "word_emb_layer.embedding.weight")
    options = options_of(config, len(characters.rows), len(words.rows) if words else 0, config_file)
    weights = _token_weights(
        _Tensors(embedder, os.path.join(folder, TOKEN_EMBEDDER)), options, characters
    )
    encoder = os.path.join(folder, ENCODER)
    weights |= _lstm_weights(_Tensors(read_tensors(encoder), encoder), options)
    texts = {DICTIONARY_CHARACTERS: as_bytes(_padding_last(characters.rows, characters))}
    if words is not None:
        for token in (BEGIN, END, UNKNOWN):
            words.row(token)
        texts[DICTIONARY_WORDS] = as_bytes(words.rows)
    save_hdf5(weight_file, weights, texts=texts)
    write_json(options_file, options.inference_dict())


def _read_dictionary(
    folder: str, name: str, tensors: Mapping[str, np.ndarray], table: str
) -> Dictionary:
    """A dictionary as the program reads it, with as many rows as its table."""
    path = os.path.join(folder, name)
    if table not in tensors:
        raise InputError(f"{os.path.join(folder, TOKEN_EMBEDDER)}: {table} is missing.")
    n_rows = len(tensors[table])
    ids: dict[str, int] = {}
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        fields = line.strip().split("\t")
        if fields == [""]:
            continue
        token, value = fields if len(fields) == 2 else ("\u3000", fields[0])
        if len(fields) > 2 or not value.isdecimal() or int(value) >= n_rows:
            raise InputError(
                f"{path}, line {number}: a token, a tab and an id below {n_rows} are expected, "
                f"not {line!r}."
            )
        ids[token] = int(value)
    rows = [""] * n_rows
    for token, row in ids.items():
        rows[row] = token
    return Dictionary(rows, path)


def _text_of(path: str) -> str:
    """A file as text. A mark at its begin may be a character of the dictionary."""
    try:
        return Path(require_file(path, "dictionary")).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None


class _Tensors:
    """The tensors of a file, all of which are to be taken, in the shapes that are expected."""

    def __init__(self, tensors: Mapping[str, np.ndarray], path: str) -> None:
        self._tensors = tensors
        self._path = path
        self._left = set(tensors)

    def require_all_taken(self) -> None:
        """Check that the file holds nothing else.

        Raises:
            InputError: it does, so that it is of another kind of model.
        """
        if self._left:
            raise InputError(f"{self._path}: superfluous: {', '.join(sorted(self._left))}.")

    def take(self, name: str, shape: Sequence[int]) -> np.ndarray:
        """A tensor.

        Raises:
            InputError: it is missing or of another shape.
        """
        if name not in self._tensors:
            raise InputError(f"{self._path}: {name} is missing, shape {tuple(shape)} is expected.")
        self._left.discard(name)
        value = self._tensors[name]
        if value.shape != tuple(shape):
            raise InputError(
                f"{self._path}: {name}: shape {tuple(shape)} is expected, not {value.shape}."
            )
        return value


def _padding_last(rows: Any, characters: Dictionary) -> Any:
    """Rows with that of padding at the end, where our encoder expects it."""
    pad = characters.row(PADDING)
    return [*rows[:pad], *rows[pad + 1 :], rows[pad]]


def _token_weights(
    tensors: _Tensors, options: Options, characters: Dictionary
) -> dict[str, np.ndarray]:
    for token in (BEGIN, END, UNKNOWN, WORD_BEGIN, WORD_END):
        characters.row(token)
    cnn, size = options.char_cnn, options.lstm.projection_dim
    if cnn is None or cnn.dictionary is None:
        raise InputError("A dictionary of characters is expected.")
    n, words = cnn.n_filters, cnn.dictionary
    table = tensors.take("char_emb_layer.embedding.weight", (words.n_characters, cnn.embedding_dim))
    weights = {"dictionary/char_embed": np.stack(_padding_last(table, characters))}
    for i, (width, number) in enumerate(cnn.filters):
        kernel = tensors.take(f"convolutions.{i}.weight", (number, cnn.embedding_dim, width))
        weights[f"CNN/W_cnn_{i}"] = kernel.transpose(2, 1, 0)[np.newaxis]
        weights[f"CNN/b_cnn_{i}"] = tensors.take(f"convolutions.{i}.bias", (number,))
    for k in range(cnn.n_highway):
        kernel = tensors.take(f"highways._layers.{k}.weight", (2 * n, n))
        bias = tensors.take(f"highways._layers.{k}.bias", (2 * n,))
        weights[f"CNN_high_{k}/W_transform"] = kernel[:n].T
        weights[f"CNN_high_{k}/b_transform"] = bias[:n]
        # 1 - sigmoid(x) = sigmoid(-x)
        weights[f"CNN_high_{k}/W_carry"] = -kernel[n:].T
        weights[f"CNN_high_{k}/b_carry"] = -bias[n:]
    projection = tensors.take("projection.weight", (size, words.word_dim + n)).T
    weights["CNN_proj/W_proj"] = projection[words.word_dim :]
    weights["CNN_proj/b_proj"] = tensors.take("projection.bias", (size,))
    if words.word_dim:
        shape = (words.n_words, words.word_dim)
        weights["dictionary/word_embed"] = tensors.take("word_emb_layer.embedding.weight", shape)
        weights["dictionary/W_word"] = projection[: words.word_dim]
    tensors.require_all_taken()
    return weights


def _lstm_weights(tensors: _Tensors, options: Options) -> dict[str, np.ndarray]:
    lstm = options.lstm
    dim, size = lstm.dim, lstm.projection_dim
    weights = {}
    for d, direction in enumerate(("forward", "backward")):
        for layer in range(lstm.n_layers):
            source = f"{direction}_layer_{layer}"
            target = f"RNN_{d}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            inputs = tensors.take(f"{source}.input_linearity.weight", (4 * dim, size))
            states = tensors.take(f"{source}.state_linearity.weight", (4 * dim, size))
            bias = tensors.take(f"{source}.state_linearity.bias", (4 * dim,)).copy()
            bias[dim : 2 * dim] -= 1
            kernel = np.concatenate([inputs.T, states.T])
            weights[f"{target}/W_0"] = _our_gates(kernel)
            weights[f"{target}/B"] = _our_gates(bias)
            projection = tensors.take(f"{source}.state_projection.weight", (size, dim))
            weights[f"{target}/W_P_0"] = projection.T
    tensors.require_all_taken()
    return weights


def _our_gates(values: np.ndarray) -> np.ndarray:
    """The last axis from the order i, f, j, o to i, j, f, o."""
    i, f, j, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, j, f, o], axis=-1)
