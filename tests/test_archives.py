"""ZIP files and arrays that say they hold more than they do, or more than fits; what is left."""

from __future__ import annotations

import io
import json
import lzma
import os
import struct
import tempfile
import zipfile

import numpy as np
import pytest

from bilm.analysis import Occurrences
from bilm.core.errors import InputError
from bilm.files.archives import open_archive
from bilm.files.model_files import open_model
from bilm.use.many_langs import convert_many_langs

ZEROS = 2**25  # bytes, which are packed a thousand times


def write_zip(path, method=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


@pytest.fixture
def temporary_folder(tmp_path, monkeypatch):
    """Where temporary files go; nothing is to be left in it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.parametrize(
    ("method", "member"),
    [
        (zipfile.ZIP_DEFLATED, "model__hdf5"),
        (zipfile.ZIP_DEFLATED, "options__json"),
        (zipfile.ZIP_DEFLATED, "vocab__txt"),
        (zipfile.ZIP_BZIP2, "options__json"),
        (zipfile.ZIP_LZMA, "vocab__txt"),
    ],
)
def test_a_member_of_more_than_the_file_can_hold(tmp_path, temporary_folder, method, member):
    members = {"options__json": "{}", "model__hdf5": b"", "vocab__txt": b""}
    path = write_zip(tmp_path / "m.zip", method, **members | {member: bytes(ZEROS)})
    name, size = member.replace("__", "."), os.path.getsize(path)
    message = rf"m\.zip: {name}: 33,554,432 bytes, .* a file of {size:,} bytes may unpack to: unp"
    with pytest.raises(InputError, match=message), open_model(path):
        pass


def test_members_that_together_are_too_much(tmp_path):
    path = write_zip(tmp_path / "m.zip", a=bytes(3 * 10**6), b=bytes(3 * 10**6))
    with open_archive(path, "ZIP file") as archive:
        assert archive.read("a") == bytes(3 * 10**6)
        with pytest.raises(InputError, match=r"m\.zip: b: 3,000,000 bytes, which is more than"):
            archive.read("b")


def test_members_before_the_beginning_of_the_file(tmp_path):
    path = write_zip(tmp_path / "m.zip", options__json="{}", model__hdf5=b"")
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\5\6") + 16  # where the directory begins, which is where it was
    start = int.from_bytes(content[place : place + 4], "little")
    content[place : place + 4] = (start + 1000).to_bytes(4, "little")
    path.write_bytes(content + bytes(1000)[:0])
    with pytest.raises(InputError, match=r"m\.zip: a damaged ZIP file: "), open_model(path):
        pass


def test_compressed_text_that_is_compressed_again(tmp_path):
    """A thousandth of a thousandth would not be noticed by looking at each of them alone."""
    inner = lzma.compress(bytes(2**24), preset=0)
    twice = inner + bytes(2**24)
    path = write_zip(tmp_path / "m.zip", vocab__txt__xz=twice)
    with (
        open_archive(path, "model") as archive,
        pytest.raises(InputError, match=r"m\.zip: vocab\.txt\.xz: 16,\d\d\d,\d\d\d bytes, which"),
    ):
        archive.extract("vocab.txt.xz", str(tmp_path))


def test_a_member_read_whole_is_bounded(tmp_path):
    path = write_zip(tmp_path / "m.zip", a=bytes(1001))
    with open_archive(path, "model") as archive:
        with pytest.raises(InputError, match=r"m\.zip: a: at most 1,000 bytes are expected, not 1"):
            archive.read("a", 1000)
        with pytest.raises(InputError, match=r"m\.zip: there is no 'b' in it"):
            archive.read("b")


@pytest.mark.parametrize("declared", [10, 5000, 2**24, 0xFFFFFFF0])
def test_a_file_that_lies_about_a_size(tmp_path, temporary_folder, declared):
    path = write_zip(
        tmp_path / "m.zip", zipfile.ZIP_STORED, options__json=b"{}", model__hdf5=b"x" * 99
    )
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02")  # of the directory's last entry, model.hdf5
    data[place + 24 : place + 28] = struct.pack("<I", declared)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"m\.zip: "), open_model(path):
        pass


def test_a_disk_without_room(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "m.zip", options__json=b"{}", model__hdf5=b"x" * 99)
    full = type("Usage", (), {"free": 50})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: full)
    message = r"m\.zip: model\.hdf5: 99 bytes are needed to unpack it, and 50 are free in "
    with pytest.raises(InputError, match=message), open_model(path):
        pass


def test_of_a_model_to_convert_its_own_files_are_unpacked(tmp_path, temporary_folder):
    members = {"config__json": b"{}", "encoder__pkl": b"", "other__bin": bytes(ZEROS)}
    path = write_zip(tmp_path / "m.zip", **members)
    made = (tmp_path / "w.hdf5", tmp_path / "o.json")
    with pytest.raises(InputError, match=r"m\.zip: config\.json: config_path is missing"):
        convert_many_langs(path, *made)
    path = write_zip(tmp_path / "m.zip", **members | {"encoder__pkl": bytes(ZEROS)})
    with pytest.raises(InputError, match=r"m\.zip: encoder\.pkl: 33,554,432 bytes, which is more"):
        convert_many_langs(path, *made)


# Arrays of NumPy


def array(values=None, *, shape=(1,), descr="<f4", data=b""):
    """A file of an array; of one that is only declared the header, and `data`."""
    file = io.BytesIO()
    if values is not None:
        np.lib.format.write_array(file, values)
    else:
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(file, header)
    return file.getvalue() + data


TEXT = json.dumps({"sentences": [["a", "b"]], "labels": None, "about": {}}).encode()
ARRAYS = {
    "vectors__npy": array(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(1, 2, 3))),
    "positions__npy": array(np.array([[0, 1]])),
    "text__npy": array(np.frombuffer(TEXT, np.uint8)),
}


def test_arrays_of_both_orders_and_headers(tmp_path):
    vectors = array(shape=(1, 2, 3), data=np.arange(6, dtype=np.float32).tobytes())
    for changes in ({}, {"vectors__npy": vectors}):
        found = Occurrences.load(write_zip(tmp_path / "a.npz", **ARRAYS | changes))
        np.testing.assert_array_equal(found.vectors, [[[0, 1, 2], [3, 4, 5]]])
        assert found.word(0) == "b" and found.words.tolist() == ["b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vectors", array(shape=(10**9, 3, 1000)), r"float32 of shape .* is not what is there"),
        ("vectors", array(shape=(1, 2, 3), data=bytes(25)), "is not what is there"),
        ("vectors", array(shape=(1,), descr="|O", data=bytes(8)), "object of shape .1,. is not wh"),
        ("vectors", array(shape=(10**18,), descr="<U0"), ""),
        ("vectors", array(shape=(-1, -2, 3), data=bytes(24)), ""),
        ("vectors", b"\x93NUMPY\x02\x00\xf0\xff\xff\xff", ""),
        ("vectors", b"\x93NUMPY\x09\x00\x10\x00", ""),
        ("text", array(np.frombuffer(b"[" * 10**5, np.uint8)), "text: JSON that is nested too dee"),
        ("text", array(np.frombuffer(b'"\xff"', np.uint8)), "text: not UTF-8: "),
        ("text", array(shape=(10**11,), descr="|u1"), "is not what is there"),
    ],
)
def test_arrays_that_are_declared_only(tmp_path, name, content, message):
    path = write_zip(tmp_path / "a.npz", **ARRAYS | {f"{name}__npy": content})
    with pytest.raises(InputError, match=rf"a\.npz: not a file of occurrences: .*{message}"):
        Occurrences.load(path)


def test_arrays_that_are_packed_too_well(tmp_path):
    path = write_zip(tmp_path / "a.npz", **ARRAYS | {"vectors__npy": bytes(ZEROS)})
    with pytest.raises(
        InputError, match=r"a\.npz: .*vectors\.npy: 33,554,\d* bytes, which is more"
    ):
        Occurrences.load(path)
