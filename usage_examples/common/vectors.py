"""Token vectors: ELMo's layers, static vectors, vectors that the task learns.

Peters et al. (2018), section 3.3: ELMo is concatenated to the word vectors at the input of a model,
[x; ELMo], or to its output, [h; ELMo], or to both, with a mix for each.

A frozen language model has the same vectors in each epoch, so its layers are computed once and kept
in a file (`SavedLayers`); with `fine_tune` the language model is part of the Keras model.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bilm import BidirectionalLanguageModel, CharacterIds, ELMo, ScalarMix, WordIds
from bilm.analysis import StaticVectors
from bilm.core.errors import InputError
from bilm.files.model_files import open_model
from bilm.files.writing import atomic_write
from bilm.progress import ShowStage

Sentence = tuple[str, ...]
LEARNED = "learned"
_LEARNED_DIM = 100
STEP = 8  # texts are padded to a multiple, so that fewer shapes are compiled


class VectorSettings(NamedTuple):
    """The vectors of a token.

    Attributes:
        model: the language model: a folder, ZIP file, name, or pair (options, weights), or None.
        layers: "mix", "top", or the number of a layer; "none" without ELMo.
        at: where ELMo is added: "input", "output" or "both".
        words: a file of static vectors, LEARNED for vectors trained with the task, or None.
        l2_coef: lambda, the factor of the sum of the mix's squared W in the loss.
        layer_norm: normalise each layer before the mix.
        dropout: rate for the vectors at the input and at the output.
        fine_tune: train the language model with the task.
    """

    model: Any = None
    layers: str = "mix"
    at: str = "input"
    words: str | None = None
    l2_coef: float = 0.001
    layer_norm: bool = False
    dropout: float = 0.3
    fine_tune: bool = False


class SavedLayers:
    """All layers of sentences: float16 (tokens, n_layers, dim) in a memory-mapped file.

    Args:
        elmo: the language model.
        sentences: the sentences to encode.
        folder: folder of the file; created if missing. The file name has the model's fingerprint
            and a checksum of the sentences.
        progress: called with a `Stage` of tokens.
    """

    def __init__(
        self,
        elmo: ELMo,
        sentences: Iterable[Sentence],
        folder: str | os.PathLike[str],
        progress: ShowStage | None = None,
    ) -> None:
        different = list(dict.fromkeys(sentences))
        ends = itertools.accumulate(map(len, different))
        self._ends = dict(zip(different, ends, strict=True))
        checksum = zlib.crc32("\n".join(" ".join(s) for s in different).encode("utf-8", "replace"))
        self.path = Path(folder) / f"elmo-{elmo.fingerprint()}-{checksum:08x}.npy"
        self.dim = elmo.dim
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            shape = (sum(map(len, different)), elmo.n_layers, elmo.dim)
            with atomic_write(self.path) as temporary:
                layers = np.lib.format.open_memmap(temporary, "w+", np.float16, shape)
                found = elmo.encode_iter(different, "all", show_progress=progress or False)
                for end, vectors in zip(self._ends.values(), found, strict=True):
                    # (n_layers, tokens, dim) -> (tokens, n_layers, dim)
                    layers[end - vectors.shape[1] : end] = vectors.swapaxes(0, 1)
                layers.flush()
        self._layers = np.load(self.path, mmap_mode="r")

    def __getitem__(self, sentence: Sentence) -> np.ndarray:
        """float16 (tokens, n_layers, dim)."""
        end = self._ends[sentence]
        return self._layers[end - len(sentence) : end]


class TokenVectors:
    """The vectors of all texts of a task.

    Args:
        settings: the kind of vectors.
        sentences: all sentences.
        folder, progress: as for `SavedLayers`.
    """

    def __init__(
        self,
        settings: VectorSettings,
        sentences: Sequence[Sentence],
        folder: str | os.PathLike[str],
        progress: ShowStage | None = None,
    ) -> None:
        self.settings = settings
        self.saved: SavedLayers | None = None
        self.chosen: list[int] = []  # numbers of ELMo's layers in the model
        if settings.layers != "none":
            if settings.model is None:
                raise InputError("--model is required, unless --layers is none.")
            elmo = ELMo.from_pretrained(settings.model)
            self.vocabulary: Any = elmo.vocabulary
            self.chosen = _layers(settings.layers, elmo.n_layers)
            if not settings.fine_tune:
                self.saved = SavedLayers(elmo, sentences, folder, progress)
        words, self.table = settings.words, None
        self.has_words = words is not None or not self.chosen
        # Words with a static or learned vector; 0 is padding, 1 any other word.
        self._ids: dict[str, int] = {}
        if words is not None and words != LEARNED:
            all_words = set(itertools.chain(*sentences))
            static = StaticVectors.load(words, keep=all_words)
            self.table = np.pad(static.vectors, ((2, 0), (0, 0)))
            found = ((word, static.index(word)) for word in sorted(all_words))
            self._ids = {word: index + 2 for word, index in found if index is not None}

    def learn(self, training: Iterable[Sentence]) -> None:
        """Choose the words with a learned vector, if vectors are learned: those that the training
        sentences repeat."""
        if self.has_words and self.table is None:
            counts = Counter(itertools.chain(*training))
            known = [word for word, count in counts.items() if count > 1]
            self._ids = {word: number for number, word in enumerate(known, start=2)}

    @property
    def n_words(self) -> int:
        """Number of rows of the word table."""
        return len(self._ids) + 2 if self.table is None else len(self.table)

    def arrays(self, name: str, sentences: Sequence[Sentence]) -> dict[str, np.ndarray]:
        """The inputs of a model for a batch of sentences, by name.

        Returns:
            NAME: int32 (batch, time), word ids; NAME_elmo: float16 (batch, layers, time, dim), or
            with `fine_tune` NAME_tokens: the words (batch, time).
        """
        longest = round_up(max(map(len, sentences)))
        ids = np.zeros((len(sentences), longest), np.int32)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence)] = [self._ids.get(word, 1) for word in sentence]
        found: dict[str, np.ndarray] = {name: ids}
        if self.saved is not None:
            shape = (len(sentences), len(self.chosen), longest, self.saved.dim)
            layers = np.zeros(shape, np.float16)
            for block, sentence in zip(layers, sentences, strict=True):
                # (tokens, n_layers, dim) -> (layers, tokens, dim)
                block[:, : len(sentence)] = self.saved[sentence].swapaxes(0, 1)[self.chosen]
            found[f"{name}_elmo"] = layers
        elif self.chosen:
            padded = [[*sentence, *[""] * (longest - len(sentence))] for sentence in sentences]
            found[f"{name}_tokens"] = np.array(padded, object)
        return found


def round_up(length: int) -> int:
    """A length rounded up to a multiple of `STEP`."""
    return -(-length // STEP) * STEP


def _layers(choice: str, n_layers: int) -> list[int]:
    """The numbers of the layers given by "mix", "top" or a number."""
    if choice == "mix":
        return list(range(n_layers))
    number = n_layers - 1 if choice == "top" else int(choice)
    if number >= n_layers:
        raise InputError(
            f"--layers must be 0 (tokens) to {n_layers - 1} (top) for this model, got {choice}."
        )
    return [number]


class TextInput(NamedTuple):
    """A text as an input of a model.

    Attributes:
        vectors: float32 (batch, time, dim), with a Keras mask.
        mask: bool (batch, time), False for padding.
        layers: ELMo's layers (batch, layers, time, dim), or None.
    """

    vectors: Any
    mask: Any
    layers: Any


class ModelInputs:
    """The inputs of one model, and the layers that its texts share.

    Args:
        vectors: the token vectors of the task.

    Attributes:
        inputs: `keras.Input` by name.
        mixes: the mixes at "input" and "output".
    """

    def __init__(self, vectors: TokenVectors) -> None:
        self.vectors, self.settings = vectors, vectors.settings
        self.inputs: dict[str, Any] = {}
        places = ("input", "output") if self.settings.at == "both" else (self.settings.at,)
        self.mixes = {
            place: ScalarMix(
                len(vectors.chosen),
                l2_coef=self.settings.l2_coef or None,
                do_layer_norm=self.settings.layer_norm,
                name=place,
            )
            for place in (places if vectors.chosen else ())
        }
        self._dropout = keras.layers.Dropout(self.settings.dropout)
        self._table = _table(vectors) if vectors.has_words else None
        is_trained = bool(vectors.chosen) and self.settings.fine_tune
        self._language_model = _language_model(vectors) if is_trained else None

    def number(self, name: str, shape: Sequence[int | None], dtype: str = "int32") -> Any:
        """A numeric input; `shape` has no batch axis."""
        self.inputs[name] = keras.Input(tuple(shape), dtype=dtype, name=name)
        return self.inputs[name]

    def text(self, name: str) -> TextInput:
        """A text of each example, with its vectors at the model's input."""
        ids = self.number(name, (None,))
        mask = keras.ops.not_equal(ids, 0)
        layers = self._layers(name)
        parts = [] if self._table is None else [self._table(ids)]
        if "input" in self.mixes:
            parts.append(self.mixes["input"](layers, mask))
        if not parts:
            raise InputError("--at output leaves the input empty: it requires --words.")
        vectors = keras.layers.concatenate(parts) if len(parts) > 1 else parts[0]
        return TextInput(self._dropout(vectors), mask, layers)

    def at_output(self, text: TextInput, hidden: Any) -> Any:
        """Concatenate ELMo to the output of a layer over a text, if --at includes the output."""
        if "output" in self.mixes:
            elmo = self._dropout(self.mixes["output"](text.layers, text.mask))
            hidden = keras.layers.concatenate([hidden, elmo])
        return hidden

    def _layers(self, name: str) -> Any:
        if self._language_model is not None:
            tokens = self.number(f"{name}_tokens", (None,), "string")
            return self._language_model(tokens)
        if self.vectors.saved is None:
            return None
        shape = (len(self.vectors.chosen), None, self.vectors.saved.dim)
        return keras.ops.cast(self.number(f"{name}_elmo", shape, "float16"), "float32")

    def mix_weights(self) -> dict[str, dict[str, Any]]:
        """The learned weights of the mixes: softmax(W) by layer, and gamma."""
        found = {}
        for place, mix in self.mixes.items():
            weights = tf.nn.softmax(tf.convert_to_tensor(mix.W)).numpy()
            by_layer = dict(zip(map(str, self.vectors.chosen), map(float, weights), strict=True))
            found[place] = {"weights": by_layer, "gamma": float(mix.gamma.numpy()[0])}
        return found


def _table(vectors: TokenVectors) -> keras.layers.Embedding:
    """Word ids to vectors; static vectors are not trained."""
    if vectors.table is None:
        return keras.layers.Embedding(vectors.n_words, _LEARNED_DIM, mask_zero=True, name="words")
    table = keras.layers.Embedding(
        *vectors.table.shape, mask_zero=True, trainable=False, name="words"
    )
    table.build()
    table.set_weights([vectors.table])
    return table


def _language_model(vectors: TokenVectors) -> Callable[[Any], Any]:
    """The language model as part of the Keras model: tokens (batch, time) to the chosen layers."""
    with open_model(vectors.settings.model, weights_only=True) as files:
        characters = files.read_options().char_cnn
        if characters is not None and characters.dictionary is not None:
            raise InputError("--fine_tune requires a model without a dictionary of characters.")
        model = BidirectionalLanguageModel(
            files.options,
            files.weights,
            use_character_inputs=characters is not None,
            trainable=True,
        )
    words = vectors.vocabulary
    if characters is not None:
        ids: Any = CharacterIds(model.options.max_word_length or 50)
    else:
        ids = WordIds([words.id_to_word(k) for k in range(words.size)])
    chosen = np.array(vectors.chosen)
    return lambda tokens: keras.ops.take(model(ids(tokens))["lm_embeddings"], chosen, axis=1)
