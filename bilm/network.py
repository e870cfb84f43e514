"""The network of a language model, built from its options: a token encoder, LSTMs for each
direction. Training and use stand on the same one.
"""

from __future__ import annotations

from typing import NamedTuple

from bilm.errors import InputError
from bilm.layers import CharacterEncoder, DictionaryEncoder, LSTMStack, WordEmbedding
from bilm.layers.token_encoder import N_GROUPS
from bilm.options import Options
from bilm.weights import Encoder, Weight, weight_table


class Network(NamedTuple):
    """The layers: a token encoder, and a forward and perhaps a backward stack of LSTMs."""

    encoder: Encoder
    stacks: tuple[LSTMStack, ...]

    def weight_table(self) -> list[Weight]:
        """All variables with their names in files."""
        return weight_table(self.encoder, self.stacks)


def build_network(
    options: Options,
    n_tokens: int | None = None,
    *,
    dropout: float = 0.0,
    seed: int | None = None,
    precision: str = "float32",
    compiled: bool = False,
    for_corpus: bool = False,
) -> Network:
    """Build the layers.

    Args:
        options: the sizes.
        n_tokens: rows of a word table; None encodes characters.
        dropout: rate of dropout of the LSTMs, when they are given a seed for it.
        seed: of the initial values; None leaves zeros, for weights that are about to be loaded.
        precision: "float32", or "bfloat16" for products in bfloat16.
        compiled: compile the LSTMs with XLA, for shapes that are fixed or few.
        for_corpus: for a `CorpusEncoder`, which wants no gradients and gives words of like length
            to the encoder: keep nothing for a gradient, and do not group the words again.

    Raises:
        InputError: characters are asked for, and the options have no `char_cnn`.
    """
    size = options.lstm.projection_dim
    encoder: Encoder
    if n_tokens is not None:
        encoder = WordEmbedding(n_tokens, size, seed=seed, name="encoder")
    elif options.char_cnn is None:
        raise InputError("The options have no char_cnn: the model takes words, not characters.")
    else:
        kind = CharacterEncoder if options.char_cnn.dictionary is None else DictionaryEncoder
        encoder = kind(
            options.char_cnn,
            size,
            n_groups=1 if for_corpus else N_GROUPS,
            seed=seed,
            precision=precision,
            name="encoder",
        )
    stacks = tuple(
        LSTMStack(
            options.lstm,
            dropout=dropout,
            seed=seed,
            precision=precision,
            compiled=compiled,
            own_gradient=not for_corpus,
            name=name,
        )
        for name in ("forward", "backward")[: options.n_directions]
    )
    return Network(encoder, stacks)
