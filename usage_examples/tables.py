"""The tables of Peters et al. (2018) with your own models and data. Each cell is a run of a task's
program with all seeds.

  python usage_examples/tables.py table1 --data tasks --results results.jsonl --seeds 1 2 3 \\
      --model elmo --words vectors.txt --model_zh elmo-zh --words_zh vectors-zh.txt

    table1      each task with static vectors, with ELMo added to them, and the gain
    table2      combinations of layers: the top layer, the mean (lambda 1), the mix
    table3      ELMo at the input, at the output, at both
    figure1     proportions of the training data, with and without ELMo
    figure2     the learned weights of the layers, at the input and at the output
    tuning      the language model frozen, and trained with the task, with one learning rate and
                with lower ones for lower layers, by size of training data

--data has a folder for each task: ner-en, ner-zh, srl, coref, qa, nli, sentiment. Tasks without a
folder are skipped; --tasks selects tasks. The result of each run is a JSON line in --results, so an
interrupted command continues, and a complete table is only printed. `TASKS` and `LIMITS` limit the
time of a run; flags after -- are passed to the programs and override them, such as
`-- --train_size 1.0 --epochs 12 --size 100`. --sizes selects the proportions of figure1 and tuning.
--picture also draws a figure as PNG or SVG. For tables 5 and 6, see senses.py and `bilm probe`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.analysis.pictures import check_picture, new_figure, save_picture
from bilm.core.errors import InputError

PROGRAMS = Path(__file__).parent


class TaskRow(NamedTuple):
    """A task: its program and data folder, the proportion of the training data and the flags that
    limit its time, and whether it is Chinese."""

    program: str
    folder: str
    train_size: str
    flags: str
    chinese: bool = False


TASKS = {
    "questions": TaskRow("questions", "qa", "0.25", "--epochs 6"),
    "entailment": TaskRow("entailment", "nli", "0.25", "--epochs 6"),
    "roles": TaskRow("roles", "srl", "0.1", "--epochs 6"),
    "coreference": TaskRow("coreference", "coref", "0.5", "--epochs 6"),
    "entities": TaskRow("entities", "ner-en", "0.25", "--epochs 8"),
    "sentiment": TaskRow("sentiment", "sentiment", "0.25", "--epochs 5"),
    "entities-zh": TaskRow("entities", "ner-zh", "0.5", "--epochs 8", chinese=True),
}
# Small models that learn fast, so that a run takes a minute.
LIMITS = "--size 50 --learning_rate 0.003"
# The columns of each table and the flags of their cells; WORDS and MODEL are replaced by files.
# Flags equal to a program's default are omitted, so that tables share runs.
STATIC, BOTH = "--layers none --words WORDS", "--model MODEL --words WORDS"
SIZES = {size: f" --train_size {size}" for size in ("0.01", "0.05", "0.1", "0.25", "0.5", "1.0")}
# Each layer at 0.4 times the rate of the one above; Howard and Ruder (2018) divide by 2.6.
TUNING = {
    "frozen": "",
    "trained": " --fine_tune",
    "trained by layer": " --fine_tune --layer_rates 0.4",
}
COLUMNS: dict[str, dict[str, str]] = {
    "table1": {"static": STATIC, "static and ELMo": BOTH},
    "table2": {
        "static": STATIC,
        "top layer": f"{BOTH} --layers top",
        "lambda 1": f"{BOTH} --lambda 1",
        "lambda 0.001": BOTH,
    },
    "table3": {
        "at input": BOTH,
        "at both": f"{BOTH} --at both",
        "at output": f"{BOTH} --at output",
    },
    "figure1": {
        f"{name} {size}": flags + part
        for size, part in SIZES.items()
        for name, flags in (("static", STATIC), ("static and ELMo", BOTH))
    },
    "tuning": {
        f"{name} {size}": BOTH + SIZES[size] + flag
        for size in SIZES
        for name, flag in TUNING.items()
    },
}


def main(argv: Sequence[str] | None = None) -> None:
    """Do the missing runs, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("table", choices=(*COLUMNS, "figure2"))
    add("--data", required=True, metavar="FOLDER", help="a folder for each task")
    add("--results", required=True, metavar="FILE", help="results of all runs")
    add("--model", help="the English language model")
    add("--words", help="English static vectors")
    add("--model_zh", help="the Chinese language model")
    add("--words_zh", help="Chinese static vectors")
    cache = "keep ELMo's layers there (default: a temporary folder for each task)"
    add("--cache", metavar="FOLDER", help=cache)
    add("--seeds", nargs="+", default=["1", "2", "3"], help="(default: 1 2 3)")
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="(default: all)")
    sizes = "proportions of the training data in figure1 and tuning (default: all)"
    add("--sizes", nargs="+", choices=SIZES, help=sizes)
    add("--picture", metavar="FILE", help="draw figure1 or figure2 there: .png or .svg")
    argv = list(sys.argv[1:] if argv is None else argv)
    end = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:end])
    args.more = argv[end + 1 :]
    if args.picture is not None and not args.table.startswith("figure"):
        parser.error("--picture requires figure1 or figure2")
    if args.sizes is not None and args.table not in ("figure1", "tuning"):
        parser.error("--sizes requires figure1 or tuning")
    try:
        if args.picture is not None:
            check_picture(args.picture)
        chart = make(args)
        if args.picture is not None:
            save_picture(chart(), args.picture)
    except InputError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")


def make(args: argparse.Namespace) -> Callable[[], Any]:
    """Print the table or figure; return the function that draws it."""
    wanted = [t for t in args.tasks if (Path(args.data) / TASKS[t].folder).is_dir()]
    if not wanted:
        folders = ", ".join(TASKS[task].folder for task in args.tasks)
        raise InputError(f"{args.data}: must have a folder of a task ({folders}).")
    for task in wanted:
        command(args, task, BOTH)  # raises an error without its models, before the work
    if args.table == "figure2":
        mixes = {task: learned_mixes(args, task) for task in wanted}
        print_mixes(mixes)
        return lambda: mix_chart(mixes)
    by_size = args.table in ("figure1", "tuning")
    cells = {
        name: flags
        for name, flags in COLUMNS[args.table].items()
        if not by_size or name.split()[-1] in (args.sizes or SIZES)
    }
    columns = list(cells)
    rows = {task: task_results(args, task, cells.values()) for task in wanted}
    if by_size:
        print_by_size(columns, rows)
    else:
        print_table(columns, rows, with_gain=args.table == "table1")
    return lambda: size_chart(columns, rows)


def command(args: argparse.Namespace, task: str, flags: str) -> list[str]:
    """The program and flags that compute a cell of a task."""
    row = TASKS[task]
    files = (args.model_zh, args.words_zh) if row.chinese else (args.model, args.words)
    names = dict(zip(("MODEL", "WORDS"), files, strict=True))
    if "--train_size" not in flags:
        flags += f" --train_size {row.train_size}"
    given = [names.get(flag, flag) for flag in flags.split()]
    if None in given:
        ending = "_zh" if row.chinese else ""
        raise SystemExit(f"{task} requires --model{ending} and --words{ending}")
    data = os.path.join(args.data, row.folder)
    own = f"{LIMITS} {row.flags}".split()
    return [f"{row.program}.py", "--data", data, *own, *given, "--seeds", *args.seeds, *args.more]


def task_results(args: argparse.Namespace, task: str, cells: Iterable[str]) -> list[dict[str, Any]]:
    """The results of a task's cells, given by their flags. ELMo's layers are computed once for all
    cells."""
    with tempfile.TemporaryDirectory() as scratch:
        cache = args.cache or scratch
        return [result_of(command(args, task, flags), args.results, cache) for flags in cells]


def result_of(words: list[str], results: str, cache: str) -> dict[str, Any]:
    """The result of a command, from the results file or by running it."""
    known = read_results(results)
    key = " ".join(words)
    if key not in known:
        print(key, file=sys.stderr, flush=True)
        program = [sys.executable, str(PROGRAMS / words[0]), *words[1:]]
        done = subprocess.run(
            [*program, "--cache", cache, "--format", "json"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"exit code {done.returncode}: {key}")
        known[key] = json.loads(done.stdout.splitlines()[-1])
        with open(results, "a+", encoding="utf-8") as file:
            # If the last line was cut off, start a new one.
            file.seek(0)
            begin = "" if file.read()[-1:] in ("", "\n") else "\n"
            file.write(begin + json.dumps({"command": key, "result": known[key]}) + "\n")
    return known[key]


def read_results(path: str) -> dict[str, dict[str, Any]]:
    """The results by command; lines that were cut off are skipped."""
    found = {}
    lines = Path(path).read_text(encoding="utf-8").splitlines() if os.path.exists(path) else []
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if not isinstance(value, dict) or set(value) != {"command", "result"}:
            raise InputError(
                f"{path}, line {number}: must be an object with command and result, got "
                f"{line!r:.80}."
            )
        found[value["command"]] = value["result"]
    return found


def print_markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |")


def print_table(columns: Sequence[str], rows: dict[str, Any], with_gain: bool) -> None:
    """Print mean ± standard deviation of the first measure on the test part, and the gain of the
    last column over the first, seed by seed."""
    lines = []
    for task, cells in rows.items():
        measure, shown = shown_scores(cells)
        if with_gain:
            by_seed = [[run["test"][measure] for run in cell["runs"]] for cell in cells]
            gains = [b - a for a, b in zip(by_seed[0], by_seed[-1], strict=True)]
            spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
            shown.append(f"{statistics.mean(gains):+.1f} ± {spread:.1f}")
        lines.append([task, measure, *shown])
    print_markdown(["task", "measure", *columns, *["gain"] * with_gain], lines)


def shown_scores(cells: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """The first measure, and its mean ± standard deviation on the test part for each cell."""
    measure = next(iter(cells[0]["test"]))
    return measure, ["{:.1f} ± {:.1f}".format(*cell["test"][measure]) for cell in cells]


def print_by_size(columns: Sequence[str], rows: dict[str, Any]) -> None:
    """Print a row for each task and proportion of the training data. Column names end in the
    proportion."""
    vectors, parts = (
        list(dict.fromkeys(column.rsplit(" ", 1)[k] for column in columns)) for k in (0, 1)
    )
    lines = []
    for task, cells in rows.items():
        measure, shown = shown_scores(cells)
        found = iter(shown)
        lines += [[task, measure, part, *itertools.islice(found, len(vectors))] for part in parts]
    print_markdown(["task", "measure", "proportion", *vectors], lines)


class MeanMix(NamedTuple):
    """A learned mix, averaged over the seeds: gamma, and softmax(W) by layer."""

    gamma: float
    weights: dict[str, float]


def learned_mixes(args: argparse.Namespace, task: str) -> dict[str, MeanMix]:
    """The mixes at the input and at the output of a task's model, from the runs of table 3."""
    found = {}
    places = ("input", "output")
    cells = task_results(args, task, [COLUMNS["table3"][f"at {at}"] for at in places])
    for at, cell in zip(places, cells, strict=True):
        mixes = [run["mixes"][at] for run in cell["runs"]]
        weights = {
            layer: statistics.mean(mix["weights"][layer] for mix in mixes)
            for layer in mixes[0]["weights"]
        }
        found[at] = MeanMix(statistics.mean(mix["gamma"] for mix in mixes), weights)
    return found


def print_mixes(mixes: dict[str, dict[str, MeanMix]]) -> None:
    """Print a row for each task and position of ELMo (input or output)."""
    lines = [
        [task, at, f"{mix.gamma:.2f}", " ".join(f"{weight:.2f}" for weight in mix.weights.values())]
        for task, places in mixes.items()
        for at, mix in places.items()
    ]
    print_markdown(["task", "at", "gamma", "weights of the layers, from layer 0"], lines)


def size_chart(columns: Sequence[str], rows: dict[str, list[dict[str, Any]]]) -> Any:
    """Figure 1: each task's measure by the proportion of the training data; error bars are one
    standard deviation over the seeds."""
    n_rows = -(-len(rows) // 2)
    figure = new_figure(8, 3 * n_rows)
    panels = figure.subplots(n_rows, 2, squeeze=False).ravel()
    for axes, (task, cells) in zip(panels, rows.items(), strict=False):
        by_vectors: dict[str, list[tuple[float, float, float]]] = {}
        for name, cell in zip(columns, cells, strict=True):
            measure, (mean, deviation) = next(iter(cell["test"].items()))
            vectors, part = name.rsplit(" ", 1)
            by_vectors.setdefault(vectors, []).append((float(part), mean, deviation))
            axes.set_title(f"{task}, {measure}", fontsize="medium")
        for vectors, points in by_vectors.items():
            axes.errorbar(*zip(*points, strict=True), marker="o", label=vectors)
        axes.set_xscale("log")
        axes.set_xlabel("proportion of the training data")
        axes.legend(fontsize="small")
    for axes in panels[len(rows) :]:
        axes.set_axis_off()
    return figure


def mix_chart(mixes: dict[str, dict[str, MeanMix]]) -> Any:
    """Figure 2: the weights of the layers, one row of cells per task."""
    places = list(dict.fromkeys(at for mix in mixes.values() for at in mix))
    figure = new_figure(4.5 * len(places), 1 + 0.5 * len(mixes))
    for axes, at in zip(figure.subplots(1, len(places), squeeze=False)[0], places, strict=True):
        own = {task: mix[at].weights for task, mix in mixes.items() if at in mix}
        layers = list(dict.fromkeys(layer for weights in own.values() for layer in weights))
        values = [[weights.get(layer, np.nan) for layer in layers] for weights in own.values()]
        axes.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for row, weights in enumerate(values):
            for column, weight in enumerate(weights):
                colour = "white" if weight > 0.6 else "black"
                axes.text(column, row, f"{weight:.2f}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(layers)), layers)
        axes.set_yticks(range(len(own)), own)
        axes.set_xlabel("layer")
        axes.set_title(f"at the {at}", fontsize="medium")
    return figure


if __name__ == "__main__":
    main()
