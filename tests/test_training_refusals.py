"""Errors that `train` raises before anything is written."""

from __future__ import annotations

import os

import numpy as np
import pytest

import bilm
from bilm.core.errors import InputError
from tests.compare import contents
from tests.small_runs import ROWS, STEPS, VOCABULARY, Batches, random_batch, small_options, train


def test_tokens_that_nobody_counts(tmp_path):
    options = small_options()
    del options["n_train_tokens"]
    with pytest.raises(InputError, match="options must have n_train_tokens, because"):
        train(options, Batches([]), tmp_path)
    assert not any((tmp_path / "model").iterdir())


def test_data_without_a_batch(tmp_path):
    with pytest.raises(InputError, match="The data holds no batch of 3 rows by 4 tokens"):
        train(small_options(), Batches([]), tmp_path)


def test_options_that_json_cannot_hold(tmp_path):
    """They would be written with the first checkpoint."""
    with pytest.raises(InputError, match=r"options must hold values of JSON only: .*PosixPath"):
        train(small_options(text=tmp_path), Batches([random_batch()]), tmp_path)
    assert not any((tmp_path / "model").iterdir())


BAD_BATCHES = [
    ({"token_ids": None}, {}, r"needs \['token_ids', 'next_token_id'\]"),
    ({}, {"kind": "short_words_261"}, r"\['tokens_characters', .* are missing"),
    (
        {"token_ids": np.full((ROWS, STEPS), 18)},
        {},
        "input ids must be from 0 to 17 .* from 18 to 18",
    ),
    (random_batch(shape=(2, 5)), {}, "must have rows per batch = 3, got 2"),
]


@pytest.mark.parametrize("batch, options, message", BAD_BATCHES)
def test_batches_that_do_not_fit_the_options(tmp_path, batch, options, message):
    options = dict(options)
    options = small_options(options.pop("kind", "one_direction_one_layer_words"), **options)
    with pytest.raises(InputError, match=message):
        train(options, Batches([random_batch() | batch]), tmp_path)
    assert not bilm.files.checkpoints.holds_checkpoint(tmp_path / "model")


def test_a_data_set_of_the_wrong_kind(corpus, tmp_path):
    one, both = small_options(), small_options("words")
    with pytest.raises(InputError, match="must have directions = 1, got 2"):
        train(one, corpus.data(both), tmp_path)
    with pytest.raises(InputError, match="must have directions = 2, got 1"):
        train(both, corpus.data(one), tmp_path)
    message = "must have max_characters_per_token = None, got 7"
    with pytest.raises(InputError, match=message):
        train(both, corpus.data(small_options("short_words_261")), tmp_path)
    with pytest.raises(InputError, match="= 7, got None"):
        train(small_options("short_words_261"), corpus.data(both), tmp_path)


@pytest.mark.parametrize("n_tokens", [5, 19])
def test_a_vocabulary_of_another_size(corpus, tmp_path, n_tokens):
    options = small_options(n_tokens_vocab=n_tokens, softmax_bias="unigram")
    message = f"vocab.txt must have n_tokens_vocab = {n_tokens} words, got 18"
    with pytest.raises(InputError, match=message):
        train(options, corpus.data(options), tmp_path)
    model = tmp_path / "model"
    bilm.files.checkpoints.save_checkpoint(model, 1, {})
    with pytest.raises(InputError, match=message):
        bilm.test(options, str(model / "model.ckpt-1"), corpus.data(options, test=True))


def test_a_held_out_text_that_does_not_fit(corpus, tmp_path):
    options, both = small_options(), small_options("words")
    data = corpus.data(options)
    with pytest.raises(InputError, match=r"must have directions = 1, got 2\.$"):
        train(options, data, tmp_path, heldout=corpus.data(both, "heldout.txt", test=True))
    words = [*VOCABULARY[:3], *reversed(VOCABULARY[3:])]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    vocab = bilm.load_vocab(tmp_path / "vocab.txt")
    heldout = bilm.LMDataset(corpus.folder / "heldout.txt", vocab, test=True)
    with pytest.raises(InputError, match=r"vocab.txt must have the words of .*, but word 3 is"):
        train(options, data, tmp_path, heldout=heldout)
    assert not bilm.files.checkpoints.holds_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("name", ["model.ckpt-7.index"])
def test_a_folder_with_a_model_is_not_overwritten(corpus, tmp_path, name):
    (tmp_path / "model").mkdir()
    for path in ("options.json", name):
        (tmp_path / "model" / path).write_bytes(b"as it was")
    options = small_options()
    message = "model: the folder holds a trained model"
    with pytest.raises(InputError, match=message):
        train(options, corpus.data(options), tmp_path)
    # Passing a checkpoint of another folder does not change that.
    with pytest.raises(InputError, match=message):
        train(options, corpus.data(options), tmp_path, str(tmp_path / "other" / "model.ckpt-3"))
    assert sorted(os.listdir(tmp_path / "model")) == sorted(["options.json", name])
    for path in (tmp_path / "model").iterdir():
        assert path.read_bytes() == b"as it was"


@pytest.mark.parametrize("kind", ["link", "file", "folder"])
def test_what_is_called_best_and_is_not_ours_stays_as_it_is(corpus, tmp_path, kind):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.ckpt-3.index").write_bytes(b"mine")
    (tmp_path / "model").mkdir()
    best = tmp_path / "model" / "best"
    if kind == "link":
        best.symlink_to(tmp_path / "mine")
    elif kind == "file":
        best.write_bytes(b"mine")
    else:
        (tmp_path / "mine").rename(best)
    before = contents(tmp_path, "**/*")
    options = small_options()
    heldout = corpus.data(options, "heldout.txt", test=True)
    with pytest.raises(InputError, match=r"for the best model.*, must be an empty folder or"):
        train(options, corpus.data(options), tmp_path, heldout=heldout)
    assert contents(tmp_path, "**/*") == before
