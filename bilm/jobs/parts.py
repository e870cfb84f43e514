"""Vectors of a corpus as a folder of Parquet files, one for each part of its text.

A part is computed by whoever has time, and more than once where a machine fails: its file has the
same name, the same rows and the same vectors each time, and appears whole, so that no row can be
there twice or be missing. Until all parts are there, the folder OUT.partial holds

    job.json              what is computed: only the same job is resumed
    parts-TOKEN/          part-000000.parquet and on, which becomes OUT; the token is the job's, so
                          that what is left of an earlier one writes nowhere
    attempts-TOKEN/       of the parts that are being computed: where in them

The rows' ids are the numbers of the lines over all files; which lines a file has is in its schema's
metadata under `bilm.lines`: a JSON list of [file, number of its first line there, lines, id of the
first], the numbers from 0.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bilm.core.errors import InputError
from bilm.data.text_ranges import Part, PartReader
from bilm.files.reading import PathLike, read_json_object, require_name
from bilm.files.writing import atomic_write, require_alone, write_json
from bilm.jobs.arrow import import_pyarrow, parquet_writer, require_row

if TYPE_CHECKING:
    import pyarrow as pa

LINES = "bilm.lines"
"""The key, in the metadata of a file's schema, of the lines that it holds."""

# Rows that are tried again together after an error.
_GROUP_ROWS = 64
# Of a row group of a file.
_ROW_GROUP_BYTES = 32 * 2**20
_FIRST = "part-000000.parquet"


class Embedder(Protocol):
    """What `bilm.jobs.tables.TableEmbedder` is and does."""

    dtype: str

    @property
    def shape(self) -> Sequence[int | None]:
        """The shape of a sentence's vectors."""

    def __call__(self, table: pa.Table) -> pa.Table:
        """The table with vectors."""

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of a stream with vectors."""

    def schema(self, table: pa.Schema) -> pa.Schema:
        """The schema with vectors."""

    def metadata(self) -> dict[str, str]:
        """What the vectors are; loads the model."""


class PartReport(NamedTuple):
    """What became of a part: `error` says which sentence cannot be computed, and why."""

    number: int
    n_bytes: int
    n_tokens: int
    error: str | None = None


class PartJob(NamedTuple):
    """Computes parts and writes them, in any process that sees the folders.

    `parts` and `attempts` are folders; `tries` is how often a sentence may fail, by an error that
    need not come again or by the end of the process; `loads` how often a process may end while it
    loads the model, for one part; `batch_rows` go to the model at a time.
    """

    embedder: Embedder
    parts: str
    attempts: str
    tries: int = 5
    loads: int = 20
    batch_rows: int = 1024

    def path(self, number: int) -> str:
        """The file of a part."""
        return os.path.join(self.parts, f"part-{number:06d}.parquet")

    def schema(self, part: Part) -> pa.Schema:
        """The columns of a part's file, with all metadata. Loads the model."""
        described: Any = {**self.embedder.metadata(), LINES: _lines_of(part)}
        return self.embedder.schema(_text_schema()).with_metadata(described)

    def write(self, part: Part, reader: PartReader) -> PartReport:
        """Compute a part and write its file.

        What a user can mend is in the report; so is a sentence at which processes ended time and
        again, which a file in `attempts` told this one.
        """
        attempt = _Attempt(os.path.join(self.attempts, f"part-{part.number:06d}.json"))
        n_tokens, problem = 0, None
        try:
            n_tokens = self._write(part, reader, attempt)
        except (InputError, OSError) as error:
            problem = f"{error} (on the machine {socket.gethostname()})"
        except _SentenceError as error:
            problem = str(error)
        attempt.remove()
        return PartReport(part.number, part.n_bytes, n_tokens, problem)

    def _write(self, part: Part, reader: PartReader, attempt: _Attempt) -> int:
        """Gives the number of tokens."""
        attempt.begin(_LOADING)
        if attempt.n_ended >= self.loads and attempt.ended_at == _LOADING:
            raise InputError(
                f"the process ended {attempt.n_ended} times while it loaded the model: it may have "
                "no memory for it"
            )
        schema = self.schema(part)
        texts = [line.strip() for line in reader.lines(part)]
        n_tokens = [len(text.split()) for text in texts]
        for row, n in enumerate(n_tokens):
            require_row(n, self.embedder.shape, self.embedder.dtype, _name_of(part, row))
        ids = np.arange(part.first_id, part.first_id + len(texts))
        table = import_pyarrow().table([ids, texts], schema=_text_schema())
        ways = [self._together, self._in_groups]
        if attempt.ended_at not in (None, _LOADING):
            del ways[0]
        for compute in ways:
            try:
                with atomic_write(self.path(part.number)) as path:
                    _write_file(path, schema, compute(table, part, attempt))
                break
            except OSError:  # of the disk
                raise
            except Exception:
                if compute == ways[-1]:
                    raise
        return sum(n_tokens)

    def _together(self, table: pa.Table, part: Part, attempt: _Attempt) -> Iterator[pa.RecordBatch]:
        """The fast way. Which sentence fails is not known, as the model reads ahead."""
        done = 0
        attempt.begin(_Place(0, table.num_rows))
        for batch in self.embedder.batches(iter(table.to_batches(self.batch_rows))):
            yield batch
            done += batch.num_rows
            attempt.begin(_Place(done, table.num_rows - done))

    def _in_groups(
        self, table: pa.Table, part: Part, attempt: _Attempt
    ) -> Iterator[pa.RecordBatch]:
        """The way that finds the sentence that fails."""
        ended_at = attempt.ended_at
        for start in range(0, table.num_rows, _GROUP_ROWS):
            group = table.slice(start, _GROUP_ROWS)
            place = _Place(start, group.num_rows)
            vectors = None
            if ended_at is None or ended_at.n_rows > _GROUP_ROWS or not place.overlaps(ended_at):
                attempt.begin(place)
                # What fails in a group is tried again one by one.
                with contextlib.suppress(Exception):
                    vectors = self.embedder(group)
            if vectors is not None:
                yield from vectors.to_batches()
                continue
            for row in range(start, start + group.num_rows):
                yield from self._alone(table.slice(row, 1), part, row, attempt).to_batches()

    def _alone(self, table: pa.Table, part: Part, row: int, attempt: _Attempt) -> pa.Table:
        place = _Place(row, 1)
        name = _name_of(part, row)
        n_ended = attempt.n_ended if attempt.ended_at == place else 0
        if n_ended >= self.tries:
            raise _SentenceError(
                f"{name}: the process that computed this sentence ended "
                f"{n_ended} times; it may have no memory for it."
            )
        attempt.begin(place)
        reason: Exception | None = None
        for _ in range(self.tries):
            try:
                return self.embedder(table)
            except InputError as error:
                raise _SentenceError(f"{name}: {error}") from error
            except Exception as error:
                reason = error
        raise _SentenceError(
            f"{name}: failed {self.tries} times: {type(reason).__name__}: {reason}"
        ) from reason


class _SentenceError(Exception):
    """A sentence cannot be computed; the message names it."""


class _Place(NamedTuple):
    """Rows of a part; none of them while the model is loaded."""

    row: int
    n_rows: int

    def overlaps(self, other: _Place) -> bool:
        return self.row < other.row + other.n_rows and other.row < self.row + self.n_rows


_LOADING = _Place(0, 0)


class _Attempt:
    """A file that says where in a part a process is, for the one that comes after it if it ends.

    Attributes:
        ended_at: where the process before this one was; None if there was none.
        n_ended: how many processes ended there, one after the other.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.ended_at: _Place | None = None
        self.n_ended = 0
        with contextlib.suppress(FileNotFoundError, InputError):
            left = read_json_object(path)
            self.ended_at = _Place(left["row"], left["n_rows"])
            self.n_ended = left["n_ended"] + 1

    def begin(self, place: _Place) -> None:
        n_ended = self.n_ended if place == self.ended_at else 0
        write_json(self._path, {**place._asdict(), "n_ended": n_ended})

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path)


def _name_of(part: Part, row: int) -> str:
    """For messages, in which lines count from 1."""
    path, line = part.place(row)
    return f"{path}, line {line + 1}"


def _text_schema() -> pa.Schema:
    arrow = import_pyarrow()
    return arrow.schema([("id", arrow.int64()), ("text", arrow.string())])


def _lines_of(part: Part) -> str:
    lines = [[piece.path, piece.line, piece.n_lines, piece.id] for piece in part.pieces]
    return json.dumps(lines, ensure_ascii=False)


def _write_file(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """A Parquet file, as `bilm.jobs.arrow.write_parquet` has them."""
    with parquet_writer(path, schema) as writer:
        group: list[pa.RecordBatch] = []
        n_bytes = 0
        for batch in batches:
            group.append(batch)
            n_bytes += batch.nbytes
            if n_bytes >= _ROW_GROUP_BYTES:
                _write_group(writer, group, schema)
                group, n_bytes = [], 0
        _write_group(writer, group, schema)


def _write_group(writer: Any, group: list[pa.RecordBatch], schema: pa.Schema) -> None:
    if group:
        table = import_pyarrow().Table.from_batches(
            [batch.replace_schema_metadata(schema.metadata) for batch in group], schema
        )
        writer.write_table(table, row_group_size=table.num_rows)


class PartsFolder:
    """The folder of a job while it lasts, and what has been done in it. A context manager, which
    lets no other process work there.

    Args:
        out: the folder to write; one that is empty may be there.
        settings: what is computed, fit for JSON; "files" says for each file what was read.
        resume: go on with what an interrupted job has left, if there is something.
        force: discard it, and replace a folder of such files at the end.

    Raises:
        InputError: as `require_free`; what was left is of another job; or another process works
            there.
    """

    def __init__(
        self, out: PathLike, settings: Mapping[str, Any], *, resume: bool = False,
        force: bool = False,
    ) -> None:  # fmt: skip
        require_free(out, resume=resume, force=force)
        self.out = _plain(out)
        self.folder = f"{self.out}.partial"
        os.makedirs(self.folder, exist_ok=True)
        self._lock = open(os.path.join(self.folder, "lock"), "a")  # noqa: SIM115
        try:
            require_alone(self._lock, self.folder)
            self._open(dict(settings), resume, force)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, settings: dict[str, Any], resume: bool, force: bool) -> None:
        record = os.path.join(self.folder, "job.json")
        if resume and os.path.exists(record):
            left = read_json_object(record)
            self._require_same(left["settings"], settings)
            self.token, self._replaces = left["token"], left["replaces"]
            if _is_filled(self.out) and not self._replaces:
                raise InputError(f"The folder {self.out!r} is there now; it would be overwritten.")
        else:
            self._clear()
            self.token, self._replaces = uuid.uuid4().hex[:8], force
        self.parts, self.attempts = (
            os.path.join(self.folder, f"{kind}-{self.token}") for kind in ("parts", "attempts")
        )
        # Whoever resumes tries again what has failed.
        shutil.rmtree(self.attempts, ignore_errors=True)
        os.makedirs(self.parts, exist_ok=True)
        os.makedirs(self.attempts)
        if not os.path.exists(record):
            job = {"settings": settings, "token": self.token, "replaces": self._replaces}
            write_json(record, job)

    def _clear(self) -> None:
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif name != "lock":
                os.remove(path)

    def _require_same(self, left: dict[str, Any], settings: dict[str, Any]) -> None:
        settings = json.loads(json.dumps(settings))
        names = sorted({*left, *settings} - {"files"})
        listed = [
            f"{name} {left.get(name)}, not {settings.get(name)}"
            for name in names
            if left.get(name) != settings.get(name)
        ]
        then, now = left["files"], settings["files"]
        files = sorted(path for path in {**then, **now} if then.get(path) != now.get(path))
        if files:
            kinds = {(True, False): "is not read now", (False, True): "was not read then"}
            kind = kinds.get((files[0] in then, files[0] in now), "has changed since")
            more = f" ({len(files)} files differ)" if len(files) > 1 else ""
            listed.append(f"{files[0]} {kind}{more}")
        if listed:
            raise InputError(f"{self.folder}: holds vectors of another job: {'; '.join(listed)}.")

    def missing(self, parts: Sequence[Part], job: PartJob) -> list[Part]:
        """The parts without a whole file. Of the others, what is there under their names goes; so
        does all else in the folder."""
        found = set(os.listdir(self.parts))
        missing = []
        for part in parts:
            path = job.path(part.number)
            name = os.path.basename(path)
            if name in found and _is_whole(path, part, job.schema(part)):
                found.remove(name)
            else:
                missing.append(part)
        for name in found:
            os.remove(os.path.join(self.parts, name))
        return missing

    def finish(self) -> None:
        """Give the folder its name, once there is a file for each part.

        Raises:
            InputError: a folder has that name that was not to be replaced.
        """
        if _is_filled(self.out):
            if not self._replaces:
                raise InputError(
                    f"The folder {self.out!r} is there now; the vectors stay in {self.parts}."
                )
            os.replace(self.out, os.path.join(self.folder, f"replaced-{uuid.uuid4().hex[:8]}"))
        os.replace(self.parts, self.out)
        shutil.rmtree(self.folder)

    def __enter__(self) -> PartsFolder:
        return self

    def __exit__(self, *_: object) -> None:
        """Of a job that has done nothing yet, nothing is left."""
        with contextlib.suppress(FileNotFoundError):
            if not any(name.endswith(".parquet") for name in os.listdir(self.parts)):
                shutil.rmtree(self.folder)
        self._lock.close()


def _is_whole(path: str, part: Part, schema: pa.Schema) -> bool:
    """Whether a file has all rows of a part: one that is cut off has no end that says so."""
    parquet, arrow = import_pyarrow("pyarrow.parquet"), import_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            found, n_rows = file.schema_arrow, file.metadata.num_rows
    except (OSError, arrow.ArrowException):
        return False
    # The metadata says of which lines, and all that the vectors depend on.
    return n_rows == part.n_lines and found.metadata == schema.metadata


def _plain(out: PathLike) -> str:
    return require_name(out).rstrip(os.sep) or os.sep


def _is_filled(folder: str) -> bool:
    return os.path.isdir(folder) and bool(os.listdir(folder))


def is_complete(out: PathLike) -> bool:
    """Whether a job is over that wrote this folder: nothing is left to resume."""
    out = _plain(out)
    partial = f"{out}.partial"
    is_left = os.path.isdir(partial) and any(n.startswith("parts-") for n in os.listdir(partial))
    return os.path.isfile(os.path.join(out, _FIRST)) and not is_left


def remove_rest(out: PathLike) -> None:
    """Remove what a job has left that was killed when its folder was complete."""
    shutil.rmtree(f"{_plain(out)}.partial", ignore_errors=True)


def require_free(out: PathLike, *, resume: bool, force: bool) -> None:
    """Check that a folder of parts can be written.

    Raises:
        FileNotFoundError: the folder that it is to be in does not exist.
        InputError: there is something of this name, or something was left by an interrupted job,
            and neither `resume` nor `force` says what to do.
    """
    out = _plain(out)
    if "://" in out:
        raise InputError(f"{out}: a folder that all machines see is expected, not an address.")
    above = os.path.dirname(out)
    if above and not os.path.isdir(above):
        raise FileNotFoundError(f"The folder {above!r} to write {out!r} into does not exist.")
    if os.path.lexists(out) and not os.path.isdir(out):
        raise InputError(f"{out!r} is a file; a folder is to be written there.")
    if _is_filled(out) and not (resume and os.path.isdir(f"{out}.partial")):
        if not force:
            raise InputError(
                f"The folder {out!r} is there already; it would be overwritten: force allows it."
            )
        if not os.path.isfile(os.path.join(out, _FIRST)):
            raise InputError(f"The folder {out!r} holds no {_FIRST}; it is not replaced.")
    if os.path.isdir(f"{out}.partial") and not (resume or force):
        raise InputError(
            f"{out}.partial was left by an interrupted job: to resume continues it, to "
            "force begins anew."
        )


def find_line(folder: PathLike, row_id: int) -> tuple[str, int]:
    """The file and the line that a row was made of.

    Args:
        folder: of Parquet files, as `bilm.jobs.ray_data.embed` writes it.
        row_id: of a row, its column `id`.

    Returns:
        the file's name as it was given, and the number of the line, from 0.

    Raises:
        FileNotFoundError, InputError: it is not such a folder, or has no such row.
    """
    folder = os.fspath(folder)
    if not os.path.isfile(os.path.join(folder, _FIRST)):
        raise FileNotFoundError(f"The folder {folder!r} holds no {_FIRST}.")
    paths = sorted(
        (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".parquet")),
        key=lambda path: (len(path), path),
    )

    def first_id(path: str) -> int:
        return min((first for *_, first in _lines_in(path)), default=0)

    number = max(bisect.bisect_right(paths, row_id, key=first_id) - 1, 0)
    for text, line, n_lines, first in _lines_in(paths[number]):
        if 0 <= row_id - first < n_lines:
            return text, line + row_id - first
    raise InputError(f"{folder}: has no row of the id {row_id}.")


def _lines_in(path: str) -> list[tuple[str, int, int, int]]:
    metadata = import_pyarrow("pyarrow.parquet").read_schema(path).metadata or {}
    if LINES.encode() not in metadata:
        raise InputError(f"{path}: has no {LINES} in its metadata.")
    return [tuple(entry) for entry in json.loads(metadata[LINES.encode()])]
