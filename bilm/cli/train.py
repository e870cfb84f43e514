"""Train a model on tokenised text.

The corpus is UTF-8 text, one sentence a line, tokens separated by white space. The vocabulary is
one word a line: <S>, </S>, <UNK>, then the words by decreasing count (`bilm vocab` writes it).

  bilm train --save_dir model --vocab_file vocab.txt --train_prefix 'corpus/train-*.txt'

The folder then holds checkpoints, options.json and the vocabulary (vocab.txt); `bilm test`
measures it and `bilm dump` writes its weights for use. When it was stopped, by Ctrl-C, a crash or
a full disk, the same command resumes from the last checkpoint.

--n_gpus uses several GPUs of a machine. To use several machines, start the same command on each of
them, with the environment variable TF_CONFIG naming all of them and the index of this one. The
first one writes --save_dir, which all of them must be able to read:

  TF_CONFIG='{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]},
              "task": {"type": "worker", "index": 0}}' bilm train ...

The corpus is divided among them, and --batch_size is that of each GPU (or machine without one).
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from bilm.cli import flags, training_run
from bilm.cli.terminal import import_tensorflow
from bilm.core.errors import InputError, differences
from bilm.core.options import Options, preset
from bilm.files.reading import find_files

if TYPE_CHECKING:
    from bilm.training.state import RunSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    required = {
        "--save_dir FOLDER": "where the model goes; an unfinished run there is resumed; any other "
        "model is an error",
        "--vocab_file FILE": "vocabulary",
    }
    flags.add(parser, required, required=True)
    flags.add(parser, flags.corpus("--train_prefix", "text to train on"), required=True)
    flags.add(parser.add_mutually_exclusive_group(), flags.NETWORK_CHOICE)
    flags.add(parser, flags.RECIPE)
    flags.add(parser, flags.TIME)
    flags.add_run(parser)
    group = parser.add_argument_group("fine-tuning (begin with a trained model)")
    flags.add(group, flags.FINE_TUNING)


def run(args: argparse.Namespace) -> int:
    flags.require_partners(args)
    flags.require_inputs(args)
    import_tensorflow()
    training_run.join_workers(args.n_gpus)
    from bilm.data.tokenized_text import read_record
    from bilm.files.checkpoints import holds_checkpoint
    from bilm.training.optimizer import Schedule
    from bilm.training.state import RunSettings

    training_run.require_same_words(args.vocab_file, args.save_dir)
    options = training_run.override(_chosen_options(args), args)
    tokenizer = read_record(find_files(args.train_prefix)) or options.tokenizer
    options = dataclasses.replace(options, tokenizer=tokenizer)
    schedule = Schedule(options.schedule, options.warmup_steps)
    settings = RunSettings(init_from=args.init_from, schedule=schedule)
    settings = training_run.override_settings(settings, args)
    source = args.options_file or args.init_from or "the preset"
    vocabulary, options = training_run.load_vocabulary(args.vocab_file, options, source)
    checkpoint = None
    if holds_checkpoint(args.save_dir):
        options, checkpoint = _find_same_run(args, options, settings)
    return training_run.run_training(args, options, settings, vocabulary, checkpoint)


def _chosen_options(args: argparse.Namespace) -> Options:
    """The training options that --preset, --options_file or --init_from names."""
    if args.init_from is None:
        return _named_options(args)
    from bilm.files.model_files import open_model
    from bilm.files.weights import read_training
    from bilm.training.fine_tuning import require_same_network

    with open_model(args.init_from) as source:
        if args.options_file is not None or args.preset is not None:
            options = _named_options(args)
            require_same_network(options, source)
            return options
        options = source.read_options()
        if not source.is_checkpoint:
            # Options for inference do not have it; the weights say how they were trained.
            trained = read_training(source.weights) or {}
            options = dataclasses.replace(options, reset_rate=trained.get("reset_rate") or 0.0)
        # Vocabulary, corpus and length are those of the new run.
        return dataclasses.replace(options, n_tokens_vocab=None, n_train_tokens=None, n_steps=None)


def _named_options(args: argparse.Namespace) -> Options:
    if args.options_file is not None:
        return Options.from_file(args.options_file, training=True)
    name = args.preset or "base"
    return Options.from_dict(preset(name, args.recipe), training=True, source=f"preset {name}")


def _find_same_run(
    args: argparse.Namespace, options: Options, settings: RunSettings
) -> tuple[Options, str]:
    """The options and the checkpoint with which --save_dir's run is resumed.

    Args:
        options, settings: that are asked for.
    """
    from bilm.files.checkpoints import load_options_latest_checkpoint
    from bilm.training.state import read_run_state

    values, checkpoint = load_options_latest_checkpoint(args.save_dir, verify=True)
    state = read_run_state(checkpoint)
    if state is None:
        raise _refusal(args, "it is of the original program")
    there = Options.from_dict(values, training=True, source=args.save_dir)
    if options.n_train_tokens is None:
        # The state of reading is good for the same files only, which need no second count.
        options = dataclasses.replace(options, n_train_tokens=there.n_train_tokens)
    # What the first call chose by the size of the text and the time.
    if options.n_steps is None and args.n_epochs is None:
        options = dataclasses.replace(options, n_steps=there.n_steps, n_epochs=there.n_epochs)
    if options.dropout is None:
        options = dataclasses.replace(options, dropout=there.dropout)
    if options.tokenizer is None:
        options = dataclasses.replace(options, tokenizer=there.tokenizer)
    asked = _flat(options.training_dict()) | _flat(dataclasses.asdict(settings))
    stored = _flat(there.training_dict()) | _flat(dataclasses.asdict(state.settings))
    if differing := differences(stored, asked):
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
    restart = f"bilm restart --save_dir {shlex.quote(args.save_dir)}"
    return InputError(
        f"{args.save_dir!r} has a trained model of another run, which is never overwritten: "
        f"{reason}. `{restart}` trains it further, another --save_dir starts a new one."
    )
