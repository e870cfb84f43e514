"""Computing the next items in a thread while the current item is used."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


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
