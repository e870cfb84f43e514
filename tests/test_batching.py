"""Tokenised sentences to id arrays for a pretrained model."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from bilm.core.errors import InputError
from bilm.data import Batcher, TokenBatcher, UnicodeCharsVocabulary, index_words

# Sentences of each batch in the recorded run.
BATCHES = ((0, 8), (8, 11), (11, 24), (24, 40))


@pytest.fixture
def sentences(golden):
    return json.loads((golden / "sentences.json").read_text(encoding="utf-8"))


def test_character_ids_of_the_original(golden, sentences):
    batcher = Batcher(golden / "vocab.txt", 50)
    with h5py.File(golden / "inference/base/expected.hdf5") as file:
        for number, (start, stop) in enumerate(BATCHES):
            expected = file[f"pass0/batch{number}/char_ids"][()]
            ids = batcher.batch_sentences(sentences[start:stop])
            assert ids.dtype == np.int32
            np.testing.assert_array_equal(ids, expected)


def test_characters_need_no_vocabulary(golden, sentences):
    expected = Batcher(golden / "vocab.txt", 50).batch_sentences(sentences)
    np.testing.assert_array_equal(Batcher(None, 50).batch_sentences(sentences), expected)


def test_characters_are_those_of_the_vocabulary_plus_one(golden, sentences):
    sentences = [*sentences, ["a", "<S>", "</S>"]]
    vocab = UnicodeCharsVocabulary(golden / "vocab.txt", 11)
    ids = Batcher(golden / "vocab.txt", 11).batch_sentences(sentences)
    assert ids.shape == (len(sentences), max(map(len, sentences)) + 2, 11)
    for sentence, row in zip(sentences, ids, strict=True):
        length = len(sentence) + 2
        np.testing.assert_array_equal(row[:length], vocab.encode_chars(sentence, split=False) + 1)
        assert not row[length:].any()


def test_word_ids(golden, sentences):
    batcher = TokenBatcher(golden / "vocab.txt")
    vocab = UnicodeCharsVocabulary(golden / "vocab.txt", 50)
    ids = batcher.batch_sentences(sentences)
    assert ids.dtype == np.int32
    assert ids.shape == (len(sentences), max(map(len, sentences)) + 2)
    for sentence, row in zip(sentences, ids, strict=True):
        length = len(sentence) + 2
        np.testing.assert_array_equal(row[:length], vocab.encode(sentence, split=False) + 1)
        assert not row[length:].any()


def test_no_sentences_and_empty_sentences(golden):
    batcher, tokens = Batcher(None, 50), TokenBatcher(golden / "vocab.txt")
    assert batcher.batch_sentences([]).shape == (0, 2, 50)
    assert tokens.batch_sentences([]).shape == (0, 2)
    ids = tokens.batch_sentences([[], ["</S>"], []])
    assert ids.tolist() == [[1, 2, 0], [1, 2, 2], [1, 2, 0]]
    chars = batcher.batch_sentences([[]])
    assert chars[0, :, :4].tolist() == [[259, 257, 260, 261], [259, 258, 260, 261]]


def test_any_kind_of_sequence_will_do(golden):
    expected = Batcher(None, 50).batch_sentences([["a", "b"], ["c"]])
    for sentences in ((("a", "b"), ("c",)), (s for s in (["a", "b"], np.array(["c"])))):
        np.testing.assert_array_equal(Batcher(None, 50).batch_sentences(sentences), expected)


def test_index_words():
    words, rows = index_words([["b", "a"], [], ["a", "</S>", "c"]])
    assert words == ["<S>", "</S>", "b", "a", "c"]
    assert rows.dtype == np.int32
    assert rows.tolist() == [[1, 3, 4, 2, 0], [1, 2, 0, 0, 0], [1, 4, 2, 5, 2]]


@pytest.mark.parametrize("kind", ["characters", "words"])
@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([["a"], "a b"], r"sentence 1 must be a list of tokens, got 'a b'"),
        ([["a"], ["b", 3]], r"sentence 1, token 1 must be text, got int 3\."),
    ],
)
def test_what_is_not_a_list_of_token_lists(golden, kind, sentences, message):
    batcher = Batcher(None, 50) if kind == "characters" else TokenBatcher(golden / "vocab.txt")
    with pytest.raises(InputError, match=message):
        batcher.batch_sentences(sentences)
