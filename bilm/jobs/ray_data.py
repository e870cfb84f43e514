"""Vectors of corpora on Ray Data: workers on one machine or many, each with a model of its own.

    from bilm.jobs.ray_data import embed
    from bilm.jobs.tables import TableEmbedder

    embed("text/*.txt", "vectors", TableEmbedder("elmo", pooling="mean"), workers=2)

What goes through Ray are the places of the parts of a text, see `bilm.data.text_ranges`, and
reports of them. A worker,
which is an actor of Ray, reads a part, computes it and writes its Parquet file,
see `bilm.jobs.parts`: vectors, which are hundreds of times as large as their text, go through
no object store, and a part that Ray has computed twice after a fault is the same file. Workers and
this process need to see the text, the model and the folder of the result under the same names.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.core.errors import InputError, require_count
from bilm.data.counting import n_processors
from bilm.data.text_ranges import Part, PartReader, Piece, TextRange, find_parts
from bilm.extras import import_extra
from bilm.files.reading import PathLike, ShowStage, Stage, find_all_files, quiet, size_of
from bilm.jobs.parts import (
    PartJob,
    PartReport,
    PartsFolder,
    find_line,
    is_complete,
    remove_rest,
    require_free,
)

if TYPE_CHECKING:
    from bilm.jobs.tables import TableEmbedder

__all__ = ["Embedded", "embed", "find_line", "map_in_order"]

logger = logging.getLogger(__name__)

_NEEDED_BY = "a corpus on Ray Data"
# The text that this process looks through by itself.
_ALONE_BYTES = 2**30
# Of a local instance: what goes through it is small.
_OBJECT_STORE_BYTES = 128 * 2**20
# Ray Data gives up when it hears of no part for so long, in seconds; what is missing is then begun
# anew, so many times in a row without a part that was done.
_MOST_SECONDS = 3600.0
_ROUNDS = 3
_REASON = 500


class Embedded(NamedTuple):
    """What a job has done: sentences and files of the result, and how many of the files an
    interrupted job had left; all 0 if the folder was complete already."""

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
) -> Embedded:
    """Write the vectors of text files as a folder of Parquet files.

    The rows have the columns `id` (int64), `text` and those of the vectors. A row is a line, and
    its id the number of the line over all files in the order of their names, from 0; `find_line`
    gives its file and line. The folder appears when it is complete. After a crash the same call
    with `resume` continues, whatever the number of workers.

    Args:
        texts: files or globs of them: UTF-8, a sentence a line, plain, .gz or .xz.
        out: the folder to write, on a disk that all workers see.
        embedder: its column of text is "text". The `threads` of its model, 1 if they are None, are
            also the CPUs that Ray keeps for a worker.
        workers: processes that compute, each with a model in its memory.
        address: of a cluster of Ray; None takes what the variable RAY_ADDRESS names, or starts Ray
            on this machine and ends it again. Of a process that has called `ray.init` the Ray
            that it is connected with is used.
        resume: go on where an interrupted call has stopped; without one, begin.
        force: replace what `out` names, and discard what an interrupted call has left.
        part_bytes: of text in a file of the result, about; None: by the size of the texts.
        show: is called with how far the job has come.

    Raises:
        FileNotFoundError: no file matches, or the model is not there.
        InputError: a text is not UTF-8, or changes while the job runs; a sentence has no vectors,
            or could not be computed (file, line and reason); there are fewer CPUs than the workers
            need; `out` is there; what was left is of another job; Ray is not installed, or ended
            the job.
    """
    require_count(workers=workers)
    if part_bytes is not None:
        require_count(part_bytes=part_bytes)
    import_extra("ray.data", _NEEDED_BY)
    if resume and is_complete(out):
        remove_rest(out)
        return Embedded(0, 0, 0)
    require_free(out, resume=resume, force=force)
    files = find_all_files(texts)
    _ = embedder.shape  # a model that is not there is found at once
    if embedder.text_column != "text":
        raise InputError(f"text_column: 'text' is expected, not {embedder.text_column!r}.")
    cluster = _Cluster(workers, embedder.threads or 1, address)
    cluster.require_local_cpus()
    job = _Job(embedder, cluster, part_bytes, show)
    return job.run(files, out, resume=resume, force=force)


class _Job(NamedTuple):
    """What `embed` does when its arguments are known to be good."""

    embedder: TableEmbedder
    cluster: _Cluster
    part_bytes: int | None
    show: ShowStage

    def run(self, files: Sequence[str], out: PathLike, *, resume: bool, force: bool) -> Embedded:
        """Find the parts, compute those that are missing, and give the folder its name."""
        with contextlib.ExitStack() as stack:
            map_function: Any = map
            if size_of(files) > _ALONE_BYTES:
                stack.enter_context(self.cluster.connected())
                map_function = map_in_order
            parts = find_parts(files, self.part_bytes, map_function=map_function, show=self.show)
            settings = self._settings(parts)
            folder = stack.enter_context(PartsFolder(out, settings, resume=resume, force=force))
            embedder = copy.copy(self.embedder)
            embedder.threads = self.cluster.cpus
            job = PartJob(embedder, os.path.abspath(folder.parts), os.path.abspath(folder.attempts))
            n_left = len(parts) - len(folder.missing(parts, job))
            if n_left < len(parts):
                stack.enter_context(self.cluster.connected())
                _compute_all(parts, folder, job, self.cluster, self.show)
            folder.finish()
        return Embedded(sum(part.n_lines for part in parts), len(parts), n_left)

    def _settings(self, parts: Sequence[Part]) -> dict[str, Any]:
        """What must be alike for a job to be resumed."""
        return {
            **self.embedder.settings(),
            "fixed_size": self.embedder.fixed_size,
            "parts": len(parts),
            "files": _described(parts),
        }


def _described(parts: Sequence[Part]) -> dict[str, str]:
    """Of each file its number of lines and a checksum of its text."""
    pieces: dict[str, list[Piece]] = {}
    for part in parts:
        for piece in part.pieces:
            pieces.setdefault(piece.path, []).append(piece)
    return {path: _described_file(of_file) for path, of_file in pieces.items()}


def _described_file(pieces: Sequence[Piece]) -> str:
    checksums = b"".join(piece.checksum.to_bytes(4, "big") for piece in pieces)
    return f"{sum(piece.n_lines for piece in pieces)} lines, {zlib.crc32(checksums):08x}"


class _Cluster(NamedTuple):
    """Where the work is done: so many workers, each with CPUs of its own."""

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
        """Check that this machine has the CPUs, if Ray is to be started on it.

        Raises:
            InputError: it has fewer.
        """
        if self.is_local:
            self._require_room([n_processors()], "this machine has")

    def _require_room(self, machines: Sequence[float], have: str) -> None:
        """Ray waits without a word for CPUs that there are not."""
        room = sum(int(n // self.cpus) for n in machines)
        if room < self.workers:
            listed = " + ".join(f"{n:g}" for n in machines) or "none"
            raise InputError(
                f"workers: {self.workers} with {self.cpus} CPUs each are asked for, and {have} "
                f"{listed} CPUs, enough for {room}."
            )

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Connect with Ray or start it, unless this process has done so; afterwards end that.

        Raises:
            InputError: Ray has too few CPUs for the workers.
            ConnectionError: there is no Ray at the address.
        """
        ray = _ray()
        ours = not ray.is_initialized()
        quiet_settings = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.is_local:
            ray.init(
                "local",
                num_cpus=self.workers * self.cpus,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                **quiet_settings,
            )
        elif ours:
            ray.init(self._named, **quiet_settings)
        try:
            alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._require_room([node.get("CPU", 0) for node in alive], "the machines of Ray have")
            yield
        finally:
            if ours:
                ray.shutdown()


def _ray() -> Any:
    return import_extra("ray", _NEEDED_BY)


def map_in_order(
    function: Callable[[TextRange], list[Piece]], items: Sequence[TextRange]
) -> Iterator[list[Piece]]:
    """`map` with tasks of Ray, some ahead of what is taken; they may run in other folders."""
    ray = _ray()
    task = ray.remote(function)
    ahead = 2 * int(ray.cluster_resources().get("CPU", 1))
    waiting: deque[tuple[str, Any]] = deque()

    def first() -> list[Piece]:
        path, reference = waiting.popleft()
        return [piece._replace(path=path) for piece in ray.get(reference)]

    try:
        for item in items:
            absolute = item._replace(path=os.path.abspath(item.path))
            waiting.append((item.path, task.remote(absolute)))
            if len(waiting) > ahead:
                yield first()
        while waiting:
            yield first()
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, InputError | OSError) else error) from None


def _compute_all(
    parts: Sequence[Part], folder: PartsFolder, job: PartJob, cluster: _Cluster, show: ShowStage
) -> None:
    """Compute the parts that are missing, until none is.

    Raises:
        InputError: a sentence cannot be computed; or nothing is done any more, with Ray's reason.
    """
    total = sum(part.n_bytes for part in parts)
    n_stalled, left = 0, folder.missing(parts, job)
    while left:
        done = total - sum(part.n_bytes for part in left)
        show(Stage("embedding", done, total))
        reason = "it has written nothing"
        try:
            for report in _reports(left, job, cluster):
                if report.error is not None:
                    raise InputError(report.error)
                done += report.n_bytes
                show(Stage("embedding", done, total))
        except InputError:
            raise
        except Exception as error:  # of Ray's many kinds
            reason = _shortened(error)
        n_before, left = len(left), folder.missing(parts, job)
        n_stalled = n_stalled + 1 if len(left) == n_before else 0
        if n_stalled == _ROUNDS:
            raise InputError(f"Ray ended the job {_ROUNDS} times, the last time: {reason}")
        if left:
            logger.warning("Ray ended the job (%s); it goes on with what is missing", reason)


def _shortened(error: Exception) -> str:
    """The name of an error, and of its text, which can be pages of several processes, the end."""
    lines = re.sub(r"\x1b\[\d+m", "", str(error)).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1].strip()[-_REASON:]}"


def _reports(parts: Sequence[Part], job: PartJob, cluster: _Cluster) -> Iterator[PartReport]:
    """Let Ray Data compute parts; the reports come as they are done."""
    data = import_extra("ray.data", _NEEDED_BY)
    context = data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = _MOST_SECONDS
    context.max_consecutive_actor_init_deaths = _ROUNDS
    with data.DataContext.current(context):
        items = [{"part": pickle.dumps(part)} for part in parts]
        results = data.from_items(items, override_num_blocks=len(items)).map_batches(
            _PartWriter,
            fn_constructor_args=(job, os.getcwd()),
            # A task of Ray is a part, and no actor has a second one waiting.
            batch_size=1,
            compute=data.ActorPoolStrategy(
                size=min(cluster.workers, len(parts)), max_tasks_in_flight_per_actor=1
            ),
            num_cpus=cluster.cpus,
        )
        # Ray starts actors that ended again, and their tasks, without end; `PartJob` counts.
        for batch in results.iter_batches(batch_size=None, prefetch_batches=0):
            yield from (pickle.loads(report) for report in batch["report"])


class _PartWriter:
    """An actor's function for `map_batches`: places of parts in, reports out."""

    def __init__(self, job: PartJob, folder: str) -> None:
        self._job = job
        self._reader = PartReader(folder)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        parts = [pickle.loads(part) for part in batch["part"]]
        return {"report": [pickle.dumps(self._job.write(part, self._reader)) for part in parts]}
