"""Write the vectors of a text.

IN is UTF-8 text with one sentence per line, tokenised like the text of the model or, with
--tokenizer, raw; or CoNLL-U; or FASTA; it may be compressed (gzip, xz, bzip2), and - is standard
input. OUT is a file of vectors; its
ending chooses the format:

  bilm embed text.txt v.hdf5 --model elmo --all      # as AllenNLP writes them
  bilm embed text.txt v.npz --model elmo --average   # for numpy.load
  bilm embed text.txt v.parquet --model elmo --top   # for data frames
  bilm embed a.fasta v.h5 --model seqvec --layers sum  # as SeqVec writes them
  bilm embed - - --model elmo --top < text.txt       # JSON lines

The key of a sentence is its 0-based line number, its line in --ids, or its FASTA id; an empty line
is a sentence without tokens. In Parquet, which needs the extra `pyarrow`, the number is in the
column id. Until OUT is complete, the vectors are in a folder OUT.partial; formats other than HDF5
need twice the disk space meanwhile. After a crash the same command with --resume continues from it.

On Ray, which needs the extra `ray`, many processes or machines share the files of a corpus, or of a
table in Parquet; OUT is a folder with one Parquet file per input file:

  bilm embed 'text/*.txt' vectors --model elmo --pooling mean \\
      --engine ray --workers 2
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD, progress_display
from bilm.extras import import_extra
from bilm.progress import ProgressDisplay
from bilm.terminal import note, python_only_on_stderr

_NAMED_LAYERS = ("all", "top", "average", "sum")
_LAYERS = {
    "--layers LAYERS": "all (layers, tokens, dim); or (tokens, dim): top, the average (default) or "
    "the sum of all layers, or the number of a layer; layer 0 has context-independent "
    "token vectors",
}
_VECTORS = {
    "--pooling mean|max": "one vector per sentence, the mean or the maximum over its tokens",
    "--dtype float32|float16": "type of the numbers in OUT (default: float32); Spark does not read "
    "float16 from Parquet",
}
_FILE = {
    "--format hdf5|npz|jsonl|parquet": "format of OUT (default: by its ending, in any case: .hdf5, "
    ".h5 or none, .npz, .jsonl or .jsonl.gz, .parquet; standard output: jsonl)",
    "--ids FILE": "keys of the sentences, one per line, instead of line numbers",
    "--use_sentence_keys": "the sentence is the key, not its line number; a repeated sentence is "
    "computed and written once, an empty line not at all",
    "--forget_sentences": "leave out sentence_to_index (in Parquet: the text)",
    "--force": "overwrite OUT and discard an interrupted job",
}
_JOB = {
    **flags.BATCH_SIZE,
    "--resume": "continue an interrupted job, or start one; if OUT is its complete result, do "
    "nothing",
}
_SHARD = "embed only lines I, I + N, I + 2 N, ... (I from 1 to N), so that N jobs can share a text"
_ENGINE = {
    "--workers N": "worker processes; each loads the model",
    "--cpus N": "CPUs and TensorFlow threads of each worker (default: 1)",
    "--gpus X": "GPUs of each worker (default: none); 0.5 lets two workers share one",
    "--address ADDRESS": "address of a Ray cluster (default: the variable RAY_ADDRESS; without it "
    "Ray runs on this machine until the command ends)",
    "--text_column NAME": "column of text, if IN are Parquet files (default: text)",
}
_IGNORED = {
    "--cuda_device DEVICE": "TensorFlow chooses the GPU (CUDA_VISIBLE_DEVICES hides some)",
    "--file_friendly_logging": "progress in a file is always plain lines",
    "--include_package NAME": "there is nothing to include",
    "--vocab_path FILE": "words need no vocabulary, because characters encode them",
}
_shard = flags.value(
    lambda text: tuple(map(int, text.split("/"))),
    "must be I/N with I from 1 to N, such as 2/4",
    lambda shard: len(shard) == 2 and 1 <= shard[0] <= shard[1],
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "input IN": "text to embed; - is standard input",
            "output OUT": "file to write; - is standard output",
        },
    )
    text_command.add_elmo(parser)
    group = parser.add_argument_group("vectors")
    choice = group.add_mutually_exclusive_group()
    flags.add(choice, _LAYERS, type=flags.layer_value(*_NAMED_LAYERS), default="average")
    for name in _NAMED_LAYERS[:3]:
        choice.add_argument(f"--{name}", dest="layers", action="store_const", const=name,
                            help=f"--layers {name}")  # fmt: skip
    flags.add(choice, {"--layer N>=0": "--layers N"}, dest="layers")
    flags.add(group, _VECTORS)
    flags.add(parser.add_argument_group("file"), text_command.COLUMN | _FILE)
    group = parser.add_argument_group("job")
    flags.add(group, {"--shard I/N": _SHARD}, type=_shard, default=(1, 1))
    flags.add(group, _JOB)
    group = parser.add_argument_group(
        "engine",
        "IN is then a file or a glob, OUT a folder with a Parquet file for each, on a disk that "
        "all workers see or in an object store (s3://...). A row has its file and line. --resume "
        "skips files whose results are in OUT.",
    )
    flags.add(group, {"--engine NAME": "compute on an engine: ray"}, choices=("ray",))
    flags.add(group, _ENGINE)
    group = parser.add_argument_group("flags of `allennlp elmo` that have no effect here")
    flags.add(group, _IGNORED)
    parser.set_defaults(dtype="float32")


def run(args: argparse.Namespace) -> int:
    names = [flag.split()[0] for flag in _IGNORED]
    if ignored := [name for name in names if getattr(args, name[2:]) not in (None, False)]:
        note(f"{', '.join(ignored)}: no effect here")
    text_command.check_layer(args, "layers", "average", "sum", "all")
    embed = _embed if args.engine is None else _embed_on_ray
    try:
        return embed(args)
    except KeyboardInterrupt:
        more = [] if args.output == STANDARD else ["The same command with --resume continues."]
        raise KeyboardInterrupt(*more) from None


def _embed(args: argparse.Namespace) -> int:
    flags.require_effect(args, "--engine ray", "workers", "cpus", "gpus", "address", "text_column")
    source = flags.model_source(args)
    if args.output != STANDARD and args.resume:
        flags.outputs(args, updated=["output"])
    elif args.output != STANDARD:
        flags.outputs(args, output=args.output)
    from bilm.data.sentences import read_sentences
    from bilm.vectors.embedding import ArgumentsError, EmbeddingJob

    try:
        job = EmbeddingJob(
            sys.stdin.buffer if args.input == STANDARD else args.input,
            sys.stdout.buffer if args.output == STANDARD else args.output,
            sentence_keys=args.use_sentence_keys,
            with_text=not args.forget_sentences,
            **flags.keywords(args, "layers", "pooling", "dtype", "format", "ids", "shard"),
            **flags.keywords(args, "batch_size", "tokenizer", "column", "resume", "force"),
        )
    except ArgumentsError as error:
        flags.usage_error(args, str(error))
    model = text_command.load_model(args, source).elmo
    if args.input != STANDARD:  # a stream is read only once
        tokens = text_command.model_tokens(args)
        sentences = read_sentences(args.input, args.input, tokens=tokens)
        words = (sentence.text.split() for sentence in sentences)
        text_command.warn_of_unseen(model.model, words, args.input)
    with progress_display(args.output) as display:
        result = job.run(model, display.show)
    if result.was_complete:
        return _note_complete(args)
    if result.n_left:
        note(f"{result.n_left:,} sentences are taken over from the interrupted job")
    if result.n_repeated or result.n_empty:
        note(f"left out: {result.n_repeated:,} repeated sentences, {result.n_empty:,} empty lines")
    if args.output != STANDARD:
        print(args.output)
    return 0


def _note_complete(args: argparse.Namespace) -> int:
    note(f"{args.output} is complete already; nothing to do.")
    return 0


def _embed_on_ray(args: argparse.Namespace) -> int:
    _check_flags_for_ray(args)
    # Imports TensorFlow before Ray does, which would show TensorFlow's messages.
    model = text_command.pretrained(args)
    import_extra("ray.data", "--engine ray")
    from bilm.vectors.ray import embed
    from bilm.vectors.tables import TableEmbedder

    embedder = TableEmbedder(
        model,
        text_column=args.text_column or "text",
        threads=args.cpus,
        **flags.keywords(args, "layers", "pooling", "dtype", "batch_size"),
    )
    with _without_ray(), ProgressDisplay() as display:
        result = embed(
            args.input,
            args.output,
            embedder,
            gpus=args.gpus or 0,
            show=display.show,
            **flags.keywords(args, "workers", "address", "resume"),
        )
    if result.n_left == result.n_files:
        return _note_complete(args)
    if result.n_left:
        note(f"{result.n_left} of {result.n_files} files had results already")
    print(args.output)
    return 0


def _check_flags_for_ray(args: argparse.Namespace) -> None:
    for flag in ("use_sentence_keys", "forget_sentences", "ids", "force"):
        if getattr(args, flag):
            flags.usage_error(args, f"--{flag} cannot be combined with --engine")
    for is_broken, rule in (
        (args.format not in (None, "parquet"), f"--engine writes Parquet, not {args.format}"),
        (args.shard != (1, 1), "--engine shares the files itself, without --shard"),
        (
            STANDARD in (args.input, args.output),
            "--engine reads files and writes a folder, not standard output",
        ),
        (args.workers is None, "--engine ray needs --workers"),
    ):
        if is_broken:
            flags.usage_error(args, rule)


@contextlib.contextmanager
def _without_ray() -> Iterator[None]:
    """Keep Ray's messages off both streams; its log files have them all."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with (
        warnings.catch_warnings(),
        python_only_on_stderr(),
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        warnings.filterwarnings("ignore", module="ray")
        yield
