"""Reading order of a corpus: passes, shuffling, workers, resuming from a state."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest

from bilm.core.errors import InputError
from bilm.data import BidirectionalLMDataset, IteratorState, LMDataset
from tests.small_corpora import assert_same, random_shards


def sentences_of(vocab, data, n=None):
    """The first `n` sentences of a data set, or all, in order."""
    return [tuple(ids.tolist()) for ids, _ in itertools.islice(data.get_sentence(), n)]


def numbered_shards(*sizes):
    """Shards of these sizes; the sentence lengths are 1, 2, 3, ..."""
    lengths = itertools.count(1)
    return [[["a"] * next(lengths) for _ in range(size)] for size in sizes]


def test_shuffling_gives_every_sentence_once_a_pass(vocab, write_shards):
    sizes = (3, 5, 1, 4)
    pattern = write_shards(*numbered_shards(*sizes))
    shard_of = [number for number, size in enumerate(sizes) for _ in range(size)]
    data = LMDataset(pattern, vocab, shuffle_on_load=True, seed=7)
    lengths = [len(ids) - 2 for ids in sentences_of(vocab, data, 6 * 13)]
    passes = [lengths[start : start + 13] for start in range(0, len(lengths), 13)]
    orders = []
    for one in passes:
        assert sorted(one) == list(range(1, 14))
        # A shard is read to its end before the next one.
        orders.append([shard for shard, _ in itertools.groupby(shard_of[n - 1] for n in one)])
        assert len(orders[-1]) == 4
    assert len(set(map(tuple, passes))) > 1
    assert len(set(map(tuple, orders))) > 1


def test_the_seed_alone_decides_the_order(vocab, write_shards):
    pattern = write_shards(*numbered_shards(6, 6))

    def order(seed):
        data = LMDataset(pattern, vocab, shuffle_on_load=True, seed=seed)
        random.seed(len(sentences_of(vocab, data, 3)))
        np.random.seed(1)
        return sentences_of(vocab, data, 24)

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_one_pass_reads_the_shards_in_order_when_shuffled(vocab, write_shards):
    pattern = write_shards(*numbered_shards(5, 5))
    data = LMDataset(pattern, vocab, test=True, shuffle_on_load=True)
    lengths = [len(ids) - 2 for ids in sentences_of(vocab, data)]
    assert sorted(lengths[:5]) == [1, 2, 3, 4, 5]
    assert sorted(lengths[5:]) == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_share_the_sentences(vocab, write_shards, shuffle):
    pattern = write_shards(*numbered_shards(7, 1, 4))
    shares = []
    for index in range(3):
        data = LMDataset(
            pattern, vocab, test=True, shuffle_on_load=shuffle, seed=4, worker=(index, 3)
        )
        shares.append([len(ids) - 2 for ids in sentences_of(vocab, data)])
        assert data.n_train_tokens == sum(range(13)) + 12  # words and </S>
    assert sorted(itertools.chain(*shares)) == list(range(1, 13))
    assert sorted(shares[1]) == [2, 5, 10]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("test", [False, True])
@pytest.mark.parametrize(("seed", "n_shards"), [(0, 1), (1, 2), (2, 5)])
def test_going_on_from_any_state_gives_the_same_batches(
    vocab, write_shards, shuffle, test, seed, n_shards
):
    pattern = write_shards(*random_shards(seed, n_shards, longest=9, sentences=5))
    data = BidirectionalLMDataset(pattern, vocab, test=test, shuffle_on_load=shuffle, seed=seed)
    batches = list(itertools.islice(data.iter_distinct(3, 4), 25))
    for number, batch in enumerate(batches):
        state = IteratorState.from_dict(json.loads(json.dumps(batch.state.to_dict())))
        assert state == batch.state
        expected = batches[number + 1 : number + 9]
        n = 8 if test else len(expected)
        following = list(itertools.islice(data.iter_distinct(3, 4, state=state), n))
        for one, other in zip(following, expected, strict=not test or len(batches) < 25):
            assert_same(one, other)


def test_a_row_goes_on_with_a_sentence_of_an_earlier_shard(vocab, write_shards):
    words = [str(number) for number in range(60)]
    pattern = write_shards([words], [["a"]], [["b"]])
    data = LMDataset(pattern, vocab)
    batches = list(itertools.islice(data.iter_distinct(2, 4), 12))
    text = ["".join(map(chr, row[1 : np.argmax(row == 259)])) for row in batches[9].characters]
    rows = batches[9].streams[0].words
    assert [text[word] for word in rows[0]] == ["35", "36", "37", "38"]
    assert batches[8].state.shard == 3
    assert batches[8].state.rows[0] == (0, 0, 36)
    resumed = itertools.islice(data.iter_distinct(2, 4, state=batches[8].state), 3)
    for batch, expected in zip(resumed, batches[9:], strict=True):
        assert_same(batch, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shuffle_on_load": True}, r"shuffle_on_load is False there, True now\."),
        ({"worker": (1, 2)}, r"n_workers is 1 there, 2 now; worker is 0 there, 1 now\."),
    ],
)
def test_a_state_of_other_settings_is_refused(vocab, write_shards, changes, message):
    pattern = write_shards(*random_shards(0, 2))
    state = next(LMDataset(pattern, vocab).iter_distinct(2, 3)).state
    with pytest.raises(InputError, match=message):
        next(LMDataset(pattern, vocab, **changes).iter_distinct(2, 3, state=state))


def test_a_state_of_other_sizes_or_another_corpus_is_refused(vocab, write_shards):
    pattern = write_shards([["a"]], [["b"]])
    data = LMDataset(pattern, vocab)
    state = next(data.iter_distinct(2, 3)).state
    with pytest.raises(InputError, match=r"batch_size is 2 there, 4 now; num_steps is 3 the"):
        next(data.iter_distinct(4, 7, state=state))
    other = LMDataset(write_shards([["a"]], [["b", "b"]]), vocab)
    with pytest.raises(InputError, match=r"the corpus has other files or sizes\."):
        next(other.iter_distinct(2, 3, state=state))


def test_what_is_not_a_state(vocab, write_shards):
    data = LMDataset(write_shards(["a"] * 9 for _ in range(4)), vocab)
    state = next(data.iter_distinct(2, 3)).state.to_dict()
    with pytest.raises(InputError, match=r"^iterator_state must be"):
        IteratorState.from_dict(state | {"rows": [[0, 1], None]})
