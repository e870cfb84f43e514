"""Many small arrays into an HDF5 file, at less cost than h5py's `create_dataset`."""

from __future__ import annotations

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

_NAMES = h5p.create(h5p.LINK_CREATE)
_NAMES.set_char_encoding(h5t.CSET_UTF8)
_NAMES.set_create_intermediate_group(True)
_DATASETS = h5p.create(h5p.DATASET_CREATE)
_DATASETS.set_obj_track_times(False)  # the same vectors give the same file


def write_array(file: h5py.File, name: str, array: np.ndarray) -> None:
    """Write a dataset, as `file.create_dataset(name, data=array)` does.

    Args:
        file: open for writing.
        name: of the dataset; "/" stands between the names of groups.
        array: of numbers; its type is the dataset's.

    Raises:
        ValueError: there is a dataset of that name.
    """
    array = np.ascontiguousarray(array)
    space = h5s.create_simple(array.shape)
    kind = h5t.py_create(array.dtype)
    dataset = h5d.create(file.id, name.encode(), kind, space, _DATASETS, _NAMES)
    dataset.write(h5s.ALL, h5s.ALL, array)
