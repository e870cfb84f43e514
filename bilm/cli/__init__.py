"""The `bilm` command: one verb a module, each with `add_arguments(parser)` and `run(args)`.

Nothing here imports NumPy or TensorFlow before a verb runs: `bilm --help` answers at once.

Exit codes: 0 done; 1 something in a file or argument that the user can mend, said in one line;
2 usage; 130 interrupted. Results go to standard output, progress and notes to standard error.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TextIO

import bilm
from bilm.cli.flags import Parser
from bilm.cli.terminal import lead_nowhere, note, standard_streams, warnings_on_stderr
from bilm.core.errors import InputError, TrainingError

VERBS = (
    "shard", "vocab", "train", "restart", "test", "plot", "dump", "info", "embed", "export",
    "score", "substitutes", "report", "neighbours", "senses", "project", "probe", "static",
    "convert", "demo",
)  # fmt: skip

# Subcommands that look at vectors live with the analysis that they run.
_ANALYSIS = {"report", "neighbours", "senses", "project", "probe", "static", "demo"}


def module_of(verb: str) -> ModuleType:
    """The module of a subcommand."""
    folder = "bilm.analysis.commands" if verb in _ANALYSIS else "bilm.cli"
    return importlib.import_module(f"{folder}.{verb}")


def main(argv: Sequence[str] | None = None, verb: str | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments after the program's name; None takes those of the process.
        verb: run this verb, whose flags `argv` then begins with, as the programs in bin/ do.
    """
    with standard_streams():
        parser = make_parser() if verb is None else _fill(Parser(), verb)
        args = parser.parse_args(argv)
        if args.run is None:
            parser.print_help(sys.stderr)
            return 2
        with warnings_on_stderr(parser.prog):
            return _run(args, parser.prog)


def make_parser() -> argparse.ArgumentParser:
    """The parser of `bilm` with all its verbs."""
    parser = Parser(
        prog="bilm",
        description="Bidirectional language models (ELMo): train, resume, evaluate, use.",
        epilog="`bilm VERB --help` explains a verb. Flags may be spelled with - or with _.",
    )
    parser.add_argument("--version", action="version", version=f"bilm {bilm.__version__}")
    parser.set_defaults(run=None)
    verbs = parser.add_subparsers(metavar="VERB", title="verbs")
    for name in VERBS:
        module = module_of(name)
        short = (module.__doc__ or "").partition("\n")[0].rstrip(".")
        _fill(verbs.add_parser(name, help=short), name)
    return parser


def _fill(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    module = module_of(verb)
    parser.description = module.__doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    # The verb's own parser reports usage errors that only its `run` can see.
    parser.set_defaults(run=module.run, parser=parser)
    return parser


def _run(args: argparse.Namespace, program: str) -> int:
    try:
        _refuse_zeros(args)
        code = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read our output has closed it, as `head` does: that is no error of ours.
        lead_nowhere(sys.stdout)
        return 0
    except (InputError, TrainingError, OSError) as error:
        note(f"{program}: error: {_one_line(error)}")
        return 1
    except KeyboardInterrupt as interrupt:
        more = f" {interrupt}" if interrupt.args else ""
        note(f"\n{program}: interrupted.{more}")
        return 130


def _refuse_zeros(args: argparse.Namespace) -> None:
    """Programs that call `main` may give what no shell can: the character 0, for which the system
    has no name."""
    for flag, value in vars(args).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and "\0" in text:
                raise InputError(f"{flag}: text without the character 0 is expected, not {text!r}.")


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        name = error.filename
        if name is None and error.errno == errno.ENOSPC and _is_full(sys.stdout):
            name = "standard output"
        return f"{error.strerror}." if name is None else f"{name}: {error.strerror}."
    return " ".join(str(error).splitlines())


def _is_full(stream: TextIO) -> bool:
    """Whether a stream does not even take an empty line."""
    try:
        print(file=stream, flush=True)
    except OSError:
        return True
    return False
