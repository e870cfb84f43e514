"""ELMo: vectors of text from a language model's layers. Peters et al. (2018), section 3.

With a pretrained model:

    elmo = ELMo.from_pretrained("elmo")
    sentences = ["They saw it.", ["Hello"]]
    vectors = elmo.encode(sentences)
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.core.errors import InputError, one_of, require, require_at_least, shown
from bilm.core.scalar_mix import ScalarMix
from bilm.data.encoding import BOS, EOS
from bilm.data.sentences import (
    N_SENTENCES,
    Tokens,
    as_python,
    parse_query,
    read_stream,
    warn_if_untokenized,
)
from bilm.data.vocabulary import Vocabulary
from bilm.files.model_files import ModelSource
from bilm.files.reading import PathLike
from bilm.inference.corpus_encoder import CorpusEncoder
from bilm.inference.layers import LayerChoice
from bilm.progress import ShowProgress, Stage, encoding_progress
from bilm.use.pretrained import CHARACTERS, Model, Pretrained, open_once, reject_arguments

Sentences = Iterable[str | bytes | Tokens]
Layers = str | int | ScalarMix | Sequence[float] | np.ndarray
# Creates an array to write into from its shape: in memory or on disk.
NewArray = Callable[[tuple[int, ...]], Any]


class ELMo:
    """A pretrained language model that turns sentences into vectors.

    Created by `ELMo.from_pretrained`, or as a view of an open `Model`. The vectors of a sentence do
    not depend on the other sentences or on the batch size. A pickled model does not need its files.

    Attributes:
        model: the open model.
        options: the model's options.
        n_layers: number of layers, including the token layer.
        dim: size of a vector, n_directions * projection_dim.
        network: the layers. Do not change their values: vectors of words are kept between calls.
        word_ids: function from words to the token encoder's 0-based ids.
        corpus: runs the network over sentences; its window size is adjustable.
    """

    def __init__(self, *source: Any, **settings: Any) -> None:
        model = open_once(*source, softmax=False, **settings)
        if model.words.kind != CHARACTERS:
            model.words.require_vocabulary()
        self.model = model
        self.options = options = model.options
        self.n_layers = options.lstm.n_layers + 1
        self.dim = options.n_directions * options.lstm.projection_dim
        self.network, self.word_ids = model.network, model.words.word_ids
        self.corpus = CorpusEncoder(self.network, self.word_ids)
        # That sentences do not look tokenised; a tokenizer that the user chose needs no warning.
        self._warned = model.tokenizer is not None

    @classmethod
    def from_pretrained(cls, source: ModelSource | Pretrained | Model, **settings: Any) -> ELMo:
        """Load a model; `ELMo(source, ...)` does the same, also with the two files.

        Args:
            source: a folder, a ZIP file, a pair of files, a name or an address, see `Pretrained`;
                a `Pretrained`, which includes the settings; or an open `Model`, whose variables are
                shared.
            settings: vocab_file, embedding_weight_file, precision, warm_up, tokenizer, see
                `Pretrained`.

        Raises:
            FileNotFoundError: a file does not exist.
            InputError: a file is not valid, or files do not fit each other.
            ConnectionError: a model cannot be downloaded.
        """
        return cls(source, **settings)

    def save(self, folder: PathLike, **settings: Any) -> None:
        """Write a folder that `from_pretrained` opens; see `Model.save`."""
        self.model.save(folder, **settings)

    def __reduce__(self) -> Any:
        return type(self), (self.model,)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the table or the cache; None if words come from their characters only."""
        return self.model.words.vocabulary

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text, as `encode` splits it."""
        return self.model.split(text)

    def refuse_unknown(self, sentence: Tokens, where: str) -> None:
        """Raise an InputError for a word without a vector; see `WordSource.refuse_unknown`."""
        self.model.words.refuse_unknown(sentence, where)

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
        **others: Any,
    ) -> Any:
        """The vectors of sentences.

        Args:
            sentences: text, which `tokens` splits, or lists of tokens, which stay as they are; as
                lists, arrays, tensors or a column of a data frame. Bytes are UTF-8. Trailing "" is
                padding, without vectors. A single text gives a single array.
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
        reject_arguments(others, "encode")
        if isinstance(text := as_python(sentences), str | bytes):
            return self.encode([text], layers, pooling, boundaries=boundaries)[0]
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
        tokens, position = parse_query(query, self.model.split)
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
        items = read_stream(sentences, with_ids, self.tokens)
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
            sample: list[Tokens] = []
            for number, (name, tokens) in enumerate(items):
                self.model.words.refuse_unknown(tokens, f"sentence {number}")
                waiting.append((name, len(tokens)))
                if len(sample) < N_SENTENCES:
                    sample.append(tokens)
                yield [BOS, *tokens, EOS] if job.boundaries else tokens
            self._warned = self._warned or warn_if_untokenized(sample, "the text")

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
        """The fingerprint of the model's weights and initial states; see `bilm.files.identity`."""
        return self.model.fingerprint()

    def __repr__(self) -> str:
        source = self.model.words.kind
        if self.vocabulary is not None:
            source += f" ({self.vocabulary.size:,} words)"
        return f"<ELMo: {self.n_layers} layers of {self.dim}, from {source}, {self.precision}>"

    @property
    def precision(self) -> str:
        """The precision of matmuls: "float32" or "bfloat16"."""
        return self.model.precision


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
