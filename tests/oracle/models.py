"""Small models of every kind with random weights, for what the recorded cases do not cover."""

from __future__ import annotations

import numpy as np

from tests.oracle.embeddings import n_directions
from tests.oracle.encoder import Options, Weights, has_projection
from tests.oracle.text import character_ids


def _options(char_cnn: dict | None, **lstm: object) -> Options:
    options: Options = {"lstm": {"dim": 20, "projection_dim": 8, "n_layers": 2} | lstm}
    if char_cnn is not None:
        options["char_cnn"] = {
            "activation": "relu",
            "filters": [[1, 4], [2, 6], [4, 8]],
            "embedding": {"dim": 4},
            "n_characters": 262,
            "max_characters_per_token": 50,
            "n_highway": 1,
        } | char_cnn
    return options


MODELS: dict[str, Options] = {
    "as_published": _options({"n_highway": 2}, use_skip_connections=True, cell_clip=3, proj_clip=3),
    "four_layers_tight_clips": _options(
        {}, n_layers=4, use_skip_connections=True, cell_clip=0.3, proj_clip=0.2
    ),
    "one_layer_by_default": {
        "lstm": {"dim": 20, "projection_dim": 8},
        "char_cnn": {"activation": "tanh", "filters": [[3, 10]], "embedding": {"dim": 4}},
    },
    "no_lstm_projection_tight_clips": _options(
        {}, dim=8, projection_dim=8, use_skip_connections=True, cell_clip=0.3, proj_clip=0.1
    ),
    "no_cnn_projection": _options({"filters": [[1, 3], [3, 5]]}, use_skip_connections=True),
    "neither_projection": _options(
        {"filters": [[1, 2], [2, 6]], "n_highway": 0}, dim=8, n_layers=3, cell_clip=1
    ),
    "tanh_proj_clip_only": _options({"activation": "tanh", "n_highway": 3}, proj_clip=0.2),
    "short_words_261": _options(
        {"max_characters_per_token": 7, "filters": [[1, 4], [7, 9]], "n_characters": 261},
        use_skip_connections=True,
    ),
    "long_words": _options({"max_characters_per_token": 90}, n_layers=1, cell_clip=3, proj_clip=3),
    "words": _options(None, use_skip_connections=True, cell_clip=3, proj_clip=3)
    | {"n_tokens_vocab": 37},
    "one_direction": _options({}, use_skip_connections=True) | {"bidirectional": False},
    "one_direction_one_layer_words": _options(None, n_layers=1)
    | {"bidirectional": False, "n_tokens_vocab": 37},
}


def _shapes(options: Options) -> dict[str, tuple[int, ...]]:
    """Name and shape of every dataset in the file format."""
    lstm = options["lstm"]
    dim, size = lstm["dim"], lstm["projection_dim"]
    shapes: dict[str, tuple[int, ...]] = {}
    if "char_cnn" in options:
        cnn = options["char_cnn"]
        n_filters = sum(n for _, n in cnn["filters"])
        shapes["char_embed"] = (261, cnn["embedding"]["dim"])
        for i, (width, n) in enumerate(cnn["filters"]):
            shapes[f"CNN/W_cnn_{i}"] = (1, width, cnn["embedding"]["dim"], n)
            shapes[f"CNN/b_cnn_{i}"] = (n,)
        for k in range(cnn.get("n_highway", 0)):
            for part in ("carry", "transform"):
                shapes[f"CNN_high_{k}/W_{part}"] = (n_filters, n_filters)
                shapes[f"CNN_high_{k}/b_{part}"] = (n_filters,)
        if has_projection(options):
            shapes["CNN_proj/W_proj"] = (n_filters, size)
            shapes["CNN_proj/b_proj"] = (size,)
    else:
        shapes["embedding"] = (options["n_tokens_vocab"], size)
    for direction in range(n_directions(options)):
        for layer in range(lstm.get("n_layers", 1)):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
            shapes[cell + "W_0"] = (2 * size, 4 * dim)
            shapes[cell + "B"] = (4 * dim,)
            if dim != size:
                shapes[cell + "W_P_0"] = (dim, size)
    return shapes


def random_weights(options: Options, seed: int) -> Weights:
    """float32 weights by HDF5 name, large enough for clipping and gates to matter."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in _shapes(options).items():
        scale = 0.5 if len(shape) == 1 else 1.5 / np.sqrt(np.prod(shape[:-1]))
        if "embed" in name:
            scale = 1.0
        weights[name] = random.normal(0, scale, shape).astype(np.float32)
    return weights


def random_softmax(options: Options, seed: int) -> Weights:
    """softmax/W and softmax/b for n_tokens_vocab words; no softmax/W if it is the word table."""
    random = np.random.default_rng(seed)
    shape = (options["n_tokens_vocab"], options["lstm"]["projection_dim"])
    weights: Weights = {"softmax/b": random.normal(0, 0.5, shape[:1]).astype(np.float32)}
    if not options.get("share_embedding_softmax"):
        weights["softmax/W"] = random.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
    return weights


def random_characters(options: Options, lengths: list[int], seed: int) -> np.ndarray:
    """Inference ids of random sentences: character ids, or word ids with word input.

    Words have 1 to 11 letters, some more bytes than the model allows; 0 is padding.
    """
    random = np.random.default_rng(seed)
    if "char_cnn" in options:
        letters = "abcdefghijklmnop éß字😀"
        sentences = [
            ["".join(random.choice(list(letters), random.integers(1, 12))) for _ in range(length)]
            for length in lengths
        ]
        return character_ids(sentences, options["char_cnn"].get("max_characters_per_token", 50))
    ids = np.zeros((len(lengths), max(lengths) + 2), np.int32)
    for row, length in enumerate(lengths):
        ids[row, : length + 2] = random.integers(1, options["n_tokens_vocab"] + 1, length + 2)
    return ids
