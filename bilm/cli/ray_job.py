"""`bilm embed --engine ray`: the flags, and the job on Ray."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import warnings
from collections.abc import Iterator

from bilm.cli import flags, text_job
from bilm.cli.terminal import note, python_only_on_stderr
from bilm.cli.text_job import STANDARD
from bilm.extras import import_extra
from bilm.progress import ProgressDisplay

_ENGINE = {
    "--workers N": "processes that compute, each with a model in its memory",
    "--cpus N": "CPUs and TensorFlow threads of each worker (default: 1)",
    "--address ADDRESS": "address of a Ray cluster (default: the variable RAY_ADDRESS; without it "
    "Ray is started on this machine and ended again)",
    "--part_mb MB": "approximate text per file of OUT (default: 0.25 to 2, by the text's size)",
}
# Flags of `bilm embed` that do not apply to a folder of Parquet files.
_UNFIT = ("packed", "use_sentence_keys", "forget_sentences", "ids")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm embed` that are for an engine."""
    group = parser.add_argument_group(
        "engine",
        "IN is then a file or a glob, OUT a folder of Parquet files on a disk that all workers "
        "see. A row's id is the number of its line over all files in the order of their names.",
    )
    flags.add(group, {"--engine NAME": "compute on an engine: ray"}, choices=("ray",))
    flags.add(group, _ENGINE)


def require_fitting_flags(args: argparse.Namespace) -> None:
    """Report flags that cannot be combined with --engine, or that need it."""
    if args.engine is None:
        for flag in ("workers", "cpus", "address", "part_mb"):
            if getattr(args, flag) is not None:
                flags.usage_error(args, f"--{flag} goes with --engine ray")
        return
    for flag in _UNFIT:
        if getattr(args, flag):
            flags.usage_error(args, f"--{flag} does not go with --engine")
    if args.format not in (None, "parquet"):
        flags.usage_error(args, f"--engine writes Parquet, not {args.format}")
    if args.shard != (1, 1):
        flags.usage_error(args, "--shard does not go with --engine, which divides the text itself")
    if STANDARD in (args.input, args.output):
        flags.usage_error(args, "--engine reads files and writes a folder, not standard output")
    from bilm.data.sentences import is_fasta

    if is_fasta(args.input):
        flags.usage_error(args, "--engine reads text, not FASTA")
    if args.workers is None:
        flags.usage_error(args, "--engine ray needs --workers")
    if args.resume and args.force:
        flags.usage_error(args, "--resume continues, --force starts over: choose one")


def run(args: argparse.Namespace) -> int:
    """Run the job."""
    import_extra("ray", "--engine ray")
    from bilm.jobs.ray import embed

    model = text_job.pretrained(args)
    from bilm.jobs.tables import TableEmbedder

    embedder = TableEmbedder(
        model,
        threads=args.cpus,
        **flags.given(args, "layers", "pooling", "dtype", "batch_size"),
    )
    try:
        with _without_ray(), ProgressDisplay() as display:
            done = embed(
                args.input,
                args.output,
                embedder,
                part_bytes=args.part_mb and max(1, round(args.part_mb * 2**20)),
                show=lambda stage: display.update(*stage),
                **flags.given(args, "workers", "address", "resume", "force"),
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The same command with --resume continues.") from None
    if done.n_left:
        note(f"{done.n_left} of {done.n_files} files are taken over from the interrupted job")
    if not done.n_files:
        note(f"{args.output} is complete already; nothing to do.")
        return 0
    print(args.output)
    return 0


@contextlib.contextmanager
def _without_ray() -> Iterator[None]:
    """Keep Ray's messages off both streams: its logger, its C++, and its prints about processes
    that have ended. Its log files have them all."""
    loggers = [logging.getLogger(name) for name in ("ray",)]
    levels = [logger.level for logger in loggers]
    with contextlib.ExitStack() as stack:
        for logger, level in zip(loggers, levels, strict=True):
            stack.callback(logger.setLevel, level)
            logger.setLevel(logging.ERROR)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", module="ray")
        stack.enter_context(python_only_on_stderr())
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        yield
