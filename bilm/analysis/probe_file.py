"""The file of results of a probing run, from which a run that was stopped continues."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

from bilm.analysis.probing import ProbeCell
from bilm.core.errors import InputError
from bilm.files.reading import PathLike, read_json_object, require_file
from bilm.files.writing import write_json

_FORMAT = "bilm probe 1"
_LARGEST = sys.float_info.max


class ProbeFile:
    """Cells of a table, kept in a JSON file that is written anew with each of them.

    The file is an object with "format", "settings" and "cells", a list of `ProbeCell.to_json`.

    Args:
        path: the file; None keeps nothing.
        settings: what the cells were measured on and with, JSON-able; a file that is there goes
            on only if it has the same.
        fresh: begin anew even if the file is there.

    Attributes:
        cells: by their keys.

    Raises:
        InputError: the file is no such file, has other settings, or a cell of it is damaged.
    """

    def __init__(
        self, path: PathLike | None, settings: dict[str, Any], *, fresh: bool = False
    ) -> None:
        self.path = path
        self.cells: dict[tuple[str, int | None, int], ProbeCell] = {}
        self._settings = settings
        if path is not None and os.path.exists(path) and not fresh:
            self._read(path)

    def add(self, cell: ProbeCell) -> None:
        """Keep one more cell."""
        self.cells[cell.key] = cell
        if self.path is not None:
            cells = [cell.to_json() for cell in self.cells.values()]
            write_json(self.path, {"format": _FORMAT, "settings": self._settings, "cells": cells})

    def _read(self, path: PathLike) -> None:
        value = read_json_object(path, "file of results")
        if value.get("format") != _FORMAT or not isinstance(value.get("settings"), dict):
            raise InputError(f"{path}: not a file of results of `bilm probe`.")
        theirs = value["settings"]
        names = sorted({*theirs, *self._settings})
        other = [name for name in names if theirs.get(name) != self._settings.get(name)]
        if other:
            said = ", ".join(
                f"{name} {theirs.get(name)!r} (here {self._settings.get(name)!r})" for name in other
            )
            raise InputError(
                f"{path}: results of a run with other settings: {said}; name another file, or "
                "--force begins anew."
            )
        cells = value.get("cells")
        if not isinstance(cells, list):
            raise InputError(f"{path}: cells: a list is expected, not {type(cells).__name__}.")
        for number, cell in enumerate(cells):
            if not _is_cell(cell):
                raise InputError(f"{path}: cells: number {number} is damaged: {cell!r}.")
        if len({len(cell["weights"]) for cell in cells if cell.get("weights")}) > 1:
            raise InputError(f"{path}: cells: mixes of different numbers of layers.")
        self.cells = {cell.key: cell for cell in (ProbeCell(**cell) for cell in cells)}


def _is_cell(value: Any) -> bool:
    """Whether a JSON value is that of a `ProbeCell`."""
    needed = {"representation", "size", "seed", "accuracy", "macro_f1"}
    if not isinstance(value, dict) or not needed <= set(value) <= set(_CELL):
        return False
    return all(_CELL[name](one) for name, one in value.items())


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


_CELL: dict[str, Callable[[Any], bool]] = {
    "representation": lambda x: isinstance(x, str),
    "size": lambda x: x is None or _is_count(x),
    "seed": _is_count,
    "accuracy": _is_share,
    "macro_f1": _is_share,
    "control_accuracy": lambda x: x is None or _is_share(x),
    "weights": lambda x: x is None or (isinstance(x, list) and all(map(_is_number, x))),
    "gamma": lambda x: x is None or _is_number(x),
}


def checksum(path: PathLike) -> str:
    """A short text that differs for files of other content.

    Raises:
        FileNotFoundError: there is no such file.
    """
    value = 0
    with open(require_file(path, "file"), "rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return f"{value:08x}"
