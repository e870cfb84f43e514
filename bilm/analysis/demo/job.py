"""The demo's steps, each a function from values and files to values: nothing is printed here."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from bilm.analysis.demo.raw_text import SplitText, Tokens, count_tokens, write_sentences
from bilm.core.options import Options, preset
from bilm.data import BidirectionalLMDataset, load_vocab, write_vocabulary
from bilm.files.reading import read_lines
from bilm.training import dump_weights, load_options_latest_checkpoint, test, train
from bilm.use.elmo import ELMo

if TYPE_CHECKING:
    from bilm.training import Perplexity, TrainingProgress, TrainingRecord


class DemoFiles(NamedTuple):
    """The paths of a demo's files.

    Attributes:
        training, heldout: texts, a sentence a line, its tokens separated by spaces.
        checkpoints: folder of the trained model, with its softmax and its optimizer.
        vocabulary: in that folder, as `bilm train` writes it.
        weights: HDF5 weights for use, which `options` belong to.
        page: a page for the browser, with the uses of some words.
    """

    training: str
    heldout: str
    checkpoints: str
    vocabulary: str
    weights: str
    options: str
    page: str

    @classmethod
    def in_folder(cls, folder: str) -> DemoFiles:
        """The files of a folder."""
        names = (
            "train.txt", "heldout.txt", "checkpoints", "checkpoints/vocab.txt", "weights.hdf5",
            "weights.options.json", "senses.html",
        )  # fmt: skip
        return cls(*(os.path.join(folder, name) for name in names))


def write_text(files: DemoFiles, text: SplitText) -> list[str]:
    """Write the text and its vocabulary; return the vocabulary's words."""
    os.makedirs(files.checkpoints)
    write_sentences(files.training, text.training)
    write_sentences(files.heldout, text.heldout)
    # Rare words are left out, so that <UNK> is trained too.
    min_count = 3 if count_tokens(text.training) >= 100_000 else 2
    counts = Counter(token for sentence in text.training for token in sentence)
    write_vocabulary(files.vocabulary, counts, min_count)
    return list(read_lines(files.vocabulary))


def train_for(
    files: DemoFiles, seconds: float, progress: Callable[[TrainingProgress], None]
) -> TrainingRecord:
    """Train the tiny preset on the text that was written.

    Args:
        seconds: from the beginning of the first step; the step under way is completed.
        progress: called after each step.
    """
    options = Options.from_dict(preset("tiny"), training=True, source="preset tiny")
    vocabulary = load_vocab(files.vocabulary, options.max_word_length)
    options = dataclasses.replace(
        options,
        n_tokens_vocab=vocabulary.size,
        n_epochs=1000,  # more than anyone waits for
        sample_softmax=vocabulary.size > options.n_negative_samples_batch,
    )
    data = BidirectionalLMDataset(files.training, vocabulary, shuffle_on_load=True)

    def show_and_decide(event: TrainingProgress) -> bool:
        progress(event)
        return event.seconds >= seconds

    folder = files.checkpoints
    return train(options, data, 1, folder, folder, progress=show_and_decide)


def heldout_perplexity(files: DemoFiles) -> Perplexity:
    """The trained model's perplexity on the held-out text."""
    options, checkpoint = load_options_latest_checkpoint(files.checkpoints)
    vocabulary = load_vocab(files.vocabulary, options["char_cnn"]["max_characters_per_token"])
    return test(options, checkpoint, BidirectionalLMDataset(files.heldout, vocabulary, test=True))


def unigram_perplexity(
    training: Iterable[Tokens], heldout: Iterable[Tokens], vocabulary: Iterable[str]
) -> float:
    """The perplexity of the simplest language model: how often each word occurs.

    Its targets are those of a biLM with the same vocabulary: the words of a sentence, <UNK> for
    words outside the vocabulary, and one end of sentence. (That the backward direction's end is
    called <S> changes nothing.) One is added to the count of each word that can be a target.
    """
    words = frozenset(vocabulary)

    def count_targets(sentences: Iterable[Tokens]) -> Counter[str]:
        targets = (token for sentence in sentences for token in (*sentence, "</S>"))
        return Counter(token if token in words else "<UNK>" for token in targets)

    counts, wanted = count_targets(training), count_targets(heldout)
    total = counts.total() + len(words) - 1  # <S> is in the vocabulary and never a target
    loss = -sum(n * math.log((counts[word] + 1) / total) for word, n in wanted.items())
    return math.exp(loss / wanted.total())


def load_model(files: DemoFiles) -> ELMo:
    """Dump the weights and load them again, as anybody would."""
    dump_weights(files.checkpoints, files.weights)
    return ELMo.from_pretrained((files.options, files.weights))
