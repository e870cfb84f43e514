"""The language model for training: Peters et al. (2018), section 3.1.

Both directions share the token encoder and the softmax; each has its own LSTMs. The loss is the
mean of the two negative log-likelihoods, in nats.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.errors import InputError
from bilm.core.keras_backend import keras
from bilm.core.lstm import Dropout, Mode, States
from bilm.core.network import BiLM, build_network
from bilm.core.options import Options
from bilm.core.recurrence import Boundaries
from bilm.core.softmax import Negatives, Softmax


class Feed(NamedTuple):
    """A batch with time first, as NumPy arrays or tensors. D is the number of directions."""

    # Int32, the distinct words: characters (distinct, max_word_length) or word ids (distinct,),
    # both 1-based: 0 is padding.
    distinct: Any
    words: Any  # int32 (D, time, batch), rows of `distinct`
    targets: Any  # int32 (D, time, batch), vocabulary ids


class LanguageModel(keras.Model):
    """Token encoder, LSTMs of one or two directions, softmax.

    Args:
        options: training options, as a dict or `Options`. `n_tokens_vocab` is required.
        is_training: False uses the full softmax, regardless of the options.
        seed: seed of the initial values; None: zeros, for weights that are about to be loaded.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
        mode: how the LSTMs are run; None: `Mode.PLAIN` for training, else `Mode.INFERENCE`.
        network: the encoder and the LSTMs; None: new ones.

    Attributes:
        samples: whether the loss uses the sampled softmax.

    Raises:
        InputError: an option is invalid, `n_tokens_vocab` is missing or not above the number of
            negative samples, or the model has a dictionary of characters.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | Options,
        is_training: bool = True,
        *,
        seed: int | None = 0,
        precision: str = "float32",
        mode: Mode | None = None,
        network: BiLM | None = None,
    ) -> None:
        super().__init__(name="lm", autocast=False, dtype="float32")
        if not isinstance(options, Options):
            options = Options.from_dict(options, training=True)
        self.options = options
        self.samples = is_training and options.sample_softmax
        n_tokens = _checked_vocabulary_size(options, self.samples)
        self.network = network or build_network(
            options,
            n_tokens if options.char_cnn is None else None,
            seed=seed,
            precision=precision,
        )
        self.mode = mode or (Mode.PLAIN if is_training else Mode.INFERENCE)
        self.encoder, self.stacks = self.network
        self.softmax = Softmax(
            n_tokens,
            options.lstm.projection_dim,
            tied=self.encoder.embedding if options.share_embedding_softmax else None,
            seed=seed,
            precision=precision,
            name="softmax",
        )
        self.built = True

    def signature(self, steps: int | None = None, rows: int | None = None) -> list[Any]:
        """The input signature of a tf.function of a `Feed` and states; None: any number."""
        options = self.options
        width = () if options.max_word_length is None else (options.max_word_length,)
        tokens = (options.n_directions, steps, rows)
        feed = Feed(*(tf.TensorSpec(shape, tf.int32) for shape in ((None, *width), tokens, tokens)))
        states = tf.nest.map_structure(
            lambda x: tf.TensorSpec((rows, *x.shape[1:]), x.dtype), self.network.zero_states(1)
        )
        return [feed, states]

    def losses(
        self,
        feed: Feed,
        states: Sequence[States],
        negatives: Sequence[Negatives] = (),
        dropout: Dropout | None = None,
        *,
        resets: Sequence[tf.Tensor] = (),
        mode: Mode | None = None,
    ) -> tuple[tuple[tf.Tensor, ...], tuple[States, ...]]:
        """The loss of every prediction.

        Args:
            states: per direction, before the batch.
            negatives: per direction the samples of the sampled softmax; empty: full softmax.
            dropout: None: no dropout.
            resets: per direction bool (time, batch), True where the LSTMs start from zero states;
                empty: no resets.
            mode: None: the constructor's mode.

        Returns:
            per direction float32 (time * batch,) in nats, and the states after the batch, without
            gradient.
        """
        hidden, after = self.hidden(feed, states, dropout, resets=resets, mode=mode)
        # (time, batch, projection_dim) -> (time * batch, projection_dim)
        flat = tuple(tf.reshape(h, (-1, self.options.lstm.projection_dim)) for h in hidden)
        # (time, batch) -> (time * batch,)
        targets = tuple(tf.reshape(feed.targets[d], (-1,)) for d in range(len(flat)))
        if negatives:
            return self.softmax.sampled_losses(flat, targets, tuple(negatives)), after
        return tuple(map(self.softmax.full_losses, flat, targets)), after

    def hidden(
        self,
        feed: Feed,
        states: Sequence[States],
        dropout: Dropout | None = None,
        *,
        resets: Sequence[tf.Tensor] = (),
        mode: Mode | None = None,
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        """The top layer, the input of the softmax: per direction float32 (time, batch,
        projection_dim), and the states. Arguments as for `losses`."""
        vectors = self.encoder(feed.distinct)  # (distinct, projection_dim)
        # (distinct, projection_dim) -> (time, batch, projection_dim) of each direction
        inputs = tf.unstack(_at_positions(vectors, feed.words), num=len(states))
        boundaries = []
        if resets:
            zeros = self.network.zero_states(1)
            boundaries = [
                Boundaries(None, reset, zero) for reset, zero in zip(resets, zeros, strict=True)
            ]
        outputs, after = self.network.run(
            inputs,
            states,
            boundaries,
            dropout=dropout,
            mode=mode or self.mode,
        )
        return [layers[-1] for layers in outputs], tf.nest.map_structure(tf.stop_gradient, after)


@tf.custom_gradient
def _at_positions(vectors: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """The vectors of words, (..., dim). tf.gather has a sparse gradient, which each operation of
    the encoder would sum again."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tf.math.unsorted_segment_sum(upstream, words, tf.shape(vectors)[0]), None

    return tf.gather(vectors, words), gradient


def _checked_vocabulary_size(options: Options, samples: bool) -> int:
    n_tokens = options.n_tokens_vocab
    if options.char_cnn is not None and options.char_cnn.dictionary is not None:
        raise InputError(
            "options: char_cnn.dictionary must be missing: models with a dictionary of characters "
            "cannot be trained."
        )
    if n_tokens is None:
        raise InputError("options: n_tokens_vocab, the size of the vocabulary, is missing.")
    n_samples = options.n_negative_samples_batch
    if samples and n_samples >= n_tokens:
        raise InputError(
            f"options: n_negative_samples_batch must be below n_tokens_vocab = {n_tokens}, got "
            f"{n_samples}; or set sample_softmax to false."
        )
    return n_tokens
