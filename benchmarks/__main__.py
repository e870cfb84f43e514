"""`python -m benchmarks`: measure rows, each in its own process, and print the table."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.docstrings import write_docstrings
from benchmarks.machine import describe_machine, describe_versions, now
from benchmarks.results import Effort, format_results, summary
from benchmarks.rows import ROWS, measure_named
from benchmarks.workspace import Workspace
from bilm.terminal import import_tensorflow

_DESCRIPTION = """\
Measure how fast bilm is. The table goes to standard output, progress to standard error. Nothing
else should run on the machine meanwhile."""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=_DESCRIPTION)
    corpus = (
        "text, one sentence per line, tokens separated by spaces (plain, .gz, .xz); by default the "
        "docstrings of the installed libraries, a million tokens, repeated as needed"
    )
    parser.add_argument("--corpus", type=Path, metavar="FILE", help=corpus)
    effort = parser.add_mutually_exclusive_group()
    quick = "shorter runs: the complete table in about ten minutes on two cores"
    trial = "only check that every row works; the figures are meaningless"
    for value, text in ((Effort.QUICK, quick), (Effort.TRIAL, trial)):
        flag: dict[str, Any] = {"dest": "effort", "action": "store_const", "const": value}
        effort.add_argument(f"--{value.value}", **flag, help=text)
    row = "measure only this row; may be repeated"
    parser.add_argument(
        "--row", dest="rows", action="append", choices=ROWS, metavar="NAME", help=row
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    work = (
        "keep text, vocabularies and networks here for reuse (default: a temporary folder; "
        "up to 10 GB)"
    )
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=work)
    parser.set_defaults(effort=Effort.FULL)
    args = parser.parse_args(arguments)
    if args.corpus is not None and not args.corpus.is_file():
        parser.error(f"--corpus: there is no file {args.corpus}")
    if args.json is not None and (args.json.is_dir() or not args.json.parent.is_dir()):
        parser.error(f"--json must be a file in an existing folder, got {args.json}")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a row failed."""
    args = parse_arguments(arguments)
    if args.list:
        print("\n".join(f"{row.name:<37}{row.about}" for row in ROWS.values()))
        return 0
    with _work_folder(args.work) as work:
        head: dict[str, Any] = {
            "date": now(),
            "machine": describe_machine(),
            "versions": describe_versions(),
            "effort": args.effort.value,
            "corpus": args.corpus.name if args.corpus else "docstrings",
        }
        workspace = Workspace(work, (args.corpus or _docstring_corpus(work)).resolve())
        names = args.rows or list(ROWS)
        records = []
        for number, name in enumerate(names, start=1):
            _note(f"[{number}/{len(names)}] {name}")
            records.append(_run_row(name, workspace, args.effort))
            _note(f"  {summary(records[-1])}")
    print(f"{_describe(head)}\n\n{format_results(records)}", flush=True)
    if args.json is not None:
        text = json.dumps(head | {"rows": records}, indent=1)
        args.json.write_text(f"{text}\n", encoding="utf-8")
    return 1 if any("failed" in record for record in records) else 0


def _run_row(name: str, workspace: Workspace, effort: Effort) -> dict[str, Any]:
    """Measure a row in a fresh process, whose memory and caches no other row has used."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, import_tensorflow) as process:
        try:
            return process.submit(measure_named, name, workspace, effort).result()
        except Exception as error:  # the remaining rows still run
            traceback.print_exc()
            return {"row": name, "failed": f"{type(error).__name__}: {error}"}


@contextmanager
def _work_folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="bilm-benchmarks-") as folder:
        yield Path(folder)


def _docstring_corpus(work: Path) -> Path:
    """The text that is used if no corpus is given."""
    path = work / "docstrings.txt"
    if not path.exists():
        _note("no --corpus: gathering docstrings")
        write_docstrings(path)
    return path


def _describe(head: dict[str, Any]) -> str:
    machine = head["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    warning = ", figures are meaningless" if head["effort"] == Effort.TRIAL.value else ""
    return (
        f"{head['date']}, {head['effort']} run on {head['corpus']}{warning}\n"
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, "
        f"load {machine['load_average']:.1f} before\n{versions}"
    )


def _note(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
