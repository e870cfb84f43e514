"""The folder of an unfinished job: locked, resumed by the same job; other folders stay."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm import InputError
from bilm.data.sentences import Sentence
from bilm.vectors.job_folder import JobFolder, check_output, remove_job
from bilm.vectors.saved_vectors import SavedVectors

SETTINGS = {"model": "abc", "layers": "top", "files": {"a.txt": "3 lines"}}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def partial(tmp_path):
    return tmp_path / "out.partial"


def save(folder, *texts):
    """Save sentences with vectors of zeros; returns the number of all saved ones."""
    with SavedVectors(folder.path, "float32", becomes_result=False) as saved:
        for text in texts:
            vectors = np.zeros((len(text.split()), 2), np.float32)
            saved.add(Sentence(saved.n_sentences, text), vectors)
        return saved.n_sentences


def interrupt(out, settings=SETTINGS, **choices):
    """Run a job that crashes after one sentence."""
    with pytest.raises(SystemError), JobFolder(out, settings, **choices) as folder:
        save(folder, "a b")
        raise SystemError


def error_of(function, *arguments, **settings):
    with pytest.raises(InputError) as info:
        function(*arguments, **settings)
    return str(info.value)


# The life of a job


def finish(folder):
    with folder.result() as temporary:
        Path(temporary).write_text("result", encoding="utf-8")


def test_vectors_stay_until_out_has_its_name(out, partial):
    interrupt(out)
    assert "out.partial was left by an interrupted" in error_of(JobFolder, out, SETTINGS)
    with JobFolder(out, SETTINGS, resume=True) as folder:
        assert save(folder, "c") == 2
        with folder.result() as temporary:
            Path(temporary).touch()
            assert partial.exists() and not out.exists()
    assert out.exists() and not partial.exists()


def test_force_discards_the_vectors_and_replaces_out(out, partial):
    interrupt(out)
    out.write_text("old", encoding="utf-8")
    with JobFolder(out, SETTINGS, force=True) as folder:
        assert save(folder) == 0
        assert out.read_text(encoding="utf-8") == "old"
        finish(folder)
    assert out.read_text(encoding="utf-8") == "result" and not partial.exists()


def test_a_job_without_vectors_leaves_nothing(out, partial):
    with pytest.raises(SystemError), JobFolder(out, SETTINGS):
        raise SystemError
    assert not partial.exists()


@pytest.mark.parametrize("names", [["job.json", "lock", "journal"], ["lock"], []])
def test_what_was_left_at_the_very_end_is_removed(out, partial, names):
    interrupt(out)
    for path in partial.iterdir():
        if path.name not in names:
            path.unlink()
    remove_job(out, SETTINGS)
    remove_job(out, SETTINGS)
    assert not partial.exists()


def test_a_complete_result_does_not_remove_the_vectors_of_another_job(out, partial):
    interrupt(out)
    remove_job(out, SETTINGS | {"layers": 0})
    with JobFolder(out, SETTINGS, resume=True) as folder:
        assert save(folder) == 1


def test_another_job(out):
    interrupt(out)
    other = {"model": "xyz", "layers": 0, "files": {"a.txt": "4 lines"}}
    assert (
        "out.partial holds vectors of another job: files.a.txt is '3 lines' there, '4 lines' now; "
        "layers is 'top' there, 0 now; model is 'abc' there, 'xyz' now."
    ) in error_of(JobFolder, out, other, resume=True)
    with JobFolder(out, other, force=True) as folder:
        assert save(folder) == 0


def test_out_that_appears_is_not_overwritten(out, partial):
    interrupt(out)
    with JobFolder(out, SETTINGS, resume=True) as folder:
        out.write_text("mine", encoding="utf-8")
        with pytest.raises(InputError, match=r"out exists .* vectors stay in .*out\.partial"):
            finish(folder)
    assert out.read_text(encoding="utf-8") == "mine" and partial.exists()


def test_names_are_checked_before_the_work(out):
    out.touch()
    assert "out' would be overwritten: force allows it." in error_of(
        check_output, out, resume=False, force=False
    )
    check_output(out, resume=False, force=True)


# Other processes


def test_two_jobs_do_not_write_the_same(out):
    pytest.importorskip("fcntl")
    with JobFolder(out, SETTINGS) as folder:
        save(folder, "a")
        for choice in ({"resume": True}, {"force": True}):
            assert "is writing there; wait until it ends" in error_of(
                JobFolder, out, SETTINGS, **choice
            )
        assert save(folder, "b") == 2


# Files of others


FOREIGN = {
    "the user's folder": lambda partial: (partial.mkdir(), (partial / "my.txt").write_text("mine")),
    "another record": lambda partial: (partial.mkdir(), (partial / "job.json").write_text("{}")),
    "a damaged record": lambda partial: (
        partial.mkdir(),
        (partial / "job.json").write_text('{"program": "bilm embed", "version": 4, "settings": 1}'),
    ),
    "a record that is a list": lambda partial: (
        partial.mkdir(),
        (partial / "job.json").write_text("[]"),
    ),
    "a file": lambda partial: partial.write_text("mine"),
    "a link to a folder": lambda partial: (
        (partial.parent / "mine").mkdir(),
        (partial.parent / "mine" / "my.txt").write_text("mine"),
        partial.symlink_to(partial.parent / "mine"),
    ),
}


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("name", FOREIGN)
def test_nothing_is_removed_that_is_not_ours(tmp_path, out, partial, name):
    FOREIGN[name](partial)
    before = contents(tmp_path)
    for choice in ({}, {"resume": True}, {"force": True}):
        for function in (JobFolder, lambda out, _, **choice: check_output(out, **choice)):
            settings = {"resume": False, "force": False} | choice
            with pytest.raises(InputError, match=r"out\.partial"):
                function(out, SETTINGS, **settings)
    assert contents(tmp_path) == before and (partial.is_symlink() == ("link to" in name))


def test_a_file_of_the_user_stays(out, partial):
    interrupt(out)
    (partial / "notes.txt").write_text("mine", encoding="utf-8")
    with JobFolder(out, SETTINGS, resume=True) as folder:
        finish(folder)
    assert os.listdir(partial) == ["notes.txt"]


# Vectors


def vectors_of(n, start=0):
    return np.arange(start, start + 2 * n, dtype=np.float32).reshape(n, 2)


ODD = ["a b c", "", "tab\tand\0zero", "x\u2028y \ud7ff", '"quoted" \\ {}']


def test_any_text_comes_back(tmp_path):
    for numbers in (range(3), range(3, 5)):
        with SavedVectors(str(tmp_path), "float32", becomes_result=False) as saved:
            assert saved.n_sentences == numbers[0]
            for k in numbers:
                saved.add(Sentence(k, ODD[k], f"key {k}"), vectors_of(len(ODD[k].split()), k))
    with SavedVectors(str(tmp_path), "float32", becomes_result=False) as saved:
        for k, (sentence, vectors) in enumerate(saved):
            assert sentence == Sentence(k, ODD[k], f"key {k}")
            np.testing.assert_array_equal(vectors[()], vectors_of(len(ODD[k].split()), k))
        assert k == 4


def test_an_error_loses_nothing_that_was_added(tmp_path):
    with (
        pytest.raises(SystemError),
        SavedVectors(str(tmp_path), "float32", becomes_result=False) as saved,
    ):
        saved.add(Sentence(0, "a b c", "key"), vectors_of(3))
        array = saved.new_array((100, 2))  # of a long sentence, which is lost
        array[..., 10:20, :] = np.ones((10, 2), np.float32)
        raise SystemError
    with SavedVectors(str(tmp_path), "float32", becomes_result=False) as saved:
        ((sentence, vectors),) = saved
        assert sentence == Sentence(0, "a b c", "key")
        np.testing.assert_array_equal(vectors[()], vectors_of(3))


@pytest.mark.parametrize("becomes_result", [False, True])
def test_an_interrupt_leaves_no_half_added_sentence(tmp_path, monkeypatch, becomes_result):
    settings = {"dtype": "float32", "becomes_result": becomes_result}
    create = h5py.Group.create_dataset

    def interrupted(group, name, *args, **more):
        dataset = create(group, name, *args, **more)
        if name in ("second", "vectors/1"):
            raise KeyboardInterrupt
        return dataset

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(h5py.Group, "create_dataset", interrupted)
        with SavedVectors(str(tmp_path), **settings) as saved:
            saved.add(Sentence(0, "a", "first"), vectors_of(1))
            saved.save()
            saved.add(Sentence(1, "b", "second"), vectors_of(1))
    with SavedVectors(str(tmp_path), **settings) as saved:
        assert saved.n_sentences == 1
        saved.add(Sentence(1, "b", "second"), vectors_of(1, 5))
    name = "second" if becomes_result else "vectors/1"
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        np.testing.assert_array_equal(file[name][()], vectors_of(1, 5))
