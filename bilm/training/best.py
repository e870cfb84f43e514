"""The best model of a run, kept when the other checkpoints are rotated away.

It is in the folder `best` within that of the run, which has the same form: whatever reads the
folder of a run reads that one as well.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from bilm.files import PathLike
from bilm.training.checkpoint import CHECKPOINT_SUFFIXES, OPTIONS_FILE, name_checkpoints

BEST_FOLDER = "best"


def keep_best(save_dir: PathLike, prefix: str) -> str:
    """Keep a checkpoint of the folder as its best one; return the prefix that it has then.

    The files are linked where the file system can, so that they take no room of their own. The
    one that was best before goes when the new one is there.

    Raises:
        OSError: the disk does not take it.
    """
    folder = Path(save_dir, BEST_FOLDER)
    folder.mkdir(exist_ok=True)
    name = os.path.basename(prefix)
    for suffix in CHECKPOINT_SUFFIXES:
        _link(prefix + suffix, folder / f"{name}{suffix}")
    _link(os.path.join(save_dir, OPTIONS_FILE), folder / OPTIONS_FILE)
    name_checkpoints(folder, [name])
    for path in folder.glob("model.ckpt-*"):
        if not path.name.startswith(f"{name}."):
            path.unlink()
    return str(folder / name)


def _link(source: str, target: Path) -> None:
    """Give a file a second name, in the place of a file that has it already."""
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        try:
            os.link(source, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(source, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
