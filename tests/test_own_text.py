"""User-defined data: subclasses of the data sets, and objects with only `iter_batches`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import bilm
from bilm.core.errors import InputError
from bilm.data import (
    BidirectionalLMDataset,
    LMDataset,
    UnicodeCharsVocabulary,
    Vocabulary,
    _get_batch,
    reading_method,
)
from tests.compare import assert_same_checkpoint
from tests.small_corpora import random_shards, small_vocabulary, write_shards
from tests.small_runs import Batches, small_options, train

pytestmark = pytest.mark.eager

LONGEST = 4


class ShortSentences:
    """Leaves long sentences out."""

    def get_sentence(self):
        for ids, characters in super().get_sentence():
            if len(ids) - 2 <= LONGEST:
                yield ids, characters


class ShortForward(ShortSentences, LMDataset):
    pass


class ShortBoth(ShortSentences, BidirectionalLMDataset):
    pass


@pytest.fixture
def short(tmp_path):
    """(kind, test) -> a data set that skips long sentences, and one of a text without them."""
    shards = random_shards(4, 3)
    vocab = small_vocabulary(tmp_path)
    for name in ("all", "short"):
        (tmp_path / name).mkdir()
    pattern = write_shards(tmp_path / "all", *shards)
    left = [[s for s in shard if len(s) <= LONGEST] for shard in shards]
    assert all(left) and left != shards
    alone = write_shards(tmp_path / "short", *left)

    def make(kind, test=False, **settings):
        own = {LMDataset: ShortForward, BidirectionalLMDataset: ShortBoth}[kind]
        return own(pattern, vocab, test=test, **settings), kind(alone, vocab, test=test, **settings)

    return make


KINDS = [(LMDataset, {}), (LMDataset, {"reverse": True}), (BidirectionalLMDataset, {})]


def same_arrays(one, other):
    assert set(one) == set(other)
    for name, values in other.items():
        np.testing.assert_array_equal(one[name], values)
        assert getattr(one[name], "dtype", None) == getattr(values, "dtype", None)


@pytest.mark.parametrize(("kind", "settings"), KINDS)
@pytest.mark.parametrize("door", ["iter_batches", "iter_distinct"])
@pytest.mark.parametrize("test", [False, True])
def test_all_batches_are_made_of_the_sentences_of_a_subclass(short, kind, settings, door, test):
    own, alone = short(kind, test, **settings)
    found, expected = (
        list(itertools.islice(getattr(data, door)(3, 5), 20)) for data in (own, alone)
    )
    assert len(found) == len(expected) >= 2
    for one, other in zip(found, expected, strict=True):
        same_arrays(one, other)
        if door == "iter_distinct":
            np.testing.assert_array_equal(one.mask, other.mask)
            # Each distinct word's characters are given once, in the same order.
            np.testing.assert_array_equal(one.characters, other.characters)
            assert one.state is None and other.state is not None


@pytest.mark.parametrize(("kind", "settings"), KINDS)
def test_sentence_batches_are_of_the_sentences_of_a_subclass(short, kind, settings):
    own, alone = short(kind, True, **settings)
    rows = []
    for data in (own, alone):
        rows.append({})
        for batch in data.iter_sentence_batches(30):
            for row, number in enumerate(batch.sentences.tolist()):
                mask = batch.mask[row]
                rows[-1][number] = [
                    (stream.token_ids[row][mask].tolist(), stream.next_token_id[row][mask].tolist())
                    for stream in batch.streams
                ]
    assert rows[0] == rows[1] and len(rows[0]) > 5


def test_a_subclass_without_end_cannot_be_scored_by_sentences(short):
    own, _ = short(LMDataset)
    with pytest.raises(InputError, match=r"ShortForward must be created with test=True"):
        next(own.iter_sentence_batches(30))


def test_what_the_two_directions_of_the_original_were_is_refused(tmp_path):
    vocab = small_vocabulary(tmp_path)
    pattern = write_shards(tmp_path, [["a"]])

    class Own(BidirectionalLMDataset):
        def __init__(self):
            super().__init__(pattern, vocab)
            self._data_forward = ShortForward(pattern, vocab)

    with pytest.raises(InputError, match=r"Own: _data_forward must not be set.* get_sentence"):
        Own()


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ((np.zeros(3), np.zeros((3, 3), int)), r"sentence 1 must .* got float64 \(3,\) and int64"),
        ((np.arange(3), np.full((3, 3), 261)), r"\(n, 3\) from 0 to 260, got int64 \(3,\)"),
    ],
)
def test_sentences_whose_arrays_do_not_fit(sentence, message):
    good = (np.arange(4), np.zeros((4, 3), int))
    batches = _get_batch([good, sentence], 1, 3, 3)
    with pytest.raises(InputError, match=message):
        list(batches)


def test_a_vocabulary_without_unk_is_refused_for_training(tmp_path):
    (tmp_path / "words.txt").write_text("<S>\n</S>\na\n", encoding="utf-8")
    pattern = write_shards(tmp_path, [["a"]])
    for vocab in (
        Vocabulary(tmp_path / "words.txt"),
        UnicodeCharsVocabulary(tmp_path / "words.txt", 10),
    ):
        for kind in (LMDataset, BidirectionalLMDataset):
            with pytest.raises(InputError, match=r"words.txt: the vocabulary lacks <UNK>, which"):
                kind(pattern, vocab)


def test_a_subclass_overrides_its_sentences_only():
    with pytest.raises(InputError, match=r"Own must override get_sentence, .* got iter_distinct"):
        type("Own", (BidirectionalLMDataset,), {"iter_distinct": lambda self: None})


def test_an_object_is_read_by_the_first_method_that_it_has():
    data = Batches([])
    assert reading_method(data, "iter_distinct", "iter_batches") == "iter_batches"
    with pytest.raises(InputError, match=r"an object with iter_batches, got list\."):
        reading_method([], "iter_distinct", "iter_batches")


# Training and evaluation


@pytest.fixture(scope="module")
def short_corpus(corpus, tmp_path_factory):
    """A folder with the same text without long sentences."""
    folder = tmp_path_factory.mktemp("short")
    for path in corpus.folder.glob("*.txt"):
        lines = path.read_text("utf-8").split("\n")
        kept = [line for line in lines if path.stem == "vocab" or len(line.split()) <= LONGEST]
        assert any(kept)
        (folder / path.name).write_text("\n".join(kept), encoding="utf-8")
    return folder


def open_data(kind, folder, part="train-*.txt", **settings):
    return kind(str(folder / part), bilm.load_vocab(folder / "vocab.txt"), **settings)


def assert_same_training(one, other):
    # The words of a subclass's sentences are not counted.
    names = ["bilm/word_counts"]
    assert_same_checkpoint(one.checkpoint, other.checkpoint, rtol=1e-5, atol=1e-6, without=names)


@pytest.mark.slow
def test_training_takes_the_sentences_of_a_subclass(corpus, short_corpus, tmp_path):
    options = small_options(n_epochs=3)
    own = train(options, open_data(ShortForward, corpus.folder), tmp_path / "own")
    alone = train(options, open_data(LMDataset, short_corpus), tmp_path / "alone")
    all_of_it = train(options, open_data(LMDataset, corpus.folder), tmp_path / "all")
    assert_same_training(own, alone)
    assert own.train_perplexity != pytest.approx(all_of_it.train_perplexity, rel=1e-4)


def test_text_of_a_subclass_begins_anew_when_training_is_resumed(corpus, tmp_path, caplog):
    options = small_options(n_epochs=1)
    first = train(options, open_data(ShortForward, corpus.folder), tmp_path / "first")
    assert not caplog.text
    data = open_data(ShortForward, corpus.folder)
    bilm.train(small_options(n_epochs=2), data, 1, tmp_path / "next", None, first.checkpoint)
    assert "the data cannot resume where the run stopped: its text starts again" in caplog.text


@pytest.mark.parametrize("carry_state", [False, True])
def test_evaluation_takes_the_text_of_a_subclass(corpus, short_corpus, tmp_path, carry_state):
    options = small_options(n_epochs=1)
    checkpoint = train(options, open_data(LMDataset, corpus.folder), tmp_path).checkpoint

    def score(kind, folder):
        data = open_data(kind, folder, "heldout.txt", test=True)
        return bilm.test(options, checkpoint, data, 2, carry_state=carry_state)

    own, alone = score(ShortForward, corpus.folder), score(LMDataset, short_corpus)
    assert own.n_predictions == alone.n_predictions
    np.testing.assert_allclose(own, alone, rtol=1e-6)
