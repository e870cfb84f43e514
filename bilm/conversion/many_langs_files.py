"""The files of a model of ELMoForManyLangs, in a folder or in a ZIP file."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator

from bilm.errors import InputError
from bilm.files import PathLike

ENCODER, TOKEN_EMBEDDER = "encoder.pkl", "token_embedder.pkl"
CHARACTERS, WORDS = "char.dic", "word.dic"
_NEEDED = (ENCODER, TOKEN_EMBEDDER, CHARACTERS, WORDS)


@contextlib.contextmanager
def opened_folder(source: PathLike) -> Iterator[str]:
    """The folder of a model; that of a ZIP file is there while the block runs, then no more.

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
        with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
            _extract(path, folder)
            try:
                yield folder
            except (InputError, FileNotFoundError) as error:
                # The user knows the archive, not the place where it lay for a moment.
                text = str(error).replace(folder + os.sep, f"{path}: ").replace(folder, path)
                raise type(error)(text) from error


def _extract(path: str, folder: str) -> None:
    """Copy what is needed to names that are ours: the archive's could point anywhere."""
    try:
        with zipfile.ZipFile(path) as archive:
            homes = [n.removesuffix(ENCODER) for n in archive.namelist() if n.endswith(ENCODER)]
            if len(homes) != 1:
                raise InputError(_no_model(path))
            for name in archive.namelist():
                home, base = posixpath.split(name)
                if home == homes[0].rstrip("/") and (base in _NEEDED or base.endswith(".json")):
                    target = os.path.join(folder, base)
                    with archive.open(name) as member, open(target, "wb") as copy:
                        shutil.copyfileobj(member, copy, 2**20)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{path}: a ZIP file that is damaged or locked: {error}") from error


def _no_model(path: str) -> str:
    return (
        f"{path}: a model of ELMoForManyLangs is expected, with {ENCODER} in it; models of weights "
        "in HDF5 are used as they are."
    )
