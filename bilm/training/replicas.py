"""The devices of a run: one, several GPUs of a machine, or several machines.

Each device has a replica of the model and its own rows of the batch; gradients are averaged before
the update, so n replicas with batches of B rows train like one with a batch of n * B rows.

For several processes, TF_CONFIG in the environment holds the addresses of all workers and the index
of this one, in TensorFlow's form:

    {"cluster": {"worker": ["10.0.0.1:12345", "10.0.0.2:12345"]},
     "task": {"type": "worker", "index": 0}}

A task of the type "chief" is the first worker.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, WorkerLostError, differences, integer, require
from bilm.training.interrupts import killable

VARIABLE = "TF_CONFIG"
_FORM = '{"cluster": {"worker": ["HOST:PORT", ...]}, "task": {"type": "worker", "index": N}}'

# Raised by collective operations after a worker has ended.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


@dataclass(frozen=True)
class Worker:
    """One of `count` processes that train together, each with a share of the corpus.

    Worker 0 is the chief, which writes the files of the run.
    """

    index: int = 0
    count: int = 1

    @property
    def share(self) -> tuple[int, int]:
        """The argument `worker` of its data sets."""
        return self.index, self.count

    @property
    def is_alone(self) -> bool:
        return self.count == 1

    @property
    def is_chief(self) -> bool:
        return self.index == 0


ALONE = Worker()


def find_worker() -> Worker:
    """The worker that TF_CONFIG names; without TF_CONFIG the process trains alone."""
    if not os.environ.get(VARIABLE, "").strip():
        return ALONE
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    try:
        cluster, this = resolver.cluster_spec(), (resolver.task_type, resolver.task_id)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{VARIABLE} must be {_FORM}: {error}.") from error
    tasks = sorted((role, index) for role in cluster.jobs for index in cluster.task_indices(role))
    if not tasks:
        return ALONE
    if this not in tasks or not {role for role, _ in tasks} <= {"chief", "worker"}:
        raise InputError(
            f"{VARIABLE} must be {_FORM}, with tasks of the types chief and worker only, got task "
            f"{this} of {tasks}."
        )
    return Worker(tasks.index(this), len(tasks))


class Replicas:
    """The replicas of a model on the devices of a strategy of tf.distribute; None: one device.

    There are `n` of them over all workers; this worker has `n_local`, from number `first` on.
    """

    def __init__(self, strategy: Any = None, worker: Worker = ALONE) -> None:
        self.strategy = strategy
        self.worker = worker
        self.n = 1 if strategy is None else strategy.num_replicas_in_sync
        self.n_local = self.n // worker.count
        self.first = worker.index * self.n_local

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The scope for creating variables, with a copy on each device, and assigning them."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    @contextlib.contextmanager
    def reachable(self) -> Iterator[None]:
        """Within the block, collective operations raise `WorkerLostError` if a worker has ended."""
        try:
            yield
        except _LOST as error:
            if self.worker.is_alone:
                raise
            reason = str(error).partition("aborted by: ")[2].partition("\n")[0]
            raise WorkerLostError(
                f"Another worker cannot be reached any more{reason and ': '}{reason.rstrip('.')}."
            ) from error

    def run(self, function: Callable[[int], Any]) -> tuple[Any, ...]:
        """The results of `function` for the local indices of this worker's replicas."""
        if self.strategy is None:
            return (function(0),)

        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            return function(int(tf.get_static_value(context.replica_id_in_sync_group)) - self.first)

        return self.strategy.experimental_local_results(self.strategy.run(replica))

    def mean(self, values: list[Any]) -> list[Any]:
        """Inside `run`: means over all replicas; a sparse gradient has the rows of all replicas."""
        if self.strategy is None:
            return values
        tensors = [value for value in values if value is not None]
        means = iter(tf.distribute.get_replica_context().all_reduce("MEAN", tensors))
        return [None if value is None else next(means) for value in values]

    def gathered(self, values: tuple[Any, ...]) -> Any:
        """Tensors of all replicas joined along axis 0; `values` has one item per local replica."""
        if self.worker.is_alone:
            return tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), *values)
        with self.reachable():
            return self._gather(values)

    @functools.cached_property
    def _gather(self) -> Callable[..., Any]:
        def gather(values: tuple[Any, ...]) -> Any:
            return self.run(
                lambda k: tf.distribute.get_replica_context().all_gather(
                    tf.nest.map_structure(tf.identity, values[k]), axis=0
                )
            )[0]

        return tf.function(gather, autograph=False, reduce_retracing=True)

    def from_chief(self, values: np.ndarray) -> np.ndarray:
        """Send the chief's array to all workers; the other workers pass an empty array."""
        return values if self.worker.is_alone else self._gather_arrays(values)

    def all_gather(self, value: Any) -> list[Any]:
        """The values of all workers, in order of their index; they must fit JSON."""
        if self.worker.is_alone:
            return [value]
        line = np.frombuffer(f"{json.dumps(value)}\n".encode(), np.uint8)
        lines = self._gather_arrays(line.astype(np.float32)).astype(np.uint8).tobytes()
        return [json.loads(line) for line in lines.decode("utf-8").splitlines()]

    def require_same(self, facts: dict[str, Any]) -> None:
        """Raise an InputError if the workers' settings differ; `facts` are this worker's."""
        settings, differing = self.all_gather(facts), []
        for index, theirs in enumerate(settings):
            differing += differences(settings[0], theirs, "for worker 0", f"for worker {index}")
        if differing:
            raise InputError(
                f"All workers need the same command, files and folder: {'; '.join(differing)}."
            )

    def _gather_arrays(self, values: np.ndarray) -> np.ndarray:
        # Each worker's first replica sends its array, the others send empty ones.
        parts = (values, *[values[:0]] * (self.n_local - 1))
        return self.gathered(tuple(tf.constant(part) for part in parts)).numpy()


def find_replicas(n_gpus: int = 1) -> Replicas:
    """The devices for a run: `n_gpus` of this machine; with TF_CONFIG, the devices of all workers.

    With TF_CONFIG, call it before TensorFlow is used for anything else; it waits for all workers.

    Raises:
        InputError: there are fewer GPUs; TF_CONFIG is invalid; TensorFlow is already in use; or
            this process has used another number of devices (more than one) before.
    """
    require(integer(), n_gpus=n_gpus)
    worker = find_worker()
    if not worker.is_alone:
        return _join(n_gpus, worker)
    if n_gpus == 1:
        return Replicas()
    # Without GPUs, logical CPU devices are used if there are enough.
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    names = [device.name for device in devices]
    if len(names) < n_gpus:
        raise InputError(f"n_gpus must be at most {len(names)}, got {n_gpus}: there are {names}.")
    return Replicas(_mirrored(tuple(names[:n_gpus])))


@functools.cache
def _mirrored(devices: tuple[str, ...]) -> Any:
    # A second strategy would number its collective operations from the start again, and TensorFlow
    # would confuse them with the first strategy's operations.
    if _mirrored.cache_info().currsize:
        raise InputError(
            f"n_gpus: this process has trained on other devices than these {len(devices)}: start "
            "a new process."
        )
    return tf.distribute.MirroredStrategy(devices)


@functools.cache
def _join(n_gpus: int, worker: Worker) -> Replicas:
    gpus = tf.config.list_physical_devices("GPU")
    if n_gpus > max(1, len(gpus)):
        raise InputError(
            f"n_gpus must be at most {max(1, len(gpus))}, the GPUs of this machine, got {n_gpus}."
        )
    try:
        tf.config.set_visible_devices(gpus[:n_gpus], "GPU")
        with killable():
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise InputError(
            f"{VARIABLE}: the workers join before TensorFlow is used: call "
            f"bilm.training.find_replicas first ({error})."
        ) from error
    return Replicas(strategy, worker)
