"""The options and settings of a run, as presets, files, another model and flags say them."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from bilm.options import Options, preset

if TYPE_CHECKING:
    from bilm.training.checkpoint import RunSettings

_OVERRIDES = ("n_epochs", "batch_size", "learning_rate", "n_train_tokens", "reset_rate")


def chosen_options(args: argparse.Namespace) -> Options:
    """The training options that --preset, --options_file or --init_from names, with the run's
    flags on top.

    Raises:
        FileNotFoundError, InputError: there are no such options, or they are not right; or those
            of --init_from are of another network.
    """
    options = _named_options(args) if args.init_from is None else _options_of_source(args)
    return override(options, args)


def _options_of_source(args: argparse.Namespace) -> Options:
    """The options of the model to begin with, or others for the same network."""
    from bilm.model_files import open_model
    from bilm.training.fine_tuning import require_same_network

    with open_model(args.init_from) as source:
        if args.options_file is None and args.preset is None:
            # Vocabulary and corpus are those of the new run.
            return dataclasses.replace(
                source.read_options(), n_tokens_vocab=None, n_train_tokens=None
            )
        options = _named_options(args)
        require_same_network(options, source)
        return options


def _named_options(args: argparse.Namespace) -> Options:
    if args.options_file is not None:
        return Options.from_file(args.options_file, training=True)
    name = args.preset or "small"
    return Options.from_dict(preset(name), training=True, source=f"preset {name}")


def override_settings(settings: RunSettings, args: argparse.Namespace) -> RunSettings:
    """`settings` with the flags of the run that were given."""
    schedule = settings.schedule
    if args.lr_schedule is not None:
        schedule = dataclasses.replace(schedule, kind=args.lr_schedule)
    if args.warmup_steps is not None:
        schedule = dataclasses.replace(schedule, warmup_steps=args.warmup_steps)
    return dataclasses.replace(
        settings,
        seed=settings.seed if args.seed is None else args.seed,
        precision=settings.precision if args.precision is None else args.precision,
        schedule=schedule,
    )


def override(options: Options, args: argparse.Namespace) -> Options:
    """`options` with the flags of the run that were given."""
    given = {name: getattr(args, name) for name in _OVERRIDES if getattr(args, name) is not None}
    return dataclasses.replace(options, **given)
