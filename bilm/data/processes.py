"""Work on text in several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bilm.core.errors import InputError
from bilm.data.prefetch import compute_ahead

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items that wait for each process


def n_processors() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def process_pool(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """A pool of `jobs` processes for the block; None for one job, which needs no process.

    The processes are spawned: a fork of a process with threads, such as TensorFlow's, may hang.
    They end at Ctrl-C and when this process is killed.

    Raises:
        InputError: a process was killed.
    """
    if jobs < 2:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    pool = _Pool(jobs, context, initializer=_end_with_the_caller)
    try:
        yield pool
    except BrokenProcessPool:
        raise InputError(
            "A process was killed, maybe for lack of memory: fewer jobs need less."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def map_in_order(
    jobs: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """`map(function, items)` by several processes, in order and in bounded memory.

    Raises:
        InputError: a process was killed.
    """
    with process_pool(jobs) as pool:
        if pool is None:
            yield from map(function, items)
        else:
            yield from compute_ahead(function, items, _AHEAD * jobs, pool)


class _Pool(ProcessPoolExecutor):
    """Starts processes that end silently at Ctrl-C, which reaches all processes of a terminal: the
    signal is blocked until `_end_with_the_caller`."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_the_caller() -> None:
    """End silently at Ctrl-C, and when the process that started this one is killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    caller = multiprocessing.parent_process()

    def watch() -> None:
        if caller is not None:
            caller.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
