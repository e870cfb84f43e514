"""Workers and devices, as far as tests need no second process."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.core.errors import InputError, WorkerLostError
from bilm.core.language_model import Feed
from bilm.core.lstm import BatchSlice, Dropout, LSTMStack
from bilm.core.options import Options
from bilm.data.corpus import IteratorState, RowPosition
from bilm.training.inputs import divide
from bilm.training.replicas import ALONE, Replicas, Worker, find_replicas, find_worker
from tests.small_runs import small_options, write_corpus

# Finding this worker


def config(cluster, task):
    return json.dumps({"cluster": cluster, "task": task})


@pytest.mark.parametrize(
    ("text", "worker"),
    [
        ("", ALONE),
        (" ", ALONE),
        ("{}", ALONE),
        (config({"worker": ["a:1"]}, {"type": "worker", "index": 0}), Worker(0, 1)),
        (config({"worker": ["a:1", "b:1"]}, {"type": "worker", "index": 1}), Worker(1, 2)),
        (config({"chief": ["a:1"], "worker": ["b:1"]}, {"type": "worker", "index": 0}),
         Worker(1, 2)),
        (config({"chief": ["a:1"], "worker": ["b:1"]}, {"type": "chief", "index": 0}),
         Worker(0, 2)),
    ],
)  # fmt: skip
def test_the_worker_that_tf_config_names(text, worker, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    assert find_worker() == worker
    assert worker.is_chief == (worker.index == 0) and worker.is_alone == (worker.count == 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r'TF_CONFIG must be {"cluster": .*}: Expecting property name'),
        ('{"cluster": 5}', r"TF_CONFIG must be .*: `cluster` must be"),
        (
            config({"worker": ["a:1"]}, {"type": "worker", "index": 1}),
            "TF_CONFIG must be .* got task .'worker', 1. of",
        ),
    ],
)
def test_a_tf_config_that_is_not_right(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError, match=message):
        find_worker()


def test_workers_that_join_too_late(monkeypatch):
    """Workers must join before TensorFlow is used."""
    tf.constant(1) + tf.constant(1)
    here = config({"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, {"type": "worker", "index": 0})
    monkeypatch.setenv("TF_CONFIG", here)
    with pytest.raises(InputError, match="the workers join before TensorFlow"):
        find_replicas()
    with pytest.raises(InputError, match="n_gpus must be at most 1, the GPUs of this"):
        find_replicas(2)


def test_one_device_has_nothing_around_it():
    replicas = find_replicas()
    assert replicas.strategy is None and (replicas.n, replicas.n_local, replicas.first) == (1, 1, 0)


def test_the_share_of_another_worker_is_refused(tmp_path):
    options = small_options()
    data = write_corpus(tmp_path).data(options, worker=(1, 2))
    with pytest.raises(InputError, match="worker 1 of 2; this process is worker 0 of 1"):
        bilm.train(options, data, 1, tmp_path / "run", None)


# Joint decisions of workers


class OneOfTwo(Replicas):
    """Worker 0 of two; `other` is what the other one sends."""

    def __init__(self, other):
        super().__init__(None, Worker(0, 2))
        self.other = np.frombuffer(f"{json.dumps(other)}\n".encode(), np.uint8)

    def _gather_arrays(self, values):
        return np.concatenate([values, self.other.astype(np.float32)])


def test_what_is_gathered():
    assert OneOfTwo(["Größe", 0.1]).all_gather({"a": 1}) == [{"a": 1}, ["Größe", 0.1]]
    assert Replicas().all_gather(5) == [5]


def test_workers_that_were_given_something_else():
    replicas = OneOfTwo({"seed": 1, "n_epochs": 2})
    with pytest.raises(InputError, match="n_epochs is 3 for worker 0, 2 for worker 1"):
        replicas.require_same({"seed": 1, "n_epochs": 3})
    replicas.require_same({"seed": 1, "n_epochs": 2})


def test_a_worker_that_is_lost_is_told_in_our_words():
    class Strategy:
        num_replicas_in_sync = 2

    reason = "Collective ops is aborted by: Socket closed\nAdditional GRPC error information"
    error = tf.errors.UnavailableError(None, None, reason)
    message = r"^Another worker cannot be reached any"
    replicas = Replicas(Strategy(), Worker(1, 2))
    with pytest.raises(WorkerLostError, match=message), replicas.reachable():
        raise error
    with pytest.raises(tf.errors.UnavailableError), Replicas().reachable():
        raise error


# The rows of a batch


def test_the_rows_of_a_batch_are_divided_with_their_words():
    random = np.random.default_rng(1)
    inputs = random.integers(1, 261, (9, 5), np.int32)
    words = random.integers(0, 9, (2, 3, 4), np.int32)
    targets = random.integers(0, 50, (2, 3, 4), np.int32)
    feed = Feed(inputs, words, targets)
    assert divide(feed, 1) == [feed]
    for k, part in enumerate(divide(feed, 2)):
        rows = slice(2 * k, 2 * k + 2)
        np.testing.assert_array_equal(part.distinct[part.words], inputs[words[:, :, rows]])
        np.testing.assert_array_equal(part.targets, targets[:, :, rows])
        assert (
            len(part.distinct) == len(np.unique(words[:, :, rows])) and part.words.dtype == "int32"
        )


def test_a_row_is_dropped_alike_wherever_it_is():
    lstm = Options.from_dict(small_options(), training=True).lstm
    stack = LSTMStack(lstm, seed=1)
    seed = tf.constant([3, 7], tf.int64)
    random = np.random.default_rng(2)
    inputs = random.normal(size=(5, 6, lstm.projection_dim)).astype(np.float32)
    whole, _ = stack(inputs, states=stack.zero_states(6), dropout=Dropout(0.5, seed))
    for first in (0, 2, 4):
        part, _ = stack(
            inputs[:, first : first + 2],
            states=stack.zero_states(2),
            dropout=Dropout(0.5, seed, BatchSlice(first, 6)),
        )
        np.testing.assert_allclose(part[-1], whole[-1][:, first : first + 2], 1e-5, 1e-6)


def test_the_state_of_another_number_of_workers_is_the_begin_of_the_shard():
    state = IteratorState(9, 1, True, False, 0, 2, 2, 20, 7, 30, (RowPosition(6, 3, 1), None))
    now = state.with_worker(2, 3).with_batches(4, 20)
    assert now == IteratorState(9, 1, True, False, 2, 3, 4, 20, 7, 0, (None,) * 4)
