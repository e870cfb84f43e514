"""`bilm train` with each file operation failing; see faulty_files.

A run that was killed and resumed ends bit for bit like an uninterrupted run. All runs share one
compiled model, into which each loads its initial state.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bilm.cli import main
from bilm.files.checkpoints import load_options_latest_checkpoint
from bilm.training import loop, start
from bilm.training.state import read_state
from tests.command_line import OPTIONS, WORDS
from tests.compare import checkpoint_tensors
from tests.faulty_files import begin, run_here

N_STEPS = 6


def write_text(folder: Path) -> None:
    """Write small shards of unequal sentences, so that rows cross the ends of shards and text."""
    draw = random.Random(5)
    lines = [
        " ".join(draw.choices([*WORDS, "unheard-of"], k=draw.randint(1, 12))) for _ in range(16)
    ]
    parts = {"train-0.txt": lines[:2], "train-1.txt": lines[2:5], "train-2.txt": lines[5:12],
             "heldout.txt": lines[12:], "vocab.txt": ["<S>", "</S>", "<UNK>", *WORDS]}  # fmt: skip
    for name, content in parts.items():
        (folder / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    options = OPTIONS | {"n_epochs": 2, "n_train_tokens": 20 * N_STEPS // 2, "reset_rate": 0.5}
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")


def command() -> int:
    """Train with the same flags each time, and a checkpoint after every step."""
    flags = {"save_dir": "run", "vocab_file": "vocab.txt", "train_prefix": "train-*.txt",
             "options_file": "options.json", "seed": "3", "heldout_prefix": "heldout.txt",
             "heldout_every": "2steps", "lr_schedule": "cosine",
             "save_minutes": "1e-9"}  # fmt: skip
    return main([part for flag, v in flags.items() for part in (f"--{flag}", v)], "train")


def share_one_model() -> None:
    """Make all runs of this process use the first run's variables and compiled functions."""
    made: dict[str, Any] = {}
    make_trainer, make_scorer = start.Trainer, loop.Scorer

    def trainer(*arguments: Any) -> Any:
        if "trainer" not in made:
            made["trainer"] = first = make_trainer(*arguments)
            variables = [*(weight.variable for weight in first.table), *first.slots.values()]
            made["begin"] = [(variable, variable.numpy()) for variable in variables]
        new = copy.copy(made["trainer"])
        for variable, value in made["begin"]:
            variable.assign(value)
        new.lstm_states = new.zero_states()
        return new

    def scorer(model: Any, **settings: Any) -> Any:
        if "scorer" not in made:
            made["scorer"] = make_scorer(model, **settings)
        return made["scorer"]

    start.Trainer, loop.Scorer = trainer, scorer


def result_of(folder: Path) -> dict[str, Any]:
    """Everything that a run leaves behind, except how long it took."""
    result: dict[str, Any] = {
        "names": sorted(
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.name != "train_log.previous.jsonl" and ".tmp." not in path.name
        ),
        "log": [
            {k: v for k, v in json.loads(line).items() if k != "seconds"}
            for line in (folder / "train_log.jsonl").read_text(encoding="utf-8").splitlines()
        ],
        "state": (folder / "checkpoint").read_text(encoding="utf-8"),
    }
    for place in (folder, folder / "best"):
        prefix = load_options_latest_checkpoint(place)[1]
        record = read_state(prefix)
        assert record is not None
        result[f"{place.name} record"] = dataclasses.replace(record, run_seconds=0, elapsed=0)
        result[f"{place.name} tensors"] = checkpoint_tensors(prefix)
    return result


def differences(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    for key, value in expected.items():
        if not key.endswith("tensors"):
            if found[key] != value:
                yield f"{key} is {found[key]}, not {value}"
            continue
        for name in sorted(value.keys() | found[key].keys()):
            a, b = value.get(name), found[key].get(name)
            if a is None or b is None or a.tobytes() != b.tobytes():
                how = "" if a is None or b is None else f" by up to {np.abs(a - b).max()}"
                yield f"{key}: {name} differs{how}"


class Runs:
    def __init__(self, folder: Path) -> None:
        self.users, self.work = folder / "users", folder / "work"
        self.users.mkdir()
        write_text(self.users)
        share_one_model()
        self.problems: list[str] = []
        begin(self.users, self.work)
        whole = run_here(command, self.work, -1, "error")
        assert whole.code == 0, whole
        self.operations, self.expected = whole.operations, result_of(self.work / "run")

    def check_end(self, where: str) -> None:
        """Run the same command again, and check what it leaves behind."""
        again = run_here(command, self.work, -1, "error")
        if again.code != 0 or "Traceback" in again.said:
            self.problems.append(f"{where}: again: exit {again.code}: {again.said[-1500:]}")
            return
        found = result_of(self.work / "run")
        self.problems += [f"{where}: {text}" for text in differences(found, self.expected)]

    def each_operation(self, kind: str, every: int) -> None:
        """Fail one operation, then finish the run by the same command; for each operation."""
        for number in range(0, len(self.operations), every):
            begin(self.users, self.work)
            outcome = run_here(command, self.work, number, kind)
            where = f"train, {kind} at operation {number} ({outcome.failed})"
            if kind in ("error", "full") and (
                "Traceback" in outcome.said or outcome.code not in (0, 1)
            ):
                self.problems.append(f"{where}: exit {outcome.code}: {outcome.said[-1500:]}")
            self.check_end(where)

    def one_after_the_other(self, kind: str) -> int:
        """Stop the n-th run at its n-th operation, until a run reaches its end."""
        begin(self.users, self.work)
        number = 0
        while run_here(command, self.work, number, kind).failed:
            number += 1
        self.check_end(f"train, {number} times {kind}")
        return number


def run(*plan: str) -> int:
    """Run a plan of items KIND:EVERY or KIND:row."""
    with tempfile.TemporaryDirectory() as place:
        runs = Runs(Path(os.path.realpath(place)))
        print(f"train: {len(runs.operations)} operations")
        for part in plan:
            kind, every = part.split(":")
            if every == "row":
                print(f"{runs.one_after_the_other(kind)} in a row")
            else:
                runs.each_operation(kind, int(every))
        os.chdir("/")
    print("\n".join(runs.problems[:60]))
    print(f"{len(runs.problems)} problems")
    return 1 if runs.problems else 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
