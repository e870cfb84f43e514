"""Where the files of a pretrained model are: in a folder, in a ZIP file, or named one by one.

Known containers: NLPL's ZIP files and folders (model.hdf5, options.json, vocab.txt or
vocab.txt.gz), our own model folders, which are alike, and AllenNLP's pairs (..._options.json and
..._weights.hdf5).
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bilm.errors import InputError
from bilm.files import PathLike
from bilm.options import Options

OptionsSource = PathLike | Mapping[str, Any] | Options
ModelSource = PathLike | Sequence[Any]

_VOCABULARIES = ("vocab.txt", "vocab.txt.gz", "vocab.txt.xz")
_HDF5 = (".hdf5", ".h5")


class ModelFiles(NamedTuple):
    """The files of a model.

    Attributes:
        options: path of options.json, or its contents.
        weights: path of the HDF5 weights.
        vocabulary: path of the vocabulary; None if there is none, which models of characters do
            without.
        source: what the user named, for messages.
    """

    options: OptionsSource
    weights: PathLike
    vocabulary: PathLike | None
    source: str


def read_options(options: OptionsSource) -> Options:
    """Options for inference, from a file, from its contents, or as they are."""
    if isinstance(options, Options):
        return options
    if isinstance(options, Mapping):
        return Options.from_dict(options, training=False)
    return Options.from_file(options, training=False)


@contextlib.contextmanager
def open_container(source: ModelSource) -> Iterator[ModelFiles]:
    """The files of a model; those of a ZIP file are there while the block runs, then no more.

    Args:
        source: a folder, a ZIP file, or a pair (options, weights), whose options may be a path,
            the contents of the file, or `Options`.

    Raises:
        FileNotFoundError: there is nothing under that name.
        InputError: a container without a model, or with several; a damaged ZIP file.
    """
    if not isinstance(source, str | os.PathLike):
        yield _pair(source)
        return
    path = os.fspath(source)
    if os.path.isdir(path):
        yield _in_folder(path)
    elif not os.path.exists(path):
        raise FileNotFoundError(f"The model {path!r} does not exist.")
    elif not zipfile.is_zipfile(path):
        raise InputError(
            f"{path}: a folder, a ZIP file, or a pair of options and weights is expected; this is "
            "a file that is no ZIP file, or one that is cut off."
        )
    else:
        with _unzipped(path) as files:
            yield files


def _pair(source: Sequence[Any]) -> ModelFiles:
    if not isinstance(source, Sequence) or len(source) != 2:
        raise InputError(
            f"A model is a folder, a ZIP file, or a pair (options, weights), not {source!r}."
        )
    return ModelFiles(source[0], source[1], None, os.fspath(source[1]))


def _in_folder(folder: str) -> ModelFiles:
    names = []
    for entry in os.scandir(folder):
        if entry.is_file():
            names.append(entry.name)
        elif entry.is_dir():
            # Archives are often unpacked into a folder of their own.
            inner = os.scandir(entry.path)
            names += [f"{entry.name}/{file.name}" for file in inner if file.is_file()]
    chosen = choose_files(names, folder)
    paths = [None if name is None else os.path.join(folder, name) for name in chosen]
    return ModelFiles(paths[0] or "", paths[1] or "", paths[2], folder)


@contextlib.contextmanager
def _unzipped(path: str) -> Iterator[ModelFiles]:
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                chosen = choose_files(archive.namelist(), path)
                paths = [_extract(archive, name, folder) for name in chosen]
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{path}: a damaged ZIP file: {error}") from error
        except (RuntimeError, NotImplementedError) as error:
            raise InputError(f"{path}: a ZIP file that cannot be read: {error}") from error
        try:
            yield ModelFiles(paths[0] or "", paths[1] or "", paths[2], path)
        except InputError as error:
            # The user knows the archive, not the place where it lay for a moment.
            text = str(error).replace(folder + os.sep, f"{path}: ")
            raise InputError(text) from error


def _extract(archive: zipfile.ZipFile, name: str | None, folder: str) -> str | None:
    """Copy a member to a name that is ours: the archive's could point anywhere."""
    if name is None:
        return None
    target = os.path.join(folder, posixpath.basename(name))
    with archive.open(name) as member, open(target, "wb") as copy:
        shutil.copyfileobj(member, copy, 2**20)
    return target


def choose_files(names: Iterable[str], source: str) -> tuple[str, str, str | None]:
    """Which of a container's files are the options, the weights and the vocabulary.

    Args:
        names: paths with "/" within the container.
        source: the container, for messages.

    Raises:
        InputError: there are no weights, or no options, or it is not clear which.
    """
    folders: dict[str, list[str]] = {}
    for name in sorted(names):
        folder, base = posixpath.split(name)
        if base and not base.startswith(".") and not folder.startswith("__MACOSX"):
            folders.setdefault(folder, []).append(base)
    weights = {folder: _weights(bases) for folder, bases in folders.items()}
    found = [folder for folder, candidates in weights.items() if candidates]
    if not found:
        raise InputError(_no_weights(source, folders))
    depth = min(map(_depth, found))
    nearest = [folder for folder in found if _depth(folder) == depth]
    candidates = [posixpath.join(folder, base) for folder in nearest for base in weights[folder]]
    if len(candidates) > 1:
        raise InputError(
            f"{source}: several files could be the weights: {', '.join(candidates)}; name options "
            "and weights one by one."
        )
    folder, name = posixpath.split(candidates[0])
    options = _options(folders[folder], name, f"{source}/{folder}".rstrip("/"))
    vocabulary = next((base for base in _VOCABULARIES if base in folders[folder]), None)
    return (
        posixpath.join(folder, options),
        candidates[0],
        None if vocabulary is None else posixpath.join(folder, vocabulary),
    )


def _depth(folder: str) -> int:
    return folder.count("/") + 1 if folder else 0


def _weights(bases: list[str]) -> list[str]:
    """The likeliest names; more than one when it is not clear."""
    for known in ("model.hdf5", "weights.hdf5"):
        if known in bases:
            return [known]
    hdf5 = [base for base in bases if base.endswith(_HDF5)]
    named = [base for base in hdf5 if os.path.splitext(base)[0].endswith("weights")]
    return named or hdf5


def _options(bases: list[str], weights: str, place: str) -> str:
    stem = os.path.splitext(weights)[0]
    # The options that a dump wrote for these weights stand above those of a training.
    beside = (f"{stem}.options.json", f"{stem.removesuffix('weights')}options.json")
    for known in (*beside, "options.json"):
        if known in bases:
            return known
    others = [base for base in bases if base.endswith("options.json")]
    if len(others) == 1:
        return others[0]
    found = f"several: {', '.join(others)}" if others else "none"
    raise InputError(f"{place}: options.json is expected beside {weights}; there is {found}.")


def _no_weights(source: str, folders: Mapping[str, list[str]]) -> str:
    bases = [base for folder in folders for base in folders[folder]]
    if "checkpoint" in bases or any(base.startswith("model.ckpt-") for base in bases):
        return (
            f"{source}: a training folder, which holds checkpoints: `bilm dump --save_dir {source} "
            "--model_dir FOLDER` writes a model for use."
        )
    if "encoder.pkl" in bases:
        return (
            f"{source}: a model of ELMoForManyLangs (encoder.pkl), which is another format than "
            f"weights in HDF5: `bilm convert {source} FOLDER` makes a model of it."
        )
    listed = ", ".join(bases[:8]) + (", ..." if len(bases) > 8 else "")
    return (
        f"{source}: a model has its weights in model.hdf5 or another .hdf5 file; there is "
        f"{listed or 'no file'}."
    )
