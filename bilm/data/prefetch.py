"""Making batches beside the computation."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


def prefetch(items: Iterable[T], n: int = 4) -> Generator[T, None, None]:
    """The same items, up to `n` of them made ahead by a thread.

    The thread begins with the first item that is asked for. An exception while an item is made is
    raised where that item would have come. When the consumer stops early (it closes the
    generator, or drops it), the thread ends and `items` is closed.

    Args:
        items: what to iterate over, in the thread alone.
        n: items to hold ready, 1 or more.

    Raises:
        ValueError: `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"n must be 1 or more, not {n}.")
    return _consume(items, n)


class _End(NamedTuple):
    """What the thread hands over last."""

    error: BaseException | None


def _consume(items: Iterable[T], n: int) -> Generator[T, None, None]:
    ready: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    room = threading.Semaphore(n - 1)  # the thread makes one item before it asks for room
    stopped = threading.Event()

    def make() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                ready.put(item)
                room.acquire()
                if stopped.is_set():
                    break
            if isinstance(items, Generator):
                items.close()
        except BaseException as raised:  # whatever it is, the consumer's thread is to know
            error = raised
        ready.put(_End(error))

    thread = threading.Thread(target=make, name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            room.release()
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        room.release()
        thread.join()
