"""Conversion of ELMoForManyLangs models (Che et al. 2018, "Towards better UD parsing").

Their format, according to that program's source (version 0.0.4 on PyPI) and its results:

- `config.json` holds the training arguments; its `config_path` names a second file with the sizes,
  either next to it or one of two identical files that come with the program.
- `char.dic` and `word.dic`: per line a token, a tab and its id. A line with an empty token stands
  for U+3000, which the program stripped as white space. Special tokens: <bos>, <eos>, <oov>, <pad>,
  and for characters <bow> and <eow>.
- A word is cut to max_characters_per_token - 2 characters (not bytes), and its characters are put
  between <eow> and <bow>, in this order.
- `token_embedder.pkl`: vectors of characters and words; convolutions, maximum, activation and
  highway layers over the characters; and a projection of [word; characters]. Its highway gate
  multiplies the input, ours the transformed part, so the sign of the gate's weights is changed. We
  split the projection into a sum of two, one for the word and one for the characters.
- `encoder.pkl`: input_linearity, state_linearity and state_projection for each direction and layer.
  Its gates are in the order i, f, j, o, ours i, j, f, o. Its forget gate's bias includes the 1.0
  that our network adds. Skip connections from the second layer on.

The program carries LSTM states from batch to batch; bilm computes each sentence separately.
"""

import contextlib
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bilm.core.errors import OBJECT, InputError, require
from bilm.core.lstm import LSTMStack
from bilm.core.network import build_network
from bilm.core.options import CharCNNOptions, DictionaryOptions, LSTMOptions, Options
from bilm.core.token_encoder import DictionaryEncoder
from bilm.data.encoding import BEGIN, END, PADDING, UNKNOWN, WORD_BEGIN, WORD_END, as_bytes
from bilm.files.model_files import extracted, local_source
from bilm.files.reading import PathLike, read_json_object, require_file
from bilm.files.torch_file import read_tensors
from bilm.files.weights import DICTIONARY_CHARACTERS, DICTIONARY_WORDS, save_hdf5, weight_table
from bilm.files.writing import Outputs, fill_json

_CONFIG = "config.json"
_ENCODER, _TOKEN_EMBEDDER = "encoder.pkl", "token_embedder.pkl"
_CHARACTERS, _WORDS = "char.dic", "word.dic"

# The content of both files that come with the program.
_STANDARD = {
    "encoder": {
        "name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn", "activation": "relu", "n_highway": 2, "word_dim": 100, "char_dim": 50,
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "max_characters_per_token": 50,
    },
}  # fmt: skip
_STANDARD_NAMES = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")
_CHARACTER_TABLE = "char_emb_layer.embedding.weight"
_WORD_TABLE = "word_emb_layer.embedding.weight"
_SPECIAL = (BEGIN, END, UNKNOWN, PADDING, WORD_BEGIN, WORD_END)


def convert_many_langs(source: PathLike, weight_file: PathLike, options_file: PathLike) -> None:
    """Convert an ELMoForManyLangs model to weights and options of bilm.

    `ELMo` then computes the vectors that the original computes for its first batch. The weights
    hold dictionaries of characters and words instead of 261 byte vectors, so other readers of
    published weights reject them.

    `source` is a folder or ZIP file with the files above, or a name or an address, see
    `bilm.files.model_files`. The results are an HDF5 file and a JSON file; existing ones are
    replaced.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is damaged, or does not have the format described above.
        ConnectionError: the model cannot be downloaded.
    """
    with _opened_folder(local_source(source)) as folder:
        path, config = _read_config(folder)
        embedder = _Tensors(os.path.join(folder, _TOKEN_EMBEDDER))
        characters = _read_dictionary(
            os.path.join(folder, _CHARACTERS), embedder.n_rows(_CHARACTER_TABLE), _SPECIAL
        )
        words = []
        if config["token_embedder"].get("word_dim"):
            n_words = embedder.n_rows(_WORD_TABLE)
            words = _read_dictionary(os.path.join(folder, _WORDS), n_words, _SPECIAL[:3])
        options = _options(path, config, len(characters), len(words))
        network = build_network(options)
        # Our encoder expects the padding row at the end.
        pad = characters.index(PADDING)
        order = [row for row in range(len(characters)) if row != pad] + [pad]
        _fill_encoder(cast(DictionaryEncoder, network.encoder), embedder, order)
        lstms = _Tensors(os.path.join(folder, _ENCODER))
        for direction, stack in zip(("forward", "backward"), network.stacks, strict=True):
            _fill_stack(stack, lstms, direction)
        lstms.require_all_used()
    texts = {DICTIONARY_CHARACTERS: as_bytes([characters[row] for row in order])}
    if words:
        texts[DICTIONARY_WORDS] = as_bytes(words)
    values = {w.dataset: w.variable.numpy() for w in weight_table(network) if w.dataset}
    outputs = Outputs(
        [weight_file, options_file],
        overwrite=True,
        folders=[os.path.dirname(weight_file) or os.curdir],
    )
    with outputs.temporaries() as (weights, settings):
        save_hdf5(weights, values, texts=texts)
        fill_json(settings, options.inference_dict())


@contextlib.contextmanager
def _opened_folder(source: PathLike) -> Iterator[str]:
    path = os.fspath(source)
    is_folder = os.path.isdir(path)
    if not is_folder and not zipfile.is_zipfile(require_file(path, "model")):
        raise InputError(f"{path} must be a folder or a ZIP file.")
    with contextlib.nullcontext(path) if is_folder else extracted(path, "model") as folder:
        folders = [
            str(encoder.parent)
            for pattern in (_ENCODER, f"*/{_ENCODER}")
            for encoder in Path(folder).glob(pattern)
        ]
        if len(folders) != 1:
            raise InputError(
                f"{path} must be an ELMoForManyLangs model with one {_ENCODER}, got "
                f"{len(folders)}; HDF5 models need no conversion."
            )
        yield folders[0]


def _read_config(folder: str) -> tuple[str, Mapping[str, Any]]:
    """The path and content of the file with the sizes, which config.json names."""
    path = os.path.join(folder, _CONFIG)
    config_path = read_json_object(path, "configuration").get("config_path")
    if not isinstance(config_path, str):
        raise InputError(f"{path}: config_path is missing: the file with the sizes.")
    name = config_path.replace("\\", "/").rpartition("/")[2]
    local = os.path.join(folder, name)
    if os.path.isfile(local):
        path, values = local, read_json_object(local, "configuration")
    elif name in _STANDARD_NAMES:
        path, values = name, _STANDARD
    else:
        raise InputError(
            f"{path}: config_path must name a file in {folder} or one of "
            f"{', '.join(_STANDARD_NAMES)}, got {config_path!r}."
        )
    parts = ("encoder", "token_embedder")
    require(OBJECT, **{f"{path}: {part}": values.get(part) for part in parts})
    return path, values


def _options(path: str, config: Mapping[str, Any], n_characters: int, n_words: int) -> Options:
    encoder, embedder = config["encoder"], config["token_embedder"]
    try:
        lstm = LSTMOptions(
            dim=encoder["dim"],
            projection_dim=encoder["projection_dim"],
            n_layers=encoder["n_layers"],
            # 0 means no bound there.
            cell_clip=encoder["cell_clip"] or None,
            proj_clip=encoder["proj_clip"] or None,
            use_skip_connections=True,
        )
        char_cnn = CharCNNOptions(
            filters=tuple((width, number) for width, number in embedder["filters"]),
            activation=embedder["activation"],
            embedding_dim=embedder["char_dim"],
            n_highway=embedder["n_highway"],
            max_characters_per_token=embedder["max_characters_per_token"],
            dictionary=DictionaryOptions(n_characters, n_words, embedder.get("word_dim") or 0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: a size is missing or wrong: {error}.") from error
    return Options(lstm=lstm, char_cnn=char_cnn)


class _Tensors:
    """The tensors of a file; each must be taken once, in its expected shape."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._remaining = read_tensors(path)

    def n_rows(self, name: str) -> int:
        if name not in self._remaining:
            raise InputError(f"{self._path}: {name} is missing.")
        return len(self._remaining[name])

    def take(self, name: str, *shape: int) -> np.ndarray:
        stored = self._remaining[name].shape if name in self._remaining else "nothing"
        if stored != shape:
            raise InputError(f"{self._path}: {name}: must have shape {shape}, got {stored}.")
        return self._remaining.pop(name)

    def require_all_used(self) -> None:
        if self._remaining:
            raise InputError(f"{self._path}: unexpected: {', '.join(sorted(self._remaining))}.")


def _read_dictionary(path: str, n_rows: int, special: Sequence[str]) -> list[str]:
    """The token of each row, "" if it has none."""
    try:
        # `read_lines` would drop a byte order mark, which may be in the dictionary.
        text = Path(require_file(path, "dictionary")).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    ids: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.strip().split("\t")
        if fields == [""]:
            continue
        token, value = fields if len(fields) == 2 else ("\u3000", fields[0])
        if len(fields) > 2 or not (value.isdecimal() and int(value) < n_rows):
            raise InputError(
                f"{path}, line {number}: must hold a token, a tab and an id below {n_rows}, "
                f"got {line!r}."
            )
        ids[token] = int(value)
    rows = [""] * n_rows
    for token, row in ids.items():
        rows[row] = token
    for token in special:
        if token not in rows:
            raise InputError(f"{path}: {token} is missing.")
    return rows


def _fill_encoder(encoder: DictionaryEncoder, tensors: _Tensors, order: list[int]) -> None:
    """Set the encoder's variables; `order`: the source's row of each character."""
    table = tensors.take(_CHARACTER_TABLE, *encoder.char_embed.shape)
    encoder.char_embed.assign(table[order])
    for i, (kernel, bias) in enumerate(encoder.convolutions):
        _, width, dim, number = kernel.shape
        values = tensors.take(f"convolutions.{i}.weight", number, dim, width)
        kernel.assign(values.transpose(2, 1, 0)[np.newaxis])  # (1, width, dim, number)
        bias.assign(tensors.take(f"convolutions.{i}.bias", number))
    n = encoder.options.n_filters
    for k, highway in enumerate(encoder.highways):
        # Rows: n of the transformed part, n of the gate.
        values = tensors.take(f"highways._layers.{k}.weight", 2 * n, n)
        biases = tensors.take(f"highways._layers.{k}.bias", 2 * n)
        highway["W_transform"].assign(values[:n].T)
        highway["b_transform"].assign(biases[:n])
        # 1 - sigmoid(x) = sigmoid(-x)
        highway["W_carry"].assign(-values[n:].T)
        highway["b_carry"].assign(-biases[n:])
    word_dim, size = 0, encoder.projection_dim
    if encoder.word_embed is not None:
        word_dim = encoder.word_embed.shape[1]
        encoder.word_embed.assign(tensors.take(_WORD_TABLE, *encoder.word_embed.shape))
    # (size, word_dim + n), of [word; characters]
    projection = tensors.take("projection.weight", size, word_dim + n).T
    if encoder.W_word is not None:
        encoder.W_word.assign(projection[:word_dim])
    # A dictionary model always has a projection.
    kernel, bias = cast(tuple[Any, Any], encoder.projection)
    kernel.assign(projection[word_dim:])
    bias.assign(tensors.take("projection.bias", size))
    tensors.require_all_used()


def _fill_stack(stack: LSTMStack, tensors: _Tensors, direction: str) -> None:
    dim, size = stack.options.dim, stack.options.projection_dim
    for layer, weights in enumerate(stack.layer_weights):
        source = f"{direction}_layer_{layer}"
        inputs = tensors.take(f"{source}.input_linearity.weight", 4 * dim, size)
        states = tensors.take(f"{source}.state_linearity.weight", 4 * dim, size)
        bias = tensors.take(f"{source}.state_linearity.bias", 4 * dim)
        bias[dim : 2 * dim] -= 1  # forget gate
        # Rows [input; state], columns the gates: (2 * size, 4 * dim).
        weights.kernel.assign(_our_gates(np.concatenate([inputs.T, states.T])))
        weights.bias.assign(_our_gates(bias))
        if weights.projection is not None:
            projection = tensors.take(f"{source}.state_projection.weight", size, dim)
            weights.projection.assign(projection.T)


def _our_gates(values: np.ndarray) -> np.ndarray:
    """The last axis from the order i, f, j, o to i, j, f, o."""
    i, f, j, o = np.split(values, 4, axis=-1)
    return np.concatenate([i, j, f, o], axis=-1)
