"""Vectors of corpora on Ray: workers on one machine or many, each with its own model.

    from bilm.vectors.ray import embed
    from bilm.vectors.tables import TableEmbedder

    embed("text/*.txt", "vectors", TableEmbedder("elmo", pooling="mean"), workers=2)

The text is divided into ranges of lines, see `bilm.data.text_ranges`. A worker, which is an actor,
reads a range, computes it and writes a Parquet file. So vectors, hundreds of times as large as
their text, do not go through Ray's object store, and a range computed twice gives the same
file. Workers and this process must see the text, the model and OUT under the same names.

A row's id is the number of its line over all files. The metadata of a file's schema has its lines
under `bilm.lines`: a JSON list of [file, number of the first line there, lines, id of the first],
all 0-based.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import glob
import itertools
import json
import logging
import os
import re
import socket
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, integer, require, require_at_least
from bilm.data.processes import n_processors
from bilm.data.text_ranges import RangeReader, TextRange, find_ranges
from bilm.extras import import_extra
from bilm.files.reading import PathLike, ShowStage, Stage, find_all_files, quiet, require_path
from bilm.files.writing import atomic_write
from bilm.vectors.arrow import import_pyarrow, parquet_writer
from bilm.vectors.job_folder import JobFolder, check_output

if TYPE_CHECKING:
    from bilm.vectors.tables import TableEmbedder

__all__ = ["EmbeddedFolder", "RangeWriter", "embed", "find_line"]

_LINES = "bilm.lines"
_PART = re.compile(r"part-\d{6,}\.parquet")
_ROW_GROUP_BYTES = 32 * 2**20
# For a local instance; only small objects go through it.
_OBJECT_STORE_BYTES = 128 * 2**20
# Attempts per range, for errors that may not recur, such as the death of its worker.
_TRIES = 3
_CONNECT_SECONDS = 10.0


class EmbeddedFolder(NamedTuple):
    """The result of a job: its sentences and files, and how many files were taken over from an
    interrupted job; all 0 if the folder was already complete."""

    n_sentences: int
    n_files: int
    n_left: int


def embed(
    texts: PathLike | Sequence[PathLike],
    out: PathLike,
    embedder: TableEmbedder,
    *,
    workers: int,
    address: str | None = None,
    resume: bool = False,
    force: bool = False,
    part_bytes: int | None = None,
    show: ShowStage = quiet,
) -> EmbeddedFolder:
    """Write the vectors of text files as a folder of Parquet files.

    One row per line, with the columns `id` (int64), `text` and the vector columns; the id is the
    line number over all files in the order of their names (`find_line`). The folder appears when it
    is complete. After a crash the same call with `resume` continues, with any number of workers.

    Args:
        texts: files or globs: UTF-8, one sentence per line, plain, .gz or .xz.
        out: the folder to write, on a disk that all workers see.
        embedder: its `threads`, or 1, are also the CPUs that Ray reserves for a worker; its
            `text_column` is ignored.
        workers: processes that compute, each with a model in its memory.
        address: address of a Ray cluster; None: the variable RAY_ADDRESS, or Ray is started on this
            machine and ended again. If this process has called `ray.init`, that Ray is used.
        resume: continue an interrupted call if there is one; if OUT exists, do nothing.
        force: replace OUT if it holds only such files, and discard an interrupted call.
        part_bytes: approximate text per file of the result; None: by the size of the texts.
        show: called with the progress.

    Raises:
        FileNotFoundError: no file matches, or the model does not exist.
        ConnectionError: no Ray cluster answers at the address.
        InputError: a text is not UTF-8 or changes; a sentence has no vectors (file and line); there
            are too few CPUs; OUT exists; the interrupted job differs; Ray is not installed.
    """
    require(integer(), workers=workers)
    require_at_least(1, part_bytes=part_bytes)
    ray = _ray()
    if "://" in require_path(out):
        raise InputError(f"out must be a folder that all machines see, got the address {out}.")
    if check_output(out, resume=resume, force=force):
        return EmbeddedFolder(0, 0, 0)
    if force:
        _require_parts_only(os.fspath(out))
    files = find_all_files(texts)
    _ = embedder.shape  # raises if the model does not exist
    cpus = embedder.threads or 1
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local" and not ray.is_initialized():
        _require_cpus(workers, cpus, [n_processors()], "this machine has")
    ranges = find_ranges(files, part_bytes, show)
    n_sentences = sum(text_range.n_lines for text_range in ranges)
    settings = {
        **embedder.settings(),
        "fixed_size": embedder.fixed_size,
        "ranges": len(ranges),
        "files": _described(ranges),
    }
    with JobFolder(out, settings, resume=resume, force=force) as folder:
        if folder.is_over:
            return EmbeddedFolder(n_sentences, len(ranges), len(ranges))
        embedder = copy.copy(embedder)
        embedder.threads, embedder.text_column = cpus, "text"
        arguments = embedder, os.path.abspath(folder.pieces_folder), os.getcwd()
        writer = RangeWriter(*arguments)
        missing = [one for one in ranges if not writer.is_done(one)]
        if missing:
            with _connected(workers, cpus, address):
                actor_class = ray.remote(RangeWriter).options(num_cpus=cpus)
                actors = (actor_class.remote(*arguments) for _ in itertools.count())
                _compute(missing, sum(r.n_bytes for r in ranges), actors, workers, show)
        for name in os.listdir(folder.pieces_folder):
            if not _PART.fullmatch(name):  # a temporary file
                os.remove(os.path.join(folder.pieces_folder, name))
        folder.rename_pieces()
    return EmbeddedFolder(n_sentences, len(ranges), len(ranges) - len(missing))


def _require_parts_only(out: str) -> None:
    """Require that a folder to be replaced holds only files of such a job."""
    is_folder = os.path.isdir(out) and not os.path.islink(out)
    found = os.listdir(out) if is_folder else [out] if os.path.lexists(out) else []
    others = sorted(name for name in found if not _PART.fullmatch(name))
    if others:
        raise InputError(
            f"{out} is replaced only if it holds nothing but part-*.parquet, got {others[0]}."
        )


def _described(ranges: Sequence[TextRange]) -> dict[str, str]:
    """The number of lines of each file, and a checksum of its text and of how it is divided."""
    parts = (part for text_range in ranges for part in text_range.parts)
    files = {path: [*own] for path, own in itertools.groupby(parts, lambda part: part.path)}
    return {
        path: f"{sum(part.n_lines for part in own)} lines, {zlib.crc32(repr(own).encode()):08x}"
        for path, own in files.items()
    }


class RangeWriter:
    """Computes ranges and writes their files into a folder, in any process that sees it: an actor.
    `text_folder` is the folder of texts with relative names."""

    def __init__(self, embedder: TableEmbedder, folder: str, text_folder: PathLike = "") -> None:
        self._embedder, self._folder = embedder, folder
        self._reader = RangeReader(text_folder)

    def path(self, text_range: TextRange) -> str:
        """The file of a range."""
        return os.path.join(self._folder, f"part-{text_range.number:06d}.parquet")

    def is_done(self, text_range: TextRange) -> bool:
        """Whether a range has its file, with all lines."""
        parquet, arrow = import_pyarrow("pyarrow.parquet"), import_pyarrow()
        try:
            with parquet.ParquetFile(self.path(text_range)) as file:
                return bool(file.metadata.num_rows == text_range.n_lines)
        except (OSError, arrow.ArrowException):
            return False

    def write(self, text_range: TextRange) -> None:
        """Compute a range and write its file; errors of the disk name the machine."""
        try:
            self._write(text_range)
        except OSError as error:
            raise InputError(f"{error} (on the machine {socket.gethostname()})") from error

    def _write(self, text_range: TextRange) -> None:
        arrow, embedder = import_pyarrow(), self._embedder
        columns = arrow.schema([("id", arrow.int64()), ("text", arrow.string())])
        lines = [[part.path, part.line, part.n_lines, part.id] for part in text_range.parts]
        metadata = embedder.metadata() | {_LINES: json.dumps(lines, ensure_ascii=False)}
        schema = embedder.schema(columns).with_metadata(metadata)
        texts = [line.strip() for line in self._reader.lines(text_range)]
        for row, text in enumerate(texts):
            path, line = text_range.file_and_line(row)
            embedder.check_row(text, f"{path}, line {line + 1}")
        ids = np.arange(text_range.first_id, text_range.first_id + len(texts))
        rows = arrow.RecordBatch.from_pydict({"id": ids, "text": texts}, columns)
        try:
            with atomic_write(self.path(text_range)) as path, parquet_writer(path, schema) as file:
                for batch in embedder.batches(iter([rows]), _ROW_GROUP_BYTES):
                    file.write_batch(batch.replace_schema_metadata(schema.metadata))
        except InputError as error:
            raise InputError(f"{text_range}: {error}") from error


def _compute(
    ranges: Sequence[TextRange], total: int, actors: Iterator[Any], workers: int, show: ShowStage
) -> None:
    """Let actors compute ranges; `total` is the bytes of all text."""
    ray = _ray()
    waiting, failures = deque(ranges), Counter[TextRange]()
    busy: dict[Any, tuple[Any, TextRange]] = {}  # pending results -> (actor, range)
    done = total - sum(text_range.n_bytes for text_range in ranges)

    def give_range(actor: Any) -> None:
        text_range = waiting.popleft()
        busy[actor.write.remote(text_range)] = actor, text_range

    try:
        for actor in itertools.islice(actors, min(workers, len(ranges))):
            give_range(actor)
        while busy:
            show(Stage("embedding", done, total))
            (result,), _ = ray.wait(list(busy), num_returns=1)
            actor, text_range = busy[result]
            try:
                ray.get(result)
                done += text_range.n_bytes
            except Exception as error:
                if isinstance(getattr(error, "cause", None), InputError):
                    raise error.cause from None  # type: ignore[attr-defined]
                failures[text_range] += 1
                if failures[text_range] == _TRIES:
                    raise InputError(
                        f"{text_range}: failed {_TRIES} times; a machine may have too little "
                        f"memory. The last error: {_shortened(error)}"
                    ) from error
                ray.kill(actor)
                actor = next(actors)
                waiting.appendleft(text_range)
            del busy[result]
            if waiting:
                give_range(actor)
            else:
                ray.kill(actor)  # its CPUs may be those that another one waits for
        show(Stage("embedding", done, total))
    finally:
        for actor, _ in busy.values():
            with contextlib.suppress(Exception):
                ray.kill(actor)


def _shortened(error: Exception) -> str:
    """The type of an error, and the last line of its message, which can be pages long."""
    lines = re.sub(r"\x1b\[\d+m", "", str(error)).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1].strip()[-500:]}"


def _require_cpus(workers: int, cpus: int, machines: Sequence[float], have: str) -> None:
    """Ray silently waits for CPUs that do not exist."""
    most = sum(int(n // cpus) for n in machines)
    if most < workers:
        listed = " + ".join(f"{n:g}" for n in machines) or "no"
        raise InputError(
            f"workers must be at most {most}, got {workers}: {have} {listed} CPUs, and a worker "
            f"needs {cpus}."
        )


@contextlib.contextmanager
def _connected(workers: int, cpus: int, address: str) -> Iterator[None]:
    """Connect to Ray or start it, unless this process already has; disconnect afterwards."""
    ray = _ray()
    with contextlib.ExitStack() as stack:
        if not ray.is_initialized():
            settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if address == "local":
                settings |= {"num_cpus": workers * cpus, "include_dashboard": False}
                settings["object_store_memory"] = _OBJECT_STORE_BYTES
            else:
                _require_listener(address)
            ray.init(address, **settings)
            stack.callback(ray.shutdown)
        alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        _require_cpus(workers, cpus, alive, "Ray's machines have")
        yield


def _require_listener(address: str) -> None:
    """Ray tries for minutes to reach an address where nothing listens."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():  # "auto" and the like
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"--address: no Ray cluster answers at {address} within {_CONNECT_SECONDS:g} seconds: "
            f"{error}."
        ) from error


def _ray() -> Any:
    return import_extra("ray", "a corpus on Ray")


def find_line(folder: PathLike, row_id: int) -> tuple[str, int]:
    """The file and the 0-based line of the row `row_id` in a folder that `embed` wrote.

    Raises:
        FileNotFoundError, InputError: the folder is not such a folder, a file is damaged, or the
            row does not exist.
    """
    folder = os.fspath(folder)
    paths = sorted(glob.glob(f"{glob.escape(folder)}/part-*.parquet"), key=lambda p: (len(p), p))
    if not paths:
        raise FileNotFoundError(f"The folder {folder!r} has no part-000000.parquet.")

    def first_id(path: str) -> int:
        return min((first for *_, first in _lines_in(path)), default=0)

    number = bisect.bisect_right(paths, row_id, key=first_id) - 1
    for path, line, n_lines, first in _lines_in(paths[number]):
        if 0 <= row_id - first < n_lines:
            return path, line + row_id - first
    raise InputError(f"{folder} has no row with the id {row_id}.")


def _lines_in(path: str) -> list[tuple[str, int, int, int]]:
    arrow = import_pyarrow()
    try:
        metadata = import_pyarrow("pyarrow.parquet").read_schema(path).metadata
        return [(name, a, b, c) for name, a, b, c in json.loads(metadata[_LINES.encode()])]
    except (OSError, arrow.ArrowException, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a Parquet file with {_LINES} in its metadata, or is damaged: {error!r}"
        ) from error
