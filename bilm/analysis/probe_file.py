"""The file of results of a probing run, from which a run that was stopped continues."""

from __future__ import annotations

import os
import zlib
from typing import Any

from bilm.analysis.probing import ProbeCell
from bilm.errors import InputError
from bilm.files import PathLike, read_json_object, require_file, write_json

_FORMAT = "bilm probe 1"


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
        InputError: the file is no such file, or has other settings.
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
        try:
            cells = [ProbeCell(**cell) for cell in value["cells"]]
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}: its cells are damaged: {error}.") from error
        self.cells = {cell.key: cell for cell in cells}


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
