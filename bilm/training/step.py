"""One step of training: loss, gradients, update. State goes in and comes out."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.errors import InputError
from bilm.layers import Negatives, States
from bilm.layers.sampled_softmax import log_uniform_log_expected
from bilm.training.feed import Feed
from bilm.training.language_model import LanguageModel
from bilm.training.negatives import Draw, draw_log_uniform
from bilm.training.optimizer import Adagrad


class StepInputs(NamedTuple):
    """What one step takes beside the model and the states.

    Attributes:
        feed: the batch.
        draws: the negative samples of each direction; empty for the full softmax.
        dropout_seed: int64 (2,).
    """

    feed: Feed
    draws: tuple[Draw, ...]
    dropout_seed: Any


class TrainingStep:
    """The compiled step of a model.

    Args:
        model: what is trained.
        optimizer: over the model's trainable variables.
        batch_size: rows of a batch, over all devices.
        n_devices: GPUs among which the rows of a batch are divided.
    """

    def __init__(
        self, model: LanguageModel, optimizer: Adagrad, batch_size: int, n_devices: int = 1
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.batch_size = batch_size
        self._devices = find_devices(n_devices)
        self._step = tf.function(self._run, input_signature=self._signature(), autograph=False)

    def inputs(self, feed: Feed, step: int, seed: int) -> StepInputs:
        """Add the random numbers of a step, which follow from `seed` and `step` alone."""
        options = self.model.options
        draws: tuple[Draw, ...] = ()
        if self.model.samples:
            n_tokens, n_samples = options.n_tokens_vocab or 0, options.n_negative_samples_batch
            draws = tuple(
                draw_log_uniform(n_tokens, n_samples, (seed, step, d))
                for d in range(options.n_directions)
            )
        return StepInputs(feed, draws, (seed, step))

    def __call__(
        self, inputs: StepInputs, states: Sequence[States]
    ) -> tuple[tf.Tensor, tuple[States, ...]]:
        """Do the step.

        Returns:
            float32 (n_directions,), the mean loss of each direction in nats before the update,
            and the states after the batch.
        """
        return self._step(inputs, tuple(states))

    def _signature(self) -> list[Any]:
        options = self.model.options
        width = () if options.max_word_length is None else (options.max_word_length,)
        places = (options.n_directions, options.unroll_steps, self.batch_size)
        draw = Draw(tf.TensorSpec((None,), tf.int32), tf.TensorSpec((), tf.int32))
        inputs = StepInputs(
            Feed(
                tf.TensorSpec((None, *width), tf.int32),
                tf.TensorSpec(places, tf.int32),
                tf.TensorSpec(places, tf.int32),
            ),
            (draw,) * options.n_directions if self.model.samples else (),
            (tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.int64)),
        )
        states = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), self.model.zero_states(self.batch_size)
        )
        return [inputs, states]

    def _run(
        self, inputs: StepInputs, states: tuple[States, ...]
    ) -> tuple[tf.Tensor, tuple[States, ...]]:
        options = self.model.options
        negatives = [self._negatives(draw) for draw in inputs.draws]
        seed = tf.stack(inputs.dropout_seed) if options.dropout else None
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            losses, after = self._losses(inputs.feed, states, negatives, seed)
            # The original trained on the sum over time and the mean over rows.
            objective = options.unroll_steps * tf.reduce_mean(losses)
        self.optimizer.apply(tape.gradient(objective, [v.value for v in variables]))
        return losses, after

    def _negatives(self, draw: Draw) -> Negatives:
        n_tries = tf.cast(draw.n_tries, tf.float32)
        n_tokens = self.model.options.n_tokens_vocab or 0
        return Negatives(draw.ids, log_uniform_log_expected(draw.ids, n_tries, n_tokens), n_tries)

    def _losses(
        self, feed: Feed, states: Any, negatives: list[Negatives], seed: tf.Tensor | None
    ) -> tuple[tf.Tensor, Any]:
        """The mean loss of each direction, and the states; the rows divided among devices."""
        rows = self.batch_size // len(self._devices)
        vectors = self.model.encode(feed)
        losses, afters = [], []
        for k, device in enumerate(self._devices):
            part = slice(k * rows, (k + 1) * rows)
            here = Feed(feed.inputs, feed.words[:, :, part], feed.targets[:, :, part])
            before = tf.nest.map_structure(itemgetter(part), states)
            # Rows of different devices must not be dropped alike.
            seed_here = None if seed is None else seed + tf.constant([k, 0], tf.int64) * 2**32
            with tf.device(device):
                of_rows, after = self.model.losses(vectors, here, before, negatives, seed_here)
            losses.append(tf.stack([tf.reduce_mean(x) for x in of_rows]))
            afters.append(after)
        joined = tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), *afters)
        return tf.reduce_mean(tf.stack(losses), axis=0), joined


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
