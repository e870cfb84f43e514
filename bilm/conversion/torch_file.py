"""The tensors of a file that `torch.save` wrote, read without torch and without running anything.

Such a file is a pickle, and a pickle names functions to call. The reader here lets it name only
the few that rebuild tensors, and puts functions of its own in their place; whatever else a file
asks for is refused before it is looked up. Two formats are known:

- that of torch 1.6 and later, a ZIP file: NAME/data.pkl is the pickle, NAME/data/KEY the numbers
  of a storage;
- that of earlier versions: a magic number, a version and the sizes of the machine's numbers, each
  a pickle; the pickle itself; the list of the storages' keys, a pickle; and of each storage its
  length as an int64 and its numbers.

A storage is named in the pickle by a persistent id ('storage', type, key, device, length, ...); a
tensor is a view of it: offset, shape and strides, counted in numbers.
"""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

from bilm.errors import InputError
from bilm.files import PathLike, require_file

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
# What a pickle that is damaged, or made to do harm, can make the unpickler raise.
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError,
    OverflowError, MemoryError, RecursionError, ImportError, UnicodeDecodeError, struct.error,
)  # fmt: skip


class _StorageType(NamedTuple):
    """Stands for a class of storages; it cannot be called."""

    dtype: str


class _Storage(NamedTuple):
    key: str
    dtype: str
    length: int


class _Tensor(NamedTuple):
    """A view of a storage, in numbers."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_tensors(path: PathLike) -> dict[str, np.ndarray]:
    """The tensors of a state dict, as float32 arrays by their names.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is not a file of torch's, is cut off, holds something other than a dict of
            tensors, or asks for anything but tensors to be made.
    """
    path = require_file(path, "torch file")
    read = _read_zip if zipfile.is_zipfile(path) else _read_legacy
    try:
        return read(path)
    except InputError:
        raise
    except (*_BROKEN, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        detail = str(error) or type(error).__name__
        raise InputError(
            f"{path}: not a file of torch's, or cut off or damaged: {detail}"
        ) from error


def _read_zip(path: str) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        pickles = [name for name in names if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InputError(f"{path}: a ZIP file that torch did not write: no data.pkl in it.")
        folder = pickles[0].removesuffix("data.pkl")
        if f"{folder}byteorder" in names and archive.read(f"{folder}byteorder") != b"little":
            raise InputError(f"{path}: the numbers are big-endian; little-endian is expected.")
        with archive.open(pickles[0]) as file:
            named = _tensors_of(path, file)

        def numbers(storage: _Storage) -> np.ndarray:
            return np.frombuffer(archive.read(f"{folder}data/{storage.key}"), storage.dtype)

        return {name: _array(path, name, tensor, numbers) for name, tensor in named.items()}


def _read_legacy(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        if _Unpickler(path, file).load() != _MAGIC or _Unpickler(path, file).load() != _PROTOCOL:
            raise InputError(f"{path}: not a file of torch's: it does not begin as one.")
        machine = _Unpickler(path, file).load()
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise InputError(f"{path}: the numbers are big-endian; little-endian is expected.")
        named = _tensors_of(path, file)
        storages = {tensor.storage.key: tensor.storage for tensor in named.values()}
        starts = {}
        for key in _Unpickler(path, file).load():
            (length,) = struct.unpack("<q", file.read(8))
            storage = storages.get(key)
            if storage is None or length != storage.length:
                raise InputError(f"{path}: storage {key!r}: its length or its type is not known.")
            starts[key] = file.tell()
            file.seek(length * np.dtype(storage.dtype).itemsize, os.SEEK_CUR)

        def numbers(storage: _Storage) -> np.ndarray:
            file.seek(starts[storage.key])
            return np.fromfile(file, storage.dtype, storage.length)

        return {name: _array(path, name, tensor, numbers) for name, tensor in named.items()}


def _tensors_of(path: str, file: IO[bytes]) -> dict[str, _Tensor]:
    """The tensors that a state dict's pickle describes."""
    named = _Unpickler(path, file).load()
    if not isinstance(named, dict) or not named:
        raise InputError(f"{path}: a dict of tensors is expected, not {type(named).__name__}.")
    for name, tensor in named.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise InputError(
                f"{path}: {name!r}: a tensor is expected, not {type(tensor).__name__}."
            )
    return dict(named)


def _array(
    path: str, name: str, tensor: _Tensor, numbers: Callable[[_Storage], np.ndarray]
) -> np.ndarray:
    """The numbers of a tensor, once it is known that they lie within its storage."""
    values = numbers(tensor.storage)
    if len(values) != tensor.storage.length:
        raise EOFError(f"{name} ends too early")
    last = tensor.offset + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)
    )
    if 0 in tensor.shape or last >= len(values):
        raise InputError(f"{path}: {name}: a tensor that is empty, or beyond its storage.")
    steps = [stride * values.itemsize for stride in tensor.strides]
    view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, steps)
    return np.array(view, np.float32, order="C")


class _Unpickler(pickle.Unpickler):
    """Loads what consists of numbers, texts, lists, dicts and tensors, and nothing else."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        super().__init__(file, encoding="utf-8")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """What replaces a name in a pickle: never the thing itself."""
        if (module, name) not in _ADMITTED:
            raise InputError(
                f"{self._path}: the pickle asks for {module}.{name}; only what makes tensors of "
                "floats is read, and nothing of it was run."
            )
        return _ADMITTED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """The storage of a persistent id."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise InputError(f"{self._path}: a storage is expected, not {pid!r}.")
        kind, key, length = pid[1], pid[2], pid[4]
        if len(pid) > 5 and pid[5] is not None:
            raise InputError(f"{self._path}: storage {key!r} is a view of another one.")
        if not isinstance(kind, _StorageType) or not isinstance(key, str):
            raise InputError(f"{self._path}: a storage of floats is expected, not {pid!r}.")
        return _Storage(key, kind.dtype, _count(length))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"a whole number from 0 is expected, not {value!r}")
    return value


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage) or len(shape) != len(strides):
        raise ValueError("a tensor without a storage or a shape")
    sizes, steps = tuple(map(_count, shape)), tuple(map(_count, strides))
    return _Tensor(storage, _count(offset), sizes, steps)


# Names in a pickle, and what comes in their place.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "FloatStorage"): _StorageType("<f4"),
    ("torch", "DoubleStorage"): _StorageType("<f8"),
    ("torch", "HalfStorage"): _StorageType("<f2"),
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
}
