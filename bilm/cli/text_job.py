"""What the verbs share that read a text a line at a time and give a result for each sentence."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow
from bilm.errors import InputError
from bilm.files import atomic_write, read_lines
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.prediction import Predictor

STANDARD = "-"


class TextInput:
    """The sentences of a text, from a file or from standard input.

    Args:
        path: the file, or "-".
        shard: (i, n), the job has the lines i, i + n, ... of 1, 2, ...
        distinct: give each sentence once, and only sentences that can be keys: "paths" of HDF5 or
            "names".

    Attributes:
        name: the text's name, for messages.
        n_sentences, n_tokens: of the job, once a file was looked through; None for standard input.
        n_repeated, n_empty: lines that were passed over because of `distinct`.
    """

    def __init__(
        self, path: str, shard: tuple[int, int] = (1, 1), distinct: str | None = None
    ) -> None:
        self.path = path
        self.name = "standard input" if path == STANDARD else path
        self.n_sentences: int | None = None
        self.n_tokens: int | None = None
        self.n_repeated = self.n_empty = 0
        self._shard = shard
        self._distinct = distinct
        self._refuse_unknown: Callable[[Sequence[str], str], None] | None = None

    def look_through(self, refuse_unknown: Callable[[Sequence[str], str], None]) -> None:
        """Read a file once, to find what is wrong in it before hours of work, and to count it.

        Args:
            refuse_unknown: is called with the tokens of a line and the line's name; raises
                InputError for tokens that the model does not take.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: a line is not UTF-8, or cannot be a key, or has words without a vector.
        """
        self._refuse_unknown = refuse_unknown
        if self.path == STANDARD:
            return
        n_sentences = n_tokens = 0
        for _, text in self.sentences():
            n_sentences += 1
            n_tokens += len(text.split())
        self.n_sentences, self.n_tokens = n_sentences, n_tokens
        # Each was found to be good.
        self._refuse_unknown = None

    def sentences(self) -> Iterator[tuple[int, str]]:
        """(number of the line from 0, line without white space around it) of each sentence."""
        keys = None
        if self._distinct is not None:
            from bilm.embedding.vector_files import SentenceKeys

            keys = SentenceKeys(paths=self._distinct == "paths")
        self.n_repeated = self.n_empty = 0
        i, n = self._shard
        for number, line in enumerate(self._lines()):
            if number % n != i - 1:
                continue
            text, name = line.strip(), f"{self.name}, line {number + 1}"
            if keys is not None:
                if not text:
                    self.n_empty += 1
                    continue
                if not keys.is_new(text, name):
                    self.n_repeated += 1
                    continue
            if self._refuse_unknown is not None:
                self._refuse_unknown(text.split(), name)
            yield number, text

    def _lines(self) -> Iterator[str]:
        if self.path != STANDARD:
            yield from read_lines(self.path)
            return
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self.name}, line {number}: not UTF-8: byte {error.start} is "
                    f"0x{line[error.start]:02x}."
                ) from None


def add_predictor(parser: argparse.ArgumentParser) -> None:
    """The flags that name a language model with its softmax."""
    group = parser.add_argument_group("model")
    flags.add_model(
        group,
        "folder of a training run, or folder or ZIP file with weights and the softmax, as `bilm "
        "dump --with_softmax` writes them",
    )
    group.add_argument(
        "--vocab_file",
        metavar="FILE",
        help="vocabulary of the softmax (default: the one in the weights, or vocab.txt beside the "
        "weights or checkpoints)",
    )
    flags.add_warm_up(group)


def add_result(parser: argparse.ArgumentParser) -> None:
    """The flags of the result and of the computation."""
    parser.add_argument(
        "--out", metavar="FILE", default=STANDARD, help="file to write (default: standard output)"
    )
    flags.add_force(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "tsv"),
        default="jsonl",
        help="a JSON object a line, or fields separated by tabs (default: jsonl)",
    )
    flags.add_batch_size(parser)
    flags.add_precision(parser)


def load_predictor(args: argparse.Namespace) -> Predictor:
    """The model, once it is known that the result can be written."""
    source = flags.model_source(args)
    if args.out != STANDARD:
        flags.require_free(args, args.out)
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


def progress_display(output: str) -> ProgressDisplay:
    """Shows the progress of a job, unless its results go to the terminal themselves."""
    return ProgressDisplay(quiet=output == STANDARD and sys.stdout.isatty())


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
