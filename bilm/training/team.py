"""What the workers of a run tell each other, so that all do the same.

Workers meet in collective operations, which wait for all of them. So none may stop, save or
measure on its own: before each step they tell what they wish, and an error of one is raised when
all know of it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bilm.errors import InputError, WorkersError
from bilm.training.cluster import ALONE, Worker

Gather = Callable[[np.ndarray], np.ndarray]


class Team:
    """The workers of a run. One that is alone has nobody to ask.

    Args:
        worker: which of them this is.
        gather: joins the float32 (n,) arrays of all workers, in their order.
    """

    def __init__(self, worker: Worker = ALONE, gather: Gather | None = None) -> None:
        self.worker = worker
        self._gather = gather
        self._error: BaseException | None = None

    @contextlib.contextmanager
    def own_work(self) -> Iterator[None]:
        """For what a worker does by itself: its error is raised by the next `exchange`.

        An error of one that is alone is raised at once.
        """
        try:
            yield
        except (InputError, OSError, KeyboardInterrupt) as error:
            if self.worker.is_alone:
                raise
            self._error = self._error or error

    def exchange(self, value: Any = None) -> list[Any]:
        """The values of all workers, in their order.

        Args:
            value: of this worker, fit for JSON.

        Raises:
            the error of this worker's own work, if there was one.
            WorkersError: another worker had one.
            WorkerLostError: another worker cannot be reached any more.
        """
        if self._gather is None:
            return [value]
        error, self._error = self._error, None
        said = json.dumps({"value": value, "failed": error is not None}) + "\n"
        bytes_ = np.frombuffer(said.encode("utf-8"), np.uint8).astype(np.float32)
        text = self._gather(bytes_).astype(np.uint8).tobytes().decode("utf-8")
        answers = [json.loads(line) for line in text.splitlines()]
        if error is not None:
            raise error
        failed = [index for index, answer in enumerate(answers) if answer["failed"]]
        if failed:
            raise WorkersError(f"Worker {failed[0]} was stopped, and says why itself.")
        return [answer["value"] for answer in answers]

    def require_same(self, facts: dict[str, Any]) -> None:
        """Check that all workers were given the same.

        Raises:
            InputError: names what differs.
        """
        plans = self.exchange(facts)
        differing = [
            f"{name} is {plans[0].get(name)!r} for worker 0 and {plan.get(name)!r} for "
            f"worker {index}"
            for index, plan in enumerate(plans)
            for name in sorted(plan | plans[0])
            if plan.get(name) != plans[0].get(name)
        ]
        if differing:
            raise InputError(
                f"All workers need the same command, files and folder: {'; '.join(differing)}."
            )
