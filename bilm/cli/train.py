"""Train a model on tokenised text.

The corpus is UTF-8 text, one sentence per line, tokens separated by white space. The vocabulary is
one word per line: <S>, </S>, <UNK>, then the words by descending frequency (see `bilm vocab`).

  bilm train --save_dir model --vocab_file vocab.txt \\
      --train_prefix 'corpus/train-*.txt'

The folder then holds checkpoints, options.json and the vocabulary (vocab.txt); `bilm test`
measures it and `bilm dump` writes its weights for use. After Ctrl-C, a crash or a full disk,
the same command resumes from the last checkpoint.

--n_gpus uses several GPUs of a machine. To use several machines, start the same command on each of
them, with the environment variable TF_CONFIG naming all of them and the index of this one. The
first one writes --save_dir, which all of them must be able to read:

  TF_CONFIG='{"cluster": {"worker": ["HOST1:PORT", "HOST2:PORT"]},
              "task": {"type": "worker", "index": 0}}' bilm train ...

The corpus is divided among them, and --batch_size applies to each GPU (or machine without one). If
one of them fails, the others end as well; start the same command on all of them again to resume.
"""

import argparse
import contextlib
import dataclasses
import os
import re
import shlex
from pathlib import Path
from typing import Any

from bilm.cli import flags, training_run
from bilm.core.errors import InputError, differences, without_secrets
from bilm.core.options import Options, preset, preset_like
from bilm.files.reading import find_files, holds_checkpoint
from bilm.progress import parse_duration

_OVERRIDES = ("batch_size", "learning_rate", "adam_learning_rate", "n_train_tokens", "reset_rate",
              "warmup_steps")  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    required = {
        "--save_dir FOLDER": "folder for the model; an unfinished run in it is resumed; any other "
        "model in it is an error",
        "--vocab_file FILE": "vocabulary",
    }
    flags.add(parser, required, required=True)
    flags.add(parser, flags.corpus("--train_prefix", "text to train on"), required=True)
    flags.add(parser.add_mutually_exclusive_group(), flags.NETWORK_CHOICE)
    flags.add(parser, flags.RECIPE | flags.TIME)
    group = parser.add_argument_group(
        "the run", "These flags override the preset or the options file."
    )
    flags.add(group, flags.RUN | flags.NEW_RUN)
    flags.add(parser.add_argument_group("monitoring"), flags.MONITORING)
    group = parser.add_argument_group("fine-tuning (start with a trained model)")
    flags.add(group, flags.FINE_TUNING)
    parser.set_defaults(recipe="default", n_gpus=1, seed=0, save_minutes=10.0)


def run(args: argparse.Namespace) -> int:
    if args.heldout_prefix is None:
        flags.require_effect(args, "--heldout_prefix", "patience", "heldout_every")
    if args.init_from is None:
        flags.require_effect(args, "--init_from", "init_vocab")
    if args.time is not None and args.n_epochs is not None:
        flags.usage_error(args, "--time replaces --n_epochs")
    if args.options_file is not None:
        flags.require_effect(args, "a preset, whose options it sets", "recipe")
    flags.require_inputs(args)
    if os.path.isfile(args.save_dir):
        raise InputError(f"{args.save_dir!r} must be a folder, got a file.")
    from bilm.data.sentences import read_record, warn_if_other_tokenizer

    # Options and vocabulary are checked before TensorFlow is imported, unless --init_from needs it.
    if args.init_from is not None:
        training_run.join_workers(args.n_gpus)
    options = training_run.override(_chosen_options(args), args, *_OVERRIDES)
    if args.lr_schedule is not None:
        options = dataclasses.replace(options, schedule=args.lr_schedule)
    if args.time is not None:
        options = dataclasses.replace(options, n_epochs=None, n_steps=None)
    tokenizer = read_record(find_files(args.train_prefix)) or options.tokenizer
    if args.init_from is not None:
        warn_if_other_tokenizer(args.train_prefix, options.tokenizer)
    options = dataclasses.replace(options, tokenizer=tokenizer)
    source = args.options_file or args.init_from or "the preset"
    vocabulary, options = training_run.load_vocabulary(args, options, source)
    if args.init_from is None:
        training_run.join_workers(args.n_gpus)
    settings = flags.keywords(
        args, "seed", "precision", "init_from", "init_vocab", "save_minutes", "patience",
        "tensorboard", "heldout_prefix",
    )  # fmt: skip
    if args.precision is None:
        settings["precision"] = "float32" if options.optimizer == "adagrad" else fast_precision()
    settings |= {"heldout_every": args.heldout_every or "epoch", "time_limit": args.time}
    checkpoint = None
    if holds_checkpoint(args.save_dir):
        options, checkpoint = _find_same_run(args, options, settings)
    return training_run.run_training(args, options, vocabulary, checkpoint, **settings)


def fast_precision() -> str:
    """ "bfloat16" if the CPU multiplies it faster than float32 (AVX-512 BF16 or AMX, as Linux
    reports them), otherwise "float32"."""
    with contextlib.suppress(OSError):
        features = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if re.search(r"\b(avx512_bf16|amx_bf16)\b", features):
            return "bfloat16"
    return "float32"


def _chosen_options(args: argparse.Namespace) -> Options:
    if args.options_file is not None:
        options = Options.from_file(args.options_file, training=True)
    else:
        name = args.preset or "base"
        options = Options.from_dict(
            preset(name, args.recipe), training=True, source=f"preset {name}"
        )
    if args.init_from is None:
        return options
    from bilm.files.model_files import open_model
    from bilm.files.weights import open_weights
    from bilm.training.fine_tuning import require_same_network, shares_embedding

    with open_model(args.init_from) as source:
        if args.options_file is not None or args.preset is not None:
            require_same_network(options, source)
            return options
        options = source.read_options()
        if source.is_checkpoint:
            flags.require_effect(args, "a model without training options", "recipe")
            # The new run has its own vocabulary, corpus and length. With a vocabulary as small as
            # the sample, the softmax was not sampled, whatever the preset.
            n_words, n_samples = options.n_tokens_vocab or 0, options.n_negative_samples_batch
            return dataclasses.replace(
                options,
                n_tokens_vocab=None,
                n_train_tokens=None,
                n_steps=None,
                sample_softmax=options.sample_softmax or n_words <= n_samples,
            )
        with open_weights(source.weights) as weights:
            training, is_shared = weights.training() or {}, shares_embedding(weights, options)
        return dataclasses.replace(
            preset_like(options, args.recipe),
            share_embedding_softmax=is_shared,
            # Weights are used with the states that they were trained with.
            reset_rate=training.get("reset_rate") or 0.0,
            # In more passes over a small text, a trained model would memorise it.
            n_epochs=1,
        )


def _find_same_run(
    args: argparse.Namespace, options: Options, settings: dict[str, Any]
) -> tuple[Options, str]:
    """The options and checkpoint of the run in --save_dir, whose options must match the flags."""
    saved, state, checkpoint = training_run.read_run(args.save_dir)
    reason = "it is from the original program"
    if state is not None:
        # The first call may have computed these from the text.
        names = ["n_train_tokens", "dropout", "tokenizer"]
        if options.n_steps is None and options.n_epochs is None:
            names += ["n_steps", "n_epochs"]
        values = {name: getattr(saved, name) for name in names if getattr(options, name) is None}
        if args.options_file is None:
            values["sample_softmax"] = saved.sample_softmax
        if args.precision is None:
            settings["precision"] = state.precision
        options = dataclasses.replace(options, **values)
        ours = options.training_dict() | flags.keywords(args, "seed")
        ours |= {"precision": settings["precision"]}
        ours["init_from"] = args.init_from and without_secrets(args.init_from)
        theirs = saved.training_dict() | {"seed": state.seed, "precision": state.precision}
        theirs["init_from"] = state.init_from
        seconds = None if args.time is None else parse_duration(args.time)
        theirs["seconds of --time"], ours["seconds of --time"] = state.time_limit, seconds
        reason = "; ".join(differences(theirs, ours))
    if not reason:
        return options, checkpoint
    restart = f"bilm restart --save_dir {shlex.quote(args.save_dir)}"
    raise InputError(
        f"{args.save_dir!r} has a trained model of another run, which is never overwritten: "
        f"{reason}. `{restart}` trains it further, another --save_dir starts a new one."
    )
