"""The folder OUT.partial: the finished pieces of an unfinished job.

    lock                held by the process that works here
    job.json            record: program, format, settings (only the same job is resumed), and the
                        identities of an earlier OUT that it may replace and of its result
    pieces-XXXXXXXX/    finished pieces; XXXXXXXX is a checksum of the settings, so that a worker
                        of an earlier job cannot write here

A piece gets its name only when complete, so all named pieces are usable even if the program was
killed. A folder without this record is neither used nor removed.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bilm.core.errors import InputError, differences
from bilm.files.locks import locked
from bilm.files.reading import PathLike, require_path
from bilm.files.writing import Outputs, overwritten, write_json

_LOCK, _RECORD = "lock", "job.json"
_OURS: dict[str, Any] = {"program": "bilm embed", "format": 2}
_MOST_DIFFERENCES = 6  # in a message


class JobFolder:
    """The folder of a job, locked against other processes; a context manager.

    A folder without finished pieces is removed at the end of the block. `settings`, for JSON,
    determine the result. `resume` continues an interrupted job if there is one; `force` discards
    it, and lets the result replace OUT.

    Attributes:
        pieces_folder: path of the folder of pieces.
        is_over: OUT is complete and the pieces are removed; there is nothing to do.
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
        self._record = dict(_OURS)
        content = json.dumps(settings, sort_keys=True)
        self.pieces_folder = os.path.join(
            self._folder, f"pieces-{zlib.crc32(content.encode()):08x}"
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(_locked(self._folder))
            self._open(json.loads(content), resume, force)
            self._lock = stack.pop_all()

    def _open(self, settings: dict[str, Any], resume: bool, force: bool) -> None:
        record = _read_record(self._folder)
        _require_free(self.out, self._folder, record, resume=resume, force=force)
        if record is None or force:
            # Write the record first, so a program killed here leaves a folder recognised as ours.
            self._save_record(
                settings=settings, replaces=_identity(self.out) if force else None, result=None
            )
            self._remove_folders()
        else:
            listed = differences(record["settings"], settings, "there", "now")
            if listed:
                raise InputError(
                    f"{self._folder} holds vectors of another job: "
                    f"{'; '.join(listed[:_MOST_DIFFERENCES])}. Repeat that job, or start over with "
                    "--force."
                )
            self._record = record
        # Unless OUT was moved away or replaced since.
        self.is_over = _is_taken(self.out) and _identity(self.out) == self._record["result"]
        if not self.is_over:
            os.makedirs(self.pieces_folder, exist_ok=True)

    def _save_record(self, **changes: Any) -> None:
        self._record |= changes
        write_json(os.path.join(self._folder, _RECORD), self._record)

    @contextlib.contextmanager
    def result(self) -> Iterator[str]:
        """Yield a temporary name for the result, rename it to OUT, and remove the job folder."""
        with self._outputs().temporaries() as (temporary,):
            yield temporary
            self._save_record(result=_identity(temporary))
        self._remove()

    def rename_pieces(self) -> None:
        """Rename the folder of pieces to OUT and remove the job folder and an earlier OUT."""
        self._outputs()
        self._save_record(result=_identity(self.pieces_folder))
        if _is_taken(self.out):
            os.replace(self.out, self._removed())
        os.replace(self.pieces_folder, self.out)
        self._remove()

    def _outputs(self) -> Outputs:
        """OUT as an output, after checking that it may be written or replaced."""
        _require_free(self.out, self._folder, self._record, resume=True, force=False)
        is_folder = os.path.isdir(self.out)
        return Outputs([] if is_folder else [self.out], overwrite=_is_taken(self.out))

    def _remove(self) -> None:
        """Remove the pieces, then the record; releasing the lock removes the folder."""
        self._remove_folders()
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._folder, _RECORD))

    def _remove_folders(self) -> None:
        for path in glob.glob("pieces-*", root_dir=self._folder):  # atomically
            os.replace(os.path.join(self._folder, path), self._removed())
        for path in glob.glob("removed-*", root_dir=self._folder):
            shutil.rmtree(os.path.join(self._folder, path))
        for path in glob.glob(
            f".*.{_RECORD}", root_dir=self._folder
        ):  # left by a killed `write_json`
            os.remove(os.path.join(self._folder, path))

    def _removed(self) -> str:
        """A name for a folder to be removed."""
        return os.path.join(self._folder, f"removed-{uuid.uuid4().hex[:8]}")

    def __enter__(self) -> JobFolder:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock, contextlib.suppress(OSError):
            # Temporary files of dead processes are hidden.
            is_empty = os.path.isdir(self.pieces_folder) and not glob.glob(
                "*", root_dir=self.pieces_folder
            )
            if self.is_over or is_empty:
                self._remove()


def check_output(out: PathLike, *, resume: bool, force: bool) -> bool:
    """Check before the work that a job can write OUT; return True if it resumes and OUT is
    complete."""
    out, folder = _names(out)
    parent = os.path.dirname(out)
    if parent and not os.path.isdir(parent):
        raise FileNotFoundError(f"The folder {parent!r} to write {out!r} into does not exist.")
    record = _read_record(folder) if os.path.lexists(folder) else None
    if resume and record is None and _is_taken(out):
        if os.path.lexists(folder):  # a job was killed when only its lock remained
            with contextlib.suppress(InputError, OSError), _locked(folder):
                pass
        return True
    _require_free(out, folder, record, resume=resume, force=force)
    return False


def _require_free(
    out: str, folder: str, record: Mapping[str, Any] | None, *, resume: bool, force: bool
) -> None:
    """Require that the job loses neither OUT nor an interrupted job."""
    if record is not None and not (resume or force):
        raise InputError(
            f"{folder} was left by an interrupted job: --resume continues it, --force starts over."
        )
    replaceable = [] if record is None else [record["replaces"], record["result"]]
    if force or not _is_taken(out) or _identity(out) in replaceable:
        return
    if record is None:
        raise overwritten(out, allowed_by="--force")
    raise InputError(
        f"{out} exists and would be overwritten; finished vectors stay in {folder}. Move {out} "
        "away, then --resume."
    )


def _names(out: PathLike) -> tuple[str, str]:
    out = require_path(out).rstrip(os.sep) or os.sep
    return out, f"{out}.partial"


def _is_taken(out: str) -> bool:
    """Whether the name exists; an empty folder does not count."""
    is_empty = os.path.isdir(out) and not os.path.islink(out) and not os.listdir(out)
    return os.path.lexists(out) and not is_empty


def _identity(path: str) -> list[int] | None:
    """Numbers that distinguish a file or folder from a later one at the same path."""
    if not os.path.lexists(path):
        return None
    stat = os.stat(path)
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Create a folder if it is missing, and lock it for the block; then remove it if empty."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _read_record(folder)  # raises unless the folder is ours
    try:
        with locked(Path(folder, _LOCK), "is writing there"):
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
                settings = dict(record["settings"])
                return (
                    record
                    | {name: record[name] for name in ("replaces", "result")}
                    | {"settings": settings}
                )
        elif all(name == _LOCK or name.endswith(f".tmp.{_RECORD}") for name in os.listdir(folder)):
            return None
    raise InputError(
        f"{folder} is not a folder of an interrupted job of bilm embed, so it is neither used nor "
        "removed. Move it away, or choose another name for the result."
    )
