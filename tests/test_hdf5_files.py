"""HDF5 files: data of other files is rejected, and a journal keeps what was committed."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

from bilm import ELMo, Predictor
from bilm.cli import main
from bilm.core.errors import InputError
from bilm.files.hdf5 import open_hdf5, read_numbers, read_words, shapes_in
from bilm.files.weights import open_weights
from tests.small_models import write_small_model

BIAS = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"
OWN = "must be stored in the file itself"


def by_external_storage(file, name, shape, dtype, other):
    external = [(str(other), 0, h5py.h5f.UNLIMITED)]
    file.create_dataset(name, shape, dtype, external=external)


def by_virtual_dataset(file, name, shape, dtype, other):
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(str(other), "a", shape, dtype)
    file.create_virtual_dataset(name, layout)


def by_external_link(file, name, shape, dtype, other):
    file[name] = h5py.ExternalLink(str(other), "/a")


def by_soft_link_through_external(file, name, shape, dtype, other):
    file["elsewhere"] = h5py.ExternalLink(str(other), "/")
    file[name] = h5py.SoftLink("/elsewhere/a")


REACHES = (by_external_storage, by_virtual_dataset, by_external_link, by_soft_link_through_external)


@pytest.fixture
def other(tmp_path):
    """A FIFO that must not be opened: reading it would hang the test."""
    os.mkfifo(tmp_path / "other")
    return tmp_path / "other"


@pytest.mark.parametrize("reach", REACHES)
def test_weights_from_another_file(tmp_path, other, reach, capsys):
    """SECURITY.md: HDF5 files do not reach other files."""
    model = write_small_model(tmp_path / "model", "as_published")
    with h5py.File(model.files[1], "a") as file:
        shape = file[BIAS].shape
        del file[BIAS]
        reach(file, BIAS, shape, "f4", other)
    with pytest.raises(InputError, match=rf"weights\.hdf5: (elsewhere|{BIAS}) {OWN}"):
        ELMo.from_pretrained(model.files)
    assert main(["info", str(model.folder)]) == 1
    assert OWN in capsys.readouterr().err


@pytest.mark.parametrize("reach", REACHES)
def test_words_and_softmax_from_another_file(tmp_path, other, reach):
    model = write_small_model(tmp_path / "model", "as_published")
    with h5py.File(model.files[1], "a") as file:
        file["softmax/b"] = np.zeros(3, np.float32)
        file["softmax/W"] = np.zeros((3, 8), np.float32)
        reach(file, "vocabulary/words", (3,), "S5", other)
    with pytest.raises(InputError, match=OWN):
        Predictor.from_pretrained(model.files)


def test_a_link_within_the_file_is_not_followed(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["group/a"] = [1.5]
        file["b"] = h5py.SoftLink("/group/a")
        file["c"] = file["group/a"]
    with open_hdf5(tmp_path / "a.hdf5") as file:
        assert shapes_in(file) == {"group/a": (1,), "c": (1,)}
        np.testing.assert_array_equal(read_numbers(file, "c"), np.float32([1.5]))
    with pytest.raises(InputError, match=f"b {OWN}"), open_hdf5(tmp_path / "a.hdf5") as file:
        read_numbers(file, "b")


KINDS = {"integer": np.zeros(3, int), "words": np.array(["1.5", "2", "3"], h5py.string_dtype())}


@pytest.mark.parametrize("kind", KINDS)
def test_other_types_than_floating_point_numbers(tmp_path, kind):
    value = KINDS[kind]
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("a", data=value, dtype=value.dtype)
    message = r"a\.hdf5: a must hold floating-point"
    with pytest.raises(InputError, match=message), open_hdf5(tmp_path / "a.hdf5") as file:
        read_numbers(file, "a")


@pytest.mark.parametrize("number", [np.nan, 1e300])
@pytest.mark.parametrize("kind", ["as_published", "words"])
def test_numbers_that_are_not_finite(tmp_path, number, kind):
    """SECURITY.md: NaN and infinity are errors.

    In weights of character and word models; 1e300 overflows float32.
    """
    model = write_small_model(tmp_path, kind, ["<S>", "</S>", "<UNK>"])
    name = "char_embed" if kind == "as_published" else "embedding"
    with h5py.File(model.files[1], "a") as file:
        value = file[name][()].astype(np.float64)
        value[3, 1] = number
        del file[name]
        file[name] = value
    message = rf"{name} must be finite in float32, got {number} at \(3, 1\)"
    with pytest.raises(InputError, match=message.replace("1e+300", r"1e\+300")):
        ELMo.from_pretrained(tmp_path)


def test_words_of_both_lengths(tmp_path):
    words = [f"word{n}" for n in range(1000)]
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("any", data=[*words, "wörd"], dtype=h5py.string_dtype())
        file["fixed"] = np.array([word.encode() for word in words])
    with open_hdf5(tmp_path / "a.hdf5") as file:
        assert read_words(file, "any") == [*words, "wörd"]
        assert read_words(file, "fixed") == words


def test_words_of_another_type(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("w", (3,), "f4")
    with pytest.raises(InputError, match="w must"), open_hdf5(tmp_path / "a.hdf5") as file:
        read_words(file, "w")


def test_dictionaries_from_another_file(tmp_path, other):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["tokens"] = h5py.ExternalLink(str(other), "/")
    with pytest.raises(InputError, match=f"tokens {OWN}"), open_weights(tmp_path / "a.hdf5"):
        pytest.fail("the block is not entered")


def test_a_file_that_another_process_writes(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["w"] = np.zeros(3)
    with open(tmp_path / "a.hdf5", "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with pytest.raises(InputError, match=r"a\.hdf5: locked by another process"):
            open_hdf5(tmp_path / "a.hdf5").__enter__()


@pytest.mark.parametrize("content, what", [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    (b"<html>", "a web page"), (b"", "an empty file"), (b"other", "not an HDF5 file, or damaged"),
])  # fmt: skip
def test_other_content_than_hdf5(tmp_path, content, what):
    (tmp_path / "a.hdf5").write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.hdf5: .*{what}"), open_weights(tmp_path / "a.hdf5"):
        pytest.fail("the block is not entered")


def test_a_product_that_overflows(tmp_path):
    rows, scales = np.array([[1, 2], [127, 0]], np.int8), np.array([1, 3e38], np.float32)
    with h5py.File(tmp_path / "w.hdf5", "w") as file:
        file["softmax/W"], file["softmax/W_scales"] = rows, scales
    message = r"softmax/W must be finite in float32, got inf at \(1, 0\)"
    with open_weights(tmp_path / "w.hdf5") as weights, pytest.raises(InputError, match=message):
        weights.numbers("softmax/W")
