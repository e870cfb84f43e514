"""Batches of a corpus, compared with recorded ones and with a slow reference."""

from __future__ import annotations

import itertools

import h5py
import numpy as np
import pytest

from bilm.data import (
    BidirectionalLMDataset,
    LMDataset,
    UnicodeCharsVocabulary,
    Vocabulary,
    _get_batch,
)
from tests.small_corpora import both_directions, check_batch, random_shards, slow_batches


def golden_batches(golden):
    with h5py.File(golden / "batches.hdf5") as file:
        return [
            {name: value[()] for name, value in file[str(number)].items()}
            for number in range(len(file))
        ]


@pytest.mark.parametrize("door", ["iter_batches", "iter_distinct"])
def test_batches_of_the_original(golden, door):
    vocab = UnicodeCharsVocabulary(golden / "vocab.txt", 50)
    data = BidirectionalLMDataset(golden / "corpus" / "*.txt", vocab)
    expected = golden_batches(golden)
    assert len(expected) == 12
    batches = itertools.islice(getattr(data, door)(4, 7), len(expected))
    for batch, values in zip(batches, expected, strict=True):
        found = batch if door == "iter_batches" else dict(batch)
        assert set(found) == set(values)
        for name, value in values.items():
            assert found[name].dtype == np.int32
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_direction_of_the_original(golden, reverse):
    vocab = UnicodeCharsVocabulary(golden / "vocab.txt", 50)
    data = LMDataset(golden / "corpus" / "*.txt", vocab, reverse=reverse)
    suffix = "_reverse" if reverse else ""
    by_hand = _get_batch(data.get_sentence(), 4, 7, 50)
    expected = golden_batches(golden)
    batches = (itertools.islice(some, len(expected)) for some in (data.iter_batches(4, 7), by_hand))
    for batch, other, values in zip(*batches, expected, strict=True):
        assert set(batch) == {"token_ids", "tokens_characters", "next_token_id"}
        for name in batch:
            np.testing.assert_array_equal(batch[name], values[name + suffix])
            np.testing.assert_array_equal(other[name], batch[name])
            assert other[name].dtype == np.int32


def test_word_input_has_no_characters(golden):
    vocab = Vocabulary(golden / "vocab.txt")
    data = BidirectionalLMDataset(golden / "corpus" / "*.txt", vocab)
    assert data.max_word_length is None
    batch = next(data.iter_distinct(4, 7))
    assert batch.characters is None
    expected = golden_batches(golden)[0]
    for name, value in next(data.iter_batches(4, 7)).items():
        if name.startswith("tokens_characters"):
            assert value is None
        else:
            np.testing.assert_array_equal(value, expected[name])
    np.testing.assert_array_equal(batch.streams[0].words, batch.streams[0].token_ids)
    sentences = LMDataset(golden / "corpus" / "*.txt", vocab).get_sentence()
    ids, characters = next(sentences)
    assert (ids[0], ids[-1], characters) == (vocab.bos, vocab.eos, None)
    other = next(_get_batch(sentences, 1, 3, None))
    assert other["tokens_characters"] is None
    assert other["token_ids"].shape == (1, 3)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("batch_size", "num_steps", "n_batches"), [(1, 1, 30), (3, 5, 30), (4, 40, 8)]
)
def test_rows_of_many_shards(vocab, write_shards, seed, batch_size, num_steps, n_batches):
    shards = random_shards(seed, n_shards=1 + seed % 4)
    data = BidirectionalLMDataset(write_shards(*shards), vocab)
    forward, backward = (
        slow_batches(itertools.cycle(marked), batch_size, num_steps)
        for marked in both_directions(itertools.chain(*shards))
    )
    batches = data.iter_distinct(batch_size, num_steps)
    for _ in range(n_batches):
        batch = next(batches)
        assert batch.mask.all()
        check_batch(vocab, batch, next(forward), next(backward))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("batch_size", "num_steps"), [(1, 1), (3, 5), (4, 40)])
def test_one_pass_gives_every_prediction_once(vocab, write_shards, seed, batch_size, num_steps):
    shards = random_shards(seed, n_shards=1 + seed % 3)
    data = BidirectionalLMDataset(write_shards(*shards), vocab, test=True)
    sentences = list(itertools.chain(*shards))
    forward, backward = (
        list(slow_batches(marked, batch_size, num_steps)) for marked in both_directions(sentences)
    )
    batches = list(data.iter_distinct(batch_size, num_steps))
    for batch, *expected in zip(batches, forward, backward, strict=True):
        check_batch(vocab, batch, *expected)
    assert sum(batch.mask.sum() for batch in batches) == sum(len(s) + 1 for s in sentences)
    full = [dict(batch) for batch in batches if batch.mask.all()]
    given = list(data.iter_batches(batch_size, num_steps))
    assert len(given) == len(full)
    for batch, expected in zip(given, full, strict=True):
        for name in expected:
            np.testing.assert_array_equal(batch[name], expected[name])


def test_distinct_words_are_given_once_each(golden):
    vocab = UnicodeCharsVocabulary(golden / "vocab.txt", 80)
    data = BidirectionalLMDataset(golden / "corpus" / "*.txt", vocab)
    for batch in itertools.islice(data.iter_distinct(4, 30), 10):
        assert len(np.unique(batch.characters, axis=0)) == len(batch.characters)
        used = np.unique([stream.words for stream in batch.streams])
        assert used.tolist() == list(range(len(batch.characters)))


def test_a_batch_larger_than_the_corpus(vocab, write_shards):
    data = LMDataset(write_shards([["a", "b"]], [["of"]]), vocab)
    batch = next(data.iter_distinct(6, 5))
    a, b, of, bos = (vocab.word_to_id(word) for word in ("a", "b", "of", "<S>"))
    assert batch.streams[0].token_ids.tolist() == [[bos, a, b, bos, of]] * 6


def test_empty_lines_are_no_sentences(vocab, write_shards):
    data = LMDataset(write_shards([["a"], [], [" ", "\t"], ["b"]]), vocab, test=True)
    assert [vocab.decode(ids) for ids, _ in data.get_sentence()] == ["<S> a </S>", "<S> b </S>"]
    assert data.n_train_tokens == 4  # two words, each with </S>


def test_get_sentence(vocab, write_shards):
    shards = random_shards(3, 3)
    for reverse in (False, True):
        data = LMDataset(write_shards(*shards), vocab, reverse=reverse, test=True)
        sentences = list(data.get_sentence())
        for (ids, characters), sentence in zip(sentences, itertools.chain(*shards), strict=True):
            words = sentence[::-1] if reverse else sentence
            np.testing.assert_array_equal(ids, vocab.encode(words, reverse, split=False))
            np.testing.assert_array_equal(
                characters, vocab.encode_chars(words, reverse, split=False)
            )
            assert (ids.dtype, characters.dtype) == (np.int32, np.int32)
    endless = LMDataset(write_shards(*shards), vocab).get_sentence()
    n = sum(map(len, shards))
    *_, first_again = itertools.islice(endless, n + 1)
    assert first_again[0].tolist() == vocab.encode(shards[0][0], split=False).tolist()


def test_get_batch_skips_sentences_without_inputs():
    ids = [np.array([1, 2, 3]), np.array([9]), np.array([], int), np.array([4, 5])]
    batch = next(_get_batch(((sentence, None) for sentence in ids), 1, 3, None))
    assert batch["token_ids"].tolist() == [[1, 2, 4]]
    assert batch["next_token_id"].tolist() == [[2, 3, 5]]


def test_get_batch_ends_without_an_incomplete_batch():
    sentence = (np.arange(4), None)
    assert len(list(_get_batch([sentence] * 2, 2, 3, None))) == 1
    assert len(list(_get_batch([sentence] * 3, 2, 3, None))) == 1
    assert list(_get_batch([], 2, 3, None)) == []


@pytest.mark.parametrize("test", [False, True])
@pytest.mark.parametrize("max_tokens", [1, 7, 30, 1000])
def test_sentence_batches(vocab, write_shards, max_tokens, test):
    shards = random_shards(8, 3)
    data = BidirectionalLMDataset(write_shards(*shards), vocab, test=test, shuffle_on_load=test)
    sentences = list(itertools.chain(*shards))
    seen = []
    for batch in data.iter_sentence_batches(max_tokens):
        assert batch.state is None
        assert batch.sentences.dtype == np.int64
        assert batch.mask.size <= max_tokens or len(batch.mask) == 1
        assert batch.mask[-1].all()  # no column beyond the longest
        expected = (
            [list(itertools.pairwise(sentence)) for sentence in marked]
            for marked in both_directions(sentences[number] for number in batch.sentences)
        )
        check_batch(vocab, batch, *expected)
        seen += batch.sentences.tolist()
    assert sorted(seen) == list(range(len(sentences)))


def test_sentence_batches_fill_the_budget(vocab, write_shards):
    data = LMDataset(write_shards([["a"] * length for length in (1, 5, 1, 1, 5, 9)]), vocab)
    batches = list(data.iter_sentence_batches(12))
    assert [batch.sentences.tolist() for batch in batches] == [[0, 2, 3], [1, 4], [5]]
    assert [batch.mask.shape for batch in batches] == [(3, 2), (2, 6), (1, 10)]
