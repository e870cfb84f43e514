"""The demo's steps, each a function from values and files to values: nothing is printed here."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bilm.data import Batcher, BidirectionalLMDataset, load_vocab, write_vocabulary
from bilm.demo.corpus import Corpus, count_words, write_sentences
from bilm.demo.sentences import Sentence
from bilm.files import read_lines
from bilm.options import Options, preset
from bilm.training import dump_weights, load_options_latest_checkpoint, test, train

if TYPE_CHECKING:
    from bilm.demo.neighbours import Embed
    from bilm.training import Perplexity, TrainingProgress, TrainingRecord

    ShowProgress = Callable[[TrainingProgress], None]

_TOKENS_OF_A_BATCH = 4096


@dataclass(frozen=True)
class DemoFolder:
    """The files of a demo in their folder."""

    path: str

    def _in(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def training(self) -> str:
        """Training text, tokenised."""
        return self._in("train.txt")

    @property
    def heldout(self) -> str:
        """Held-out text, tokenised."""
        return self._in("heldout.txt")

    @property
    def checkpoints(self) -> str:
        """Folder of the trained model, with its softmax and its optimizer."""
        return self._in("checkpoints")

    @property
    def vocabulary(self) -> str:
        """The vocabulary file, beside the checkpoints as `bilm train` puts it."""
        return os.path.join(self.checkpoints, "vocab.txt")

    @property
    def weights(self) -> str:
        """Weights for use, HDF5."""
        return self._in("weights.hdf5")

    @property
    def options(self) -> str:
        """The options for inference, beside the weights."""
        return self._in("weights.options.json")


def write_text(folder: DemoFolder, corpus: Corpus, min_count: int) -> list[str]:
    """Write the text and its vocabulary; return the vocabulary's words."""
    os.makedirs(folder.checkpoints, exist_ok=True)
    write_sentences(folder.training, corpus.training)
    write_sentences(folder.heldout, corpus.heldout)
    write_vocabulary(folder.vocabulary, count_words(corpus.training), min_count)
    return list(read_lines(folder.vocabulary))


def demo_options(n_words: int) -> Options:
    """The tiny preset for a vocabulary, with more epochs than anyone waits for."""
    options = Options.from_dict(preset("tiny"), training=True, source="preset tiny")
    return dataclasses.replace(
        options,
        n_tokens_vocab=n_words,
        n_epochs=1000,
        sample_softmax=n_words > options.n_negative_samples_batch,
    )


def train_for(
    folder: DemoFolder, n_words: int, seconds: float, seed: int, progress: ShowProgress
) -> TrainingRecord:
    """Train the tiny preset until the time is over.

    Args:
        seconds: from the begin of the first step; the step under way is ended.
        progress: called after each step; `n_steps` of its event is what the time will do for.
    """
    options = demo_options(n_words)
    vocabulary = load_vocab(folder.vocabulary, options.max_word_length)
    data = BidirectionalLMDataset(folder.training, vocabulary, shuffle_on_load=True, seed=seed)
    times: list[float] = []

    def show_and_decide(event: TrainingProgress) -> bool:
        times.append(event.seconds)
        over = event.seconds >= seconds
        progress(dataclasses.replace(event, n_steps=steps_in(times, seconds)))
        return over

    return train(
        options,
        data,
        1,
        folder.checkpoints,
        folder.checkpoints,
        seed=seed,
        progress=show_and_decide,
    )


def steps_in(times: Sequence[float], seconds: float) -> int:
    """How many steps a run will have done after `seconds`.

    Args:
        times: seconds from the run's begin to the end of each step so far. The first step, which
            compiles, says nothing of those to come.
    """
    left = seconds - times[-1]
    if left <= 0:
        return len(times)
    mean = times[-1] if len(times) == 1 else (times[-1] - times[0]) / (len(times) - 1)
    return len(times) + math.ceil(left / max(mean, 1e-9))


def heldout_perplexity(folder: DemoFolder) -> Perplexity:
    """The trained model's perplexity on the held-out text."""
    options, checkpoint = load_options_latest_checkpoint(folder.checkpoints)
    vocabulary = load_vocab(folder.vocabulary, options["char_cnn"]["max_characters_per_token"])
    data = BidirectionalLMDataset(folder.heldout, vocabulary, test=True)
    return test(options, checkpoint, data)


def load_embedder(folder: DemoFolder, layer: int) -> Embed:
    """Dump the weights, load them again as anybody would, and embed with them.

    Args:
        layer: which layer's vectors; 0 is the token layer, the LSTM layers follow.
    """
    import tensorflow as tf

    from bilm.model import BidirectionalLanguageModel

    dump_weights(folder.checkpoints, folder.weights)
    model = BidirectionalLanguageModel(folder.options, folder.weights)
    longest = preset("tiny")["char_cnn"]["max_characters_per_token"]
    batcher = Batcher(None, longest)

    @tf.function(input_signature=[tf.TensorSpec((None, None, longest), tf.int32)])
    def vectors_of(ids: tf.Tensor) -> tf.Tensor:
        return model(ids)["lm_embeddings"][:, layer]

    def embed(sentences: Sequence[Sentence]) -> list[np.ndarray]:
        order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        found: dict[int, np.ndarray] = {}
        while order:
            # Sentences of like length, the longest of those left first.
            batch = order[-max(1, _TOKENS_OF_A_BATCH // (len(sentences[order[-1]]) + 2)) :]
            del order[-len(batch) :]
            rows = vectors_of(batcher.batch_sentences([sentences[index] for index in batch]))
            for index, row in zip(batch, rows.numpy(), strict=True):
                found[index] = row[: len(sentences[index])]
        return [found[index] for index in range(len(sentences))]

    return embed
