"""A pretrained model as a SavedModel of TensorFlow."""

from __future__ import annotations

import os

import tensorflow as tf

from bilm.files import PathLike, folder_in_place
from bilm.model import ELMoEmbedding
from bilm.model_files import ModelSource
from bilm.serving.signatures import Mix, ServedELMo
from bilm.warm_up import WarmUpText

# By this file a folder is known as a SavedModel.
SAVED_MODEL = "saved_model.pb"


def export_saved_model(
    source: ModelSource,
    folder: PathLike,
    *,
    mix: Mix = None,
    vocab_file: PathLike | None = None,
    embedding_weight_file: PathLike | None = None,
    precision: str = "float32",
    warm_up: WarmUpText | None = None,
    overwrite: bool = False,
) -> str:
    """Write a model that takes strings and needs no Python, as TF-Hub's ELMo is.

    Signatures:
        default: strings (batch,), sentences that are split on white space.
        tokens: tokens (batch, time) string and sequence_len (batch,) int32; what stands after
            sequence_len is not read.

    Outputs, float32, zeros past a sentence's end; dim is n_directions * projection_dim:
        word_emb (batch, time, projection_dim): the token encoder's.
        lstm_outputs1 .. lstm_outputsN (batch, time, dim): those of the N LSTM layers.
        elmo (batch, time, dim): the mix of all layers.
        default (batch, dim): the mean of `elmo` over a sentence's tokens; zeros without any.

    Args:
        source: a folder or a ZIP file with weights and options, or a pair (options, weights).
        folder: the folder to write; it gets its name when it is whole.
        mix: of the layers: a trained `ScalarMix`, a weight for each layer that is used as it is,
            or None for layers that weigh alike. A mix that normalises does so within each
            sentence, so that its vectors do not depend on the batch.
        vocab_file, embedding_weight_file, precision, warm_up: as for `ELMoEmbedding`.
        overwrite: replace `folder` if it holds a SavedModel. Other folders are never replaced.

    Returns:
        `folder`.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not what it should be, the mix does not fit, or `folder` is there.
    """
    with folder_in_place(folder, SAVED_MODEL if overwrite else None) as temporary:
        elmo = ELMoEmbedding.from_pretrained(
            source,
            vocab_file=vocab_file,
            embedding_weight_file=embedding_weight_file,
            precision=precision,
            warm_up=warm_up,
            layers="average",
        )
        elmo.word_vectors.require_words()
        served = ServedELMo(elmo, mix)
        signatures = {"default": served.default, "tokens": served.tokens}
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(served, temporary, signatures=signatures, options=options)
    return os.fspath(folder)
