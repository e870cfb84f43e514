"""The configuration of a model of ELMoForManyLangs as options of bilm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bilm.errors import InputError
from bilm.files import read_json_object
from bilm.options import CharCNNOptions, DictionaryOptions, LSTMOptions, Options

CONFIG = "config.json"

# What both files that come with the program hold.
_STANDARD = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}
_STANDARD_NAMES = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")


def read_config(folder: str) -> tuple[Mapping[str, Any], str]:
    """The sizes of a model, and the file that they are from.

    Raises:
        FileNotFoundError: there is no config.json.
        InputError: the file that it names is not there, or it is not what it should be.
    """
    path = os.path.join(folder, CONFIG)
    values = read_json_object(path, "configuration")
    if "encoder" not in values or "token_embedder" not in values:
        named = values.get("config_path")
        if not isinstance(named, str):
            raise InputError(f"{path}: config_path is missing, which names the model's sizes.")
        base = named.replace("\\", "/").rpartition("/")[2]
        beside = os.path.join(folder, base)
        if os.path.isfile(beside) and base != CONFIG:
            path, values = beside, read_json_object(beside, "configuration")
        elif base in _STANDARD_NAMES:
            path, values = base, _STANDARD
        else:
            raise InputError(
                f"{path}: config_path names {named!r}; {base} is not in {folder}, and is none of "
                f"the program's own ({', '.join(_STANDARD_NAMES)})."
            )
    for part in ("encoder", "token_embedder"):
        if not isinstance(values.get(part), Mapping):
            raise InputError(f"{path}: {part}: a JSON object is expected.")
    return values, path


def options_of(config: Mapping[str, Any], n_characters: int, n_words: int, source: str) -> Options:
    """A configuration as our options.

    Raises:
        InputError: it is of a kind that bilm does not have, or a value breaks its rule.
    """
    encoder, embedder = config["encoder"], config["token_embedder"]
    for part, name, rule in ((encoder, "encoder", "elmo"), (embedder, "token_embedder", "cnn")):
        if part.get("name") != rule:
            raise InputError(
                f"{source}: {name}.name: {rule!r} is expected, not {part.get('name')!r}, which is "
                "unsupported."
            )
    if not embedder.get("char_dim"):
        raise InputError(
            f"{source}: token_embedder.char_dim: a model without characters is unsupported."
        )
    try:
        lstm = LSTMOptions(
            dim=encoder["dim"],
            projection_dim=encoder["projection_dim"],
            n_layers=encoder["n_layers"],
            # The program takes 0 for no bound.
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
        if not lstm.has_projection:
            raise InputError("encoder.dim: LSTMs as large as their projection are unsupported.")
    except KeyError as error:
        raise InputError(f"{source}: {error.args[0]} is missing.") from None
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{source}: {error}") from error
    return Options(lstm=lstm, char_cnn=char_cnn)
