"""The log of a run: a JSON object a line, for whatever reads or plots it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from bilm.errors import InputError
from bilm.files import PathLike, atomic_write, read_lines

LOG_FILE = "train_log.jsonl"
_PREVIOUS = "train_log.previous.jsonl"


class Log(Protocol):
    """What takes the facts of a run."""

    def go_back(self, step: int) -> None:
        """Forget what is known of later steps."""

    def write(self, *, step: int, **facts: Any) -> None:
        """Take facts of a step."""


class RunLog:
    """Appends to `train_log.jsonl` in a folder, which is made when it is missing."""

    def __init__(self, folder: PathLike) -> None:
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(os.fspath(folder), LOG_FILE)

    def go_back(self, step: int) -> None:
        """Drop the lines of steps that are about to be done again, and a line cut off by a crash.

        Args:
            step: lines up to this step stay. 0 is a new run: an older log that is in its place
                is renamed to `train_log.previous.jsonl`.
        """
        if not os.path.exists(self.path):
            return
        if step == 0:
            os.replace(self.path, os.path.join(os.path.dirname(self.path), _PREVIOUS))
            return
        kept = [facts for facts in _whole_lines(self.path) if facts.get("step", 0) <= step]
        with atomic_write(self.path) as temporary:
            text = "".join(json.dumps(facts) + "\n" for facts in kept)
            Path(temporary).write_text(text, encoding="utf-8")

    def write(self, **facts: Any) -> None:
        """Add a line. A crash between lines loses none.

        Raises:
            OSError: the disk does not take it; it names the file.
        """
        try:
            with open(self.path, "a", encoding="utf-8") as log:
                log.write(json.dumps(facts) + "\n")
        except OSError as error:
            raise OSError(f"{self.path}: cannot be written: {error.strerror or error}.") from error


def read_log(folder: PathLike) -> list[dict[str, Any]]:
    """The lines of a run's log, in the order of the run.

    Args:
        folder: of the run; the log itself will do.

    Raises:
        FileNotFoundError: there is no log.
        InputError: it holds no line.
    """
    path = os.fspath(folder)
    path = os.path.join(path, LOG_FILE) if os.path.isdir(path) else path
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no log of a run at {path!r}.")
    lines = list(_whole_lines(path))
    if not lines:
        raise InputError(f"{path}: no line of a log; the run has not come that far.")
    return lines


def _whole_lines(path: str) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects: the last one may have been cut off by a crash."""
    for line in read_lines(path):
        try:
            facts = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(facts, dict):
            yield facts
