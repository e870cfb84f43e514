"""Vectors of occurrences as a folder for TensorBoard's Embedding Projector."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bilm.analysis.occurrences import Occurrences
from bilm.analysis.projection import layer_numbers
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write_all, folder_made

CONFIG_FILE = "projector_config.pbtxt"
_METADATA_FILE = "metadata.tsv"
# A protocol buffer in text form.
_ENTRY = """embeddings {{
  tensor_name: "{name}"
  tensor_shape: {rows}
  tensor_shape: {dim}
  tensor_path: "{name}.tsv"
  metadata_path: "metadata.tsv"
}}
"""


def write_projector(
    folder: PathLike,
    occurrences: Occurrences,
    *,
    layers: Sequence[int | str] | None = None,
    replace: bool = False,
) -> None:
    """Write a folder for `tensorboard --logdir FOLDER`; other files in it are kept.

    The files are the vectors of each layer (layer-0.tsv and so on, one line per occurrence),
    metadata.tsv with the word, label, cluster and sentence of each occurrence, and
    projector_config.pbtxt, which lists these files and is written last.

    Args:
        folder: folder to write to; created if missing.
        layers: numbers of layers, or "top"; None for all.
        replace: overwrite these files, if projector_config.pbtxt exists.
    """
    numbers = layer_numbers(occurrences, range(occurrences.n_layers) if layers is None else layers)
    columns: dict[str, Sequence[str]] = {
        "word": [occurrences.word(k) for k in range(len(occurrences))],
        "label": occurrences.labels or (),
        "cluster": occurrences.clusters or (),
        "line": [occurrences.in_context(k, 12) for k in range(len(occurrences))],
    }
    given = {name: values for name, values in columns.items() if values}
    rows = [[*given], *zip(*given.values(), strict=True)]
    table = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    names = [CONFIG_FILE, _METADATA_FILE, *(f"layer-{number}.tsv" for number in numbers)]
    paths = [os.path.join(folder, name) for name in names]
    overwrite = replace and os.path.isfile(paths[0])
    with folder_made(folder), atomic_write_all(paths, overwrite=overwrite) as temporaries:
        config, metadata, *files = map(Path, temporaries)
        entries = ""
        for number, file in zip(numbers, files, strict=True):
            vectors, name = occurrences.layer(number), f"layer-{number}"
            entries += _ENTRY.format(name=name, rows=len(vectors), dim=vectors.shape[1])
            with file.open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines("\t".join(f"{x:.6g}" for x in row) + "\n" for row in vectors)
        metadata.write_bytes(table.encode("utf-8", "backslashreplace"))
        config.write_text(entries, encoding="utf-8")
