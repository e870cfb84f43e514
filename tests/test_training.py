"""`train`: the number of steps, files, progress events, and ending early."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bilm
from bilm.core.errors import InputError, TrainingError
from bilm.training.trainer import Trainer
from tests.compare import assert_same_checkpoint, checkpoint_tensors
from tests.small_runs import (
    N_TOKENS,
    ROWS,
    STEPS,
    Batches,
    Events,
    random_batch,
    small_options,
    train,
)

pytestmark = pytest.mark.eager

PER_STEP = ROWS * STEPS


def read_options(folder):
    return json.loads((folder / "model" / "options.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A run of three epochs: its options, folder, record and events."""
    options = small_options(n_epochs=3, n_train_tokens=5 * PER_STEP + 3) | {"mine": "kept"}
    folder = tmp_path_factory.mktemp("run")
    events = Events()
    record = train(options, corpus.data(options), folder, progress=events)
    return options, folder, record, events


def test_the_record_of_a_run(run):
    _, folder, record, _ = run
    assert record.n_steps == len(record.train_perplexity) == 15
    assert "step=15" in repr(record) and "train_perplexity=[" not in repr(record)
    assert "RowPosition" not in repr(record)
    assert record.n_tokens == 15 * PER_STEP
    assert record.seconds > 0
    assert record.checkpoint == str(folder / "model" / "model.ckpt-15")
    assert all(1 < perplexity < 2 * N_TOKENS for perplexity in record.train_perplexity)
    first, last = (np.mean(part) for part in np.array_split(record.train_perplexity, 2))
    assert last < first


def test_the_events_of_a_run(run):
    _, _, record, events = run
    assert [event.step for event in events] == list(range(1, 16))
    assert {event.total_steps for event in events} == {15}
    assert [event.epoch for event in events] == [1] * 5 + [2] * 5 + [3] * 5
    assert [event.perplexity for event in events] == record.train_perplexity
    assert [event.n_tokens for event in events] == [PER_STEP * n for n in range(1, 16)]
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds) and seconds[-1] == record.seconds


def test_the_options_beside_the_checkpoints(run):
    """options.json has all given options, and the defaults of the others."""
    options, folder, _, _ = run
    written = read_options(folder)
    assert options.items() <= (written | {"lstm": options["lstm"]}).items()
    assert written["lstm"] | options["lstm"] == written["lstm"]
    assert written["learning_rate"] == 0.2 and written["mine"] == "kept"


def test_the_log_of_a_run(run):
    _, folder, record, _ = run
    text = (folder / "log" / "train_log.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["step"] for line in lines] == [1, 10, 15]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["tokens"] for line in lines] == [PER_STEP * n for n in (1, 10, 15)]
    for line in lines:
        assert line["train_perplexity"] == record.train_perplexity[line["step"] - 1]
        assert line["sampled"] is False and line["seconds"] >= 0
        assert line["learning_rate"] == pytest.approx(0.2)


def test_the_same_seed_is_the_same_run(run, corpus, tmp_path):
    options, _, record, _ = run
    data = corpus.data(options)
    stop = {"progress": lambda event: event.step == 3}
    again = bilm.train(options, data, 1, tmp_path / "a", None, **stop)
    assert again.train_perplexity == record.train_perplexity[:3]
    assert again.n_steps == 3 and again.checkpoint.endswith("model.ckpt-3")
    assert not (tmp_path / "log").exists()
    other = bilm.train(options, data, 1, tmp_path / "b", None, seed=1, **stop)
    assert other.train_perplexity[0] != again.train_perplexity[0]


def test_tokens_are_counted_when_the_options_do_not_say(corpus, tmp_path):
    options = small_options(n_epochs=2)
    del options["n_train_tokens"]
    n_words = sum(len(sentence) + 1 for sentence in corpus.sentences)  # and sentence ends
    data = corpus.data(options)
    assert data.n_train_tokens == n_words
    record = train(options, data, tmp_path, progress=lambda record: True)
    assert record.total_steps == 2 * (n_words // PER_STEP)
    assert read_options(tmp_path)["n_train_tokens"] == n_words


def test_fewer_tokens_than_a_batch_are_one_step_an_epoch(corpus, tmp_path):
    options = small_options(n_epochs=2, n_train_tokens=1)
    assert train(options, corpus.data(options), tmp_path).n_steps == 2


def test_data_with_iter_batches_alone(tmp_path):
    data = Batches([random_batch(seed) for seed in range(9)])
    record = train(small_options(), data, tmp_path)
    assert data.asked == [(ROWS, STEPS)]
    assert record.n_steps == 4


def test_data_that_ends_ends_the_run(tmp_path):
    record = train(small_options(), Batches([random_batch(seed) for seed in range(3)]), tmp_path)
    assert record.n_steps == 3 and record.checkpoint.endswith("model.ckpt-3")


def test_a_last_batch_that_the_text_does_not_fill_is_not_trained_on(corpus, tmp_path):
    """A data set of one pass ends within a batch, which is skipped, as in the original."""
    options = small_options(n_epochs=100)
    data = corpus.data(options, "heldout.txt", test=True)
    n_full = len(list(data.iter_batches(ROWS, STEPS)))
    assert n_full < len(list(data.iter_distinct(ROWS, STEPS)))
    assert train(options, data, tmp_path).n_steps == n_full


def test_numbers_of_numpy_and_paths(corpus, tmp_path):
    """They are stored as other numbers are, and the run is the same."""
    number, options = np.int64, small_options(tag=np.float32(0.5), reset_rate=np.float32(0.0))
    options |= {"batch_size": number(ROWS), "n_train_tokens": number(2 * PER_STEP)}
    options["lstm"] = {
        name: number(value) if type(value) is int else value
        for name, value in options["lstm"].items()
    }
    data = corpus.data(options, seed=number(2), worker=(number(0), number(1)))
    record = train(options, data, tmp_path / "numpy", seed=number(3))
    plain = small_options()
    same = train(plain, corpus.data(plain, seed=2), tmp_path / "plain", seed=3)
    assert_same_checkpoint(record.checkpoint, same.checkpoint)
    stored = read_options(tmp_path / "numpy")
    assert stored == read_options(tmp_path / "plain") | {"tag": 0.5, "reset_rate": 0.0}

    checkpoint, heldout = Path(record.checkpoint), corpus.data(plain, "heldout.txt", test=True)
    longer = train(stored | {"n_epochs": 3}, data, tmp_path / "numpy", checkpoint)
    assert (longer.before[0], longer.step) == (4, 6)
    perplexity = bilm.test(stored, Path(longer.checkpoint), heldout)
    assert perplexity == bilm.test(stored, longer.checkpoint, heldout)


def test_options_of_something_else_are_not_overwritten(run, corpus, tmp_path):
    """Those of the same run are: it was killed before its first checkpoint."""
    options, folder, *_ = run
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "options.json"
    path.write_bytes((folder / "model" / "options.json").read_bytes())
    stop = {"progress": lambda record: True}
    with pytest.raises(InputError, match=r"options\.json must not exist"):
        train(options | {"batch_size": 4}, corpus.data(options), tmp_path, **stop)
    assert read_options(tmp_path)["batch_size"] == ROWS
    assert train(options, corpus.data(options), tmp_path, **stop).n_steps == 1


def test_values_that_are_not_finite_are_not_saved(tmp_path):
    """A step may produce non-finite values that only the next step would notice."""
    options = small_options(n_epochs=20, learning_rate=1e30, all_clip_norm_val=None)
    data = Batches([random_batch(seed) for seed in range(9)])
    with pytest.raises(TrainingError, match=r"Step \d+: "):
        train(options, data, tmp_path, save_minutes=0)
    saved = list((tmp_path / "model").glob("*.index"))
    assert saved
    for index in saved:
        for name, value in checkpoint_tensors(index.with_suffix("")).items():
            assert np.isfinite(value).all(), name


def test_a_step_whose_loss_is_not_finite_is_not_saved(tmp_path):
    options = small_options(n_epochs=20, learning_rate=3e38)
    data = Batches([random_batch(seed) for seed in range(9)])
    with pytest.raises(TrainingError, match=r"Step 2: the loss is nan.*checkpoint"):
        train(options, data, tmp_path, save_minutes=0)
    assert "model.ckpt-1.index" in os.listdir(tmp_path / "model")
    assert "model.ckpt-2.index" not in os.listdir(tmp_path / "model")


def test_an_interrupt_saves_what_is_done(corpus, tmp_path):
    options = small_options(n_epochs=9)

    def progress(event):
        if event.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(options, corpus.data(options), tmp_path, progress=progress)
    _, prefix = bilm.load_options_latest_checkpoint(tmp_path / "model")
    assert prefix.endswith("model.ckpt-2")
    stopped = bilm.train(
        options, corpus.data(options), 1, tmp_path / "b", None, progress=lambda e: e.step == 2
    )
    assert_same_checkpoint(prefix, stopped.checkpoint)


def test_any_exception_saves_what_is_done(corpus, tmp_path, caplog):
    options = small_options(n_epochs=9)

    def progress(state):
        if state.step == 2:
            raise ZeroDivisionError("the caller's own")

    with pytest.raises(ZeroDivisionError, match=r"^the caller's own$"):
        train(options, corpus.data(options), tmp_path, progress=progress)
    _, prefix = bilm.load_options_latest_checkpoint(tmp_path / "model")
    assert prefix.endswith("model.ckpt-2")
    assert f"Training stopped after step 2; the last checkpoint is {prefix}." in caplog.text


def test_an_error_within_a_step_saves_nothing(corpus, tmp_path, monkeypatch):
    """The step may have changed some of the variables."""
    options, run_step = small_options(n_epochs=9), Trainer.run_step

    def fail(trainer, *arguments):
        run_step(trainer, *arguments)
        raise MemoryError

    with pytest.raises(MemoryError):
        train(
            options,
            corpus.data(options),
            tmp_path,
            progress=lambda state: monkeypatch.setattr(Trainer, "run_step", fail),
        )
    assert not list((tmp_path / "model").glob("model.ckpt-*"))


def test_a_failing_fsync_names_its_file(corpus, tmp_path, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    options = small_options()
    with pytest.raises(OSError, match=r"/model/\S+: No space left on device\. Training sto"):
        train(
            options,
            corpus.data(options),
            tmp_path,
            progress=lambda state: monkeypatch.setattr("os.fsync", fail),
        )


def test_held_out_data_whose_vocab_is_of_another_kind(corpus, tmp_path):
    options = small_options()
    heldout = SimpleNamespace(
        vocab={"the": 3}, iter_batches=lambda *shape: [random_batch(shape=shape)]
    )
    state = train(options, corpus.data(options), tmp_path, heldout=heldout)
    assert state.heldout[-1][1].unknown is None and state.best > 1


@pytest.mark.parametrize("keep", [1, 3])
def test_checkpoints_that_are_kept(corpus, tmp_path, keep):
    """With `save_minutes=0` every step is saved, and the newest checkpoints are kept."""
    options = small_options(n_epochs=3)
    seen = []

    def progress(event):
        seen.append(sorted(path.stem for path in (tmp_path / "model").glob("*.index")))

    train(
        options,
        corpus.data(options),
        tmp_path,
        save_minutes=0,
        keep_checkpoints=keep,
        progress=progress,
    )
    steps = [[f"model.ckpt-{n}" for n in range(max(1, k - keep + 1), k + 1)] for k in range(1, 7)]
    assert seen == steps
    names = {f"{name}{end}" for name in steps[-1] for end in (".index", ".data-00000-of-00001")}
    files = {"checkpoint", "options.json", "vocab.txt"}
    assert set(os.listdir(tmp_path / "model")) == names | files


@pytest.mark.slow
def test_held_out_figures_of_a_bfloat16_run_are_those_of_test(corpus, tmp_path):
    options = small_options(
        bidirectional=True, learning_rate=0.5, lstm={"dim": 16, "projection_dim": 8}
    )
    heldout = corpus.data(options, "heldout.txt", test=True)
    record = train(options, corpus.data(options), tmp_path, heldout=heldout, precision="bfloat16")
    in_training = dict(record.heldout)[4]
    measured = bilm.test(options, record.checkpoint, heldout)
    # With float32 matmuls the difference would exceed this tolerance.
    assert measured == pytest.approx(in_training, rel=1e-6)
    assert measured.forward == pytest.approx(in_training.forward, rel=1e-6)
    in_float32 = train(options, corpus.data(options), tmp_path / "b", heldout=heldout)
    assert abs(in_float32.heldout[-1][1] / in_training - 1) > 1e-6
