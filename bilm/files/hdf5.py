"""HDF5 files: of those that others may have made only what is in the file itself is read, and what
is written is read back before anyone relies on it.

HDF5 lets a file name other files, whose bytes would then pass for its own, and declare arrays
that nobody ever wrote. Whatever reads HDF5 gets its datasets here.
"""

from __future__ import annotations

import contextlib
import math
import os
import zlib
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, most_unpacked, require_file

# Words in chunks that are read at once, before their sizes are looked at.
_WORDS_AT_ONCE = 16
# Arrays of a new file that are read back.
_READ_BACK = 256
# Bytes of what HDF5 writes for itself; it does not read numbers again.
_MOST_KEPT = 2**20


@contextlib.contextmanager
def open_hdf5(path: PathLike, what: str = "weights file") -> Iterator[h5py.File]:
    """Open an HDF5 file for the reading that the block does.

    Raises:
        FileNotFoundError: there is no such file; the message calls it `what`.
        InputError: the file is not HDF5, is cut off, or what the block reads is damaged.
    """
    path = require_file(path, what)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except InputError:
        raise
    # Damage shows in whatever the library trips over first.
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        detail = ", ".join(map(str, error.args))
        raise InputError(f"{path}: not an HDF5 file, or cut off or damaged: {detail}") from error


def dataset_shapes(path: PathLike) -> dict[str, tuple[int, ...]]:
    """The shape of every dataset in an HDF5 file; links to names within it are not followed.

    Raises:
        FileNotFoundError, InputError: see `open_hdf5`; anything in it is from another file.
    """
    with open_hdf5(path) as file:
        return {name: dataset.shape or () for name, dataset in _datasets(file)}


def count_stored(path: PathLike) -> int:
    """How many numbers the datasets of a file can have, by the bytes that are there; errors as for
    `dataset_shapes`."""
    with open_hdf5(path) as file:
        found = sum(min(_sizes(dataset)) // _item_bytes(dataset) for _, dataset in _datasets(file))
        return min(found, most_unpacked(file.id.get_filesize()))


def _datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    names: list[bytes] = []
    file.id.links.visit(names.append)  # within the visit no error may be raised
    for name in names:
        shown = os.fsdecode(name)  # not all names are UTF-8
        link = file.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise _not_its_own(file, shown, _as_link(link))
        item = file[name] if isinstance(link, h5py.HardLink) else None
        if isinstance(item, h5py.Dataset):
            _require_own(file, shown, item)
            yield shown, item


def own_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """A dataset whose data is in the file itself.

    Raises:
        KeyError: there is no such dataset.
        InputError: it is reached by a link, or its data is elsewhere.
    """
    item: Any = file
    for step in name.split("/"):
        link = item.get(step, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            raise KeyError(f"there is no dataset {name}")
        if not isinstance(link, h5py.HardLink):
            raise _not_its_own(file, name, _as_link(link))
        item = item[step]
    if not isinstance(item, h5py.Dataset):
        raise KeyError(f"{name} is no dataset")
    _require_own(file, name, item)
    return item


def _require_own(file: h5py.File, name: str, dataset: h5py.Dataset) -> None:
    if dataset.external:
        raise _not_its_own(file, name, f"data in the file {dataset.external[0][0]!r}")
    if dataset.is_virtual:
        raise _not_its_own(file, name, "a virtual dataset, whose data is in other ones")


def _as_link(link: h5py.SoftLink | h5py.ExternalLink) -> str:
    of_file = f" of the file {link.filename!r}" if isinstance(link, h5py.ExternalLink) else ""
    return f"a link to {link.path!r}{of_file}"


def _not_its_own(file: h5py.File, name: str, found: str) -> InputError:
    return InputError(f"{file.filename}: {name}: data in the file itself is expected, not {found}.")


def require_stored(file: h5py.File, name: str, dataset: h5py.Dataset) -> None:
    """Check that what a dataset declares is there, before memory is taken for it.

    Raises:
        InputError: the file has fewer bytes of it than its shape says.
    """
    declared, room = _sizes(dataset)
    stored, most = dataset.id.get_storage_size(), file.id.get_filesize()
    if declared > room or stored > most:
        raise InputError(
            f"{file.filename}: {name}: shape {dataset.shape} is {declared:,} bytes, but the file "
            f"has {min(stored, most):,} bytes of it."
        )


def _sizes(dataset: h5py.Dataset) -> tuple[int, int]:
    """The bytes of a dataset as its shape says, and the most that the file can have of it."""
    declared = math.prod(dataset.shape or (0,)) * _item_bytes(dataset)
    stored = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    if dataset.id.get_create_plist().get_nfilters():
        stored = most_unpacked(stored)
    return declared, stored


def _item_bytes(dataset: h5py.Dataset) -> int:
    return max(1, int(dataset.id.get_type().get_size()))


def read_numbers(file: h5py.File, name: str) -> np.ndarray:
    """A dataset of floating-point numbers as float32.

    Raises:
        KeyError: there is no such dataset.
        InputError: its data is not in the file, it is of another kind, or a number is not finite
            in float32.
    """
    dataset = own_dataset(file, name)
    require_floats(file, name, dataset)
    require_stored(file, name, dataset)
    with np.errstate(over="ignore"):
        values = np.asarray(dataset[...].astype(np.float32, copy=False))
    finite = np.isfinite(values)
    if not finite.all():
        place = tuple(np.argwhere(~finite)[0].tolist())
        raise InputError(
            f"{file.filename}: {name}: finite numbers of float32 are expected, not "
            f"{dataset[place]} at {place}."
        )
    return values


def require_floats(file: h5py.File, name: str, dataset: h5py.Dataset) -> None:
    """Check that a dataset holds floating-point numbers, all of them; errors as above."""
    if dataset.dtype.kind != "f" or dataset.shape is None:
        kind = "an empty dataset" if dataset.shape is None else _kind(dataset)
        raise InputError(
            f"{file.filename}: {name}: floating-point numbers are expected, not {kind}."
        )
    require_stored(file, name, dataset)


def read_integers(file: h5py.File, name: str) -> np.ndarray:
    """A dataset of whole numbers, of one axis, as int64; errors as above."""
    dataset = own_dataset(file, name)
    is_enum = h5py.check_enum_dtype(dataset.dtype) is not None
    if dataset.dtype.kind not in "iu" or is_enum or dataset.ndim != 1:
        raise InputError(
            f"{file.filename}: {name}: whole numbers of one axis are expected, not "
            f"{_kind(dataset)} of shape {dataset.shape}."
        )
    require_stored(file, name, dataset)
    return np.asarray(dataset[...].astype(np.int64, copy=False))


def read_words(file: h5py.File, name: str) -> list[str]:
    """A dataset of text, of one axis; errors as above."""
    dataset = own_dataset(file, name)
    text = h5py.check_string_dtype(dataset.dtype)
    if text is None or dataset.ndim != 1:
        raise InputError(
            f"{file.filename}: {name}: text of one axis is expected, not {_kind(dataset)} of "
            f"shape {dataset.shape}."
        )
    require_stored(file, name, dataset)
    if text.length is not None:
        return dataset.asstr()[...].tolist()
    # Words that differ in length are elsewhere in the file, and each may be the same long one.
    n_bytes, most = _bytes_of_words(dataset), file.id.get_filesize()
    at_once = _WORDS_AT_ONCE if n_bytes is None else len(dataset)
    words: list[str] = []
    n_bytes = n_bytes or 0
    while n_bytes <= most and len(words) < len(dataset):
        part = dataset.asstr()[len(words) : len(words) + at_once].tolist()
        words += part
        n_bytes += sum(map(len, part)) if at_once < len(dataset) else 0
    if n_bytes > most:
        raise InputError(
            f"{file.filename}: {name}: its words are longer than the file, of {most:,} bytes."
        )
    return words


def _bytes_of_words(dataset: h5py.Dataset) -> int | None:
    """The bytes of words of any length, which the entry of each begins with; None for words in
    chunks, whose entries are not in one place."""
    place, stored = dataset.id.get_offset(), dataset.id.get_storage_size()
    if place is None or stored < 4 * len(dataset) or not len(dataset):
        return None
    entry = [("bytes", "<u4"), ("where", f"V{stored // len(dataset) - 4}")]
    entries = np.fromfile(dataset.file.filename, entry, len(dataset), offset=place)
    return int(entries["bytes"].sum(dtype=np.int64))


def _kind(dataset: h5py.Dataset) -> str:
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return "text"
    if h5py.check_enum_dtype(dataset.dtype) is not None:
        return "an enumeration"
    return str(dataset.dtype)


@contextlib.contextmanager
def writing_hdf5(path: PathLike) -> Iterator[h5py.File]:
    """A new HDF5 file for the writing that the block does, which is then compared with what is
    read back.

    Raises:
        OSError: the disk did not take it.
    """
    path = os.fspath(path)
    disk = _Disk(path)
    try:
        with h5py.File(disk, "w") as file:
            file.disk = disk
            yield file
            require_written(file)
            file.flush()
            written = _summary(file)
    finally:
        disk.close()
    with h5py.File(path, "r") as file:
        is_whole = _summary(file) == written
    if not is_whole:
        raise OSError(f"{path}: cannot be written: what is read back is not what was written.")


def require_written(file: h5py.File) -> None:
    """Raise the error of the disk that a file of `writing_hdf5` has met, if there was one: at the
    end of the block it comes by itself, which for much data is late."""
    disk = getattr(file, "disk", None)
    if disk is not None and disk.error is not None:
        raise disk.error


class _Disk:
    """A new file that takes all that HDF5 writes, also when the disk does not.

    HDF5 cannot give up a file: one that it cannot close, or of which it cannot read again what it
    wrote, ends the process, or is wrong without a word. So it is told that all is well: the first
    error is kept, and from then on what HDF5 may read again.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115
        self._position = self._end = 0
        self._since_error: list[tuple[int, bytes]] = []  # where it was to go, and what
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (self._end if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        data = bytearray(size)
        self.readinto(data)
        return bytes(data)

    def readinto(self, buffer: Any) -> int:
        start, n = self._position, len(buffer)
        data = bytearray(n)
        with self._kept_error():
            self._file.seek(start)
            self._file.readinto(data)
        for first, part in self._since_error:
            begin, end = max(start, first), min(start + n, first + len(part))
            if begin < end:
                data[begin - start : end - start] = part[begin - first : end - first]
        buffer[:] = data
        self._position += n
        return n

    def write(self, data: Any) -> int:
        start, n, n_written = self._position, len(data), 0
        with self._kept_error(), memoryview(data) as view:
            self._file.seek(start)
            while n_written < n:
                n_written += self._file.write(view[n_written:])
        if self.error is not None and n <= _MOST_KEPT:
            self._since_error.append((start, bytes(data)))
        self._position = start + n
        self._end = max(self._end, self._position)
        return n

    def truncate(self, size: int) -> int:
        with self._kept_error():
            self._file.truncate(size)
        self._end = size
        return size

    def flush(self) -> None:
        """There is nothing to flush."""

    def close(self) -> None:
        """Close the file, and raise the error if there was one."""
        with self._kept_error():
            self._file.close()
        if self.error is not None:
            raise self.error

    @contextlib.contextmanager
    def _kept_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error


def _summary(file: h5py.File) -> int:
    """A checksum of all names, and of the shapes and numbers of up to 256 arrays, evenly chosen,
    the first and the last among them; of an array above a megabyte, of two of its rows. To open
    each of a million would take as long as to write them."""
    names: list[str] = []
    file.visit(names.append)
    value = zlib.crc32(repr(names).encode())
    chosen = np.unique(np.linspace(0, max(len(names) - 1, 0), _READ_BACK).astype(int))
    for name in (names[k] for k in chosen if names):
        item: Any = file[name]
        value = zlib.crc32(repr(getattr(item, "shape", None)).encode(), value)
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu" and item.size:
            parts = [item[()]] if item.nbytes <= 2**20 else [item[0], item[-1]]
            for part in parts:
                value = zlib.crc32(np.asarray(part).tobytes(), value)
    return value
