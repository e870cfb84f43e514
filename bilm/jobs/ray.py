"""Vectors of corpora on Ray: workers on one machine or many, each with its own model.

    from bilm.jobs.ray import embed
    from bilm.jobs.tables import TableEmbedder

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

from bilm.core.errors import InputError, integer, require
from bilm.data.counting import n_processors
from bilm.data.text_ranges import FileLines, RangeReader, TextRange, find_ranges
from bilm.extras import import_extra
from bilm.files.reading import PathLike, ShowStage, Stage, find_all_files, quiet, require_path
from bilm.jobs.arrow import import_pyarrow, parquet_writer
from bilm.jobs.job_folder import JobFolder, check_output, is_complete, writing_piece

if TYPE_CHECKING:
    import pyarrow as pa

    from bilm.jobs.tables import TableEmbedder

__all__ = ["EmbeddedFolder", "RangeWriter", "embed", "find_line"]

_NEEDED_BY = "a corpus on Ray"
_LINES = "bilm.lines"
_PART = re.compile(r"part-\d{6,}\.parquet")
_FIRST = "part-000000.parquet"
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

    The rows have the columns `id` (int64), `text` and the vector columns. A row is a line; its id
    is the line number over all files in the order of their names, and `find_line` returns its file
    and line. The folder appears when it is complete. After a crash the same call with `resume`
    continues, with any number of workers.

    Args:
        texts: files or globs: UTF-8, one sentence per line, plain, .gz or .xz.
        out: the folder to write, on a disk that all workers see.
        embedder: its column of text is "text". Its `threads`, or 1, are also the CPUs that Ray
            reserves for a worker.
        workers: processes that compute, each with a model in its memory.
        address: address of a Ray cluster; None: the variable RAY_ADDRESS, or Ray is started on this
            machine and ended again. If this process has called `ray.init`, that Ray is used.
        resume: continue an interrupted call if there is one; if OUT exists, do nothing.
        force: replace OUT if it holds only such files, and discard an interrupted call.
        part_bytes: approximate size of the text in a file of the result; None: chosen by the size
            of the texts.
        show: called with the progress.

    Raises:
        FileNotFoundError: no file matches, or the model does not exist.
        ConnectionError: no Ray cluster answers at the address.
        InputError: a text is not UTF-8, or changes during the job; a sentence has no vectors, or
            could not be computed (file, lines, reason); there are fewer CPUs than the workers need;
            OUT exists; the interrupted job differs; Ray is not installed.
    """
    require(integer(), workers=workers)
    if part_bytes is not None:
        require(integer(), part_bytes=part_bytes)
    import_extra("ray", _NEEDED_BY)
    if "://" in require_path(out):
        raise InputError(f"out must be a folder that all machines see, got the address {out}.")
    if resume and is_complete(out):
        return EmbeddedFolder(0, 0, 0)
    check_output(out, resume=resume, force=force)
    if force:
        _require_parts_only(os.fspath(out))
    files = find_all_files(texts)
    _ = embedder.shape  # raises if the model does not exist
    if embedder.text_column != "text":
        raise InputError(f"text_column must be 'text', got {embedder.text_column!r}.")
    cluster = _Cluster(workers, embedder.threads or 1, address)
    cluster.require_local_cpus()
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
            folder.remove()
            return EmbeddedFolder(n_sentences, len(ranges), len(ranges))
        embedder = copy.copy(embedder)
        embedder.threads = cluster.cpus
        writer = RangeWriter(embedder, os.path.abspath(folder.pieces))
        missing = [text_range for text_range in ranges if not writer.is_done(text_range)]
        if missing:
            with cluster.connected():
                _compute(missing, sum(r.n_bytes for r in ranges), writer, cluster, show)
        wanted = {os.path.basename(writer.path(text_range)) for text_range in ranges}
        for name in set(os.listdir(folder.pieces)) - wanted:  # such as temporary files
            os.remove(os.path.join(folder.pieces, name))
        if force:
            _require_parts_only(folder.out)
        with folder.finishing():
            folder.rename_pieces()
    return EmbeddedFolder(n_sentences, len(ranges), len(ranges) - len(missing))


def _require_parts_only(out: str) -> None:
    """Require that a folder to be replaced holds only files of such a job."""
    if not os.path.lexists(out):
        return
    if os.path.islink(out) or not os.path.isdir(out):
        raise InputError(f"{out} must be a folder or a new name, got a file or a link.")
    others = sorted(name for name in os.listdir(out) if not _PART.fullmatch(name))
    if others:
        raise InputError(
            f"{out} is replaced only if it holds nothing but part-*.parquet; it holds {others[0]}."
        )


def _described(ranges: Sequence[TextRange]) -> dict[str, str]:
    """The number of lines of each file, and a checksum of its text."""
    parts: dict[str, list[FileLines]] = {}
    for text_range in ranges:
        for part in text_range.parts:
            parts.setdefault(part.path, []).append(part)
    return {
        path: f"{sum(part.n_lines for part in of_file)} lines, "
        f"{zlib.crc32(b''.join(part.checksum.to_bytes(4, 'big') for part in of_file)):08x}"
        for path, of_file in parts.items()
    }


class RangeWriter(NamedTuple):
    """Computes ranges and writes their files, in any process that sees the folder."""

    embedder: TableEmbedder
    folder: str

    def path(self, text_range: TextRange) -> str:
        """The file of a range."""
        return os.path.join(self.folder, f"part-{text_range.number:06d}.parquet")

    def is_done(self, text_range: TextRange) -> bool:
        """Whether a range has its file, complete and of the same lines and settings."""
        parquet, arrow = import_pyarrow("pyarrow.parquet"), import_pyarrow()
        path = self.path(text_range)
        try:
            with parquet.ParquetFile(path) as file:
                found, n_rows = file.schema_arrow.metadata, file.metadata.num_rows
        except (OSError, arrow.ArrowException):  # a file that is cut off has no footer
            return False
        return n_rows == text_range.n_lines and found == self._schema(text_range).metadata

    def write(self, text_range: TextRange, reader: RangeReader) -> None:
        """Compute a range and write its file."""
        schema, arrow = self._schema(text_range), import_pyarrow()
        texts = [line.strip() for line in reader.lines(text_range)]
        for row, text in enumerate(texts):
            path, line = text_range.place(row)
            self.embedder.check_row(text, f"{path}, line {line + 1}")
        ids = np.arange(text_range.first_id, text_range.first_id + len(texts))
        rows = arrow.RecordBatch.from_arrays([ids, arrow.array(texts, "string")], ["id", "text"])
        try:
            with writing_piece(self.path(text_range)) as path, parquet_writer(path, schema) as file:
                for batch in self.embedder.batches(iter([rows]), _ROW_GROUP_BYTES):
                    file.write_batch(batch.replace_schema_metadata(schema.metadata))
        except InputError as error:
            raise InputError(f"{text_range}: {error}") from error

    def _schema(self, text_range: TextRange) -> pa.Schema:
        """The columns of a range's file, with all metadata. Loads the model."""
        arrow = import_pyarrow()
        schema = self.embedder.schema(
            arrow.schema([("id", arrow.int64()), ("text", arrow.string())])
        )
        lines = [[part.path, part.line, part.n_lines, part.id] for part in text_range.parts]
        metadata: Any = {
            **self.embedder.metadata(), _LINES: json.dumps(lines, ensure_ascii=False)
        }  # fmt: skip
        return schema.with_metadata(metadata)


class RangeWorker:
    """An actor that writes ranges."""

    def __init__(self, writer: RangeWriter, folder: str) -> None:
        self._writer = writer
        self._reader = RangeReader(folder)

    def ready(self) -> None:
        """Return once the actor has started."""

    def write(self, text_range: TextRange) -> None:
        """Like `RangeWriter.write`; disk errors name the machine."""
        try:
            self._writer.write(text_range, self._reader)
        except OSError as error:
            raise InputError(f"{error} (on the machine {socket.gethostname()})") from error


def _compute(
    ranges: Sequence[TextRange],
    total: int,
    writer: RangeWriter,
    cluster: _Cluster,
    show: ShowStage,
) -> None:
    """Let workers compute ranges; `total` is the bytes of all text."""
    ray = _ray()
    actor_class = ray.remote(RangeWorker).options(num_cpus=cluster.cpus)
    waiting, failures = deque(ranges), Counter[TextRange | None]()
    busy: dict[Any, tuple[Any, TextRange | None]] = {}  # pending results -> (actor, range)
    done = total - sum(text_range.n_bytes for text_range in ranges)

    def start_worker() -> None:
        actor = actor_class.remote(writer, os.getcwd())
        busy[actor.ready.remote()] = actor, None

    try:
        for _ in range(min(cluster.workers, len(ranges))):
            start_worker()
        show(Stage("embedding", done, total))
        while waiting or any(text_range for _, text_range in busy.values()):
            (result,), _ = ray.wait(list(busy), num_returns=1)
            actor, text_range = busy.pop(result)
            try:
                ray.get(result)
                done += text_range.n_bytes if text_range else 0
            except Exception as error:
                if isinstance(getattr(error, "cause", None), InputError):
                    raise error.cause from None  # type: ignore[attr-defined]
                if text_range is not None:
                    waiting.appendleft(text_range)
                failures[text_range] += 1
                if failures[text_range] == _TRIES:
                    failure = f"{text_range}: failed" if text_range else "workers: failed to start"
                    raise InputError(
                        f"{failure} {_TRIES} times; a machine may have too little memory. The last "
                        f"error: {_shortened(error)}"
                    ) from error
                with contextlib.suppress(Exception):
                    ray.kill(actor)
                start_worker()
                continue
            show(Stage("embedding", done, total))
            if waiting:
                following = waiting.popleft()
                busy[actor.write.remote(following)] = actor, following
    finally:
        for actor, _ in busy.values():
            with contextlib.suppress(Exception):
                ray.kill(actor)


def _shortened(error: Exception) -> str:
    """The type of an error, and the last line of its message, which can be pages long."""
    lines = re.sub(r"\x1b\[\d+m", "", str(error)).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1].strip()[-500:]}"


class _Cluster(NamedTuple):
    """The Ray cluster, its workers, and the CPUs of each."""

    workers: int
    cpus: int
    address: str | None

    @property
    def is_local(self) -> bool:
        """Whether Ray is to be started on this machine."""
        return self._named in ("", "local") and not _ray().is_initialized()

    @property
    def _named(self) -> str:
        return self.address or os.environ.get("RAY_ADDRESS", "")

    def require_local_cpus(self) -> None:
        """Check that this machine has the CPUs, if Ray is to be started on it."""
        if self.is_local:
            self._require_cpus([n_processors()], "this machine has")

    def _require_cpus(self, machines: Sequence[float], have: str) -> None:
        """Ray silently waits for CPUs that do not exist."""
        most = sum(int(n // self.cpus) for n in machines)
        if most < self.workers:
            listed = " + ".join(f"{n:g}" for n in machines) or "no"
            raise InputError(
                f"workers must be at most {most}, got {self.workers}: {have} {listed} CPUs, and a "
                f"worker needs {self.cpus}."
            )

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to Ray or start it, unless this process already has; disconnect afterwards."""
        ray = _ray()
        ours = not ray.is_initialized()
        settings = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.is_local:
            ray.init(
                "local",
                num_cpus=self.workers * self.cpus,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                **settings,
            )
        elif ours:
            _require_listener(self._named)
            ray.init(self._named, **settings)
        try:
            alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._require_cpus([node.get("CPU", 0) for node in alive], "Ray's machines have")
            yield
        finally:
            if ours:
                ray.shutdown()


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
    return import_extra("ray", _NEEDED_BY)


def find_line(folder: PathLike, row_id: int) -> tuple[str, int]:
    """The file and the line of a row.

    Args:
        folder: folder of Parquet files that `embed` wrote.
        row_id: the row's `id`.

    Returns:
        the file's name as given to `embed`, and the 0-based line number.

    Raises:
        FileNotFoundError, InputError: the folder is not such a folder, a file is damaged, or the
            row does not exist.
    """
    folder = os.fspath(folder)
    if not os.path.isfile(os.path.join(folder, _FIRST)):
        raise FileNotFoundError(f"The folder {folder!r} has no {_FIRST}.")
    paths = sorted(
        (os.path.join(folder, name) for name in os.listdir(folder) if _PART.fullmatch(name)),
        key=lambda path: (len(path), path),
    )

    def first_id(path: str) -> int:
        return min((first for *_, first in _lines_in(path)), default=0)

    number = max(bisect.bisect_right(paths, row_id, key=first_id) - 1, 0)
    for path, line, n_lines, first in _lines_in(paths[number]):
        if 0 <= row_id - first < n_lines:
            return path, line + row_id - first
    raise InputError(f"{folder} has no row with the id {row_id}.")


def _lines_in(path: str) -> list[tuple[str, int, int, int]]:
    arrow = import_pyarrow()
    try:
        metadata = import_pyarrow("pyarrow.parquet").read_schema(path).metadata or {}
        content = metadata[_LINES.encode()]
        return [(str(name), int(a), int(b), int(c)) for name, a, b, c in json.loads(content)]
    except KeyError:
        raise InputError(f"{path} has no {_LINES} in its metadata.") from None
    except (OSError, arrow.ArrowException, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a Parquet file, or is damaged: {error}") from error
