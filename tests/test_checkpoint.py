"""Checkpoints: the original's files and names, damage, which are kept, the record, and dumps."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm import Options
from bilm.core.errors import InputError
from bilm.data.corpus import IteratorState, RowPosition
from bilm.files.checkpoints import (
    holds_checkpoint,
    keep_best,
    list_checkpoints,
    open_checkpoint,
    read_checkpoint,
    read_step,
    save_checkpoint,
    tidy_folder,
)
from bilm.training.state import RunState, read_state
from tests import oracle
from tests.compare import checkpoint_tensors, contents
from tests.small_runs import small_options, write_corpus

pytestmark = pytest.mark.eager

SUFFIXES = (".data-00000-of-00001", ".index")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """The folder of a run that saved each of its three steps."""
    folder = tmp_path_factory.mktemp("model")
    options = small_options("words", n_epochs=9, sample_softmax=True)
    data = write_corpus(tmp_path_factory.mktemp("corpus")).data(options)
    bilm.train(
        options,
        data,
        1,
        folder,
        None,
        save_minutes=0,
        keep_checkpoints=9,
        progress=lambda event: event.step == 3,
    )
    return folder


@pytest.fixture
def copy(model_folder, tmp_path):
    """A copy that tests may damage."""
    shutil.copytree(model_folder, tmp_path / "model")
    return tmp_path / "model"


def test_the_folder_of_a_run(model_folder):
    """TensorFlow's own tools find the newest checkpoint in it."""
    files = {f"model.ckpt-{n}{suffix}" for n in (1, 2, 3) for suffix in SUFFIXES}
    assert set(os.listdir(model_folder)) == files | {"checkpoint", "options.json", "vocab.txt"}
    assert tf.train.latest_checkpoint(str(model_folder)) == str(model_folder / "model.ckpt-3")
    state = tf.train.get_checkpoint_state(str(model_folder))
    names = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    assert names == ["model.ckpt-1", "model.ckpt-2", "model.ckpt-3"]
    assert holds_checkpoint(model_folder) and not holds_checkpoint(model_folder.parent)
    prefixes = {n: str(model_folder / f"model.ckpt-{n}") for n in (1, 2, 3)}
    assert list_checkpoints(model_folder) == prefixes


def test_names_in_a_checkpoint_are_the_originals(golden, model_folder):
    """Plus the names of a record and of the LSTM states."""
    theirs = tf.train.load_checkpoint(str(golden / "training" / "words" / "end" / "model.ckpt-10"))
    ours = tf.train.load_checkpoint(str(model_folder / "model.ckpt-3"))
    added = {f"bilm/state/{d}/{layer}/{part}" for d in "01" for layer in "01" for part in "ch"}
    expected = set(theirs.get_variable_to_shape_map()) | added | {"bilm/record", "bilm/word_counts"}
    assert set(ours.get_variable_to_shape_map()) == expected
    assert ours.get_tensor("global_step") == 3
    for name, kind in theirs.get_variable_to_dtype_map().items():
        assert ours.get_variable_to_dtype_map()[name] == kind
    assert set(json.loads(ours.get_tensor("bilm/record"))) >= {
        "step",
        "position",
        "seed",
        "iterator_state",
    }


def test_the_newest_checkpoint_and_the_options(model_folder):
    options, prefix = bilm.load_options_latest_checkpoint(str(model_folder))
    assert prefix == str(model_folder / "model.ckpt-3")
    assert Options.from_dict(options, training=True).n_epochs == 9
    assert read_step(prefix) == 3 and read_state(prefix).done == 3


def test_a_checkpoint_of_the_original_has_no_record(golden):
    prefix = str(golden / "training" / "words" / "end" / "model.ckpt-10")
    assert read_state(prefix) is None and read_step(prefix) == 10


def cut(path, share=None, n_bytes=None):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))] if n_bytes is None else data[:-n_bytes])


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: cut(folder / "model.ckpt-3.data-00000-of-00001", n_bytes=1),
        lambda folder: cut(folder / "model.ckpt-3.index", share=0.5),
    ],
)
def test_a_newest_checkpoint_that_is_not_whole_is_passed_over(copy, caplog, harm):
    harm(copy)
    with caplog.at_level(logging.WARNING):
        _, prefix = bilm.load_options_latest_checkpoint(copy)
    assert prefix == str(copy / "model.ckpt-2")
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"{copy / 'model.ckpt-3'}: damaged, skipped"]


def test_damage_within_is_passed_over(copy, caplog):
    data = copy / "model.ckpt-3.data-00000-of-00001"
    contents = bytearray(data.read_bytes())
    contents[len(contents) // 2] ^= 1
    data.write_bytes(contents)
    assert bilm.load_options_latest_checkpoint(copy)[1] == str(copy / "model.ckpt-2")
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"{copy / 'model.ckpt-3'}: damaged, skipped"]


def test_a_checkpoint_without_an_index_was_never_finished(copy, caplog):
    (copy / "model.ckpt-3.index").unlink()
    assert bilm.load_options_latest_checkpoint(copy)[1] == str(copy / "model.ckpt-2")
    assert caplog.records == []


def test_folders_without_a_checkpoint_to_load(copy, tmp_path):
    load = bilm.load_options_latest_checkpoint
    with pytest.raises(FileNotFoundError, match=r"The folder '.*none' does not exist\."):
        load(tmp_path / "none")
    for n in (1, 2, 3):
        cut(copy / f"model.ckpt-{n}.data-00000-of-00001", share=0.5)
    with pytest.raises(InputError, match="must hold an intact checkpoint, damaged"):
        load(copy)
    for path in copy.glob("model.ckpt-*"):
        path.unlink()
    with pytest.raises(
        FileNotFoundError, match=r"The folder '.*' holds no checkpoint \(model.ckpt"
    ):
        load(copy)
    (copy / "options.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match=r"options\.json: must hold a JSON object, got"):
        load(copy)
    (copy / "options.json").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"The options file '.*options\.json' does not exis"
    ):
        load(copy)


def save(folder, step, keep=2):
    return save_checkpoint(folder, step, {"lm/a": np.full(3, step, np.float32)}, keep=keep)


def test_checkpoints_that_are_written_one_after_the_other(tmp_path):
    for step in (5, 10, 100):
        prefix = save(tmp_path, step)
        assert prefix == str(tmp_path / f"model.ckpt-{step}")
        np.testing.assert_array_equal(checkpoint_tensors(prefix)["lm/a"], [step] * 3)
    assert list_checkpoints(tmp_path) == {n: str(tmp_path / f"model.ckpt-{n}") for n in (10, 100)}
    text = (tmp_path / "checkpoint").read_text(encoding="utf-8")
    assert text == (
        'model_checkpoint_path: "model.ckpt-100"\n'
        'all_model_checkpoint_paths: "model.ckpt-10"\n'
        'all_model_checkpoint_paths: "model.ckpt-100"\n'
    )
    save(tmp_path, 100, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", *(f"model.ckpt-100{s}" for s in SUFFIXES)]


@pytest.mark.parametrize(
    "name", ["options.json", "checkpoint", "model.ckpt-3.index", "../link.hdf5"]
)
def test_a_dump_never_overwrites_the_training(copy, name):
    (copy.parent / "link.options.json").symlink_to(copy / "options.json")
    before = contents(copy)
    with pytest.raises(InputError, match="is an input"):
        bilm.dump_weights(copy, copy / name)
    assert contents(copy) == before


def test_checkpoints_that_do_not_fit(golden):
    prefix = str(golden / "training" / "words" / "end" / "model.ckpt-10")
    shapes = {"lm/softmax/b": (109,), "lm/softmax/W": (109, 13), "lm/none": (1, 2)}
    read = read_checkpoint(prefix, {"lm/softmax/b": (109,)}, ["lm/", "global", "train"])
    expected = oracle.read_checkpoint(prefix).weights["softmax/b"]
    np.testing.assert_array_equal(read["lm/softmax/b"], expected)
    with pytest.raises(InputError) as caught:
        read_checkpoint(prefix, shapes, ["lm/RNN_", "lm/embedding", "train_perplexity"])
    for wrong in ("lm/softmax/W: must have", "lm/none: missing", "global_step: unexpected"):
        assert wrong in str(caught.value)


def test_checkpoints_that_are_not_there_or_damaged(golden, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"The checkpoint '.*ckpt-3\.index' does not exist"):
        open_checkpoint(str(tmp_path / "model.ckpt-3"))
    source = golden / "training" / "words" / "end"
    for suffix in (".index", ".data-00000-of-00001"):
        data = (source / f"model.ckpt-10{suffix}").read_bytes()
        (tmp_path / f"a{suffix}").write_bytes(data[: len(data) // 2])
        (tmp_path / f"b{suffix}").write_bytes(data if suffix == ".index" else data[:-500])
    with pytest.raises(InputError, match=r"/a: not a checkpoint, or damaged: "):
        open_checkpoint(str(tmp_path / "a"))
    with pytest.raises(InputError, match=r"/b: lm/softmax/b cannot be read: "):
        read_checkpoint(str(tmp_path / "b"), {"lm/softmax/b": (109,)}, ["lm/", "global", "train"])


def test_a_folder_whose_name_is_a_pattern(tmp_path):
    folder = tmp_path / "run[x]*"
    folder.mkdir()
    prefix = save(folder, 5)
    assert read_step(prefix) == 5 and list_checkpoints(folder) == {5: prefix}
    np.testing.assert_array_equal(read_checkpoint(prefix, {"lm/a": (3,)}, ["g", "t"])["lm/a"], 5)


# Which are kept


def test_later_checkpoints_and_leftovers_go_with_the_next_one(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step)
    (tmp_path / ".bilm-saving").mkdir()
    (tmp_path / ".bilm-saving" / "model.ckpt-0123.index").write_bytes(b"left by a crash")
    save(tmp_path, 15, keep=1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint", "model.ckpt-15.data-00000-of-00001", "model.ckpt-15.index"]


@pytest.mark.parametrize("text", [None, ""])
def test_checkpoints_that_no_record_names_are_never_removed(tmp_path, text):
    """SECURITY.md: only checkpoints that the file `checkpoint` names are removed."""
    for step in (1, 2, 3, 4):
        save(tmp_path, step, keep=4)
    (tmp_path / "checkpoint").unlink()
    if text is not None:
        (tmp_path / "checkpoint").write_text(text, "utf-8")
    tidy_folder(tmp_path, 4, keep=2)
    for step in (5, 6, 7):
        save(tmp_path, step, keep=2)
    assert [*list_checkpoints(tmp_path)] == [1, 2, 3, 4, 6, 7]


def test_data_without_an_index_goes_with_the_next_checkpoint(tmp_path, monkeypatch):
    """A run was killed between renaming the data and renaming the index."""
    replace = os.replace

    def killed(source, target):
        if str(target).endswith(".index"):
            raise KeyboardInterrupt
        replace(source, target)

    save(tmp_path, 1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        save(tmp_path, 2)
    assert (tmp_path / f"model.ckpt-2{SUFFIXES[0]}").exists()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
    save(tmp_path, 3)
    names = [f"model.ckpt-{n}{suffix}" for n in (1, 3) for suffix in SUFFIXES]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", *names]


def test_what_runs_that_were_killed_have_left_goes(tmp_path):
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    for step in (10, 20, 30):
        save(tmp_path, step, keep=3)
    keep_best(tmp_path, str(tmp_path / "model.ckpt-10"))
    # Another job may be writing weights into the folder; the user may keep copies there.
    mine = ["model.ckpt-7.meta", ".mine", "notes.tmp", ".0123abcd.tmp.weights.hdf5",
            "model.ckpt-7-copy.index", "model.ckpt-best.data-00000-of-00001",
            "model.ckpt-8.data-00000-of-00001", ".model.ckpt-notes"]  # fmt: skip
    left = [".bilm-saving/model.ckpt-7.index", "best/.bilm-saving/model.ckpt-10.index"]
    for folder in (tmp_path, tmp_path / "best"):
        (folder / ".bilm-saving").mkdir()
    for name in (*left, *mine):
        (tmp_path / name).touch()
    tidy_folder(tmp_path, 30, keep=2)
    pairs = [
        f"model.ckpt-{n}.{part}" for n in (20, 30) for part in ("data-00000-of-00001", "index")
    ]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(["best", "checkpoint", "options.json", *mine, *pairs])
    assert not list((tmp_path / "best").glob(".*"))
    state = (tmp_path / "checkpoint").read_text(encoding="utf-8").splitlines()
    assert state == [
        'model_checkpoint_path: "model.ckpt-30"',
        'all_model_checkpoint_paths: "model.ckpt-20"',
        'all_model_checkpoint_paths: "model.ckpt-30"',
    ]


def test_the_best_checkpoint_outlives_the_others(tmp_path):
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    for step in (10, 20, 30):
        prefix = save(tmp_path, step, keep=1)
        if step < 30:
            best = keep_best(tmp_path, prefix)
    assert best == str(tmp_path / "best" / "model.ckpt-20")
    names = sorted(path.name for path in (tmp_path / "best").iterdir())
    data = "model.ckpt-20.data-00000-of-00001"
    assert names == ["checkpoint", data, "model.ckpt-20.index", "options.json"]
    assert 'model_checkpoint_path: "model.ckpt-20"' in (tmp_path / "best/checkpoint").read_text()


def test_the_best_checkpoint_where_files_cannot_be_linked(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    prefix = save(tmp_path, 10)
    best = keep_best(tmp_path, prefix)
    assert Path(f"{best}.index").read_bytes() == Path(f"{prefix}.index").read_bytes()


# The record


STATE = IteratorState(9, 1, True, False, 0, 1, 2, 20, 7, 30, (RowPosition(6, 3, 1), None))
STORED = RunState(
    step=9,
    position=84,
    batch_shape=(3, 4),
    start=0,
    warmup=24,
    decay=24,
    end=108,
    length=(1, None, 108, 2),
    n_train_tokens=108,
    tokens=84,
    passes=2.5,
    run_seconds=1.5,
    perplexity=float("inf"),
    seed=5,
    precision="bfloat16",
    init_from="elmo",
    best=20.5,
    best_step=8,
    since_best=1,
    measured_at=9,
    heldout_predictions=42,
    iterator_state=(STATE, None),
)


def written(folder, text):
    """Write a checkpoint whose record is `text`."""
    prefix = str(folder / "model.ckpt-9")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["bilm/record"],
        shape_and_slices=[""],
        tensors=[tf.constant(text)],
    )
    return prefix


def test_a_record_is_read_as_it_was_written(tmp_path):
    tensors = {"x": np.ones(3, np.float32), "bilm/record": json.dumps(STORED.to_dict()),
               "train_perplexity": np.float32(STORED.perplexity)}  # fmt: skip
    prefix = save_checkpoint(tmp_path, 9, tensors)
    assert read_state(prefix) == STORED and read_step(prefix) == 9
    assert np.isinf(tf.train.load_checkpoint(prefix).get_tensor("train_perplexity"))


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_a_record_of_version_0_1(tmp_path, seconds):
    """It had groups and other names. A run by time had an end once its speed was known."""
    values = {
        "batch_shape": [3, 4], "step": 9, "position": 84, "tokens": 84, "passes": 2.5,
        "seconds": 1.5, "elapsed": 0.0, "train_perplexity": float("inf"), "seed": 5,
        "plan": {"end": 108, "start": 0, "warmup": 24, "decay": 24, "seconds": seconds,
                 "settings": [1, None, 108, 2]},
        "heldout": {"best": 20.5, "best_step": 8, "since_best": 1, "measured_at": 9,
                    "n_predictions": 42, "checksum": None, "unigram": None},
        "run": {"precision": "bfloat16", "init_from": "elmo"},
        "iterator_state": [STATE.to_dict(), None],
    }  # fmt: skip
    expected = dataclasses.replace(STORED, time_limit=seconds)
    assert read_state(written(tmp_path, json.dumps(values))) == expected
    values["iterator_state"] = STATE.to_dict()
    alone = read_state(written(tmp_path, json.dumps(values)))
    assert alone == dataclasses.replace(expected, iterator_state=(STATE,))
