"""Reading and writing files: accepted input, error messages, and leftover files."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.core.errors import InputError
from bilm.data.counting import count_words
from bilm.files.reading import (
    declare_outputs,
    find_files,
    protected_files,
    read_json_object,
    read_lines,
)
from bilm.files.writing import Outputs, atomic_write, named_in_errors, text_file, write_json
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
    [
        ("nothing-*.txt", ""),
        ("pipe", " It is not a regular file."),
        ("shards/", " Name files by a pattern: '{}/shards/train-*'."),
        ("shards/held", " Name files by a pattern: '{}/shards/held*'."),
    ],
)
def test_a_pattern_that_matches_no_file(tmp_path, pattern, hint):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "shards").mkdir()
    for name in ("train-00.txt", "heldout-00.txt"):
        write(tmp_path / "shards" / name, "x")
    pattern = os.path.join(tmp_path, pattern)
    message = f"No file matches {pattern!r}.{hint.format(tmp_path)}"
    with pytest.raises(FileNotFoundError, match=re.escape(message)):
        find_files(pattern)


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
    with pytest.raises(InputError, match=r"^standard input, line 8: not UTF-8: byte 2"):
        list(lines)


def test_a_line_that_is_too_long(tmp_path):
    longest = b"a" * 2**24
    assert list(read_lines(write(tmp_path / "a.txt", b"x\n" + longest))) == ["x", "a" * 2**24]
    path = write(tmp_path / "b.txt", b"x\n" + longest + b"a\ny")
    with pytest.raises(InputError, match=r", line 2: a line must have at most 16,777,216 by"):
        list(read_lines(path))
    with pytest.raises(InputError, match=r", line 2: a line must have at most 16,777,216 by"):
        count_words(write(tmp_path / "b.txt", b"x\n" + longest + b"a" * 2**21))


@pytest.mark.parametrize("name", ["latin.txt", "latin.txt.gz", "latin.txt.xz"])
def test_text_that_is_not_utf8_is_named_by_line_and_byte(tmp_path, name):
    path = write(tmp_path / name, b"good line\n" * 5000 + "na\u00efve\n".encode("latin-1"))
    with pytest.raises(InputError, match=rf"{name}, line 5001: not UTF-8: byte 2"):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["text.gz", "text.xz"])
def test_compressed_text_that_is_cut_off(tmp_path, name):
    path = write(tmp_path / name, random.Random(5).randbytes(20000).hex())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=rf"{name}, after line 0: damaged: "):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["text.gz", "text.xz"])
def test_compressed_text_that_is_damaged(tmp_path, name):
    path = write(tmp_path / name, random.Random(5).randbytes(20000).hex())
    data = bytearray(path.read_bytes())
    start = len(data) // 2
    data[start : start + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"{name}, after line 0: damaged: "):
        list(read_lines(path))


def test_json_object(tmp_path):
    write_json(tmp_path / "a.json", {"word": "straße", "n": [1, None]})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert "straße" in text and text.endswith("}\n")
    assert read_json_object(tmp_path / "a.json") == {"word": "straße", "n": [1, None]}


@pytest.mark.parametrize("value", [[1], True])
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
    message = r"The folder '.*none' to write 'a.txt' into"
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
    with pytest.raises(FileNotFoundError, match="is not a regular file"):
        list(read_lines(tmp_path / "in"))
    with pytest.raises(FileNotFoundError, match="No file matches"):
        find_files(tmp_path / "in")
    with pytest.raises(FileNotFoundError, match="is not a regular file"):
        read_json_object(tmp_path / "in")


@pytest.mark.parametrize("write", [atomic_write, lambda name: new_folder(name)])
def test_a_name_that_no_file_can_have(tmp_path, monkeypatch, write):
    monkeypatch.chdir(tmp_path)
    message = "The name of a file or folder must be text"
    with pytest.raises(InputError, match=message), write(""):
        pass
    assert os.listdir(tmp_path) == []


def write_all(paths, text="new", **settings):
    with Outputs(paths, **settings).temporaries() as names:
        for name in names:
            Path(name).write_text(text)


def texts(folder):
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@contextlib.contextmanager
def new_folder(path, **settings):
    with Outputs([path], folders=[path], **settings).temporaries() as (temporary,):
        yield temporary


KILLED = """
import os
from bilm.files.writing import Outputs

with Outputs(["first", "b", "c"], overwrite=%s).temporaries() as names:
    for name in names:
        with open(name, "w") as file:
            file.write("new")
    operations, replace, link = iter(range(3)), os.replace, os.link
    def dying(rename):
        return lambda *names: os._exit(9) if next(operations) == %d else rename(*names)
    os.replace, os.link = dying(replace), dying(link)
"""


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_kill_between_two_renames_leaves_complete_files_and_the_first_is_last(tmp_path, number):
    """SECURITY.md: each file is complete, and the main one is renamed last."""
    for force in (False, True):
        if force:
            write_all([tmp_path / name for name in ("first", "b", "c")], "old", overwrite=True)
        command = [sys.executable, "-c", KILLED % (force, number)]
        assert subprocess.run(command, cwd=tmp_path).returncode == 9
        there = {name: text for name, text in texts(tmp_path).items() if name[0] != "."}
        renamed = dict.fromkeys(["c", "b"][:number], "new")
        assert there == dict.fromkeys(["first", "b", "c"] if force else [], "old") | renamed
        write_all([tmp_path / name for name in ("first", "b", "c")], "again", overwrite=True)
        assert texts(tmp_path) == dict.fromkeys(["first", "b", "c"], "again")
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_during_the_work_is_kept(tmp_path, monkeypatch, taken, links):
    """SECURITY.md: no file is overwritten without --force, not even one that appears."""

    def without_links(*_):
        raise PermissionError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", without_links)
    paths = [tmp_path / "first", tmp_path / "b"]
    outputs = Outputs(paths)
    paths[taken].write_text("mine")
    with pytest.raises(InputError, match="overwritten"), outputs.temporaries() as names:
        for name in names:
            Path(name).write_text("new")
    assert texts(tmp_path) == {paths[taken].name: "mine"}
    with pytest.raises(InputError, match="would be overwritten: --force"):
        Outputs(paths, allowed_by="--force")
    write_all(paths, overwrite=True)
    assert texts(tmp_path) == {"first": "new", "b": "new"}


def test_a_subcommand_replaces_no_input_and_no_new_file(tmp_path, monkeypatch):
    """SECURITY.md: however a file was chosen as an input, and by whatever function it is read."""
    monkeypatch.chdir(tmp_path)
    for name in ("in", "out"):
        Path(name).write_text("mine")
    os.link("in", "hard")
    with protected_files():
        declare_outputs(["hard", "new"], updated=["updated"], overwrite=False)
        with pytest.raises(InputError, match=r"^'hard' is an input: name another output"):
            list(read_lines("in"))
        assert list(read_lines("out")) == ["mine"]
        with pytest.raises(InputError, match=r"^'out' is an input: name another output"):
            declare_outputs(["out"], updated=[], overwrite=True)
        for name in ("new", "updated"):
            Path(name).write_text("mine")
            with pytest.raises(InputError, match="would be overwritten"):
                write_all([name], overwrite=True)
    with protected_files():
        declare_outputs([], updated=["another"], overwrite=False)
        for _ in range(2):  # only other processes' files are kept
            write_all(["another"], overwrite=True)
    assert list(read_lines("in")) == ["mine"]
    assert texts(tmp_path) == {"another": "new"} | dict.fromkeys(
        ["in", "out", "hard", "new", "updated"], "mine"
    )


def test_inputs_and_outputs_are_different_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("mine")
    os.link("in", "hard")
    os.symlink("in", "soft")
    for name in ("in", "hard", "soft", "./in"):
        with pytest.raises(InputError, match="is an input"):
            Outputs(["new", name], inputs={"text": ["none", "in"]}, overwrite=True)
        with pytest.raises(InputError, match="is an input"):
            Outputs([], updated=[name], inputs={"text": "in"})
    for pair in (["new", "./new"], ["in", "soft"]):
        with pytest.raises(InputError, match="two outputs"):
            Outputs(pair, overwrite=True)
    with pytest.raises(InputError, match="two outputs"):
        Outputs(["new"], updated=["new"])
    assert contents(tmp_path)["in"] == b"mine"


HOLDER = """
import time
from bilm.files.writing import atomic_write
with atomic_write("out") as temporary:
    open(temporary, "w").write("longer than new")
    print(temporary, flush=True)
    time.sleep(600)
"""


def test_another_process_that_writes_the_file(tmp_path, monkeypatch):
    """SECURITY.md: a second process is refused, and a killed run's file is used again."""
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b".out.partial\n"
        with pytest.raises(InputError, match=r"'out': another process writes it\."):
            write_all(["out"])
        other.kill()
    assert os.listdir() == [".out.partial"]
    write_all(["out"])
    assert texts(tmp_path) == {"out": "new"}


def test_a_file_system_without_locks(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    write_all([tmp_path / "out"])
    assert "cannot be locked: Operation not supported" in caplog.text
    assert texts(tmp_path) == {"out": "new"}


def test_the_permissions_of_a_replaced_file_are_kept(tmp_path):
    path = tmp_path / "out"
    write_all([path])
    before = os.umask(0)
    os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~before
    path.chmod(0o604)
    write_all([path], overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o604


def test_the_length_of_a_name_is_checked_before_the_work(tmp_path):
    for name in ("a" * 246, "é" * 123):
        write_all([tmp_path / name])
    for name in ("a" * 247, "é" * 124):
        with pytest.raises(OSError, match="File name too long"):
            Outputs([tmp_path / name])


def test_a_compressed_file_by_its_name(tmp_path):
    with atomic_write(tmp_path / "a.txt.GZ") as temporary, text_file(temporary) as file:
        file.write("a\n")
    assert gzip.decompress((tmp_path / "a.txt.GZ").read_bytes()) == b"a\n"


def test_more_files_than_a_process_may_open(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
    try:
        write_all([tmp_path / str(n) for n in range(300)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert len(os.listdir(tmp_path)) == 300


# Folders


def test_the_folder_of_new_files_is_created(tmp_path):
    path = tmp_path / "above" / "new"
    paths = [path / "a", tmp_path / "b", path / "c"]
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Outputs(paths)
    with pytest.raises(KeyError), Outputs(paths, folders=[path]).temporaries():
        raise KeyError
    assert not path.exists()
    write_all(paths, folders=[path])
    assert texts(path) == {"a": "new", "c": "new"} and (tmp_path / "b").read_text() == "new"
    with pytest.raises(InputError, match="would be overwritten"):
        Outputs([path / "c"], folders=[path])
    write_all([path / "d"], folders=[path])
    assert sorted(os.listdir(path)) == ["a", "c", "d"]


def fill(folder, **files):
    for name, text in files.items():
        write(Path(folder, name), text)


def test_a_folder_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "above" / "result"
    (tmp_path / "above").mkdir()
    fill(tmp_path / "above", a="mine")
    with new_folder(path) as temporary:
        fill(temporary, a="one", b="two")
        assert not path.exists()
        with pytest.raises(InputError, match="another process writes it"), new_folder(path):
            pytest.fail("the block is not entered")
    assert texts(path) == {"a": "one", "b": "two"}
    assert sorted(os.listdir(tmp_path / "above")) == ["a", "result"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "result"
    path.mkdir()
    fill(tmp_path, mine="")
    (tmp_path / ".result.partial").mkdir()
    fill(tmp_path / ".result.partial", a="of a killed run")
    with pytest.raises(error), new_folder(path) as temporary:
        assert os.listdir(temporary) == []
        fill(temporary, a="half")
        raise error
    assert sorted(os.listdir(tmp_path)) == ["mine", "result"] and not os.listdir(path)


def test_a_folder_is_replaced_only_if_it_holds_nothing_else(tmp_path):
    """SECURITY.md: `bilm export --force` replaces only the files of a SavedModel."""
    path = tmp_path / "result"
    path.mkdir()
    fill(path, notes="mine")
    names = {"overwrite": True, "replaces": ("model", "notes")}
    for settings, message in (({}, "would be overwritten"), (names, "got no model")):
        with pytest.raises(InputError, match=message), new_folder(path, **settings):
            pytest.fail("the block is not entered")
    fill(path, model="old", more="mine too")
    with pytest.raises(InputError, match="got more"), new_folder(path, **names):
        pytest.fail("the block is not entered")
    (path / "more").unlink()
    with pytest.raises(InputError, match="got more"), new_folder(path, **names) as temporary:
        fill(temporary, model="new")
        fill(path, more="added during the work")
    (path / "more").unlink()
    with new_folder(path, **names) as temporary:
        fill(temporary, model="new")
    assert texts(path) == {"model": "new"} and os.listdir(tmp_path) == ["result"]
    with pytest.raises(InputError, match="must be a folder"), new_folder(path / "model"):
        pytest.fail("the block is not entered")


def test_a_folder_whose_replacement_was_killed(tmp_path, monkeypatch):
    """SECURITY.md: the old folder stays under a hidden name, and the next run reports it."""
    path = tmp_path / "result"
    path.mkdir()
    fill(path, model="old")
    names = {"overwrite": True, "replaces": ("model",)}
    rename = os.rename

    def once(source, target):
        monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        rename(source, target)

    monkeypatch.setattr(os, "rename", once)
    with pytest.raises(OSError, match="killed"), new_folder(path, **names) as temporary:
        fill(temporary, model="new")
    assert texts(tmp_path / ".result.old") == {"model": "old"}
    with pytest.raises(InputError, match=r"\.result\.old' was left by a killed run: rename it"):
        Outputs([path], folders=[path], **names)


def test_for_a_link_to_a_folder_that_folder_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    os.symlink("far", tmp_path / "link")
    with new_folder(f"{tmp_path / 'link'}/") as temporary:
        fill(temporary, a="new")
    assert texts(tmp_path / "far") == {"a": "new"}
    assert sorted(os.listdir(tmp_path)) == ["far", "link"] and (tmp_path / "link").is_symlink()


def test_a_full_disk_is_named(tmp_path):
    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for writing in (atomic_write, new_folder, named_in_errors):
        with pytest.raises(OSError) as caught, writing(tmp_path / "out"):
            full()
        assert caught.value.filename == str(tmp_path / "out")
    assert os.listdir(tmp_path) == []
