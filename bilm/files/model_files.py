"""Find the files of a model: in a folder, a ZIP file or a training folder, or by a name.

Containers: NLPL's ZIP files and folders (model.hdf5, options.json, vocab.txt or vocab.txt.gz), our
model folders with the same files, AllenNLP's pairs (..._options.json and ..._weights.hdf5), and
training folders, ours or the original's. For names and addresses see `bilm.files.named_models`.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bilm.core.errors import InputError, shown
from bilm.core.options import Options
from bilm.files.named_models import local_source, require_known
from bilm.files.reading import (
    HDF5,
    OPTIONS_FILE,
    STATE_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    PathLike,
    holds_checkpoint,
    require_file,
    substitute_for_a_file,
)
from bilm.files.zip_files import extracted

OptionsSource = PathLike | Mapping[str, Any] | Options
ModelSource = PathLike | Sequence[Any]
_VOCABULARIES = (VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz", f"{VOCABULARY_FILE}.xz")


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
    content = substitute_for_a_file(path)
    if _is_hdf5(path):
        content = "HDF5: are options and weights swapped?"
    if content:
        end = "" if content.endswith("?") else "."
        raise InputError(f"{path}: the options must be a JSON file, got {content}{end}")
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
    folder, name = os.path.split(path)
    if os.path.isdir(path):
        if holds_checkpoint(path) and not weights_only:
            from bilm.files.checkpoints import load_options_latest_checkpoint  # has TensorFlow

            yield _from_checkpoint(load_options_latest_checkpoint(path)[1], path)
        else:
            yield _in_folder(path, path)
    elif os.path.isfile(f"{path}.index"):
        if weights_only:
            raise InputError(_dump_hint(f"{path}: a checkpoint", folder or os.curdir))
        yield _from_checkpoint(path, path)
    elif _is_hdf5(require_file(path, "model")):
        # Files with other names may belong to other weights.
        siblings = {*_option_names(name), *_VOCABULARIES, *_softmax_names(name)}
        siblings &= set(os.listdir(folder or os.curdir))
        yield _files_at(folder, _siblings(siblings, name, folder or os.curdir), path)
    elif not zipfile.is_zipfile(path):
        content = substitute_for_a_file(path) or "not a ZIP file, or truncated"
        raise InputError(
            f"{path} must be a folder, a ZIP file, an HDF5 file, a checkpoint, or a pair of "
            f"options and weights; this file is {content}."
        )
    else:
        with extracted(path, "model", lambda names: choose_files(names, path)) as temporary:
            yield _in_folder(temporary, path)


def _pair(source: Sequence[Any]) -> ModelFiles:
    kinds = (str | os.PathLike | Mapping | Options, str | os.PathLike)
    is_pair = isinstance(source, Sequence) and len(source) == 2
    if not is_pair or not all(map(isinstance, source, kinds)):
        raise InputError(
            "A model must be a folder, a ZIP file, a name, an address, or a pair (options, "
            f"weights), got {shown(source)}."
        )
    return ModelFiles(source[0], source[1], None, os.fspath(source[1]))


def _from_checkpoint(prefix: str, source: str) -> ModelFiles:
    folder = os.path.dirname(prefix)
    vocabularies = (os.path.join(folder, name) for name in _VOCABULARIES)
    vocabulary = next(filter(os.path.isfile, vocabularies), None)
    return ModelFiles(os.path.join(folder, OPTIONS_FILE), prefix, vocabulary, source, True)


def _is_hdf5(path: str) -> bool:
    if path.endswith(HDF5):
        return True
    with open(path, "rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


def _in_folder(folder: str, source: str) -> ModelFiles:
    # Archives are often unpacked into a subfolder.
    paths = [*Path(folder).glob("*"), *Path(folder).glob("*/*")]
    names = [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
    return _files_at(folder, choose_files(names, folder), source)


def _files_at(folder: str, names: Sequence[str | None], source: str) -> ModelFiles:
    options, weights, vocabulary, softmax = (n and os.path.join(folder, n) for n in names)
    return ModelFiles(options or "", weights or "", vocabulary, source, softmax=softmax)


def choose_files(names: Iterable[str], source: str) -> tuple[str, str, str | None, str | None]:
    """Choose options, weights, vocabulary and a separate softmax among the files of a container,
    paths with "/"; the last two may be missing."""
    folders: dict[str, list[str]] = {}
    for name in sorted(names):
        folder, base = posixpath.split(name)
        if base and not base.startswith(".") and not folder.startswith("__MACOSX"):
            folders.setdefault(folder, []).append(base)
    candidates = [
        (bool(folder) + folder.count("/"), folder, base)
        for folder, bases in folders.items()
        for base in _weights(bases)
    ]
    if not candidates:
        raise InputError(_no_weights(source, folders))
    nearest = [(folder, base) for depth, folder, base in candidates if depth == min(candidates)[0]]
    if len(nearest) > 1:
        listed = ", ".join(posixpath.join(*names) for names in nearest)
        raise InputError(
            f"{source} must hold one weights file, got {listed}: give the pair (options, weights) "
            "instead."
        )
    folder, name = nearest[0]
    chosen = _siblings(folders[folder], name, f"{source}/{folder}".rstrip("/"))
    options, weights, *others = (base and posixpath.join(folder, base) for base in chosen)
    return options or "", weights or "", others[0], others[1]


def _weights(bases: list[str]) -> list[str]:
    """The likeliest names; several if ambiguous."""
    for name in (WEIGHTS_FILE, "weights.hdf5"):
        if name in bases:
            return [name]
    hdf5 = [base for base in bases if base.endswith(HDF5) and "softmax" not in base]
    named = [base for base in hdf5 if os.path.splitext(base)[0].endswith("weights")]
    return named or hdf5


def _siblings(bases: Iterable[str], weights: str, where: str) -> tuple[str, str, Any, Any]:
    """The names of the files that belong to weights in the same folder, as for `choose_files`."""
    bases = sorted(bases)
    others = [base for base in bases if base.endswith("options.json")]
    names = [name for name in _option_names(weights) if name in bases] or others
    if len(names) != 1 and names == others:
        present = f"several: {', '.join(others)}" if others else "none"
        raise InputError(f"{where}: {OPTIONS_FILE} must be next to {weights}; there is {present}.")
    vocabulary = next((name for name in _VOCABULARIES if name in bases), None)
    softmax = next((name for name in _softmax_names(weights) if name in bases), None)
    return names[0], weights, vocabulary, softmax


def _softmax_names(weights: str) -> tuple[str, ...]:
    """elmo_softmax_weights.hdf5 next to elmo_weights.hdf5."""
    stem, ending = os.path.splitext(weights)
    return f"{stem.removesuffix('weights')}softmax_weights{ending}", f"softmax_weights{ending}"


def _option_names(weights: str) -> tuple[str, ...]:
    """Files of `bilm dump` before training files."""
    stem = os.path.splitext(weights)[0]
    return f"{stem}.options.json", f"{stem.removesuffix('weights')}options.json", OPTIONS_FILE


def _no_weights(source: str, folders: Mapping[str, list[str]]) -> str:
    bases = [base for folder in folders for base in folders[folder]]
    if STATE_FILE in bases or any(base.startswith("model.ckpt-") for base in bases):
        return _dump_hint(f"{source}: a training folder, which holds checkpoints", source)
    if "encoder.pkl" in bases:
        return (
            f"{source} must be converted: ELMoForManyLangs models (encoder.pkl) have another "
            f"format. Run `bilm convert {shlex.quote(source)} FOLDER`."
        )
    listed = ", ".join(bases[:8]) + (", ..." if len(bases) > 8 else "")
    return (
        f"{source} must hold {WEIGHTS_FILE} or another .hdf5 file with weights, got "
        f"{listed or 'no file'}."
    )


def _dump_hint(what: str, folder: str) -> str:
    """The message for a training folder, `what`, where a model folder is required."""
    command = f"bilm dump --save_dir {shlex.quote(folder)} --model_dir FOLDER"
    return f"{what}: `{command}` writes a model for use."
