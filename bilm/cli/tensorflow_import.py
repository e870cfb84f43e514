"""Imports TensorFlow without its greetings."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import IO

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def import_tensorflow() -> None:
    """Import TensorFlow; keep what it says about processors and drivers off the terminal.

    The first lines come from C++ straight to the file descriptor, before any setting is read.
    They are shown when the import fails, and all of them when the user has set
    TF_CPP_MIN_LOG_LEVEL.
    """
    if _LEVEL in os.environ or "tensorflow" in sys.modules:
        return
    # Its errors come as exceptions as well; what it logs is a missing driver or fast path.
    os.environ[_LEVEL] = "3"
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        shown = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        except BaseException:
            _copy(said, shown)
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)


def _copy(said: IO[bytes], descriptor: int) -> None:
    said.seek(0)
    os.write(descriptor, said.read())
