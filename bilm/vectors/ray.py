"""Vectors of corpora on Ray Data: actors on one machine or many, each with its own model.

    from bilm.vectors.ray import embed
    from bilm.vectors.tables import TableEmbedder

    embed("text/*.txt", "vectors", TableEmbedder("elmo", pooling="mean"), workers=2)

Ray Data distributes files to a pool of actors, and repeats the file of an actor that dies. An actor
reads a file as `bilm embed` does and writes its result. Vectors are hundreds of times as large as
their text and do not pass through Ray's object store.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.core.errors import InputError, differences, integer, require
from bilm.data.prefetch import windows
from bilm.data.sentences import is_fasta, read_sentences
from bilm.extras import import_extra
from bilm.files.reading import PathLike, find_all_files, require_path
from bilm.files.writing import flush_to_disk, locked, named_in_errors
from bilm.progress import ShowStage, Stage, quiet
from bilm.vectors.arrow import import_pyarrow, parquet_facts, parquet_writer

if TYPE_CHECKING:
    import pyarrow as pa

    from bilm.vectors.tables import TableEmbedder

__all__ = ["EmbeddedFolder", "embed"]

_ROW_GROUP_BYTES = 32 * 2**20
_BATCH_ROWS = 1024
# Maximum number of actors that may die at the same file, perhaps for lack of memory.
_TRIES = 3
_LOCK = ".lock"

logger = logging.getLogger(__name__)


class EmbeddedFolder(NamedTuple):
    """The result of a job."""

    n_files: int
    n_left: int  # files whose results were complete before


class _Text(NamedTuple):
    """A file to embed."""

    file: str  # name in the argument
    path: str  # absolute path, or address
    n_bytes: int
    result: str  # absolute path of its result, or address


def embed(
    texts: PathLike | Sequence[PathLike],
    out: PathLike,
    embedder: TableEmbedder,
    *,
    workers: int,
    gpus: float = 0,
    address: str | None = None,
    resume: bool = False,
    show: ShowStage = quiet,
) -> EmbeddedFolder:
    """Write the vectors of files as a folder of Parquet files, one per text.

    The result of `text/a.txt` is `a.txt.parquet`; files of several folders keep their paths below
    the common folder. The columns for text are `file` (its name in `texts`), `line` (0-based),
    `text`, the vectors, and for FASTA `key`. A Parquet file keeps its columns, and `line` is the
    row number. The results appear one by one, each when it is complete. After a crash the same call
    with `resume` continues.

    Args:
        texts: files or globs of text, as for `embed_file`, or of Parquet files with the embedder's
            `text_column`. All machines must see them, the model and OUT under the same names,
            unless they are addresses for fsspec such as s3://bucket/text/*.txt.
        out: the folder to write.
        embedder: computes the vectors. Ray reserves `embedder.threads` CPUs per actor, or 1.
        workers: number of actors, each with a model in memory. Ray starts as many as it has CPUs
            and GPUs for.
        gpus: GPUs that Ray reserves per actor.
        address: address of a Ray cluster; None: the variable RAY_ADDRESS, or Ray is started on this
            machine and stopped at the end. If this process has called `ray.init`, that Ray is used.
        resume: skip files whose results are in OUT; texts are compared by their sizes.
        show: called with a `Stage` of the bytes of finished files.

    Raises:
        FileNotFoundError: no file matches, or the model does not exist.
        ConnectionError: no Ray cluster answers at the address.
        InputError: a text is not UTF-8, or a sentence has no vectors (file and line); a file kills
            its worker three times; OUT is not empty, or with `resume` holds other files or results
            of another job; another process on this machine writes into OUT; Ray is not installed.
    """
    require(integer(), workers=workers)
    import_extra("ray.data", "a corpus on Ray")
    _ = embedder.shape  # raises if the model does not exist
    files = _find(texts, require_path(out))
    with _alone(os.fspath(out)):
        missing = _missing(files, os.fspath(out), embedder, resume)
        if missing:
            _compute(missing, embedder, workers, gpus, address, show)
    return EmbeddedFolder(len(files), len(files) - len(missing))


@contextlib.contextmanager
def _alone(out: str) -> Iterator[None]:
    """Create a folder on a disk, and lock it against other processes for the block; then remove it
    if it is new and empty."""
    if _is_address(out):
        yield
        return
    is_new = not os.path.isdir(out)
    os.makedirs(out, exist_ok=True)
    try:
        with locked(Path(out, _LOCK), f"{out}: another process writes into this folder."):
            yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(out)


def _missing(texts: list[_Text], out: str, embedder: TableEmbedder, resume: bool) -> list[_Text]:
    """The texts without a result in OUT, after checking that its results are of this job."""
    system, folder = _file_system(out)
    by_result = {_file_system(text.result)[1]: text for text in texts}
    temporary = {path for result in by_result for path in _temporary(result)}
    not_results = {*temporary, f"{folder}/{_LOCK}"}
    results = [path for path in system.find(folder) if path not in not_results]
    if results and not resume:
        raise InputError(f"{out} must be an empty folder, got {results[0]}: see resume.")
    if others := [path for path in results if path not in by_result]:
        raise InputError(f"{out} must hold results of these files only, got {others[0]}.")
    for path in results:
        ours = embedder.settings() | _facts(embedder, by_result[path])
        with system.open(path) as file:
            try:
                theirs = parquet_facts(file)
            except InputError as error:
                raise InputError(f"{path}: {error}") from error
        if listed := differences({name: theirs.get(name) for name in ours}, ours, "there", "now"):
            raise InputError(f"{path} is a result of another job: {'; '.join(listed)}.")
    for path in filter(os.path.isfile, () if _is_address(out) else temporary):
        os.remove(path)  # left by a killed command
    done = set(results)
    return [text for path, text in by_result.items() if path not in done]


def _facts(embedder: TableEmbedder, text: _Text) -> dict[str, Any]:
    """The facts of a result besides the settings of vectors."""
    return {"bytes": int(text.n_bytes), "text_column": embedder.text_column}


def _temporary(result: str) -> list[str]:
    """The names of a local result until it is complete, one for each try."""
    folder, name = os.path.split(result)
    return [os.path.join(folder, f".{name}.{k}.tmp") for k in range(_TRIES)]


# Names of files


def _is_address(path: str) -> bool:
    return "://" in path


def _file_system(address: str) -> Any:
    """The fsspec file system of an address or path, and the path on it."""
    core = import_extra("fsspec.core", f"the address {address}")
    try:
        return core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # a package is missing, or the protocol is unknown
        raise InputError(f"{address}: {error}.") from error


def _find(texts: PathLike | Sequence[PathLike], out: str) -> list[_Text]:
    """The files to embed, large ones first, so that the last ones are short."""
    sizes: dict[str, int] = {}
    for pattern in [texts] if isinstance(texts, str | os.PathLike) else texts:
        if not _is_address(require_path(pattern)):
            sizes |= {path: os.path.getsize(path) for path in find_all_files(pattern)}
            continue
        system, path = _file_system(os.fspath(pattern))
        matches = {
            system.unstrip_protocol(name): info["size"]
            for name, info in system.glob(path, detail=True).items()
            if info["type"] == "file"
        }
        if not matches:
            raise FileNotFoundError(f"No file matches {os.fspath(pattern)!r}.")
        sizes |= matches
    if len({_is_address(file) for file in sizes}) > 1:
        raise InputError("texts must be all on a disk or all in an object store.")
    paths = {file: file if _is_address(file) else os.path.abspath(file) for file in sizes}
    folder = os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    out = out.rstrip("/") if _is_address(out) else os.path.abspath(out)
    files = [
        _Text(file, path, sizes[file], f"{out}/{os.path.relpath(path, folder)}.parquet")
        for file, path in paths.items()
    ]
    return sorted(files, key=lambda text: (-text.n_bytes, text.file))


# Ray


def _compute(
    texts: list[_Text],
    embedder: TableEmbedder,
    workers: int,
    gpus: float,
    address: str | None,
    show: ShowStage,
) -> None:
    """Let Ray's actors write the results of texts."""
    ray, cpus = import_extra("ray", "a corpus on Ray"), embedder.threads or 1
    with contextlib.ExitStack() as stack:
        if not ray.is_initialized():
            address = address or os.environ.get("RAY_ADDRESS") or "local"
            _require_listener(address)
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
            stack.callback(ray.shutdown)
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(m.get("CPU", 0) >= cpus and m.get("GPU", 0) >= gpus for m in machines):
            logger.warning("Ray waits for a machine with %d CPUs and %g GPUs", cpus, gpus)
        rows = [text._asdict() for text in texts]
        results = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
            FileEmbedder,
            fn_constructor_args=(embedder, cpus),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            num_cpus=cpus,
            num_gpus=gpus,
        )
        done, total = 0, sum(text.n_bytes for text in texts)
        show(Stage("embedding", done, total))
        for result in results.iter_rows():
            if result["error"]:
                raise InputError(result["error"])
            done += result["n_bytes"]
            show(Stage("embedding", done, total))


def _require_listener(address: str) -> None:
    """Require that something listens at HOST:PORT, because Ray retries for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise ConnectionError(f"no Ray cluster answers at {address}: {error}.") from error


class FileEmbedder:
    """Writes the results of files, in any process: an actor."""

    def __init__(self, embedder: TableEmbedder, threads: int) -> None:
        self._embedder = copy.copy(embedder)
        self._embedder.threads = threads

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed the file of a batch of one row. Errors are returned, because Ray repeats calls that
        raise, and adds pages to the message."""
        text = _Text(*(batch[name][0] for name in _Text._fields))
        try:
            with _to_read(text.path) as source, _to_write(text.result) as target:
                self._embed(source, text, target)
            error = ""
        except (InputError, OSError) as problem:
            error = str(problem).replace(text.path, text.file)
        return {"n_bytes": [text.n_bytes], "error": [error]}

    def _embed(self, source: str, text: _Text, target: str) -> None:
        """Embed a local file."""
        try:
            with contextlib.ExitStack() as stack:
                embedder = copy.copy(self._embedder)
                if _is_parquet(source):
                    columns, rows = _read_parquet(stack, source)
                else:
                    embedder.text_column = "text"
                    columns, rows = _read_text(source, text.file, embedder)
                facts = embedder.metadata(**_facts(self._embedder, text))
                schema = embedder.schema(columns).with_metadata(facts)
                writer = stack.enter_context(parquet_writer(target, schema))
                for batch in embedder.batches(rows, _ROW_GROUP_BYTES):
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        except InputError as error:
            message = str(error).replace(source, text.file)
            raise InputError(
                message if text.file in message else f"{text.file}: {message}"
            ) from error


@contextlib.contextmanager
def _to_read(path: str) -> Iterator[str]:
    """A local file with the content of a file, for the block."""
    if not _is_address(path):
        yield path
        return
    system, remote = _file_system(path)
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        system.get_file(remote, local)
        yield local


@contextlib.contextmanager
def _to_write(path: str) -> Iterator[str]:
    """A local name to write to; the file gets its own name after the block. Ray would retry a file
    forever, so the temporary files that killed workers leave on a disk are counted as tries."""
    if not _is_address(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tries = _temporary(path)
        try:
            temporary = next((name for name in tries if not os.path.exists(name)), None)
            if temporary is None:
                raise InputError(
                    f"{path}: its text ended its worker {_TRIES} times; a machine may have too "
                    "little memory."
                )
            with named_in_errors(path):
                Path(temporary).touch()
                yield temporary
                flush_to_disk(temporary)
                os.replace(temporary, path)
        finally:
            for name in filter(os.path.exists, tries):
                os.remove(name)
        return
    system, remote = _file_system(path)
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        yield local
        system.makedirs(os.path.dirname(remote), exist_ok=True)
        system.put_file(local, remote)  # last, so that an incomplete file never has the name


def _is_parquet(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _read_parquet(
    stack: contextlib.ExitStack, path: str
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and rows of a Parquet file, with row numbers as `line`."""
    arrow = import_pyarrow()
    file = stack.enter_context(import_pyarrow("pyarrow.parquet").ParquetFile(path))
    lines = itertools.count()

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in file.iter_batches(_BATCH_ROWS):
            numbers = list(itertools.islice(lines, batch.num_rows))
            yield batch.append_column("line", arrow.array(numbers, arrow.int64()))

    return file.schema_arrow.append(arrow.field("line", arrow.int64())), rows()


def _read_text(
    path: str, name: str, embedder: TableEmbedder
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and rows of a text or FASTA file, with checks of each sentence."""
    arrow = import_pyarrow()
    columns = {"file": arrow.string(), "line": arrow.int64()}
    columns |= {"key": arrow.string()} if is_fasta(path) else {}
    schema = arrow.schema(columns | {"text": arrow.string()})
    kind = "sequence" if "key" in columns else "line"

    def rows() -> Iterator[pa.RecordBatch]:
        for group, _ in windows(read_sentences(path, name), lambda _: 1, _BATCH_ROWS):
            for sentence in group:
                embedder.check_row(sentence.text, f"{name}, {kind} {sentence.number + 1}")
            numbers, texts, keys = zip(*group, strict=True)
            values = {"file": [name] * len(group), "line": numbers, "key": keys, "text": texts}
            yield arrow.RecordBatch.from_pydict({c: values[c] for c in schema.names}, schema)

    return schema, rows()
