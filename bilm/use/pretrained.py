"""An open model: its options, network, words and softmax, which all classes of this folder share.

`Pretrained` says which files to open and how, `Pretrained.load` opens them once, and `ELMo`,
`Predictor`, `BidirectionalLanguageModel` and `ELMoEmbedding` are views of the resulting `Model`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, shown
from bilm.core.language_model import LanguageModel
from bilm.core.network import BiLM, build_network
from bilm.core.options import CharCNNOptions, Options
from bilm.core.token_encoder import WordEmbedding
from bilm.data.encoding import BOS, EOS, UNK, DictionaryIds, as_bytes, encode_words, from_bytes
from bilm.data.sentences import Tokens, WarmUpText, read_warm_up
from bilm.data.tokenizer import tokenizer_for
from bilm.data.vocabulary import Vocabulary, vocabulary_of
from bilm.files.identity import fingerprint
from bilm.files.model_files import ModelFiles, ModelSource, is_remote, open_model
from bilm.files.reading import OPTIONS_FILE, VOCABULARY_FILE, WEIGHTS_FILE, PathLike
from bilm.files.weights import (
    DICTIONARY_CHARACTERS,
    DICTIONARY_WORDS,
    ENCODER_GROUPS,
    LSTM_GROUPS,
    SOFTMAX_B,
    SOFTMAX_W,
    Encoder,
    WeightsFile,
    encoder_weights,
    load_network,
    load_table,
    lstm_weights,
    named_states,
    open_weights,
    require_same_network,
    save_hdf5,
    weight_table,
    with_softmax_datasets,
)
from bilm.files.writing import Outputs, fill_json
from bilm.inference.corpus_encoder import EncodedWords, warm_up_network

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo
    from bilm.use.predictor import Predictor

logger = logging.getLogger(__name__)

# A table has a trained vector for <UNK>, a cache has none.
KINDS = CHARACTERS, TABLE, CACHE, CACHE_AND_CHARACTERS = (
    "characters", "table", "cache", "cache and characters",
)  # fmt: skip


class Pretrained(NamedTuple):
    """A model and how to open it: the arguments of `ELMo.from_pretrained` and
    `Predictor.from_pretrained`, which accept a `Pretrained` instead of a source. It can be pickled.

    Attributes:
        source: a folder or ZIP file with weights and options (from NLPL or `bilm dump
            --model_dir`), an HDF5 file with its options in the same folder, a pair (options,
            weights) such as AllenNLP's files, a name such as "english" or "original", or an
            address; see `bilm.files.model_files.open_model` and `bilm.files.model_files`.
        vocab_file: the vocabulary of a word-level model, of a token cache, or of a softmax; by
            default the model's vocab.txt.
        embedding_weight_file: a token cache, as `dump_token_embeddings` writes it. Words missing
            from it are encoded from their characters.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
        warm_up: a text file or sentences. Each sentence starts from the states after this text
            instead of zeros, for models trained without resets; see
            `bilm.data.sentences.read_warm_up`.
        tokenizer: what splits text into tokens; lists of tokens stay as they are. None or "model":
            the tokenizer of the training text, or white space if the model does not record one;
            "spaces": white space; a language code such as "en"; or a function of a text that
            returns its tokens.
        softmax_file: the softmax of a `Predictor`, an HDF5 file with `softmax/W` (words,
            projection_dim) and `softmax/b` (words,) such as AllenNLP's. By default the softmax in
            the weights, in softmax_weights.hdf5 next to them, or the published one of a named
            model.
    """

    source: ModelSource
    vocab_file: PathLike | None = None
    embedding_weight_file: PathLike | None = None
    precision: str = "float32"
    warm_up: WarmUpText | None = None
    softmax_file: PathLike | None = None
    tokenizer: str | Callable[[str], list[str]] | None = None

    @classmethod
    def of(cls, source: ModelSource | Pretrained, **settings: Any) -> Pretrained:
        """A `Pretrained` from a source and settings; an InputError if both are given."""
        if isinstance(source, Pretrained):
            require_defaults(settings, "in the Pretrained")
            return source
        return cls(source, **settings)

    def absolute(self) -> Pretrained:
        """A copy with absolute paths, for processes with other working directories."""
        source: Any = self.source
        is_pair = isinstance(source, Sequence) and not isinstance(source, str)
        source = tuple(map(_absolute, source)) if is_pair else _absolute(source)
        names = ("vocab_file", "embedding_weight_file", "warm_up", "softmax_file")
        files = {name: _absolute(getattr(self, name)) for name in names}
        return self._replace(source=source, **files)

    def load(self, *, softmax: bool | None = None) -> Model:
        """Open the model.

        Args:
            softmax: True requires the softmax, downloads it if it is published separately, and
                also opens checkpoints; False leaves it out; None loads it if it is among the files.

        Errors as for `ELMo.from_pretrained`.
        """
        downloads = bool(softmax) and self.softmax_file is None
        with open_model(self.source, weights_only=not softmax, with_softmax=downloads) as files:
            if files.is_checkpoint:
                model = _from_checkpoint(files, self)
            else:
                model = _from_weights(files, self, softmax)
        model.tokenizer, model.vocabulary_file = self.tokenizer, self.vocab_file or files.vocabulary
        if self.tokenizer is not None:
            model.split("")  # raises its errors now
        if self.warm_up is not None:
            words = EncodedWords(model.network, model.words.word_ids)
            warm_up_network(model.network, words, read_warm_up(self.warm_up))
        return model


# Arguments of other libraries' models and encoders, and what to do instead.
_INSTEAD = {
    "device": "TensorFlow chooses it, and the variable CUDA_VISIBLE_DEVICES hides GPUs",
    "normalize_embeddings": "divide by np.linalg.norm(vectors, axis=-1, keepdims=True)",
    "show_progress_bar": "the argument is show_progress",
}


def reject_arguments(arguments: Mapping[str, Any], function: str) -> None:
    """Raise an error for unknown arguments of a function, if there are any."""
    for name in arguments:
        instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TypeError(f"{function}() has no argument {name!r}{instead}.")


def require_defaults(settings: Mapping[str, Any], where: str) -> None:
    """Require that the fields of a `Pretrained` are not set a second time."""
    for name, value in settings.items():
        if value != Pretrained._field_defaults.get(name):
            raise InputError(f"{name} must be set {where}, got {shown(value)}.")


def open_once(*source: Any, softmax: bool, **settings: Any) -> Model:
    """The `Model` of a view; an open model is shared.

    Args:
        source: one source, a `Pretrained` or a `Model`; or two files, options and weights.
        softmax: see `Pretrained.load`.
        settings: fields of `Pretrained`.
    """
    others = set(settings) - set(Pretrained._fields)
    reject_arguments({name: settings[name] for name in others}, "from_pretrained")
    if isinstance(source[0], Model):
        require_defaults(settings, "when the model is opened")
        return source[0]
    one = source[0] if len(source) == 1 else source
    return Pretrained.of(one, **settings).load(softmax=softmax)


def _absolute(value: Any) -> Any:
    if not isinstance(value, str | os.PathLike) or is_remote(value):
        return value
    return os.path.abspath(value)


_CARD = """---
license: ?
language: ?
library_name: bilm
---

# {name}

An ELMo model, for `bilm`: `ELMo.from_pretrained("hf://OWNER/{name}")`.

| | |
|---|---|
| training text | ? |
| licence, attribution | ? |
| tokenizer | {tokenizer} |
| vocabulary | {vocabulary} |
| network | {network} |
| softmax | {softmax} |
| perplexity | ? |
"""


class Model:
    """An open model. It can be pickled, and then does not need its files.

    Attributes:
        options: the options.
        words: the source of the word vectors.
        network: the token encoder and the LSTMs.
        language_model: the same network with its softmax; None without a softmax.
        vocabulary: the words of the softmax; None without a softmax.
        tokenizer: what splits text, see `Pretrained`.
        vocabulary_file: the vocabulary of the training; it may be missing, and is not pickled.
    """

    def __init__(
        self,
        words: WordSource,
        network: BiLM,
        language_model: LanguageModel | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.options, self.words, self.network = words.options, words, network
        self.language_model, self.vocabulary = language_model, vocabulary
        self.tokenizer: str | Callable[[str], list[str]] | None = None
        self.vocabulary_file: PathLike | None = None

    @property
    def has_softmax(self) -> bool:
        """Whether the model predicts words."""
        return self.language_model is not None

    @property
    def precision(self) -> str:
        """The precision of matmuls: "float32" or "bfloat16"."""
        return self.network.stacks[0].precision

    @functools.cached_property
    def split(self) -> Callable[[str], list[str]]:
        """The function that splits text into tokens."""
        return tokenizer_for(self.options.tokenizer, self.tokenizer)

    @functools.cached_property
    def elmo(self) -> ELMo:
        """The model as an `ELMo`."""
        from bilm.use.elmo import ELMo

        return ELMo(self)

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The model as a `Predictor`; an InputError without a softmax."""
        from bilm.use.predictor import Predictor

        return Predictor(self)

    def fingerprint(self) -> str:
        """The fingerprint of the weights and initial states; the same for the file and with a token
        cache. See `bilm.files.identity`."""
        encoder: Any = self.network.encoder
        stacks = self.network.stacks
        table = [*encoder_weights(getattr(encoder, "characters", encoder)), *lstm_weights(stacks)]
        values = {str(weight.dataset): weight.variable for weight in table}
        values |= named_states([stack.initial for stack in stacks])
        return fingerprint(values, values.__getitem__)

    def save(
        self,
        folder: PathLike,
        *,
        dtype: str = "float32",
        softmax_dtype: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write a folder that `ELMo.from_pretrained` opens and `hf upload` publishes: weights,
        options, vocabulary, and a card, README.md, to be completed.

        Args:
            folder: is created if missing.
            dtype, softmax_dtype: types of the numbers, see `bilm.files.weights.save_hdf5`.
            overwrite: replace these files.

        Raises:
            InputError: a file exists, or the model has a token cache, which files of a model lack.
            OSError: a file cannot be written.
        """
        kinds = {CHARACTERS: self.vocabulary, TABLE: self.words.vocabulary}
        if self.words.kind not in kinds:
            raise InputError("save: open the model without embedding_weight_file, its token cache.")
        vocabulary, dictionary = kinds[self.words.kind], self.words.dictionary
        texts = {}
        if dictionary is not None:
            names = (DICTIONARY_CHARACTERS, DICTIONARY_WORDS)
            texts = dict(zip(names, map(as_bytes, dictionary.tokens), strict=False))
        table = weight_table(self.network)
        if self.language_model is not None:
            table = with_softmax_datasets(weight_table(self.language_model))
        values = {w.dataset: w.variable.numpy() for w in table if w.dataset}
        states = named_states([stack.initial for stack in self.network.stacks])
        if any(np.any(state.numpy()) for state in states.values()):
            values |= {name: state.numpy() for name, state in states.items()}
        os.makedirs(folder, exist_ok=True)
        files = [WEIGHTS_FILE, OPTIONS_FILE, "README.md", *[VOCABULARY_FILE] * bool(vocabulary)]
        outputs = Outputs([os.path.join(folder, name) for name in files], overwrite=overwrite)
        with outputs.temporaries() as (weights, options, card, *words_file):
            words = None if vocabulary is None else vocabulary.words
            save_hdf5(weights, values, words, texts, None, dtype, softmax_dtype)
            fill_json(options, self.options.inference_dict())
            Path(card).write_text(self._card(os.path.basename(os.path.abspath(folder))), "utf-8")
            for path in words_file:
                Path(path).write_text("".join(f"{word}\n" for word in words or ()), "utf-8")

    def _card(self, name: str) -> str:
        lstm, words = self.options.lstm, self.vocabulary or self.words.vocabulary
        return _CARD.format(
            name=name,
            tokenizer=self.options.tokenizer or "?",
            vocabulary=f"{words.size:,} words" if words else "none",
            network=f"{lstm.n_layers} layers of {lstm.dim} units, projections to "
            f"{lstm.projection_dim}",
            softmax="included" if self.has_softmax else "missing",
        )

    def id_network(self, characters: bool) -> BiLM:
        """The network with the encoder of character ids, or the one of word ids."""
        encoder: Any = self.network.encoder
        if isinstance(encoder, CachedWords):
            encoder = encoder.characters if characters else encoder.cache
        if isinstance(encoder, WordEmbedding) == characters:
            has = "a table or cache of words" if characters else "a character encoder"
            raise InputError(f"use_character_inputs must be {not characters}: the model has {has}.")
        return self.network._replace(encoder=encoder)

    def __getstate__(self) -> dict[str, Any]:
        model = self.language_model
        return {
            "words": self.words,
            "precision": self.precision,
            "values": [variable.numpy() for variable in self._all_variables()],
            "language_model": None if model is None else model.options,
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        words, options = state["words"], state["language_model"]
        network = words.build(state["precision"])
        model = None if options is None else _with_softmax(options, network)
        self.__init__(words, network, model, state["vocabulary"])  # type: ignore[misc]
        self.tokenizer = state["tokenizer"]
        for variable, value in zip(self._all_variables(), state["values"], strict=True):
            variable.assign(value)

    def _all_variables(self) -> list[Any]:
        softmax = [] if self.language_model is None else [self.language_model.softmax]
        layers: list[Any] = [self.network.encoder, *self.network.stacks, *softmax]
        return [variable for layer in layers for variable in layer.weights]


def _with_softmax(options: Options, network: BiLM) -> LanguageModel:
    """A language model with zeros as softmax."""
    precision = network.stacks[0].precision
    return LanguageModel(
        options, is_training=False, seed=None, precision=precision, network=network
    )


def _from_checkpoint(files: ModelFiles, model: Pretrained) -> Model:
    from bilm.files.checkpoints import load_variables

    checkpoint = os.fspath(files.weights)
    if model.softmax_file is not None:
        raise InputError(f"softmax_file is for weights; {checkpoint} is a checkpoint.")
    options = files.read_options()
    if options.n_tokens_vocab is None:
        raise InputError(f"{files.source}: options: n_tokens_vocab is missing.")
    vocabulary = vocabulary_of(
        model.vocab_file, None, checkpoint, files.vocabulary, options.max_word_length
    )
    vocabulary = _checked(vocabulary, options.n_tokens_vocab, files, checkpoint)
    words = WordSource(CHARACTERS, options, checkpoint)
    if options.char_cnn is None:
        words = WordSource(TABLE, options, checkpoint, checkpoint, vocabulary, vocabulary.size)
    language_model = _with_softmax(options, words.build(model.precision))
    load_variables(checkpoint, weight_table(language_model))
    return Model(words, language_model.network, language_model, vocabulary)


def _from_weights(files: ModelFiles, model: Pretrained, softmax: bool | None) -> Model:
    softmax_file = None if softmax is False else model.softmax_file or files.softmax
    options, named = files.read_options(), model.vocab_file
    with contextlib.ExitStack() as stack:
        weights = stack.enter_context(open_weights(files.weights))
        table, separate = (
            None if file is None else stack.enter_context(open_weights(file))
            for file in (model.embedding_weight_file, softmax_file)
        )
        words = find_words(options, weights, table, named, files.vocabulary)
        predicting = separate or weights
        if softmax is False or (softmax is None and SOFTMAX_B not in predicting.shapes):
            return Model(words, words.build(model.precision, weights, table))
        shapes = predicting.shapes
        if len(shapes.get(SOFTMAX_B, ())) != 1:
            raise InputError(
                f"{predicting.path}: the softmax ({SOFTMAX_B}), which predicts words, is missing. "
                "Use the training folder, weights dumped with the softmax, or softmax_file."
            )
        require_same_network(separate, weights)
        options = dataclasses.replace(
            options,
            n_tokens_vocab=shapes[SOFTMAX_B][0],
            share_embedding_softmax=SOFTMAX_W not in shapes,
        )
        named, beside = None if table else named, files.vocabulary
        if model.softmax_file and named:
            beside = None  # it may be the vocabulary of a token cache
        vocabulary = vocabulary_of(
            named, predicting.words(), predicting.path, beside, options.max_word_length
        )
        vocabulary = _checked(vocabulary, shapes[SOFTMAX_B][0], files, predicting.path)
        if words.kind == TABLE and words.vocabulary is None:
            _checked(vocabulary, words.n_rows, files, weights.path)
            words = words._replace(vocabulary=vocabulary)
        language_model = _with_softmax(options, words.build(model.precision, weights, table))
        names = (SOFTMAX_W, SOFTMAX_B)
        both = with_softmax_datasets(weight_table(language_model))
        predicting.load(
            [weight for weight in both if weight.dataset in names],
            also=(*ENCODER_GROUPS, *LSTM_GROUPS),
        )
        return Model(words, language_model.network, language_model, vocabulary)


def _checked(
    vocabulary: Vocabulary | None, n_words: int, files: ModelFiles, where: str
) -> Vocabulary:
    """The vocabulary of a softmax in the file `where`, after checking its size."""
    if vocabulary is None:
        raise InputError(
            f"{files.source}: the vocabulary of the softmax is missing: give vocab_file."
        )
    if vocabulary.size != n_words:
        raise InputError(
            f"{vocabulary.source} must have {n_words} words, as many as the softmax of {where}, "
            f"got {vocabulary.size}."
        )
    first = vocabulary.words[:3]
    if {BOS, EOS, UNK} != set(first):
        logger.warning(
            "%s: the first words should be %s, %s and %s, got %s: are the words in the order of "
            "the softmax?", vocabulary.source, BOS, EOS, UNK, ", ".join(first),
        )  # fmt: skip
    return vocabulary


# Word vectors


class WordSource(NamedTuple):
    """The source of a model's word vectors. It can be pickled."""

    kind: str  # CHARACTERS, TABLE, CACHE or CACHE_AND_CHARACTERS
    options: Options
    weight_file: str  # for messages
    table_file: str | None = None  # for messages: the table or the cache; None for CHARACTERS
    # The words in the order of the rows; None for CHARACTERS, or a TABLE without a vocabulary.
    vocabulary: Vocabulary | None = None
    n_rows: int = 0  # of the table or the cache
    dictionary: DictionaryIds | None = None  # None for characters that are bytes

    @property
    def words(self) -> list[str] | None:
        return None if self.vocabulary is None else self.vocabulary.words

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """The encoder's ids of words, 0-based integers. A table or a cache alone: (len(words),).
        Characters: (len(words), max_characters_per_token); with a cache, its row comes first, -1
        for a missing word."""
        if self.kind in (TABLE, CACHE):
            return self.require_vocabulary().word_ids(words)
        if self.dictionary is not None:
            characters = self.dictionary(words)
        else:
            characters = encode_words(words, self.options.max_word_length or 0)
        if self.kind == CHARACTERS:
            return characters
        rows = self.require_vocabulary().known_ids(words)
        return np.column_stack([rows, characters.astype(np.int32)])

    def config(self) -> dict[str, Any]:
        """The argument `words` of `ELMoEmbedding`."""
        kind = self.kind
        if kind == CACHE_AND_CHARACTERS and self.dictionary is not None:
            kind = CACHE  # a graph cannot look up characters in a dictionary
        if kind in (CACHE, CACHE_AND_CHARACTERS):
            self.require_vocabulary()
        return {"kind": kind, "vocabulary": self.words, "n_rows": self.n_rows or None}

    def require_vocabulary(self) -> Vocabulary:
        """The words of the table or the cache; an InputError if they are missing."""
        if self.vocabulary is None:
            owner = "a word-level model" if self.kind == TABLE else "a token cache"
            raise InputError(
                f"{self.table_file}: {owner} needs its vocabulary: give vocab_file, or put "
                "vocab.txt next to the weights."
            )
        return self.vocabulary

    def refuse_unknown(self, sentence: Tokens, where: str) -> None:
        """Raise an InputError for a word without a vector; `where` names the sentence."""
        vocabulary = self.vocabulary
        if vocabulary is None or self.kind not in (CACHE, TABLE):
            return
        if self.kind == TABLE and vocabulary.known_ids([UNK])[0] >= 0:
            return
        why = f"and {self.weight_file} lacks a character encoder (char_embed)"
        if self.kind == TABLE:
            why = f"which lacks {UNK} for such words"
        for number in np.flatnonzero(vocabulary.known_ids(sentence) < 0).tolist():
            raise InputError(
                f"{where}, word {number + 1}: {sentence[number]!r} has no vector: it is not in "
                f"{vocabulary.source}, {why}."
            )

    def build(
        self, precision: str, weights: WeightsFile | None = None, table: WeightsFile | None = None
    ) -> BiLM:
        """The network, with the values of the files if they are given."""
        has_characters = self.kind in (CHARACTERS, CACHE_AND_CHARACTERS)
        has_cache = self.kind == CACHE_AND_CHARACTERS
        n_tokens = None if has_characters else self.n_rows
        network = build_network(self.options, n_tokens, precision=precision)
        if weights is not None:
            load_network(network, weights, None if has_cache else table)
        if not has_cache:
            return network
        cache = new_cache(self.n_rows, self.options)
        if table is not None:
            load_table(cache, table)
        encoder: Any = CachedWords(cache, network.encoder)
        return network._replace(encoder=encoder)


def find_words(
    options: Options,
    weights: WeightsFile,
    # A token cache, or the table of a word-level model if it is not in `weights`.
    table: WeightsFile | None = None,
    vocab_file: PathLike | None = None,  # the user's vocabulary of the table or the cache
    default_file: PathLike | None = None,  # the vocabulary next to the weights
) -> WordSource:
    """Choose the source of word vectors. Raises an InputError if the files do not fit each other,
    or a token cache lacks its vocabulary."""
    char_cnn = options.char_cnn
    dictionary = None if char_cnn is None else _dictionary(char_cnn, weights)
    if char_cnn is not None and table is None:
        return WordSource(CHARACTERS, options, weights.path, dictionary=dictionary)
    require_same_network(table, weights)
    embedding_file = table or weights
    if char_cnn is not None and vocab_file is not None:
        default_file = None  # it may be the vocabulary of the softmax
    vocabulary = vocabulary_of(
        vocab_file, embedding_file.words(), embedding_file.path, default_file
    )
    n_rows = embedding_file.n_embedded()
    if vocabulary is not None and vocabulary.size != n_rows:
        raise InputError(
            f"{vocabulary.source} must have {n_rows} words, as many as 'embedding' in "
            f"{embedding_file.path} has rows, got {vocabulary.size}."
        )
    source = WordSource(
        TABLE, options, weights.path, embedding_file.path, vocabulary, n_rows, dictionary
    )
    if char_cnn is None:
        return source
    has_characters = not {"char_embed", "dictionary/char_embed"}.isdisjoint(weights.shapes)
    return source._replace(kind=CACHE_AND_CHARACTERS if has_characters else CACHE)


def _dictionary(char_cnn: CharCNNOptions, weights: WeightsFile) -> DictionaryIds | None:
    """The dictionaries of a model whose characters are not bytes; None for other models."""
    sizes = char_cnn.dictionary
    if sizes is None:
        return None
    texts = map(weights.text, (DICTIONARY_CHARACTERS, DICTIONARY_WORDS))
    characters, words = (from_bytes(text) if len(text) else [] for text in texts)
    if (len(characters), len(words)) != (sizes.n_characters, sizes.n_words):
        raise InputError(
            f"{weights.path} must hold {sizes.n_characters} characters and {sizes.n_words} words, "
            f"got {len(characters)} and {len(words)}."
        )
    length = char_cnn.max_characters_per_token
    return DictionaryIds(characters, words if sizes.word_dim else None, length, weights.path)


class CachedWords:
    """A token encoder that looks words up in a cache and encodes missing ones from characters.

    Its input is int32 (n, 1 + max_characters_per_token): the cache's row + 1, 0 for missing words;
    then the character ids + 1.
    """

    def __init__(self, cache: WordEmbedding, characters: Encoder) -> None:
        self.cache = cache
        self.characters = characters
        self.weights = [*cache.weights, *characters.weights]

    def __call__(self, ids: tf.Tensor, **settings: Any) -> tf.Tensor:
        missing = tf.where(ids[:, 0] == 0)  # (missing words, 1)
        encoded = self.characters(tf.gather_nd(ids[:, 1:], missing), **settings)
        return tf.tensor_scatter_nd_update(self.cache(ids[:, 0]), missing, encoded)


def new_cache(n_rows: int, options: Options) -> WordEmbedding:
    """A token cache of zeros."""
    return WordEmbedding(n_rows, options.lstm.projection_dim, name="cache")
