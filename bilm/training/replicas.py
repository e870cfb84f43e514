"""The devices of a run: one, several GPUs of a machine, or those of several machines.

Each device has a replica of the model and takes rows of its own; the gradients of all are
averaged before the update, so that n replicas of batch B train as one of batch n * B does.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import InputError, WorkerLostError
from bilm.training.cluster import ALONE, VARIABLE, Worker, find_worker
from bilm.training.interrupts import killable
from bilm.training.team import Team

# What a collective operation raises when a worker has gone.
_LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
)


class Replicas:
    """Where the replicas of a model are.

    Args:
        strategy: of tf.distribute; None is one device, with nothing around it.
        worker: which worker this process is.

    Attributes:
        n: replicas of all workers.
        n_local: replicas of this one.
        first: number of this worker's first replica among all.
        team: the workers.
    """

    def __init__(self, strategy: Any = None, worker: Worker = ALONE) -> None:
        self.strategy = strategy
        self.worker = worker
        self.n = 1 if strategy is None else strategy.num_replicas_in_sync
        self.n_local = self.n // worker.count
        self.first = worker.index * self.n_local
        self.team = Team(worker, None if worker.is_alone else self._gather_bytes)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Variables that are made within have a copy on each device, and are assigned within."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    @contextlib.contextmanager
    def reachable(self) -> Iterator[None]:
        """For collective operations, which fail when a worker has gone.

        Raises:
            WorkerLostError: in place of TensorFlow's errors.
        """
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
        """The results of `function` for each replica of this worker, given its local number."""

        def replica() -> Any:
            context = tf.distribute.get_replica_context()
            return function(int(tf.get_static_value(context.replica_id_in_sync_group)) - self.first)

        return self.strategy.experimental_local_results(self.strategy.run(replica))

    def mean(self, values: list[Any]) -> list[Any]:
        """Within `run`: the means over all replicas; of sparse gradients, the rows of all."""
        there = [value for value in values if value is not None]
        means = iter(tf.distribute.get_replica_context().all_reduce("MEAN", there))
        return [None if value is None else next(means) for value in values]

    def gathered(self, values: tuple[Any, ...]) -> Any:
        """Tensors of each local replica, nested alike, joined along axis 0 over all replicas."""
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

    def _gather_bytes(self, values: np.ndarray) -> np.ndarray:
        # The chief of each worker's replicas speaks for it.
        nothing = values[:0]
        parts = (values, *[nothing] * (self.n_local - 1))
        return self.gathered(tuple(tf.constant(part) for part in parts)).numpy()


def find_replicas(n_gpus: int = 1) -> Replicas:
    """The devices that a run is to use; under TF_CONFIG with those of the other workers.

    It waits until all workers are there. In a process that is one of several, call it before
    TensorFlow is used for anything else.

    Args:
        n_gpus: of this machine.

    Raises:
        InputError: there are fewer GPUs; TF_CONFIG is not right; or TensorFlow is in use already.
    """
    worker = find_worker()
    if not worker.is_alone:
        return _join(n_gpus, worker)
    devices = find_devices(n_gpus)
    return Replicas() if n_gpus == 1 else Replicas(tf.distribute.MirroredStrategy(devices))


@functools.cache
def _join(n_gpus: int, worker: Worker) -> Replicas:
    """Join the other workers, once in a process."""
    gpus = tf.config.list_physical_devices("GPU")
    if n_gpus < 1 or n_gpus > max(1, len(gpus)):
        raise InputError(
            f"n_gpus: a number from 1 to {max(1, len(gpus))}, the GPUs of this machine, is "
            f"expected, not {n_gpus!r}."
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


def find_devices(n_gpus: int) -> list[str | None]:
    """The names of the first `n_gpus` GPUs; [None], TensorFlow's own choice, for one device.

    Raises:
        InputError: there are fewer GPUs.
    """
    if n_gpus < 1:
        raise InputError(f"n_gpus: a whole number from 1 is expected, not {n_gpus!r}.")
    if n_gpus == 1:
        return [None]
    # Without a GPU, a CPU that was divided into logical devices on purpose serves as well.
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) < n_gpus:
        raise InputError(
            f"n_gpus: {n_gpus} are asked for; TensorFlow sees {[d.name for d in devices]}."
        )
    return [device.name for device in devices[:n_gpus]]
