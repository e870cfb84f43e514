"""ELMo as the first layer of a Keras model: text in, vectors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, one_of, require, shown
from bilm.core.keras_backend import keras, require_all
from bilm.core.options import Options
from bilm.core.scalar_mix import ScalarMix, sum_layers
from bilm.files.model_files import ModelSource
from bilm.files.reading import PathLike
from bilm.inference.layers import LayerChoice
from bilm.use.bidirectional import BidirectionalLanguageModel, LayerOfFiles
from bilm.use.elmo import Layers
from bilm.use.pretrained import (
    CACHE,
    CACHE_AND_CHARACTERS,
    CHARACTERS,
    KINDS,
    TABLE,
    CachedWords,
    Model,
    Pretrained,
    new_cache,
    open_once,
)
from bilm.use.text_layers import (
    CharacterIds,
    FramedWords,
    TextLayer,
    WordIds,
    as_text,
    framed_words,
)

MIX = "mix"


@keras.saving.register_keras_serializable(package="bilm")
class ELMoEmbedding(LayerOfFiles, TextLayer):
    """Text or ids to ELMo vectors, with a trainable mix of layers (Peters et al. 2018, 3.3).

    Args:
        options_file: options.json, its address, or its contents; or an open `Model`, whose
            variables are shared.
        weight_file: the HDF5 weights, or their address. None: the open model's, or zeros, to be
            filled by a loader such as Keras'.
        vocab_file: the vocabulary of a word-level model, or of a token cache. Without it, a
            word-level model takes ids only.
        embedding_weight_file: a token cache. Words missing from it are encoded from characters; if
            the weights lack a character encoder, they raise an error when the layer runs.
        layers: "mix" for a trainable mix; a `ScalarMix`, whose values and settings the trainable
            mix starts with; or a fixed choice: "average", "sum", "top", a layer number (0 is the
            token layer), one weight per layer, or a `ScalarMix` that is frozen or mixes only the
            top layer.
        boundaries: keep the vectors of `<S>` and `</S>`: the time axis of the output is time + 2.
        l2_coef: adds l2_coef * sum(W ** 2) of the mix to the model's losses.
        do_layer_norm: normalise each layer over the batch before the mix.
        train_language_model: train the language model too.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
        words: for loaders: source of the word vectors, if no files are given.
        trainable: False freezes the mix too. As in Keras, assigning the attribute also sets it for
            the mix; different values of `mix.trainable` and `language_model.trainable` are not
            saved.

    Call arguments:
        inputs: strings: sentences (batch,), which are split at white space, or tokens (batch,
            time), padded with "". Or ids with BOS and EOS from `Batcher` or `TokenBatcher`, also
            with a second axis, (batch, n, time + 2, ...). A tensor, a `keras.Input`, an array, a
            column of a data frame, or lists. Without a `keras.Input`, the first layer of a
            `keras.Sequential` takes text.

    Output: float32 (batch, time, n_directions * projection_dim), zeros past a sentence's end, with
    a Keras mask bool (batch, time); with the ids' second axis if they have one.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not valid, arguments conflict, or inputs have a wrong type or shape.

    Example:

        sentences = keras.Input((), dtype="string")
        vectors = ELMoEmbedding.from_pretrained("elmo")(sentences)
        pooled = keras.layers.GlobalAveragePooling1D()(vectors)
        classifier = keras.Model(sentences, keras.layers.Dense(2)(pooled))
    """

    def __init__(
        self,
        options_file: PathLike | Mapping[str, Any] | Options | Model,
        weight_file: PathLike | None,
        *,
        vocab_file: PathLike | None = None,
        embedding_weight_file: PathLike | None = None,
        layers: Layers = MIX,
        l2_coef: float | None = None,
        do_layer_norm: bool = False,
        boundaries: bool = False,
        train_language_model: bool = False,
        precision: str = "float32",
        words: Mapping[str, Any] | None = None,
        name: str = "elmo",
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **({"dtype": "float32"} | kwargs))
        self.train_language_model = train_language_model
        files = {"vocab_file": vocab_file, "embedding_weight_file": embedding_weight_file}
        model: Any = self.opened(options_file, weight_file, **files, precision=precision)
        options = model
        if isinstance(model, Model):
            options, words = model.options, model.words.config()
        kind, vocabulary, n_rows = _checked_words(words, train_language_model)
        self.language_model = BidirectionalLanguageModel(
            model,
            None,
            use_character_inputs=kind in (CHARACTERS, CACHE_AND_CHARACTERS),
            trainable=train_language_model,
            boundaries=boundaries,
            n_tokens=n_rows,
            precision=precision,
        )
        cache: Any = None
        if kind == CACHE_AND_CHARACTERS:
            is_open = model is not options
            cache = model.network.encoder.cache if is_open else new_cache(len(vocabulary), options)
        self.word_vectors = WordVectors(kind, vocabulary, options, cache, name="word_vectors")
        self.n_layers = options.lstm.n_layers + 1
        self.dim = options.n_directions * options.lstm.projection_dim
        self._factors: np.ndarray | None = None  # fixed weights of the layers
        self.mix = self._make_mix(layers, l2_coef, do_layer_norm)
        self.built = True
        # After the layers exist, because it is set on their variables.
        self.trainable = trainable

    @property
    def trainable(self) -> bool:
        """Whether the layer trains: its mix, and the language model if `train_language_model`."""
        return bool(super().trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)  # sets it for all inner layers
        self.language_model.trainable = value and self.train_language_model
        self.word_vectors.trainable = False

    @classmethod
    def from_pretrained(
        cls,
        source: ModelSource | Pretrained | Model,
        *,
        vocab_file: PathLike | None = None,
        embedding_weight_file: PathLike | None = None,
        precision: str = "float32",
        **settings: Any,
    ) -> ELMoEmbedding:
        """Load a model; source and errors as for `ELMo.from_pretrained`.

        Other arguments as for the constructor; `vocab_file` defaults to the model's vocab.txt.
        """
        files = {"vocab_file": vocab_file, "embedding_weight_file": embedding_weight_file}
        model = open_once(source, softmax=False, precision=precision, **files)
        return cls(model, None, **settings)

    def _make_mix(
        self, layers: Any, l2_coef: float | None, do_layer_norm: bool
    ) -> ScalarMix | None:
        """The trainable mix; or None for a fixed choice, after setting `_factors`."""
        is_new = isinstance(layers, str) and layers == MIX
        if not is_new and (l2_coef is not None or do_layer_norm):
            raise InputError(
                f"l2_coef and do_layer_norm require layers='mix', got {shown(layers)}."
            )
        if is_new or (isinstance(layers, ScalarMix) and layers.W is not None and layers.trainable):
            start = None if is_new else layers
            if start is not None:
                start.layer_weights(self.n_layers)  # check
                l2_coef, do_layer_norm = start.l2_coef, start.do_layer_norm
            mix = ScalarMix(
                self.n_layers, l2_coef=l2_coef, do_layer_norm=do_layer_norm, name=self.name
            )
            if start is not None:
                mix.set_weights(start.get_weights())
            return mix
        if isinstance(layers, ScalarMix) and layers.normalises:
            raise InputError(
                "layers: a frozen mix must not have do_layer_norm: give it trainable=True, and "
                "set `mix.trainable = False` in the new layer."
            )
        self._factors = LayerChoice(layers, self.n_layers).weights
        if self._factors is None:
            raise InputError("layers must be a mix or one layer for ELMoEmbedding, got 'all'.")
        return None

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if _are_ids(inputs):
            inputs = self.language_model.checked(inputs, in_groups=True)
        else:
            inputs = as_text(inputs)
            self.word_vectors.require_words()
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self._are_in_groups(inputs):
            # (batch, n, time + 2, ...) -> (batch * n, time + 2, ...)
            flat = self.call(tf.reshape(inputs, tf.concat([[-1], tf.shape(inputs)[2:]], 0)))
            groups = tf.shape(inputs)[:2]
            vectors = tf.reshape(flat, tf.concat([groups, tf.shape(flat)[1:]], 0))
            vectors._keras_mask = tf.reshape(
                flat._keras_mask, tf.concat([groups, tf.shape(flat)[1:2]], 0)
            )
            return vectors
        if inputs.dtype == tf.string:
            results = self.all_layers(framed_words(inputs))
        else:
            results = self.language_model(inputs)
        layers, mask = results["lm_embeddings"], results["mask"]
        if self.mix is not None:
            vectors = self.mix(layers, mask)
        else:
            vectors = sum_layers(self._factors, layers)
        vectors *= tf.cast(mask, vectors.dtype)[..., tf.newaxis]
        vectors._keras_mask = mask
        return vectors

    def all_layers(self, sentences: FramedWords) -> dict[str, tf.Tensor]:
        """The result of `BidirectionalLanguageModel` for sentences of words (batch, time + 2)."""
        ids, index = self.word_vectors.ids(sentences.words)
        tensors = (self.language_model.require_loaded(ids), index, sentences.mask)
        signature = [
            tf.TensorSpec((None, *ids.shape[1:]), tf.int32),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, None), tf.bool),
        ]
        results = self.run_traced(self._of_words, signature, *tensors)
        return self.language_model.with_gradients(results)

    def _of_words(
        self, ids: tf.Tensor, index: tf.Tensor, mask: tf.Tensor, **settings: Any
    ) -> dict[str, tf.Tensor]:
        encoder: Any = self.language_model.encoder
        if self.word_vectors.cache is not None:
            encoder = CachedWords(self.word_vectors.cache, encoder)
        vectors = encoder(ids, **settings)  # (distinct words, projection_dim)
        # (batch, time + 2) -> (batch, time + 2, projection_dim)
        return self.language_model.read(tf.gather(vectors, index), mask)

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """The shape; the time axis of sentences is unknown before the call."""
        n_axes = 1 + self._are_in_groups(inputs)
        time = inputs.shape[n_axes] if len(inputs.shape) > n_axes else None
        if time is not None:
            time += 2 * self.language_model.boundaries - 2 * (inputs.dtype != "string")
        return keras.KerasTensor((*inputs.shape[:n_axes], time, self.dim), "float32")

    def _are_in_groups(self, inputs: Any) -> bool:
        """Whether inputs are ids (batch, n, time + 2, ...)."""
        rank = 4 if self.language_model.use_character_inputs else 3
        return inputs.dtype not in (tf.string, "string") and len(inputs.shape) == rank

    def get_config(self) -> dict[str, Any]:
        model, mix = self.language_model, self.mix
        return super().get_config() | {
            "options_file": model.options.inference_dict(),
            "weight_file": None,
            "layers": MIX if self._factors is None else self._factors.tolist(),
            "l2_coef": None if mix is None else mix.l2_coef,
            "do_layer_norm": mix is not None and mix.do_layer_norm,
            "boundaries": model.boundaries,
            "train_language_model": self.train_language_model,
            "precision": model.precision,
            "words": {
                "kind": self.word_vectors.kind,
                "vocabulary": self.word_vectors.vocabulary,
                "n_rows": model.n_tokens,
            },
        }


class WordVectors(keras.layers.Layer):
    """The ids of words in string tensors, in graphs as well; and the token cache."""

    def __init__(
        self,
        kind: str,  # see `WordSource`
        vocabulary: Sequence[str] | None,  # as `WordSource.vocabulary`
        options: Options,
        cache: Any,  # a `WordEmbedding` for CACHE_AND_CHARACTERS, otherwise None
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, dtype="float32", **kwargs)
        self.kind = kind
        self.characters: Any = None
        if kind in (CHARACTERS, CACHE_AND_CHARACTERS):
            self.characters = CharacterIds(options.max_word_length or 0)
        self.words: Any = None if vocabulary is None else WordIds(vocabulary)
        self.cache = cache
        self.trainable = False
        self.built = True

    @property
    def vocabulary(self) -> list[str] | None:
        """The words of the table or the cache."""
        return None if self.words is None else list(self.words.vocabulary)

    def require_words(self) -> None:
        """Raise an InputError if words cannot be encoded: a table without its vocabulary."""
        if self.words is None and self.characters is None:
            raise InputError(
                "text: a word-level model needs the vocabulary of its training: give vocab_file, "
                "or word ids from TokenBatcher instead of text."
            )

    def ids(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's ids of the distinct words, with a cache its row + 1 first; and the index of
        each word, int32 of the shape of `words`."""
        distinct, index = tf.unique(tf.reshape(words, [-1]))
        # (words,) -> the shape of `words`
        return self._ids(distinct), tf.reshape(index, tf.shape(words))

    def _ids(self, words: tf.Tensor) -> tf.Tensor:
        if self.kind == CHARACTERS:
            return self.characters.ids_of(words)
        if self.kind == TABLE:
            return self.words.ids_of(words)
        rows = self.words.table.lookup(words)
        if self.kind == CACHE:
            message = (
                "text: words without a vector, which are not in the vocabulary of the token cache "
                "(the weights lack a character encoder, char_embed)"
            )
            return require_all(rows, rows > 0, words, message)
        # (words, 1 + max_characters_per_token)
        return tf.concat([rows[:, tf.newaxis], self.characters.ids_of(words)], axis=1)


def _checked_words(words: Any, train: bool) -> tuple[str, Any, int | None]:
    """Check `words`, which may come from a saved layer, and return its values."""
    if words is None:
        raise InputError("weight_file or words must be given, got neither.")
    kind, vocabulary, n_rows = (words.get(key) for key in ("kind", "vocabulary", "n_rows"))
    require(one_of(KINDS), kind=kind)
    if train and kind in (CACHE, CACHE_AND_CHARACTERS):
        raise InputError("train_language_model must be False for a token cache.")
    return kind, vocabulary, n_rows


def _are_ids(inputs: Any) -> bool:
    """Whether inputs are ids instead of text; for lists, whether the first value is an id."""
    if hasattr(inputs, "dtype"):
        is_ragged = isinstance(inputs, tf.RaggedTensor)
        return not is_ragged and "int" in str(getattr(inputs.dtype, "name", inputs.dtype))
    while isinstance(inputs, list | tuple) and inputs:
        inputs = next((item for item in inputs if not isinstance(item, list | tuple) or item), None)
    return isinstance(inputs, int | np.integer) and not isinstance(inputs, bool)
