"""One result is computed ahead, in order; faults come where they belong."""

from __future__ import annotations

import threading

import pytest

from bilm.embedding.one_ahead import one_ahead


def test_results_are_in_order():
    assert list(one_ahead(lambda x: x * x, iter([3, 1, 2]))) == [9, 1, 4]
    assert list(one_ahead(lambda x: x, [])) == []


def test_the_next_one_is_computed_while_one_is_used():
    second = threading.Event()
    results = one_ahead(lambda x: second.set() if x == 2 else None, [1, 2, 3])
    next(results)
    assert second.wait(20)
    results.close()


def test_items_are_taken_in_the_callers_thread_two_at_most_ahead():
    taken, computed = [], []

    def items():
        for number in range(5):
            taken.append(threading.current_thread())
            yield number

    results = one_ahead(lambda x: computed.append(threading.current_thread()) or x, items())
    assert [next(results), len(taken)] == [0, 2]
    assert [next(results), len(taken)] == [1, 3]
    results.close()
    assert set(taken) == {threading.current_thread()}
    assert threading.current_thread() not in computed and len(set(computed)) == 1
    assert not computed[0].is_alive()


def test_results_before_a_fault_of_the_items_come_first():
    def items():
        yield 1
        yield 2
        raise OSError("lost")

    received = []
    with pytest.raises(OSError, match="lost"):
        received.extend(one_ahead(lambda x: x, items()))
    results = one_ahead(lambda x: x, items())
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(OSError, match="lost"):
        next(results)


def test_a_fault_of_the_function_comes_in_its_place():
    results = one_ahead(lambda x: 1 // x, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
