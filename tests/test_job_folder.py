"""The folder of an unfinished job: locked, resumed by the same job; other folders stay."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm import InputError
from bilm.data.sentences import Sentence
from bilm.files.writing import atomic_write
from bilm.vectors.job_folder import JobFolder, check_output
from bilm.vectors.job_pieces import JobPieces

SETTINGS = {"model": "abc", "layers": "top", "files": {"a.txt": "3 lines"}}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def partial(tmp_path):
    return tmp_path / "out.partial"


def write_piece(folder, name="a", content="x"):
    with atomic_write(os.path.join(folder.pieces_folder, name)) as path:
        Path(path).write_text(content, encoding="utf-8")


def is_complete(out):
    return check_output(out, resume=True, force=False)


def names(folder):
    return sorted(os.listdir(folder.pieces_folder))


def interrupt(out, settings=SETTINGS, **choices):
    """Run a job that crashes after one piece."""
    with pytest.raises(SystemError), JobFolder(out, settings, **choices) as folder:
        write_piece(folder)
        raise SystemError


def error_of(function, *arguments, **settings):
    with pytest.raises(InputError) as info:
        function(*arguments, **settings)
    return str(info.value)


# The life of a job


def finish(folder):
    with folder.result() as temporary:
        Path(temporary).write_text("result", encoding="utf-8")


def test_pieces_stay_until_out_has_its_name(out, partial):
    interrupt(out)
    assert "out.partial was left by an interrupted" in error_of(JobFolder, out, SETTINGS)
    with JobFolder(out, SETTINGS, resume=True) as folder:
        assert names(folder) == ["a"] and not folder.is_over
        write_piece(folder, "b")
        assert names(folder) == ["a", "b"]
        with folder.result() as temporary:
            Path(temporary).touch()
            assert partial.exists() and not out.exists()
    assert not partial.exists() and is_complete(out)


def test_pieces_become_a_folder(out, partial):
    interrupt(out)
    with JobFolder(out, SETTINGS, resume=True) as folder:
        folder.rename_pieces()
    assert os.listdir(out) == ["a"] and not partial.exists()
    interrupt(out, force=True)
    assert os.listdir(out) == ["a"]  # kept until the new result is complete
    with JobFolder(out, SETTINGS, resume=True) as folder:  # the job remembers `force`
        write_piece(folder, "b")
        folder.rename_pieces()
    assert sorted(os.listdir(out)) == ["a", "b"] and not partial.exists()


def test_a_job_that_was_killed_when_its_result_was_in_place(out, partial, monkeypatch):
    def killed(*_, **__):
        raise SystemError

    interrupt(out)
    with (
        monkeypatch.context() as patch,
        pytest.raises(SystemError),
        JobFolder(out, SETTINGS, resume=True) as folder,
    ):
        patch.setattr(shutil, "rmtree", killed)
        finish(folder)
    assert out.exists() and partial.exists() and not is_complete(out)
    os.rename(out, out.with_name("moved"))
    with JobFolder(out, SETTINGS, resume=True) as folder:
        assert not folder.is_over  # the result was moved, so it is not finished
        write_piece(folder)
    out.write_text("mine", encoding="utf-8")  # nor is it the result
    assert "out exists and would be overwritten" in error_of(JobFolder, out, SETTINGS, resume=True)
    os.replace(out, out.with_name("mine"))
    os.rename(out.with_name("moved"), out)
    with JobFolder(out, SETTINGS, resume=True) as folder:
        assert folder.is_over
    assert out.exists() and not partial.exists()


def test_with_force_only_the_file_that_was_there_is_replaced(out, partial):
    out.write_text("old", encoding="utf-8")
    interrupt(out, force=True)
    out.write_text("mine, put there later", encoding="utf-8")
    assert "out exists and would be overwritten" in error_of(JobFolder, out, SETTINGS, resume=True)
    out.unlink()
    with JobFolder(out, SETTINGS, resume=True) as folder:
        finish(folder)
    assert out.read_text(encoding="utf-8") == "result" and not partial.exists()


def test_a_job_without_a_piece_leaves_nothing(out, partial):
    with pytest.raises(SystemError), JobFolder(out, SETTINGS):
        raise SystemError
    assert not partial.exists()


def test_what_was_left_at_the_very_end_is_removed(out, partial):
    out.touch()
    for names in (["lock"], []):
        partial.mkdir()
        for name in names:
            (partial / name).touch()
        assert is_complete(out) and not partial.exists()


def test_another_job(out):
    interrupt(out)
    other = {"model": "xyz", "layers": 0, "files": {"a.txt": "4 lines", "b.txt": "1 lines"}}
    assert (
        "out.partial holds vectors of another job: files.a.txt is '3 lines' there, '4 lines' now; "
        "files.b.txt is None there, '1 lines' now; layers is 'top' there, 0 now; model is 'abc' "
        "there, 'xyz' now."
    ) in error_of(JobFolder, out, other, resume=True)
    fewer, more = {**SETTINGS, "files": {}}, {**SETTINGS, "files": {"a.txt": "3 lines", "c": "0"}}
    assert "a.txt is '3 lines' there, None now." in error_of(JobFolder, out, fewer, resume=True)
    assert "c is None there, '0' now." in error_of(JobFolder, out, more, resume=True)
    with JobFolder(out, other, force=True) as folder:
        assert names(folder) == []


def test_a_worker_left_over_from_another_job_writes_nowhere(out):
    interrupt(out)
    with JobFolder(out, SETTINGS, resume=True) as folder:
        old = folder.pieces_folder
    with JobFolder(out, {**SETTINGS, "layers": 1}, force=True) as folder:
        assert folder.pieces_folder != old and not os.path.exists(old)
        with pytest.raises(FileNotFoundError), atomic_write(os.path.join(old, "b")):
            pass


def test_out_that_appears_is_not_overwritten(out, partial):
    interrupt(out)
    out.write_text("mine", encoding="utf-8")
    message = "out exists and would be overwritten; finished vectors stay in "
    assert message in error_of(JobFolder, out, SETTINGS, resume=True)
    out.unlink()
    with JobFolder(out, SETTINGS, resume=True) as folder:
        out.write_text("mine", encoding="utf-8")
        with pytest.raises(InputError, match=message):
            finish(folder)
    assert out.read_text(encoding="utf-8") == "mine"


# Other processes


def test_two_jobs_do_not_write_the_same(out):
    pytest.importorskip("fcntl")
    with JobFolder(out, SETTINGS) as folder:
        write_piece(folder)
        for choice in ({"resume": True}, {"force": True}):
            assert "is writing there; wait until it ends" in error_of(
                JobFolder, out, SETTINGS, **choice
            )
        assert names(folder) == ["a"]


# Files of others


FOREIGN = {
    "the user's folder": lambda partial: (partial.mkdir(), (partial / "my.txt").write_text("mine")),
    "another record": lambda partial: (partial.mkdir(), (partial / "job.json").write_text("{}")),
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


# Pieces of sentences

SHAPE = (None, 2)


def vectors_of(n, start=0):
    return np.arange(start, start + 2 * n, dtype=np.float32).reshape(n, 2)


ODD = ["a b c", "", "tab\tand\0zero", "x\u2028y \ud7ff", '"quoted" \\ {}']


def write_sentences(folder, **settings):
    with JobPieces(str(folder), SHAPE, "float32", **settings) as pieces:
        for number, text in enumerate(ODD):
            pieces.add(Sentence(number, text), vectors_of(len(text.split()), number))
    return pieces


def check_sentences(pieces):
    assert pieces.n_sentences == len(ODD)
    for number, (sentence, vectors) in enumerate(pieces):
        assert sentence == Sentence(number, ODD[number])
        np.testing.assert_array_equal(vectors, vectors_of(len(ODD[number].split()), number))


@pytest.mark.parametrize("piece_bytes", [1, 600, 10**6])
def test_any_text_comes_back(tmp_path, piece_bytes):
    check_sentences(write_sentences(tmp_path, piece_bytes=piece_bytes))
    assert len(os.listdir(tmp_path)) == {1: 5, 600: 2, 10**6: 1}[piece_bytes]
    check_sentences(JobPieces(str(tmp_path), SHAPE, "float32"))


def test_an_error_loses_nothing_that_was_added(tmp_path):
    with pytest.raises(SystemError), JobPieces(str(tmp_path), SHAPE, "float32") as pieces:
        pieces.add(Sentence(0, "a b c", "key"), vectors_of(3))
        raise SystemError
    (only,) = JobPieces(str(tmp_path), SHAPE, "float32")
    assert only.sentence == Sentence(0, "a b c", "key")
    np.testing.assert_array_equal(only.vectors, vectors_of(3))


def test_a_damaged_piece_is_named(tmp_path):
    write_sentences(tmp_path, piece_bytes=1)
    path = tmp_path / "000002.hdf5"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(InputError, match=r"000002\.hdf5: not an HDF5 file, or damaged"):
        JobPieces(str(tmp_path), SHAPE, "float32")


def test_a_number_that_is_not_finite_is_damage(tmp_path):
    pieces = write_sentences(tmp_path, piece_bytes=1)
    with h5py.File(tmp_path / "000000.hdf5", "r+") as file:
        file["vectors"][1, 0] = np.nan
    with pytest.raises(InputError, match=r"000000\.hdf5: .*finite"):
        list(pieces)
