"""What `bilm score` and `bilm substitutes` have in common: model, text, result, progress."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from bilm.cli import arguments, model_arguments
from bilm.cli.embedding_input import STANDARD
from bilm.cli.progress import ProgressLine
from bilm.cli.tensorflow_import import import_tensorflow
from bilm.errors import InputError
from bilm.files import atomic_write

if TYPE_CHECKING:
    from bilm.prediction import Predictor

FORMATS = ("jsonl", "tsv")


def add_model(parser: argparse.ArgumentParser) -> None:
    """The flags that name a language model with its softmax."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="FOLDER_OR_ZIP",
        help="folder of a training run, or folder or ZIP file with weights that hold the softmax, "
        "as `bilm dump --with_softmax` writes them",
    )
    model_arguments.add_pair(group)
    group.add_argument(
        "--vocab_file",
        metavar="FILE",
        help="vocabulary of the softmax (default: the one in the weights, or vocab.txt beside the "
        "weights or checkpoints)",
    )
    model_arguments.add_warm_up(group)


def add_job(parser: argparse.ArgumentParser) -> None:
    """The flags of the result and of the computation."""
    parser.add_argument(
        "--out", metavar="FILE", default=STANDARD, help="file to write (default: standard output)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="jsonl",
        help="a JSON object a line, or fields separated by tabs (default: jsonl)",
    )
    parser.add_argument(
        "--batch_size",
        type=arguments.whole_number(1),
        metavar="N",
        help="sentences that are computed together, at most (default: as many as are fast); the "
        "result is the same",
    )
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32",
                        help="what matrix products are computed in (default: float32)")  # fmt: skip


def load(args: argparse.Namespace) -> Predictor:
    """The model, once it is known that the result can be written."""
    source = model_arguments.model_source(args)
    if args.out != STANDARD and os.path.exists(args.out) and not args.force:
        raise InputError(f"{args.out} would be overwritten: --force allows it.")
    import_tensorflow()
    from bilm.prediction import Predictor

    return Predictor.from_pretrained(
        source, vocab_file=args.vocab_file, precision=args.precision, warm_up=args.warm_up
    )


@contextlib.contextmanager
def opened(args: argparse.Namespace) -> Iterator[TextIO]:
    """Standard output, or the file, which appears when the block ends well."""
    if args.out == STANDARD:
        yield sys.stdout
        return
    with (
        atomic_write(args.out) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        yield file
    print(args.out)


def shown(results: Iterable[Any]) -> Iterator[Any]:
    """The results, one a sentence, and on standard error how many there have been."""
    line = ProgressLine(sys.stderr)
    count = 0
    try:
        for count, result in enumerate(results, start=1):
            yield result
            line.show(f"{count:,} sentence{'s' if count > 1 else ''}")
    finally:
        line.close()


def tabbed(fields: Iterable[Any]) -> str:
    """Fields separated by tabs; nothing for None, six decimals for numbers that are not whole."""
    return "\t".join(_field(value) for value in fields) + "\n"


def _field(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def rounded(values: Any) -> Any:
    """Numbers for JSON: six decimals, a millionth of a nat; a list of an array's."""
    if values is None:
        return None
    if isinstance(values, float):
        return round(values, 6)
    return [round(value, 6) for value in values.tolist()]
