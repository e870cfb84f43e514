"""Items prepared in advance by a thread."""

from __future__ import annotations

import itertools
import threading

import pytest

from bilm.data import compute_ahead, prefetch
from bilm.data.prefetch import map_in_order, windows


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


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
            if len(made) == 1 + n:  # one taken, n ahead
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
            closed.append(True)

    ahead = prefetch(items(), 2)
    next(ahead)
    assert threads()
    ahead.close()
    assert not threads()
    assert closed == [True]


def test_nothing_runs_before_the_first_item():
    ahead = prefetch(range(3))
    assert not threads()
    ahead.close()


def test_empty_items_fill_a_window():
    window, has_more = next(windows(itertools.repeat([]), len, 100))
    assert (len(window), has_more) == (100, True)


# Results of a function of items


def test_results_are_in_order():
    assert list(compute_ahead(lambda x: x * x, iter([3, 1, 2]))) == [9, 1, 4]
    assert list(compute_ahead(lambda x: x, [])) == []


def test_the_next_one_is_computed_while_one_is_used():
    second = threading.Event()
    results = compute_ahead(lambda x: second.set() if x == 2 else None, [1, 2, 3])
    next(results)
    assert second.wait(20)
    results.close()


def test_items_are_taken_in_the_callers_thread_two_at_most_ahead():
    taken, computed = [], []

    def items():
        for number in range(5):
            taken.append(threading.current_thread())
            yield number

    results = compute_ahead(lambda x: computed.append(threading.current_thread()) or x, items())
    assert [next(results), len(taken)] == [0, 2]
    assert [next(results), len(taken)] == [1, 3]
    results.close()
    assert set(taken) == {threading.current_thread()}
    assert threading.current_thread() not in computed and len(set(computed)) == 1
    assert not computed[0].is_alive()


def test_a_fault_of_the_function_comes_in_its_place():
    results = compute_ahead(lambda x: 1 // x, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_more_than_one_ahead():
    taken = []
    results = compute_ahead(lambda x: x, (taken.append(n) or n for n in range(9)), 3)
    assert [next(results), len(taken)] == [0, 4]
    assert list(results) == list(range(1, 9))


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_keep_the_order(jobs):
    assert list(map_in_order(jobs, len, ("x" * n for n in range(9)))) == list(range(9))
