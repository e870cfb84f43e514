"""Choosing a model's options, weights and vocabulary among the files of a folder or ZIP file."""

from __future__ import annotations

import os
import posixpath
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bilm.core.errors import InputError
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, WEIGHTS_FILE, PathLike

VOCABULARIES = (VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz", f"{VOCABULARY_FILE}.xz")
HDF5 = (".hdf5", ".h5")
STATE_FILE = "checkpoint"  # of a training folder: the names of its checkpoints


class Chosen(NamedTuple):
    """The names of a model's files."""

    options: str
    weights: str
    vocabulary: str | None
    softmax: str | None  # a separate file with the softmax


def choose_files(names: Iterable[str], source: str) -> Chosen:
    """Choose options, weights and vocabulary among a container's files, paths with "/"."""
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
    return files_beside(folders[folder], folder, name, f"{source}/{folder}".rstrip("/"))


def holds_checkpoint(save_dir: PathLike) -> bool:
    """Whether a folder holds or once held a checkpoint."""
    return Path(save_dir, STATE_FILE).exists() or any(Path(save_dir).glob("model.ckpt-*.index"))


def files_beside(bases: list[str], folder: str, weights: str, where: str) -> Chosen:
    """The files that belong to weights in the same folder."""

    def first(names: Iterable[str]) -> str | None:
        return next((posixpath.join(folder, name) for name in names if name in bases), None)

    options = posixpath.join(folder, _options(bases, weights, where))
    weights_path = posixpath.join(folder, weights)
    return Chosen(options, weights_path, first(VOCABULARIES), first(softmax_names(weights)))


def _weights(bases: list[str]) -> list[str]:
    """The likeliest names; several if ambiguous."""
    for name in (WEIGHTS_FILE, "weights.hdf5"):
        if name in bases:
            return [name]
    hdf5 = [base for base in bases if base.endswith(HDF5) and "softmax" not in base]
    named = [base for base in hdf5 if os.path.splitext(base)[0].endswith("weights")]
    return named or hdf5


def softmax_names(weights: str) -> tuple[str, ...]:
    """The possible names of a softmax file next to weights: elmo_softmax_weights.hdf5 next to
    elmo_weights.hdf5."""
    stem, ending = os.path.splitext(weights)
    return f"{stem.removesuffix('weights')}softmax_weights{ending}", f"softmax_weights{ending}"


def option_names(weights: str) -> tuple[str, ...]:
    """The possible names of the options of weights; files of `bilm dump` before training files."""
    stem = os.path.splitext(weights)[0]
    return f"{stem}.options.json", f"{stem.removesuffix('weights')}options.json", OPTIONS_FILE


def _options(bases: list[str], weights: str, where: str) -> str:
    for name in option_names(weights):
        if name in bases:
            return name
    others = [base for base in bases if base.endswith("options.json")]
    if len(others) == 1:
        return others[0]
    present = f"several: {', '.join(others)}" if others else "none"
    raise InputError(f"{where}: {OPTIONS_FILE} must be next to {weights}; there is {present}.")


def _no_weights(source: str, folders: Mapping[str, list[str]]) -> str:
    bases = [base for folder in folders for base in folders[folder]]
    if "checkpoint" in bases or any(base.startswith("model.ckpt-") for base in bases):
        return dump_hint(f"{source}: a training folder, which holds checkpoints", source)
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


def dump_hint(what: str, folder: str) -> str:
    """The message for a training folder, `what`, where a model folder is required."""
    command = f"bilm dump --save_dir {shlex.quote(folder)} --model_dir FOLDER"
    return f"{what}: `{command}` writes a model for use."
