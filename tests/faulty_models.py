"""Commands that need a model, with each of their file operations failing; see faulty_files.

Models are loaded once and computations done once, because only file operations are tested.
"""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

import bilm.training
from bilm import ELMo, Predictor
from bilm.cli import main
from tests.command_line import OPTIONS, make_text, train_arguments
from tests.embedded_text import LINES, write_lines
from tests.faulty_files import Case, explore, report
from tests.small_models import write_small_model

MANY_LANGS = str(Path(__file__).parent / "fixtures" / "many_langs" / "words_legacy")
LONG = " ".join(f"w{n % 7}" for n in range(40))


def command(words: str) -> functools.partial[int]:
    subcommand, *arguments = words.split()
    return functools.partial(main, arguments, subcommand)


class Vectors(bytes):
    """A file of vectors; it equals another one whose numbers differ only by rounding."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vectors):
            return False
        ours, theirs = self.arrays(), other.arrays()
        return ours.keys() == theirs.keys() and all(
            np.allclose(array, theirs[name], 1e-5, 1e-6) if array.dtype.kind == "f"
            else np.array_equal(array, theirs[name])
            for name, array in ours.items()
        )  # fmt: skip

    def __ne__(self, other: object) -> bool:  # overrides bytes.__ne__
        return not self == other

    def arrays(self) -> dict[str, np.ndarray]:
        if self.startswith(b"{"):  # JSON lines
            lines = map(json.loads, self.splitlines())
            return {str(line["tokens"]): np.array(line["vectors"]) for line in lines}
        if self.startswith(b"PK"):
            with np.load(io.BytesIO(self)) as file:
                return dict(file)
        with h5py.File(io.BytesIO(self)) as file:
            return {name: dataset[()] for name, dataset in file.items()}


def embed(out: str, flags: str = "") -> Case:
    """A case of `bilm embed --resume`. A resumed run continues from a partial file, and batches the
    remaining sentences differently, so its vectors may differ by rounding."""

    def normal(name: str, content: bytes) -> bytes:
        return Vectors(content) if name == out else content

    words = f"embed text.txt {out} --model elmo --resume {flags}"
    return Case(command(words), keeps=(f"{out}.partial",), normal=normal)


def export(words: str) -> Case:
    # These files contain names that differ each time.
    def normal(name: str, content: bytes) -> bytes:
        return b"" if name.endswith((".pb", ".index")) else content

    return Case(command(words), normal=normal)


MODEL = ("model.hdf5", "options.json", "vocab.txt")
VECTORS = {
    "embed hdf5": embed("out.hdf5"),
    "embed --all": embed("out.hdf5", "--all"),
    "embed npz": embed("out.npz", "--top"),
    "embed jsonl": embed("out.jsonl"),
    "score": Case(command("score text.txt --model run --out scores.jsonl --force")),
    "test": Case(
        command("test --save_dir run --test_prefix heldout.txt --per_sentence new.tsv --force")
    ),
}
MODELS = {
    "dump --outfile": Case(command("dump --save_dir run --outfile new.hdf5")),
    "dump --model_dir": Case(command("dump --save_dir run --model_dir new/elmo")),
    "dump --best --force": Case(
        command("dump --save_dir run --best --with_states --model_dir mine --force")
    ),
    "convert": Case(command(f"convert {MANY_LANGS} new/elmo")),
    "export": export("export elmo new/served"),
    "export --force": export("export elmo served --force"),
}


def write_users(folder: Path) -> None:
    """A text, models, and results of earlier commands."""
    text = make_text(folder)
    options = OPTIONS | {"lstm": {"dim": 4, "projection_dim": 4, "n_layers": 1}}
    del options["char_cnn"]
    Path(text.options).write_text(json.dumps(options), encoding="utf-8")
    assert main(train_arguments(text, str(folder / "run"))) == 0
    shutil.copytree(folder / "run", folder / "best")
    (folder / "best").rename(folder / "run" / "best")
    write_small_model(folder / "elmo", "as_published")
    write_lines([*LINES, LONG], folder / "text.txt")
    for name in ("served", "mine"):
        (folder / name / "variables").mkdir(parents=True)
    for name in (
        "served/saved_model.pb",
        "served/variables/variables.data-00000-of-00001",
        *(f"mine/{n}" for n in MODEL),
    ):
        (folder / name).write_text("old", encoding="utf-8")


def compute_once(users: Path) -> None:
    """Make commands share one loaded model, and reuse the first result of measuring and saving."""
    elmo, predictor = ELMo.from_pretrained(users / "elmo"), Predictor.from_pretrained(users / "run")
    elmo.corpus.window_tokens, elmo.corpus.chunk_tokens = 20, 8  # LONG is buffered on disk
    ELMo.from_pretrained = lambda *_, **__: elmo
    Predictor.from_pretrained = lambda *_, **__: predictor
    measured: list[Any] = []
    test, save = bilm.training.test, tf.saved_model.save

    def test_once(*arguments: Any, **settings: Any) -> Any:
        if not measured:
            measured.append(test(*arguments, **settings))
        return measured[0]

    saved = Path(tempfile.mkdtemp(), "saved")

    def save_once(model: Any, folder: str, *arguments: Any, **settings: Any) -> None:
        if not saved.exists():
            save(model, str(saved), *arguments, **settings)
        shutil.copytree(saved, folder, dirs_exist_ok=True)

    bilm.training.test, tf.saved_model.save = test_once, save_once


def run(group: str, every: int) -> int:
    counts = {}
    cases = {"vectors": VECTORS, "models": MODELS}[group]
    with tempfile.TemporaryDirectory() as place:
        users = Path(os.path.realpath(place), "users")
        users.mkdir()
        write_users(users)
        save = tf.saved_model.save
        compute_once(users)
        work = users.with_name("work")
        for name, case in cases.items():
            kinds = ("halt", "error", "full")
            many = 16 if group == "models" else 1  # HDF5 writes often
            counts[name] = explore(case, name, users, work, kinds, every, every * many)
        if group == "models":  # now really saved by TensorFlow
            tf.saved_model.save = save
            explore(cases["export --force"], "export by TensorFlow", users, work, kinds[2:], 25, 25)
        os.chdir("/")
    return report(cases, counts)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], int(sys.argv[2])))
