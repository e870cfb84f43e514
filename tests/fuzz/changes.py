"""Changes to files such as damaged disks, other programs and hostile people make."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import lzma
import pickletools
import random
import re
import struct
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

Place = tuple[Any, ...]

STRANGE = (
    "", " ", "\t", "\r", "\0", "\x1b[2J\x1b]0;title\x07", "\u202etxt", "\u2028", "\x85", "\ufeff",
    "<S>", "</S>", "<UNK>", "!!!MAXTERMID", "nan", "-inf", "1e999", "-1", "0x10", "1_000", "٣",
    "9" * 30, "9" * 5000, "x" * 3000, "猫", "e\u0301" * 40, "..", "../../etc/passwd", "/", "a/b",
    "[a]", "[a] [b]", "a\tb", "{}", "[]", "null",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 2**15, 2**16, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1,
    2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
# Types and shapes as headers of NumPy's files have them.
_DTYPES = (
    "<f8", "<f2", ">f4", "<i4", "<i8", "|O", "<c8", "|b1", "<U9", "|S4", "|V4", "<M8[s]", "f4,f4",
    "<f4,", "é", "", "[('a', '<f4')]",
)  # fmt: skip
_SHAPES = (
    "()", "(0,)", "(1,)", "(-1,)", "(4, 2)", "(2000000000,)", f"({2**62},)", "5", "(1.5,)",
    "(True,)", "([],)", f"({'9' * 5000},)", f"{'(' * 300}{')' * 300}", "(1, 0, 3)",
)  # fmt: skip
_TRAINING = (
    b"\xff", "[1]", "null", "{", "[" * 10_000, 5, [1.0], '{"steps": "a"}', '{"steps": -1}',
    '{"steps": NaN}', f'{{"steps": {"9" * 5000}}}',
)  # fmt: skip
# Stand for what `json.dumps` does not write.
_DEEP, _DIGITS = "\u0001deep\u0001", "\u0001digits\u0001"
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 1.5, -0.0, 1e39, 1e-320, float("nan"), float("inf"), 2**31,
    2**63, 2**64, 10**9, 10**30, 10**400, [], {}, [[]], [None], [1, 2, 3], {"a": 1}, _DEEP, _DIGITS,
    "\ud800", *STRANGE,
)  # fmt: skip


class Secrets(NamedTuple):
    """Files that no case may read."""

    raw: str
    hdf5: str  # whose dataset "secret" has the same bytes
    fifo: str


class Changes:
    """Changes contents, drawing how from `draw`; `secrets` are named where a file names others."""

    def __init__(self, draw: random.Random, secrets: Secrets) -> None:
        self.draw, self.secrets = draw, secrets

    def change(self, content: bytes, kind: str) -> bytes:
        """The content of a file of a kind (a method of this class), changed."""
        for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
            if kind != "raw" and self.draw.random() < 0.75:
                # What is damaged already may be of its kind no more.
                with contextlib.suppress(Exception):
                    content = getattr(self, kind)(content)
                    continue
            content = self.raw(content)
        return content

    def _some(self, length: int) -> slice:
        """A short piece of a sequence, more often than not near one of its ends."""
        draw = self.draw
        n = min(length, draw.choice((1, 1, 2, 4, 8, 64, 512, 4096)))
        start = draw.randint(0, length - n)
        if draw.random() < 0.5:
            near = min(draw.randint(0, 256), length - n)
            start = draw.choice((near, length - n - near))
        return slice(start, start + n)

    def raw(self, content: bytes) -> bytes:
        """Bits, bytes, numbers and pieces."""
        draw, piece = self.draw, self._some(len(content))
        what, start = content[piece], piece.start
        before, after = content[:start], content[piece.stop :]
        kind = draw.randrange(9)
        if not content or kind == 0:
            return before + draw.choice(STRANGE).encode("utf-8", "replace") + what + after
        if kind == 1:
            bit = 1 << draw.randrange(8)
            return before + bytes([what[0] ^ bit]) + content[start + 1 :]
        if kind == 2:
            return before + bytes([draw.choice((0, 1, 0x7F, 0x80, 0xFF))]) + content[start + 1 :]
        if kind == 3:
            return before
        if kind == 4:
            return before + after
        if kind == 5:
            return before + what * draw.choice((2, 2, 3, 50)) + after
        if kind == 6:
            return before + bytes(len(what)) + after
        if kind == 7:
            other = content[self._some(len(content))]
            return before + other + after[max(0, len(other) - len(what)) :]
        size = draw.choice((1, 2, 4, 8))
        number = (draw.choice((*NUMBERS, len(content), start)) % 2 ** (8 * size)).to_bytes(
            size, draw.choice(("little", "big"))
        )
        return before + number + content[start + size :]

    # Text

    def text(self, content: bytes) -> bytes:
        """Lines, and the fields within them."""
        draw, lines = self.draw, content.decode("utf-8").split("\n")
        k = draw.randrange(len(lines))
        kind = draw.randrange(10)
        if kind == 0:
            del lines[k]
        elif kind == 1:
            lines.insert(draw.randrange(len(lines)), lines[k])
        elif kind == 2:
            lines.insert(k, draw.choice(STRANGE))
        elif kind == 3:
            draw.shuffle(lines)
        elif kind == 4:
            lines[k] = lines[k].replace(*draw.choice(((" ", "\t"), ("\t", " "), (" ", ""))))
        elif kind == 5:
            lines[k] = lines[k] * draw.choice((2, 300))
        elif kind == 6:
            return draw.choice(("\r\n", "\r", "\x0b", "\n\n")).join(lines).encode()
        elif kind == 7:
            return draw.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\0")) + content
        else:
            fields = re.split(r"([ \t])", lines[k])
            f = draw.randrange(len(fields))
            fields[f] = draw.choice((*STRANGE, fields[draw.randrange(len(fields))]))
            lines[k] = "".join(fields)
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def gz(self, content: bytes) -> bytes:
        """Text within gzip, as one member or several."""
        changed = self.text(gzip.decompress(content))
        parts = [changed[:9], changed[9:]] if self.draw.random() < 0.2 else [changed]
        return b"".join(gzip.compress(part, mtime=0) for part in parts)

    def xz(self, content: bytes) -> bytes:
        """Text within xz."""
        return lzma.compress(self.text(lzma.decompress(content)), preset=1)

    # JSON

    def json(self, content: bytes) -> bytes:
        """Values and keys of an object, at any depth."""
        draw, value = self.draw, [json.loads(content)]
        places = list(_places(value))
        *above, key = draw.choice(places)
        part = _at(value, above)
        kind = draw.randrange(8)
        if kind == 0:
            del part[key]
        elif kind == 1:
            part[key] = _at(value, draw.choice(places))  # the value of another one
        elif kind == 2:
            part[key] = [part[key]]
        elif kind == 3 and isinstance(part, dict):
            part[draw.choice(STRANGE)] = part.pop(key)
        elif kind == 4 and isinstance(part, dict):
            part[draw.choice((*STRANGE, "\ud800", key + " "))] = draw.choice(_VALUES)
        elif kind == 5 and isinstance(part[key], int | float):
            part[key] = part[key] * draw.choice((-1, 0.5, 2, 10**6)) + draw.choice((0, 1, -1))
        else:
            part[key] = draw.choice((*_VALUES, self.secrets.raw, self.secrets.fifo))
        text = json.dumps(value[0] if value else None, ensure_ascii=draw.random() < 0.5)
        text = text.replace(json.dumps(_DEEP), "[" * 10_000 + "]" * 10_000)
        text = text.replace(json.dumps(_DIGITS), "9" * 5000)
        if kind == 6:  # a key twice
            braces = [found.end() for found in re.finditer(r"{(?=\")", text)]
            place = draw.choice(braces)
            text = f'{text[:place]}"dim": 1, "dim": 2, {text[place:]}'
        return text.encode("utf-8", "surrogatepass")

    # Archives

    def zip(self, content: bytes) -> bytes:
        """Members, their contents, names and ways of packing."""
        draw = self.draw
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [[info.filename, archive.read(info)] for info in archive.infolist()]
        member = draw.choice(members)
        kind, packing = draw.randrange(12), zipfile.ZIP_STORED
        if kind == 0:
            members.remove(member)
        elif kind == 1:
            members.append(list(draw.choice(members)))
        elif kind == 2:
            other = draw.choice(members)
            member[1], other[1] = other[1], member[1]
        elif kind == 3:
            names = ("..", "../" + member[0], "/" + member[0], member[0] + "/", "n" * 300 + ".hdf5",
                     f"\x1b[2J{member[0]}", self.secrets.raw, "a/" * 200 + member[0])  # fmt: skip
            member[0] = draw.choice(names)
        elif kind == 4:
            packing = draw.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        else:
            member[1] = self.change(member[1], _kind_of(member[0]))
        new = io.BytesIO()
        with zipfile.ZipFile(new, "w", packing) as archive:
            for name, data in members:
                # With a time of its own each, the same seed gives the same bytes.
                archive.writestr(zipfile.ZipInfo(name), data, packing)
        changed = new.getvalue()
        if draw.random() < 0.3:
            changed = self._zip_header(changed)
        return changed

    def _zip_header(self, content: bytes) -> bytes:
        """A number in a header of a member or in the directory."""
        draw, marks = self.draw, (b"PK\1\2", b"PK\3\4", b"PK\5\6")
        starts = [found.start() for found in re.finditer(b"|".join(marks), content)]
        start = draw.choice(starts) + draw.randrange(4, 30, 2)
        size = draw.choice((2, 4))
        number = draw.choice((*NUMBERS, 8, 9, 12, 14, 93, 99)) % 2 ** (8 * size)
        return content[:start] + number.to_bytes(size, "little") + content[start + size :]

    def npz(self, content: bytes) -> bytes:
        """Arrays of NumPy in an archive."""
        return self.zip(content)

    def npy(self, content: bytes) -> bytes:
        """The header of an array: its type, order and shape."""
        draw = self.draw
        (length,) = struct.unpack("<H", content[8:10])
        header, data = content[10 : 10 + length].decode("latin-1").rstrip(), content[10 + length :]
        kind = draw.randrange(4)
        if kind == 0:
            header = re.sub(r"'descr': '[^']*'", f"'descr': {draw.choice(_DTYPES)!r}", header)
        elif kind == 1:
            header = re.sub(r"'shape': \([^)]*\)", f"'shape': {draw.choice(_SHAPES)}", header)
        elif kind == 2:
            header = header.replace(
                *draw.choice((("False", "True"), ("{", "{'a': 1, "), ("'", "")))
            )
        else:
            data = self.raw(data)
        new = header.encode("latin-1", "replace") + b"\n"
        return content[:8] + struct.pack("<H", min(len(new), 65535)) + new + data

    # Pickles

    def pickle(self, content: bytes) -> bytes:
        """The operations of the pickles at the beginning of a file."""
        draw, ends = self.draw, [0]
        with contextlib.suppress(Exception):
            stream = io.BytesIO(content)
            while True:
                for _, _, place in pickletools.genops(stream):
                    ends.append(place or 0)
        place, other = draw.choice(ends), draw.choice(ends)
        kind = draw.randrange(4)
        if kind == 0:
            return content[:place] + draw.choice(_OPERATIONS) + content[place:]
        if kind == 1:
            return content[:place] + draw.choice(_OPERATIONS) + content[place + 1 :]
        if kind == 2:
            return content[:place] + content[max(place, other) :]
        return content[:place] + content[min(place, other) : max(place, other)] + content[place:]

    # HDF5

    def hdf5(self, content: bytes) -> bytes:
        """Objects within a file: other types, shapes, values, names, and data from elsewhere."""
        draw, stream = self.draw, io.BytesIO(content)
        with h5py.File(stream, "r+") as file:
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if _is_read(item) else None)
            if not names:
                return stream.getvalue()
            name = draw.choice(names)
            kind = draw.randrange(8)
            if kind == 0:
                del file[name]
            elif kind == 1:
                file.move(name, f"{name}{draw.choice(('x', '/x', ' ', chr(27), '猫'))}")
            elif kind == 2:
                self._elsewhere(file, name)
            elif kind == 3:
                self._values(file[name])
            elif kind == 4:
                other = draw.choice(names)
                held = file[other][()]
                del file[name]
                file[name] = held
            elif kind == 5:
                file[f"{draw.choice(('CNN', 'RNN_0', 'x', 'states', 'tokens'))}/more"] = [1.0]
            elif kind == 6:
                file.attrs["training"] = draw.choice(_TRAINING)
            else:
                self._retyped(file, name)
        return stream.getvalue()

    def _elsewhere(self, file: h5py.File, name: str) -> None:
        """The data of a dataset in another file, or under another name."""
        shape, raw, other = file[name].shape, self.secrets.raw, self.secrets.hdf5
        n_bytes = int(np.prod(shape)) * 4
        kind = self.draw.randrange(6)
        held = file[name][()]
        del file[name]
        if kind == 0:
            path = self.draw.choice((raw, self.secrets.fifo, "/etc/hostname"))
            file.create_dataset(name, shape, "<f4", external=[(path, 0, n_bytes)])
        elif kind == 1:
            file[name] = h5py.ExternalLink(self.draw.choice((other, self.secrets.fifo)), "secret")
        elif kind == 2:
            layout = h5py.VirtualLayout(shape, "<f4")
            layout[...] = h5py.VirtualSource(other, "secret", shape)
            file.create_virtual_dataset(name, layout)
        elif kind == 3:
            file[name] = h5py.SoftLink(self.draw.choice((f"/{name}", "/", "/none")))
        elif kind == 4:
            file[name] = file  # a group within itself
        else:
            file["moved"] = held
            file[name] = file["moved"]

    def _values(self, dataset: h5py.Dataset) -> None:
        values = dataset[()]
        if dataset.dtype.kind == "f":
            special = (np.nan, np.inf, -np.inf, 1e38, 3.4e38, 1e-45, -0.0)
        elif dataset.dtype.kind in "iu":
            bounds = np.iinfo(dataset.dtype)
            special = (bounds.min, bounds.max, 0, 1)
        else:
            special = STRANGE[4:20]
        flat = np.array(values).ravel()
        flat[self.draw.randrange(max(1, flat.size))] = self.draw.choice(special)
        dataset[...] = flat.reshape(dataset.shape)

    def _retyped(self, file: h5py.File, name: str) -> None:
        """A dataset of another type, shape or layout."""
        draw, values = self.draw, file[name][()]
        shape = np.shape(values)
        del file[name]
        kind = draw.randrange(6)
        if kind == 0:
            types = ("<f8", ">f4", "<f2", "<i4", "<u8", "?", "<c8", "S5", "V3", h5py.string_dtype(),
                     h5py.vlen_dtype("<f4"), h5py.enum_dtype({"A": 1}), h5py.ref_dtype,
                     np.dtype([("a", "<f4")]), np.dtype(("<f4", (2,))))  # fmt: skip
            file.create_dataset(name, shape, draw.choice(types))
        elif kind == 1:
            shapes = ((), (0,), shape[::-1], (*shape, 1), (1, *shape), (*shape[:-1], 7), shape[1:])
            file.create_dataset(name, draw.choice(shapes), "<f4")
        elif kind == 2:  # declared, and hardly there
            axes = [draw.choice((n, 2**31, 2**40, 2**62)) for n in shape] or [2**40]
            file.create_dataset(name, axes, "<f4", chunks=(1,) * len(axes))
        elif kind == 3 and shape:
            filters: dict[str, Any] = draw.choice(_FILTERS)
            file.create_dataset(name, data=np.asarray(values), **filters)
        elif kind == 4:
            file.create_dataset(name, data=h5py.Empty("<f4"))
        else:
            file.create_group(name)

    # Checkpoints

    def index(self, content: bytes) -> bytes:
        """A block of a checkpoint's index, with the checksum that fits it: TensorFlow's reader
        refuses all else at once."""
        draw = self.draw
        block = draw.choice(blocks(content))
        changed = Changes(draw, self.secrets).raw(content[block])
        n = block.stop - block.start
        # Its place and size are said elsewhere.
        return with_block(content, block, changed[:n].ljust(n, b"\0"))


_FILTERS: tuple[dict[str, Any], ...] = (
    {"compression": "gzip"},
    {"compression": "lzf"},
    {"shuffle": True},
    {"fletcher32": True},
    {"scaleoffset": 2},
)


def _places(value: Any, above: Place = ()) -> Any:
    """The paths of all values within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*above, key)
        if isinstance(inner, dict | list):
            yield from _places(inner, (*above, key))


def _at(value: Any, path: Any) -> Any:
    for key in path:
        value = value[key]
    return value


def _kind_of(name: str) -> str:
    endings = {".json": "json", ".hdf5": "hdf5", ".h5": "hdf5", ".npy": "npy", ".pkl": "pickle",
               ".txt": "text", ".dic": "text"}  # fmt: skip
    return endings.get(Path(name).suffix, "raw")


_OPERATIONS = (
    b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n", b"R", b"b", b"s", b"u", b"a", b"e",
    b"0", b"1", b"2", b"(", b")", b"}", b"]", b"t", b"\x85", b"\x86", b"\x87", b"\x81", b"\x92",
    b"\x93", b"\x94", b"Q", b"P1\n", b"h\0", b"q\0", b"r\xff\xff\xff\x1f", b"j\xff\xff\xff\x7f",
    b"K\0", b"J\xff\xff\xff\xff", b"J\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
    b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f", b"\x8d" + b"\xff" * 7 + b"\x7f",
    b"\x96" + b"\xff" * 7 + b"\x7f", b"\x95" + b"\xff" * 7 + b"\x7f", b"\x80\x09", b"\x82\x01",
    b"N", b"\x88", b"G\x7f\xf0" + bytes(6), b"L9999999999999999999999L\n",
    b"I" + b"9" * 5000 + b"\n",
    b"V\\ud800\n", b"\x8f", b"\x90", b"\x91", b"\x97", b"\x98", b".", b"S'a'\n", b"}(Va\nK\1ub",
    b"N}(Va\nK\1u\x86b", b"\x85" * 5000, b"(" * 5000,
)  # fmt: skip


def blocks(content: bytes) -> list[slice]:
    """The blocks of a table of LevelDB: data and index, each followed by a byte and a checksum."""
    numbers, place = [], len(content) - 48
    for _ in range(4):  # place and size of the block of meta data, and of the index of blocks
        number, place = _varint(content, place)
        numbers.append(number)
    found = [slice(numbers[2], numbers[2] + numbers[3])]
    # Entries: bytes shared with the key before, bytes of the key, bytes of the value, both of them.
    place = numbers[2]
    end = found[0].stop - 4 * (
        1 + struct.unpack("<I", content[found[0].stop - 4 : found[0].stop])[0]
    )
    while place < end:
        _, place = _varint(content, place)
        key, place = _varint(content, place)
        size, place = _varint(content, place)
        start, after = _varint(content, place + key)
        length, _ = _varint(content, after)
        found.append(slice(start, start + length))
        place += key + size
    return found


def with_block(content: bytes, block: slice, changed: bytes) -> bytes:
    """A table with another block of the same size, and the checksum that fits it."""
    kind = content[block.stop : block.stop + 1]
    checksum = struct.pack("<I", _masked(_crc32c(changed + kind)))
    return content[: block.start] + changed + kind + checksum + content[block.stop + 5 :]


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def _crc32c(data: bytes) -> int:
    """The checksum of Castagnoli, a bit at a time: blocks are small."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _is_read(item: Any) -> bool:
    """Whether something in an HDF5 file is a dataset whose data is there: a change that was made
    before may have put it into a pipe, which nobody writes to."""
    return isinstance(item, h5py.Dataset) and not item.external and not item.is_virtual
