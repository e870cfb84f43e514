"""The folder OUT.partial, which keeps the finished pieces of an unfinished job.

    lock                held by the process that works here
    job.json            record: program, format, settings; only the same job is resumed
    pieces-XXXXXXXX/    finished pieces; XXXXXXXX is a checksum of the settings, so that a worker
                        of an earlier job cannot write here

A piece appears under its name only once complete, so all named pieces can be used however the
program ended. Nothing is used or removed in a folder without this record, links are not followed,
and no path is read from the record.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError, differences
from bilm.files.locks import locked
from bilm.files.reading import PathLike, read_json_object, require_path
from bilm.files.writing import atomic_write, write_json

_LOCK, _RECORD = "lock", "job.json"
# Files named in a message.
_MOST_FILES = 3
_PROGRAM, _FORMAT = "bilm embed", 1
# Further names: folders, and temporary files of a killed `write_json`.
_FOLDER = re.compile(r"(pieces|replaced)-[0-9a-f]{8}")
_TEMPORARY = re.compile(r"\.job\.json\.[0-9a-f]{8}\.tmp")


class JobFolder:
    """The folder of a job, locked against other processes; a context manager.

    A folder in which nothing was finished is removed at the end of the block.

    Args:
        out: the file or folder that the job writes.
        settings: everything that determines the result, as JSON. Values in "files" are compared one
            by one.
        resume: continue an interrupted job if there is one.
        force: discard an interrupted job, and let the result replace OUT.

    Attributes:
        pieces: path of the folder of pieces.
        is_over: OUT is complete and the pieces are gone; only `remove` remains to be done.
    """

    def __init__(
        self,
        out: PathLike,
        settings: Mapping[str, Any],
        *,
        resume: bool = False,
        force: bool = False,
    ) -> None:
        self.out, self._folder = _names(out)
        content = json.dumps(settings, sort_keys=True)
        checksum = zlib.crc32(content.encode())
        self.pieces = os.path.join(self._folder, f"pieces-{checksum:08x}")
        self.is_over = False
        self._lock = _locked(self._folder)
        try:
            self._open(json.loads(content), resume, force)
        except BaseException:
            self._release()
            raise

    def _open(self, settings: dict[str, Any], resume: bool, force: bool) -> None:
        found = _read_record(self._folder)
        if found is None or force:
            self._record: dict[str, Any] = {
                "program": _PROGRAM, "format": _FORMAT, "settings": settings,
                "replaces": force, "finished": False,
            }  # fmt: skip
            self._require_free()
            # The record comes first, so a program killed here leaves a folder that counts as ours.
            self._save_record()
            self._remove_folders()
        elif resume:
            self._record = found
            self._require_same(settings)
            self._require_free()
            is_done = found["finished"] and not os.path.lexists(self.pieces)
            self.is_over = is_done and _is_taken(self.out)  # unless OUT was moved away since
        else:
            raise _left(self._folder)
        if os.path.islink(self.pieces):
            raise InputError(f"{self.pieces} is a link; links are not followed here. Remove it.")
        if not self.is_over:
            os.makedirs(self.pieces, exist_ok=True)

    def _save_record(self) -> None:
        write_json(os.path.join(self._folder, _RECORD), self._record)

    def _require_free(self) -> None:
        may_replace = self._record["replaces"] or self._record["finished"]
        if _is_taken(self.out) and not may_replace:
            raise InputError(
                f"{self.out} exists and would be overwritten; finished vectors stay in "
                f"{self._folder}. Move {self.out} away, then --resume."
            )

    def _require_same(self, settings: dict[str, Any]) -> None:
        found, settings = dict(self._record["settings"]), dict(settings)
        before, files = found.pop("files", {}), settings.pop("files", {})
        listed = differences(found, settings, "there", "now")
        listed += differences(before, files, "there", "now")[:_MOST_FILES]
        if listed:
            raise InputError(
                f"{self._folder} holds vectors of another job: {'; '.join(listed)}. Repeat that "
                "job, or start over with --force."
            )

    def names(self) -> list[str]:
        """The names of the finished pieces, sorted."""
        with os.scandir(self.pieces) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_file(follow_symlinks=False) and not entry.name.startswith(".")
            )

    @contextlib.contextmanager
    def finishing(self) -> Iterator[None]:
        """Wrap the block that renames the result to OUT; then remove the folder."""
        self._require_free()
        self._record["finished"] = True
        self._save_record()
        yield
        self.remove()

    def rename_pieces(self) -> None:
        """Rename the folder of pieces to OUT; an earlier OUT is moved away and removed."""
        if os.path.isdir(self.out) and os.listdir(self.out):
            os.replace(self.out, os.path.join(self._folder, f"replaced-{uuid.uuid4().hex[:8]}"))
        os.replace(self.pieces, self.out)

    def remove(self) -> None:
        """Remove the pieces, then the record; the folder follows when its lock is released."""
        self._remove_folders()
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._folder, _RECORD))

    def _release(self) -> None:
        self._lock.close()
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(self._folder)

    def _remove_folders(self) -> None:
        with os.scandir(self._folder) as found:
            entries = list(found)
        for entry in entries:
            if _FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif _TEMPORARY.fullmatch(entry.name):
                os.remove(entry.path)

    def __enter__(self) -> JobFolder:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            if not self.names():
                self.remove()
        self._release()


@contextlib.contextmanager
def writing_piece(path: str) -> Iterator[str]:
    """`atomic_write` that replaces a link of this name instead of the file that it leads to."""
    if os.path.islink(path):
        os.remove(path)
    with atomic_write(path) as temporary:
        yield temporary


def check_output(out: PathLike, *, resume: bool, force: bool) -> None:
    """Check that a job can write OUT, before the work."""
    out, folder = _names(out)
    above = os.path.dirname(out)
    if above and not os.path.isdir(above):
        raise FileNotFoundError(f"The folder {above!r} to write {out!r} into does not exist.")
    is_left = os.path.lexists(folder) and _read_record(folder) is not None
    if is_left and not (resume or force):
        raise _left(folder)
    if _is_taken(out) and not (force or is_left):
        raise InputError(f"{out!r} would be overwritten: --force allows it.")


def is_complete(out: PathLike) -> bool:
    """Whether OUT exists and there is no job to resume; removes the lock of a job that was killed
    at its very end."""
    out, folder = _names(out)
    if not _is_taken(out) or os.path.lexists(os.path.join(folder, _RECORD)):
        return False
    if os.path.isdir(folder) and set(os.listdir(folder)) <= {_LOCK}:
        with contextlib.suppress(InputError, OSError):
            _locked(folder).close()  # which removes the lock file
            os.rmdir(folder)
    return True


def _names(out: PathLike) -> tuple[str, str]:
    out = require_path(out).rstrip(os.sep) or os.sep
    return out, f"{out}.partial"


def _is_taken(out: str) -> bool:
    """Whether the name exists; an empty folder does not count."""
    return os.path.lexists(out) and not (
        os.path.isdir(out) and not os.path.islink(out) and not os.listdir(out)
    )


def _left(folder: str) -> InputError:
    return InputError(
        f"{folder} was left by an interrupted job: --resume continues it, --force starts over."
    )


def _locked(folder: str) -> contextlib.ExitStack:
    """Make a folder if it is missing, and lock it until the stack is closed."""
    lock = contextlib.ExitStack()
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        _read_record(folder)  # raises unless the folder is ours
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the folder
            lock.enter_context(locked(Path(folder, _LOCK), "is writing there"))
            return lock


def _read_record(folder: str) -> dict[str, Any] | None:
    """The record of a folder; None if the folder is empty except for a lock."""
    path = os.path.join(folder, _RECORD)
    not_ours = InputError(
        f"{folder} is not a folder of an interrupted job of {_PROGRAM}, so it is neither used nor "
        "removed. Move it away, or choose another name for the result."
    )
    if os.path.islink(folder) or not os.path.isdir(folder):
        raise not_ours
    if not os.path.lexists(path):
        others = {name for name in os.listdir(folder) if not _TEMPORARY.fullmatch(name)}
        if others - {_LOCK}:
            raise not_ours
        return None
    if os.path.islink(path) or not os.path.isfile(path):
        raise not_ours
    record = read_json_object(path)
    settings = record.get("settings")
    is_ours = (record.get("program"), record.get("format")) == (_PROGRAM, _FORMAT)
    if not is_ours or not isinstance(settings, dict):
        raise not_ours
    if not isinstance(settings.get("files", {}), dict):
        raise not_ours
    return record
