"""The tables of Peters et al. (2018) with models and data of one's own: each cell is a run of a
task's program, all seeds together.

  python usage_examples/tables.py table1 --data tasks --results results.jsonl --seeds 1 2 3 \\
      --model elmo --words vectors.txt --model_zh elmo-zh --words_zh vectors-zh.txt

    table1      each task with static vectors, with ELMo beside them, and the gain
    table2      how layers are put together: none but the top, the mean (lambda 1), the mix
    table3      ELMo at the input, at the output, at both
    figure1     parts of the training data, with and without ELMo
    figure2     the weights of the layers that the mixes have learned, at the input and the output
    tuning      the language model as it is, and trained with the task, by size of training data

The folder of data has a folder for each task: ner-en, ner-zh, srl, coref, qa, nli, sentiment; a
task whose folder is not there is left out, and --tasks chooses some. What a run printed is kept in
the file of results, a line of JSON each: the command that was interrupted continues, and a table
whose cells are all there is only printed. Flags after -- go to the programs and win over those that
`TASKS` has, such as -- --epochs 5 --batch_size 64. --sizes chooses the parts of figure1 and tuning.
With --picture a figure is drawn as well, as PNG or SVG. Tables 5 and 6 are senses.py and
`bilm probe`.
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

import numpy as np

from bilm.analysis.probe_charts import check_picture, new_figure, save_picture
from bilm.core.errors import InputError

PROGRAMS = Path(__file__).parent


class TaskRow(NamedTuple):
    """A task: its program, its folder of data, flags that bound its time, and whether its text is
    Chinese."""

    program: str
    folder: str
    flags: str = ""
    chinese: bool = False


TASKS = {
    "questions": TaskRow("questions", "qa", "--epochs 8 --patience 2"),
    "entailment": TaskRow("entailment", "nli", "--epochs 8 --patience 2"),
    "roles": TaskRow("roles", "srl", "--epochs 8 --patience 2"),
    "coreference": TaskRow("coreference", "coref"),
    "entities": TaskRow("entities", "ner-en"),
    "sentiment": TaskRow("sentiment", "sentiment"),
    "entities-zh": TaskRow("entities", "ner-zh", chinese=True),
}
# Of each table, the columns and the flags of their cells. WORDS and MODEL stand for the files. What
# is the default of a program is not said, so that tables share the runs that they have in common.
STATIC, BOTH = "--layers none --words WORDS", "--model MODEL --words WORDS"
SIZES = {size: f" --train_size {size}" for size in ("0.01", "0.05", "0.1", "0.25", "0.5")}
SIZES["1.0"] = ""
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
    sizes = "parts of the training data, of figure1 and tuning (default: all of them)"
    add("--sizes", nargs="+", choices=SIZES, default=list(SIZES), help=sizes)
    add("--picture", metavar="FILE", help="draw figure1 or figure2 there: .png or .svg")
    argv = list(sys.argv[1:] if argv is None else argv)
    end = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:end])
    args.more = argv[end + 1 :]
    if args.picture is not None and not args.table.startswith("figure"):
        parser.error("--picture draws figure1 and figure2.")
    try:
        if args.picture is not None:
            check_picture(args.picture)
        make(args)
    except InputError as error:
        parser.exit(1, f"{parser.prog}: error: {error}\n")


def make(args: argparse.Namespace) -> None:
    """The table or figure, and its picture."""
    wanted = [t for t in args.tasks if (Path(args.data) / TASKS[t].folder).is_dir()]
    if args.table == "figure2":
        mixes = {task: learned_mixes(args, task) for task in wanted}
        print_mixes(mixes)
    else:
        by_size = args.table in ("figure1", "tuning")
        columns = {
            name: flags
            for name, flags in COLUMNS[args.table].items()
            if not by_size or name.split()[-1] in args.sizes
        }
        rows = {
            task: [result_of(command(args, task, flags), args) for flags in columns.values()]
            for task in wanted
        }
        if by_size:
            print_by_size(list(columns), rows)
        else:
            print_table(list(columns), rows, with_gain=args.table == "table1")
    if args.picture is not None:
        chart = mix_chart(mixes) if args.table == "figure2" else size_chart(list(columns), rows)
        save_picture(chart, args.picture)


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
    return [f"{row.program}.py", "--data", data, *own, *given, "--seeds", *args.seeds, *args.more]


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
        with open(args.results, "a+", encoding="utf-8") as file:
            # A line that was cut off before stays one of its own.
            file.seek(0)
            begin = "" if file.read()[-1:] in ("", "\n") else "\n"
            file.write(begin + json.dumps({"command": key, "result": known[key]}) + "\n")
    return known[key]


def read_results(path: str) -> dict[str, dict[str, Any]]:
    """The results by command; a line that was cut off is none.

    Raises:
        InputError: a line is of another form.
    """
    found = {}
    if os.path.exists(path):
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if not isinstance(value, dict) or set(value) != {"command", "result"}:
                raise InputError(
                    f"{path}, line {number}: an object with command and result is expected, not "
                    f"{line!r:.80}."
                )
            found[value["command"]] = value["result"]
    return found


def print_table(columns: Sequence[str], rows: dict[str, Any], with_gain: bool = False) -> None:
    """Markdown: mean ± standard deviation of the decisive measure on the test part; with the gain
    of the last column over the first, seed by seed."""
    print_row(["task", "measure", *columns, *["gain"] * with_gain])
    print_row(["---"] * (len(columns) + 2 + with_gain))
    for task, cells in rows.items():
        measure, shown = shown_scores(cells)
        if with_gain:
            by_seed = [[run["test"][measure] for run in cell["runs"]] for cell in cells]
            gains = [b - a for a, b in zip(by_seed[0], by_seed[-1], strict=True)]
            spread = statistics.stdev(gains) if len(gains) > 1 else 0.0
            shown.append(f"{statistics.mean(gains):+.1f} ± {spread:.1f}")
        print_row([task, measure, *shown])


def shown_scores(cells: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """The decisive measure, and its mean ± standard deviation on the test part, of each cell."""
    measure = next(iter(cells[0]["test"]))
    return measure, ["{:.1f} ± {:.1f}".format(*cell["test"][measure]) for cell in cells]


def print_by_size(columns: Sequence[str], rows: dict[str, Any]) -> None:
    """Markdown: a row for each task and part of the training data; columns end with the part."""
    parts = list(dict.fromkeys(column.split()[-1] for column in columns))
    n = len(columns) // len(parts)
    print_row(["task", "measure", "part", *(name.rsplit(" ", 1)[0] for name in columns[:n])])
    print_row(["---"] * (3 + n))
    for task, cells in rows.items():
        measure, shown = shown_scores(cells)
        for number, part in enumerate(parts):
            print_row([task, measure, part, *shown[number * n : (number + 1) * n]])


class Mix(NamedTuple):
    """What a mix has learned, the means over the seeds: gamma, and softmax(W) by layer."""

    gamma: float
    weights: dict[str, float]


def learned_mixes(args: argparse.Namespace, task: str) -> dict[str, Mix]:
    """The mixes at the input and at the output of a task's model, from the runs of table 3."""
    found = {}
    for at in ("input", "output"):
        runs = result_of(command(args, task, COLUMNS["table3"][f"at {at}"]), args)["runs"]
        mixes = [run["mixes"][at] for run in runs]
        weights = {
            layer: statistics.mean(mix["weights"][layer] for mix in mixes)
            for layer in mixes[0]["weights"]
        }
        found[at] = Mix(statistics.mean(mix["gamma"] for mix in mixes), weights)
    return found


def print_mixes(mixes: dict[str, dict[str, Mix]]) -> None:
    """Markdown: a row for each task and place."""
    print_row(["task", "at", "gamma", "weights of the layers, from layer 0"])
    print_row(["---"] * 4)
    for task, places in mixes.items():
        for at, mix in places.items():
            shown = " ".join(f"{weight:.2f}" for weight in mix.weights.values())
            print_row([task, at, f"{mix.gamma:.2f}", shown])


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


def mix_chart(mixes: dict[str, dict[str, Mix]]) -> Any:
    """Figure 2: the weights of the layers, a row of cells for each task."""
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


def print_row(cells: Sequence[str]) -> None:
    """A row of Markdown."""
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
