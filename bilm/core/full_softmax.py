"""The softmax over the whole vocabulary, in memory that does not grow with it.

Logits are computed in blocks of classes, forward and backward: only a few MiB of them exist at
once, so that they stay in the CPU cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.core.keras_backend import matmul

# Bytes of logits in memory at a time.
BLOCK_BYTES = 8 * 2**20
# Rows and classes of a compiled block of logits.
_TILE_ROWS, _TILE_CLASSES = 256, 4096
# Far below any logit, and finite, to avoid differences of infinities.
NEVER = -1e30


class LogitBlocks(NamedTuple):
    """The logits hidden . W^T + b, one block of classes at a time."""

    hidden: tf.Tensor  # float32 (n, dim)
    W: tf.Tensor  # float32 (classes, dim)
    b: tf.Tensor  # float32 (classes,)
    size: tf.Tensor  # int32 (), classes per block
    precision: str  # of the matmuls

    @classmethod
    def of(
        cls,
        hidden: tf.Tensor,
        W: tf.Tensor,
        b: tf.Tensor,
        precision: str,
        block_bytes: int = BLOCK_BYTES,
    ) -> LogitBlocks:
        """Blocks of `block_bytes` bytes of logits, and at least 128 classes."""
        size = tf.maximum(block_bytes // 4 // tf.maximum(tf.shape(hidden)[0], 1), 128)
        return cls(hidden, W, b, size, precision)

    @property
    def n_classes(self) -> tf.Tensor:
        return tf.shape(self.W)[0]

    def part_of_W(self, start: tf.Tensor) -> tf.Tensor:
        """The block's rows of W: (block, dim); the last block may be shorter."""
        return self.W[start : start + self.size]

    def logits(self, start: tf.Tensor) -> tf.Tensor:
        """The logits of the block that starts with class `start`: (n, block)."""
        b = self.b[start : start + self.size]
        return matmul(self.hidden, self.part_of_W(start), self.precision, transpose_b=True) + b


def full_cross_entropy(
    hidden: tf.Tensor,
    W: tf.Tensor,
    b: tf.Tensor,
    targets: tf.Tensor,
    precision: str = "float32",
    *,
    block_bytes: int = BLOCK_BYTES,
) -> tf.Tensor:
    """log sum of exp(logit) over all classes, minus the target's logit: float32 (n,), nats.

    Args:
        hidden, W, b: see `LogitBlocks`.
        targets: integers (n,).
        block_bytes: bytes of logits per block, which has at least 128 classes.
    """

    @tf.custom_gradient
    def losses_of(hidden: tf.Tensor, W: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, Any]:
        blocks = LogitBlocks.of(hidden, W, b, precision, block_bytes)
        log_sum = _log_sum(blocks)
        true_W = tf.gather(W, targets)  # (n, dim)
        true_logit = tf.reduce_sum(hidden * true_W, axis=1) + tf.gather(b, targets)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scale = upstream[:, tf.newaxis]  # (n, 1)
            d_hidden, d_W, d_b = _log_sum_gradient(blocks, log_sum, scale)
            d_hidden -= scale * true_W
            index = targets[:, tf.newaxis]  # (n, 1)
            d_W = tf.tensor_scatter_nd_sub(d_W, index, scale * hidden)
            return d_hidden, d_W, tf.tensor_scatter_nd_sub(d_b, index, upstream)

        return log_sum - true_logit, gradient

    return losses_of(hidden, W, b)


def log_probabilities(
    hidden: tf.Tensor,
    W: tf.Tensor,
    b: tf.Tensor,
    index: tf.Tensor,
    targets: tf.Tensor,
    precision: str = "float32",
) -> tf.Tensor:
    """log softmax(hidden[index] . W^T + b)[targets]: float32 (n,), nats; it has no gradient.

    The sum over classes is computed once per row of `hidden`, in blocks whose operations are
    compiled, for `_TILE_ROWS` rows at a time. The remaining rows are computed without compilation.

    Args:
        hidden: float32 (rows, dim), distinct rows.
        W, b: see `LogitBlocks`.
        index: int32 (n,), the row of each prediction.
        targets: int32 (n,), its class.
        precision: of the logits.
    """
    hidden, W = tf.cast(hidden, precision), tf.cast(W, precision)
    log_sums = _log_sums(hidden, W, b)
    products = tf.cast(tf.gather(hidden, index), tf.float32)
    products *= tf.cast(tf.gather(W, targets), tf.float32)  # (n, dim)
    # Rounded like the logits of the sum, so that errors mostly cancel.
    logit = tf.cast(tf.cast(tf.reduce_sum(products, axis=1), precision), tf.float32)
    return logit + tf.gather(b, targets) - tf.gather(log_sums, index)


def _log_sums(hidden: tf.Tensor, W: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """log sum of exp(logit) over the classes: float32 (rows,). `hidden` and `W` have one dtype."""
    dim, n_tiles = hidden.shape[1], tf.shape(hidden)[0] // _TILE_ROWS
    n_blocks, n_last = divmod(W.shape[0], _TILE_CLASSES)

    def tile(k: tf.Tensor, log_sums: tf.TensorArray) -> Any:
        rows = tf.slice(hidden, (k * _TILE_ROWS, 0), (_TILE_ROWS, dim))
        columns = tf.transpose(rows)  # (rows, dim) -> (dim, rows)

        def add(start: Any, n: int, total: tf.Tensor) -> tf.Tensor:
            logits = tf.slice(W, (start, 0), (n, dim)) @ columns  # (classes, rows)
            return _compiled_sum()(logits, tf.slice(b, (start,), (n,)), total)

        _, total = tf.while_loop(
            lambda i, _: i < n_blocks,
            lambda i, total: (i + 1, add(i * _TILE_CLASSES, _TILE_CLASSES, total)),
            (0, tf.zeros((_TILE_ROWS,))),
            parallel_iterations=1,
        )
        total = add(n_blocks * _TILE_CLASSES, n_last, total) if n_last else total
        # A sum of very large or very small exponentials needs the maximum subtracted.
        is_exact = tf.reduce_all((total > 1e-20) & (total < 1e30))
        log_sum = tf.cond(
            is_exact,
            lambda: tf.math.log(total),
            lambda: _log_sum(LogitBlocks.of(rows, W, b, W.dtype.name)),
        )
        return k + 1, log_sums.write(k, log_sum)

    log_sums = tf.TensorArray(tf.float32, n_tiles, element_shape=(_TILE_ROWS,))
    _, log_sums = tf.while_loop(
        lambda k, _: k < n_tiles, tile, (0, log_sums), parallel_iterations=1
    )
    remaining = _log_sum(LogitBlocks.of(hidden[n_tiles * _TILE_ROWS :], W, b, W.dtype.name))
    # (tiles, rows of a tile) -> (rows,)
    return tf.concat([tf.reshape(log_sums.stack(), (-1,)), remaining], axis=0)


def _add_to_sum(logits: tf.Tensor, b: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """The sum of exp(logit) so far, (rows,), after another block of logits (classes, rows)."""
    return total + tf.reduce_sum(tf.exp(tf.cast(logits, tf.float32) + b[:, tf.newaxis]), axis=0)


@functools.cache  # so that it is compiled once per process
def _compiled_sum() -> Callable[..., tf.Tensor]:
    return tf.function(_add_to_sum, jit_compile=True, autograph=False)


def _log_sum(blocks: LogitBlocks) -> tf.Tensor:
    """log sum of exp(logit) over the classes: float32 (n,)."""

    def add_block(start: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        block_sum = tf.reduce_logsumexp(blocks.logits(start), axis=1)
        return start + blocks.size, tf.reduce_logsumexp(tf.stack([total, block_sum]), axis=0)

    empty_sum = tf.fill(tf.shape(blocks.hidden)[:1], NEVER)
    return tf.while_loop(
        lambda start, _: start < blocks.n_classes,
        add_block,
        (tf.constant(0), empty_sum),
        parallel_iterations=1,
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )[1]


def _log_sum_gradient(
    blocks: LogitBlocks, log_sum: tf.Tensor, scale: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of scale (n, 1) * log_sum (n,): of hidden, W and b."""
    hidden, precision = blocks.hidden, blocks.precision
    n_blocks = -(-blocks.n_classes // blocks.size)
    d_W, d_b = (
        tf.TensorArray(tf.float32, n_blocks, infer_shape=False, element_shape=shape)
        for shape in ([None, hidden.shape[1]], [None])
    )

    def add_block(i: tf.Tensor, d_hidden: tf.Tensor, d_W: Any, d_b: Any) -> tuple[Any, ...]:
        start = i * blocks.size
        p = tf.exp(blocks.logits(start) - log_sum[:, tf.newaxis]) * scale  # (n, block)
        d_hidden += matmul(p, blocks.part_of_W(start), precision)
        # (n, block)^T (n, dim) -> (block, dim)
        d_W = d_W.write(i, matmul(p, hidden, precision, transpose_a=True))
        return i + 1, d_hidden, d_W, d_b.write(i, tf.reduce_sum(p, axis=0))

    _, d_hidden, d_W, d_b = tf.while_loop(
        lambda i, *_: i < n_blocks,
        add_block,
        (tf.constant(0), tf.zeros_like(hidden), d_W, d_b),
        parallel_iterations=1,
    )
    return d_hidden, d_W.concat(), d_b.concat()  # (n, dim), (classes, dim), (classes,)
