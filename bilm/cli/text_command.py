"""What several subcommands share: reading text, loading models, results, occurrences of words."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from bilm import analysis
from bilm.cli import flags
from bilm.core.errors import InputError, not_finite
from bilm.files.model_files import sample_text
from bilm.files.reading import find_all_files, open_text, read_files, read_lines
from bilm.files.writing import atomic_write, text_file
from bilm.progress import ProgressDisplay, counted
from bilm.terminal import import_tensorflow, note, printable

if TYPE_CHECKING:
    from bilm.data.sentences import TextTokens
    from bilm.use.predictor import Predictor
    from bilm.use.pretrained import Model, Pretrained

STANDARD = "-"
_MAX_CHECKED = 10_000  # tokens of a text that are checked for unseen letters


def model_tokens(args: argparse.Namespace) -> TextTokens:
    """How texts are split into the tokens of the model that the flags name, if any."""
    from bilm.data.sentences import TextTokens

    recorded = None
    if args.model is not None or getattr(args, "weight_file", None) is not None:
        from bilm.files.model_files import open_model

        with open_model(flags.model_source(args)) as files:
            recorded = files.read_options().tokenizer
    return TextTokens(recorded, args.tokenizer, getattr(args, "column", None))


class InputText(NamedTuple):
    """The text that a command reads."""

    name: str  # for messages
    unit: str  # what its lines are, see `bilm.files.reading.Text`
    split: Callable[[str], list[str]]  # splits a line into tokens
    lines: Iterator[str]


def read_input(args: argparse.Namespace) -> InputText:
    """The text IN; "-" is standard input."""
    name = "standard input" if args.input == STANDARD else args.input
    source = sys.stdin.buffer if args.input == STANDARD else args.input
    tokens = model_tokens(args)

    def read() -> Iterator[Any]:
        with open_text(source, name, column=tokens.column) as text:
            split, lines = tokens.split(text)
            yield InputText(name, text.unit, split, reading)
            yield from lines

    reading = read()
    first: InputText = next(reading)
    return first


def sentences(text: InputText) -> Iterator[tuple[tuple[int, str], list[str]]]:
    """Yield ((number, line), tokens) of each line that is not empty."""
    is_empty = True
    for number, line in enumerate(text.lines):
        if tokens := text.split(line):
            is_empty = False
            yield (number, line), tokens
    if is_empty:
        raise InputError(f"{text.name}: must have a sentence, got empty lines only.")


ELMO = "folder or ZIP file with weights and options, as `bilm dump --model_dir` and NLPL have them"
PREDICTOR = (
    "folder of a training run, or folder or ZIP file with weights and the softmax, as `bilm dump` "
    "writes them"
)
TEXT = (
    "files or globs (UTF-8, plain or compressed), one sentence per line, tokenised like the text "
    "of the model or, with --tokenizer, raw"
)
SAMPLE = {
    "--max_occurrences N": "occurrences of each word in a text, sampled uniformly; each takes up "
    "to 4 * layers * dim bytes of memory (default: 1000)",
    "--match_case": "distinguish apple from Apple (default: they are one word)",
    "--seed N>=0": "random seed (default: 0)",
}
TOKENIZER = {
    "--tokenizer CODE": "how text is split into tokens: model, like the model's training text; "
    "spaces, at white space; or a language code such as en (default: typed sentences, and files "
    "that are tokenised like the model's text, are read as model; other files are an error)",
}
COLUMN = {"--column N": "read column N, from 1, of text in columns (CoNLL-2003, VRT) as tokens"}


def check_layer(args: argparse.Namespace, name: str = "layer", *others: str) -> None:
    """Check that the model has --layer, without TensorFlow and before a text is read. `others` are
    further values for the message."""
    layer = getattr(args, name)
    if isinstance(layer, int):
        from bilm.files.model_files import open_model
        from bilm.inference.layers import layer_number

        with open_model(flags.model_source(args)) as files:
            n_layers = files.read_options().lstm.n_layers + 1
            layer_number(layer, n_layers, *others, name=f"--{name}")


def use_sample(args: argparse.Namespace) -> None:
    """Without a text or existing occurrences, set --text to the model's sample of text, if the
    model is part of the package."""
    if args.text is not None or (args.occurrences and os.path.exists(args.occurrences)):
        return
    if (path := sample_text(args.model)) is not None:
        args.text = [path]
        note(f"Without --text, the text is the package's sample of Wikipedia, {path}.")


def load_model(args: argparse.Namespace, softmax: bool | None = False) -> Model:
    """Open the model that the flags name; `softmax` as for `Pretrained.load`."""
    return pretrained(args).load(softmax=softmax)


def pretrained(args: argparse.Namespace) -> Pretrained:
    """The model that the flags name, not loaded yet."""
    source = flags.model_source(args)
    flags.require_inputs(args)
    import_tensorflow()
    from bilm.use.pretrained import Pretrained

    names = ("vocab_file", "embedding_weight_file", "precision", "warm_up", "tokenizer")
    return Pretrained(source, **{name: getattr(args, name) for name in names if name in args})


def warn_of_unseen(model: Model, sentences: Iterable[Sequence[str]], text: str) -> None:
    """Warn if most words of a text have letters that occur in no word of the vocabulary: the
    vectors of such words are meaningless."""
    if model.vocabulary_file is None or not os.path.isfile(model.vocabulary_file):
        return
    letters = frozenset(itertools.chain.from_iterable(read_lines(model.vocabulary_file)))
    tokens = itertools.islice(itertools.chain.from_iterable(sentences), _MAX_CHECKED)
    words = [token for token in tokens if any(map(str.isalpha, token))]
    unseen = [word for word in words if any(c.isalpha() and c not in letters for c in word)]
    if len(unseen) > len(words) / 2:
        note(
            f"Warning: {len(unseen) / len(words):.0%} of the words of {text} have letters that the "
            f"model never saw in training, such as {unseen[0]!r}: it cannot distinguish such words."
        )


def add_model(parser: argparse.ArgumentParser, description: str = ELMO) -> flags.Group:
    """Add the flags of a model and its tokenizer; return their group."""
    group = parser.add_argument_group("model")
    flags.add_model(group, description)
    flags.add(group, TOKENIZER)
    return group


def add_result(parser: argparse.ArgumentParser, formats: str) -> None:
    """The flags of the result, for `write_results`."""
    text, in_terminal = "", ""
    if "text" in formats:
        text, in_terminal = "; text shows probabilities", "text in a terminal, "
    flags.add(
        parser,
        {
            "--out FILE": "file to write, compressed if its name ends in .gz or .xz (default: "
            "standard output)",
            **flags.FORCE,
            f"--format {formats}": f"one JSON object per line, or fields separated by tabs{text} "
            f"(default: {in_terminal}tsv if FILE ends in .tsv, .tsv.gz or .tsv.xz, else jsonl)",
        },
    )
    parser.set_defaults(out=STANDARD)


def load_predictor(args: argparse.Namespace) -> Predictor:
    """Load the model, after checking that the result can be written."""
    flags.model_source(args)
    flags.outputs(args, out=None if args.out == STANDARD else args.out)
    return load_model(args, softmax=True).predictor


def write_results(
    args: argparse.Namespace,
    results: Iterable[tuple[int, Any]],
    fields: Sequence[str],
    rows: Callable[[Any], Iterable[Sequence[Any]]],
    doing: str,
    objects: Callable[[Any], Iterable[dict[str, Any]]] | None = None,
    lines: Callable[[Any], Iterable[str]] | None = None,
) -> None:
    """Write the result of each sentence to --out; the file appears once it is complete.

    Args:
        results: (line number, result).
        fields: column names of a table, starting with the line number's.
        rows, objects, lines: convert a result to table rows, JSON objects (default: the rows as
            objects) or lines of text. Rows and objects leave out the line number.
        doing: name of the stage whose progress is shown.
    """
    form = args.format or _default_format(args.out, "jsonl" if lines is None else "text")
    with contextlib.ExitStack() as stack:
        out: TextIO = sys.stdout
        if args.out != STANDARD:
            temporary = stack.enter_context(atomic_write(args.out, overwrite=args.force))
            out = stack.enter_context(text_file(temporary))
        display = stack.enter_context(progress_display(args.out))
        if form not in ("jsonl", "text"):
            out.write(_tabbed(fields))
        for number, result in counted(results, display.show, doing, None, "sentences"):
            numbers = itertools.chain.from_iterable(rows(result))
            if not all(math.isfinite(x) for x in numbers if isinstance(x, float)):
                raise not_finite(f"{fields[0]} {number}: the model's scores")
            if form == "jsonl":
                values = (dict(zip(fields[1:], row, strict=True)) for row in rows(result))
                for value in values if objects is None else objects(result):
                    line = json.dumps(_rounded({fields[0]: number} | value), ensure_ascii=False)
                    out.write(f"{line}\n")
            elif form == "text" and lines is not None:
                out.writelines(f"{printable(line)}\n" for line in lines(result))
            else:
                out.writelines(_tabbed((number, *row)) for row in rows(result))
    if args.out != STANDARD:
        print(args.out)


def _default_format(output: str, in_terminal: str) -> str:
    if output == STANDARD:
        return in_terminal if sys.stdout.isatty() else "jsonl"
    return "tsv" if output.lower().endswith((".tsv", ".tsv.gz", ".tsv.xz")) else "jsonl"


def progress_display(output: str) -> ProgressDisplay:
    """A progress display, which is off if the results themselves go to the terminal."""
    return ProgressDisplay(quiet=output == STANDARD and sys.stdout.isatty())


def _tabbed(fields: Iterable[Any]) -> str:
    """Fields separated by tabs; None is empty, floats have six decimals."""
    values = ("" if value is None else value for value in fields)
    return "\t".join(f"{x:.6f}" if isinstance(x, float) else str(x) for x in values) + "\n"


def _rounded(value: Any) -> Any:
    """Round floats to six decimals, a millionth of a nat, for JSON."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(_rounded, value))
    return round(value, 6) if isinstance(value, float) else value


# Occurrences of words


def add_occurrences(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose occurrences of words."""
    flags.add(
        parser.add_argument_group("occurrences"),
        {
            "--text FILE ...": f"{TEXT} (default for a model of the package: its sample of "
            "Wikipedia)",
            **COLUMN,
            **SAMPLE,
            "--occurrences FILE": "save the occurrences and their vectors to this file (.npz): "
            "later commands need no --text and, except for `neighbours`, no --model",
        },
    )
    parser.set_defaults(max_occurrences=1000, seed=0)


def predictor_of(model: Model) -> Predictor | None:
    """The predictor of a model for typical words; a note explains them if it has no softmax."""
    if model.has_softmax:
        return model.predictor
    note("Typical words are nearby words, because the model has no softmax.")
    return None


def read_tokens(
    args: argparse.Namespace, display: ProgressDisplay, doing: str = "reading"
) -> Iterator[list[str]]:
    """The tokens of each line of --text, split for the model that the flags name, with progress in
    bytes."""
    tokens = model_tokens(args)
    files = find_all_files(args.text)
    for _, sentences in read_files(files, doing, display.show, tokens.read, tokens.column):
        yield from sentences


def distinct(args: argparse.Namespace, targets: Iterable[str]) -> list[str]:
    """Distinct targets in NFC, in lower case without --match_case."""
    from bilm.analysis.occurrences import comparison_form

    return list(dict.fromkeys(comparison_form(target, args.match_case) for target in targets))


def read_uses(
    args: argparse.Namespace, targets: Sequence[str], n_others: int = 0
) -> analysis.Sample | analysis.Occurrences:
    """Read occurrences of targets without importing TensorFlow: from --text, without vectors, or
    from --occurrences; also `n_others` of other words of a text, or all in a file."""
    flags.require_inputs(args)
    use_sample(args)
    flags.outputs(args, updated=["occurrences"])
    if args.text is None:
        if args.occurrences is None:
            flags.usage_error(args, "name --text, or --occurrences with an existing file")
        flags.require_effect(args, "--text", "max_occurrences")
        return load_uses(args, () if n_others else targets)
    flags.model_source(args)
    find_all_files(args.text)
    check_layer(args)
    settings = flags.keywords(args, "max_occurrences", "seed", "match_case")
    with ProgressDisplay() as display:
        tokens = read_tokens(args, display)
        return analysis.sample_uses(tokens, targets, n_others=n_others, **settings)


def with_vectors(
    args: argparse.Namespace,
    uses: analysis.Sample | analysis.Occurrences,
    model: Model | None = None,
) -> analysis.Occurrences:
    """The occurrences of `read_uses`, encoded if they have no vectors."""
    if isinstance(uses, analysis.Occurrences):
        return uses
    model = model or load_model(args)
    warn_of_unseen(model, uses.sentences, "the text")
    with ProgressDisplay() as display:
        return analysis.Occurrences.encoded(
            model.elmo, uses, file=args.occurrences, progress=display.show
        )


def load_uses(args: argparse.Namespace, targets: Sequence[str]) -> analysis.Occurrences:
    """Load the occurrences of targets from --occurrences; without targets, name all of them by
    word."""
    occurrences = analysis.Occurrences.load(args.occurrences)
    if not targets:
        words = list(map(occurrences.word, range(len(occurrences)))) if args.match_case else None
        return occurrences if occurrences.targets else replace(occurrences, targets=words)
    try:
        return occurrences.of_targets(targets, match_case=args.match_case)
    except InputError as error:
        raise InputError(f"{args.occurrences}: {error}") from None
