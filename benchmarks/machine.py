"""The machine: its description, its matmul speed, and the memory of this process."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import statistics
import time
from importlib import metadata
from typing import Any

_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "h5py")
_SIZE, _REPEATS = 2048, 9


def describe_machine() -> dict[str, Any]:
    """CPU model, usable cores, operating system, and load average."""
    return {
        "processor": _value_in("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "load_average": os.getloadavg()[0],
    }


def describe_versions() -> dict[str, str]:
    """Versions of Python, bilm and its requirements."""
    import bilm

    versions = {"python": platform.python_version(), "bilm": bilm.__version__}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def now() -> str:
    """The date and time, ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def measure_product(precision: str = "float32") -> float:
    """Median GFLOP/s of a square matmul in TensorFlow. All speeds are divided by it."""
    import tensorflow as tf

    dtype = tf.as_dtype(precision)
    # Values of normal size: zeros and infinities may take a different time.
    a, b = (tf.cast(tf.random.stateless_normal((_SIZE, _SIZE), (0, k)), dtype) for k in (1, 2))
    seconds = []
    for _ in range(2 + _REPEATS):
        start = time.perf_counter()
        # Fetching a number waits for the device, which may run asynchronously.
        tf.matmul(a, b)[0, 0].numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * _SIZE**3 / statistics.median(seconds[2:]) / 1e9


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return _kilobytes("VmRSS")


def peak() -> int:
    """Peak resident memory since the start or the last `reset_peak`, in bytes."""
    return _kilobytes("VmHWM")


def reset_peak() -> None:
    """Reset `peak` to the current memory; without permission, `peak` still returns the old one."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _kilobytes(name: str) -> int:
    return int(_value_in("/proc/self/status", name).split()[0]) * 1024


def _value_in(path: str, key: str) -> str:
    """The value of the first line `key: value`, or "" if there is no such line."""
    with open(path, encoding="utf-8") as lines:
        pairs = (line.partition(":") for line in lines)
        return next((value.strip() for name, _, value in pairs if name.strip() == key), "")
