"""The pretrained language model as a Keras layer: ids in, all layers' vectors out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import FLAG, OBJECT, InputError, integer, one_of, plain, require
from bilm.core.keras_backend import (
    is_tensor,
    keras,
    require_axes,
    require_eager,
    require_true,
    traced_once,
)
from bilm.core.lstm import States
from bilm.core.network import build_network
from bilm.core.options import MOST_ROWS, N_CHARACTERS, Options
from bilm.data.encoding import BOS_CHAR, network_ids
from bilm.files.model_files import ModelSource, read_options
from bilm.files.reading import PathLike
from bilm.use.pretrained import CHARACTERS, Model, Pretrained, open_once

_EARLY_PADDING = "ids must have padding (0) only at the end of a sentence, as Batcher pads"
_NO_BOS = "ids must start with <S> and end with </S>, as from Batcher; AllenNLP's ids have neither"
_RAGGED = (
    "ids: all sentences must have the same length: pad them with 0, as Batcher and TokenBatcher do."
)
_NO_WEIGHTS = (
    "the weights were never loaded: clone_model and from_config copy the configuration only, so "
    "call set_weights(model.get_weights())"
)
_TWO_INPUTS = (
    "ids: a second keras.Input would continue from the states of the first one: make another "
    "stateful layer for it, from the same `Model` if the weights shall be shared."
)
_FILES = ("weight_file", "embedding_weight_file", "vocab_file")


class LayerOfFiles(keras.layers.Layer):
    """A layer that is built from model files, and saved by Keras without their names."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Rebuild a saved layer. Its configuration must not contain paths, because a model file
        must not make the program open other files."""
        require(OBJECT, options_file=config.get("options_file"))
        require(one_of((None,)), **{name: config.get(name) for name in _FILES})
        return cls(**config)

    @staticmethod
    def opened(options_file: Any, weight_file: PathLike | None, **settings: Any) -> Model | Options:
        """The open model of the files, or their options if there are no weights; `settings` are
        fields of `Pretrained`."""
        if isinstance(options_file, Model):
            return options_file
        if weight_file is None:
            return read_options(options_file)
        return Pretrained((options_file, weight_file), **settings).load(softmax=False)

    _run: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        require_eager()  # a placeholder of TensorFlow 1 may reach a layer that was built before
        return super().__call__(*args, **kwargs)

    def run_traced(
        self, function: Callable[..., Any], signature: Sequence[tf.TensorSpec], *tensors: tf.Tensor
    ) -> Any:
        """The result of a function, in eager mode of its trace: step by step, an LSTM is slow. The
        layer must always pass the same function and signature."""
        if not tf.executing_eagerly():
            return function(*tensors)
        if self._run is None:
            self._run = traced_once(functools.partial(function, n_buckets=1), signature)
        return self._run(*tensors)


@keras.saving.register_keras_serializable(package="bilm")
class BidirectionalLanguageModel(LayerOfFiles):
    """The pretrained language model of ELMo: Peters et al. (2018), section 3.

    Args:
        options_file: options.json, its address, or its contents; or an open `Model`, whose
            variables are shared.
        weight_file: the HDF5 weights, or their address. None: the open model's, or zeros, to be
            filled by a loader such as Keras'.
        use_character_inputs: True for character ids, False for word ids.
        embedding_weight_file: for word ids, the token cache; by default the table is read from
            `weight_file`.
        max_batch_size: number of rows whose states are kept, if `stateful`.
        stateful: keep the LSTM states between calls, as the original always did: row i continues
            row i, and rows missing from a batch keep their states.
        trainable: train the language model.
        boundaries: keep the vectors of BOS and EOS: the time axis of the results is time + 2.
        n_tokens: rows of the word table, if no files are given.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.

    Call arguments:
        ids: integers, 0 is padding: characters (batch, time + 2, max_characters_per_token) from
            `Batcher`, or words (batch, time + 2) from `TokenBatcher`, with BOS and EOS around each
            sentence. A tensor, a NumPy array or a `keras.Input`.

    Returns a dict:
        lm_embeddings: float32 (batch, n_layers + 1, time, 2 * projection_dim), the token layer
            [token; token] first, without BOS and EOS, zeros at padding. With one direction the last
            axis is projection_dim.
        lengths: int32 (batch,), tokens of each sentence.
        token_embeddings: float32 (batch, time + 2, projection_dim), with BOS and EOS.
        mask: bool (batch, time).

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not valid, or ids have a wrong type, shape or range.

    Example:

        bilm = BidirectionalLanguageModel("options.json", "weights.hdf5")
        vectors = bilm(Batcher(None, 50).batch_sentences([["A", "sentence"]]))["lm_embeddings"]
    """

    def __init__(
        self,
        options_file: PathLike | Mapping[str, Any] | Options | Model,
        weight_file: PathLike | None,
        use_character_inputs: bool = True,
        embedding_weight_file: PathLike | None = None,
        max_batch_size: int = 128,
        *,
        stateful: bool = False,
        trainable: bool = False,
        boundaries: bool = False,
        n_tokens: int | None = None,
        precision: str = "float32",
        name: str = "bilm",
        **kwargs: Any,
    ) -> None:
        # Independent of Keras' global policy: `precision` controls rounding.
        super().__init__(name=name, autocast=False, **({"dtype": "float32"} | kwargs))
        if not isinstance(use_character_inputs, bool):
            raise InputError(
                "use_character_inputs must be True or False, got "
                f"{type(use_character_inputs).__name__}. Ids are the argument of a call: "
                "model(ids) replaces the placeholder of the constructor and get_ops()."
            )
        require(FLAG, boundaries=boundaries)
        require(integer(1, MOST_ROWS), max_batch_size=max_batch_size)
        self.supports_masking = True  # the lengths follow from the ids
        self.supports_jit = False  # XLA requires shapes that do not depend on the ids
        files = {"embedding_weight_file": embedding_weight_file, "precision": precision}
        model = self.opened(options_file, weight_file, **files)
        self.options = model.options if isinstance(model, Model) else model
        self.use_character_inputs = use_character_inputs
        self.max_batch_size = plain(max_batch_size)
        self.stateful = stateful
        self.boundaries = boundaries
        char_cnn = self.options.char_cnn
        if use_character_inputs and char_cnn is not None and char_cnn.dictionary is not None:
            raise InputError(
                "use_character_inputs must be False for a model with a dictionary of characters: "
                "use `ELMo`, or word ids with a token cache."
            )
        if use_character_inputs and embedding_weight_file is not None:
            raise InputError("embedding_weight_file requires use_character_inputs=False.")
        if isinstance(model, Model):
            self.network = model.id_network(use_character_inputs)
        elif use_character_inputs or n_tokens is not None:
            rows = None if use_character_inputs else n_tokens
            self.network = build_network(self.options, rows, precision=precision)
        else:
            raise InputError("n_tokens is required without weight files.")
        self.encoder, self.stacks = self.network
        self.n_tokens = None if use_character_inputs else self.encoder.n_tokens
        self.precision = self.stacks[0].precision
        self._is_loaded = isinstance(model, Model)
        self._kept_states: Any = None
        self._input: int | None = None  # of a `stateful` model
        if stateful:
            self._kept_states = tf.nest.map_structure(self._add_state, self.network.zero_states(1))
            self.reset_states()
        # After the layers exist: Keras sets it on every variable.
        self.trainable = trainable
        self.built = True

    @classmethod
    def from_pretrained(
        cls,
        source: ModelSource | Pretrained | Model,
        *,
        use_character_inputs: bool | None = None,
        embedding_weight_file: PathLike | None = None,
        precision: str = "float32",
        **settings: Any,
    ) -> BidirectionalLanguageModel:
        """Load a model; source and errors as for `ELMo.from_pretrained`.

        Other arguments as for the constructor; `use_character_inputs` None: the model's input,
        word ids with a token cache.
        """
        files = {"embedding_weight_file": embedding_weight_file, "precision": precision}
        model = open_once(source, softmax=False, **files)
        if use_character_inputs is None:
            use_character_inputs = model.words.kind == CHARACTERS
        return cls(model, None, use_character_inputs, **settings)

    def _add_state(self, zeros: tf.Tensor) -> Any:
        shape = (self.max_batch_size, zeros.shape[1])
        return self.add_weight(name="state", shape=shape, initializer="zeros", trainable=False)

    def reset_states(self) -> None:
        """Set the kept states of a `stateful` model to the initial states; other models raise an
        InputError."""
        if self._kept_states is None:
            raise InputError("reset_states: the model keeps no states; it is not stateful.")
        kept, initial = map(tf.nest.flatten, (self._kept_states, self.network.initial_states()))
        for variable, value in zip(kept, initial, strict=True):
            variable.assign(tf.broadcast_to(value, variable.shape))

    def __call__(self, ids: Any, *args: Any, **kwargs: Any) -> Any:
        ids = self.checked(ids)
        if self.stateful and isinstance(ids, keras.KerasTensor):
            if self._input not in (None, id(ids)):
                raise InputError(_TWO_INPUTS)
            self._input = id(ids)
        return super().__call__(ids, *args, **kwargs)

    def call(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = tf.cast(ids, tf.int32)
        mask = tf.reduce_any(ids > 0, axis=-1) if self.use_character_inputs else ids > 0
        is_at_end = tf.reduce_all(mask[:, :-1] | ~mask[:, 1:])
        ids = require_true(ids, is_at_end, _EARLY_PADDING)
        if self.use_character_inputs:
            has_bos = tf.reduce_all((ids[:, 0, 1] == network_ids(BOS_CHAR)) | ~mask[:, 0])
            ids = require_true(ids, has_bos, _NO_BOS)
        if self._kept_states is not None:
            message = f"ids must have at most max_batch_size = {self.max_batch_size} sentences"
            ids = require_true(ids, tf.shape(ids)[0] <= self.max_batch_size, message)
        axes = (None, None, *ids.shape[2:])
        results = self.run_traced(
            self._of_ids, [tf.TensorSpec(axes, tf.int32)], self.require_loaded(ids)
        )
        return self.with_gradients(results)

    def _of_ids(self, ids: tf.Tensor, **settings: Any) -> dict[str, tf.Tensor]:
        mask = tf.reduce_any(ids > 0, axis=-1) if self.use_character_inputs else ids > 0
        if not self.use_character_inputs:
            return self.read(self.encoder(ids), mask)
        # (batch, time + 2, characters) -> (words, characters) -> (words, projection_dim)
        words = self.encoder(tf.reshape(ids, (-1, ids.shape[-1])), **settings)
        dim = self.options.lstm.projection_dim
        tokens = tf.reshape(words, tf.concat([tf.shape(ids)[:2], [dim]], 0))
        tokens = tf.ensure_shape(tokens, (*ids.shape[:2], dim))
        return self.read(tokens, mask)

    def read(self, tokens: tf.Tensor, token_mask: tf.Tensor) -> dict[str, tf.Tensor]:
        """The dict of a call, from the token encoder's vectors: float32 (batch, time + 2,
        projection_dim), and a mask bool (batch, time + 2), True from BOS to EOS."""
        lengths = tf.reduce_sum(tf.cast(token_mask, tf.int32), axis=1)
        tokens *= tf.cast(token_mask, tf.float32)[..., tf.newaxis]
        states = self._states_before(tf.shape(tokens)[0])
        time_first = tf.transpose(tokens, (1, 0, 2))  # (time + 2, batch, projection_dim)
        layers, after = self.network.sentence_layers(time_first, lengths, states)
        if self._kept_states is not None:
            self._keep(after)
        n_tokens = tf.maximum(lengths - 2, 0)
        # (n_layers + 1, time + 2, batch, dim) -> (batch, n_layers + 1, time + 2, dim)
        lm_embeddings = tf.transpose(tf.stack(layers), (2, 0, 1, 3))
        mask = token_mask
        if not self.boundaries:
            lm_embeddings = lm_embeddings[:, :, 1:-1]
            mask = tf.sequence_mask(n_tokens, tf.shape(tokens)[1] - 2)
        lm_embeddings *= tf.cast(mask, tf.float32)[:, tf.newaxis, :, tf.newaxis]
        return {
            "lm_embeddings": lm_embeddings,
            "lengths": n_tokens,
            "token_embeddings": tokens,
            "mask": mask,
        }

    def with_gradients(self, results: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The results of `read`, without gradient unless the layer trains."""
        return results if self.trainable else tf.nest.map_structure(tf.stop_gradient, results)

    def require_loaded(self, ids: tf.Tensor) -> tf.Tensor:
        """The ids of a call, after checking that the weights are not zeros."""
        if self._is_loaded:
            return ids
        # In a trained layer, the kernel's first row and the bias are not all zeros.
        kernel, bias, _ = self.stacks[0].layer_weights[0].tensors()
        has_values = tf.reduce_any(kernel[0] != 0) | tf.reduce_any(bias != 0)
        return require_true(ids, has_values, f"{self.name}: {_NO_WEIGHTS}")

    def _states_before(self, batch_size: tf.Tensor) -> tuple[States, ...]:
        if self._kept_states is None:
            return self.network.initial_states()
        return tf.nest.map_structure(
            lambda v: tf.convert_to_tensor(v)[:batch_size], self._kept_states
        )

    def _keep(self, after: tuple[States, ...]) -> None:
        kept, new = tf.nest.flatten(self._kept_states), tf.nest.flatten(after)
        for variable, value in zip(kept, new, strict=True):
            value = tf.stop_gradient(value)
            rest = tf.convert_to_tensor(variable)[tf.shape(value)[0] :]
            variable.assign(tf.concat([value, rest], axis=0))

    def compute_mask(self, ids: Any, previous_mask: Any = None) -> None:
        """None: the time axes of the results differ, so Keras cannot carry their mask."""

    def checked(self, ids: Any, *, in_groups: bool = False) -> Any:
        """Raise an InputError if the type or shape of ids is wrong or, if they have values, their
        range. Return the ids, or an array if they are lists. `in_groups` allows the shape (batch,
        n, time + 2, ...)."""
        if not is_tensor(ids):
            try:
                ids = np.asarray(ids)
            except ValueError:
                raise InputError(_RAGGED) from None
        if isinstance(ids, tf.RaggedTensor):
            raise InputError(_RAGGED)
        dtype = getattr(ids.dtype, "name", ids.dtype)
        if "int" not in dtype:
            raise InputError(
                f"ids must be integers, got {dtype}: use Batcher or TokenBatcher, or a keras.Input "
                "with dtype='int32'."
            )
        last = (self.options.max_word_length,) if self.use_character_inputs else ()
        require_axes(ids, "ids", str((None, None, *last)))
        shape = tuple(ids.shape)
        if in_groups and len(shape) == 3 + len(last):
            shape = shape[1:]
        is_short = len(shape) > 1 and shape[1] is not None and shape[1] < 2
        if len(shape) != 2 + len(last) or shape[2:] != last or is_short:
            axes = ", ".join(["batch", "time >= 2", *map(str, last)])
            raise InputError(f"ids must have the shape ({axes}), got {tuple(ids.shape)}.")
        if isinstance(ids, np.ndarray) or hasattr(ids, "numpy"):
            array = np.asarray(ids)
            highest = N_CHARACTERS if self.n_tokens is None else self.n_tokens
            low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
            if low < 0 or high > highest:
                kind = "character" if self.use_character_inputs else "word"
                raise InputError(
                    f"ids: {kind} ids must be from 0 to {highest}, got {low} to {high}."
                )
        return ids

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "options_file": self.options.inference_dict(),
            "weight_file": None,
            "use_character_inputs": self.use_character_inputs,
            "max_batch_size": self.max_batch_size,
            "stateful": self.stateful,
            "boundaries": self.boundaries,
            "n_tokens": self.n_tokens,
            "precision": self.precision,
        }
