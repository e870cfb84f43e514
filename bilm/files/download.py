"""Download a file, which appears under its name when it is complete and its checksum is right.

`keras.utils.get_file` writes under the final name, prints to standard output, has no timeout, and
cannot resume.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import http.client
import logging
import os
import re
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from bilm.core.errors import InputError, shown
from bilm.files.locks import locked
from bilm.files.writing import flush_to_disk, named_in_errors
from bilm.progress import ProgressDisplay

logger = logging.getLogger(__name__)

_TIMEOUT = 60.0  # seconds without any data
_BLOCK = 2**18


class Checksum(NamedTuple):
    """A checksum of a file."""

    algorithm: str  # "md5" or "sha256"
    digits: str  # hexadecimal, lower case

    def __str__(self) -> str:
        return f"{self.algorithm}={self.digits}"


def is_address(source: object) -> bool:
    """Whether `source` is an address of a web server."""
    return isinstance(source, str) and source.startswith(("https://", "http://"))


def split_checksum(source: str) -> tuple[str, Checksum | None]:
    """Split a checksum off a name or an address: `NAME#sha256=HEX` or `NAME#md5=HEX`."""
    name, mark, text = source.partition("#")
    if not mark:
        return name, None
    if not re.fullmatch(r"sha256=[0-9a-f]{64}|md5=[0-9a-f]{32}", text.lower()):
        raise InputError(
            f"{shown(source)}: # must be followed by sha256= and 64 hexadecimal digits, or by md5= "
            "and 32."
        )
    return name, Checksum(*text.lower().split("="))


def file_name(address: str) -> str:
    """The name of the file at an address."""
    name = unquote(urlsplit(address).path).rpartition("/")[2]
    if not name.strip(".") or re.search(r"[\\/:\0]", name):
        raise InputError(f"{shown(address)}: the address must end in the name of a file.")
    return name


def download(address: str, path: str, checksum: Checksum | None = None) -> str:
    """Download a file to `path` unless it exists; continue an interrupted download.

    If this module's logger is at INFO, progress is shown on standard error, and the checksum of the
    file if none was given. An existing file must have the checksum as well.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    if not os.path.isfile(path):
        with locked(Path(folder, ".lock"), "downloads into this folder", wait=True):
            if not os.path.isfile(path):  # another process may have downloaded it
                _download(address, path, checksum)
                return path
    found = checksum and checksum_of(path, checksum.algorithm)
    if checksum != found:
        raise InputError(f"{path}: the checksum must be {checksum}, got {found}: delete the file.")
    return path


def checksum_of(path: str, algorithm: str = "sha256") -> Checksum:
    """The checksum of a file."""
    with open(path, "rb") as file:
        digest = hashlib.new(algorithm, usedforsecurity=False)
        while block := file.read(_BLOCK):
            digest.update(block)
    return Checksum(algorithm, digest.hexdigest())


def _download(address: str, path: str, checksum: Checksum | None) -> None:
    try:
        partial = _fetch(address, path)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            reason = f"the server answers {error.code} {error.reason}"
        elif isinstance(error, OSError) and error.filename:  # an error of the disk
            raise
        else:
            reason = str(getattr(error, "reason", None) or error)
        raise ConnectionError(
            f"{address} cannot be downloaded: {reason}. Run the command again, or get the file "
            f"some other way and save it as {path}."
        ) from error
    found = checksum_of(partial, "sha256" if checksum is None else checksum.algorithm)
    if checksum not in (None, found):
        os.remove(partial)
        raise InputError(f"{address}: the checksum must be {checksum}, got {found}.")
    flush_to_disk(partial)
    os.replace(partial, path)
    if checksum is None:
        size = os.path.getsize(path)
        logger.info("%s: %s bytes; #%s after the name pins this content", path, f"{size:,}", found)


def _fetch(address: str, path: str) -> str:
    """Download to a temporary file, whose name includes the version of the file on the server, or
    continue an interrupted download of the same version."""
    with contextlib.ExitStack() as stack:
        response = stack.enter_context(_open(address))
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        total = int(response.headers.get("Content-Length") or 0) or None
        partial = f"{path}.{zlib.crc32(version.encode()):08x}.part"
        for other in glob.glob(f"{glob.escape(path)}.*.part"):
            if other != partial or not version or not total:
                os.remove(other)
        done = os.path.getsize(partial) if os.path.isfile(partial) else 0
        if 0 < done < (total or 0):
            response = stack.enter_context(_open(address, {"Range": f"bytes={done}-"}))
            if response.status != 206:
                done = 0
        display = ProgressDisplay(quiet=not logger.isEnabledFor(logging.INFO))
        stack.enter_context(display)
        with open(partial, "ab" if done else "wb") as file:
            while done != total and (block := response.read(_BLOCK)):
                with named_in_errors(partial):
                    file.write(block)
                done += len(block)
                display.update(f"downloading {os.path.basename(path)}", done, total, "bytes")
    if total is not None and done != total:
        raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")
    return partial


def _open(address: str, headers: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(address, headers={"User-Agent": "bilm"} | (headers or {}))
    return urllib.request.urlopen(request, timeout=_TIMEOUT)
