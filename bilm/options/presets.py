"""Named sizes: the paper's model, and smaller ones."""

from __future__ import annotations

from typing import Any

from bilm.errors import InputError
from bilm.options.network import CharCNNOptions, LSTMOptions
from bilm.options.options import Options

# Found by training: see docs/states.md.
RESET_RATE = 0.1

PRESETS = ("tiny", "small", "medium", "original")


def preset(name: str) -> dict[str, Any]:
    """The training options of a size: "tiny", "small", "medium" or "original" (the paper's).

    Returns:
        the contents of an options file, without `n_tokens_vocab` and `n_train_tokens`.

    Raises:
        InputError: there is no such size.

    >>> preset("small")["lstm"]["dim"]
    1024
    """
    sizes = {
        "tiny": (256, 64, 1),
        "small": (1024, 128, 1),
        "medium": (2048, 256, 1),
        "original": (4096, 512, 2),
    }
    if name not in sizes:
        raise InputError(f"preset: one of {', '.join(PRESETS)} is expected, not {name!r}.")
    dim, projection_dim, n_highway = sizes[name]
    filters: tuple[tuple[int, int], ...]
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    if name == "tiny":
        filters = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 128))
    options = Options(
        lstm=LSTMOptions(
            dim, projection_dim, 2, cell_clip=3, proj_clip=3, use_skip_connections=True
        ),
        char_cnn=CharCNNOptions(filters, "relu", embedding_dim=16, n_highway=n_highway),
        batch_size=64 if name == "tiny" else 128,
        n_negative_samples_batch=2048 if name == "tiny" else 8192,
        reset_rate=RESET_RATE,
    )
    return options.training_dict()
