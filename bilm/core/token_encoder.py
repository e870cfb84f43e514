"""Context-independent word vectors: Peters et al. (2018), section 3.4.

A character model reads a word's characters (Kim et al. 2016; Jozefowicz et al. 2016): an embedding
lookup, convolutions over characters, the maximum over positions, highway layers, a projection.
A word-level model looks its vector up in a table. In both, id 0 is padding.

`DictionaryEncoder` is the encoder of ELMoForManyLangs (Che et al. 2018).
"""

import itertools
import math
from typing import Any, cast

import numpy as np
import tensorflow as tf

from bilm.core.keras_backend import glorot, keras, matmul, normal, uniform
from bilm.core.options import CharCNNOptions, DictionaryOptions

# Length buckets of a batch's words: more buckets mean less padding, but more time to trace.
_N_BUCKETS = 8

# The functions of `bilm.core.options.ACTIVATIONS`.
ACTIVATIONS = {"relu": tf.nn.relu, "tanh": tf.tanh}


def lookup(table: tf.Tensor | tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    """Rows of `table` (n, dim) for 1-based ids of any shape, zeros for id 0: shape of `ids` +
    (dim,)."""
    mask = tf.cast(ids > 0, table.dtype)[..., tf.newaxis]
    return tf.gather(table, tf.maximum(ids - 1, 0)) * mask


class WordEmbedding(keras.layers.Layer):
    """The table of a word-level model, or a token cache.

    Call arguments:
        ids: integers of any shape, 0 is padding, word k of the vocabulary is k + 1.
        n_buckets: without effect, see `CharacterEncoder`.

    Output shape: shape of `ids` + (projection_dim,), float32.
    """

    def __init__(
        self, n_tokens: int, projection_dim: int, *, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.n_tokens = n_tokens
        self.projection_dim = projection_dim
        self.embedding = self.add_weight(
            name="embedding",
            shape=(n_tokens, projection_dim),
            initializer=glorot(seed, "embedding"),
        )
        self.built = True

    def call(self, ids: tf.Tensor, n_buckets: int = 1) -> tf.Tensor:
        return lookup(self.embedding.value, ids)


class CharacterEncoder(keras.layers.Layer):
    """The character convolutions, highway layers and projection of the paper's model.

    Args:
        seed: seed of the initial values; None: zeros.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.

    Call arguments:
        characters: integers (n, max_characters_per_token), 0 is padding, otherwise the
            vocabulary's character ids + 1.
        n_buckets: number of length buckets for the convolutions; 1 if the words of a call are of
            similar length.

    Output shape: (n, projection_dim), float32.
    """

    def __init__(
        self,
        options: CharCNNOptions,
        projection_dim: int,
        *,
        seed: int | None = None,
        precision: str = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.options = options
        self.projection_dim = projection_dim
        self.precision = precision
        self._seed = seed
        dim, size = options.embedding_dim, options.n_filters
        self.char_embed = self.add_weight(
            name="char_embed",
            shape=(options.n_characters, dim),
            initializer=uniform(1.0, seed, "char_embed"),
        )
        self.convolutions = [
            self._add_pair(f"conv_{i}", (1, width, dim, number))
            for i, (width, number) in enumerate(options.filters)
        ]
        highways: list[dict[str, Any]] = [{} for _ in range(options.n_highway)]
        for k, weights in enumerate(highways):
            for gate, start in (("carry", -2.0), ("transform", 0.0)):
                pair = self._add_pair(f"highway_{k}_{gate}", (size, size), start)
                weights[f"W_{gate}"], weights[f"b_{gate}"] = pair
        self.highways = highways
        self.projection: tuple[Any, Any] | None = None
        # Dictionary models always project characters, like words.
        if size != projection_dim or options.dictionary is not None:
            self.projection = self._add_pair("projection", (size, projection_dim))
        self.built = True

    def _add_pair(self, name: str, shape: tuple[int, ...], bias: float = 0.0) -> tuple[Any, Any]:
        """A kernel (..., outputs) and a bias (outputs,)."""
        if name.startswith("conv") and self.options.activation == "relu":
            initial = uniform(0.05, self._seed, name)
        else:
            initial = normal(math.sqrt(1 / math.prod(shape[:-1])), self._seed, name)
        kernel = self.add_weight(name=f"{name}_kernel", shape=shape, initializer=initial)
        constant = keras.initializers.Constant(bias)
        return kernel, self.add_weight(name=f"{name}_bias", shape=shape[-1:], initializer=constant)

    def call(self, characters: tf.Tensor, n_buckets: int = _N_BUCKETS) -> tf.Tensor:
        x = self._convolve(characters, n_buckets)
        for weights in self.highways:
            x = self._highway(x, weights)
        if self.projection is not None:
            kernel, bias = self.projection
            x = matmul(x, kernel, self.precision) + bias
        return x

    def _convolve(self, characters: tf.Tensor, n_buckets: int) -> tf.Tensor:
        """The concatenated convolutions (n, n_filters), in buckets of words of similar length."""
        widest = max(width for width, _ in self.options.filters)
        # All filters as one kernel (widest, dim, n_filters), zeros beyond a filter's width.
        kernels = [
            tf.pad(kernel[0], [(0, widest - width), (0, 0), (0, 0)])
            for (width, _), (kernel, _) in zip(self.options.filters, self.convolutions, strict=True)
        ]
        kernel = tf.concat(kernels, axis=-1)
        lengths = _word_lengths(characters, self.options.n_characters)
        if n_buckets == 1:
            strongest = self._convolve_bucket(characters, lengths, kernel)
        else:
            order = tf.argsort(lengths)
            n = tf.shape(order)[0]
            bounds = [n * k // n_buckets for k in range(n_buckets + 1)]
            parts = []
            for start, stop in itertools.pairwise(bounds):
                part = order[start:stop]
                inputs = tf.gather(characters, part), tf.gather(lengths, part)
                parts.append(self._convolve_bucket(*inputs, kernel))
            # (n, n_filters), in the order of the words
            inverse = tf.math.invert_permutation(order)
            strongest = _permuted(tf.concat(parts, axis=0), inverse, order)
        # The maximum commutes with the bias; the activation comes after it, as in the original.
        bias = tf.concat([bias for _, bias in self.convolutions], axis=0)
        return ACTIVATIONS[self.options.activation](strongest + bias)

    def _convolve_bucket(
        self, characters: tf.Tensor, lengths: tf.Tensor, kernel: tf.Tensor
    ) -> tf.Tensor:
        """The maxima of the convolutions of words of similar length, (n, n_filters).

        Windows that hold only padding are equal, so one of them is enough for the maximum.
        """
        longest = tf.maximum(tf.reduce_max(lengths), 0)  # 0 for an empty batch
        n_columns = self.options.max_characters_per_token
        n_windows = tf.minimum(longest + 1, n_columns)
        # A window of each filter must end within the columns of a word.
        last = [(n_columns - width + 1, number) for width, number in self.options.filters]
        limits = np.concatenate([np.full(number, limit) for limit, number in last])
        beyond = kernel.shape[0] - 1
        characters = tf.pad(characters, [(0, 0), (0, beyond)])[:, : n_windows + beyond]
        # (n, columns) -> (columns, n, dim)
        embedded = lookup(tf.convert_to_tensor(self.char_embed), tf.transpose(characters))
        return _max_matmul(embedded, kernel, limits, self.precision)

    def _highway(self, x: tf.Tensor, weights: dict[str, Any]) -> tf.Tensor:
        """Srivastava et al. (2015). The names in files are swapped: the gate called carry
        multiplies the transformed part."""
        gate = tf.sigmoid(matmul(x, weights["W_carry"], self.precision) + weights["b_carry"])
        new = tf.nn.relu(matmul(x, weights["W_transform"], self.precision) + weights["b_transform"])
        return gate * new + (1 - gate) * x


def _word_lengths(characters: tf.Tensor, n_characters: int) -> tf.Tensor:
    """Characters of each word without trailing padding, ids 0 and `n_characters`: int32 (n,)."""
    mask = (characters != 0) & (characters != n_characters)  # (n, max_characters_per_token)
    columns = tf.range(1, tf.shape(characters)[1] + 1)
    return tf.reduce_max(tf.where(mask, columns, 0), axis=1)


@tf.custom_gradient
def _permuted(x: tf.Tensor, order: tf.Tensor, inverse: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """The rows of x in another order. tf.gather has a sparse gradient, which is slower."""
    return tf.gather(x, order), lambda upstream: (tf.gather(upstream, inverse), None, None)


def _max_matmul(
    embedded: tf.Tensor, kernel: tf.Tensor, limits: np.ndarray, precision: str
) -> tf.Tensor:
    """max over positions of (window . kernel), (n, n_filters), as one matmul over all windows.

    `embedded` is (characters, n, dim): a maximum over the first axis is the fastest. Filter k uses
    only its first `limits[k]` windows. The gradient goes to the window with the maximum, in equal
    parts if several windows have it.
    """
    width, dim, n_filters = kernel.shape
    positions = tf.shape(embedded)[0] - width + 1

    @tf.custom_gradient
    def strongest(embedded: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
        # (characters, n, dim) -> (positions, n, width * dim) -> (positions * n, width * dim)
        # tf.slice traces fewer operations than indexing.
        size = tf.stack([positions, -1, dim])
        rounded = tf.cast(embedded, precision)
        windows = tf.concat([tf.slice(rounded, (k, 0, 0), size) for k in range(width)], axis=-1)
        windows = tf.reshape(windows, (-1, width * dim))
        flat = tf.cast(tf.reshape(kernel, (width * dim, n_filters)), precision)
        values = tf.reshape(windows @ flat, tf.stack([positions, -1, n_filters]))
        index = tf.range(positions)[:, tf.newaxis, tf.newaxis]  # (positions, 1, 1)
        values = tf.cond(
            positions > limits.min(),
            lambda: tf.where(index < limits, values, values.dtype.min),
            lambda: values,
        )
        highest = tf.reduce_max(values, axis=0)  # (n, n_filters)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # (positions, n, n_filters): the proportion of the gradient for each position
            share = tf.cast(values == highest, precision)
            upstream /= tf.cast(tf.reduce_sum(share, axis=0), tf.float32)
            share *= tf.cast(upstream, precision)
            share = tf.reshape(share, (-1, n_filters))
            d_kernel = matmul(windows, share, precision, transpose_a=True)
            d_windows = matmul(share, flat, precision, transpose_b=True)
            d_windows = tf.reshape(d_windows, tf.stack([positions, -1, width, dim]))
            # (positions, n, dim) of each k in the window -> (characters, n, dim)
            padding = [[[k, width - 1 - k], [0, 0], [0, 0]] for k in range(width)]
            d_embedded = [tf.pad(d_windows[:, :, k], pad) for k, pad in enumerate(padding)]
            return tf.add_n(d_embedded), tf.reshape(d_kernel, (width, dim, n_filters))

        return tf.cast(highest, tf.float32), gradient

    return strongest(embedded, kernel)


class DictionaryEncoder(CharacterEncoder):
    """Convolutions over a dictionary of characters, plus a projected table of words.

    The projection of [word; characters] in Che et al. (2018) is the sum of a projection of each.

    Call arguments:
        ids: int32 (n, 1 + max_characters_per_token), rows of the dictionaries + 1, 0 for padding:
            the word, then its characters.

    Output shape: (n, projection_dim), float32.
    """

    def __init__(
        self, options: CharCNNOptions, projection_dim: int, *, seed: int | None, **settings: Any
    ) -> None:
        super().__init__(options, projection_dim, seed=seed, **settings)
        dictionary = cast(DictionaryOptions, options.dictionary)
        self.word_embed = self.W_word = None
        n_words, dim = dictionary.n_words, dictionary.word_dim
        if dim:
            self.word_embed = self.add_weight(
                name="word_embed", shape=(n_words, dim), initializer=glorot(seed, "word_embed")
            )
            self.W_word = self.add_weight(
                name="W_word", shape=(dim, projection_dim), initializer=glorot(seed, "W_word")
            )

    def call(self, ids: tf.Tensor, n_buckets: int = _N_BUCKETS) -> tf.Tensor:
        vectors = super().call(ids[:, 1:], n_buckets)
        if self.word_embed is None:
            return vectors
        words = lookup(tf.convert_to_tensor(self.word_embed), ids[:, 0])
        return vectors + matmul(words, self.W_word, self.precision)


Encoder = CharacterEncoder | WordEmbedding
"""The token encoder of a network."""
