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
import glob
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
from bilm.files.writing import atomic_write, overwritten
from bilm.progress import ShowStage, Stage, quiet
from bilm.vectors.arrow import import_pyarrow, parquet_writer, read_settings
from bilm.vectors.job_folder import JobFolder, check_output

if TYPE_CHECKING:
    import pyarrow as pa

    from bilm.vectors.tables import TableEmbedder

__all__ = ["EmbeddedFolder", "embed"]

_ROW_GROUP_BYTES = 32 * 2**20
_BATCH_ROWS = 1024
# Maximum number of actors that may die at the same file, perhaps for lack of memory.
_TRIES = 3

logger = logging.getLogger(__name__)


class EmbeddedFolder(NamedTuple):
    """The result of a job."""

    n_files: int  # 0 if all were complete before
    n_left: int  # files complete before


class _Text(NamedTuple):
    """A file to embed."""

    file: str  # name in the argument
    path: str  # absolute path, or address
    n_bytes: int
    result: str  # name of the result in the output folder


def embed(
    texts: PathLike | Sequence[PathLike],
    out: PathLike,
    embedder: TableEmbedder,
    *,
    workers: int,
    gpus: float = 0,
    address: str | None = None,
    resume: bool = False,
    force: bool = False,
    show: ShowStage = quiet,
) -> EmbeddedFolder:
    """Write the vectors of files as a folder of Parquet files, one per text.

    The result of `text/a.txt` is `a.txt.parquet`; files of several folders keep their paths below
    the common folder. The columns for text are `file` (its name in `texts`), `line` (0-based),
    `text`, the vectors, and for FASTA `key`. A Parquet file keeps its columns, and `line` is the
    row number. A local folder is renamed to OUT when complete; in an object store the results
    appear one by one. After a crash the same call with `resume` continues, and skips files whose
    results are complete.

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
        resume: continue an interrupted call if there is one; if OUT is complete, do nothing.
        force: replace OUT if it holds only Parquet files, and discard an interrupted call; not for
            addresses.
        show: called with the progress.

    Raises:
        FileNotFoundError: no file matches, or the model does not exist.
        ConnectionError: no Ray cluster answers at the address.
        InputError: a text is not UTF-8, or a sentence has no vectors (file and line); a file kills
            its worker three times; OUT exists; the interrupted call differs; Ray is not installed.
    """
    require(integer(), workers=workers)
    import_extra("ray.data", "a corpus on Ray")
    out = require_path(out)
    if _is_address(out):
        if force:
            raise InputError(f"force replaces folders on a disk only: delete {out} yourself.")
        files = _find(texts, embedder)
        missing = _missing(files, out, embedder, resume)
        _compute(missing, out, embedder, workers, gpus, address, show)
        return EmbeddedFolder(len(missing) and len(files), len(files) - len(missing))
    if check_output(out, resume=resume, force=force):
        if lost := _missing(_find(texts, embedder), out, embedder, resume):
            raise InputError(f"{out} exists, without the result of {lost[0].file}.")
        return EmbeddedFolder(0, 0)
    if force:
        _require_results_only(out)
    files = _find(texts, embedder)
    settings = {
        **embedder.settings(),
        "fixed_size": embedder.fixed_size,
        "files": {text.result: f"{text.n_bytes} bytes" for text in files},
    }
    with JobFolder(out, settings, resume=resume, force=force) as folder:
        if folder.is_over:
            return EmbeddedFolder(0, 0)
        target = os.path.abspath(folder.pieces_folder)
        _remove_temporary(target)
        missing = [text for text in files if not os.path.exists(os.path.join(target, text.result))]
        _compute(missing, target, embedder, workers, gpus, address, show)
        _remove_temporary(target)
        folder.rename_pieces()
    return EmbeddedFolder(len(files), len(files) - len(missing))


def _remove_temporary(folder: str) -> None:
    """Remove the temporary files of killed actors."""
    for path in glob.glob("**/.*.tmp.*", root_dir=folder, recursive=True):
        os.remove(os.path.join(folder, path))


def _require_results_only(out: str) -> None:
    """Require that an output to be replaced holds only Parquet files."""
    names = [name for *_, files in os.walk(out) for name in files] or [out] * os.path.isfile(out)
    if others := sorted(name for name in names if not name.endswith(".parquet")):
        raise InputError(f"{out} is replaced only if it holds Parquet files, got {others[0]}.")


def _missing(texts: list[_Text], out: str, embedder: TableEmbedder, resume: bool) -> list[_Text]:
    """The texts without a result in OUT, after checking that its results are of this job."""
    system, folder = _file_system(out)
    results = {os.path.relpath(path, folder): path for path in system.find(folder)}
    if results and not resume:
        raise overwritten(out)
    if others := sorted(results.keys() - {text.result for text in texts}):
        raise InputError(f"{out} must hold results of these files only, got {others[0]}.")
    for path in list(results.values())[:1]:
        with system.open(path) as file:
            settings = import_pyarrow("pyarrow.parquet").read_schema(file)
        if listed := differences(read_settings(settings), embedder.settings(), "there", "now"):
            raise InputError(f"{out} holds vectors of another job: {'; '.join(listed)}.")
    return [text for text in texts if text.result not in results]


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


def _find(texts: PathLike | Sequence[PathLike], embedder: TableEmbedder) -> list[_Text]:
    """The files to embed, large ones first, so that the last ones are short."""
    _ = embedder.shape  # raises if the model does not exist
    sizes: dict[str, int] = {}
    for pattern in [texts] if isinstance(texts, str | os.PathLike) else texts:
        if _is_address(require_path(pattern)):
            system, path = _file_system(os.fspath(pattern))
            matches = {
                system.unstrip_protocol(name): info["size"]
                for name, info in system.glob(path, detail=True).items()
                if info["type"] == "file"
            }
            if not matches:
                raise FileNotFoundError(f"No file matches {os.fspath(pattern)!r}.")
        else:
            matches = {path: os.path.getsize(path) for path in find_all_files(pattern)}
        sizes |= matches
    paths = {file: file if _is_address(file) else os.path.abspath(file) for file in sizes}
    if len({_is_address(file) for file in sizes}) > 1:
        raise InputError("texts must be all on a disk or all in an object store.")
    folder = os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    files = [
        _Text(file, path, sizes[file], f"{os.path.relpath(path, folder)}.parquet")
        for file, path in paths.items()
    ]
    return sorted(files, key=lambda text: (-text.n_bytes, text.file))


# Ray


def _compute(
    texts: list[_Text],
    target: str,
    embedder: TableEmbedder,
    workers: int,
    gpus: float,
    address: str | None,
    show: ShowStage,
) -> None:
    """Let Ray's actors write the results of texts into the folder `target`."""
    if not texts:
        return
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
            fn_constructor_args=(embedder, target, cpus),
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
    """Writes the results of files into a folder, in any process: an actor."""

    def __init__(self, embedder: TableEmbedder, target: str, threads: int) -> None:
        embedder = copy.copy(embedder)
        embedder.threads = threads
        self._embedder, self._target = embedder, target

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed the file of a batch of one row. Errors are returned, because Ray repeats calls that
        raise, and adds pages to the message."""
        text = _Text(*(batch[name][0] for name in _Text._fields))
        try:
            self._write(text)
            error = ""
        except (InputError, OSError) as problem:
            error = f"{problem}"
        return {"n_bytes": [text.n_bytes], "error": [error]}

    def _write(self, text: _Text) -> None:
        result = f"{self._target}/{text.result}"
        with contextlib.ExitStack() as stack:
            path = text.path
            if _is_address(path):
                path = _in_temporary_folder(stack, path)
                system, remote = _file_system(text.path)
                system.get_file(remote, path)
            if _is_address(result):
                local = _in_temporary_folder(stack, result)
                self._embed(path, text.file, local)
                system, remote = _file_system(result)
                system.makedirs(os.path.dirname(remote), exist_ok=True)
                system.put_file(
                    local, remote
                )  # last, so that an incomplete file never has the name
            else:
                folder, name = os.path.split(result)
                os.makedirs(folder, exist_ok=True)
                # Ray repeats the file of a dead actor for ever; each actor left a temporary file.
                if len(glob.glob(f".*.tmp.{glob.escape(name)}", root_dir=folder)) >= _TRIES:
                    raise InputError(
                        f"{text.file}: ended its worker {_TRIES} times; a machine may have too "
                        "little memory."
                    )
                with atomic_write(result) as local:
                    Path(local).touch()
                    self._embed(path, text.file, local)

    def _embed(self, path: str, name: str, out: str) -> None:
        """Embed a local file, called `name` in the result and in messages."""
        try:
            with contextlib.ExitStack() as stack:
                if _is_parquet(path):
                    embedder, (columns, rows) = self._embedder, _read_parquet(stack, path)
                else:
                    embedder = copy.copy(self._embedder)
                    embedder.text_column = "text"
                    columns, rows = _read_text(path, name, embedder)
                schema = embedder.schema(columns).with_metadata(embedder.metadata())
                writer = stack.enter_context(parquet_writer(out, schema))
                for batch in embedder.batches(rows, _ROW_GROUP_BYTES):
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        except InputError as error:
            message = str(error).replace(path, name)
            raise InputError(message if name in message else f"{name}: {message}") from error


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

    def rows() -> Iterator[pa.RecordBatch]:
        for group, _ in windows(read_sentences(path, name), lambda _: 1, _BATCH_ROWS):
            for sentence in group:
                embedder.check_row(sentence.text, f"{name}, line {sentence.number + 1}")
            numbers, texts, keys = zip(*group, strict=True)
            values = {"file": [name] * len(group), "line": numbers, "key": keys, "text": texts}
            yield arrow.RecordBatch.from_pydict({c: values[c] for c in schema.names}, schema)

    return schema, rows()


def _in_temporary_folder(stack: contextlib.ExitStack, name: str) -> str:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return os.path.join(folder, os.path.basename(name))
