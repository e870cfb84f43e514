"""ELMo: vectors of text from a language model's layers. Peters et al. (2018), section 3.

With a pretrained model:

    elmo = ELMo.from_pretrained("elmo")
    sentences = ["They saw it .", ["Hello"]]
    vectors = elmo.encode(sentences)
"""

from __future__ import annotations

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, one_of, require, require_at_least, shown
from bilm.core.network import BiLM
from bilm.core.scalar_mix import ScalarMix
from bilm.data import Vocabulary
from bilm.data.encoding import BOS, EOS
from bilm.data.sentences import Tokens, WarmUpText, parse_query, read_stream, read_warm_up
from bilm.data.untokenized import UntokenizedCheck
from bilm.files.identity import fingerprint
from bilm.files.model_files import ModelSource, open_model
from bilm.files.named_models import is_remote
from bilm.files.reading import PathLike
from bilm.files.weights import open_if_given, open_weights
from bilm.inference.corpus_encoder import CorpusEncoder
from bilm.inference.layers import LayerChoice
from bilm.progress import ShowProgress, Stage, encoding_progress
from bilm.use.word_vectors import WordSource, find_words

Sentences = Iterable[str | bytes | Tokens]
Layers = str | int | ScalarMix | Sequence[float] | np.ndarray
# Creates an array to write into from its shape: in memory or on disk.
NewArray = Callable[[tuple[int, ...]], Any]
# Files that only some classes use.
_USED_BY = {
    "softmax_file": "Predictor",
    "embedding_weight_file": "ELMo and ELMoEmbedding",
    "warm_up": "ELMo and Predictor",
}


class Pretrained(NamedTuple):
    """A model and how to load it: the arguments of `ELMo.from_pretrained` and
    `Predictor.from_pretrained`, which accept a `Pretrained` instead of a source. It can be pickled.

    Attributes:
        source: a folder or ZIP file with weights and options (from NLPL or `bilm dump
            --model_dir`), an HDF5 file with its options in the same folder, a pair (options,
            weights) such as AllenNLP's files, a name such as "english" or "original", or an
            address; see `bilm.files.model_files.open_model` and `bilm.files.named_models`.
        vocab_file: the vocabulary of a word-level model, of a token cache, or of a softmax; by
            default the model's vocab.txt.
        embedding_weight_file: a token cache, as `dump_token_embeddings` writes it. Words missing
            from it are encoded from their characters.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
        warm_up: a text file or sentences. Each sentence starts from the states after this text
            instead of zeros, for models trained without resets; see
            `bilm.data.sentences.read_warm_up`.
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

    @classmethod
    def of(
        cls, source: ModelSource | Pretrained, unused: Sequence[str], **settings: Any
    ) -> Pretrained:
        """A `Pretrained` from a source and settings. Raises an InputError if settings accompany a
        `Pretrained`, or a field that the caller does not use (`unused`) is not None."""
        if not isinstance(source, Pretrained):
            source, settings = cls(source, **settings), {}
        for name, value in settings.items():
            if value != cls._field_defaults.get(name):
                raise InputError(f"{name} must be set in the Pretrained, got {shown(value)}.")
        for name in unused:
            if (value := getattr(source, name)) is not None:
                raise InputError(f"{name} is used by {_USED_BY[name]} only, got {shown(value)}.")
        return source

    def absolute(self) -> Pretrained:
        """A copy with absolute paths, for processes with other working directories."""
        source: Any = self.source
        is_pair = isinstance(source, Sequence) and not isinstance(source, str)
        source = tuple(map(_absolute, source)) if is_pair else _absolute(source)
        names = ("vocab_file", "embedding_weight_file", "warm_up", "softmax_file")
        files = {name: _absolute(getattr(self, name)) for name in names}
        return self._replace(source=source, **files)

    def load(self) -> ELMo:
        """Load the model as an `ELMo`; errors as for `ELMo.from_pretrained`."""
        return ELMo.from_pretrained(self)


def _absolute(value: Any) -> Any:
    if not isinstance(value, str | os.PathLike) or is_remote(value):
        return value
    return os.path.abspath(value)


class ELMo:
    """A pretrained language model that turns sentences into vectors.

    Created by `ELMo.from_pretrained`. The vectors of a sentence do not depend on the other
    sentences or on the batch size. A pickled model does not need its files.

    Attributes:
        options: the model's options.
        n_layers: number of layers, including the token layer.
        dim: size of a vector, n_directions * projection_dim.
        network: the layers. Do not change their values: vectors of words are kept between calls.
        word_ids: function from words to the token encoder's 0-based ids.
        corpus: runs the network over sentences; its window size is adjustable.
    """

    def __init__(self, words: WordSource, network: BiLM | None = None) -> None:
        if not isinstance(words, WordSource) or network is None:
            raise InputError(
                "ELMo is created by ELMo.from_pretrained(source); for two files, the source is "
                "(options, weights)."
            )
        self.options = options = words.options
        self.n_layers = options.lstm.n_layers + 1
        self.dim = options.n_directions * options.lstm.projection_dim
        self._words = words
        self.network, self.word_ids = network, words.word_ids
        self.corpus = CorpusEncoder(self.network, self.word_ids)
        self._untokenized = UntokenizedCheck()

    @classmethod
    def from_pretrained(
        cls,
        source: ModelSource | Pretrained,
        *,
        vocab_file: PathLike | None = None,
        embedding_weight_file: PathLike | None = None,
        precision: str = "float32",
        warm_up: WarmUpText | None = None,
    ) -> ELMo:
        """Load a model.

        Args:
            source: a folder, a ZIP file, a pair of files, a name or an address, see `Pretrained`;
                or a `Pretrained`, which includes the other arguments.
            vocab_file, embedding_weight_file, precision, warm_up: see `Pretrained`.

        Raises:
            FileNotFoundError: a file does not exist.
            InputError: a file is not valid, or files do not fit each other.
            ConnectionError: a model cannot be downloaded.
        """
        model = Pretrained.of(
            source,
            ("softmax_file",),
            vocab_file=vocab_file,
            embedding_weight_file=embedding_weight_file,
            precision=precision,
            warm_up=warm_up,
        )
        with open_model(model.source, weights_only=True) as files:
            options = files.read_options()
            with (
                open_weights(files.weights) as weights,
                open_if_given(model.embedding_weight_file) as table,
            ):
                words = find_words(options, weights, table, model.vocab_file, files.vocabulary)
                elmo = cls(words, words.build(model.precision, weights, table))
        if model.warm_up is not None:
            elmo.corpus.warm_up(read_warm_up(model.warm_up))
        return elmo

    def __getstate__(self) -> dict[str, Any]:
        corpus = self.corpus
        return {
            "words": self._words,
            "precision": self.precision,
            "values": [variable.numpy() for variable in self._variables()],
            "corpus": (corpus.window_tokens, corpus.chunk_tokens),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        words: WordSource = state["words"]
        self.__init__(words, words.build(state["precision"]))  # type: ignore[misc]
        for variable, value in zip(self._variables(), state["values"], strict=True):
            variable.assign(value)
        self.corpus.window_tokens, self.corpus.chunk_tokens = state["corpus"]

    def _variables(self) -> list[Any]:
        encoder, stacks = self.network
        return [variable for layer in (encoder, *stacks) for variable in layer.weights]

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the table or the cache; None if words come from their characters only."""
        return self._words.vocabulary

    def refuse_unknown(self, sentence: Tokens, where: str) -> None:
        """Raise an InputError for a word without a vector; see `WordSource.refuse_unknown`."""
        self._words.refuse_unknown(sentence, where)

    @overload
    def encode(
        self,
        sentences: Sentences,
        layers: Layers = ...,
        pooling: str | None = ...,
        *,
        batch_size: int | None = ...,
        boundaries: bool = ...,
        show_progress: ShowProgress = ...,
        output: Literal["list"] = ...,
    ) -> list[np.ndarray]: ...

    @overload
    def encode(
        self,
        sentences: Sentences,
        layers: Layers = ...,
        pooling: None = ...,
        *,
        batch_size: int | None = ...,
        boundaries: bool = ...,
        show_progress: ShowProgress = ...,
        output: Literal["padded"],
    ) -> PaddedVectors: ...

    @overload
    def encode(
        self,
        sentences: Sentences,
        layers: Layers = ...,
        pooling: None = ...,
        *,
        batch_size: int | None = ...,
        boundaries: bool = ...,
        show_progress: ShowProgress = ...,
        output: Literal["ragged"],
    ) -> tf.RaggedTensor: ...

    def encode(
        self,
        sentences: Sentences,
        layers: Layers = "average",
        pooling: str | None = None,
        *,
        batch_size: int | None = None,
        boundaries: bool = False,
        show_progress: ShowProgress = None,
        output: str = "list",
    ) -> Any:
        """The vectors of sentences.

        Args:
            sentences: text that is split at white space, or lists of tokens, as lists, arrays,
                tensors or a column of a data frame. Bytes are UTF-8. Trailing "" is padding,
                without vectors.
            layers: "average" or "sum" of all layers, including the token layer; "top"; "all"; a
                layer number, 0 for the token layer, -1 for the top; a trained `ScalarMix`; or one
                weight per layer. Layer normalisation is done within each sentence.
            pooling: "mean" or "max" over a sentence's tokens; zeros for an empty sentence.
            batch_size: maximum number of sentences computed together; None: chosen for speed. It
                does not change the vectors.
            boundaries: add the vectors of `<S>` and `</S>` around each sentence, also before
                pooling.
            show_progress: True shows the progress on standard error; a function is called with a
                `Stage` of tokens after each sentence; None shows it if the logger `bilm` is at
                INFO.
            output: "list"; "padded" returns `PaddedVectors`; "ragged" a tf.RaggedTensor
                (sentences, tokens, dim), with layers="all" (sentences, tokens, n_layers, dim).

        Returns:
            For each sentence, in the order of the input, a float32 array (tokens, dim); with
            layers="all" (n_layers, tokens, dim); pooled, without the axis of tokens.

        Raises:
            InputError: a sentence is neither text nor a list of tokens, an argument has a wrong
                value, or a word has no vector.
        """
        require(one_of(("list", "padded", "ragged")), output=output)
        if pooling is not None and output != "list":
            raise InputError(
                f"output must be 'list' with pooling, got {shown(output)}: pooled vectors all have "
                "the same shape, np.stack makes them one array."
            )
        vectors = list(
            self.encode_iter(
                sentences,
                layers,
                pooling,
                batch_size=batch_size,
                boundaries=boundaries,
                show_progress=show_progress,
            )
        )
        if output == "list":
            return vectors
        middle = (self.n_layers,) if LayerChoice(layers, self.n_layers).keeps_layers else ()
        combine = _padded if output == "padded" else _ragged
        return combine(vectors, (*middle, self.dim))

    def word_vector(self, query: str, layers: Layers = "average") -> np.ndarray:
        """The vector of the word in brackets in a sentence such as "they [play] cards": float32
        (dim,); with layers="all" (n_layers, dim). Errors as for `encode`."""
        tokens, position = parse_query(query)
        (vectors,) = self.encode([tokens], layers)
        return vectors[..., position, :]

    def encode_iter(
        self,
        sentences: Iterable[Any],
        layers: Layers = "average",
        pooling: str | None = None,
        *,
        batch_size: int | None = None,
        boundaries: bool = False,
        with_ids: bool = False,
        show_progress: ShowProgress = None,
        new_array: NewArray | None = None,
    ) -> Iterator[Any]:
        """The vectors of a stream of sentences, in bounded memory; see `encode`.

        Up to 66,000 tokens are read ahead. Long sentences are computed in chunks.

        Args:
            with_ids: take pairs (id, sentence) and yield pairs (id, vectors).
            new_array: from a shape, creates the array of a long sentence's unpooled vectors, for
                example on disk; it must support `array[..., start:stop, columns] = values`. None:
                in memory.
        """
        items = read_stream(sentences, with_ids)
        require_at_least(1, batch_size=batch_size)
        require(one_of((None, "mean", "max")), pooling=pooling)
        choice = LayerChoice(layers, self.n_layers)
        in_memory = functools.partial(np.empty, dtype=np.float32)
        job = _Job(choice, pooling, batch_size, new_array or in_memory, boundaries)
        return self._encode_iter(items, job, with_ids, show_progress)

    def _encode_iter(
        self,
        items: Iterator[tuple[Any, list[str]]],
        job: _Job,
        with_ids: bool,
        show_progress: ShowProgress,
    ) -> Iterator[Any]:
        waiting: deque[tuple[Any, int]] = deque()  # id and length of the sentences read ahead

        def sentences() -> Iterator[Tokens]:
            for number, (name, tokens) in enumerate(items):
                self._words.refuse_unknown(tokens, f"sentence {number}")
                waiting.append((name, len(tokens)))
                self._untokenized.add(tokens)
                yield [BOS, *tokens, EOS] if job.boundaries else tokens
            self._untokenized.finish()

        n_tokens = 0
        with encoding_progress(show_progress) as show:
            for n_sentences, vectors in enumerate(self._vectors(sentences(), job), start=1):
                name, length = waiting.popleft()
                n_tokens += length
                detail = f"{n_sentences:,} sentences"
                show(Stage("embedding", n_tokens, None, "tokens", detail))
                yield (name, vectors) if with_ids else vectors

    def _vectors(self, sentences: Iterator[Tokens], job: _Job) -> Iterator[Any]:
        long = self.corpus.window_tokens
        for is_long, group in itertools.groupby(sentences, lambda s: len(s) > long):
            if is_long:
                for sentence in group:
                    yield self._long_sentence(sentence, job)
            else:
                for layers in self.corpus.layers(group, job.batch_size, framed=job.boundaries):
                    yield job.finish(job.choice(layers))

    def _long_sentence(self, sentence: Tokens, job: _Job) -> Any:
        choice, blocks = job.choice, self.corpus.blocks(sentence, framed=job.boundaries)
        middle = (self.n_layers,) if choice.keeps_layers or choice.mix is not None else ()
        shape = (*middle, len(sentence), self.dim)
        if choice.mix is not None:
            all_layers = np.empty(shape, np.float32)
            for block in blocks:
                all_layers[:, block.positions, block.columns] = block.layers
            return job.finish(choice(all_layers))
        if job.pooling is not None:
            parts = ((block.columns, choice(block.layers)) for block in blocks)
            return job.pool(parts, len(sentence), (*middle, self.dim))
        result = job.new_array(shape)
        for block in blocks:
            result[..., block.positions, block.columns] = choice(block.layers)
        return result

    def fingerprint(self) -> str:
        """The fingerprint of everything that determines the vectors: options, weights, initial
        states, precision, and the words of a table, cache or dictionary; see
        `bilm.files.identity`."""
        facts = [self.options.inference_dict(), self.precision, self._words.tokens]
        return fingerprint((variable.numpy() for variable in self._variables()), facts)

    def __repr__(self) -> str:
        source = self._words.kind
        if self.vocabulary is not None:
            source += f" ({self.vocabulary.size:,} words)"
        return f"<ELMo: {self.n_layers} layers of {self.dim}, from {source}, {self.precision}>"

    @property
    def precision(self) -> str:
        """The precision of matmuls: "float32" or "bfloat16"."""
        return self.network.stacks[0].precision


class _Job(NamedTuple):
    choice: LayerChoice
    pooling: str | None
    batch_size: int | None
    new_array: NewArray
    boundaries: bool

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        if self.pooling is None:
            return vectors
        *middle, n_tokens, dim = vectors.shape
        return self.pool([(slice(None), vectors)], n_tokens, (*middle, dim))

    def pool(
        self, parts: Iterable[tuple[slice, np.ndarray]], n_tokens: int, shape: tuple[int, ...]
    ) -> np.ndarray:
        """One vector from pairs of columns and vectors (..., tokens, columns)."""
        if not n_tokens:
            return np.zeros(shape, np.float32)
        is_mean = self.pooling == "mean"
        # In float64, for the precision of sums over a million tokens.
        value = np.full(shape, 0.0 if is_mean else -np.inf)
        for columns, vectors in parts:
            if is_mean:
                value[..., columns] += vectors.sum(axis=-2, dtype=np.float64)
            else:
                value[..., columns] = np.maximum(value[..., columns], vectors.max(axis=-2))
        return (value / n_tokens if is_mean else value).astype(np.float32)


class PaddedVectors(NamedTuple):
    """The vectors of sentences in one array."""

    # float32 (sentences, longest, dim), or (sentences, n_layers, longest, dim) for layers="all";
    # zeros past a sentence's end
    vectors: np.ndarray
    mask: np.ndarray  # bool (sentences, longest), False past a sentence's end


def _padded(results: list[np.ndarray], shape: tuple[int, ...]) -> PaddedVectors:
    """`shape` is the shape of a token's vectors."""
    lengths = np.array([vectors.shape[-2] for vectors in results], np.int64)
    longest = int(lengths.max(initial=0))
    padded = np.zeros((len(results), *shape[:-1], longest, shape[-1]), np.float32)
    for row, vectors in zip(padded, results, strict=True):
        row[..., : vectors.shape[-2], :] = vectors
    return PaddedVectors(padded, np.arange(longest) < lengths[:, np.newaxis])


def _ragged(results: list[np.ndarray], shape: tuple[int, ...]) -> tf.RaggedTensor:
    # The ragged axis must come first: (n_layers, tokens, dim) -> (tokens, n_layers, dim)
    rows = [np.moveaxis(vectors, -2, 0) for vectors in results]
    values = np.concatenate([np.zeros((0, *shape), np.float32), *rows])
    return tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])
