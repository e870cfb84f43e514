"""The same command again: whether the model in a folder is of the run that is asked for."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from bilm.errors import InputError
from bilm.options import Options

if TYPE_CHECKING:
    from bilm.training.checkpoint import RunSettings


def find_same_run(
    args: argparse.Namespace, options: Options, settings: RunSettings
) -> tuple[Options, str]:
    """The options and the checkpoint that a run goes on from when its command is given again.

    Args:
        options: that are asked for, for the vocabulary.
        settings: that are asked for.

    Raises:
        InputError: the model in --save_dir is of another run; names what differs.
    """
    from bilm.checkpoints import load_options_latest_checkpoint
    from bilm.training.checkpoint import read_record

    values, checkpoint = load_options_latest_checkpoint(args.save_dir, verify=True)
    record = read_record(checkpoint)
    if record is None:
        raise _refusal(args, "it is of the original program")
    there = Options.from_dict(values, training=True, source=args.save_dir)
    if options.n_train_tokens is None:
        # The place in the corpus is good for the same files only, which need no second count.
        options = dataclasses.replace(options, n_train_tokens=there.n_train_tokens)
    asked = _flat(options.training_dict()) | _flat(dataclasses.asdict(settings))
    stored = _flat(there.training_dict()) | _flat(dataclasses.asdict(record.settings))
    differing = [
        f"{name} is {stored.get(name)} there, and {asked.get(name)} is asked for"
        for name in sorted(asked | stored)
        if asked.get(name) != stored.get(name)
    ]
    if differing:
        raise _refusal(args, "; ".join(differing))
    return options, checkpoint


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _refusal(args: argparse.Namespace, reason: str) -> InputError:
    return InputError(
        f"{args.save_dir} has a trained model in it, which is never overwritten, and it is of "
        f"another run: {reason}. `bilm restart --save_dir {args.save_dir}` trains it further, "
        "another --save_dir starts a new one."
    )
