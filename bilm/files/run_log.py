"""The log of a run: one JSON object per line, and the same numbers as TensorBoard's files."""

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError, import_extra
from bilm.files.reading import PathLike, require_file
from bilm.files.writing import atomic_write

LOG_FILE = "train_log.jsonl"
_PREVIOUS = "train_log.previous.jsonl"
_NOT_CURVES = {"sampled", "best"}


class RunLog:
    """Appends to `train_log.jsonl` in a folder, which is created if missing.

    Args:
        tensorboard: also write TensorBoard's files, into the folder `tensorboard` in `folder`.
    """

    def __init__(self, folder: PathLike, tensorboard: bool = False) -> None:
        folder = os.fspath(folder)
        self.path = os.path.join(folder, LOG_FILE)
        self._curves = None
        if tensorboard:
            summary = import_extra("tensorboard.summary", "tensorboard=True")
            self._curves = summary.Writer(os.path.join(folder, "tensorboard"))
        os.makedirs(folder, exist_ok=True)

    def go_back(self, step: int) -> None:
        """Drop the lines after `step`, and a line cut off by a crash.

        Step 0 starts a new run and renames an older log to `train_log.previous.jsonl`. TensorBoard
        replaces the points of repeated steps by itself.
        """
        if not os.path.exists(self.path):
            return
        if step == 0:
            os.replace(self.path, os.path.join(os.path.dirname(self.path), _PREVIOUS))
            return
        kept = [facts for facts in _complete_lines(self.path) if facts["step"] <= step]
        with atomic_write(self.path) as temporary:
            text = "".join(json.dumps(facts) + "\n" for facts in kept)
            Path(temporary).write_text(text, encoding="utf-8")

    def write(self, *, step: int, **facts: Any) -> None:
        """Append a line, flushed to the file at once. JSON has no infinity: it becomes null."""
        facts = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in facts.items()
        }
        try:
            with open(self.path, "a", encoding="utf-8") as log:
                log.write(json.dumps({"step": step} | facts) + "\n")
        except OSError as error:
            raise OSError(f"{self.path}: cannot be written: {error.strerror or error}.") from error
        if self._curves is not None:
            suffix = {"train_perplexity": "_sampled"} if facts.get("sampled") else {}
            for name, value in facts.items():
                if name not in _NOT_CURVES and value is not None:
                    self._curves.add_scalar(name + suffix.get(name, ""), value, step)
            self._curves.flush()


def read_log(folder: PathLike) -> list[dict[str, Any]]:
    """The lines of a run's log, in order; `folder` may be the log itself."""
    path = os.path.join(folder, LOG_FILE) if os.path.isdir(folder) else folder
    path = require_file(path, "training log")
    lines = list(_complete_lines(path))
    if not lines:
        raise InputError(
            f"{path}: the log must have at least one complete line; has the run logged a step yet?"
        )
    return lines


def _complete_lines(path: str) -> Iterator[dict[str, Any]]:
    """The valid lines of a log: a crash may have cut off the last line, or left zeros in it."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError, RecursionError):
                facts = json.loads(line)
                if isinstance(facts, dict) and _is_valid(facts):
                    yield facts


def _is_valid(facts: dict[str, Any]) -> bool:
    has_position = all(isinstance(facts.get(name), int) for name in ("step", "tokens"))
    return has_position and all(x is None or isinstance(x, int | float) for x in facts.values())
