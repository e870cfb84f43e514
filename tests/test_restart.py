"""Resuming from a checkpoint gives the same run as without an interruption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import bilm
from bilm.core.errors import InputError
from bilm.files.checkpoints import save_checkpoint
from bilm.files.weights import open_weights
from bilm.training.state import read_state
from tests.compare import assert_same_checkpoint, checkpoint_tensors, contents
from tests.small_runs import ROWS, STEPS, Events, small_options, write_corpus

pytestmark = pytest.mark.eager

N_STEPS = 12


def run_options(kind="one_direction_one_layer_words", **changes):
    """Options with all that is random in training (dropout, samples), and several passes."""
    return small_options(
        kind,
        **{
            "n_train_tokens": 4 * ROWS * STEPS,
            "n_epochs": N_STEPS // 4,
            "dropout": 0.3,
            "sample_softmax": True,
        }
        | changes,
    )


def train(corpus, folder, checkpoint=None, stop=None, options=None, shuffle=True, **settings):
    options = options or run_options()
    data = corpus.data(options, shuffle_on_load=shuffle, seed=5)
    return bilm.train(
        options,
        data,
        1,
        folder / "model",
        folder / "log",
        checkpoint,
        seed=settings.pop("seed", 7),
        progress=lambda event: event.step == stop,
        **settings,
    )


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """An uninterrupted run."""
    return train(corpus, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def stopped(corpus, tmp_path_factory):
    """The folder and the record of a run that was stopped after seven steps."""
    folder = tmp_path_factory.mktemp("stopped")
    record = train(corpus, folder, stop=7)
    assert record.n_steps == 7
    return folder, record


def test_an_interrupted_run_ends_as_a_whole_one(whole, stopped, corpus):
    folder, first = stopped
    second = train(corpus, folder, first.checkpoint)
    assert second.n_steps == N_STEPS - 7
    assert first.train_perplexity + second.train_perplexity == whole.train_perplexity
    assert second.checkpoint.endswith(f"model.ckpt-{N_STEPS}")
    assert_same_checkpoint(second.checkpoint, whole.checkpoint)
    text = (folder / "log" / "train_log.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["step"] for line in text.splitlines()] == [1, 10, 12]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["short_words_261", "words"])
def test_an_interrupted_run_of_another_kind(corpus, tmp_path, kind):
    options = run_options(kind)
    whole = train(corpus, tmp_path / "whole", options=options)
    checkpoint = None
    for stop in (1, 6, 7, None):
        record = train(corpus, tmp_path / "parts", checkpoint, stop, options)
        checkpoint = record.checkpoint
    assert_same_checkpoint(checkpoint, whole.checkpoint)


def test_a_run_goes_on_in_another_folder(whole, stopped, corpus, tmp_path):
    folder, first = stopped
    before = contents(folder / "model")
    second = train(corpus, tmp_path, first.checkpoint, seed=99)
    assert_same_checkpoint(second.checkpoint, whole.checkpoint)
    assert contents(folder / "model") == before


def test_a_run_that_is_done_stays_as_it_is(whole, corpus, tmp_path):
    record = train(corpus, tmp_path, whole.checkpoint)
    assert record.n_steps == 0 and record.train_perplexity == []
    assert_same_checkpoint(record.checkpoint, whole.checkpoint)


def test_more_epochs_take_a_run_further(whole, corpus, tmp_path):
    options = run_options(n_epochs=4)
    events = Events()
    data = corpus.data(options, shuffle_on_load=True, seed=5)
    record = bilm.train(options, data, 1, tmp_path / "a", None, whole.checkpoint, progress=events)
    assert [(event.step, event.epoch) for event in events] == [(n, 4) for n in (13, 14, 15, 16)]
    assert record.checkpoint.endswith("model.ckpt-16")


def test_another_text_of_the_same_size_is_not_resumed(stopped, corpus, tmp_path):
    """The lines of the shards that have been read are in another order."""
    _, first = stopped
    other = write_corpus(tmp_path)
    state = read_state(first.checkpoint).iterator_state[0]
    read = [k for k, digest in enumerate(state.digests) if digest is not None]
    assert state.shard + 1 >= len(read) > 0
    for path in (tmp_path / f"train-{k}.txt" for k in read):
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="its text is not the one read before"):
        train(other, tmp_path, first.checkpoint)


def test_a_corpus_or_a_way_to_read_it_that_is_another(whole, corpus, tmp_path):
    with pytest.raises(
        InputError,
        match="cannot resume reading the corpus: shuffle_on_load is True there, False now",
    ):
        train(corpus, tmp_path, whole.checkpoint, options=run_options(n_epochs=4), shuffle=False)
    options = run_options(n_epochs=4)
    data = corpus.data(options, "train-0.txt", shuffle_on_load=True, seed=5)
    with pytest.raises(InputError, match="the corpus has other files or sizes"):
        bilm.train(options, data, 1, tmp_path / "a", None, whole.checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["best", "newest"])
def test_the_best_model_in_another_folder(corpus, tmp_path, source):
    """The best perplexity and the patience count go on only from the best model itself."""
    options = run_options(learning_rate=0.5)
    heldout = {"heldout": corpus.data(options, "heldout.txt", test=True), "heldout_every": "1 step"}
    first = train(corpus, tmp_path / "a", None, 2, options, **heldout)
    # The best checkpoint is not the last one.
    model = tmp_path / "a" / "model"
    worse = train(corpus, tmp_path / "a", first.checkpoint, 3, options | {"learning_rate": 9.0},
                  **heldout)  # fmt: skip
    assert (first.best_step, worse.best_step) == (2, 2)
    best, newest = model / "best" / "model.ckpt-2", model / "model.ckpt-3"
    checkpoint = str(best if source == "best" else newest)
    again = train(corpus, tmp_path / "b", checkpoint, 4, options | {"learning_rate": 9.0},
                  patience=50, **heldout)  # fmt: skip
    kept = bilm.load_options_latest_checkpoint(tmp_path / "b" / "model" / "best")[1]
    assert kept.endswith(f"model.ckpt-{again.best_step}")
    if source == "newest":
        assert again.best_step > 2 and again.best == again.heldout[0][1]
    else:
        assert (again.best_step, again.best) == (2, first.best)
        assert_same_checkpoint(kept, str(best))


def test_a_batch_size_that_is_another(stopped, corpus, tmp_path, caplog):
    """Finished tokens are counted in new batches; reading continues after the last token read."""
    _, first = stopped  # 7 steps of 3 rows by 4
    options = run_options(batch_size=2)
    events = Events()
    data = corpus.data(options, shuffle_on_load=True, seed=5)
    record = bilm.train(options, data, 1, tmp_path, None, first.checkpoint, progress=events)
    assert [event.step for event in events] == list(range(8, 16))  # 60 of 144 tokens are left
    assert {event.total_steps for event in events} == {15}
    assert record.checkpoint.endswith("model.ckpt-15")
    assert "batches were 3 rows by 4 tokens and are now 2 by 4" in caplog.text
    counted = read_state(record.checkpoint)
    assert counted.tokens == 7 * 12 + 8 * 8 and counted.passes == pytest.approx(148 / 48)
    bilm.dump_weights(tmp_path, tmp_path / "weights.hdf5")
    with open_weights(tmp_path / "weights.hdf5") as weights:
        facts = weights.training()
    assert (facts["steps"], facts["tokens"], facts["passes"]) == (15, 148, counted.passes)


def test_the_text_goes_on_in_batches_of_another_shape(stopped, corpus):
    _, first = stopped
    data = corpus.data(run_options(), shuffle_on_load=True, seed=5)
    state = read_state(first.checkpoint).iterator_state[0]
    two = next(data.iter_distinct(2, STEPS, state=state.with_batches(2, STEPS))).streams[0]
    one = next(data.iter_distinct(1, 1, state=state.with_batches(1, 1))).streams[0]
    begin = data.vocab.bos
    assert two.token_ids[:, 0].tolist() == [begin, begin]
    assert one.next_token_id[0, 0] == two.next_token_id[0, 0]


def with_state(first, folder, **changes):
    """A copy of a checkpoint with another iterator state in its record."""
    tensors = checkpoint_tensors(first.checkpoint)
    for name in ("global_step", "train_perplexity"):
        del tensors[name]
    record = read_state(first.checkpoint).to_dict()
    folder.mkdir()
    tensors["bilm/record"] = json.dumps(record | changes)
    return save_checkpoint(folder, 7, tensors, keep=2)


def test_a_state_that_is_damaged_is_refused_with_its_file(stopped, corpus, tmp_path):
    _, first = stopped
    checkpoint = with_state(first, tmp_path / "bad", iterator_state=[{"rows": 3}])
    with pytest.raises(InputError, match=r"bad.model\.ckpt-7: bilm/record must be"):
        train(corpus, tmp_path, checkpoint)


# Going back to an older checkpoint


@pytest.fixture(scope="module")
def saved(corpus, tmp_path_factory):
    """The folder, options and data of a run of three steps, each saved."""
    folder, options = tmp_path_factory.mktemp("run"), small_options()
    data = corpus.data(options)
    settings = {"save_minutes": 0, "keep_checkpoints": 9, "progress": lambda event: event.step == 3}
    bilm.train(options, data, 1, folder, folder, **settings)
    return folder, options, data


def test_going_back_does_not_lose_newer_checkpoints(saved, tmp_path):
    folder, options, data = saved
    before = contents(folder)
    with pytest.raises(InputError, match="ckpt-1: the folder has a newer checkpoint"):
        bilm.train(options, data, 1, folder, folder, str(folder / "model.ckpt-1"))
    assert contents(folder) == before
    record = bilm.train(options, data, 1, tmp_path / "b", None, str(folder / "model.ckpt-1"))
    assert record.n_steps == 3 and record.checkpoint == str(tmp_path / "b" / "model.ckpt-4")


def test_going_back_from_damaged_checkpoints_replaces_them(saved, tmp_path):
    folder, options, data = saved
    shutil.copytree(folder, tmp_path / "run")
    for step in (2, 3):
        path = Path(tmp_path, "run", f"model.ckpt-{step}.data-00000-of-00001")
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
    _, prefix = bilm.load_options_latest_checkpoint(tmp_path / "run")
    assert prefix.endswith("model.ckpt-1")
    again = bilm.train(options, data, 1, tmp_path / "run", None, prefix)
    whole = bilm.train(options, data, 1, tmp_path / "whole", None)
    assert_same_checkpoint(again.checkpoint, whole.checkpoint)
