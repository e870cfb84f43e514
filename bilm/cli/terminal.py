"""What the verbs have to do with the standard streams: their state, notes, warnings, and
TensorFlow's greetings."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


# Control characters but tab and line end, line ends of Unicode, marks that turn the direction of
# text, surrogates.
_CONTROL = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LONGEST = 2000


def printable(text: str) -> str:
    """Text with control characters as escapes, \\u001b and the like.

    Names that come from files, of datasets, keys or members, could otherwise move a terminal's
    cursor, erase what it shows, or set its title.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortened(text: str) -> str:
    """Text of at most some 2,000 characters."""
    n_more = len(text) - _LONGEST
    return text if n_more <= 0 else f"{text[:_LONGEST]} ... ({n_more:,} characters more)"


def note(text: str) -> None:
    """Tell the user something on standard error, at most some 2,000 characters."""
    print(printable(shortened(text)), file=sys.stderr)


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Let the standard streams be there, and take what they are given, within the block.

    Results are UTF-8, whatever the locale says, and names of files come out as they are. Standard
    error may be full: what is told there is not worth an end. Streams that are closed lead nowhere;
    otherwise a file that is opened would take their numbers, and what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    out: Any = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = out
    told: Any = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = _Unfailing(told)
    form = {}
    if isinstance(out, io.TextIOWrapper):
        form = {"encoding": out.encoding, "errors": out.errors}
        out.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        yield
    finally:
        try:
            out.flush()
        except OSError:  # for which there was an error already
            lead_nowhere(out)
        if form:
            out.reconfigure(**form)
        sys.stdin, sys.stdout, sys.stderr = before


def lead_nowhere(stream: Any) -> None:
    """Let a stream that takes nothing more take all, so that the end of Python can flush it."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


class _Unfailing:
    """A stream whose errors are nobody's concern."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except OSError:
            lead_nowhere(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            lead_nowhere(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # sys.stderr as it is now: a progress display puts its own in its place.
        note(" ".join(self.format(record).splitlines()))


@contextlib.contextmanager
def warnings_on_stderr(program: str) -> Iterator[None]:
    """Show the library's warnings while a verb runs, without touching anyone else's logging."""
    handler = _Warnings()
    handler.setFormatter(logging.Formatter(f"{program}: warning: %(message)s"))
    logger = logging.getLogger("bilm")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def import_tensorflow() -> None:
    """Import TensorFlow; keep what it says about processors and drivers off the terminal.

    The first lines come from C++ straight to the file descriptor, before any setting is read.
    They are shown when the import fails, and all of them when the user has set
    TF_CPP_MIN_LOG_LEVEL. Keras comes with it, whose backend is checked first.

    Raises:
        InputError: Keras was told to compute by another backend.
    """
    if _LEVEL in os.environ or "tensorflow" in sys.modules:
        importlib.import_module("bilm.core.keras_backend")
        return
    # Its errors come as exceptions as well; what it logs is a missing driver or fast path.
    os.environ[_LEVEL] = "3"
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        shown = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            importlib.import_module("bilm.core.keras_backend")
        except BaseException:
            said.seek(0)
            os.write(shown, said.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)


@contextlib.contextmanager
def python_only_on_stderr() -> Iterator[None]:
    """Keep off standard error what libraries write to its file descriptor, past `sys.stderr`."""
    own = sys.stderr
    own.flush()
    shown = os.dup(2)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, shown)
        with contextlib.suppress(OSError):  # of a stream that has no descriptor
            if own.fileno() == 2:
                sys.stderr = stack.enter_context(
                    open(os.dup(shown), "w", 1, encoding=own.encoding, errors=own.errors)
                )
        stack.callback(setattr, sys, "stderr", own)
        nowhere = stack.enter_context(open(os.devnull, "wb"))
        stack.callback(os.dup2, shown, 2)
        os.dup2(nowhere.fileno(), 2)
        yield
