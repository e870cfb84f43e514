"""Properties of a data set, and errors in a corpus."""

from __future__ import annotations

import itertools

import pytest

from bilm.core.errors import InputError
from bilm.data import BidirectionalLMDataset, LMDataset
from tests.small_corpora import assert_same, random_shards


def test_properties(vocab, write_shards):
    shards = random_shards(1, 3)
    data = BidirectionalLMDataset(write_shards(*shards), vocab)
    assert data.vocab is vocab
    assert data.max_word_length == 12
    assert data.n_train_tokens == sum(len(s) + 1 for s in itertools.chain(*shards))


def test_iterations_do_not_disturb_each_other(vocab, write_shards):
    data = LMDataset(write_shards(*random_shards(2, 2)), vocab, shuffle_on_load=True)
    one, other = data.iter_distinct(2, 3), data.iter_distinct(2, 3)
    first = [next(one) for _ in range(10)]
    for batch in first:
        assert_same(next(other), batch)


def test_no_sentence(vocab, write_shards):
    pattern = write_shards([[]], [[" "]])
    with pytest.raises(InputError, match=r"shard-\*.txt: no sentence in these files\."):
        BidirectionalLMDataset(pattern, vocab)


def test_no_sentence_for_a_worker(vocab, write_shards):
    pattern = write_shards([["a"], ["b"]], [["a"]])
    with pytest.raises(InputError, match=r"no sentence in these files for worker 2 of 3\."):
        LMDataset(pattern, vocab, worker=(2, 3))


def test_an_empty_shard_among_others_is_passed_over(vocab, write_shards):
    data = LMDataset(write_shards([["a"]], [], [["b"]]), vocab, test=True)
    assert [vocab.decode(ids) for ids, _ in data.get_sentence()] == ["<S> a </S>", "<S> b </S>"]
    (batch,) = data.iter_distinct(1, 9)
    assert batch.mask.sum() == 4


def test_a_shard_that_goes_away(vocab, write_shards, tmp_path):
    data = LMDataset(write_shards([["a"]], [["b"]]), vocab)
    batches = data.iter_distinct(1, 1)
    next(batches)
    (tmp_path / "shard-01.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"shard-01.txt' does not exist"):
        list(itertools.islice(batches, 5))
