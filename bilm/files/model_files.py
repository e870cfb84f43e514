"""Find the files of a model: in a folder, a ZIP file or a training folder, or by a name.

Known containers: NLPL's ZIP files and folders (model.hdf5, options.json, vocab.txt or
vocab.txt.gz), our model folders with the same files, AllenNLP's pairs (..._options.json and
..._weights.hdf5), and training folders, ours or the original's. For names and addresses see
`bilm.files.named_models`.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from bilm.core.errors import InputError, shown
from bilm.core.options import Options
from bilm.files.file_choice import (
    HDF5,
    VOCABULARIES,
    Chosen,
    choose_files,
    dump_hint,
    files_beside,
    holds_checkpoint,
    option_names,
    softmax_names,
)
from bilm.files.named_models import local_source, require_known
from bilm.files.reading import OPTIONS_FILE, PathLike, require_file, substitute_for_a_file
from bilm.files.zip_files import extracted

OptionsSource = PathLike | Mapping[str, Any] | Options
ModelSource = PathLike | Sequence[Any]


class ModelFiles(NamedTuple):
    """The files of a model."""

    # options.json or its contents: for training with a checkpoint, otherwise for inference.
    options: OptionsSource
    weights: PathLike  # the HDF5 weights, or the prefix of a checkpoint
    vocabulary: PathLike | None  # None if missing; character models do not need one
    source: str  # the user's name of the model, for messages
    is_checkpoint: bool = False  # whether `weights` is a checkpoint
    softmax: PathLike | None = None  # a separate file with the softmax, if present

    def read_options(self) -> Options:
        """Read and check the options."""
        return read_options(self.options, training=self.is_checkpoint)


def read_options(options: OptionsSource, training: bool = False) -> Options:
    """Options, by default for inference, from a file or its contents; `Options` are unchanged."""
    if isinstance(options, Options):
        return options
    if isinstance(options, Mapping):
        return Options.from_dict(options, training)
    path = require_file(options, "options file")
    if _is_hdf5(path):
        raise InputError(
            f"{path}: the options must be a JSON file, got HDF5: are options and weights swapped?"
        )
    if content := substitute_for_a_file(path):
        raise InputError(f"{path}: the options must be a JSON file, got {content}.")
    return Options.from_file(path, training)


@contextlib.contextmanager
def open_model(
    source: ModelSource, *, weights_only: bool = False, with_softmax: bool = False
) -> Iterator[ModelFiles]:
    """The files of a model. The members of a ZIP file are extracted for the block.

    Args:
        source: a folder, a ZIP file, an HDF5 file with its options in the same folder, the prefix
            of a checkpoint, a name or an address (see `bilm.files.named_models`), or a pair
            (options, weights), whose options may be a path, an address, the contents of the file,
            or `Options`. A training folder stands for its newest intact checkpoint.
        weights_only: require HDF5 weights, and ignore a folder's checkpoints.
        with_softmax: also download the softmax of a published model.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        InputError: there is not exactly one model; it is a checkpoint, but weights are required;
            a ZIP file cannot be read; a checksum differs.
        ConnectionError: a model cannot be downloaded.
    """
    source = local_source(source, with_softmax=with_softmax)
    if not isinstance(source, str | os.PathLike):
        yield _pair(source)
        return
    path = os.fspath(source)
    require_known(path)
    if os.path.isdir(path):
        if holds_checkpoint(path) and not weights_only:
            from bilm.files.checkpoints import load_options_latest_checkpoint  # has TensorFlow

            yield _from_checkpoint(load_options_latest_checkpoint(path)[1], path)
        else:
            yield _in_folder(path)
    elif os.path.isfile(f"{path}.index"):
        if weights_only:
            folder = os.path.dirname(path) or os.curdir
            raise InputError(dump_hint(f"{path}: a checkpoint", folder))
        yield _from_checkpoint(path, path)
    elif _is_hdf5(require_file(path, "model")):
        folder, name = os.path.split(path)
        # Files with other names may belong to other weights.
        siblings = {*option_names(name), *VOCABULARIES, *softmax_names(name)}
        siblings &= set(os.listdir(folder or os.curdir))
        chosen = files_beside(sorted(siblings), "", name, folder or os.curdir)
        yield _files_in(chosen, folder, path)
    elif not zipfile.is_zipfile(path):
        content = substitute_for_a_file(path) or "not a ZIP file, or truncated"
        raise InputError(
            f"{path} must be a folder, a ZIP file, an HDF5 file, a checkpoint, or a pair of "
            f"options and weights; this file is {content}."
        )
    else:
        with extracted(path, "model", lambda names: choose_files(names, path)) as folder:
            yield _in_folder(folder)._replace(source=path)


def _pair(source: Sequence[Any]) -> ModelFiles:
    kinds = (str | os.PathLike | Mapping | Options, str | os.PathLike)
    if (
        not isinstance(source, Sequence)
        or len(source) != 2
        or not all(map(isinstance, source, kinds))
    ):
        raise InputError(
            "A model must be a folder, a ZIP file, a name, an address, or a pair (options, "
            f"weights), got {shown(source)}."
        )
    return ModelFiles(source[0], source[1], None, os.fspath(source[1]))


def _from_checkpoint(prefix: str, source: str) -> ModelFiles:
    folder = os.path.dirname(prefix)
    vocabularies = (os.path.join(folder, name) for name in VOCABULARIES)
    vocabulary = next(filter(os.path.isfile, vocabularies), None)
    return ModelFiles(os.path.join(folder, OPTIONS_FILE), prefix, vocabulary, source, True)


def _is_hdf5(path: str) -> bool:
    return path.endswith(HDF5) or h5py.is_hdf5(path)


def _in_folder(folder: str) -> ModelFiles:
    # Archives are often unpacked into a subfolder.
    paths = [*Path(folder).glob("*"), *Path(folder).glob("*/*")]
    names = [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
    return _files_in(choose_files(names, folder), folder, folder)


def _files_in(chosen: Chosen, folder: str, source: str) -> ModelFiles:
    """The files `chosen` by name in a folder."""
    options, weights = (os.path.join(folder, name) for name in chosen[:2])
    vocabulary, softmax = (name and os.path.join(folder, name) for name in chosen[2:])
    return ModelFiles(options, weights, vocabulary, source, softmax=softmax)
