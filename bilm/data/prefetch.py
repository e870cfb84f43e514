"""Computing the next items in a thread, or in several processes, while the current item is used."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bilm.core.errors import InputError

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items that wait for each process


def windows(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_items: int | None = None
) -> Generator[tuple[list[T], bool], None, None]:
    """Lists of items whose sizes, at least 1 each, sum to at most `most`, and whether more items
    follow.

    A larger item is a list of its own. If `items` raises, the items before are yielded first.
    """
    window: list[T] = []
    size = 0
    try:
        for item in items:
            item_size = max(1, size_of(item))
            if window and (size + item_size > most or len(window) == most_items):
                yield window, True
                window, size = [], 0
            window.append(item)
            size += item_size
    except Exception:
        if window:
            yield window, False
        raise
    if window:
        yield window, False


def prefetch(items: Iterable[T], n: int = 4) -> Generator[T, None, None]:
    """The same items, up to `n` of them computed ahead in a thread.

    The thread starts with the first request. An exception in `items` is raised instead of its
    item. If the generator is closed or dropped early, the thread ends.
    """
    iterator, end = iter(items), object()
    results = compute_ahead(lambda _: next(iterator, end), itertools.repeat(None), n)
    with contextlib.closing(results):
        yield from itertools.takewhile(lambda item: item is not end, results)


def compute_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n: int = 1,
    pool: Executor | None = None,
) -> Generator[Result, None, None]:
    """`function` of each item, in order; a pool, or a thread, computes the next `n` results ahead.

    Unlike in `prefetch`, `items` is read in the caller's thread, because some iterators cannot be
    used in another thread. If it raises, the results of earlier items are yielded first. If the
    generator is closed early, it waits for the thread's current computation; a pool is its owner's
    to shut down.
    """
    executor = ThreadPoolExecutor(1, "prefetch") if pool is None else pool

    def submit_all() -> Iterator[Future[Result]]:
        try:
            for item in items:
                yield executor.submit(function, item)
        except Exception as error:
            failure: Future[Result] = Future()
            failure.set_exception(error)
            yield failure

    computing: deque[Future[Result]] = deque()
    try:
        for future in submit_all():
            computing.append(future)
            if len(computing) > n:
                yield computing.popleft().result()
        while computing:
            yield computing.popleft().result()
    finally:
        if pool is None:
            executor.shutdown(cancel_futures=True)


# Processes


def n_processors() -> int:
    """The CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    jobs: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """`function` of the items, by several processes, in order and in bounded memory; some items are
    read ahead.

    The processes are spawned: a fork of a process with threads, such as TensorFlow's, may hang.
    When the generator is closed, as at Ctrl-C, they finish the items that they have begun and exit;
    they also exit when this process is killed. With one job, no process is started.

    Raises:
        InputError: a process was killed.
    """
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
