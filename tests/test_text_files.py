"""Text files in ranges: any split gives the same lines and ids as the plain reader."""

from __future__ import annotations

import gzip
import lzma
import os
import random
from contextlib import closing

import pytest

from bilm import InputError
from bilm.data.text_ranges import RangeReader, find_ranges
from bilm.files.reading import read_lines

OPENERS = {".txt": open, ".gz": gzip.open, ".xz": lzma.open}
# Line ends, characters that some take for line ends, byte order marks, multi-byte characters.
PIECES = ["\n", "\r\n", "\r", "\n\n", "\u2028", "\x85", "\x0b", "\x1c", "\ufeff", "é", "猫", "a b",
          "a", " "]  # fmt: skip


def write(path, content):
    with OPENERS[path.suffix](path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return str(path)


def expected_lines(files):
    """(file, line number, line) as `bilm embed` reads them."""
    return [(path, n, line) for path in files for n, line in enumerate(read_lines(path))]


def lines_of(parts, order=None):
    """(file, line number, line) of all lines in the ranges, ordered by id."""
    found = {}
    with closing(RangeReader()) as reader:
        for part in order or parts:
            lines = reader.lines(part)
            assert len(lines) == part.n_lines
            for row, line in enumerate(lines):
                assert part.first_id + row not in found
                found[part.first_id + row] = (*part.file_and_line(row), line)
    assert sorted(found) == list(range(len(found)))
    return [found[number] for number in range(len(found))]


@pytest.mark.parametrize("seed", range(6))
def test_any_cut_gives_the_same_lines(tmp_path, seed):
    draw = random.Random(seed)
    files = []
    for name in ("a.txt", "b.gz", "c.txt", "d.xz"):
        text = "".join(draw.choices(PIECES, k=draw.choice([0, 1, 7, 40])))
        files.append(write(tmp_path / name, text))
    expected = expected_lines(files)
    for range_bytes in (1, 2, 3, 5, 8, 13, 1000):
        ranges = find_ranges(files, range_bytes)
        assert [one.number for one in ranges] == list(range(len(ranges)))
        assert lines_of(ranges) == expected
    ranges = find_ranges(files, 5)
    assert lines_of(ranges, draw.sample(ranges, len(ranges))) == expected


CASES = {
    "LF": ("a\nb\n", ["a", "b"]),
    "CRLF": ("a\r\n\r\nb\r\n", ["a", "", "b"]),
    "CR": ("a\rb", ["a\rb"]),
    "no end": ("a\nb", ["a", "b"]),
    "empty lines": ("\n\na\n\n", ["", "", "a", ""]),
    "empty file": ("", []),
    "mark of the byte order": ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
    "mark alone": ("\ufeff", []),
    "no ends of lines": ("a\u2028b\u2029c\x85d\x0be\x0cf\n", ["a\u2028b\u2029c\x85d\x0be\x0cf"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lines(tmp_path, name):
    text, lines = CASES[name]
    path = write(tmp_path / "a.txt", text)
    assert list(read_lines(path)) == lines
    for range_bytes in (1, 100):
        assert [line for *_, line in lines_of(find_ranges([path], range_bytes))] == lines


def test_ranges_are_about_as_large_as_asked_for(tmp_path):
    large = write(tmp_path / "large.txt", "12345678\n" * 100)
    small = [write(tmp_path / f"{n}.txt", "1234\n" * 3) for n in range(5)]
    ranges = find_ranges([large, *small], 90)
    # A range includes the complete line in which it ends.
    assert [one.n_lines for one in ranges] == [10] * 10 + [15]
    ranges = find_ranges([large, *small], 40)
    assert [one.n_bytes for one in ranges] == [45] * 20 + [30, 30, 15]
    assert [len(one.parts) for one in ranges[-3:]] == [2, 2, 1]
    assert ranges[-1].file_and_line(2) == (small[-1], 2)
    assert str(ranges[-2]) == f"{small[2]}, lines 1 to 3; {small[3]}, lines 1 to 3"


def test_no_lines(tmp_path):
    (part,) = find_ranges([write(tmp_path / "a.txt", ""), write(tmp_path / "b.gz", "")])
    assert (part.number, part.n_lines, part.first_id, part.n_bytes) == (0, 0, 0, 0)
    assert RangeReader().lines(part) == []


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_a_file_that_changes_is_refused(tmp_path, name):
    path = write(tmp_path / name, "one\ntwo\nthree\n")
    first, second, third = find_ranges([path], 4)
    with closing(RangeReader()) as reader:
        assert reader.lines(third) == ["three"] and reader.lines(first) == ["one"]
    write(tmp_path / name, "one\nTwo\nthree\n")
    with closing(RangeReader()) as reader:
        assert reader.lines(first) == ["one"]
        with pytest.raises(
            InputError,
            match=rf"{name} must not change during the job, but its text has changed in the bytes",
        ):
            reader.lines(second)
        assert reader.lines(third) == ["three"]
    os.remove(path)
    with closing(RangeReader()) as reader, pytest.raises(FileNotFoundError):
        reader.lines(first)
