"""The tables of Peters et al. (2018) with models and data of one's own: each cell is a run of a
task's program, all seeds together.

  python usage_examples/tables.py table1 --data tasks --results results.jsonl --seeds 1 2 3 \\
      --model elmo --words vectors.txt --model_zh elmo-zh --words_zh vectors-zh.txt

    table1      each task with static vectors, with ELMo alone, and with both, and the gain
    table2      how layers are put together: none but the top, the mean (lambda 1), the mix
    table3      ELMo at the input, at the output, at both
    figure1     parts of the training data, with and without ELMo
    figure2     the weights of the layers that the mixes have learned, at the input and the output
    tuning      the language model as it is, and trained with the task, by size of training data

The folder of data has a folder for each task: ner-en, ner-zh, srl, coref, qa, nli, sentiment; a
task whose folder is not there is left out, and --tasks chooses some. What a run printed is kept in
the file of results, a line of JSON each: the command that was interrupted continues, and a table
whose cells are all there is only printed. Flags after -- go to the programs and win over those that
`TASKS` has, such as -- --epochs 5 --batch_size 64. Tables 5 and 6 are senses.py and `bilm probe`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROGRAMS = Path(__file__).parent


class TaskRow(NamedTuple):
    """A task: its program, its folder of data, flags that bound its time, and whether its text is
    Chinese."""

    program: str
    folder: str
    flags: str = ""
    chinese: bool = False


TASKS = {
    "questions": TaskRow("questions", "qa", "--epochs 10 --patience 2"),
    "entailment": TaskRow("entailment", "nli"),
    "roles": TaskRow("roles", "srl", "--epochs 8 --patience 2"),
    "coreference": TaskRow("coreference", "coref"),
    "entities": TaskRow("entities", "ner-en"),
    "sentiment": TaskRow("sentiment", "sentiment"),
    "entities-zh": TaskRow("entities", "ner-zh", chinese=True),
}
# Of each table, the columns and the flags of their cells. WORDS and MODEL stand for the files.
STATIC, BOTH = "--layers none --words WORDS", "--model MODEL --words WORDS"
SIZES = ("0.01", "0.05", "0.1", "0.25", "0.5", "1.0")
COLUMNS: dict[str, dict[str, str]] = {
    "table1": {"static": STATIC, "ELMo": "--model MODEL", "static and ELMo": BOTH},
    "table2": {
        "static": STATIC,
        "top layer": f"{BOTH} --layers top",
        "lambda 1": f"{BOTH} --lambda 1",
        "lambda 0.001": f"{BOTH} --lambda 0.001",
    },
    "table3": {f"at {at}": f"{BOTH} --at {at}" for at in ("input", "both", "output")},
    "figure1": {
        f"{name} {size}": f"{flags} --train_size {size}"
        for size in SIZES
        for name, flags in (("static", STATIC), ("ELMo", BOTH))
    },
    "tuning": {
        f"{name} {size}": f"{BOTH} --train_size {size}{flag}"
        for size in ("0.01", "0.1", "1.0")
        for name, flag in (("frozen", ""), ("trained", " --fine_tune"))
    },
}


def main(argv: Sequence[str] | None = None) -> None:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("table", choices=(*COLUMNS, "figure2"))
    add("--data", required=True, metavar="FOLDER", help="a folder for each task")
    add("--results", required=True, metavar="FILE", help="kept there, and read from there")
    add("--model", help="the English language model")
    add("--words", help="English static vectors")
    add("--model_zh", help="the Chinese language model")
    add("--words_zh", help="Chinese static vectors")
    add("--cache", metavar="FOLDER", help="keep ELMo's layers there between runs")
    add("--seeds", nargs="+", default=["1", "2", "3"], help="(default: 1 2 3)")
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="(default: all)")
    argv = list(sys.argv[1:] if argv is None else argv)
    end = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:end])
    args.more = argv[end + 1 :]
    wanted = [t for t in args.tasks if (Path(args.data) / TASKS[t].folder).is_dir()]
    if args.table == "figure2":
        print_weights(args, wanted)
        return
    columns = COLUMNS[args.table]
    rows = {
        task: [result_of(command(args, task, flags), args) for flags in columns.values()]
        for task in wanted
    }
    print_table(list(columns), rows, with_gain=args.table == "table1")


def command(args: argparse.Namespace, task: str, flags: str) -> list[str]:
    """The program of a task and its flags for a cell."""
    row = TASKS[task]
    files = (args.model_zh, args.words_zh) if row.chinese else (args.model, args.words)
    names = dict(zip(("MODEL", "WORDS"), files, strict=True))
    given = [names.get(flag, flag) for flag in flags.split()]
    if None in given:
        raise SystemExit(f"{task}: --model{'_zh' * row.chinese} and --words{'_zh' * row.chinese} "
                         "are needed")  # fmt: skip
    data = os.path.join(args.data, row.folder)
    own = row.flags.split()
    return [f"{row.program}.py", "--data", data, *given, *own, "--seeds", *args.seeds, *args.more]


def result_of(words: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """What a command prints: from the file of results, or by running it."""
    known = read_results(args.results)
    key = " ".join(words)
    if key not in known:
        print(key, file=sys.stderr, flush=True)
        where = ["--cache", args.cache] if args.cache else []
        program = [sys.executable, str(PROGRAMS / words[0]), *words[1:]]
        done = subprocess.run(
            [*program, *where, "--format", "json"], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"it ended with {done.returncode}: {key}")
        known[key] = json.loads(done.stdout.splitlines()[-1])
        with open(args.results, "a", encoding="utf-8") as file:
            file.write(json.dumps({"command": key, "result": known[key]}) + "\n")
    return known[key]


def read_results(path: str) -> dict[str, dict[str, Any]]:
    """The results by command; a last line that was cut off is none."""
    found = {}
    if os.path.exists(path):
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                continue
            found[value["command"]] = value["result"]
    return found


def print_table(columns: Sequence[str], rows: dict[str, Any], with_gain: bool = False) -> None:
    """Markdown: mean ± standard deviation of the decisive measure on the test part; with the gain
    of the last column over the first, seed by seed."""
    print_row(["task", "measure", *columns, *["gain"] * with_gain])
    print_row(["---"] * (len(columns) + 2 + with_gain))
    for task, cells in rows.items():
        measure = next(iter(cells[0]["test"]))
        shown = ["{:.1f} ± {:.1f}".format(*cell["test"][measure]) for cell in cells]
        if with_gain:
            by_seed = [[run["test"][measure] for run in cell["runs"]] for cell in cells]
            gains = [b - a for a, b in zip(by_seed[0], by_seed[-1], strict=True)]
            spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
            shown.append(f"{statistics.mean(gains):+.1f} ± {spread:.1f}")
        print_row([task, measure, *shown])


def print_weights(args: argparse.Namespace, tasks: Sequence[str]) -> None:
    """The weights that the mixes have learned, their mean over the seeds."""
    print_row(["task", "at", "gamma", "weights of the layers, from layer 0"])
    print_row(["---"] * 4)
    for task in tasks:
        for at in ("input", "output"):
            cell = COLUMNS["table3"][f"at {at}"]
            runs = result_of(command(args, task, cell), args)["runs"]
            mixes = [run["mixes"][at] for run in runs]
            gamma = sum(mix["gamma"] for mix in mixes) / len(mixes)
            weights = [
                sum(mix["weights"][layer] for mix in mixes) / len(mixes)
                for layer in mixes[0]["weights"]
            ]
            print_row([task, at, f"{gamma:.2f}", " ".join(f"{w:.2f}" for w in weights)])


def print_row(cells: Sequence[str]) -> None:
    """A row of Markdown."""
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
