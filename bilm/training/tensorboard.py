"""The numbers of a run for TensorBoard, which is an extra."""

from __future__ import annotations

import os
import time
from typing import Any

from bilm.errors import InputError
from bilm.files import PathLike

FOLDER = "tensorboard"
_NOT_CURVES = {"step", "sampled", "best"}


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
                "tensorboard: the package is not installed; "
                "`pip install tensorboard` or `pip install 'bilm-keras[tensorboard]'` does it."
            ) from error
        self._events, self._summaries = event_pb2, summary_pb2
        self._writer = EventFileWriter(os.path.join(os.fspath(folder), FOLDER))

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
