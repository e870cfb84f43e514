"""The language model in training: Peters et al. (2018), section 3.1.

Both directions share the token encoder and the softmax; each has LSTMs of its own. The loss is
the mean of the two negative log-likelihoods, in nats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bilm.data import Vocabulary, network_ids
from bilm.data.corpus import IndexedText
from bilm.errors import InputError
from bilm.layers import Dropout, Mode, Negatives, Softmax, States, WordLookup
from bilm.network import Texts, build_network
from bilm.options import Options
from bilm.training.feed import Feed
from bilm.weights import Weight, weight_table


class LanguageModel(keras.Model):
    """Token encoder, LSTMs of one or two directions, softmax.

    Args:
        options: training options, as a dict or read. `n_tokens_vocab` is needed.
        is_training: with dropout and the sampled softmax, as the options say. False: without
            dropout, and with the full softmax.
        seed: of the initial values; None leaves zeros, for weights that are about to be loaded.
        precision: "float32", or "bfloat16" for products in bfloat16.
        mode: how the LSTMs are executed; None: for use in training outside a run of `train`, or
            for inference.

    Raises:
        InputError: `n_tokens_vocab` is missing, or is too small for the sampled softmax.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | Options,
        is_training: bool = True,
        *,
        seed: int | None = 0,
        precision: str = "float32",
        mode: Mode | None = None,
    ) -> None:
        super().__init__(name="lm", autocast=False, dtype="float32")
        if not isinstance(options, Options):
            options = Options.from_dict(options, training=True)
        self.options = options
        self.is_training = is_training
        n_tokens = _checked_vocabulary_size(options, is_training)
        self.network = build_network(
            options,
            n_tokens if options.char_cnn is None else None,
            dropout=options.dropout if is_training else 0.0,
            seed=seed,
            precision=precision,
            mode=mode or (Mode.KERAS if is_training else Mode.INFERENCE),
        )
        self.encoder, self.stacks = self.network
        tied = self.encoder.embedding if options.share_embedding_softmax else None
        self.softmax = Softmax(
            n_tokens,
            options.lstm.projection_dim,
            tied=tied,
            seed=seed,
            precision=precision,
            name="softmax",
        )
        self.built = True

    @property
    def samples(self) -> bool:
        """Whether the loss is the sampled softmax's."""
        return self.is_training and self.options.sample_softmax

    def weight_table(self) -> list[Weight]:
        """All variables with their names in files, in the order of the network."""
        return weight_table(self.encoder, self.stacks, self.softmax)

    def warm_up(self, sentences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> None:
        """Let texts begin from the states after some sentences, see `bilm.warm_up`.

        Args:
            sentences: lists of words.
            vocabulary: of the model, with characters if it reads them.
        """
        text = IndexedText.from_sentences(sentences, vocabulary)
        ids = text.vocabulary_ids if text.characters is None else text.characters
        vectors = self.encoder(tf.constant(network_ids(ids.astype(np.int32))))
        self.network.warm_up(vectors, [text.sentence(number) for number in range(len(text))])

    def encode(self, feed: Feed) -> tf.Tensor:
        """Vectors of the batch's distinct words, float32 (distinct, projection_dim)."""
        return self.encoder(feed.inputs)

    def losses(
        self,
        vectors: tf.Tensor,
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
            vectors: what `encode` gave.
            feed: the batch.
            states: of each direction, before the batch.
            negatives: of each direction, when the softmax is sampled.
            dropout: None is no dropout.
            resets: of each direction bool (time, batch), True where the state before the input is
                zero; empty for none.
            mode: how the LSTMs are executed; None: as the model was made.

        Returns:
            of each direction float32 (time * batch,) in nats, and the states after the batch.
            No gradient goes from them to the batch before.
        """
        hidden, after = self.hidden(vectors, feed, states, dropout, resets=resets, mode=mode)
        # (time, batch, projection_dim) -> (time * batch, projection_dim)
        flat = [tf.reshape(h, (-1, self.options.lstm.projection_dim)) for h in hidden]
        # (time, batch) -> (time * batch,)
        targets = [tf.reshape(feed.targets[d], (-1,)) for d in range(len(self.stacks))]
        return self._softmax_losses(flat, targets, negatives), after

    def hidden(
        self,
        vectors: tf.Tensor,
        feed: Feed,
        states: Sequence[States],
        dropout: Dropout | None = None,
        *,
        resets: Sequence[tf.Tensor] = (),
        mode: Mode | None = None,
    ) -> tuple[list[tf.Tensor], tuple[States, ...]]:
        """The top layer, from which the softmax predicts. Arguments as for `losses`.

        Returns:
            of each direction float32 (time, batch, projection_dim), and the states.
        """
        read = [WordLookup(vectors, feed.words[d]) for d in range(len(self.stacks))]
        texts = Texts(read, states, resets=resets, initial=self.network.zero_states(1))
        outputs, after = self.network.run(texts, dropout=dropout, mode=mode)
        return [layers[-1] for layers in outputs], tf.nest.map_structure(tf.stop_gradient, after)

    def _softmax_losses(
        self, hidden: list[tf.Tensor], targets: list[tf.Tensor], negatives: Sequence[Negatives]
    ) -> tuple[tf.Tensor, ...]:
        if negatives:
            return self.softmax.sampled_losses(tuple(hidden), tuple(targets), tuple(negatives))
        return tuple(self.softmax.full_losses(h, t) for h, t in zip(hidden, targets, strict=True))


def _checked_vocabulary_size(options: Options, is_training: bool) -> int:
    n_tokens = options.n_tokens_vocab
    if options.char_cnn is not None and options.char_cnn.dictionary is not None:
        raise InputError(
            "char_cnn.dictionary: models with dictionaries of characters do not train."
        )
    if n_tokens is None:
        raise InputError("options: n_tokens_vocab, the size of the vocabulary, is missing.")
    n_samples = options.n_negative_samples_batch
    if is_training and options.sample_softmax and n_samples >= n_tokens:
        raise InputError(
            f"options: n_negative_samples_batch = {n_samples} distinct words cannot be drawn from "
            f"n_tokens_vocab = {n_tokens}; take fewer, or sample_softmax = false."
        )
    return n_tokens
