"""What subcommands print: tables, notes, warnings; and hiding TensorFlow's start-up messages."""

import contextlib
import importlib
import io
import logging
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from bilm.core.errors import without_secrets

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

# Control characters except tab and line feed, Unicode line ends, marks that change the direction of
# text, and surrogates.
_CONTROL = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_MAX_LENGTH = 2000
_UNBOUNDED = 10_000  # columns: tables are never wrapped


def printable(text: str) -> str:
    """Text with control characters escaped, as in \\u001b.

    Otherwise names in files (datasets, keys, archive members) could move a terminal's cursor, erase
    its screen or set its title.
    """
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def message(text: str) -> str:
    """Text for a message: printable, without secrets, and cut after 2,000 characters."""
    text = without_secrets(text)
    n_more = len(text) - _MAX_LENGTH
    more = f" ... ({n_more:,} characters more)" if n_more > 0 else ""
    return printable(text[:_MAX_LENGTH]) + more


def end_orderly(number: int, _: object) -> None:
    """Exit at SIGTERM through all cleanup code, so that no temporary files are left. A training run
    replaces this handler of the commands, and saves its steps."""
    raise SystemExit(128 + number)


def count(n: int, noun: str) -> str:
    """A number of things: "1 file", "1,000 files"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Format cells as lines: the first `left` columns are aligned left, the others right."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, padding=(0, 3, 0, 0), show_header=False, pad_edge=False)
    for number in range(len(rows[0])):
        grid.add_column(justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*map(printable, row))
    target = io.StringIO()
    console = Console(file=target, width=_UNBOUNDED, color_system=None, emoji=False, markup=False)
    console.print(grid, highlight=False)
    return [line.rstrip() for line in target.getvalue().splitlines()]


def note(text: str) -> None:
    """Print a message on standard error."""
    print(message(text), file=sys.stderr)


def show(lines: Iterable[str]) -> None:
    """Print lines of a result on standard output; control characters from files are escaped."""
    print(printable("\n".join(lines)))


def end_output() -> None:
    """Flush standard output; if it is broken, redirect it to /dev/null, so that Python can exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def is_broken(stream: TextIO) -> bool:
    """Whether a stream is a pipe whose reader has closed it."""
    with contextlib.suppress(OSError, ValueError):  # no descriptor, or closed
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False


class _Messages(logging.Handler):
    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def emit(self, record: logging.LogRecord) -> None:
        kind = "warning: " if record.levelno >= logging.WARNING else ""
        note(" ".join(f"{self._program}: {kind}{record.getMessage()}".splitlines()))


@contextlib.contextmanager
def warnings_on_stderr(program: str) -> Iterator[None]:
    """Show the library's warnings, and the progress of its downloads, while a subcommand runs,
    without changing the logging of other libraries."""
    handler = _Messages(program)
    logger, downloads = logging.getLogger("bilm"), logging.getLogger("bilm.files.model_files")
    if any(isinstance(other, _Messages) for other in logger.handlers):
        yield  # a subcommand runs another one, which must not show each warning twice
        return
    logger.addHandler(handler)
    level = downloads.level
    downloads.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        downloads.setLevel(level)


def import_tensorflow() -> None:
    """Import TensorFlow and Keras without TensorFlow's messages about CPUs and drivers.

    The first messages come from C++, before TF_CPP_MIN_LOG_LEVEL is read. Its value 0 shows all.
    """
    with contextlib.ExitStack() as stack:
        if os.environ.get(_LEVEL) != "0" and "tensorflow" not in sys.modules:
            # Errors are also raised as exceptions; the log is mostly about missing drivers.
            os.environ[_LEVEL] = "3"
            stack.enter_context(python_only_on_stderr())
        importlib.import_module("bilm.core.keras_backend")


@contextlib.contextmanager
def python_only_on_stderr() -> Iterator[None]:
    """Hide output of libraries to file descriptor 2; `sys.stderr` still works."""
    stream = sys.stderr
    stream.flush()
    # It stays open, because loggers that are created in the block, such as TensorFlow's, keep it.
    visible = open(os.dup(2), "w", 1, encoding=stream.encoding, errors=stream.errors)  # noqa: SIM115
    with contextlib.suppress(OSError):  # the stream has no descriptor
        if stream.fileno() == 2:
            sys.stderr = visible
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(visible.fileno(), 2)
        sys.stderr = stream
