"""The `bilm` command: one module per subcommand, with `add_arguments(parser)` and `run(args)`.

Neither NumPy nor TensorFlow is imported before a subcommand runs, so `bilm --help` is fast.

Exit codes: 0 success; 1 an error in a file or argument that the user can fix, reported in one line;
2 wrong usage; 130 interrupted. Results go to standard output, progress and notes to standard error.
"""

import argparse
import difflib
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import bilm
from bilm.cli import flags
from bilm.cli.flags import HelpFormatter, Parser
from bilm.core.errors import InputError, TrainingError, import_extra, shown
from bilm.files.reading import protected_files
from bilm.terminal import end_orderly, end_output, is_broken, note, warnings_on_stderr

SUBCOMMANDS = (
    "tokenize", "shard", "vocab", "train", "restart", "test", "plot", "dump", "info", "models",
    "embed", "export", "score", "substitutes", "report", "compare", "neighbours", "senses",
    "change", "project", "probe", "static", "convert", "demo",
)  # fmt: skip
# What other programs call them.
_OTHER_NAMES = {
    "encode": "bilm embed", "help": "bilm --help", "version": "bilm --version",
    "perplexity": "bilm score", "surprisal": "bilm score", "cluster": "bilm senses",
    "evaluate": "bilm test", "eval": "bilm test",
}  # fmt: skip


def main(argv: Sequence[str] | None = None, subcommand: str | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: arguments after the program's name (default: `sys.argv[1:]`).
        subcommand: run this subcommand, with `argv` as its arguments, as the scripts in bin/ do.
    """
    if argv is None:  # a process of our own
        signal.signal(signal.SIGTERM, end_orderly)
        if "_ARGCOMPLETE" in os.environ:
            # The shell function of `register-python-argcomplete bilm` asks for completions.
            argcomplete = import_extra("argcomplete", "Shell completion")
            argcomplete.autocomplete(_main_parser(os.environ["COMP_LINE"].split()[1:2]))
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as we run
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        note("bilm: error: standard output is closed.")
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Results are UTF-8 in every locale; file names in other encodings are printed unchanged.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    argv = list(sys.argv[1:] if argv is None else argv)
    program = None  # the script's name
    if subcommand is None:
        if not argv or argv[0] not in SUBCOMMANDS:
            parser = _main_parser()
            if argv and not argv[0].startswith("-"):
                parser.error(_unknown_subcommand(argv[0]))
            parser.parse_args(argv)  # shows the help, the version or an error
            parser.print_help(sys.stderr)
            return 2
        program, subcommand = "bilm", argv.pop(0)
    parser = make_parser(subcommand, program and f"{program} {subcommand}")
    args = parser.parse_args(argv)
    program = program or parser.prog
    with warnings_on_stderr(program):
        return _run(args, program)


def _unknown_subcommand(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), SUBCOMMANDS, n=1)
    other = _OTHER_NAMES.get(name.lower(), f"bilm {close[0]}" if close else "bilm --help")
    return f"unknown subcommand {shown(name)}; did you mean `{other}`?"


def make_parser(subcommand: str, program: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of a subcommand; only its module is imported. `program` is the name in
    messages (default: the script's)."""
    module = importlib.import_module(f"bilm.cli.{subcommand}")
    parser = Parser(prog=program, description=module.__doc__, formatter_class=HelpFormatter)
    module.add_arguments(parser)
    # `run` reports the usage errors that it detects through the subcommand's own parser.
    parser.set_defaults(run=module.run, parser=parser)
    return parser


def _main_parser(complete: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of `bilm`, which lists the subcommands; those of `complete` have their flags."""
    parser = Parser(
        prog="bilm",
        description="Bidirectional language models (ELMo): train, resume, evaluate, use.",
        epilog="`bilm SUBCOMMAND --help` explains a subcommand. "
        "Flags may be spelled with - or with _.",
    )
    parser.add_argument("--version", action="version", version=f"bilm {bilm.__version__}")
    subparsers = parser.add_subparsers(metavar="SUBCOMMAND", title="subcommands")
    for name in SUBCOMMANDS:
        # The first line of a module is the summary of its docstring.
        with open(Path(__file__).with_name(f"{name}.py"), encoding="utf-8") as module:
            subparser = subparsers.add_parser(name, help=module.readline().strip().strip('".'))
        if name in complete:
            importlib.import_module(f"bilm.cli.{name}").add_arguments(subparser)
    return parser


def _run(args: argparse.Namespace, program: str) -> int:
    try:
        flags.refuse_sentences(args)
        with protected_files():
            code = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader closed our output, as `head` does; that is not an error. Without messages, the
        # work was ended before its result.
        end_output()
        return int(is_broken(sys.stderr))
    except (InputError, TrainingError, OSError) as error:
        note(f"{program}: error: {_one_line(error)}")
        end_output()
        return 1
    except KeyboardInterrupt as interrupt:
        more = f" {interrupt}" if interrupt.args else ""
        note(f"\n{program}: interrupted.{more}")
        return 130


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return " ".join(str(error).splitlines())
