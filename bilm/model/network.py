"""Build the layers of a pretrained model and load them from its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bilm.errors import InputError
from bilm.files import PathLike
from bilm.layers import CharacterEncoder, LSTMStack, WordEmbedding
from bilm.options import Options
from bilm.weights import Encoder, dataset_shapes, load_hdf5, weight_table


class Network(NamedTuple):
    """The layers of a model in use: a token encoder and a stack for each direction."""

    encoder: Encoder
    stacks: tuple[LSTMStack, ...]


def read_options(options: PathLike | Mapping[str, Any] | Options) -> Options:
    """Options for inference, from a file, from its contents, or as they are."""
    if isinstance(options, Options):
        return options
    if isinstance(options, Mapping):
        return Options.from_dict(options, training=False)
    return Options.from_file(options, training=False)


def build_network(
    options: Options, n_tokens: int | None = None, *, precision: str = "float32", **lstm: Any
) -> Network:
    """The layers with zeros for weights.

    Args:
        options: the options for inference.
        n_tokens: rows of the word table; None encodes characters.
        precision: "float32" or "bfloat16".
        lstm: further arguments of `LSTMStack`.
    """
    encoder: Encoder
    if n_tokens is not None:
        encoder = WordEmbedding(n_tokens, options.lstm.projection_dim, name="encoder")
    elif options.char_cnn is not None:
        encoder = CharacterEncoder(
            options.char_cnn, options.lstm.projection_dim, precision=precision, name="encoder"
        )
    else:
        raise InputError("The options have no char_cnn: the model takes words, not characters.")
    stacks = tuple(
        LSTMStack(options.lstm, precision=precision, name=name, **lstm)
        for name in ("forward", "backward")[: options.n_directions]
    )
    return Network(encoder, stacks)


def count_embedded_tokens(file: PathLike) -> int:
    """Rows of the dataset `embedding`: a token cache, or the table of a word-input model.

    Raises:
        InputError: the file has no such dataset, or not of two axes.
    """
    shape = dataset_shapes(file).get("embedding")
    if shape is None or len(shape) != 2:
        found = "nothing" if shape is None else f"shape {shape}"
        raise InputError(
            f"{file}: a dataset 'embedding' (tokens, projection_dim) is expected, not {found}."
        )
    return shape[0]


def load_network(network: Network, weight_file: PathLike, embedding_file: PathLike | None) -> None:
    """Load the layers, the word table from a file of its own if `embedding_file` names one.

    Raises:
        FileNotFoundError, InputError: see `bilm.weights.load_hdf5`.
    """
    if embedding_file is None:
        load_hdf5(weight_file, weight_table(network.encoder, network.stacks))
        return
    # The weights of the encoder that made the cache may stand beside the LSTMs.
    load_hdf5(weight_file, weight_table(None, network.stacks), also=("char_embed", "CNN", "embedding"))
    load_hdf5(embedding_file, weight_table(network.encoder, ()), also=("char_embed", "CNN", "RNN_", "rnn"))
