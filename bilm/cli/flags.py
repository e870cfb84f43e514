"""How the command line reads flags, and the flags that several verbs share."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from bilm.errors import InputError
from bilm.files import atomic_write
from bilm.options import PRESETS

Group = argparse.ArgumentParser | argparse._ArgumentGroup


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


# Types of values


def whole_number(minimum: int) -> Callable[[str], int]:
    """A type for flags: whole numbers of at least `minimum`."""

    def parse(text: str) -> int:
        with contextlib.suppress(ValueError):
            if int(text) >= minimum:
                return int(text)
        raise argparse.ArgumentTypeError(f"a whole number from {minimum} is expected, not {text!r}")

    return parse


def positive_number(text: str) -> float:
    """A type for flags: finite numbers above zero."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"a number above 0 is expected, not {text!r}")


def probability(text: str) -> float:
    """A type for flags: numbers from 0 to 1."""
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"a number from 0 to 1 is expected, not {text!r}")


# Files that are written


def add_force(parser: Group) -> None:
    """--force, which `require_free` heeds."""
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def require_free(args: argparse.Namespace, *paths: str | None) -> None:
    """Check that no file would be overwritten, unless --force allows it.

    Raises:
        InputError: names the files.
    """
    taken = [path for path in paths if path and os.path.exists(path)]
    if taken and not args.force:
        raise InputError(f"{', '.join(taken)} would be overwritten: --force allows it.")


@contextlib.contextmanager
def model_folder_files(args: argparse.Namespace, names: Sequence[str]) -> Iterator[list[str]]:
    """Temporary names for files of the folder `args.model_dir`, which is made if it is missing.

    All of them are written before the first gets its own name, and none does if the block fails.

    Raises:
        InputError: one of them exists, without --force.
    """
    paths = [os.path.join(args.model_dir, name) for name in names]
    require_free(args, *paths)
    existed = os.path.isdir(args.model_dir)
    os.makedirs(args.model_dir, exist_ok=True)
    try:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(atomic_write(path)) for path in paths]
    except BaseException:
        if not existed:
            with contextlib.suppress(OSError):
                os.rmdir(args.model_dir)
        raise
    for path in paths:
        print(path)


# Training runs


def add_save_dir(parser: Group, what: str) -> None:
    """--save_dir, required."""
    parser.add_argument("--save_dir", metavar="FOLDER", required=True, help=what)


def add_best(parser: Group) -> None:
    """--best, for the verbs that read a trained model."""
    parser.add_argument(
        "--best",
        action="store_true",
        help="take the model that was best on the held-out text (default: the last one)",
    )


def add_run_vocabulary(parser: Group) -> None:
    """--vocab_file for the verbs that find the vocabulary beside the checkpoints."""
    parser.add_argument(
        "--vocab_file",
        metavar="FILE",
        help="vocabulary that the model was trained with (default: vocab.txt in --save_dir, "
        "where `bilm train` put it)",
    )


def add_corpus(parser: Group, flag: str, what: str) -> None:
    """A required glob of text files."""
    parser.add_argument(
        flag,
        metavar="GLOB",
        required=True,
        help=f"{what}: file or glob of files (plain, .gz, .xz; UTF-8), one sentence a line, "
        "tokens separated by white space; quote the glob",
    )


def add_network_choice(parser: Group) -> None:
    """--preset or --options_file."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--preset",
        choices=PRESETS,
        help="size of the model (default: small). tiny: a trial in minutes on a laptop; small: "
        "a first model of real use, overnight without a GPU; medium: between small and original; "
        "original: the size of the paper, for GPUs and hundreds of millions of words",
    )
    choice.add_argument(
        "--options_file", metavar="FILE", help="options.json of a training run, instead of a preset"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """What may differ from run to run: options, devices, held-out text, learning rate."""
    group = parser.add_argument_group(
        "the run",
        "What is given here overrides the preset, the options file, or the run that is continued.",
    )
    group.add_argument(
        "--n_epochs", type=whole_number(1), metavar="N", help="passes over the corpus"
    )
    group.add_argument(
        "--batch_size", type=whole_number(1), metavar="ROWS", help="rows of a batch, per GPU"
    )
    group.add_argument(
        "--learning_rate", type=positive_number, metavar="X", help="learning rate of Adagrad"
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
        "use; 0 trains as the original program did",
    )
    group.add_argument(
        "--n_gpus",
        type=whole_number(1),
        metavar="N",
        default=1,
        help="GPUs of this machine (default: 1); for several machines see `bilm train --help`",
    )
    group.add_argument(
        "--seed",
        type=whole_number(0),
        metavar="N",
        help="random seed (default: 0)",
    )
    group.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        help="precision of matrix products (default: float32)",
    )
    group.add_argument(
        "--save_minutes",
        type=positive_number,
        metavar="X",
        default=10.0,
        help="minutes between checkpoints (default: 10); one is always written at the end",
    )
    _add_monitoring(parser)
    _add_schedule(parser)


def _add_monitoring(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("monitoring")
    group.add_argument(
        "--heldout_prefix",
        metavar="GLOB",
        help="held-out text: its perplexity by the full softmax is measured during the training, "
        "and the best model is kept in the folder `best` within --save_dir",
    )
    group.add_argument(
        "--heldout_every",
        metavar="TIME",
        default="epoch",
        help="how often it is measured: epoch, 2epochs, 500steps, 30min or the like (default: "
        "epoch)",
    )
    group.add_argument(
        "--patience",
        type=whole_number(1),
        metavar="N",
        help="stop after N measurements in a row without a new best one (default: never)",
    )
    group.add_argument(
        "--tensorboard",
        action="store_true",
        help="write files for TensorBoard beside the log (needs the package tensorboard)",
    )


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("learning rate schedule")
    group.add_argument(
        "--lr_schedule",
        choices=("constant", "linear", "cosine"),
        help="after the warm-up the learning rate stays, or falls to zero at the end of the run "
        "along a line or a cosine (default: constant)",
    )
    group.add_argument(
        "--warmup_steps",
        type=whole_number(0),
        metavar="N",
        help="steps in which the learning rate rises from near zero (default: 0)",
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """--init_from, --init_vocab."""
    group = parser.add_argument_group("fine-tuning (begin with a trained model)")
    group.add_argument(
        "--init_from",
        metavar="MODEL",
        help="folder of checkpoints (ours or the original's), a checkpoint, a folder of "
        "`bilm dump --model_dir`, or a weights file with its options beside it. The new model has "
        "its network, and its options unless --preset or --options_file gives others",
    )
    group.add_argument(
        "--init_vocab",
        metavar="FILE",
        help="vocabulary of that model (default: vocab.txt beside it); what it learned of words "
        "that are in --vocab_file too is kept",
    )


def require_partners(args: argparse.Namespace) -> None:
    """Flags of a run that mean nothing without a held-out text or a model to begin with."""
    if args.patience is not None and args.heldout_prefix is None:
        usage_error(args, "--patience goes with --heldout_prefix")
    if getattr(args, "init_vocab", None) is not None and args.init_from is None:
        usage_error(args, "--init_vocab goes with --init_from")


# Pretrained models


def add_model(parser: Group, what: str) -> None:
    """--model, or --options_file and --weight_file."""
    parser.add_argument("--model", metavar="FOLDER_OR_ZIP", help=what)
    add_pair(parser)


def add_pair(parser: Group) -> None:
    """--options_file and --weight_file."""
    parser.add_argument(
        "--options_file", metavar="FILE", help="options.json, instead of a folder or ZIP file"
    )
    parser.add_argument(
        "--weight_file", metavar="FILE", help="the HDF5 weights that go with --options_file"
    )


def add_words(parser: Group) -> None:
    """--vocab_file and --embedding_weight_file."""
    parser.add_argument(
        "--vocab_file",
        metavar="FILE",
        help="vocabulary of a model of words or of a token cache (default: vocab.txt beside the "
        "weights)",
    )
    parser.add_argument(
        "--embedding_weight_file",
        metavar="FILE",
        help="token cache (dump_token_embeddings). A word that it lacks is encoded from its "
        "characters; without the weights for that it is an error",
    )


def add_warm_up(parser: Group) -> None:
    """--warm_up."""
    parser.add_argument(
        "--warm_up",
        metavar="FILE",
        help="text, one sentence a line, that is read first: each sentence then begins from the "
        "LSTM states after it instead of zeros; for models trained without resets (published "
        "ones, for instance)",
    )


def add_precision(parser: Group) -> None:
    """--precision of a model in use."""
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="precision of matrix products (default: float32)",
    )


def add_batch_size(parser: Group) -> None:
    """--batch_size of a model in use."""
    parser.add_argument(
        "--batch_size",
        type=whole_number(1),
        metavar="N",
        help="sentences that are computed together, at most (default: as many as are fast); the "
        "result is the same",
    )


def model_source(args: argparse.Namespace) -> str | tuple[str, str]:
    """What the flags name: a folder or ZIP file, or a pair (options, weights).

    Wrong usage ends the program: neither, both, or half a pair.
    """
    pair = (args.options_file, args.weight_file)
    if args.model is not None and pair == (None, None):
        return str(args.model)
    if args.model is None and None not in pair:
        return pair
    usage_error(args, "name a model's folder or ZIP file, or both --options_file and --weight_file")
