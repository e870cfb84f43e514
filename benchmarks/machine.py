"""What a measurement was made on and with."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from typing import Any

_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "h5py")


def describe_machine() -> dict[str, Any]:
    """Processor, cores that may be used, memory in bytes (None if unknown), system, load."""
    return {
        "processor": _after_colon("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory": _memory(),
        "system": platform.platform(),
        # Other programs at work make every figure too low.
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def describe_versions() -> dict[str, str]:
    """Versions of Python, bilm and what bilm stands on."""
    import bilm

    versions = {"python": platform.python_version(), "bilm": bilm.__version__}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def now() -> str:
    """The date and time, ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _memory() -> int | None:
    text = _after_colon("/proc/meminfo", "MemTotal")
    return int(text.split()[0]) * 1024 if text else None


def _after_colon(path: str, key: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return None
