"""The process that reads changed files: `python -m tests.fuzz.worker FOLDER MEGABYTES`.

It takes a case a line, a JSON list (format, seed, number), and answers each with a line, a JSON
list (outcome, signature, detail). Whoever started it bounds the time.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bilm.core.errors import InputError
from tests.fuzz.changes import Changes, Secrets
from tests.fuzz.formats import FORMATS, PLANTED, Format

HELD, REFUSED, FINDING = "held", "refused", "finding"
Answer = tuple[str, str, str]  # outcome, signature, detail

# In secret files; as float32 it is a finite number.
_CANARY = b"CNRY"
_LONGEST_MESSAGE = 20_100
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen",
             "socket.connect", "pickle.find_class")  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Reader:
    """Makes cases in a folder, and reads them.

    Args:
        folder: of this reader alone; good files, the case, and secrets are below it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.case = folder, folder / "case"
        private = folder / "private"
        self._private, self._seen, self._watching = str(private), list[str](), False
        private.mkdir(exist_ok=True)
        (folder / "tmp").mkdir(exist_ok=True)
        self.secrets = Secrets(*(str(private / n) for n in ("secret", "secret.hdf5", "fifo")))
        if not os.path.exists(self.secrets.fifo):
            self._make_secrets()
        sys.addaudithook(self._audit)

    def _make_secrets(self) -> None:
        import h5py

        Path(self.secrets.raw).write_bytes(_CANARY * 4096)
        with h5py.File(self.secrets.hdf5, "w") as file:
            file["secret"] = np.frombuffer(_CANARY * 4096, "<f4")
        os.mkfifo(self.secrets.fifo)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Notes what Python does that no file may make it do; called for everything it does."""
        if not self._watching:
            return
        if event == "open":
            path, _, flags = arguments
            path = os.fsdecode(path) if isinstance(path, str | bytes) else ""
            outside = not path.startswith((str(self.folder), "/dev/"))
            is_cache = path.endswith(".pyc") or "__pycache__" in path
            if path.startswith(self._private) or (
                path.startswith("/") and outside and flags & _WRITING and not is_cache
            ):
                self._seen.append(f"opened {path}")
        elif event in _PROGRAMS:
            self._seen.append(f"{event} {arguments!r:.200}")

    def prepare(self, name: str, seed: int, number: int) -> Format:
        """Write the files of a case into the folder `case`."""
        format = (FORMATS | PLANTED)[name]
        good = self.folder / "good" / name.replace("/", "_")
        if not good.exists():
            making = self.folder / "making"
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            format.make(making)
            good.parent.mkdir(exist_ok=True)
            making.rename(good)
        shutil.rmtree(self.case, ignore_errors=True)
        shutil.copytree(good, self.case)
        draw = random.Random(f"{seed} {name} {number}")
        changes, files = Changes(draw, self.secrets), list(format.files)
        for file in draw.sample(files, min(len(files), draw.choice((1,) * 9 + (2,)))):
            path = self.case / file
            path.write_bytes(changes.change(path.read_bytes(), format.files[file]))
        return format

    def run(self, name: str, seed: int, number: int) -> Answer:
        """Read a case, and say what came of it."""
        format = self.prepare(name, seed, number)
        self._seen.clear()
        self._watching = True
        try:
            outcome = self._read(format)
        finally:
            self._watching = False
        left = os.listdir(self.folder / "tmp")
        if self._seen:
            return FINDING, self._seen[0].partition(" ")[0], "; ".join(self._seen[:5])
        if left:
            shutil.rmtree(self.folder / "tmp")
            (self.folder / "tmp").mkdir()
            return FINDING, "temporary files", f"left behind: {left[:5]}"
        return outcome

    def _read(self, format: Format) -> Answer:
        try:
            for value in format.read(self.case):
                _look_at(value)
            return HELD, "", ""
        except (InputError, FileNotFoundError) as error:
            return self._refused(format, str(error))
        except Exception as error:
            return FINDING, _signature(error), traceback.format_exc()

    def _refused(self, format: Format, message: str) -> Answer:
        if len(message) > _LONGEST_MESSAGE:
            return FINDING, "message", f"of {len(message)} characters: {message[:300]}"
        if _CANARY.decode() in message:
            return FINDING, "disclosure", message[:300]
        named = [str(self.case), *map(os.path.basename, format.files)]
        if not any(name.removesuffix(".json") in message for name in named):
            return FINDING, "message", f"names no file: {message[:300]}"
        return REFUSED, "", message[:300]


def _look_at(value: Any) -> None:
    """Check what was read: numbers are finite, and nothing is of a secret file."""
    if isinstance(value, np.ndarray):
        assert value.dtype.kind != "f" or np.isfinite(value).all(), "not finite"
        assert _CANARY not in value.tobytes(), "disclosure"
    elif isinstance(value, str):
        assert _CANARY.decode() not in value, "disclosure"
    elif isinstance(value, float):
        assert np.isfinite(value), "not finite"
    elif isinstance(value, list | tuple):
        for inner in value:
            _look_at(inner)


def _signature(error: BaseException) -> str:
    """The kind of an error, and the last line of the package that it came by."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}bilm{os.sep}" in
              f.filename or "fuzz" in f.filename]  # fmt: skip
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}"


def bound_memory(megabytes: int) -> None:
    """Bound what the process may take from now on, beside what it has."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bound = has + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def main(folder: str, megabytes: int) -> None:
    """Answer cases until there are none."""
    faulthandler.enable()
    # Answers go where standard output was; whatever prints, prints to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["TMPDIR"] = os.path.join(folder, "tmp")
    reader = Reader(Path(folder))
    import tensorflow as tf

    # A case runs a network once: that is not worth a trace.
    tf.config.run_functions_eagerly(True)
    bound_memory(megabytes)
    print("ready", file=answers, flush=True)
    for line in _lines(sys.stdin):
        name, seed, number = json.loads(line)
        print(json.dumps(reader.run(name, seed, number)), file=answers, flush=True)


def _lines(stream: io.TextIOBase | Any) -> Iterator[str]:
    while line := stream.readline():
        yield line


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
