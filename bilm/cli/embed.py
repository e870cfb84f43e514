"""Write the vectors of a text.

IN is UTF-8 text (plain, .gz, .xz), one sentence a line, tokens parted by white space; - is
standard input. OUT is a file of vectors, whose ending says its kind:

  bilm embed text.txt vectors.hdf5 --model elmo --all       as `allennlp elmo` writes them
  bilm embed text.txt vectors.npz --model elmo --average    for numpy.load
  bilm embed text.txt vectors.hdf5 --model elmo --packed    few arrays for very many sentences
  bilm embed - - --model elmo --top < text.txt              JSON lines, on standard output

The key of a sentence is the number of its line from 0; an empty line has no tokens. Until OUT is
whole, the vectors are in a folder OUT.partial, which takes as much room again; after a crash the
same command with --resume goes on there.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from bilm.cli import arguments, embedding_output, model_arguments
from bilm.cli.embedding_input import EmbeddingInput
from bilm.cli.tensorflow_import import import_tensorflow
from bilm.errors import InputError

if TYPE_CHECKING:
    from bilm.elmo import ELMo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm embed`."""
    parser.add_argument("input", metavar="IN", help="text to embed; - is standard input")
    parser.add_argument("output", metavar="OUT", help="file to write; - is standard output")
    model_arguments.add_model(parser)
    _add_vectors(parser)
    _add_file(parser)
    _add_job(parser)


def _add_vectors(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("vectors").add_mutually_exclusive_group()
    group.add_argument("--all", action="store_true", help="all layers (layers, tokens, dim)")
    group.add_argument("--top", action="store_true", help="the top layer (tokens, dim)")
    group.add_argument(
        "--average", action="store_true", help="the average of all layers (tokens, dim); default"
    )
    group.add_argument(
        "--layer",
        type=arguments.whole_number(0),
        metavar="N",
        help="one layer, 0 is that of the tokens without context",
    )
    parser.add_argument(
        "--pooling", choices=("mean", "max"), help="one vector a sentence, over its tokens"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "float16"), default="float32", help="(default: float32)"
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("file")
    group.add_argument(
        "--format",
        choices=embedding_output.FORMATS,
        help="kind of OUT (default: by its ending .npz or .jsonl, otherwise hdf5; standard output: "
        "jsonl)",
    )
    group.add_argument(
        "--packed", action="store_true", help="one array of all vectors, and where each begins"
    )
    group.add_argument(
        "--use_sentence_keys",
        action="store_true",
        help="the sentence is the key, not its line number; a sentence that comes again is "
        "computed and written once, an empty line not at all",
    )
    group.add_argument(
        "--forget_sentences",
        action="store_true",
        help="leave out sentence_to_index (with --packed: the text)",
    )
    group.add_argument("--force", action="store_true", help="overwrite OUT, and begin anew")


def _add_job(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("job")
    group.add_argument(
        "--batch_size",
        type=arguments.whole_number(1),
        metavar="N",
        help="sentences that are computed together, at most (default: as many as are fast)",
    )
    group.add_argument(
        "--shard",
        type=model_arguments.shard,
        metavar="I/N",
        default=(1, 1),
        help="only every Nth line, from line I on (I is 1 to N): N jobs share a text",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on with what an interrupted run left in OUT.partial; if there is nothing, begin; "
        "if OUT is there, do nothing",
    )
    group.add_argument("--precision", choices=("float32", "bfloat16"), default="float32",
                       help="what matrix products are computed in (default: float32)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Write the vectors of a text."""
    source = model_arguments.model_source(args)
    kind = embedding_output.check(args)
    if args.resume and embedding_output.is_whole(args):
        print(f"{args.output} is whole already; nothing to do.", file=sys.stderr)
        return 0
    text = EmbeddingInput(args.input, args.shard, _distinct(args, kind))
    import_tensorflow()
    from bilm.elmo import ELMo

    model = ELMo.from_pretrained(
        source,
        vocab_file=args.vocab_file,
        embedding_weight_file=args.embedding_weight_file,
        precision=args.precision,
        warm_up=args.warm_up,
    )
    text.look_through(model.refuse_unknown)
    settings: dict[str, Any] = {
        "layers": _layers(args, model),
        "pooling": args.pooling,
        "batch_size": args.batch_size,
    }
    embedding_output.write(args, kind, model, text, settings)
    return 0


def _distinct(args: argparse.Namespace, kind: str) -> str | None:
    """How sentences are checked that are to be keys."""
    if not args.use_sentence_keys:
        return None
    return "paths" if kind == "hdf5" else "names"


def _layers(args: argparse.Namespace, model: ELMo) -> str | int:
    if args.layer is None:
        return "all" if args.all else "top" if args.top else "average"
    if args.layer >= model.n_layers:
        raise InputError(
            f"--layer: the model's layers are 0 to {model.n_layers - 1}, not {args.layer}."
        )
    return int(args.layer)
