"""Datasets are those that h5py itself would write."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from bilm.jobs.vector_files import write_array

ARRAYS = {
    "0": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "a group/with ä": np.float16([[1.5, 2.5]]),
    "1": np.zeros((3, 0, 4), np.float32),
    "reversed": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
}


def test_values_names_and_properties(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as mine, h5py.File(tmp_path / "b.hdf5", "w") as theirs:
        for name, array in ARRAYS.items():
            write_array(mine, name, array)
            theirs.create_dataset(name, data=array)
        for name, array in ARRAYS.items():
            assert mine[name].dtype == theirs[name].dtype == array.dtype
            assert mine[name].shape == array.shape
            np.testing.assert_array_equal(mine[name][()], array)
            assert mine[name].chunks is None and mine[name].fillvalue == 0
        assert list(mine) == list(theirs)


def test_a_name_that_is_taken(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        write_array(file, "0", ARRAYS["0"])
        with pytest.raises(ValueError, match="already exists"):
            write_array(file, "0", ARRAYS["1"])
