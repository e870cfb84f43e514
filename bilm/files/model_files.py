"""Where the files of a model are: in a folder or a ZIP file, in a training folder, or named.

Whatever takes a model finds it here. Known containers: NLPL's ZIP files and folders (model.hdf5,
options.json, vocab.txt or vocab.txt.gz), our own model folders, which are alike, AllenNLP's pairs
(..._options.json and ..._weights.hdf5), and folders of checkpoints, ours or the original's.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bilm.core.errors import InputError, shown
from bilm.core.options import Options
from bilm.files.archives import extract, open_archive
from bilm.files.checkpoints import holds_checkpoint, load_options_latest_checkpoint
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, WEIGHTS_FILE, PathLike, require_file

OptionsSource = PathLike | Mapping[str, Any] | Options
ModelSource = PathLike | Sequence[Any]

_VOCABULARIES = (VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz", f"{VOCABULARY_FILE}.xz")
Chosen = tuple[str, str, str | None]  # options, weights, vocabulary
_HDF5 = (".hdf5", ".h5")
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class ModelFiles(NamedTuple):
    """The files of a model."""

    # options.json or its contents: of a checkpoint those of the training, else for inference.
    options: OptionsSource
    weights: PathLike  # the HDF5 weights, or prefix of the checkpoint
    vocabulary: PathLike | None  # None if there is none, which models of characters do without
    source: str  # what the user named, for messages
    is_checkpoint: bool = False  # which of both `weights` is

    def read_options(self) -> Options:
        """Read and check the options.

        Raises:
            FileNotFoundError, InputError: there is no such file, or it is not right.
        """
        return read_options(self.options, training=self.is_checkpoint)


def read_options(options: OptionsSource, training: bool = False) -> Options:
    """Options, by default for inference, from a file, from its contents, or as they are."""
    if isinstance(options, Options):
        return options
    if isinstance(options, Mapping):
        return Options.from_dict(options, training)
    return Options.from_file(options, training)


@contextlib.contextmanager
def open_model(source: ModelSource, *, weights_only: bool = False) -> Iterator[ModelFiles]:
    """The files of a model; those of a ZIP file are there while the block runs, then no more.

    Args:
        source: a folder, a ZIP file, an HDF5 file with its options beside it, the prefix of a
            checkpoint, or a pair (options, weights), whose options may be a path, the contents of
            the file, or `Options`. Of a training folder it is the newest checkpoint that is whole.
        weights_only: only weights in HDF5 will do, and a folder's checkpoints are passed over.

    Raises:
        FileNotFoundError: there is nothing under that name.
        InputError: there is no model, or there are several; it is a checkpoint, and only weights
            will do; a ZIP file cannot be read.
    """
    if not isinstance(source, str | os.PathLike):
        yield _pair(source)
        return
    path = os.fspath(source)
    if os.path.isdir(path):
        if holds_checkpoint(path) and not weights_only:
            yield _from_checkpoint(load_options_latest_checkpoint(path)[1], path)
        else:
            yield _in_folder(path)
    elif os.path.isfile(f"{path}.index"):
        if weights_only:
            folder = os.path.dirname(path) or os.curdir
            raise InputError(_not_dumped(f"{path}: a checkpoint", folder))
        yield _from_checkpoint(path, path)
    elif _is_hdf5(require_file(path, "model")):
        folder, name = os.path.split(path)
        # Other names in the folder may be of other weights.
        known = {*_option_names(name), *_VOCABULARIES} & set(os.listdir(folder or os.curdir))
        chosen = _beside(sorted(known), "", name, folder or os.curdir)
        yield _located(chosen, partial(os.path.join, folder), path)
    elif not zipfile.is_zipfile(path):
        raise InputError(
            f"{path}: a folder, a ZIP file, an HDF5 file, a checkpoint, or a pair of options and "
            "weights is expected; this is a file that is no ZIP file, or one that is cut off."
        )
    else:
        with _unzipped(path) as files:
            yield files


def _pair(source: Sequence[Any]) -> ModelFiles:
    kinds = (str | os.PathLike | Mapping | Options, str | os.PathLike)
    if (
        not isinstance(source, Sequence)
        or len(source) != 2
        or not all(map(isinstance, source, kinds))
    ):
        raise InputError(
            f"A model is a folder, a ZIP file, or a pair (options, weights), not {shown(source)}."
        )
    return ModelFiles(source[0], source[1], None, os.fspath(source[1]))


def _from_checkpoint(prefix: str, source: str) -> ModelFiles:
    folder = os.path.dirname(prefix)
    vocabularies = [os.path.join(folder, name) for name in _VOCABULARIES]
    vocabulary = next(filter(os.path.isfile, vocabularies), None)
    return ModelFiles(os.path.join(folder, OPTIONS_FILE), prefix, vocabulary, source, True)


def _is_hdf5(path: str) -> bool:
    if path.endswith(_HDF5):
        return True
    with open(path, "rb") as file:
        return file.read(len(_HDF5_SIGNATURE)) == _HDF5_SIGNATURE


def _in_folder(folder: str) -> ModelFiles:
    # Archives are often unpacked into a folder of their own.
    found = [*Path(folder).glob("*"), *Path(folder).glob("*/*")]
    names = [path.relative_to(folder).as_posix() for path in found if path.is_file()]
    return _located(choose_files(names, folder), partial(os.path.join, folder), folder)


def _located(chosen: Chosen, locate: Callable[[str], str], source: str) -> ModelFiles:
    options, weights, vocabulary = chosen
    return ModelFiles(locate(options), locate(weights), vocabulary and locate(vocabulary), source)


@contextlib.contextmanager
def _unzipped(path: str) -> Iterator[ModelFiles]:
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        with open_archive(path, "model") as archive:
            chosen = choose_files(archive.namelist(), path)
            files = _located(chosen, partial(extract, archive, folder=folder), path)
        try:
            yield files
        except InputError as error:
            # The user knows the archive, not the folder it was unpacked into.
            text = str(error).replace(folder + os.sep, f"{path}: ")
            raise InputError(text) from error


def choose_files(names: Iterable[str], source: str) -> Chosen:
    """Which of a container's files, paths with "/", are options, weights and vocabulary.

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
    depths = {folder: bool(folder) + folder.count("/") for folder in found}
    nearest = [folder for folder in found if depths[folder] == min(depths.values())]
    candidates = [posixpath.join(folder, base) for folder in nearest for base in weights[folder]]
    if len(candidates) > 1:
        raise InputError(
            f"{source}: several files could be the weights: {', '.join(candidates)}; name options "
            "and weights one by one."
        )
    folder, name = posixpath.split(candidates[0])
    return _beside(folders[folder], folder, name, f"{source}/{folder}".rstrip("/"))


def _beside(bases: list[str], folder: str, weights: str, where: str) -> Chosen:
    """The files that go with weights in the same folder."""
    vocabulary = next((base for base in _VOCABULARIES if base in bases), None)
    return (
        posixpath.join(folder, _options(bases, weights, where)),
        posixpath.join(folder, weights),
        None if vocabulary is None else posixpath.join(folder, vocabulary),
    )


def _weights(bases: list[str]) -> list[str]:
    """The likeliest names; more than one when it is not clear."""
    for known in (WEIGHTS_FILE, "weights.hdf5"):
        if known in bases:
            return [known]
    hdf5 = [base for base in bases if base.endswith(_HDF5)]
    named = [base for base in hdf5 if os.path.splitext(base)[0].endswith("weights")]
    return named or hdf5


def _option_names(weights: str) -> tuple[str, ...]:
    """The names of the options of weights; those that a dump wrote before those of a training."""
    stem = os.path.splitext(weights)[0]
    return f"{stem}.options.json", f"{stem.removesuffix('weights')}options.json", OPTIONS_FILE


def _options(bases: list[str], weights: str, where: str) -> str:
    for known in _option_names(weights):
        if known in bases:
            return known
    others = [base for base in bases if base.endswith("options.json")]
    if len(others) == 1:
        return others[0]
    found = f"several: {', '.join(others)}" if others else "none"
    raise InputError(f"{where}: {OPTIONS_FILE} is expected beside {weights}; there is {found}.")


def _no_weights(source: str, folders: Mapping[str, list[str]]) -> str:
    bases = [base for folder in folders for base in folders[folder]]
    if "checkpoint" in bases or any(base.startswith("model.ckpt-") for base in bases):
        return _not_dumped(f"{source}: a training folder, which holds checkpoints", source)
    if "encoder.pkl" in bases:
        return (
            f"{source}: a model of ELMoForManyLangs (encoder.pkl), which is another format than "
            f"weights in HDF5: `bilm convert {source} FOLDER` makes a model of it."
        )
    listed = ", ".join(bases[:8]) + (", ..." if len(bases) > 8 else "")
    return (
        f"{source}: a model has its weights in {WEIGHTS_FILE} or another .hdf5 file; there is "
        f"{listed or 'no file'}."
    )


def _not_dumped(what: str, folder: str) -> str:
    return f"{what}: `bilm dump --save_dir {folder} --model_dir FOLDER` writes a model for use."
