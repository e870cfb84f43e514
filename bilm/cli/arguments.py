"""How the command line reads flags, and the flags that several verbs share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from bilm.options import PRESETS


class Parser(argparse.ArgumentParser):
    """An argument parser that takes --save_dir and --save-dir alike, and no abbreviations.

    The names with underscores are the original programs'. Abbreviated flags would change their
    meaning with every flag that is added.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        if args is None:
            args = sys.argv[1:]
        return super().parse_known_args(_underscored(args), namespace)


def _underscored(args: Sequence[str]) -> list[str]:
    """Flags with their hyphens as underscores; values, and all that follows a --, as they are."""
    end = list(args).index("--") if "--" in args else len(args)
    return [_underscored_flag(arg) for arg in args[:end]] + list(args[end:])


def _underscored_flag(arg: str) -> str:
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


def usage_error(args: argparse.Namespace, message: str) -> NoReturn:
    """End with the verb's usage and exit code 2: flags that do not go together."""
    parser: argparse.ArgumentParser = args.parser
    parser.error(message)


def whole_number(minimum: int) -> Callable[[str], int]:
    """A type for flags: whole numbers of at least `minimum`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise argparse.ArgumentTypeError(
                f"a whole number from {minimum} is expected, not {text!r}"
            )
        return number

    return parse


def positive_number(text: str) -> float:
    """A type for flags: finite numbers above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"a number above 0 is expected, not {text!r}")
    return number


def probability(text: str) -> float:
    """A type for flags: numbers from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"a number from 0 to 1 is expected, not {text!r}")
    return number


def add_save_dir(parser: argparse.ArgumentParser, what: str) -> None:
    """--save_dir, required."""
    parser.add_argument("--save_dir", metavar="FOLDER", required=True, help=what)


def add_vocab_file(parser: argparse.ArgumentParser) -> None:
    """--vocab_file for the verbs that find the vocabulary beside the checkpoints."""
    parser.add_argument(
        "--vocab_file",
        metavar="FILE",
        help="vocabulary that the model was trained with (default: vocab.txt in --save_dir, "
        "where `bilm train` put it)",
    )


def add_corpus(parser: argparse.ArgumentParser, flag: str, what: str) -> None:
    """A required glob of text files."""
    parser.add_argument(
        flag,
        metavar="GLOB",
        required=True,
        help=f"{what}: file or glob of files (plain, .gz, .xz; UTF-8), one sentence a line, "
        "tokens parted by white space; quote the glob",
    )


def add_network_choice(parser: argparse.ArgumentParser) -> None:
    """--preset or --options_file."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--preset",
        choices=PRESETS,
        help="size of the model (default: small). tiny: a trial in minutes on a laptop; small: "
        "a first model of real use, overnight without a GPU; medium; original: the size of the "
        "paper, for GPUs and hundreds of millions of words",
    )
    choice.add_argument(
        "--options_file", metavar="FILE", help="options.json of a training run, in its place"
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What may differ from run to run: epochs, batch, learning rate, devices, seed, precision."""
    group = parser.add_argument_group("the run (each stands above the preset and the options file)")
    group.add_argument("--n_epochs", type=whole_number(1), metavar="N", help="passes of the corpus")
    group.add_argument(
        "--batch_size", type=whole_number(1), metavar="ROWS", help="rows of a batch, per GPU"
    )
    group.add_argument(
        "--learning_rate", type=positive_number, metavar="X", help="Adagrad's learning rate"
    )
    group.add_argument(
        "--n_train_tokens",
        type=whole_number(1),
        metavar="N",
        help="words and sentence ends of one epoch (default: the corpus is counted)",
    )
    group.add_argument(
        "--reset_rate",
        type=probability,
        metavar="P",
        help="probability that a sentence begins from LSTM states of zero, as every text does in "
        "use; 0 trains as the original program did (default: that of the preset)",
    )
    group.add_argument(
        "--n_gpus",
        type=whole_number(1),
        metavar="N",
        default=1,
        help="GPUs of this machine (default: 1); several machines: see `bilm train --help`",
    )
    group.add_argument(
        "--seed",
        type=whole_number(0),
        metavar="N",
        help="random seed (default: 0; going on, that of the run)",
    )
    group.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="what matrix products are computed in (default: float32; going on, that of the run)",
    )
    group.add_argument(
        "--save_minutes",
        type=positive_number,
        metavar="X",
        default=10.0,
        help="time between checkpoints (default: 10); one is written at the end in any case",
    )
