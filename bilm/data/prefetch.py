"""Computing the next items in a thread while the current item is used."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


def windows(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_items: int | None = None
) -> Generator[tuple[list[T], bool], None, None]:
    """Lists of items whose sizes sum to at most `most`, and whether more items follow.

    A larger item is a list of its own. If `items` raises, the items before are yielded first.
    """
    window: list[T] = []
    fault: Exception | None = None
    size, items = 0, iter(items)
    while True:
        try:
            item = next(items)
        except StopIteration:
            break
        except Exception as error:
            fault = error
            break
        if window and (size + size_of(item) > most or len(window) == most_items):
            yield window, True
            window, size = [], 0
        window.append(item)
        size += size_of(item)
    if window:
        yield window, False
    if fault is not None:
        raise fault


def prefetch(items: Iterable[T], n: int = 4) -> Generator[T, None, None]:
    """The same items, up to `n` of them computed ahead in a thread.

    The thread starts with the first request. An exception in `items` is raised in place of its
    item. If the generator is closed or dropped early, the thread ends and `items` is closed.

    Args:
        items: an iterable, which is used only in the thread.
        n: number of items to keep ready.
    """
    iterator, end = iter(items), object()
    close = getattr(items, "close", None) if isinstance(items, Generator) else None
    made = compute_ahead(lambda _: next(iterator, end), itertools.repeat(None), n, close)
    try:
        while (item := next(made)) is not end:
            yield item  # type: ignore[misc]
    finally:
        made.close()


def compute_ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n: int = 1,
    close: Callable[[], object] | None = None,
) -> Generator[Result, None, None]:
    """`function` of each item, in order; a thread computes the next `n` results ahead.

    Unlike in `prefetch`, `items` is read in the caller's thread, because not every iterator can be
    used in another one. If it raises, the results of earlier items are yielded first. If the
    generator is closed early, it waits for the current computation.

    Args:
        close: called in the thread at the end.
    """
    fault: Exception | None = None
    computing: deque[Future[Result]] = deque()
    items = iter(items)
    with ThreadPoolExecutor(1, "prefetch") as pool:
        try:
            while fault is None:
                try:
                    computing.append(pool.submit(function, next(items)))
                except StopIteration:
                    break
                except Exception as error:
                    fault = error
                if len(computing) > n:
                    yield computing.popleft().result()
            while computing:
                yield computing.popleft().result()
        finally:
            for future in computing:
                future.cancel()
            if close is not None:
                pool.submit(close).result()
    if fault is not None:
        raise fault
