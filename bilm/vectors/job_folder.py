"""The folder OUT.partial: an unfinished job, and its finished vectors.

    lock            held by the process that works here
    job.json        record: program, its version, and settings (only the same job is resumed)
    vectors.hdf5, journal   the finished vectors, see `SavedVectors`; if there is no journal, none

A folder without this record is neither used nor removed.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError, differences
from bilm.files.reading import PathLike
from bilm.files.writing import Outputs, locked, overwritten, write_json
from bilm.vectors.saved_vectors import JOURNAL, VECTORS

_LOCK, _RECORD = "lock", "job.json"
_OURS: dict[str, Any] = {"program": "bilm embed", "version": 4}
_MOST_DIFFERENCES = 6  # in a message


class JobFolder:
    """The folder of a job, locked against other processes; a context manager.

    A folder without saved vectors is removed at the end of the block. `settings`, for JSON,
    determine the result. `resume` continues an interrupted job if there is one; `force` discards
    it, and lets the result replace OUT.

    Attributes:
        path: path of the folder.
    """

    def __init__(
        self,
        out: PathLike,
        settings: Mapping[str, Any],
        *,
        resume: bool = False,
        force: bool = False,
    ) -> None:
        self.path, self._out, self._force = _folder_of(out), out, force
        settings = json.loads(json.dumps(settings))
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(self.path))
            check_output(out, resume=resume, force=force)
            record = _read_record(self.path)
            if record is None or force:
                _remove(self.path, but_record=True)
                write_json(Path(self.path, _RECORD), _OURS | {"settings": settings})
            elif listed := differences(record["settings"], settings, "there", "now"):
                raise InputError(
                    f"{self.path} holds vectors of another job: "
                    f"{'; '.join(listed[:_MOST_DIFFERENCES])}. Repeat that job, or start over with "
                    "force."
                )
            self._lock = stack.pop_all()

    @contextlib.contextmanager
    def result(self) -> Iterator[str]:
        """Yield a temporary name for the result, rename it to OUT, and remove the job folder."""
        if os.path.lexists(self._out) and not self._force:
            raise InputError(
                f"{self._out} exists and would be overwritten; finished vectors stay in "
                f"{self.path}. Move {self._out} away, then resume."
            )
        with Outputs([self._out], overwrite=self._force).temporaries() as (temporary,):
            yield temporary
        _remove(self.path)

    def __enter__(self) -> JobFolder:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock, contextlib.suppress(OSError):
            if not os.path.exists(os.path.join(self.path, JOURNAL)):
                _remove(self.path)


def check_output(out: PathLike, *, resume: bool, force: bool) -> None:
    """Require that a job loses neither OUT nor an interrupted job. With `resume`, OUT may be the
    complete result."""
    folder = _folder_of(out)
    if os.path.lexists(folder) and _read_record(folder) is not None and not (resume or force):
        raise InputError(
            f"{folder} was left by an interrupted job: resume continues it, force starts over."
        )
    if os.path.lexists(out) and not (resume or force):
        raise overwritten(out, allowed_by="force")


def remove_job(out: PathLike, settings: Mapping[str, Any]) -> None:
    """Remove the folder of a job whose result is complete, if a kill left it. The folder of
    another job stays."""
    folder = _folder_of(out)
    if os.path.lexists(folder):
        with _locked(folder):
            record = _read_record(folder)
            if record is not None and record["settings"] == json.loads(json.dumps(settings)):
                _remove(folder)


def _folder_of(out: PathLike) -> str:
    return f"{os.fspath(out)}.partial"


def _remove(folder: str, but_record: bool = False) -> None:
    """Remove our files, the journal first; releasing the lock removes the folder."""
    for name in (JOURNAL, VECTORS, *([] if but_record else [_RECORD])):
        for path in (name, *glob.glob(f".*.tmp.{name}", root_dir=folder)):  # left by kills
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(folder, path))


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Create a folder if it is missing, and lock it for the block; then remove it if empty."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _read_record(folder)  # raises unless the folder is ours
    try:
        with locked(Path(folder, _LOCK), f"{folder}: another process is writing there."):
            yield
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _read_record(folder: str) -> dict[str, Any] | None:
    """The record of a folder; None if the folder is empty except for a lock."""
    path = Path(folder, _RECORD)
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        if path.exists():
            record = json.loads(path.read_bytes())
            if {name: record[name] for name in _OURS} == _OURS:
                return {"settings": dict(record["settings"])}
        elif all(name == _LOCK or name.endswith(f".tmp.{_RECORD}") for name in os.listdir(folder)):
            return None
    raise InputError(
        f"{folder} is not a folder of an interrupted job of bilm embed, so it is neither used nor "
        "removed. Move it away, or choose another name for the result."
    )
