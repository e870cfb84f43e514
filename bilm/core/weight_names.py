"""The names of all variables in files: one table for HDF5 and for TensorFlow 1's checkpoints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bilm.core.lstm import LSTMStack
from bilm.core.softmax import Softmax
from bilm.core.token_encoder import CharacterEncoder, DictionaryEncoder, WordEmbedding

Encoder = CharacterEncoder | WordEmbedding
# Names in checkpoints of the weights with one row or number per word of the vocabulary.
WORD_ROWS = ("lm/embedding", "lm/softmax/W", "lm/softmax/b")


def lstm_blocks(name: str) -> tuple[int, int] | None:
    """The grid of blocks, (rows, columns), in the LSTM matrix with this checkpoint name.

    A kernel has (2, 4): input and state by four gates; a projection is one block. None for biases
    and for weights outside the LSTMs.
    """
    if "lstm_cell/" not in name or not name.endswith("kernel"):
        return None
    return (1, 1) if name.endswith("projection/kernel") else (2, 4)


@dataclass(frozen=True)
class Weight:
    variable: Any
    dataset: str | None  # in HDF5; None for the softmax, see `with_softmax_datasets`
    checkpoint: str  # in TensorFlow 1's checkpoints
    # A name under which the original dumped some models, but could not load them.
    odd_dataset: str | None = None


def weight_table(
    encoder: Encoder | None, stacks: Sequence[LSTMStack], softmax: Softmax | None = None
) -> list[Weight]:
    """All variables with their names, in network order."""
    table = [] if encoder is None else list(_encoder_weights(encoder))
    for d, stack in enumerate(stacks):
        table += _lstm_weights(stack, d, len(stacks))
    if softmax is not None:
        if not softmax.is_tied:
            table.append(Weight(softmax.W, None, "lm/softmax/W"))
        table.append(Weight(softmax.b, None, "lm/softmax/b"))
    return table


def with_softmax_datasets(table: Sequence[Weight]) -> list[Weight]:
    """`table` including datasets of the softmax, for files of a complete language model."""
    return [
        weight if weight.dataset else replace(weight, dataset=weight.checkpoint.removeprefix("lm/"))
        for weight in table
    ]


def _encoder_weights(encoder: Encoder) -> Iterator[Weight]:
    named: dict[str, Any] = {}
    if isinstance(encoder, WordEmbedding):
        named["embedding"] = encoder.embedding
    elif isinstance(encoder, DictionaryEncoder):
        # Named differently, because readers that expect bytes would compute wrong vectors.
        named["dictionary/char_embed"] = encoder.char_embed
        named["dictionary/word_embed"] = encoder.word_embed
        named["dictionary/W_word"] = encoder.W_word
    else:
        named["char_embed"] = encoder.char_embed
    if not isinstance(encoder, WordEmbedding):
        for i, (kernel, bias) in enumerate(encoder.convolutions):
            named |= {f"CNN/W_cnn_{i}": kernel, f"CNN/b_cnn_{i}": bias}
        for k, highway in enumerate(encoder.highways):
            named |= {f"CNN_high_{k}/{name}": variable for name, variable in highway.items()}
        kernel, bias = encoder.projection or (None, None)
        named |= {"CNN_proj/W_proj": kernel, "CNN_proj/b_proj": bias}
    for name, variable in named.items():
        if variable is not None:
            yield Weight(variable, name, f"lm/{name}")


def _lstm_weights(stack: LSTMStack, direction: int, n_directions: int) -> Iterator[Weight]:
    # TF1 omitted the direction's scope or the cell's number if there was only one.
    scope = f"RNN_{direction}/rnn" if n_directions > 1 else "rnn"
    has_one = len(stack.layer_weights) == 1
    for i, layer in enumerate(stack.layer_weights):
        cell = "lstm_cell" if has_one else f"multi_rnn_cell/cell_{i}/lstm_cell"
        odd_cell = "LSTMCell" if has_one else f"MultiRNNCell/Cell{i}/LSTMCell"
        for variable, name, tf1_name in (
            (layer.kernel, "W_0", "kernel"),
            (layer.bias, "B", "bias"),
            (layer.projection, "W_P_0", "projection/kernel"),
        ):
            odd = None
            if n_directions == 1:  # the original did not rename these
                odd = f"rnn/{odd_cell}/{tf1_name}"
            elif has_one:
                odd = f"RNN_{direction}/RNN/{odd_cell}/{name}"
            dataset = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell/{name}"
            if variable is not None:
                yield Weight(variable, dataset, f"lm/{scope}/{cell}/{tf1_name}", odd)
