"""ZIP files that are damaged or name other folders; what is left."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
import zipfile

import pytest

from bilm.core.errors import InputError
from bilm.files.archives import extract, open_archive
from bilm.files.model_files import open_model
from bilm.use.many_langs import convert_many_langs


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


def test_members_before_the_beginning_of_the_file(tmp_path):
    path = write_zip(tmp_path / "m.zip", options__json="{}", model__hdf5=b"")
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\5\6") + 16  # where the directory begins, which is where it was
    start = int.from_bytes(content[place : place + 4], "little")
    content[place : place + 4] = (start + 1000).to_bytes(4, "little")
    path.write_bytes(content)
    with (
        pytest.raises(InputError, match=r"m\.zip: the ZIP file cannot be read: "),
        open_model(path),
    ):
        pass


def test_a_member_that_is_missing(tmp_path):
    path = write_zip(tmp_path / "m.zip", a=b"a")
    with (
        pytest.raises(InputError, match=r"m\.zip: There is no item named 'b' in the archive"),
        open_archive(path, "model") as archive,
    ):
        archive.read("b")


@pytest.mark.parametrize("name", ["../../out.json", "/etc/out.json", "a/../../out.json"])
def test_members_stay_in_the_folder(tmp_path, name):
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"{}")
    (tmp_path / "in").mkdir()
    with open_archive(path, "model") as archive:
        assert extract(archive, name, str(tmp_path / "in")) == str(tmp_path / "in" / "out.json")
    assert os.listdir(tmp_path / "in") == ["out.json"]


def test_a_file_that_lies_about_a_size(tmp_path, temporary_folder):
    path = write_zip(
        tmp_path / "m.zip", zipfile.ZIP_STORED, options__json=b"{}", model__hdf5=b"x" * 99
    )
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\x01\x02")  # of the directory's last entry, model.hdf5
    data[place + 24 : place + 28] = struct.pack("<I", 10)
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"m\.zip: "), open_model(path):
        pass


def test_a_full_disk(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "m.zip", a=b"x" * 99)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    message = rf"No space left on device: '{tmp_path}/a'"
    with pytest.raises(OSError, match=message), open_archive(path, "model") as archive:
        extract(archive, "a", str(tmp_path))


def test_of_a_model_to_convert_its_own_files_are_unpacked(tmp_path, temporary_folder):
    members = {"config__json": b"{}", "encoder__pkl": b"", "other__bin": b"other"}
    path = write_zip(tmp_path / "m.zip", **members)
    made = (tmp_path / "w.hdf5", tmp_path / "o.json")
    with pytest.raises(InputError, match=r"m\.zip: config\.json: config_path is missing"):
        convert_many_langs(path, *made)
