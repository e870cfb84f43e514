"""HDF5 files: reading data stored in the file itself, and writing that detects a full disk.

HDF5 files can refer to data in other files, which is not allowed here.
"""

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, require_file, substitute_for_a_file


@contextlib.contextmanager
def open_hdf5(path: PathLike) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading within the block."""
    path = require_file(path, "weights file")
    with damage_named(path), h5py.File(path, "r") as file:
        yield file


@contextlib.contextmanager
def damage_named(path: PathLike) -> Iterator[None]:
    """Convert the library's errors for damaged files to an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except BlockingIOError as error:
        raise InputError(f"{path}: locked by another process, which is writing it.") from error
    # The library documents no errors for damaged files.
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # not the file's content
            raise InputError(f"{path}: {os.strerror(error.errno)}.") from error
        if os.path.isfile(path) and (content := substitute_for_a_file(path)):
            raise InputError(f"{path}: must be an HDF5 file, got {content}.") from error
        detail = ", ".join(map(str, error.args))
        raise InputError(f"{path}: not an HDF5 file, or damaged: {detail}") from error


def shapes_in(file: h5py.File) -> dict[str, tuple[int, ...]]:
    """The shape of every dataset in an open file by name; soft links are not followed."""
    names: list[str] = []
    file.visit_links(names.append)  # the callback must not raise
    shapes = {}
    for name in names:
        if not isinstance(file.get(name, getlink=True), h5py.SoftLink):
            item = _internal_item(file, name)
            if isinstance(item, h5py.Dataset):
                shapes[name] = item.shape or ()
    return shapes


def internal_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """A dataset whose data is stored in the file itself."""
    item = _internal_item(file, name)
    if not isinstance(item, h5py.Dataset):
        raise KeyError(f"{name} must be a dataset, got a group")
    return item


def _internal_item(file: h5py.File, name: str) -> h5py.Group | h5py.Dataset:
    item: Any = file
    for step in name.split("/"):
        link = item.get(step, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            raise KeyError(f"the dataset {name} is missing")
        is_internal = isinstance(link, h5py.HardLink)
        item = item[step] if is_internal else None
        if isinstance(item, h5py.Dataset):
            is_internal = not item.external and not item.is_virtual
        if not is_internal:
            raise InputError(
                f"{file.filename}: {name} must be stored in the file itself, not in another file "
                "or under another name."
            )
    return item


def read_numbers(file: h5py.File, name: str) -> np.ndarray:
    """A dataset of floating-point numbers as float32."""
    dataset = internal_dataset(file, name)
    is_float = dataset.dtype.kind == "f" and dataset.shape is not None
    _require(is_float, file, name, dataset, "floating-point numbers")
    with np.errstate(over="ignore"):
        values = np.asarray(dataset[...].astype(np.float32, copy=False))
    return _finite(values, file, name, dataset)


def _finite(
    values: np.ndarray, file: h5py.File, name: str, stored: h5py.Dataset | np.ndarray
) -> np.ndarray:
    finite = np.isfinite(values)
    if not finite.all():
        index = tuple(np.argwhere(~finite)[0].tolist())
        raise InputError(
            f"{file.filename}: {name} must be finite in float32, got {stored[index]} at {index}."
        )
    return values


def read_scaled_rows(file: h5py.File, name: str, scales: str) -> np.ndarray:
    """A dataset of int8 (rows, columns) times the factor of each row in the dataset `scales`, as
    float32; errors as for `read_numbers`."""
    dataset, factors = internal_dataset(file, name), read_numbers(file, scales)
    _require(dataset.dtype == np.int8 and dataset.ndim == 2, file, name, dataset, "int8 rows")
    has_one_each = factors.shape == dataset.shape[:1]
    _require(
        has_one_each, file, scales, internal_dataset(file, scales), f"a number per row of {name}"
    )
    with np.errstate(over="ignore"):
        values = dataset[...] * factors[:, np.newaxis]
    return _finite(values, file, name, values)


def read_integers(file: h5py.File, name: str) -> np.ndarray:
    """A dataset of integers (n,) as int64; errors as for `read_numbers`."""
    dataset = internal_dataset(file, name)
    is_integer = dataset.dtype.kind in "iu" and dataset.ndim == 1
    _require(is_integer, file, name, dataset, "integers (n,)")
    return np.asarray(dataset[...].astype(np.int64, copy=False))


def read_words(file: h5py.File, name: str) -> list[str]:
    """A dataset of text (n,); errors as for `read_numbers`."""
    dataset = internal_dataset(file, name)
    is_text = h5py.check_string_dtype(dataset.dtype) is not None and dataset.ndim == 1
    _require(is_text, file, name, dataset, "text (n,)")
    return dataset.asstr()[...].tolist()


def _require(holds: bool, file: h5py.File, name: str, dataset: h5py.Dataset, rule: str) -> None:
    if not holds:
        raise InputError(
            f"{file.filename}: {name} must hold {rule}, got {dataset.dtype} of shape "
            f"{dataset.shape}."
        )


@contextlib.contextmanager
def writing_hdf5(path: PathLike) -> Iterator[h5py.File]:
    """A new HDF5 file for writing within the block."""
    disk = _Disk(os.fspath(path), "w+")
    try:
        with h5py.File(disk, "w") as file:
            yield file
            file.flush()
            disk.is_closing = True
    finally:
        disk.close()
        if disk.error is not None:
            raise disk.error


class _Disk(io.FileIO):
    """A new file whose first failed write raises an error, and whose later writes seem to succeed.

    If HDF5 cannot write its metadata when it closes a file, it ends the process. The caller raises
    `error` after the file is closed.
    """

    error: OSError | None = None
    is_closing = False

    @contextlib.contextmanager
    def _record_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error
            if not self.is_closing:
                raise

    def write(self, data: Any) -> int:
        if self.error is None:
            with self._record_error(), memoryview(data) as view:
                n_written = 0
                while n_written < len(view):
                    n_written += super().write(view[n_written:]) or 0
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        if self.error is None:
            with self._record_error():
                super().truncate(size)
        return size or 0

    def readinto(self, buffer: Any) -> int:
        n = super().readinto(buffer) or 0
        with memoryview(buffer) as view:  # the buffer of h5py 3.11 does not accept a slice of bytes
            view[n:] = bytes(len(view) - n)  # after an error some bytes are missing
        return len(buffer)
