"""`bilm vocab` and `bilm shard` with each file operation failing; see faulty_files."""

from __future__ import annotations

import functools
import os
import random
import sys
import tempfile
from pathlib import Path

from bilm.cli import main
from tests.faulty_files import Case, explore, report, run_forked, run_here

WORDS = "the a cat dog bird sees hears finds small old Größe 猫 .".split()


def command(*arguments: str) -> functools.partial[int]:
    return functools.partial(main, list(arguments[1:]), arguments[0])


SHARD = ("shard", "text.txt", "--n_shards", "3", "--heldout", "4", "--out_dir")
CASES = {
    "vocab": Case(command("vocab", "text.txt", "--out", "vocab.txt")),
    "vocab --force": Case(command("vocab", "text.txt", "--out", "mine/old.txt", "--force")),
    "shard": Case(command(*SHARD, "new/corpus")),
    "shard into a folder": Case(command(*SHARD, "mine")),
}


def run(every: int) -> int:
    draw = random.Random(3)
    counts = {}
    with tempfile.TemporaryDirectory() as place:
        users = Path(os.path.realpath(place), "users")
        (users / "mine").mkdir(parents=True)
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(60)]
        (users / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (users / "mine" / "old.txt").write_text("old\n", encoding="utf-8")
        for name, case in CASES.items():
            for runs, kinds in ((run_forked, ["kill"]), (run_here, ["error", "full"])):
                case.runs = runs
                counts[name] = explore(case, name, users, users.with_name("work"), kinds, every)
        os.chdir("/")
    return report(CASES, counts)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1])))
