"""Reading tensors from files of `torch.save`, without torch and without executing anything.

Such a file is a pickle, which names functions to call. Our unpickler resolves seven allowed names
to harmless substitutes; any other name is an error.

- torch 1.6 and later write a ZIP file: NAME/data.pkl is the pickle, NAME/data/KEY holds the numbers
  of a storage.
- Earlier versions write pickles of a magic number, a version and the sizes of the machine's
  numbers, the pickle itself, a pickle of the list of storage keys, and for each storage its length
  as an int64 and its numbers.

The pickle refers to a storage by a persistent id ("storage", type, key, device, length, ...). A
tensor is a view of a storage: offset, shape and strides, in numbers.
"""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from typing import IO, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, shown
from bilm.files.reading import PathLike, require_file, substitute_for_a_file

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2"}


class _Tensor(NamedTuple):
    """A view of a storage, in numbers."""

    key: str  # of the storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_tensors(path: PathLike) -> dict[str, np.ndarray]:
    """The tensors of a state dict, as float32 arrays by name."""
    path = require_file(path, "torch file")
    try:
        return _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)
    except (InputError, OSError):
        raise
    except Exception as error:  # a damaged pickle may raise anything
        content = substitute_for_a_file(path) or f"damaged: {error!r}"
        raise InputError(f"{path}: not a torch file, or {content}") from error


def _read_zip(path: str) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (name,) = [name for name in members if name.endswith("/data.pkl")]
    start = f"{name.removesuffix('data.pkl')}data/"
    numbers = {name.removeprefix(start): content for name, content in members.items()}
    return _arrays(path, _read_tensors(path, io.BytesIO(members[name])), numbers)


def _read_legacy(path: str) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        if _unpickle(path, file) != _MAGIC or _unpickle(path, file) != _PROTOCOL:
            raise ValueError("it must begin with torch's magic number")
        _unpickle(path, file)  # sizes of the machine's numbers
        tensors = _read_tensors(path, file)
        itemsizes = {tensor.key: np.dtype(tensor.dtype).itemsize for tensor in tensors.values()}
        numbers = {}
        for key in _unpickle(path, file):
            (length,) = struct.unpack("<q", file.read(8))
            numbers[key] = file.read(length * itemsizes[key])
    return _arrays(path, tensors, numbers)


def _read_tensors(path: str, file: IO[bytes]) -> dict[str, _Tensor]:
    """The tensors that a state dict's pickle describes."""
    tensors = _unpickle(path, file)
    if not isinstance(tensors, dict) or not all(isinstance(t, _Tensor) for t in tensors.values()):
        raise InputError(f"{path} must hold a dict of tensors, got {shown(tensors)}.")
    return tensors


def _arrays(
    path: str, tensors: dict[str, _Tensor], numbers: dict[str, bytes]
) -> dict[str, np.ndarray]:
    """Tensors as arrays. NumPy checks that each view lies within the bytes of its storage."""
    arrays = {}
    for name, (key, dtype, offset, shape, strides) in tensors.items():
        item = np.dtype(dtype).itemsize
        steps = [item * step for step in strides]
        view: np.ndarray = np.ndarray(shape, dtype, numbers[key], offset * item, steps)
        with np.errstate(over="ignore"):
            arrays[name] = view.astype(np.float32, order="C")
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{path}: {name}: the numbers must be finite in float32.")
    return arrays


def _unpickle(path: str, file: IO[bytes]) -> Any:
    """The next pickle of a file, which must consist of plain values and allowed names."""
    return _Unpickler(path, file).load()


class _Unpickler(pickle.Unpickler):
    """Resolves the allowed names to `OrderedDict`, to its own methods, and to strings."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        super().__init__(file)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor"): self._tensor,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            **{("torch", kind): dtype for kind, dtype in _DTYPES.items()},
        }
        if (module, name) not in allowed:
            raise InputError(
                f"{self._path}: the pickle must hold tensors of floats only, got "
                f"{module}.{name}; nothing in the file was executed."
            )
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        _, dtype, key, _, _, *view = pid
        if dtype not in _DTYPES.values() or any(view):
            raise InputError(f"{self._path}: a storage must be of floats, got {shown(pid)}.")
        return key, dtype

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
        key, dtype = storage
        return _Tensor(key, dtype, offset, tuple(shape), tuple(strides))
