"""Items made ahead by a thread."""

from __future__ import annotations

import threading

import pytest

from bilm.data import prefetch


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_the_same_items_in_order(n):
    assert list(prefetch(range(20), n)) == list(range(20))
    assert list(prefetch([], n)) == []
    assert not threads()


def test_none_is_an_item():
    assert list(prefetch([None, None])) == [None, None]


@pytest.mark.parametrize("n", [1, 3])
def test_no_more_than_n_are_made_ahead(n):
    made, full = [], threading.Event()

    def items():
        for number in range(50):
            made.append(number)
            if len(made) == 1 + n:  # one that was taken, and n ahead
                full.set()
            yield number

    ahead = prefetch(items(), n)
    assert next(ahead) == 0
    assert full.wait(10)
    threads()[0].join(0.05)
    assert len(made) == 1 + n
    ahead.close()


def test_an_exception_comes_where_the_item_would_have_come():
    def items():
        yield 1
        yield 2
        raise OSError("the shard has gone")

    ahead = prefetch(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(OSError, match="the shard has gone"):
        next(ahead)
    assert not threads()


def test_a_consumer_that_stops_early_ends_the_thread():
    closed = []

    def items():
        try:
            while True:
                yield 1
        finally:
            closed.append(threading.current_thread().name)

    ahead = prefetch(items(), 2)
    next(ahead)
    assert threads()
    ahead.close()
    assert not threads()
    assert closed == ["prefetch"]


def test_nothing_runs_before_the_first_item():
    ahead = prefetch(range(3))
    assert not threads()
    ahead.close()


def test_n_below_one():
    with pytest.raises(ValueError, match=r"n must be 1 or more, not 0\."):
        prefetch([], 0)
