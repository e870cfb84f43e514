"""The log of a run: a JSON object a line, for whatever reads or plots it."""

from __future__ import annotations

import json
import os
from typing import Any

from bilm.files import PathLike

LOG_FILE = "train_log.jsonl"


class RunLog:
    """Appends to `train_log.jsonl` in a folder, which is made when it is missing."""

    def __init__(self, folder: PathLike) -> None:
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(os.fspath(folder), LOG_FILE)

    def write(self, **facts: Any) -> None:
        """Add a line. A crash between lines loses none."""
        with open(self.path, "a", encoding="utf-8") as log:
            log.write(json.dumps(facts) + "\n")
