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
column id. Until OUT is complete, the vectors are in a folder OUT.partial, which needs the same disk
space again. After a crash the same command with --resume continues from it.
"""

import argparse
import itertools
import sys

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD, progress_display
from bilm.terminal import note

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
    "--forget_sentences": "leave out sentence_to_index (in Parquet: the text)",
}
_KEYS = {
    "--ids FILE": "keys of the sentences, one per line, instead of line numbers",
    "--use_sentence_keys": "the sentence is the key, not its line number; a repeated sentence is "
    "computed and written once, an empty line not at all",
}
_JOB = {
    "--force": "overwrite OUT and discard an interrupted job",
    "--resume": "continue an interrupted job, or start one; if OUT is its complete result, do "
    "nothing",
}
_SHARD = "embed only lines I, I + N, I + 2 N, ... (I from 1 to N), so that N jobs can share a text"
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
    group = parser.add_argument_group("model")
    flags.add_model(group, text_command.ELMO)
    flags.add(group, flags.PAIR | flags.WORDS | flags.WARM_UP | text_command.TOKENIZER)
    flags.add(group, flags.PRECISION, default="float32")
    group = parser.add_argument_group("vectors")
    choice = group.add_mutually_exclusive_group()
    flags.add(choice, _LAYERS, type=flags.layer_value(*_NAMED_LAYERS), default="average")
    for name in _NAMED_LAYERS[:3]:
        choice.add_argument(f"--{name}", dest="layers", action="store_const", const=name,
                            help=f"--layers {name}")  # fmt: skip
    flags.add(group, _VECTORS)
    group = parser.add_argument_group("file")
    flags.add(group, text_command.COLUMN | _FILE)
    flags.add(group.add_mutually_exclusive_group(), _KEYS)
    group = parser.add_argument_group("job")
    flags.add(group, {"--shard I/N": _SHARD}, type=_shard, default=(1, 1))
    flags.add(group, flags.BATCH_SIZE)
    flags.add(group.add_mutually_exclusive_group(), _JOB)
    parser.set_defaults(dtype="float32")


def run(args: argparse.Namespace) -> int:
    text_command.check_layer(args, "layers", "average", "sum", "all")
    try:
        return _embed(args)
    except KeyboardInterrupt:
        more = [] if args.output == STANDARD else ["The same command with --resume continues."]
        raise KeyboardInterrupt(*more) from None


def _embed(args: argparse.Namespace) -> int:
    flags.model_source(args)
    if args.output != STANDARD and args.resume:
        flags.outputs(args, updated=["output"])
    elif args.output != STANDARD:
        flags.outputs(args, output=args.output)
    from bilm.vectors.embedding import EmbeddingJob

    job = EmbeddingJob(
        sys.stdin.buffer if args.input == STANDARD else args.input,
        sys.stdout.buffer if args.output == STANDARD else args.output,
        sentence_keys=args.use_sentence_keys,
        with_text=not args.forget_sentences,
        **flags.keywords(args, "layers", "pooling", "dtype", "format", "ids", "shard"),
        **flags.keywords(args, "batch_size", "tokenizer", "column", "resume", "force"),
    )
    model = text_command.load_model(args).elmo
    sentences = job.read(model)
    if args.input != STANDARD:  # a stream is not read ahead
        sample, sentences = itertools.tee(sentences)
        words = (sentence.text.split() for sentence in sample)
        text_command.warn_of_unseen(model.model, words, args.input)
        del sample, words  # or the text would be kept
    with progress_display(args.output) as display:
        result = job.run(model, sentences, display.show)
    if result.was_complete:
        note(f"{args.output} is complete already; nothing to do.")
        return 0
    if result.n_left:
        note(f"{result.n_left:,} sentences are taken over from the interrupted job")
    if result.n_repeated or result.n_empty:
        note(f"left out: {result.n_repeated:,} repeated sentences, {result.n_empty:,} empty lines")
    if args.output != STANDARD:
        print(args.output)
    return 0
