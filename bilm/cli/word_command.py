"""Flags, loading and sampling, shared by the subcommands that analyse occurrences of words."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.core.errors import InputError
from bilm.files.reading import find_all_files, read_files
from bilm.progress import ProgressDisplay
from bilm.terminal import note

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor
    from bilm.use.pretrained import Model

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


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the model and its tokenizer."""
    group = parser.add_argument_group("model")
    flags.add_model(group, text_command.ELMO)
    flags.add(group, text_command.TOKENIZER)


def add_occurrences(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose occurrences of words."""
    flags.add(
        parser.add_argument_group("occurrences"),
        {
            "--text FILE ...": f"{TEXT} (default for a model of the package: its sample of "
            "Wikipedia)",
            **text_command.COLUMN,
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
    tokens = text_command.model_tokens(args)
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
    text_command.use_sample(args)
    flags.outputs(args, updated=["occurrences"])
    if args.text is None:
        if args.occurrences is None:
            flags.usage_error(args, "name --text, or --occurrences with an existing file")
        flags.require_effect(args, "--text", "max_occurrences")
        return load_uses(args, () if n_others else targets)
    flags.model_source(args)
    find_all_files(args.text)
    text_command.check_layer(args)
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
    model = model or text_command.load_model(args)
    text_command.warn_of_unseen(model, uses.sentences, "the text")
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
