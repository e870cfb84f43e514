"""Computing the next result while one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def one_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`function` of each item, in order; a thread computes the next one while one is used.

    Items are taken in the caller's thread, unlike those of `bilm.data.prefetch`: they may come from
    a caller's own iterator, which not every thread may use. Where taking one fails, the results of
    those before it come first. When the consumer stops early, what is being computed is waited for.
    """
    fault: Exception | None = None
    computing: deque[Future[Result]] = deque()
    items = iter(items)
    with ThreadPoolExecutor(1, "one-ahead") as pool:
        while fault is None:
            try:
                computing.append(pool.submit(function, next(items)))
            except StopIteration:
                break
            except Exception as error:
                fault = error
            if len(computing) > 1:
                yield computing.popleft().result()
        while computing:
            yield computing.popleft().result()
    if fault is not None:
        raise fault
