"""Find the files of a model: in a folder, a ZIP file or a training folder, or by a name.

Containers: NLPL's ZIP files and folders (model.hdf5, options.json, vocab.txt or vocab.txt.gz), our
model folders with the same files, AllenNLP's pairs (..._options.json and ..._weights.hdf5), and
training folders, ours or the original's. Models can also be named as

    english, original, nlpl-209 ...     a name in bilm/models/published.json
    https://host/path/model.zip         the address of a ZIP file
    (https://..., https://...)          the addresses of options and weights
    hf://owner/name@revision            a repository on Hugging Face; @revision is optional

An existing path has precedence over a name. `#sha256=HEX` or `#md5=HEX` may follow: the checksum of
the weights or the ZIP file. Files are downloaded once, into Keras' cache (`cache_folder`); from
Hugging Face, into the cache of huggingface_hub. An address is compared, stored and printed without
user, password, query and fragment (`bilm.core.errors.without_secrets`).
"""

import contextlib
import difflib
import errno
import functools
import hashlib
import json
import logging
import os
import re
import shlex
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from bilm.core.errors import ADDRESS, InputError, import_extra, shown, without_secrets
from bilm.core.options import Options
from bilm.files.reading import (
    HDF5,
    OPTIONS_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    PathLike,
    add_input,
    holds_checkpoint,
    parse_json,
    require_file,
    substitute_for_a_file,
)
from bilm.progress import ProgressDisplay, Stage

OptionsSource = PathLike | Mapping[str, Any] | Options
ModelSource = PathLike | Sequence[Any]
# Exceptions of zipfile for damaged members, passwords and unknown compression methods.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, LookupError, struct.error,
    OSError,  # of a seek before the start of the file
)  # fmt: skip
_VOCABULARIES = (VOCABULARY_FILE, f"{VOCABULARY_FILE}.gz", f"{VOCABULARY_FILE}.xz")


class ModelFiles(NamedTuple):
    """The files of a model."""

    # options.json or its contents: for training with a checkpoint, otherwise for inference.
    options: OptionsSource
    weights: PathLike  # the HDF5 weights, or the prefix of a checkpoint
    vocabulary: PathLike | None  # None if missing; character models do not need one
    source: str  # the user's name of the model, for messages
    is_checkpoint: bool = False  # whether `weights` is a checkpoint
    softmax: PathLike | None = None  # a separate file with the softmax, if present

    def read_options(self) -> Options:
        """Read and check the options."""
        return read_options(self.options, training=self.is_checkpoint)


def read_options(options: OptionsSource, training: bool = False) -> Options:
    """Options, by default for inference, from a file or its contents; `Options` are unchanged."""
    if isinstance(options, Options):
        return options
    if isinstance(options, Mapping):
        return Options.from_dict(options, training)
    path = require_file(options, "options file")
    content = substitute_for_a_file(path)
    if _is_hdf5(path):
        content = "HDF5: are options and weights swapped?"
    if content:
        end = "" if content.endswith("?") else "."
        raise InputError(f"{path}: the options must be a JSON file, got {content}{end}")
    return Options.from_file(path, training)


@contextlib.contextmanager
def open_model(
    source: ModelSource, *, weights_only: bool = False, with_softmax: bool = False
) -> Iterator[ModelFiles]:
    """The files of a model. The members of a ZIP file are extracted for the block.

    Args:
        source: a folder, a ZIP file, an HDF5 file with its options in the same folder, the prefix
            of a checkpoint, a name or an address (see `bilm.files.model_files`), or a pair
            (options, weights), whose options may be a path, an address, the contents of the file,
            or `Options`. A training folder stands for its newest intact checkpoint.
        weights_only: require HDF5 weights, and ignore a folder's checkpoints.
        with_softmax: also download the softmax of a published model.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        InputError: there is not exactly one model; it is a checkpoint, but weights are required;
            a ZIP file cannot be read; a checksum differs.
        ConnectionError: a model cannot be downloaded.
    """
    source = local_source(source, with_softmax=with_softmax)
    if not isinstance(source, str | os.PathLike):
        yield _pair(source)
        return
    path = os.fspath(source)
    require_known(path)
    if os.path.isdir(path):
        if holds_checkpoint(path) and not weights_only:
            from bilm.files.checkpoints import load_options_latest_checkpoint  # has TensorFlow

            yield _from_checkpoint(load_options_latest_checkpoint(path)[1], path)
        else:
            yield _from_weights(_find_weights(Path(path), path), path)
    elif os.path.isfile(f"{path}.index"):
        if weights_only:
            folder = os.path.dirname(path) or os.curdir
            raise InputError(_dump_hint(f"{path}: a checkpoint", folder))
        yield _from_checkpoint(path, path)
    elif _is_hdf5(require_file(path, "model")):
        yield _from_weights(Path(path), path)
    elif zipfile.is_zipfile(path):
        with extracted(path, "model") as temporary:
            yield _from_weights(_find_weights(Path(temporary), path), path)
    else:
        content = substitute_for_a_file(path) or "not a ZIP file, or truncated"
        raise InputError(
            f"{path} must be a folder, a ZIP file, an HDF5 file, a checkpoint, or a pair of "
            f"options and weights; this file is {content}."
        )


@contextlib.contextmanager
def extracted(path: PathLike, what: str) -> Iterator[str]:
    """A temporary folder with the members of a ZIP file, for the block. Errors in the block name
    the ZIP file instead of the folder; `what` describes it."""
    source = require_file(path, what)
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        try:
            with zipfile.ZipFile(source) as archive:
                archive.extractall(folder)  # drops .. and absolute paths from the names
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise InputError(
                f"{source}: the ZIP file cannot be read: {error!r}. Delete it and get it again."
            ) from error
        try:
            yield folder
        except (InputError, FileNotFoundError) as error:
            text = str(error).replace(folder + os.sep, f"{source}: ").replace(folder, source)
            raise type(error)(text) from error


def _pair(source: Sequence[Any]) -> ModelFiles:
    kinds = (str | os.PathLike | Mapping | Options, str | os.PathLike)
    is_pair = isinstance(source, Sequence) and len(source) == 2
    if not is_pair or not all(map(isinstance, source, kinds)):
        raise InputError(
            "A model must be a folder, a ZIP file, a name, an address, or a pair (options, "
            f"weights), got {shown(source)}."
        )
    return ModelFiles(source[0], source[1], None, os.fspath(source[1]))


def _from_checkpoint(prefix: str, source: str) -> ModelFiles:
    folder = Path(prefix).parent
    options = str(folder / OPTIONS_FILE)
    return ModelFiles(options, prefix, _first(folder, *_VOCABULARIES), source, True)


def _is_hdf5(path: str) -> bool:
    if path.endswith(HDF5):
        return True
    with open(path, "rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


def _from_weights(weights: Path, source: str) -> ModelFiles:
    """The model whose other files are next to its weights."""
    folder, stem, ending = weights.parent, weights.stem, weights.suffix
    start = stem.removesuffix("weights")  # elmo_weights.hdf5 and elmo_options.json
    # `bilm dump` writes the first one next to the options of the training.
    options = _first(folder, f"{stem}.options.json", f"{start}options.json", OPTIONS_FILE)
    if options is None:
        # The names of other options are clear only if there is no other model.
        others = sorted(map(str, folder.glob("*options.json")))
        if len(others) != 1 or _likeliest_weights(folder) != [weights]:
            present = ", ".join(map(os.path.basename, others)) or "none"
            raise InputError(
                f"{folder}: {OPTIONS_FILE} must be next to {weights.name}; there is {present}."
            )
        options = others[0]
    softmax = _first(folder, f"{start}softmax_weights{ending}", f"softmax_weights{ending}")
    return ModelFiles(
        options, str(weights), _first(folder, *_VOCABULARIES), source, softmax=softmax
    )


def _first(folder: Path, *names: str) -> str | None:
    """The path of the first name that is a file in a folder. It is an input, even if nothing in it
    is needed, as of a vocabulary whose words the weights hold."""
    path = next((str(folder / name) for name in names if (folder / name).is_file()), None)
    if path is not None:
        add_input(path)
    return path


def _find_weights(folder: Path, source: str) -> Path:
    """The weights file of a folder, or of its subfolders: archives are often unpacked into one."""
    subfolders = sorted(path for path in folder.glob("*/") if path.name != "__MACOSX")
    for folders in ([folder], subfolders):
        weights = [path for inner in folders for path in _likeliest_weights(inner)]
        if len(weights) == 1:
            return weights[0]
        if weights:
            listed = ", ".join(path.relative_to(folder).as_posix() for path in weights)
            raise InputError(
                f"{source} must hold one weights file, got {listed}: give the pair (options, "
                "weights) instead."
            )
    raise InputError(_no_weights(folder, source))


def _likeliest_weights(folder: Path) -> list[Path]:
    """The weights files in a folder with the likeliest names; several if ambiguous."""
    files = sorted(path for path in folder.glob("[!.]*") if path.suffix in HDF5 and path.is_file())
    for name in (WEIGHTS_FILE, "weights.hdf5"):
        if folder / name in files:
            return [folder / name]
    files = [path for path in files if "softmax" not in path.name]
    return [path for path in files if path.stem.endswith("weights")] or files


def _no_weights(folder: Path, source: str) -> str:
    if holds_checkpoint(folder):
        return _dump_hint(f"{source}: a training folder, which holds checkpoints", source)
    paths = sorted([*folder.glob("*"), *folder.glob("*/*")])
    names = [path.name for path in paths if path.is_file()]
    if "encoder.pkl" in names:
        return (
            f"{source} must be converted: ELMoForManyLangs models (encoder.pkl) have another "
            f"format. Run `bilm convert {shlex.quote(source)} FOLDER`."
        )
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return (
        f"{source} must hold {WEIGHTS_FILE} or another .hdf5 file with weights, got "
        f"{listed or 'no file'}."
    )


def _dump_hint(what: str, folder: str) -> str:
    """The message for a training folder, `what`, where a model folder is required."""
    command = f"bilm dump --save_dir {shlex.quote(folder)} --model_dir FOLDER"
    return f"{what}: `{command}` writes a model for use."


logger = logging.getLogger(__name__)

_MODELS = Path(__file__).parent.parent / "models"
_NLPL = "http://vectors.nlpl.eu/repository/{}/{}.zip"
# The models of NLPL's repository that are in the format of ELMoForManyLangs.
_MANY_LANGS = range(136, 180)
_RETRIES, _TIMEOUT, _BLOCK = 2, 30, 2**18  # seconds, bytes
REPLACED = {"wiki-en": "english", "wiki-zh": "chinese", "en": "english", "zh": "chinese",
            "la": "latin"}  # fmt: skip
"""Earlier names and language codes, and the names of the models to use instead."""


class Published(NamedTuple):
    """A named model; language, tokens and licence are stated as its publisher describes them."""

    name: str
    language: str  # language and source of the training text
    tokens: str = "not stated"  # tokenisation of the training text, which new text must have
    licence: str = "not stated"  # licence of the weights
    megabytes: int | None = None  # approximate size of the weights
    # The address of each file by its name in the cache; `#...` is a checksum. None for a model
    # included in the package.
    files: dict[str, str] | None = None
    # Addresses of the softmax and its vocabulary; only a `Predictor` downloads them.
    softmax: dict[str, str] | None = None
    checksum: str | None = None  # of the weights or the ZIP file: "sha256=..." or "md5=..."
    note: str | None = None  # about the download

    @property
    def folder(self) -> str:
        """The folder of the model's files, which may be missing."""
        return os.path.join(_MODELS if self.files is None else cache_folder(), self.name)

    @property
    def is_present(self) -> bool:
        """Whether all files are present."""
        names = self.files or (OPTIONS_FILE, WEIGHTS_FILE)
        return all(os.path.isfile(os.path.join(self.folder, name)) for name in names)


def sample_text(source: Any) -> str | None:
    """The sample of text for a model of the package; None for other models."""
    name = source.partition("#")[0] if is_remote(source) else ""
    path = _MODELS.parent / "samples" / f"{name}.txt.xz"
    return str(path) if path.is_file() else None


def cache_folder() -> str:
    """The folder of downloaded models: models/bilm in Keras' cache, $KERAS_HOME or ~/.keras."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return os.path.join(home, "models", "bilm")


@functools.cache
def _table() -> dict[str, Published]:
    rows = json.loads((_MODELS / "published.json").read_text(encoding="utf-8"))
    return {row["name"]: _published(**row) for row in rows}


def _published(name: str, **row: Any) -> Published:
    if number := re.fullmatch(r"nlpl-([1-9][0-9]{0,5})", name):
        part = 11 if int(number[1]) in _MANY_LANGS else 20
        files = {f"{number[1]}.zip": _NLPL.format(part, number[1])}
        row = {"licence": "CC BY 4.0", "files": files, **row}
    weights = row.get("files", {}).get("weights.hdf5", "")
    return Published(name, **{"checksum": weights.partition("#")[2] or None, **row})


def published_models() -> list[Published]:
    """The named models. Other numbers in NLPL's repository are names as well: nlpl-NNN."""
    return list(_table().values())


def find_published(name: str) -> Published | None:
    """The model with a name, or None."""
    if name in _table():
        return _table()[name]
    model = _published(name, language="not stated")
    return model if model.files else None


def is_remote(source: Any) -> bool:
    """Whether a model's source is a name or an address, and not an existing path."""
    if not isinstance(source, str) or _is_path(source):
        return False
    return bool(ADDRESS.match(source)) or find_published(source.partition("#")[0]) is not None


def local_source(source: Any, *, with_softmax: bool = False) -> Any:
    """A model's source, or a pair (options, weights), with names and addresses replaced by paths of
    the files, which are downloaded if missing; `with_softmax` also downloads the softmax."""
    if isinstance(source, tuple | list):
        return type(source)(_from_web(part) if is_remote(part) else part for part in source)
    if not is_remote(source):
        return source
    if source.lower().startswith("hf:"):
        return _from_hugging_face(source, with_softmax)
    return _from_web(source) if ADDRESS.match(source) else _named(source, with_softmax)


def require_known(source: str) -> None:
    """Require that a model's source is a name, an address, or an existing path."""
    if is_remote(source) or _is_path(source):
        return
    name = source.partition("#")[0]
    hint = ""
    if name in REPLACED:
        hint = f" Use the model {REPLACED[name]!r}."
    elif os.path.basename(source) == source:
        close = difflib.get_close_matches(source.lower(), _table(), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        hint += " `bilm models` lists the models that have names."
    raise FileNotFoundError(f"The model {source!r} does not exist.{hint}")


def _is_path(source: str) -> bool:
    # A checkpoint's path is the common prefix of its files.
    return os.path.lexists(source) or os.path.isfile(f"{source}.index")


def _named(source: str, with_softmax: bool) -> str:
    """The folder of a model of the table, or its ZIP file."""
    name, pin = _split(source)
    model = find_published(name) or Published(name, "")
    if model.files is None:
        _require_checksum(os.path.join(model.folder, WEIGHTS_FILE), pin)
        return model.folder
    paths = []
    for file, address in (model.files | (model.softmax or {} if with_softmax else {})).items():
        address, checksum = _split(address)
        if pin and (file.startswith("weights") or file.endswith(".zip")):
            checksum = pin
        paths.append(_download(address, os.path.join(model.folder, file), checksum))
    return model.folder if len(paths) > 1 else paths[0]


def _from_web(source: str) -> str:
    """The file of an address."""
    address, checksum = _split(source)
    try:
        parts = urlsplit(address)
        name = unquote(parts.path).rpartition("/")[2]
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if not is_web or not name.strip(".") or re.search(r"[\\/:\0]", name):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{shown(address)}: an address must have the form https://HOST[:PORT]/PATH/FILE or "
            "hf://OWNER/NAME."
        ) from None
    # Neither user nor password becomes the name of a folder; a query may name the file.
    host = parts.netloc.rpartition("@")[2]
    key = f"{parts.scheme}://{host}{parts.path}{'?' * bool(parts.query)}{parts.query}"
    digits = hashlib.sha256(key.encode()).hexdigest()[:16]
    folder = re.sub(r"[^\w.-]", "-", host) + f"-{digits}"
    return _download(address, os.path.join(cache_folder(), folder, name), checksum)


def _split(source: str) -> tuple[str, str | None]:
    """Split a checksum off a name or an address: `NAME#sha256=HEX` or `NAME#md5=HEX`."""
    name, mark, checksum = source.partition("#")
    if mark and not re.fullmatch(r"sha256=[0-9a-f]{64}|md5=[0-9a-f]{32}", checksum.lower()):
        raise InputError(
            f"{shown(source)}: # must be followed by sha256= and 64 hexadecimal "
            "digits, or by md5= and 32."
        )
    return name, checksum.lower() or None


def _download(address: str, path: str, checksum: str | None = None) -> str:
    """Download a file to `path` unless it exists, and check its checksum; a new file must be one
    that can be opened."""
    where, (folder, name) = without_secrets(address), os.path.split(path)
    if os.path.isfile(path):
        _require_checksum(path, checksum, " Delete the file; it will be downloaded again.")
        return path
    import pooch
    import requests  # which pooch requires

    def failed(reason: str) -> ConnectionError:
        return ConnectionError(
            f"{where} cannot be downloaded: {reason}. Run the command again, or get the file some "
            f"other way and save it as {path}."
        )

    def fetch(_: str, temporary: str, __: Any) -> None:
        with (
            requests.get(address, stream=True, timeout=_TIMEOUT) as response,
            ProgressDisplay(quiet=not logger.isEnabledFor(logging.INFO)) as display,
            open(temporary, "wb") as file,
        ):
            if response.status_code != 200:
                answer = f"the server answers {response.status_code} {response.reason}"
                raise failed(answer) if response.status_code < 500 else requests.HTTPError(answer)
            total = int(response.headers.get("Content-Length", 0)) or None
            for block in response.iter_content(_BLOCK):
                file.write(block)
                display.show(Stage(f"downloading {name}", file.tell(), total))
        if problem := _problem(temporary, name):
            raise failed(f"the server sent {problem}")
        os.chmod(temporary, 0o644)  # only the owner can read pooch's temporary files

    os.makedirs(folder, exist_ok=True)
    known = {name: checksum and checksum.replace("=", ":")}
    files = pooch.create(folder, "", registry=known, urls={name: where}, retry_if_failed=_RETRIES)
    log = pooch.get_logger()
    level = log.level
    log.setLevel(logging.WARNING)  # pooch prints
    try:
        files.fetch(name, downloader=fetch)
    except requests.RequestException as error:
        cause = error.args[0] if error.args else error
        raise failed(without_secrets(str(getattr(cause, "reason", cause)))) from None
    except ValueError as error:
        raise InputError(f"{where}: the checksum must be {checksum}; {error}") from None
    finally:
        log.setLevel(level)
    if checksum is None:
        size, digits = f"{os.path.getsize(path):,}", pooch.file_hash(path)
        logger.info("%s: %s bytes; #sha256=%s after the name pins this content", path, size, digits)
    return path


def _require_checksum(path: str, checksum: str | None, cure: str = "") -> None:
    """Require the checksum of an existing file; `cure` ends the message."""
    if checksum is None:
        return
    from pooch import file_hash

    algorithm, _, digits = checksum.partition("=")
    if (actual := file_hash(path, algorithm)) != digits:
        raise InputError(
            f"{path}: the checksum must be {checksum}, got {algorithm}={actual}.{cure}"
        )


def _problem(path: str, name: str) -> str | None:
    """Why a new file called `name` cannot be opened, or None."""
    if content := substitute_for_a_file(path):
        return content
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() and "a damaged ZIP file"
        if name.endswith(HDF5):
            from bilm.files.hdf5 import open_hdf5  # imports h5py, which `--help` does not need

            with open_hdf5(path):
                return None
        if name.endswith(".json"):
            parse_json(Path(path).read_bytes(), name)
    except (InputError, OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        return f"a damaged file: {error}"
    return None


def _from_hugging_face(source: str, with_softmax: bool) -> str:
    """The folder with the files of a repository on Hugging Face, in huggingface_hub's cache."""
    text, checksum = _split(source)
    match = re.fullmatch(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text, re.IGNORECASE)
    if match is None or ".." in text:
        raise InputError(f"{shown(source)}: the form must be hf://OWNER/NAME[@REVISION].")
    hub = import_extra("huggingface_hub", "A model on Hugging Face")
    try:
        folder = hub.snapshot_download(
            match[1],
            revision=match[2],
            allow_patterns=["*options.json", *(f"*{e}" for e in HDF5), f"*{VOCABULARY_FILE}*"],
            ignore_patterns=None if with_softmax else ["*softmax*"],
        )
    except Exception as error:  # the exceptions depend on the hub's HTTP library
        reason = " ".join(str(error).split())
        raise ConnectionError(f"{text} cannot be downloaded: {reason}") from error
    for path in Path(folder).rglob("*"):
        if path.name.endswith(HDF5) and "softmax" not in path.name:
            _require_checksum(str(path), checksum)
    return str(folder)
