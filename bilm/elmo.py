"""ELMo: vectors of text from a language model's layers. Peters et al. (2018), section 3.

With a pretrained model:

    elmo = ELMo.from_pretrained("elmo")
    sentences = ["They saw it .", ["Hello"]]
    vectors = elmo.encode(sentences)

Within one's own TensorFlow or Keras model, `weight_layers` mixes the layers that
`BidirectionalLanguageModel` returns, with weights that train (section 3.2).
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import Vocabulary
from bilm.embedding.corpus import CorpusEncoder, Tokens
from bilm.embedding.layer_choice import LayerChoice, Layers, Pool, check_pooling
from bilm.embedding.sentence_forms import check_stream, padded, ragged, read_stream
from bilm.errors import InputError
from bilm.files import PathLike
from bilm.layers import ScalarMix
from bilm.model.words import WordSource, find_words
from bilm.model_files import ModelSource, open_model
from bilm.progress import ShowProgress, encoding_progress
from bilm.warm_up import WarmUpText, read_text

# An array of a given shape to write into: in memory, or on a disk.
NewArray = Callable[[tuple[int, ...]], Any]


class ELMo:
    """A pretrained language model that turns sentences into vectors.

    Made by `ELMo.from_pretrained`. Each sentence is read alone: its vectors do not depend on the
    others, nor on how they are batched.

    Attributes:
        options: the model's options.
        n_layers: layers that can be had, the token layer (0) among them.
        dim: size of a vector, n_directions * projection_dim.
        network: the layers.
        word_ids: the ids of words that its token encoder takes, less one.
        corpus: runs the network over sentences; how many tokens at a time can be set.
    """

    def __init__(self, words: WordSource, precision: str = "float32") -> None:
        self.options = options = words.options
        self.n_layers = options.lstm.n_layers + 1
        self.dim = options.n_directions * options.lstm.projection_dim
        self._words = words
        self.network, self.word_ids = words.load(precision)
        self.corpus = CorpusEncoder(self.network, self.word_ids)

    @classmethod
    def from_pretrained(
        cls,
        source: ModelSource,
        *,
        vocab_file: PathLike | None = None,
        embedding_weight_file: PathLike | None = None,
        precision: str = "float32",
        warm_up: WarmUpText | None = None,
    ) -> ELMo:
        """Load a model.

        Args:
            source: a folder or a ZIP file that holds weights and options (NLPL's, or written by
                `bilm dump --model_dir`), an HDF5 file with its options beside it, or a pair
                (options, weights) such as AllenNLP's files; see `bilm.model_files`.
            vocab_file: the vocabulary of a model of words, or of a token cache; by default the
                container's vocab.txt.
            embedding_weight_file: a token cache, as `dump_token_embeddings` writes it. Words that
                it does not have are encoded from their characters.
            precision: "float32", or "bfloat16" for products in bfloat16.
            warm_up: a text file, or sentences, after which each sentence begins in place of zero
                states; for models that were trained without resets, see `bilm.warm_up`.

        Raises:
            FileNotFoundError: a file does not exist.
            InputError: a file is not what it should be, or they do not fit each other.
        """
        with open_model(source, weights_only=True) as files:
            options, vocab_file = files.read_options(), vocab_file or files.vocabulary
            words = find_words(options, files.weights, vocab_file, embedding_weight_file)
            elmo = cls(words, precision)
        if warm_up is not None:
            elmo.corpus.warm_up(read_text(warm_up))
        return elmo

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the table or the cache; None for a model of characters alone."""
        return self._words.vocabulary

    def refuse_unknown(self, sentence: Tokens, where: str) -> None:
        """Check that each word of a sentence has a vector; see `WordSource.refuse_unknown`."""
        self._words.refuse_unknown(sentence, where)

    def encode(
        self,
        sentences: Iterable[str | Tokens],
        layers: Layers = "average",
        pooling: str | None = None,
        *,
        batch_size: int | None = None,
        show_progress: ShowProgress = None,
        output: str = "list",
    ) -> Any:
        """The vectors of sentences.

        Args:
            sentences: lists of tokens, or text that is split on white space. An empty sentence
                has no tokens.
            layers: "average", "top", "all", the number of a layer, a trained `ScalarMix`, or a
                weight for each layer. A mix that normalises does so within each sentence.
            pooling: "mean" or "max" over a sentence's tokens; zeros for an empty sentence.
            batch_size: sentences that are computed together, at most; None takes as many as are
                fast. The vectors are the same.
            show_progress: True shows it on standard error; a function is called with the number
                of sentences and of tokens so far; None shows it if the logger `bilm` is at INFO.
            output: "list"; "padded" gives `PaddedVectors`; "ragged" gives a tf.RaggedTensor
                (sentences, tokens, dim), with layers="all" (sentences, tokens, n_layers, dim).

        Returns:
            for each sentence, in the order of the input, a float32 array (tokens, dim); with
            layers="all" (n_layers, tokens, dim); pooled, without the axis of tokens.

        Raises:
            InputError: a sentence that is neither text nor a list of tokens, an argument that is
                not one of the above, or a word that has no vector.
        """
        if output not in ("list", "padded", "ragged"):
            raise InputError(f"output: 'list', 'padded' or 'ragged' is expected, not {output!r}.")
        if pooling is not None and output != "list":
            raise InputError(
                f"output: {output!r} is for the vectors of tokens; pooled ones are all of one "
                "shape, np.stack makes them an array."
            )
        results = self.encode_iter(
            sentences, layers, pooling, batch_size=batch_size, show_progress=show_progress
        )
        if output == "list":
            return list(results)
        as_one = padded if output == "padded" else ragged
        return as_one(list(results), self.dim, self.n_layers if layers == "all" else None)

    def encode_iter(
        self,
        sentences: Iterable[Any],
        layers: Layers = "average",
        pooling: str | None = None,
        *,
        batch_size: int | None = None,
        with_ids: bool = False,
        show_progress: ShowProgress = None,
        new_array: NewArray | None = None,
    ) -> Iterator[Any]:
        """The vectors of a stream of sentences, in bounded memory.

        Sentences are read some tens of thousands of tokens ahead. A sentence may be of any length:
        a long one is computed a chunk at a time, and its result alone is in memory.

        Args:
            sentences: as for `encode`; with `with_ids` pairs (id, sentence).
            layers, pooling, batch_size, show_progress: as for `encode`.
            with_ids: yield pairs (id, vectors), the ids as they came.
            new_array: makes the array of a long sentence's unpooled vectors, from its shape, in
                place of NumPy: something on a disk that takes `array[..., start:stop, columns]`.

        Raises:
            InputError: as for `encode`; the arguments are checked at once, sentences as they come.
        """
        check_stream(sentences, batch_size)
        choice = LayerChoice(layers, self.n_layers)
        job = _Job(choice, check_pooling(pooling), batch_size, new_array or _in_memory)
        return self._encode_iter(sentences, job, with_ids, show_progress)

    def _encode_iter(
        self, items: Iterable[Any], job: _Job, with_ids: bool, show_progress: ShowProgress
    ) -> Iterator[Any]:
        waiting: deque[tuple[Any, int]] = deque()  # id and tokens of what was read ahead

        def sentences() -> Iterator[Tokens]:
            for number, (name, tokens) in enumerate(read_stream(items, with_ids)):
                self._words.refuse_unknown(tokens, f"sentence {number}")
                waiting.append((name, len(tokens)))
                yield tokens

        n_tokens = 0
        with encoding_progress(show_progress) as show:
            for n_sentences, vectors in enumerate(self._vectors(sentences(), job), start=1):
                name, length = waiting.popleft()
                n_tokens += length
                show(n_sentences, n_tokens)
                yield (name, vectors) if with_ids else vectors

    def _vectors(self, sentences: Iterator[Tokens], job: _Job) -> Iterator[Any]:
        """The results, with long sentences apart from the others."""
        long = self.corpus.window_tokens
        for is_long, group in itertools.groupby(sentences, lambda s: len(s) > long):
            if is_long:
                for sentence in group:
                    yield self._long_sentence(sentence, job)
            else:
                for layers in self.corpus.layers(group, job.batch_size):
                    yield job.finish(job.choice(layers))

    def _long_sentence(self, sentence: Tokens, job: _Job) -> Any:
        shape: tuple[int, ...] = (len(sentence), self.dim)
        if job.choice.keeps_layers or job.choice.needs_whole_sentence:
            shape = (self.n_layers, *shape)
        if job.choice.needs_whole_sentence:
            whole = np.empty(shape, np.float32)
            for block in self.corpus.blocks(sentence):
                whole[:, block.start : block.stop, block.columns] = block.layers
            return job.finish(job.choice(whole))
        if job.pooling is None:
            result = job.new_array(shape)
            for block in self.corpus.blocks(sentence):
                vectors = job.choice(block.layers)
                result[..., block.start : block.stop, block.columns] = vectors
            return result
        half = (*shape[:-2], self.options.lstm.projection_dim)
        pools = [Pool(job.pooling) for _ in range(self.options.n_directions)]
        for block in self.corpus.blocks(sentence):
            pools[block.columns.start // half[-1]].add(job.choice(block.layers))
        return np.concatenate([pool.result(half) for pool in pools], axis=-1)

    def fingerprint(self) -> str:
        """A short text that differs for models with other options, weights, or initial states."""
        encoder, stacks = self.network
        weights = [variable for layer in (encoder, *stacks) for variable in layer.weights]
        value = zlib.crc32(repr(self.options).encode())
        for values in (*weights, *tf.nest.flatten(self.network.initial_states())):
            value = zlib.crc32(values.numpy().tobytes(), value)
        return f"{value:08x}"


def _in_memory(shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape, np.float32)


class _Job(NamedTuple):
    """What is wanted of the sentences."""

    choice: LayerChoice
    pooling: str | None
    batch_size: int | None
    new_array: NewArray

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Pool the vectors of a sentence, if that is wanted."""
        if self.pooling is None:
            return vectors
        pool = Pool(self.pooling)
        pool.add(vectors)
        return pool.result((*vectors.shape[:-2], vectors.shape[-1]))


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    *,
    mix: ScalarMix | None = None,
) -> dict[str, Any]:
    """Weigh the layers of a language model with trained weights.

    Args:
        name: prefix of the variables `{name}_ELMo_W` (n_layers,) and `{name}_ELMo_gamma` (1,).
        bilm_ops: what `BidirectionalLanguageModel` returned: tensors, or Keras tensors.
        l2_coef: adds l2_coef * sum(W ** 2) as regularisation.
        use_top_only: gamma times the top layer, without W.
        do_layer_norm: normalise each layer before the sum, over the batch's unmasked values.
        mix: a 'mix' that an earlier call returned, to share its variables; `name` and the options
            are then its own. Needed inside `tf.function`, where no variable can be made anew.

    Returns a dict of
        weighted_op: float32 (batch, time, dim), softmax(W) over the layers, times gamma.
        regularization_op: float32 scalar. On Keras inputs it is among the losses of the model
            already.
        mix: the `ScalarMix` layer that holds the variables.

    Raises:
        InputError: `bilm_ops` has no 'lm_embeddings' or 'mask', `mix` is for another number of
            layers, or is missing inside `tf.function`.
    """
    missing = [key for key in ("lm_embeddings", "mask") if key not in bilm_ops]
    if missing:
        raise InputError(
            f"weight_layers: bilm_ops needs {' and '.join(map(repr, missing))}; it has "
            f"{sorted(bilm_ops)}."
        )
    lm_embeddings, mask = bilm_ops["lm_embeddings"], bilm_ops["mask"]
    if mix is None:
        if tf.inside_function():
            raise InputError(
                "weight_layers: inside tf.function, or in the call of a Keras layer, mix= is "
                "needed: a 'mix' that was returned outside, or a ScalarMix that was made there."
            )
        mix = ScalarMix(
            lm_embeddings.shape[1],
            l2_coef=l2_coef,
            use_top_only=use_top_only,
            do_layer_norm=do_layer_norm,
            return_regularization=True,
            name=name,
        )
    mixed = mix(lm_embeddings, mask)
    weighted, regularization = mixed if mix.return_regularization else (mixed, mix.regularization())
    return {"weighted_op": weighted, "regularization_op": regularization, "mix": mix}
