"""The tensors of a file that `torch.save` wrote, read without torch and without running anything.

Such a file is a pickle, and a pickle is a program that names functions to call. The reader here
knows the few instructions and names that tensors are rebuilt by, and puts functions of its own in
their place; whatever else a file asks for is refused before it is looked up. Two formats are known:

- that of torch 1.6 and later, a ZIP file: NAME/data.pkl is the pickle, NAME/data/KEY the numbers
  of a storage;
- that of earlier versions: a magic number, a version and the sizes of the machine's numbers, each
  a pickle; the pickle itself; the list of the storages' keys, a pickle; and of each storage its
  length as an int64 and its numbers.

A storage is named in the pickle by a persistent id ('storage', type, key, device, length, ...); a
tensor is a view of it: offset, shape and strides, counted in numbers.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import IO, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, shown
from bilm.files.archives import open_archive
from bilm.files.reading import PathLike, require_file

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
# Bytes of a file's pickles, which hold names and sizes and no numbers: a few hundred a tensor.
_MOST_PICKLED = 2**20
_MOST_AXES = 8
# What a pickle that is damaged, or made to do harm, can make its reader raise.
_BROKEN = (
    EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError,
    RecursionError, MemoryError, struct.error,
)  # fmt: skip


class _StorageType(NamedTuple):
    """Stands for a class of storages; it cannot be called."""

    dtype: str


class _Storage(NamedTuple):
    key: str
    dtype: str
    length: int

    @property
    def n_bytes(self) -> int:
        return self.length * np.dtype(self.dtype).itemsize


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
    return dict(read(path))


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except _BROKEN as error:
        detail = str(error) or type(error).__name__
        raise InputError(
            f"{path}: not a file of torch's, or cut off or damaged: {detail}"
        ) from error


Tensors = Iterator[tuple[str, np.ndarray]]


def _read_zip(path: str) -> Tensors:
    with open_archive(path, "torch file") as archive, _explained(path):
        pickles = [name for name in archive.names if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InputError(f"{path}: a ZIP file that torch did not write: no data.pkl in it.")
        folder = pickles[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in archive.names and archive.read(order) != b"little":
            raise InputError(f"{path}: the numbers are big-endian; little-endian is expected.")
        named = _tensors_of(path, io.BytesIO(archive.read(pickles[0], _MOST_PICKLED)))

        def numbers(storage: _Storage) -> np.ndarray:
            name = f"{folder}data/{storage.key}"
            if archive.size(name) != storage.n_bytes:
                raise EOFError(f"storage {storage.key} has not {storage.length} numbers")
            return np.frombuffer(archive.read(name, storage.n_bytes), storage.dtype)

        yield from _arrays(path, named, numbers)


def _read_legacy(path: str) -> Tensors:
    with open(path, "rb") as file, _explained(path):
        pickles = io.BytesIO(file.read(_MOST_PICKLED))
        if _unpickled(path, pickles) != _MAGIC or _unpickled(path, pickles) != _PROTOCOL:
            raise InputError(f"{path}: not a file of torch's: it does not begin as one.")
        machine = _unpickled(path, pickles)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise InputError(f"{path}: the numbers are big-endian; little-endian is expected.")
        named = _tensors_of(path, pickles)
        storages = {tensor.storage.key: tensor.storage for tensor in named.values()}
        starts = {}
        keys = _unpickled(path, pickles)
        file.seek(pickles.tell())
        for key in keys:
            (length,) = struct.unpack("<q", file.read(8))
            storage = storages.get(key) if isinstance(key, str) else None
            if storage is None or length != storage.length:
                raise InputError(
                    f"{path}: storage {shown(key)}: its length or its type is not known."
                )
            starts[key] = file.tell()
            file.seek(storage.n_bytes, os.SEEK_CUR)

        def numbers(storage: _Storage) -> np.ndarray:
            if starts[storage.key] + storage.n_bytes > os.path.getsize(path):
                raise EOFError(f"storage {storage.key} has not {storage.length} numbers")
            file.seek(starts[storage.key])
            return np.fromfile(file, storage.dtype, storage.length)

        yield from _arrays(path, named, numbers)


def _tensors_of(path: str, file: IO[bytes]) -> dict[str, _Tensor]:
    """The tensors that a state dict's pickle describes."""
    named = _unpickled(path, file)
    if not isinstance(named, dict) or not named:
        raise InputError(f"{path}: a dict of tensors is expected, not {type(named).__name__}.")
    for name, tensor in named.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            raise InputError(
                f"{path}: {shown(name)}: a tensor is expected, not {type(tensor).__name__}."
            )
    return dict(named)


def _arrays(
    path: str, named: dict[str, _Tensor], numbers: Callable[[_Storage], np.ndarray]
) -> Tensors:
    """The numbers of tensors, once it is known that they lie within their storages, of which each
    is read once; together they have no more numbers than these."""
    by_storage: dict[_Storage, list[tuple[str, _Tensor]]] = {}
    for name, tensor in named.items():
        by_storage.setdefault(tensor.storage, []).append((name, tensor))
    for storage, tensors in by_storage.items():
        values = numbers(storage)
        n_left = storage.length
        for name, tensor in tensors:
            sizes = zip(tensor.shape, tensor.strides, strict=True)
            last = tensor.offset + sum((n - 1) * stride for n, stride in sizes)
            n_left -= math.prod(tensor.shape)
            if 0 in tensor.shape or last >= storage.length or n_left < 0:
                raise InputError(f"{path}: {name}: a tensor that is empty, or beyond its storage.")
            steps = [stride * values.itemsize for stride in tensor.strides]
            view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, steps)
            with np.errstate(over="ignore"):
                array = np.array(view, np.float32, order="C")
            if not np.isfinite(array).all():
                raise InputError(f"{path}: {name}: finite numbers of float32 are expected.")
            yield name, array


# Instructions of a pickle that put their argument on the stack as it is.
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
    "UNICODE BINUNICODE SHORT_BINUNICODE".split()
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _unpickled(path: str, file: IO[bytes]) -> Any:
    """What the next pickle of a file describes: numbers, texts, lists, dicts by texts, tensors.

    Python's own reader takes memory for whatever a pickle says, hashes what it holds, and ends the
    program where that is nested deep. This one knows the instructions that state dicts consist of.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    n_given = 0

    def marked() -> list[Any]:
        start = marks.pop()
        values = stack[start:]
        del stack[start:]
        return values

    for instruction, argument, _ in pickletools.genops(file):
        name = instruction.name
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name == "MARK":
            marks.append(len(stack))
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name in ("TUPLE", "LIST"):
            values = marked()
            stack.append(tuple(values) if name == "TUPLE" else values)
        elif name in ("DICT", "SETITEM", "SETITEMS"):
            values = marked() if name != "SETITEM" else [stack.pop(-2), stack.pop()]
            stack += [{}] if name == "DICT" else []
            stack[-1].update(_named(zip(values[::2], values[1::2], strict=True)))
        elif name in ("APPEND", "APPENDS"):
            values = [stack.pop()] if name == "APPEND" else marked()
            stack[-1].extend(values)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            names = [stack.pop(-2), stack.pop()] if argument is None else argument.split(" ", 1)
            stack.append(_stand_in(path, *names))
        elif name == "BINPERSID":
            stack.append(_storage(path, stack.pop()))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            # What the memo holds can be given over and over.
            n_given += len(arguments) + sum(len(v) for v in arguments if isinstance(v, Sized))
            if n_given > _MOST_PICKLED:
                raise ValueError("the pickle makes more than it can hold")
            stack.append(function(*arguments))
        elif name == "BUILD":
            stack.pop()  # attributes of a dict, such as its version
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the pickle has an instruction {name}")
    raise EOFError("the pickle has no end")


def _named(pairs: Iterable[Any] = ()) -> dict[str, Any]:
    """A dict of pairs whose first one is text; that of another kind need not have a hash."""
    named = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise ValueError(f"a dict with the key {shown(key)}; text is expected")
        named[key] = value
    return named


def _stand_in(path: str, module: Any, name: Any) -> Any:
    """What replaces a name in a pickle: never the thing itself."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a name that is no text")
    if (module, name) not in _ADMITTED:
        raise InputError(
            f"{path}: the pickle asks for {module}.{name}; only what makes tensors of floats is "
            "read, and nothing of it was run."
        )
    return _ADMITTED[module, name]


def _storage(path: str, pid: Any) -> _Storage:
    """The storage of a persistent id."""
    if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
        raise InputError(f"{path}: a storage is expected, not {shown(pid)}.")
    kind, key, length = pid[1], pid[2], pid[4]
    if len(pid) > 5 and pid[5] is not None:
        raise InputError(f"{path}: storage {shown(key)} is a view of another one.")
    if not isinstance(kind, _StorageType) or not isinstance(key, str):
        raise InputError(f"{path}: a storage of floats is expected, not {shown(pid)}.")
    return _Storage(key, kind.dtype, _count(length))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"a whole number from 0 is expected, not {shown(value)}")
    return value


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage) or len(shape) != len(strides) or len(shape) > _MOST_AXES:
        raise ValueError("a tensor without a storage or a shape")
    sizes, steps = tuple(map(_count, shape)), tuple(map(_count, strides))
    return _Tensor(storage, _count(offset), sizes, steps)


# Names in a pickle, and what comes in their place.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _named,
    ("torch", "FloatStorage"): _StorageType("<f4"),
    ("torch", "DoubleStorage"): _StorageType("<f8"),
    ("torch", "HalfStorage"): _StorageType("<f2"),
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
}
