"""The files of a model of ELMoForManyLangs: a folder or a ZIP file, and its configuration."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import InputError
from bilm.files import PathLike, read_json_object
from bilm.options import CharCNNOptions, DictionaryOptions, LSTMOptions, Options

CONFIG = "config.json"
ENCODER, TOKEN_EMBEDDER = "encoder.pkl", "token_embedder.pkl"
CHARACTERS, WORDS = "char.dic", "word.dic"

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


@contextlib.contextmanager
def opened_folder(source: PathLike) -> Iterator[str]:
    """The folder of a model; that of a ZIP file exists while the block runs.

    Raises:
        FileNotFoundError: there is nothing under that name.
        InputError: there is no such model in it; a damaged ZIP file.
    """
    path = os.fspath(source)
    if os.path.isdir(path):
        if not os.path.isfile(os.path.join(path, ENCODER)):
            raise InputError(_no_model(path))
        yield path
    elif not os.path.exists(path):
        raise FileNotFoundError(f"The model {path!r} does not exist.")
    elif not zipfile.is_zipfile(path):
        raise InputError(f"{path}: a folder or a ZIP file is expected.")
    else:
        with tempfile.TemporaryDirectory(prefix="bilm-") as temporary:
            folder = _extract(path, temporary)
            try:
                yield folder
            except (InputError, FileNotFoundError) as error:
                # The user knows the archive and not the temporary folder.
                text = str(error).replace(folder + os.sep, f"{path}: ").replace(folder, path)
                raise type(error)(text) from error


def _extract(path: str, target: str) -> str:
    """Extract a ZIP file, whose names cannot lead out of `target`; return the model's folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{path}: a ZIP file that is damaged or locked: {error}") from error
    found = list(Path(target).rglob(ENCODER))
    if len(found) != 1:
        raise InputError(_no_model(path))
    return str(found[0].parent)


def _no_model(path: str) -> str:
    return (
        f"{path}: a model of ELMoForManyLangs is expected, with {ENCODER} in it; models of weights "
        "in HDF5 are used as they are."
    )


class Config(NamedTuple):
    """The sizes of a model, and the file that they are from."""

    encoder: Mapping[str, Any]
    token_embedder: Mapping[str, Any]
    path: str

    def options(self, n_characters: int, n_words: int) -> Options:
        """The sizes as our options.

        Args:
            n_characters: rows of the table of characters.
            n_words: rows of the table of words; 0 if the model has none.

        Raises:
            InputError: the model is of a kind that bilm does not have, or a value breaks its rule.
        """
        encoder, embedder = self.encoder, self.token_embedder
        for part, values, kind in (
            ("encoder", encoder, "elmo"),
            ("token_embedder", embedder, "cnn"),
        ):
            if values.get("name") != kind:
                raise InputError(
                    f"{self.path}: {part}.name: {kind!r} is expected, not {values.get('name')!r}, "
                    "which is unsupported."
                )
        if not embedder.get("char_dim"):
            raise InputError(
                f"{self.path}: token_embedder.char_dim: a model without characters is unsupported."
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
            raise InputError(f"{self.path}: {error.args[0]} is missing.") from None
        except (InputError, TypeError, ValueError) as error:
            raise InputError(f"{self.path}: {error}") from error
        return Options(lstm=lstm, char_cnn=char_cnn)


def read_config(folder: str) -> Config:
    """The configuration: config.json, or the file that it names.

    Raises:
        FileNotFoundError: there is no config.json.
        InputError: the file that it names is not there, or it is not what it should be.
    """
    path = os.path.join(folder, CONFIG)
    values: Mapping[str, Any] = read_json_object(path, "configuration")
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
    return Config(values["encoder"], values["token_embedder"], path)
