"""Reading tensors from files of `torch.save`, without torch and without executing anything.

Such a file is a pickle, which names functions to call. Our unpickler replaces seven allowed names
by its own functions; any other name is an error. There are two formats:

- torch 1.6 and later: a ZIP file. NAME/data.pkl is the pickle, NAME/data/KEY holds the numbers of a
  storage.
- earlier versions: a magic number, a version and the byte order, one pickle each; the pickle
  itself; a pickle of the list of storage keys; then for each storage its length as an int64 and
  its numbers.

The pickle refers to a storage by a persistent id ("storage", type, key, device, length, ...). A
tensor is a view of a storage: offset, shape and strides, in numbers.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, shown
from bilm.files.archives import open_archive
from bilm.files.reading import PathLike, require_file

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2"}
# Exceptions of the unpickler and NumPy for damaged files.
_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError,
    OverflowError, RecursionError, MemoryError, ImportError, struct.error,
)  # fmt: skip


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
    """The tensors of a state dict, as float32 arrays by name."""
    path = require_file(path, "torch file")
    return _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        detail = str(error) or type(error).__name__
        raise InputError(f"{path}: not a torch file, or damaged: {detail}") from error


def _read_zip(path: str) -> dict[str, np.ndarray]:
    with open_archive(path, "torch file") as archive, _explained(path):
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InputError(f"{path}: not a torch file: it must hold one data.pkl.")
        folder = pickles[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"
        _require_little_endian(
            path, order not in archive.namelist() or archive.read(order) == b"little"
        )
        tensors = _tensors_of(path, io.BytesIO(archive.read(pickles[0])))
        return _arrays(path, tensors, lambda storage: archive.read(f"{folder}data/{storage.key}"))


def _read_legacy(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as file, _explained(path):
        if _unpickled(path, file) != _MAGIC or _unpickled(path, file) != _PROTOCOL:
            raise InputError(f"{path}: not a torch file: it must begin with torch's magic number.")
        machine = _unpickled(path, file)
        _require_little_endian(path, machine["little_endian"] is True)
        tensors = _tensors_of(path, file)
        storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        numbers = {}
        for key in _unpickled(path, file):
            (length,) = struct.unpack("<q", file.read(8))
            if length != storages[key].length:
                raise ValueError(f"storage {shown(key)} has {length} numbers")
            numbers[key] = file.read(length * np.dtype(storages[key].dtype).itemsize)
        return _arrays(path, tensors, lambda storage: numbers[storage.key])


def _require_little_endian(path: str, is_little: bool) -> None:
    if not is_little:
        raise InputError(f"{path}: the numbers must be little-endian, got big-endian ones.")


def _tensors_of(path: str, file: IO[bytes]) -> dict[str, _Tensor]:
    """The tensors that a state dict's pickle describes."""
    tensors = _unpickled(path, file)
    if not isinstance(tensors, dict) or not tensors:
        raise InputError(
            f"{path}: a torch file must hold a dict of tensors, got {type(tensors).__name__}."
        )
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise InputError(f"{path}: {shown(name)} must be a tensor, got {shown(tensor)}.")
    return dict(tensors)


def _arrays(
    path: str, tensors: dict[str, _Tensor], numbers: Callable[[_Storage], bytes]
) -> dict[str, np.ndarray]:
    """Tensors as arrays. NumPy checks that each view lies within the bytes of its storage."""
    arrays = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        item = np.dtype(storage.dtype).itemsize
        view: np.ndarray = np.ndarray(
            shape, storage.dtype, numbers(storage), offset * item, [item * step for step in strides]
        )
        with np.errstate(over="ignore"):
            arrays[name] = view.astype(np.float32, order="C")
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{path}: {name}: the numbers must be finite in float32.")
    return arrays


def _unpickled(path: str, file: IO[bytes]) -> Any:
    """The next pickle of a file, which must consist of plain values and allowed names."""
    return _Unpickler(path, file).load()


class _Unpickler(pickle.Unpickler):
    """Replaces the allowed names by methods and strings that a pickle cannot change."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        super().__init__(file)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor"): self._tensor,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): self._parameter,
            **{("torch", kind): dtype for kind, dtype in _DTYPES.items()},
        }
        if (module, name) not in allowed:
            raise InputError(
                f"{self._path}: the pickle must hold tensors of floats only, got "
                f"{module}.{name}; nothing in the file was executed."
            )
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, length, *view = pid
        if kind != "storage" or dtype not in _DTYPES.values() or any(view):
            raise InputError(f"{self._path}: a storage must be of floats, got {shown(pid)}.")
        return _Storage(key, dtype, length)

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
        if not isinstance(storage, _Storage):
            raise ValueError(f"a tensor must have a storage, got {shown(storage)}")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))

    def _parameter(self, tensor: Any, *_: Any) -> Any:
        return tensor
