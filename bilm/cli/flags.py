"""Parsing of flags, and the flags that several subcommands share.

Flags are tables of names and help texts; see `add`.
"""

import argparse
import contextlib
import difflib
import glob
import itertools
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from bilm.core.errors import InputError, shown
from bilm.core.options import PRESETS, RECIPES
from bilm.files.reading import (
    OPTIONS_FILE,
    declare_outputs,
    find_files,
    matching_files,
    require_file,
)
from bilm.files.writing import Outputs
from bilm.progress import DURATION_RULE, INTERVAL_RULE, Interval, parse_duration
from bilm.terminal import message

Flags = dict[str, str]
Group = argparse.ArgumentParser | argparse._ArgumentGroup


class Parser(argparse.ArgumentParser):
    """An argument parser that accepts --save_dir and --save-dir, and no abbreviated flags.

    The original programs use underscores. The meaning of an abbreviation could change whenever a
    flag is added. `typed` of the result has the names of the flags on the command line, which
    `require_effect` distinguishes from defaults.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        args = list(sys.argv[1:] if args is None else args)
        # Arguments after a -- are not flags.
        end = args.index("--") if "--" in args else len(args)
        arguments = [*map(_underscored, args[:end]), *args[end:]]
        values, unknown = super().parse_known_args(arguments, namespace)
        if unknown:
            self._report_unknown(unknown)
        names = [arg[2:].partition("=")[0] for arg in arguments[:end] if arg.startswith("--")]
        values.typed = set(names)
        return values, unknown

    def _report_unknown(self, unknown: Sequence[str]) -> NoReturn:
        text = f"unrecognized arguments: {' '.join(unknown)}"
        name = unknown[0].partition("=")[0]
        near = difflib.get_close_matches(name, re.findall(r"--\w+", self.format_usage()), 1)
        if name.startswith("--") and near:
            text += f"; did you mean {near[0]}?"
        elif is_model(unknown[0]) and "--model" in self.format_usage():
            text += f"; did you mean --model {unknown[0]}?"
        elif os.path.exists(unknown[0]):
            text += "; quote a pattern ('text/*.txt'), so that the shell does not expand it."
        self.error(text)

    def error(self, text: str) -> NoReturn:
        """Print the error in one line and the help command in another; exit with 2."""
        self.exit(2, f"{self.prog}: error: {message(text)}\nSee `{self.prog} --help`.\n")


def is_model(text: str) -> bool:
    """Whether a text that is no flag's value may be meant as a model."""
    from bilm.files.model_files import is_remote

    return is_remote(text) or os.path.isfile(os.path.join(text, OPTIONS_FILE))


class HelpFormatter(argparse.HelpFormatter):
    """Fills the paragraphs of a description, and keeps its indented lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = [
            block
            if block.startswith(" ")
            else super(HelpFormatter, self)._fill_text(block, width, indent)
            for block in text.strip().split("\n\n")
        ]
        return "\n\n".join(blocks)


class _Extend(argparse.Action):
    """A flag that is repeated adds to its list, which replaces the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        earlier = [] if before is None or before is parser.get_default(self.dest) else before
        setattr(namespace, self.dest, [*earlier, *values])


def _underscored(arg: str) -> str:
    """A flag with underscores for hyphens; a value unchanged."""
    name, equals, value = arg.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if arg.startswith("--") else arg


def usage_error(args: argparse.Namespace, message: str) -> NoReturn:
    """Report flags that cannot be combined; exit with 2."""
    parser: argparse.ArgumentParser = args.parser
    parser.error(message)


def keywords(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The values of some flags, as keyword arguments of the same names."""
    return {name: getattr(args, name) for name in names}


# Types of values


def value(
    parse: Callable[[str], Any], rule: str, is_right: Callable[[Any], bool] = lambda _: True
) -> Callable[[str], Any]:
    """A type for flags.

    Args:
        parse: converts the text; raises ValueError if it cannot.
        rule: completes messages, such as "must be a number > 0".
    """

    def checked(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if is_right(parsed := parse(text)):
                return parsed
        raise argparse.ArgumentTypeError(f"{rule}, got {shown(text)}")

    return checked


def layer_value(*names: str) -> Callable[[str], int | str]:
    """A type for flags: the number of a layer, or one of some names."""
    return value(
        lambda text: text if text in names else int(text),
        f"must be {', '.join(names)} or a layer number >= 0",
        lambda layer: isinstance(layer, str) or layer >= 0,
    )


def whole_number(minimum: int, bits: int = 31) -> Callable[[str], int]:
    """A type for flags: integers from `minimum` to 2^bits - 1."""
    checked = value(int, f"must be an integer >= {minimum}", lambda n: n >= minimum)
    return value(checked, f"must be an integer below 2^{bits}", lambda n: n < 2**bits)


_TYPES = {
    "N": whole_number(1),
    "ROWS": whole_number(1),
    "TOKENS": whole_number(1, 63),
    "X": value(float, "must be a number > 0", lambda x: 0 < x < math.inf),
    "MB": value(float, "must be a number > 0 and up to 1e9", lambda x: 0 < x <= 1e9),
    "P": value(float, "must be a number from 0 to 1", lambda p: 0 <= p <= 1),
    "LAYER": layer_value("top"),
    # Unlike file names, words and sentences must be UTF-8.
    **dict.fromkeys(
        ("WORD", "QUERY", "SENTENCE"), value(lambda text: text.encode().decode(), "must be UTF-8")
    ),
    # These values remain text; they are parsed only to report mistakes early.
    "DURATION": value(lambda text: parse_duration(text) and text, DURATION_RULE),
    "INTERVAL": value(lambda text: Interval.parse(text) and text, INTERVAL_RULE),
}


def add(parser: Group, flags: Flags, **settings: Any) -> None:
    """Add flags and arguments to a parser or an argument group.

    Args:
        flags: {"--name VALUE": help}. Without VALUE the flag is a switch. VALUE is N, ROWS or
            TOKENS for an integer >= 1, "N>=0" for one >= 0, X or MB for a number > 0, P for a
            number from 0 to 1, LAYER for a layer number or "top", DURATION or INTERVAL for a time
            (`bilm.progress`), "a|b" for a choice of words, and otherwise text; "FILE ..." takes
            several.
        settings: passed to `argparse.ArgumentParser.add_argument` for each flag: `default`,
            `required`, `nargs`, or a `type` that overrides the type of VALUE.
    """
    for flag, text in flags.items():
        name, _, form = flag.partition(" ")
        if not form:
            keywords: dict[str, Any] = {"action": "store_true"}
        elif "|" in form:
            keywords = {"choices": form.split("|")}
        else:
            metavar, _, minimum = form.removesuffix(" ...").partition(">=")
            kind = whole_number(int(minimum)) if minimum else _TYPES.get(metavar)
            keywords = {"metavar": metavar, "type": kind}
            if form.endswith(" ..."):
                keywords |= {"nargs": "+", "action": _Extend}
        parser.add_argument(name, help=text, **keywords | settings)


# Files that are read and written

TEXTS = {"files FILE ...": "text files or globs of them"}
FORCE = {"--force": "overwrite files that exist"}

# Flags whose inputs must exist: globs, models, files.
_GLOBS = {"files", "train_prefix", "heldout_prefix", "test_prefix"}
_MODELS = {"model", "init_from"}
_FILES = {"input", "static", "vocab_file", "init_vocab", "options_file", "weight_file",
          "embedding_weight_file", "warm_up"}  # fmt: skip


def texts(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield (flag, text) for each text value of the arguments."""
    for flag, value in vars(args).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield flag, text


def refuse_sentences(args: argparse.Namespace) -> None:
    """Reject a sentence in place of a file of text."""
    text = getattr(args, "text", None)
    for name in [getattr(args, "input", None), *(text if isinstance(text, list) else [])]:
        if name and " " in name and not (os.path.exists(name) or glob.glob(name)):
            raise InputError(
                f"{name!r} must be a file. Commands that read standard input take a sentence so: "
                f"echo {shlex.quote(name)} | bilm score - --model english"
            )


def require_inputs(args: argparse.Namespace) -> None:
    """Check that the inputs of a command exist, before the slow import of TensorFlow."""
    from bilm.files.model_files import is_remote, require_known

    for flag, name in texts(args):
        if flag in _GLOBS:
            find_files(name)
        elif flag in _MODELS:
            require_known(name)
        elif flag in _FILES and name != "-" and not is_remote(name):
            require_file(name, f"{flag.removesuffix('_file').replace('_', ' ')} file")


def require_run(folder: str) -> None:
    """Check that a folder has training options, before the slow import of TensorFlow."""
    require_file(os.path.join(folder, OPTIONS_FILE), "options file")


def outputs(
    args: argparse.Namespace,
    *,
    folders: Iterable[str] = (),
    updated: Sequence[str] = (),
    replaces: Sequence[str] = (),
    **paths: str | Iterable[str] | None,
) -> Outputs:
    """Declare and check all outputs of a command, before its work; see `Outputs`.

    Args:
        folders, replaces: see `Outputs`.
        updated: flags of files that the command updates, and may resume from.
        paths: output files by flag; all other flags name inputs.
    """
    files = [[path] if isinstance(path, str) else path or () for path in paths.values()]
    files, folders = list(map(list, files)), list(folders)
    if "-" in itertools.chain(folders, *files):
        usage_error(args, "an output must be a file or folder, got -")
    if not (folders or updated or any(files)):
        require_effect(args, "a file to write", "force")
    overwrite = getattr(args, "force", False)
    declared = Outputs(
        itertools.chain(*files),
        inputs={
            flag: matching_files(text)
            for flag, text in texts(args)
            if flag not in paths and flag not in updated
        },
        overwrite=overwrite,
        allowed_by="--force",
        folders=folders,
        updated=(getattr(args, flag) for flag in updated),
        replaces=replaces,
    )
    declare_outputs(declared.paths, updated=declared.updated, overwrite=overwrite)
    return declared


def model_folder(args: argparse.Namespace, *names: str) -> Outputs:
    """Declare files of the model folder `args.model_dir`, which is created if missing."""
    if glob.glob(os.path.join(glob.escape(args.model_dir), "model.ckpt-*")):
        raise InputError(
            f"{args.model_dir!r} is the folder of a training run, which has its own options.json: "
            "name another folder."
        )
    paths = [os.path.join(args.model_dir, name) for name in names]
    return outputs(args, model_dir=paths, folders=[args.model_dir])


# Training runs

SAVE_DIR = {"--save_dir FOLDER": "folder of the model"}
BEST = {"--best": "use the model that was best on the held-out text (default: the newest)"}
RUN_VOCABULARY = {
    "--vocab_file FILE": "vocabulary that the model was trained with (default: vocab.txt in "
    "--save_dir, where `bilm train` writes it)"
}


def corpus(flag: str, description: str) -> Flags:
    """The flag of a corpus."""
    return {
        f"{flag} GLOB": f"{description}: file or glob of files (UTF-8, plain or compressed), one "
        "sentence per line, tokens separated by white space; quote the glob"
    }


TIME = {
    "--time DURATION": "train for about this long, such as 30min or 2h, instead of --n_epochs; the "
    "learning rate falls to zero at the end"
}
RECIPE = {
    f"--recipe {'|'.join(RECIPES)}": "how to train a preset, or the network of --init_from. "
    "default: Muon, Adam and Adagrad, with a learning rate that falls to zero; original: like the "
    "program of 2018 (default: default)",
}
NETWORK_CHOICE = {
    f"--preset {'|'.join(PRESETS)}": "size of the model (default: base). tiny: a trial in minutes; "
    "base: millions of words in hours without a GPU; small: tens of millions of words; medium: "
    "hundreds of millions; original: the size of the paper, for GPUs",
    "--options_file FILE": "options.json of a training run, instead of a preset",
}
PRECISION = {"--precision float32|bfloat16": "precision of matrix products (default: float32)"}
RUN = {
    "--n_epochs N": "passes over the corpus (default of a preset: 1 to 10, by its size; of "
    "--init_from with weights: 1)",
    "--batch_size ROWS": "rows of a batch, per GPU",
    "--learning_rate X": "learning rate of Adagrad, which trains all weights, or with Muon or Adam "
    "only the word rows (softmax, word embeddings)",
    "--n_train_tokens TOKENS": "words and sentence ends of one epoch (default: counted in the "
    "corpus)",
    "--n_gpus N": "GPUs of this machine (default: 1); for several machines see `bilm train --help`",
}
NEW_RUN = {
    "--adam_learning_rate X": "learning rate of Muon and Adam, which train the other weights in "
    "the default recipe",
    "--lr_schedule constant|linear|cosine": "after the warm-up the learning rate stays constant, "
    "or falls to zero linearly or along a cosine (the default recipe: linear; original: constant)",
    "--warmup_steps N>=0": "steps in which the learning rate rises from near zero (the default "
    "recipe: 200; original: 0)",
    "--reset_rate P": "probability that a sentence starts from zero LSTM states, as every "
    "sentence does in use; 0 trains like the original program",
    "--seed N>=0": "random seed (default: 0)",
    "--precision float32|bfloat16": "precision of matrix products (default: bfloat16 with the "
    "default recipe on CPUs that have instructions for it, otherwise float32)",
    "--save_minutes X": "minutes between checkpoints (default: 10); one is always written at the "
    "end",
}
MONITORING = {
    "--heldout_prefix GLOB": "held-out text: its perplexity (full softmax) is measured during "
    "training, and the best model is kept in the folder `best` in --save_dir",
    "--heldout_every INTERVAL": "how often to measure it: epoch, 2epochs, 500steps, 30min or the "
    "like (default: epoch)",
    "--patience N": "stop after N measurements in a row without a new best (default: never)",
    "--tensorboard": "write files for TensorBoard next to the log (needs the package tensorboard)",
}
FINE_TUNING = {
    "--init_from MODEL": "folder of checkpoints (ours or the original's), a checkpoint, a folder "
    "of `bilm dump --model_dir` or a ZIP file of it, a weights file with its options in the same "
    "folder, or a name (see `bilm models`). The new model has the same network. Without --preset "
    "or --options_file, it is trained with the options of MODEL if that is a training folder, "
    "otherwise by --recipe",
    "--init_vocab FILE": "vocabulary of that model (default: vocab.txt next to it); words that "
    "are also in --vocab_file keep their learned rows",
}


def require_effect(args: argparse.Namespace, needs: str, *names: str) -> None:
    """Reject flags of the command line that have no effect without `needs`, such as another
    flag."""
    for name in names:
        if name in args.typed:
            usage_error(args, f"--{name} requires {needs}")


# Pretrained models

_NAMES = "english, original and others (see `bilm models`), https://.../model.zip, hf://OWNER/NAME"
PAIR = {
    "--options_file FILE": "options.json, or its address, instead of the model",
    "--weight_file FILE": "HDF5 weights for --options_file, or their address",
}
WORDS = {
    "--vocab_file FILE": "vocabulary of a word-level model or a token cache (default: vocab.txt "
    "next to the weights)",
    "--embedding_weight_file FILE": "token cache (dump_token_embeddings). Words missing from it "
    "are encoded from their characters, which needs the character weights",
}
WARM_UP = {
    "--warm_up FILE": "text to read first, one sentence per line: each sentence then starts from "
    "the LSTM states at its end instead of zeros; for models trained without resets, such as "
    "published ones"
}
BATCH_SIZE = {
    "--batch_size N": "maximum number of sentences computed together (default: chosen for "
    "speed); does not change the result"
}


def add_model(parser: Group, description: str) -> None:
    """--model."""
    add(parser, {"--model MODEL": f"{description}; or a name or an address: {_NAMES}"})


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """MODEL or --model."""
    description = f"folder or ZIP file; or a name or an address: {_NAMES}"
    add(parser, {"named MODEL": description}, nargs="?")
    add(parser, {"--model MODEL": "another way to name MODEL"})


def model_source(args: argparse.Namespace) -> str | tuple[str, str]:
    """The model that the flags name: a path, a name, an address, or a pair (options, weights).
    Naming neither, both, or half a pair is a usage error."""
    named = vars(args).pop("named", None)
    if named is not None and args.model is not None:
        usage_error(args, f"name one model, got {named} and --model {args.model}")
    args.model = named if args.model is None else args.model
    options, weights = (getattr(args, name, None) for name in ("options_file", "weight_file"))
    if args.model is not None and options is weights is None:
        return str(args.model)
    if args.model is None and options and weights:
        return options, weights
    near = next((text for _, text in texts(args) if is_model(text)), None)
    hint = f"; did you mean --model {near}?" if near and args.model is None else ""
    others = ", or both --options_file and --weight_file" if "options_file" in args else ""
    usage_error(args, f"name a model{others}{hint}")
