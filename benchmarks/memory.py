"""Memory of this process, as Linux counts it: bytes that are resident, and the most there were."""

from __future__ import annotations

import contextlib

from benchmarks.results import NotAvailable

_STATUS = "/proc/self/status"
_RESET = "/proc/self/clear_refs"


def resident() -> int:
    """Bytes in memory now."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes that were in memory since the start or the last `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Let `peak` begin again at what is in memory now; where that is not allowed it goes on."""
    with contextlib.suppress(OSError), open(_RESET, "w", encoding="ascii") as file:
        file.write("5")


def _status(name: str) -> int:
    try:
        with open(_STATUS, encoding="utf-8") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key == name:
                    return int(value.split()[0]) * 1024  # the file says "kB"
    except OSError:
        pass
    raise NotAvailable(f"memory is read from {_STATUS}, which this machine does not have")
