"""Checkpoints with random weights, and sentence scores by the NumPy formulas."""

from __future__ import annotations

import json

import numpy as np

import bilm
from bilm.files.checkpoints import save_checkpoint
from bilm.files.weights import weight_table
from bilm.training import LanguageModel
from tests import oracle
from tests.oracle.files import hdf5_name
from tests.small_runs import VOCABULARY, small_options

ONE_LAYER = "one_direction_one_layer_words"
KINDS = {
    "characters": ("short_words_261", {}),
    "words_tied": ("words", {"share_embedding_softmax": True}),
    "one_layer_tied": (ONE_LAYER, {"bidirectional": True, "share_embedding_softmax": True}),
    "one_direction": (ONE_LAYER, {}),
}


class Model:
    """A checkpoint with random weights, and its expected scores."""

    def __init__(self, folder, kind, **changes):
        self.options = small_options(kind, **changes)
        self.weights = oracle.random_weights(self.options, 3)
        self.weights |= oracle.random_softmax(self.options, 4)
        table = weight_table(LanguageModel(self.options, seed=None))
        tensors = {w.checkpoint: self.weights[hdf5_name(w.checkpoint)] for w in table}
        folder.mkdir(exist_ok=True)
        self.prefix = save_checkpoint(folder, 5, tensors)
        (folder / "options.json").write_text(json.dumps(self.options), encoding="utf-8")
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
        self.folder = folder
        self.n_directions = 2 if self.options["bidirectional"] else 1

    def test(self, data, *arguments, **settings):
        return bilm.test(self.options, self.prefix, data, *arguments, **settings)

    def read_and_predicted(self, sentence):
        """Input ids and target ids of a sentence, with <S> and </S>."""
        whole = ["<S>", *sentence, "</S>"]
        number = {word: k for k, word in enumerate(VOCABULARY)}
        predicted = np.array([number.get(word, number["<UNK>"]) for word in whole])
        if "char_cnn" not in self.options:
            return predicted, predicted
        width = self.options["char_cnn"].get("max_characters_per_token", 50)
        return np.stack([oracle.word_characters(word, width) for word in whole]), predicted

    def sentence_losses(self, sentence):
        """Losses of a sentence scored alone, one array per direction."""
        pair = self.read_and_predicted(sentence)
        return [
            oracle.sentence_losses(self.weights, self.options, [pair], d)
            for d in range(self.n_directions)
        ]

    def words_of_place(self, sentence, place, d):
        """log p of each vocabulary word at a position, given what direction `d` reads before it.

        The sentence is cut off there, so that the rest cannot be read.
        """
        read, predicted = self.read_and_predicted(sentence)
        side = slice(0, place + 2) if d == 0 else slice(place + 1, None)
        result = []
        for number in range(len(VOCABULARY)):
            predicted = predicted.copy()
            predicted[place + 1] = number
            pair = (read[side], predicted[side])
            result.append(-oracle.sentence_losses(self.weights, self.options, [pair], d)[-1])
        return np.array(result)
