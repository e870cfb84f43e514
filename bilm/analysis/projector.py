"""Vectors of occurrences as a folder for TensorBoard's Embedding Projector."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from bilm.analysis.occurrences import Occurrences
from bilm.analysis.projection import layer_numbers
from bilm.core.errors import InputError
from bilm.files.reading import PathLike
from bilm.files.writing import folder_in_place

CONFIG_FILE = "projector_config.pbtxt"
_METADATA_FILE = "metadata.tsv"


def write_projector(
    folder: PathLike,
    occurrences: Occurrences,
    *,
    layers: Sequence[int | str] | None = None,
    groups: Sequence[int] | None = None,
    replace: bool = False,
) -> None:
    """Write a folder that `tensorboard --logdir FOLDER` shows, and that appears whole or not.

    It holds the vectors of each layer as they are (layer-0.tsv and so on, a line for each
    occurrence), metadata.tsv with the word, label, group and line of each, and
    projector_config.pbtxt, which names them.

    Args:
        folder: where to write.
        occurrences: what is written.
        layers: numbers of layers, or "top"; None for all.
        groups: the number of a group for each occurrence.
        replace: replace a folder that holds these files and nothing else.

    Raises:
        InputError: the folder is there already, or the groups or layers are not of the occurrences.
    """
    if groups is not None and len(groups) != len(occurrences):
        raise InputError(f"groups: {len(occurrences)} are expected, not {len(groups)}.")
    numbers = layer_numbers(occurrences, layers)
    vectors = {f"layer-{number}": occurrences.layer(number) for number in numbers}
    files = (CONFIG_FILE, _METADATA_FILE, "layer-*.tsv")
    with folder_in_place(folder, files if replace else ()) as temporary:
        for name, rows in vectors.items():
            with _new_file(temporary, f"{name}.tsv") as file:
                file.writelines("\t".join(f"{value:.6g}" for value in row) + "\n" for row in rows)
        with _new_file(temporary, _METADATA_FILE) as file:
            _write_metadata(file, occurrences, groups)
        with _new_file(temporary, CONFIG_FILE) as file:
            for name, rows in vectors.items():
                file.write(_embedding(name, rows.shape))


def _new_file(folder: str, name: str) -> TextIO:
    return open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n")


def _write_metadata(file: TextIO, occurrences: Occurrences, groups: Sequence[int] | None) -> None:
    """A line for each occurrence under a header, which the projector expects of several columns."""
    labels = occurrences.labels
    names = ["word"] + ["label"] * (labels is not None) + ["group"] * (groups is not None)
    file.write("\t".join([*names, "line"]) + "\n")
    for number in range(len(occurrences)):
        values = [occurrences.word(number)]
        if labels is not None:
            values.append(labels[number])
        if groups is not None:
            values.append(str(int(groups[number])))
        values.append(occurrences.in_context(number, 12))
        file.write("\t".join(" ".join(value.split()) for value in values) + "\n")


def _embedding(name: str, shape: tuple[int, ...]) -> str:
    """An entry of the configuration, a protocol buffer in text form."""
    rows, dim = shape
    return (
        "embeddings {\n"
        f'  tensor_name: "{name}"\n'
        f"  tensor_shape: {rows}\n"
        f"  tensor_shape: {dim}\n"
        f'  tensor_path: "{name}.tsv"\n'
        f'  metadata_path: "{_METADATA_FILE}"\n'
        "}\n"
    )
