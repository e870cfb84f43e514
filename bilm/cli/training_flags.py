"""The flags by which a training run is watched, scheduled and begun from another model."""

from __future__ import annotations

import argparse

from bilm.cli import arguments


def add_heldout(parser: argparse.ArgumentParser) -> None:
    """--heldout_prefix, --heldout_every, --patience, --tensorboard."""
    group = parser.add_argument_group("to know where it stands")
    group.add_argument(
        "--heldout_prefix",
        metavar="GLOB",
        help="held-out text: its perplexity by the full softmax is measured as the training goes, "
        "and the best model is kept in the folder `best` within --save_dir",
    )
    group.add_argument(
        "--heldout_every",
        metavar="TIME",
        default="epoch",
        help="epoch, 2epochs, 500steps, 30min or the like (default: epoch)",
    )
    group.add_argument(
        "--patience",
        type=arguments.whole_number(1),
        metavar="N",
        help="stop when N measurements in a row were not the best (default: never)",
    )
    group.add_argument(
        "--tensorboard",
        action="store_true",
        help="write files for TensorBoard beside the log (needs the package tensorboard)",
    )


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """--lr_schedule, --warmup_steps."""
    group = parser.add_argument_group("the learning rate over the run")
    group.add_argument(
        "--lr_schedule",
        choices=("constant", "linear", "cosine"),
        help="after the warm-up it stays, or falls to zero at the end of the run along a line or "
        "a cosine (default: constant; going on, that of the run)",
    )
    group.add_argument(
        "--warmup_steps",
        type=arguments.whole_number(0),
        metavar="N",
        help="steps in which it rises from near zero (default: 0; going on, those of the run)",
    )


def add_start(parser: argparse.ArgumentParser) -> None:
    """--init_from, --init_vocab."""
    group = parser.add_argument_group("to begin with a model that is trained (fine-tuning)")
    group.add_argument(
        "--init_from",
        metavar="MODEL",
        help="folder of checkpoints (ours or the original's), a checkpoint, a folder of "
        "`bilm dump --model_dir`, or a weights file with its options beside it; the network is "
        "that of the model, and its options too unless --preset or --options_file gives others",
    )
    group.add_argument(
        "--init_vocab",
        metavar="FILE",
        help="vocabulary of that model (default: vocab.txt beside it); what the model learned of "
        "words that are in --vocab_file too is carried over",
    )


def require_heldout(args: argparse.Namespace) -> None:
    """Flags that mean nothing without a held-out text or a model to begin with."""
    if args.patience is not None and args.heldout_prefix is None:
        arguments.usage_error(args, "--patience goes with --heldout_prefix")
    if getattr(args, "init_vocab", None) is not None and args.init_from is None:
        arguments.usage_error(args, "--init_vocab goes with --init_from")
