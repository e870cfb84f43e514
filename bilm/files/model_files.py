"""Find the files of a model: in a folder, a ZIP file or a training folder, or by a name.

Containers: NLPL's ZIP files and folders (model.hdf5, options.json, vocab.txt or vocab.txt.gz), our
model folders with the same files, AllenNLP's pairs (..._options.json and ..._weights.hdf5), and
training folders, ours or the original's. For names and addresses see `bilm.files.named_models`.
"""

import contextlib
import errno
import os
import shlex
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bilm.core.errors import InputError, shown
from bilm.core.options import Options
from bilm.files.named_models import local_source, require_known
from bilm.files.reading import (
    HDF5,
    OPTIONS_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    PathLike,
    add_input,
    holds_checkpoint,
    require_file,
    substitute_for_a_file,
)

OptionsSource = PathLike | Mapping[str, Any] | Options
ModelSource = PathLike | Sequence[Any]
# Exceptions of zipfile for damaged members, passwords and unknown compression methods.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, LookupError, struct.error,
    OSError,  # of a seek before the start of the file
)  # fmt: skip
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
    if os.path.isdir(path):
        if holds_checkpoint(path) and not weights_only:
            from bilm.files.checkpoints import load_options_latest_checkpoint  # has TensorFlow

            yield _from_checkpoint(load_options_latest_checkpoint(path)[1], path)
        else:
            yield _from_weights(_find_weights(Path(path), path), path)
    elif os.path.isfile(f"{path}.index"):
        if weights_only:
            folder = os.path.dirname(path) or os.curdir
            raise InputError(_dump_hint(f"{path}: a checkpoint", folder))
        yield _from_checkpoint(path, path)
    elif _is_hdf5(require_file(path, "model")):
        yield _from_weights(Path(path), path)
    elif zipfile.is_zipfile(path):
        with extracted(path, "model") as temporary:
            yield _from_weights(_find_weights(Path(temporary), path), path)
    else:
        content = substitute_for_a_file(path) or "not a ZIP file, or truncated"
        raise InputError(
            f"{path} must be a folder, a ZIP file, an HDF5 file, a checkpoint, or a pair of "
            f"options and weights; this file is {content}."
        )


@contextlib.contextmanager
def extracted(path: PathLike, what: str) -> Iterator[str]:
    """A temporary folder with the members of a ZIP file, for the block. Errors in the block name
    the ZIP file instead of the folder; `what` describes it."""
    source = require_file(path, what)
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        try:
            with zipfile.ZipFile(source) as archive:
                archive.extractall(folder)  # drops .. and absolute paths from the names
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise InputError(
                f"{source}: the ZIP file cannot be read: {error!r}. Delete it and get it again."
            ) from error
        try:
            yield folder
        except (InputError, FileNotFoundError) as error:
            text = str(error).replace(folder + os.sep, f"{source}: ").replace(folder, source)
            raise type(error)(text) from error


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
    folder = Path(prefix).parent
    options = str(folder / OPTIONS_FILE)
    return ModelFiles(options, prefix, _first(folder, *_VOCABULARIES), source, True)


def _is_hdf5(path: str) -> bool:
    if path.endswith(HDF5):
        return True
    with open(path, "rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


def _from_weights(weights: Path, source: str) -> ModelFiles:
    """The model whose other files are next to its weights."""
    folder, stem, ending = weights.parent, weights.stem, weights.suffix
    start = stem.removesuffix("weights")  # elmo_weights.hdf5 and elmo_options.json
    # `bilm dump` writes the first one next to the options of the training.
    options = _first(folder, f"{stem}.options.json", f"{start}options.json", OPTIONS_FILE)
    if options is None:
        # The names of other options are clear only if there is no other model.
        others = sorted(map(str, folder.glob("*options.json")))
        if len(others) != 1 or _likeliest_weights(folder) != [weights]:
            present = ", ".join(map(os.path.basename, others)) or "none"
            raise InputError(
                f"{folder}: {OPTIONS_FILE} must be next to {weights.name}; there is {present}."
            )
        options = others[0]
    softmax = _first(folder, f"{start}softmax_weights{ending}", f"softmax_weights{ending}")
    return ModelFiles(
        options, str(weights), _first(folder, *_VOCABULARIES), source, softmax=softmax
    )


def _first(folder: Path, *names: str) -> str | None:
    """The path of the first name that is a file in a folder. It is an input, even if nothing in it
    is needed, as of a vocabulary whose words the weights hold."""
    path = next((str(folder / name) for name in names if (folder / name).is_file()), None)
    if path is not None:
        add_input(path)
    return path


def _find_weights(folder: Path, source: str) -> Path:
    """The weights file of a folder, or of its subfolders: archives are often unpacked into one."""
    subfolders = sorted(path for path in folder.glob("*/") if path.name != "__MACOSX")
    for folders in ([folder], subfolders):
        weights = [path for inner in folders for path in _likeliest_weights(inner)]
        if len(weights) == 1:
            return weights[0]
        if weights:
            listed = ", ".join(path.relative_to(folder).as_posix() for path in weights)
            raise InputError(
                f"{source} must hold one weights file, got {listed}: give the pair (options, "
                "weights) instead."
            )
    raise InputError(_no_weights(folder, source))


def _likeliest_weights(folder: Path) -> list[Path]:
    """The weights files in a folder with the likeliest names; several if ambiguous."""
    files = sorted(path for path in folder.glob("[!.]*") if path.suffix in HDF5 and path.is_file())
    for name in (WEIGHTS_FILE, "weights.hdf5"):
        if folder / name in files:
            return [folder / name]
    files = [path for path in files if "softmax" not in path.name]
    return [path for path in files if path.stem.endswith("weights")] or files


def _no_weights(folder: Path, source: str) -> str:
    if holds_checkpoint(folder):
        return _dump_hint(f"{source}: a training folder, which holds checkpoints", source)
    paths = sorted([*folder.glob("*"), *folder.glob("*/*")])
    names = [path.name for path in paths if path.is_file()]
    if "encoder.pkl" in names:
        return (
            f"{source} must be converted: ELMoForManyLangs models (encoder.pkl) have another "
            f"format. Run `bilm convert {shlex.quote(source)} FOLDER`."
        )
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return (
        f"{source} must hold {WEIGHTS_FILE} or another .hdf5 file with weights, got "
        f"{listed or 'no file'}."
    )


def _dump_hint(what: str, folder: str) -> str:
    """The message for a training folder, `what`, where a model folder is required."""
    command = f"bilm dump --save_dir {shlex.quote(folder)} --model_dir FOLDER"
    return f"{what}: `{command}` writes a model for use."
