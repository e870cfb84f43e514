"""The command line: which rows, on which text, how thoroughly; then the table and the JSON file."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.effort import Effort
from benchmarks.machine import describe_machine, describe_versions, now
from benchmarks.rows import ROWS
from benchmarks.table import format_results, summary

_ROOT = Path(__file__).parent.parent
_DESCRIPTION = """\
Measure how fast bilm is. The table goes to standard output, progress to standard error. Nothing
else should run on the machine meanwhile."""


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=_DESCRIPTION)
    parser.add_argument(
        "--corpus",
        type=Path,
        metavar="FILE",
        help="text, a sentence a line, tokens separated by blanks (plain, .gz, .xz); by default "
        "the docstrings of the installed libraries, a million tokens, over and over",
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick",
        dest="effort",
        action="store_const",
        const=Effort.QUICK,
        help="shorter runs: the whole table in about ten minutes on two cores",
    )
    effort.add_argument(
        "--trial",
        dest="effort",
        action="store_const",
        const=Effort.TRIAL,
        help="only see whether every row works; the figures mean nothing",
    )
    parser.add_argument(
        "--row",
        dest="rows",
        action="append",
        choices=ROWS,
        metavar="NAME",
        help="measure this row alone; may be given several times",
    )
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    parser.add_argument(
        "--work",
        type=Path,
        metavar="FOLDER",
        help="keep text, vocabularies and networks here for the next time (default: a temporary "
        "folder; up to 10 GB)",
    )
    parser.set_defaults(effort=Effort.FULL)
    args = parser.parse_args(arguments)
    if args.corpus is not None and not args.corpus.is_file():
        parser.error(f"--corpus: there is no file {args.corpus}")
    return args


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a row failed."""
    args = parse_arguments(arguments)
    if args.list:
        width = max(map(len, ROWS))
        print("\n".join(f"{row.name.ljust(width)}  {row.about}" for row in ROWS.values()))
        return 0
    with _work_folder(args.work) as work:
        corpus = args.corpus or _docstring_corpus(work)
        head: dict[str, Any] = {
            "date": now(),
            "machine": describe_machine(),
            "versions": describe_versions(),
            "effort": args.effort.value,
            "corpus": args.corpus.name if args.corpus else "docstrings",
        }
        names = args.rows or list(ROWS)
        records = []
        for number, name in enumerate(names, start=1):
            _say(f"[{number}/{len(names)}] {name}")
            records.append(_run_row(name, work, corpus.resolve(), args.effort))
            _say(f"  {summary(records[-1])}")
    if args.json is not None:
        text = json.dumps(head | {"rows": records}, indent=1)
        args.json.write_text(f"{text}\n", encoding="utf-8")
    print(f"{_describe(head)}\n\n{format_results(records)}")
    return 1 if any(record["status"] == "failed" for record in records) else 0


def _run_row(name: str, work: Path, corpus: Path, effort: Effort) -> dict[str, Any]:
    """Measure a row in a fresh process, whose memory and caches no other row has touched."""
    result = work / f"{name}.json"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.worker", name, str(result)]
    command += ["--work", str(work), "--corpus", str(corpus), "--effort", effort.value]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2"} | os.environ
    # TensorFlow talks much on standard error; it is of interest when a row fails.
    ended = subprocess.run(
        command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if result.exists():
        record: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    else:
        reason = f"the process ended with code {ended.returncode}"
        record = {"row": name, "status": "failed", "reason": reason}
    if record["status"] == "failed":
        _say(ended.stderr)
    return record


@contextmanager
def _work_folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="bilm-benchmarks-") as folder:
        yield Path(folder)


def _docstring_corpus(work: Path) -> Path:
    """The demo's text, for a machine without a corpus."""
    path = work / "docstrings.txt"
    if not path.exists():
        from bilm.analysis.demo import gather_docstrings, write_sentences

        _say("no --corpus: gathering docstrings")
        documents = gather_docstrings()
        write_sentences(path, (sentence for document in documents for sentence in document))
    return path


def _describe(head: dict[str, Any]) -> str:
    machine = head["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    warning = ", whose figures mean nothing" if head["effort"] == Effort.TRIAL.value else ""
    return (
        f"{head['date']}, {head['effort']} run on {head['corpus']}{warning}\n"
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, "
        f"load {machine['load_average']:.1f} before\n{versions}"
    )


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
