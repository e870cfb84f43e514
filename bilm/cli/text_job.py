"""What the verbs share that read a text a line at a time and give a result for each sentence."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow, printable
from bilm.files.reading import lines_of, read_lines
from bilm.files.writing import atomic_write
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.files.model_files import ModelSource
    from bilm.use.elmo import ELMo
    from bilm.use.predictor import Predictor
    from bilm.use.pretrained import Pretrained

STANDARD = "-"


class TextInput:
    """The sentences of a text, from a file or from standard input.

    Args:
        path: the file, or "-".
        shard: (i, n), the job has the lines i, i + n, ... of 1, 2, ...
        distinct: give each sentence once, and only sentences that can be keys: "paths" of HDF5 or
            "names".
        check: is called with the tokens of a line and the line's name; raises InputError for what
            the model does not take.

    Attributes:
        name: the text's name, for messages.
        n_tokens: of the job, once a file was looked through; None for standard input.
        n_repeated, n_empty: lines that were passed over because of `distinct`.
    """

    def __init__(
        self,
        path: str,
        shard: tuple[int, int] = (1, 1),
        distinct: str | None = None,
        check: Callable[[Sequence[str], str], None] | None = None,
    ) -> None:
        self.path = path
        self.name = "standard input" if path == STANDARD else path
        self.n_tokens: int | None = None
        self.n_repeated = self.n_empty = 0
        self._shard = shard
        self._distinct = distinct
        self._check = check

    def look_through(self) -> None:
        """Read a file once, to find what is wrong in it before hours of work, and to count it.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: a line is not UTF-8, or cannot be a key, or has words without a vector.
        """
        if self.path != STANDARD:
            self.n_tokens = sum(len(text.split()) for _, text in self.sentences())
            self._check = None  # each was found to be good

    def sentences(self) -> Iterator[tuple[int, str]]:
        """(number of the line from 0, line without white space around it) of each sentence."""
        keys = None
        if self._distinct is not None:
            from bilm.jobs.vector_files import SentenceKeys

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
            if self._check is not None:
                self._check(text.split(), name)
            yield number, text

    def _lines(self) -> Iterator[str]:
        if self.path == STANDARD:
            return lines_of(sys.stdin.buffer, self.name)
        return read_lines(self.path)


def add_elmo(parser: flags.Group) -> None:
    """The flags that name a model that gives vectors."""
    flags.add_model(
        parser,
        "folder or ZIP file with weights and options, as `bilm dump --model_dir` and NLPL have "
        "them",
    )
    flags.add(parser, flags.WORDS | flags.WARM_UP)


def load_elmo(args: argparse.Namespace, source: ModelSource | None = None) -> ELMo:
    """The model of `add_elmo` and --precision; `source` is where it is, instead of the flags."""
    return pretrained(args, source).load()


def pretrained(args: argparse.Namespace, source: ModelSource | None = None) -> Pretrained:
    """The model that the flags name, and how it is loaded; `source` overrides --model."""
    source = source or flags.model_source(args)
    flags.require_inputs(args)
    import_tensorflow()
    from bilm.use.pretrained import Pretrained

    names = ("vocab_file", "embedding_weight_file", "precision", "warm_up", "softmax_file")
    return Pretrained(source, **{name: getattr(args, name) for name in names if name in args})


def add_predictor(parser: argparse.ArgumentParser) -> None:
    """The flags that name a language model with its softmax."""
    group = parser.add_argument_group("model")
    flags.add_model(
        group,
        "folder of a training run, or folder or ZIP file with weights and the softmax, as `bilm "
        "dump` writes them",
    )
    words = "words of the softmax (default: those in the weights, or vocab.txt next to them)"
    flags.add(group, {"--vocab_file FILE": words} | flags.SOFTMAX | flags.WARM_UP)
    flags.add(group, flags.BATCH_SIZE | flags.PRECISION)
    parser.set_defaults(precision="float32")


def add_result(
    parser: argparse.ArgumentParser, formats: str = "jsonl|tsv", default: str = "jsonl"
) -> None:
    """The flags of the result, for `write_results`.

    Args:
        formats: jsonl, names of tables, and text.
        default: what the help says of the default.
    """
    flags.add(
        parser,
        {
            "--out FILE": "file to write (default: standard output)",
            **flags.FORCE,
            f"--format {formats}": "one JSON object per line, or fields separated by tabs "
            f"(default: {default})",
        },
    )
    parser.set_defaults(out=STANDARD, format="jsonl")


def load_predictor(args: argparse.Namespace) -> Predictor:
    """The model, once it is known that the result can be written."""
    source = flags.model_source(args)
    if args.out != STANDARD:
        flags.require_free(args, args.out)
    model = pretrained(args, source)
    from bilm.use.predictor import Predictor

    return Predictor.from_pretrained(model)


def write_results(
    args: argparse.Namespace,
    results: Iterable[tuple[int, Any]],
    fields: Sequence[str],
    rows: Callable[[Any], Iterable[Sequence[Any]]],
    objects: Callable[[Any], Iterable[dict[str, Any]]],
    doing: str,
    lines: Callable[[Any], Iterable[str]] | None = None,
) -> None:
    """Write the result of each sentence to --out, which appears when all of them are there.

    Without `load_predictor`, call `flags.require_free(args, args.out)` before the work.

    Args:
        results: (number of the line, result).
        fields: for tables, the names of the columns, the first that of the number.
        rows: of a result, without the number of its line.
        objects: for jsonl, those of a result, without that number as well.
        doing: what the progress is called.
        lines: for --format text, the lines of a result.
    """
    with contextlib.ExitStack() as stack:
        out: TextIO = sys.stdout
        if args.out != STANDARD:
            temporary = stack.enter_context(atomic_write(args.out))
            out = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        display = stack.enter_context(progress_display(args.out))
        if args.format not in ("jsonl", "text"):
            out.write(_tabbed(fields))
        for count, (number, result) in enumerate(results, start=1):
            if args.format == "jsonl":
                values = ({"line": number} | value for value in objects(result))
                out.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
            elif args.format == "text" and lines is not None:
                out.writelines(f"{printable(line)}\n" for line in lines(result))
            else:
                out.writelines(_tabbed((number, *row)) for row in rows(result))
            display.update(doing, count, unit="sentences")
    if args.out != STANDARD:
        print(args.out)


def progress_display(output: str) -> ProgressDisplay:
    """Shows the progress of a job, unless its results go to the terminal themselves."""
    return ProgressDisplay(quiet=output == STANDARD and sys.stdout.isatty())


def _tabbed(fields: Iterable[Any]) -> str:
    """Fields separated by tabs; nothing for None, six decimals for numbers that are not whole."""
    blank = ("" if value is None else value for value in fields)
    return "\t".join(f"{x:.6f}" if isinstance(x, float) else str(x) for x in blank) + "\n"


def rounded(values: Any) -> Any:
    """A number, or None, or an array's numbers for JSON: six decimals, a millionth of a nat."""
    if values is None or isinstance(values, int | float):
        return values if values is None else round(values, 6)
    return [round(value, 6) for value in values.tolist()]
