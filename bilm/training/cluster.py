"""Which of several workers this process is, as TF_CONFIG in the environment says.

TF_CONFIG is TensorFlow's own form: the addresses of all workers, and which of them this one is.

    {"cluster": {"worker": ["10.0.0.1:12345", "10.0.0.2:12345"]},
     "task": {"type": "worker", "index": 0}}

A worker of the type "chief" is the first one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import InputError

VARIABLE = "TF_CONFIG"
_FORM = (
    '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": N}} '
    "is expected"
)


@dataclass(frozen=True)
class Worker:
    """One of the processes that train together, each with a share of the corpus.

    Attributes:
        index: from 0; worker 0 is the chief, which writes the files of the run.
        count: how many there are; 1 trains alone.
    """

    index: int = 0
    count: int = 1

    @property
    def share(self) -> tuple[int, int]:
        """The `worker` of its data sets."""
        return self.index, self.count

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.count == 1

    @property
    def is_chief(self) -> bool:
        """Whether this one writes the files."""
        return self.index == 0


ALONE = Worker()


def find_worker(environment: Mapping[str, str] = os.environ) -> Worker:
    """Read TF_CONFIG; without it the process trains alone.

    Raises:
        InputError: it is not of the form that it should be.
    """
    text = environment.get(VARIABLE, "")
    if not text.strip():
        return ALONE
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{VARIABLE}: not JSON: {error.msg}; {_FORM}.") from error
    cluster, task = _part(value, "cluster"), _part(value, "task")
    if not cluster:
        return ALONE
    jobs = [(job, cluster.get(job, [])) for job in ("chief", "worker")]
    unknown = sorted(set(cluster) - {job for job, _ in jobs})
    if unknown or not all(isinstance(addresses, list) for _, addresses in jobs):
        raise InputError(f"{VARIABLE}: {_FORM}, not the cluster {json.dumps(cluster)}.")
    tasks = [(job, index) for job, addresses in jobs for index in range(len(addresses))]
    this = (task.get("type"), task.get("index"))
    if this not in tasks:
        raise InputError(f"{VARIABLE}: its cluster has no task {json.dumps(task)}; {_FORM}.")
    return Worker(tasks.index(this), len(tasks))


def _part(value: Any, name: str) -> dict[str, Any]:
    part = value.get(name, {}) if isinstance(value, dict) else None
    if not isinstance(part, dict):
        raise InputError(f"{VARIABLE}: {_FORM}, not {json.dumps(value)}.")
    return part
