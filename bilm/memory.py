"""How much memory is left, for what no file bounds: sizes that somebody asks for.

What is certain to take more is refused before any is taken: the system would kill the program
without a word, and an allocator's error does not say what to change.
"""

from __future__ import annotations

import contextlib
import os

from bilm.errors import InputError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

# Less than this is always tried.
_SMALL = 2**26
# The bounds of a container, of both versions of control groups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def free_memory() -> int | None:
    """Bytes that this process may still take, by the memory and swap of the machine, the bound of
    its container and `ulimit -v`; None where the system does not say."""
    found = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":") for line in file)
        found.append(sum(int(rows[name].split()[0]) for name in ("MemAvailable", "SwapFree")) << 10)
    for path in _LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            found.append(int(file.read()))  # a ValueError for "max"
    with contextlib.suppress(OSError, ValueError):
        limit = -1 if resource is None else resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit >= 0:
            with open("/proc/self/statm", encoding="ascii") as file:
                taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            found.append(max(0, limit - taken))
    return min(found, default=None)


def require_memory(n_bytes: int, what: str) -> None:
    """Check that so much memory can be had.

    Args:
        n_bytes: what is needed at the least.
        what: the sizes that ask for it, for the message.

    Raises:
        InputError: there is less.
    """
    free = None if n_bytes <= _SMALL else free_memory()
    if free is not None and n_bytes > free:
        raise InputError(
            f"{what}: at least {n_bytes >> 20:,} MB of memory would be needed; {free >> 20:,} MB "
            "are free."
        )
