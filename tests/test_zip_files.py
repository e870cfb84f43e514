"""ZIP files that are damaged or name paths outside their folder, and clean-up after them."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

import pytest

from bilm.core.errors import InputError
from bilm.files.model_files import extracted
from bilm.use.many_langs import convert_many_langs


def write_zip(path, method=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


@pytest.fixture
def temporary_folder(tmp_path, monkeypatch):
    """The folder for temporary files, which must be empty after the test."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.parametrize("name", ["../../out.json", "/etc/out.json", "a/../../out.json"])
def test_members_stay_in_the_folder(tmp_path, temporary_folder, name):
    """SECURITY.md: members of ZIP files stay inside their folder."""
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"{}")
    with extracted(path, "model") as folder:
        assert [path.name for path in Path(folder).rglob("*") if path.is_file()] == ["out.json"]
    assert not list(tmp_path.rglob("out.json"))


def test_a_zip_file_to_convert_that_lacks_sizes(tmp_path, temporary_folder):
    members = {"config__json": b"{}", "encoder__pkl": b"", "other__bin": b"other"}
    path = write_zip(tmp_path / "m.zip", **members)
    made = (tmp_path / "w.hdf5", tmp_path / "o.json")
    with pytest.raises(InputError, match=r"m\.zip: config\.json: config_path is missing"):
        convert_many_langs(path, *made)
