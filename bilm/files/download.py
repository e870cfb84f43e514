"""Downloads by pooch: a file appears under its name once it is complete and can be opened."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from bilm.core.errors import InputError, shown
from bilm.files.file_choice import HDF5
from bilm.files.reading import parse_json, substitute_for_a_file
from bilm.files.writing import flush_to_disk, locked, named_in_errors, partial_name
from bilm.progress import ProgressDisplay

logger = logging.getLogger(__name__)

_RETRIES = 2
_SHA256 = ("sha256", "")
_BLOCK = 2**18


class Checksum(NamedTuple):
    """A checksum of a file."""

    algorithm: str  # "md5" or "sha256"
    digits: str  # hexadecimal, lower case
    source: str | None = None  # its origin, for messages

    def __str__(self) -> str:
        return f"{self.algorithm}={self.digits}" + (f" ({self.source})" if self.source else "")


def shows_progress() -> bool:
    """Whether downloads show their progress on standard error: if this module's logger is at INFO,
    as in commands."""
    return logger.isEnabledFor(logging.INFO)


def is_address(source: object) -> bool:
    """Whether `source` is an address of a web server."""
    return isinstance(source, str) and source.startswith(("https://", "http://"))


def without_secrets(address: str) -> str:
    """An address without user, password and query, for messages and names of files; other text is
    unchanged."""
    if not is_address(address):
        return address
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def split_checksum(source: str) -> tuple[str, Checksum | None]:
    """Split a checksum off a name or an address: `NAME#sha256=HEX` or `NAME#md5=HEX`."""
    name, mark, text = source.partition("#")
    if not mark:
        return name, None
    if not re.fullmatch(r"sha256=[0-9a-f]{64}|md5=[0-9a-f]{32}", text.lower()):
        raise InputError(
            f"{shown(without_secrets(source))}: # must be followed by sha256= and 64 hexadecimal "
            "digits, or by md5= and 32."
        )
    return name, Checksum(*text.lower().split("="))


def file_name(address: str) -> str:
    """The name of the file at an address."""
    name = unquote(urlsplit(address).path).rpartition("/")[2]
    if not name.strip(".") or re.search(r"[\\/:\0]", name):
        raise InputError(
            f"{shown(without_secrets(address))}: the address must end in the name of a file."
        )
    return name


def download(address: str, path: str, checksum: Checksum | None = None) -> str:
    """Download a file to `path` unless it exists, and check its content and its checksum."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.isfile(path):
        with locked(partial_name(path), "", wait=True):
            if not os.path.isfile(path):  # another process may have downloaded it
                _download(address, path, checksum)
                return path
    if problem := problem_of(path):
        raise InputError(f"{path}: {problem}. Delete the file; it will be downloaded again.")
    require_checksum(path, checksum, "delete the file, and it will be downloaded again")
    return path


def require_checksum(path: str, checksum: Checksum | None, cure: str) -> None:
    """Require the checksum of an existing file; `cure` ends the message."""
    from pooch import file_hash

    if checksum is not None and (digits := file_hash(path, checksum.algorithm)) != checksum.digits:
        raise InputError(
            f"{path}: the checksum must be {checksum}, got {checksum.algorithm}={digits}: {cure}."
        )


def _download(address: str, path: str, checksum: Checksum | None) -> None:
    import pooch
    import requests  # which pooch requires

    folder, name = os.path.split(path)
    where, algorithm, digits = without_secrets(address), *(checksum or _SHA256)[:2]

    def fetch(url: str, temporary: str, _: Any) -> None:
        with ProgressDisplay(quiet=not shows_progress()) as display:
            try:
                pooch.HTTPDownloader(_Bar(name, display), _BLOCK)(url, temporary, None)
            except requests.HTTPError as error:
                if (
                    error.response is not None and error.response.status_code < 500
                ):  # a retry would not help
                    raise failed(_reason(error)) from error
                raise
        if problem := problem_of(temporary, name):
            raise failed(f"the server sent {problem}")
        nonlocal digits
        digits = pooch.file_hash(temporary, algorithm)
        os.chmod(temporary, 0o644)  # only the owner can read pooch's temporary files
        flush_to_disk(temporary)

    def failed(reason: str) -> ConnectionError:
        return ConnectionError(
            f"{where} cannot be downloaded: {reason}. Run the command again, or get the file some "
            f"other way and save it as {path}."
        )

    expected = checksum and f"{algorithm}:{digits}"
    files = pooch.Pooch(folder, "", {name: expected}, {name: address}, _RETRIES)
    try:
        with named_in_errors(path), _quiet_pooch():
            files.fetch(name, downloader=fetch)
    except requests.RequestException as error:
        raise failed(_reason(error)) from error
    except ValueError as error:
        message = f"{where}: the checksum must be {checksum}, got {algorithm}={digits}."
        raise InputError(message) from error
    if checksum is None:
        size = f"{os.path.getsize(path):,}"
        logger.info("%s: %s bytes; #sha256=%s after the name pins this content", path, size, digits)


def problem_of(path: str, name: str | None = None) -> str | None:
    """Why a file does not have the format of its ending, or None; `name` is its final name, by
    default `path`."""
    name = name or path
    if problem := substitute_for_a_file(path):
        return problem
    try:
        if name.endswith(HDF5):
            from bilm.files.hdf5 import open_hdf5  # imports h5py, which `--help` does not need

            with open_hdf5(path) as file:
                list(file)
        elif name.endswith(".json"):
            parse_json(Path(path).read_bytes(), path)
        elif name.endswith(".zip") and not zipfile.is_zipfile(path):
            return "a file that is not a ZIP file, or truncated"
    except InputError as error:
        return str(error).replace(path, os.path.basename(name))
    return None


def _reason(error: Any) -> str:
    """Why a request failed, without its address, which may have a password."""
    if error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    cause = error.args[0] if error.args else error
    return str(getattr(cause, "reason", cause))


class _Bar:
    """The part of tqdm's interface that pooch uses."""

    total = 0

    def __init__(self, name: str, display: ProgressDisplay) -> None:
        self._name, self._display, self._done = name, display, 0

    def update(self, n: int) -> None:
        self._done = min(self._done + n, self.total) if self.total else self._done + n
        total = self.total or None
        self._display.update(f"downloading {self._name}", self._done, total, "bytes")

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Stop pooch from printing addresses, which may have a password."""
    import pooch

    log = pooch.get_logger()
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
