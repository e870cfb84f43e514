"""The log of a run: one JSON object per line, and the same numbers as TensorBoard's files."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, read_lines
from bilm.files.writing import atomic_write

LOG_FILE = "train_log.jsonl"
_PREVIOUS = "train_log.previous.jsonl"
TENSORBOARD_FOLDER = "tensorboard"
_NOT_CURVES = {"step", "sampled", "best"}
# What is a number in a line, where it is there.
_NUMBERS = (
    "step", "epoch", "tokens", "seconds", "train_perplexity", "heldout_perplexity",
    "heldout_forward", "heldout_backward",
)  # fmt: skip


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
    """The lines that `RunLog` wrote: the last one may have been cut off by a crash."""
    for line in read_lines(path):
        try:
            facts = json.loads(line)
        except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError
            continue
        if isinstance(facts, dict) and _is_of_a_run(facts):
            yield facts


def _is_of_a_run(facts: dict[str, Any]) -> bool:
    numbers = {name: facts.get(name) for name in _NUMBERS}
    if None in (numbers["step"], numbers["tokens"]):
        return False
    there = {name: value for name, value in numbers.items() if value is not None}
    return all(
        type(value) in (int, float)
        and 0 <= value <= math.inf  # a perplexity may be infinite
        and (value > 0 or "perplexity" not in name)
        for name, value in there.items()
    )


class TensorBoardLog:
    """Writes events into the folder `tensorboard` within a run's.

    Raises:
        InputError: the package tensorboard is not installed.
    """

    def __init__(self, folder: PathLike) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise InputError(
                "tensorboard: the package is not installed; `pip install tensorboard` installs it."
            ) from error
        self._events, self._summaries = event_pb2, summary_pb2
        self._writer = EventFileWriter(os.path.join(os.fspath(folder), TENSORBOARD_FOLDER))

    def go_back(self, step: int) -> None:
        """Tell TensorBoard to forget what it has read of later steps."""
        session = self._events.SessionLog(status=self._events.SessionLog.START)
        self._add(step + 1, session_log=session)

    def write(self, *, step: int, **facts: Any) -> None:
        """Add a point to the curve of every number."""
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=value)
            for name, value in facts.items()
            if name not in _NOT_CURVES and value is not None
        ]
        if facts.get("sampled"):
            for value in values:
                value.tag = value.tag.replace("train_perplexity", "train_perplexity_sampled")
        self._add(step, summary=self._summaries.Summary(value=values))

    def _add(self, step: int, **content: Any) -> None:
        event = self._events.Event(wall_time=time.time(), step=step, **content)
        self._writer.add_event(event)
        self._writer.flush()
