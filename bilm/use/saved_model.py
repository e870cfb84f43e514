"""Export of SavedModels, which run with TensorFlow alone.

`export_saved_model` writes a pretrained model with the signatures and names of TF-Hub's ELMo.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, shown
from bilm.core.scalar_mix import ScalarMix, sum_layers
from bilm.files.model_files import ModelSource
from bilm.files.reading import SAVED_MODEL_FILES, PathLike
from bilm.files.writing import Outputs
from bilm.inference.layers import LayerChoice
from bilm.use.elmo_embedding import ELMoEmbedding
from bilm.use.pretrained import Pretrained
from bilm.use.text_layers import FramedWords, framed_words

Mix = ScalarMix | Sequence[float] | np.ndarray | None


def export_saved_model(
    source: ModelSource | Pretrained,
    folder: PathLike,
    *,
    mix: Mix = None,
    overwrite: bool = False,
    vocab_file: PathLike | None = None,
    embedding_weight_file: PathLike | None = None,
    precision: str = "float32",
) -> str:
    """Write a model with string inputs that runs without Python, like TF-Hub's ELMo.

    Signatures:
        default: strings (batch,), sentences that are split at white space.
        tokens: tokens (batch, time) string and sequence_len (batch,) int32.

    Outputs, float32, zeros past a sentence's end; dim is n_directions * projection_dim:
        word_emb (batch, time, projection_dim): the token layer.
        lstm_outputs1 .. lstm_outputsN (batch, time, dim): the N LSTM layers.
        elmo (batch, time, dim): the mix of all layers.
        default (batch, dim): the mean of `elmo` over a sentence's tokens; zeros without any.

    The object itself is callable, as TF-Hub's Keras layer expects: strings (batch,) to the output
    `default`. Its `trainable_variables` are W and gamma of the mix, unless `mix` is a list of
    weights; the signatures have constant values.

    Args:
        source: see `bilm.files.model_files.open_model`; or a `Pretrained`.
        folder: the folder to write; it is created only when complete.
        mix: a trained `ScalarMix`, one fixed weight per layer, or None for equal weights. Layer
            normalisation is done within each sentence, so vectors do not depend on the batch.
        overwrite: replace `folder` if it holds a SavedModel and nothing else.
        vocab_file, embedding_weight_file, precision: see `Pretrained`.

    Returns:
        `folder`.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not valid, the mix does not fit, or `folder` exists.
        OSError: the disk is full or fails.
    """
    settings = {"vocab_file": vocab_file, "embedding_weight_file": embedding_weight_file}
    outputs = Outputs([folder], folders=[folder], overwrite=overwrite, replaces=SAVED_MODEL_FILES)
    with outputs.temporaries() as (temporary,):
        with tf.variable_creator_scope(_frozen):
            elmo = ELMoEmbedding.from_pretrained(
                source, **settings, precision=precision, layers="average"
            )
        elmo.word_vectors.require_words()
        served = ServedELMo(elmo, mix)
        signatures = {"default": served.default, "tokens": served.tokens}
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        try:
            tf.saved_model.save(served, temporary, signatures=signatures, options=options)
        except tf.errors.OpError as error:
            raise OSError(f"{folder}: cannot be written: {error.message}") from error
    return os.fspath(folder)


def _frozen(create: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
    """Create a variable that is not trainable after loading."""
    return create(**settings | {"trainable": False})


class ServedELMo(tf.train.Checkpoint):
    """Strings to vectors, without Python and without state; `mix` as for `export_saved_model`."""

    def __init__(self, elmo: ELMoEmbedding, mix: Mix = None) -> None:
        super().__init__()
        if isinstance(mix, str | int):
            raise InputError(f"mix must be a ScalarMix or one weight per layer, got {shown(mix)}.")
        choice = LayerChoice("average" if mix is None else mix, elmo.n_layers)
        trained = ScalarMix(elmo.n_layers) if mix is None else mix
        fixed = choice.mix
        if fixed is not None:
            with tf.variable_creator_scope(_frozen):
                fixed = ScalarMix.from_config(fixed.get_config())
            fixed.set_weights(choice.mix.get_weights())
        is_trained = isinstance(trained, ScalarMix)
        # As functions, so that they are not saved with the object.
        self._elmo = lambda: elmo
        self._fixed: Callable[[], Any] = lambda: choice.weights if fixed is None else fixed
        self._trained: Callable[[], Any] = lambda: trained if is_trained else choice.weights
        # Variables only: Keras layers would be saved as layers.
        self.trainable_variables = _values(trained) if is_trained else []
        frozen = [elmo.language_model, elmo.word_vectors, *([] if fixed is None else [fixed])]
        self.variables = [*self.trainable_variables, *_values(*frozen)]
        self.regularization_losses: list[Any] = []
        words = elmo.word_vectors.words
        self._tables = [] if words is None else [words.table]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None,), tf.string, "strings")])
    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """The output `default` of sentences (batch,), with the trainable mix."""
        return self._vectors(framed_words(strings), self._trained())["default"]

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None,), tf.string, "strings")])
    def default(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """The vectors of sentences (batch,), which are split at white space."""
        return self._vectors(framed_words(strings), self._fixed())

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec((None, None), tf.string, "tokens"),
            tf.TensorSpec((None,), tf.int32, "sequence_len"),
        ],
    )
    def tokens(self, tokens: tf.Tensor, sequence_len: tf.Tensor) -> dict[str, tf.Tensor]:
        """The vectors of the first `sequence_len` tokens of each row."""
        n_rows, n_tokens = tf.unstack(tf.shape(tokens))
        fit = tf.reduce_all((sequence_len >= 0) & (sequence_len <= n_tokens))
        rule = "sequence_len must hold the length of each row of tokens, at most their axis, got"
        is_valid = fit & (tf.size(sequence_len) == n_rows)
        with tf.control_dependencies([tf.debugging.Assert(is_valid, [rule, sequence_len])]):
            return self._vectors(framed_words(tokens, tf.identity(sequence_len)), self._fixed())

    def _vectors(self, sentences: FramedWords, mix: Any) -> dict[str, tf.Tensor]:
        results = self._elmo().all_layers(sentences)
        layers = results["lm_embeddings"]
        mask = tf.cast(results["mask"], tf.float32)[..., tf.newaxis]  # (batch, time, 1)
        mixed = _mixed(mix, layers, results["mask"]) * mask
        n_tokens = tf.cast(tf.maximum(results["lengths"], 1), tf.float32)[:, tf.newaxis]
        outputs = {
            "word_emb": results["token_embeddings"][:, 1:-1] * mask,
            "elmo": mixed,
            "default": tf.reduce_sum(mixed, axis=1) / n_tokens,
        }
        for k in range(1, layers.shape[1]):
            outputs[f"lstm_outputs{k}"] = layers[:, k]
        return outputs


def _values(*layers: Any) -> list[tf.Variable]:
    return [weight.value for layer in layers for weight in layer.weights]


def _mixed(mix: Any, layers: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The mix of layers by a `ScalarMix`, normalised within each sentence, or by weights."""
    if not isinstance(mix, ScalarMix):
        return sum_layers(mix, layers)
    if not mix.normalises:
        return mix.mixed(layers)

    def mix_one(sentence: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return mix.mixed(*(x[tf.newaxis] for x in sentence))[0]

    signature = tf.TensorSpec((None, layers.shape[-1]), tf.float32)
    return tf.map_fn(mix_one, (layers, mask), fn_output_signature=signature)
