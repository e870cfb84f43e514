"""Reading and writing files: accepted input, error messages, and leftover files."""

from __future__ import annotations

import errno
import gzip
import io
import itertools
import json
import lzma
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.core.errors import InputError
from bilm.data.counting import count_words
from bilm.files.reading import (
    find_files,
    read_json_object,
    read_lines,
    require_file,
)
from bilm.files.writing import (
    atomic_write,
    atomic_write_all,
    files_added,
    folder_in_place,
    named_in_errors,
    write_json,
)
from tests.compare import contents

TEXT = "one two\n\nεὐρὺς οὐρανός 😀\nlast line"
LINES = ["one two", "", "εὐρὺς οὐρανός 😀", "last line"]


def write(path, data):
    data = data.encode("utf-8") if isinstance(data, str) else data
    openers = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(path.suffix, open)(path, "wb") as file:
        file.write(data)
    return path


def test_find_files_are_sorted_and_files_only(tmp_path):
    for name in ("b.txt", "a.txt", "c.csv"):
        write(tmp_path / name, "x")
    (tmp_path / "folder.txt").mkdir()
    found = find_files(tmp_path / "*.txt")
    assert found == [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]


def test_a_file_with_brackets_in_its_name_is_found(tmp_path):
    path = write(tmp_path / "text[1].txt", "x")
    assert find_files(path) == [str(path)]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [("nothing-*.txt", ""), ("", " It is not a regular"), ("pipe", " It is not a regular file.")],
)
def test_a_pattern_that_matches_no_file(tmp_path, pattern, hint):
    os.mkfifo(tmp_path / "pipe")
    pattern = str(tmp_path / pattern)
    message = f"No file matches {pattern!r}.{hint}"
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        find_files(pattern)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"The weights file '.*none' does not exist\."):
        require_file(tmp_path / "none", "weights file")
    with pytest.raises(FileNotFoundError, match=r"The text file '.*' is not a regular file\."):
        require_file(tmp_path, "text file")
    with pytest.raises(FileNotFoundError, match=r"The text file '.*none' does not exist\."):
        list(read_lines(tmp_path / "none"))


@pytest.mark.parametrize("name", ["plain.txt", "text.gz", "text.xz"])
def test_text_plain_and_compressed(tmp_path, name):
    path = write(tmp_path / name, TEXT)
    assert list(read_lines(path)) == LINES


@pytest.mark.parametrize("name", ["plain.txt", "text.gz", "text.xz"])
def test_a_byte_order_mark_is_not_part_of_the_first_word(tmp_path, name):
    path = write(tmp_path / name, f"\ufeff{TEXT}")
    assert list(read_lines(path)) == LINES
    path = write(tmp_path / name, "\ufeff")
    assert list(read_lines(path)) == []
    # Elsewhere it is an ordinary character.
    path = write(tmp_path / name, "one\n\ufefftwo")
    assert list(read_lines(path)) == ["one", "\ufefftwo"]
    path = write(tmp_path / name, b"\xef\xbb\xbfgood\nna\xefve\n")
    with pytest.raises(InputError, match=rf"{name}, line 2: not UTF-8: byte 2 is 0xef\."):
        list(read_lines(path))


def test_json_with_a_byte_order_mark(tmp_path):
    path = write(tmp_path / "options.json", '\ufeff{"n": 1}')
    assert read_json_object(path) == {"n": 1}


def test_the_lines_of_files_and_of_streams_are_the_same(tmp_path):
    """A line ends at LF or CRLF; a CR elsewhere is white space within it."""
    data = "\ufeffone\rtwo\r\n\n\r\nthree \r four\nεὐρὺς\r\r\nlast\r".encode()
    expected = ["one\rtwo", "", "", "three \r four", "εὐρὺς", "last"]
    for name in ("a.txt", "a.txt.gz", "a.txt.xz"):
        assert list(read_lines(write(tmp_path / name, data))) == expected
    assert list(read_lines(io.BytesIO(data), "standard input")) == expected
    lines = read_lines(io.BytesIO(data + b"\n\nna\xefve"), "standard input")
    assert list(itertools.islice(lines, 7)) == [*expected, ""]
    with pytest.raises(InputError, match=r"^standard input, line 8: not UTF-8: byte 2 is 0xef\."):
        next(lines)


def test_a_line_that_is_too_long(tmp_path):
    longest = b"a" * 2**24
    assert list(read_lines(write(tmp_path / "a.txt", b"x\n" + longest))) == ["x", "a" * 2**24]
    path = write(tmp_path / "b.txt", b"x\n" + longest + b"a\ny")
    with pytest.raises(InputError, match=r", line 2: a line must have at most 16,777,216 by"):
        list(read_lines(path))
    with pytest.raises(InputError, match=r", line 2: a line must have at most 16,777,216 by"):
        count_words(write(tmp_path / "b.txt", b"x\n" + longest + b"a" * 2**21))


@pytest.mark.parametrize("name", ["latin.txt", "latin.txt.gz", "latin.txt.xz"])
@pytest.mark.parametrize("before", [1, 5000])
def test_text_that_is_not_utf8_is_named_by_line_and_byte(tmp_path, name, before):
    path = write(tmp_path / name, b"good line\n" * before + "na\u00efve\n".encode("latin-1"))
    message = rf"{name}, line {before + 1}: not UTF-8: byte 2 is 0xef\."
    with pytest.raises(InputError, match=message):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["text.gz", "text.xz"])
def test_compressed_text_that_is_cut_off(tmp_path, name):
    path = write(tmp_path / name, random.Random(5).randbytes(20000).hex())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=rf"{name}: damaged after line 0: "):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["text.gz", "text.xz"])
@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize("place", [0.1, 0.5])
def test_compressed_text_that_is_damaged(tmp_path, name, byte, place):
    path = write(tmp_path / name, random.Random(5).randbytes(20000).hex())
    data = bytearray(path.read_bytes())
    start = int(len(data) * place)
    data[start : start + 2000] = bytes([byte]) * 2000
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"{name}: damaged after line 0: "):
        list(read_lines(path))


def test_json_object(tmp_path):
    write_json(tmp_path / "a.json", {"word": "straße", "n": [1, None]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert "straße" in text and text.endswith("}\n")
    assert read_json_object(tmp_path / "a.json") == {"word": "straße", "n": [1, None]}


@pytest.mark.parametrize("value", [[1], "text", True, None, 1.5])
def test_json_of_another_kind(tmp_path, value):
    path = write(tmp_path / "a.json", json.dumps(value))
    message = re.escape(f"a.json: must hold a JSON object, got {value!r}.")
    with pytest.raises(InputError, match=message):
        read_json_object(path)


@pytest.mark.parametrize(
    "text, line", [('{"a": 1,\n "b" 2}', 2), ("", 1), ("{'a': 1}", 1), ('{"a": 1}\n{}', 2)]
)
def test_text_that_is_not_json(tmp_path, text, line):
    path = write(tmp_path / "a.json", text)
    with pytest.raises(InputError, match=rf"a\.json: not JSON: .*: line {line} column "):
        read_json_object(path)


def test_json_that_is_not_utf8(tmp_path):
    path = write(tmp_path / "a.json", b'{"a":\n "\xff"}')
    with pytest.raises(InputError, match=r"a\.json, line 2: not UTF-8: byte 2 is 0xff\."):
        read_json_object(path)


def test_a_result_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "result.txt"
    with atomic_write(path) as temporary:
        assert os.path.dirname(temporary) == str(tmp_path)
        write(tmp_path / os.path.basename(temporary), "new")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "new"
    assert os.listdir(tmp_path) == ["result.txt"]


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path, old, error):
    path = tmp_path / "result.txt"
    if old is not None:
        write(path, old)
    with pytest.raises(error), atomic_write(path) as temporary:
        write(tmp_path / os.path.basename(temporary), "half")
        raise error
    assert os.listdir(tmp_path) == ([] if old is None else ["result.txt"])
    assert old is None or path.read_text(encoding="utf-8") == old


def test_a_result_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_json("here.json", {})
    assert os.listdir(tmp_path) == ["here.json"]


def test_a_folder_to_write_into_that_is_not_there(tmp_path):
    message = "The folder '.*none' to write 'a.txt' into does not exist"
    with pytest.raises(FileNotFoundError, match=message), atomic_write(tmp_path / "none" / "a.txt"):
        pytest.fail("the block is not entered")


def special(path, kind):
    """Create something at `path` that is not a regular file."""
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        os.symlink({"device": "/dev/null", "dangling": path.parent / "nowhere"}[kind], path)


@pytest.mark.parametrize("kind", ["FIFO", "device", "dangling"])
def test_what_is_no_file_is_not_replaced(tmp_path, kind):
    path = tmp_path / "out"
    special(path, kind)
    before = os.lstat(path).st_ino
    message = r"out' must be a regular file or not exist\."
    with pytest.raises(InputError, match=message), atomic_write(path):
        pytest.fail("the block is not entered")
    assert os.lstat(path).st_ino == before and not (tmp_path / "nowhere").exists()


def test_of_a_link_the_file_that_it_names_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target = write(tmp_path / "far" / "file", "old")
    os.symlink("far/file", tmp_path / "link")
    with atomic_write(tmp_path / "link") as temporary:
        write(tmp_path / temporary, "new")
    assert target.read_text() == "new" and os.readlink(tmp_path / "link") == "far/file"
    assert os.listdir(tmp_path / "far") == ["file"]


@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_what_is_no_file_is_not_read(tmp_path, kind):
    special(tmp_path / "in", kind)
    message = "The text file '.*in' is not a regular file"
    with pytest.raises(FileNotFoundError, match=message):
        list(read_lines(tmp_path / "in"))
    with pytest.raises(FileNotFoundError, match="No file matches"):
        find_files(tmp_path / "in")
    with pytest.raises(FileNotFoundError, match=r"The JSON file '.*in' is not a regular file"):
        read_json_object(tmp_path / "in")


@pytest.mark.parametrize("write", [atomic_write, folder_in_place])
def test_a_name_that_no_file_can_have(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    message = "The name of a file or folder must be text or a path, got ''"
    with pytest.raises(InputError, match=message), write(""):
        pass
    assert os.listdir(tmp_path) == []


KILLED = """
import os, sys
from bilm.files.writing import atomic_write_all

def dying(operation):
    def run(*arguments):
        global left
        if left == 0:
            os._exit(9)
        left -= 1
        return operation(*arguments)
    return run

for name in ("replace", "remove"):
    setattr(os, name, dying(getattr(os, name)))
for line in sys.stdin:
    number, what, *force = line.split()
    left = int(number)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    with atomic_write_all(["first", "b", "c"], overwrite=bool(force)) as names:
        for name in names:
            with open(name, "w") as file:
                file.write(what)
    os._exit(0)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that forks for each line of input: the child writes three files and is killed at
    the operation given in the line; the parent prints the child's exit code."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, **pipes) as process:
        yield process
        process.stdin.close()


def test_files_that_belong_together_never_are_of_two_results(tmp_path, writer):
    """After a kill at any operation, running again gives the complete result."""
    names = ["first", "b", "c"]

    def run(*arguments):
        print(*arguments, file=writer.stdin, flush=True)
        return int(writer.stdout.readline())

    def there():
        return [(tmp_path / n).read_text() if (tmp_path / n).exists() else None for n in names]

    for force in ([], ["force"]):
        codes = []
        for n in itertools.count():
            for name in names:
                (tmp_path / name).unlink(missing_ok=True)
                if force:
                    (tmp_path / name).write_text("old")
            codes.append(run(str(n), "new", *force))
            assert there()[0] is None or len(set(there())) == 1
            if codes[-1] == 0:
                break
            assert there() == ["new"] * 3 or run("99", "new", *force) == 0
            assert there() == ["new"] * 3
        assert codes[-1] == 0 and len(codes) >= 4 and set(codes[:-1]) == {9}


def test_files_of_another_result_are_not_overwritten(tmp_path):
    paths = [tmp_path / "first", tmp_path / "b"]
    for taken, content in ((paths[1], "mine"), (paths[0], "new")):
        for path in paths:
            path.unlink(missing_ok=True)
        taken.write_text(content)
        message = f"'{taken}' would be overwritten"
        with (
            pytest.raises(InputError, match=message),
            atomic_write_all(paths, overwrite=False) as names,
        ):
            for name in names:
                Path(name).write_text("new")
        assert contents(tmp_path) == {taken.name: content.encode()}


def test_a_folder_in_the_place_of_the_result(tmp_path):
    message = "must be a regular file or not exist"
    with pytest.raises(InputError, match=message), atomic_write(tmp_path):
        pytest.fail("the block is not entered")


def fill(folder, **files):
    for name, text in files.items():
        write(folder / name, text)


def texts(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.parametrize("writing", [folder_in_place, files_added])
def test_a_folder_appears_when_it_is_complete(tmp_path, writing):
    path = tmp_path / "above" / "result"
    with writing(path) as temporary:
        fill(tmp_path / temporary, a="one", b="two")
        assert not path.exists()
    assert texts(path) == {"a": "one", "b": "two"}
    assert os.listdir(tmp_path / "above") == ["result"]


@pytest.mark.parametrize("writing", [folder_in_place, files_added])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_what_was_there(tmp_path, writing, error):
    path = tmp_path / "result"
    path.mkdir()
    with pytest.raises(error), writing(path) as temporary:
        fill(tmp_path / temporary, a="half")
        raise error
    assert os.listdir(tmp_path) == ["result"] and not os.listdir(path)


def test_files_are_added_to_a_folder_and_its_own_are_kept(tmp_path):
    fill(tmp_path, mine="mine")
    with files_added(tmp_path) as temporary:
        fill(tmp_path / temporary, a="one", b="two")
    assert texts(tmp_path) == {"a": "one", "b": "two", "mine": "mine"}


def test_no_file_is_added_where_one_would_be_overwritten(tmp_path):
    fill(tmp_path, b="mine")
    message = "b' would be overwritten"
    with (
        pytest.raises(InputError, match=message),
        files_added(tmp_path) as temporary,
    ):
        fill(tmp_path / temporary, a="one", b="two")
    assert texts(tmp_path) == {"b": "mine"}


def test_a_folder_is_replaced_only_if_it_holds_nothing_else(tmp_path):
    path = tmp_path / "result"
    path.mkdir()
    fill(path, notes="mine")
    for replaces, message in (
        ((), "result' would be overwritten"),
        (("model", "notes"), "result' must hold model and no files of other kinds to be replaced"),
        (("notes",), None),
    ):
        if message is None:
            fill(path, more="mine too")
            message = "must hold notes and no files of other kinds to be replaced, got more"
        with pytest.raises(InputError, match=message), folder_in_place(path, replaces):
            pytest.fail("the block is not entered")
    (path / "more").unlink()
    with folder_in_place(path, ("notes",)) as temporary:
        fill(tmp_path / temporary, notes="new")
    assert texts(path) == {"notes": "new"} and os.listdir(tmp_path) == ["result"]
    for writing in (folder_in_place, files_added):
        message = "notes' must be a folder or not exist"
        with pytest.raises(InputError, match=message), writing(path / "notes"):
            pytest.fail("the block is not entered")


@pytest.mark.parametrize("writing", [folder_in_place, files_added])
def test_for_a_link_to_a_folder_that_folder_is_written(tmp_path, writing):
    (tmp_path / "far").mkdir()
    os.symlink("far", tmp_path / "link")
    with writing(f"{tmp_path / 'link'}/") as temporary:
        fill(Path(temporary), a="new")
    assert texts(tmp_path / "far") == {"a": "new"}
    assert sorted(os.listdir(tmp_path)) == ["far", "link"] and (tmp_path / "link").is_symlink()


def test_a_full_disk_is_named(tmp_path):
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for writing in (atomic_write, folder_in_place, files_added, named_in_errors):
        with pytest.raises(OSError) as caught, writing(tmp_path / "out"):
            full()
        assert caught.value.filename == str(tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_a_killed_program_left_is_named(tmp_path, caplog):
    (tmp_path / ".result.0a1b2c3d.tmp").mkdir()
    with folder_in_place(tmp_path / "result"):
        pass
    assert ".result.0a1b2c3d.tmp was left by a killed run; remove it" in caplog.text
