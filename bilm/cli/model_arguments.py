"""How verbs that use a pretrained model are told which one."""

from __future__ import annotations

import argparse

from bilm.cli.arguments import usage_error


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model, or --options_file and --weight_file; and the files for words."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="FOLDER_OR_ZIP",
        help="folder or ZIP file with weights and options, as `bilm dump --model_dir` and NLPL "
        "have them",
    )
    add_pair(group)
    add_words(group)
    add_warm_up(group)


def add_words(group: argparse._ArgumentGroup) -> None:
    """--vocab_file and --embedding_weight_file."""
    group.add_argument(
        "--vocab_file",
        metavar="FILE",
        help="vocabulary of a model of words or of a token cache (default: vocab.txt beside the "
        "weights)",
    )
    group.add_argument(
        "--embedding_weight_file",
        metavar="FILE",
        help="token cache (dump_token_embeddings); words that it does not have are encoded from "
        "their characters, and without the weights for that they are an error",
    )


def add_warm_up(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """--warm_up."""
    parser.add_argument(
        "--warm_up",
        metavar="FILE",
        help="text, a sentence a line, after which each sentence begins in place of LSTM states of "
        "zero; for models that were trained without resets (published ones, for instance)",
    )


def add_pair(group: argparse._ArgumentGroup) -> None:
    """--options_file and --weight_file."""
    group.add_argument("--options_file", metavar="FILE", help="options.json, in place of --model")
    group.add_argument("--weight_file", metavar="FILE", help="the HDF5 weights that go with it")


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


def shard(text: str) -> tuple[int, int]:
    """A type for flags: I/N with I from 1 to N."""
    first, _, last = text.partition("/")
    if first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last):
        return int(first), int(last)
    raise argparse.ArgumentTypeError(f"I/N with I from 1 to N is expected, as 2/4, not {text!r}")
