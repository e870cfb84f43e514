"""What the verbs share that look at occurrences of words in a text."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bilm.cli import flags, text_job
from bilm.cli.terminal import note
from bilm.core.errors import InputError
from bilm.files.reading import bytes_read, find_all_files, lines_of, reading_text, size_of
from bilm.files.writing import require_place
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis import Occurrences, Sample
    from bilm.use.elmo import ELMo

TEXT = (
    "files or globs (plain, .gz, .xz; UTF-8), one sentence a line, tokens separated by white space"
)
_LINES_BETWEEN_UPDATES = 1000


def add_model(parser: argparse.ArgumentParser) -> None:
    """The flags that name a model whose vectors are looked at."""
    group = parser.add_argument_group("model")
    text_job.add_elmo(group)
    flags.add(group, flags.PRECISION, default="float32")


def add_occurrences(parser: argparse.ArgumentParser) -> None:
    """The flags that say which occurrences of words are looked at."""
    group = parser.add_argument_group("occurrences")
    flags.add(
        group,
        {
            "--text FILE ...": f"text that has them: {TEXT}",
            "--max_occurrences N": "occurrences of each word, at most, drawn from the whole text "
            "(default: 1000)",
            "--match_case": "tell apple from Apple (default: both are one)",
            "--seed N>=0": "random seed (default: 0)",
            "--occurrences FILE": "keep occurrences and vectors in this file (.npz): after Ctrl-C "
            "the same command continues from it, and without --text and --model it is all that is "
            "needed",
        },
    )
    parser.set_defaults(max_occurrences=1000, seed=0)


def check_files(args: argparse.Namespace) -> None:
    """What can be known of --text and --occurrences before the model is loaded."""
    if args.text is not None:
        find_all_files(args.text)
        if args.occurrences is not None:
            require_place(args.occurrences)


def load_elmo(args: argparse.Namespace) -> ELMo:
    """The model; it has the layer that --layer names."""
    elmo = text_job.load_elmo(args)
    if isinstance(args.layer, int) and args.layer >= elmo.n_layers:
        raise InputError(
            f"--layer: the model's layers are 0 (tokens) to {elmo.n_layers - 1} (top), not "
            f"{args.layer}."
        )
    return elmo


def layer_or(*names: str) -> Callable[[str], int | str]:
    """A type for flags: the number of a layer, or one of `names`."""
    rule = f"must be {', '.join(['an integer >= 0', *names[:-1]])} or {names[-1]}"
    return flags.value(
        lambda text: int(text) if text.isdecimal() else text,
        rule,
        lambda layer: isinstance(layer, int) or layer in names,
    )


FORMAT = {"--format text|json": "for a terminal, or a JSON object a line (default: text)"}


def read_sentences(
    patterns: Sequence[str], display: ProgressDisplay, doing: str = "reading"
) -> Iterator[list[str]]:
    """The tokens of each line of text files, showing how much of them has been read."""
    files = find_all_files(patterns)
    total, before = size_of(files), 0
    for path in files:
        with reading_text(path) as stream:
            for number, line in enumerate(lines_of(stream, path)):
                if number % _LINES_BETWEEN_UPDATES == 0:
                    display.update(doing, before + bytes_read(stream), total, "bytes")
                yield line.split()
        before += os.path.getsize(path)
    display.update(doing, total, total, "bytes")


def sample(
    args: argparse.Namespace, words: Sequence[str] | None, display: ProgressDisplay
) -> Sample:
    """Draw occurrences of words from the text that the flags name."""
    from bilm.analysis import sample_uses

    return sample_uses(
        read_sentences(args.text, display),
        words,
        max_occurrences=args.max_occurrences,
        seed=args.seed,
        match_case=args.match_case,
    )


def load_occurrences(
    args: argparse.Namespace, words: Sequence[str] | None, elmo: ELMo | None = None
) -> Occurrences:
    """The occurrences that the flags name, computed or from the file that has them.

    Args:
        words: the words; None for all.
        elmo: the model, if it is loaded already.
    """
    if args.text is None:
        if args.occurrences is None:
            flags.usage_error(args, "--text is needed, or --occurrences with a file that is there")
        from bilm.analysis import Occurrences

        found = Occurrences.load(args.occurrences)
        whole = found.about.get("n", len(found))
        if len(found) < whole:
            note(
                f"{args.occurrences} has {len(found):,} of {whole:,} occurrences: the command that "
                "was interrupted continues from it."
            )
        if words is None:
            return found
        tokens = [found.word(k) for k in range(len(found))]
        if not args.match_case:
            tokens, words = [t.lower() for t in tokens], [word.lower() for word in words]
        missing = [word for word in words if word not in set(tokens)]
        if missing:
            raise InputError(
                f"{args.occurrences}: there is no occurrence of {', '.join(map(repr, missing))}."
            )
        import numpy as np

        return found.select(np.array([token in words for token in tokens]))
    check_files(args)
    elmo = elmo or load_elmo(args)
    with ProgressDisplay() as display:
        return encode(elmo, sample(args, words, display), display, args.occurrences)


def encode(
    elmo: ELMo, uses: Sample, display: ProgressDisplay, file: str | None = None
) -> Occurrences:
    """The vectors of a sample, showing the progress."""
    from bilm.analysis import Occurrences

    return Occurrences.encoded(
        elmo,
        uses,
        file=file,
        progress=lambda done, total: display.update("encoding", done, total, "occurrences"),
    )
