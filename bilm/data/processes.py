"""Work on text in several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bilm.core.errors import InputError
from bilm.data.prefetch import compute_ahead
from bilm.progress import ShowStage, Stage, quiet

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items that wait for each process


def n_processors() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    jobs: int,
    function: Callable[[Item], Result],
    read: Callable[[ShowStage], Iterable[Item]],
    progress: ShowStage = quiet,
) -> Generator[Result, None, None]:
    """`function` of the items of `read(report)`, by several processes, in order and in bounded
    memory.

    Items are read ahead of the work: what `read` reports is passed to `progress` when the results
    of the items before it are done.

    The processes are spawned: a fork of a process with threads, such as TensorFlow's, may hang.
    When the generator is closed, as at Ctrl-C, they finish the items that they have begun and exit;
    they also exit when this process is killed. With one job, no process is started.

    Raises:
        InputError: a process was killed.
    """
    reports: deque[Stage | None] = deque([None])  # the last report before each item, and the last

    def report(stage: Stage) -> None:
        reports[-1] = stage

    def items() -> Iterator[Item]:
        for item in read(report):
            reports.append(None)
            yield item

    with contextlib.closing(_mapped(jobs, function, items())) as results:
        for result in results:
            yield result
            if (stage := reports.popleft()) is not None:
                progress(stage)
    if (stage := reports.pop()) is not None:
        progress(stage)


def _mapped(
    jobs: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    if jobs < 2:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("spawn")
    pool = _Pool(jobs, context, initializer=_end_with_the_caller)
    try:
        yield from compute_ahead(function, items, _AHEAD * jobs, pool)
    except BrokenProcessPool:
        raise InputError(
            "A process was killed, perhaps for lack of memory: fewer jobs need less memory."
        ) from None
    finally:
        with _ctrl_c_blocked():  # Python waits forever for a pool whose shutdown was interrupted.
            pool.shutdown(cancel_futures=True)


class _Pool(ProcessPoolExecutor):
    """Its processes ignore Ctrl-C, which reaches all processes of a terminal: they start with the
    signal blocked. The caller ends them; a pool whose processes die on their own may hang."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        with _ctrl_c_blocked():
            return super().submit(*args, **kwargs)


@contextlib.contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """In this thread, and in processes that start within the block, Ctrl-C waits."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_the_caller() -> None:
    caller = multiprocessing.parent_process()

    def watch() -> None:
        if caller is not None:
            caller.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
