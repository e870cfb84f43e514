"""Write the vectors of a text.

IN is UTF-8 text (plain, .gz, .xz), one sentence a line, tokens separated by white space; - is
standard input. OUT is a file of vectors; its ending chooses the format:

  bilm embed text.txt vectors.hdf5 --model elmo --all       as `allennlp elmo` writes them
  bilm embed text.txt vectors.npz --model elmo --average    for numpy.load
  bilm embed text.txt vectors.hdf5 --model elmo --packed    few arrays, for very many sentences
  bilm embed - - --model elmo --top < text.txt              JSON lines, on standard output

The key of a sentence is its line number, counted from 0; an empty line is a sentence of no tokens.
Until OUT is complete, the vectors are in a folder OUT.partial, which needs as much space again;
after a crash the same command with --resume continues from it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow, note
from bilm.cli.text_job import STANDARD, TextInput, progress_display
from bilm.errors import InputError
from bilm.files import atomic_write

if TYPE_CHECKING:
    from bilm.elmo import ELMo
    from bilm.embedding.partial_file import EmbeddedSentence, PartialFile
    from bilm.progress import ProgressDisplay

_TOKENS_AHEAD = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm embed`."""
    parser.add_argument("input", metavar="IN", help="text to embed; - is standard input")
    parser.add_argument("output", metavar="OUT", help="file to write; - is standard output")
    group = parser.add_argument_group("model")
    flags.add_model(
        group,
        "folder or ZIP file with weights and options, as `bilm dump --model_dir` and NLPL have "
        "them",
    )
    flags.add_words(group)
    flags.add_warm_up(group)
    _add_vectors(parser)
    _add_file(parser)
    _add_job(parser)


def _add_vectors(parser: argparse.ArgumentParser) -> None:
    vectors = parser.add_argument_group("vectors")
    group = vectors.add_mutually_exclusive_group()
    group.add_argument("--all", action="store_true", help="all layers (layers, tokens, dim)")
    group.add_argument("--top", action="store_true", help="the top layer (tokens, dim)")
    group.add_argument(
        "--average", action="store_true", help="the average of all layers (tokens, dim); default"
    )
    group.add_argument(
        "--layer",
        type=flags.whole_number(0),
        metavar="N",
        help="one layer; layer 0 has the vectors of the tokens without context",
    )
    vectors.add_argument(
        "--pooling",
        choices=("mean", "max"),
        help="one vector for each sentence, the mean or the maximum over its tokens",
    )
    vectors.add_argument(
        "--dtype",
        choices=("float32", "float16"),
        default="float32",
        help="type of the numbers in OUT (default: float32)",
    )


def _add_file(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("file")
    group.add_argument(
        "--format",
        choices=("hdf5", "npz", "jsonl"),
        help="format of OUT (default: as its ending .npz or .jsonl says, otherwise hdf5; standard "
        "output: jsonl)",
    )
    group.add_argument(
        "--packed",
        action="store_true",
        help="one array of all vectors, and the offset of each sentence",
    )
    group.add_argument(
        "--use_sentence_keys",
        action="store_true",
        help="the sentence is the key, not its line number; a sentence that is repeated is "
        "computed and written once, an empty line not at all",
    )
    group.add_argument(
        "--forget_sentences",
        action="store_true",
        help="leave out sentence_to_index (with --packed: the text)",
    )
    group.add_argument("--force", action="store_true", help="overwrite OUT and discard OUT.partial")


def _add_job(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("job")
    flags.add_batch_size(group)
    group.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        default=(1, 1),
        help="embed every Nth line only, beginning with line I (1 to N), so that N jobs share a "
        "text",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="continue from what an interrupted run left in OUT.partial; without one, begin; if "
        "OUT exists, do nothing",
    )
    flags.add_precision(group)


def _shard(text: str) -> tuple[int, int]:
    """A type for flags: I/N with I from 1 to N."""
    first, _, last = text.partition("/")
    if first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last):
        return int(first), int(last)
    raise argparse.ArgumentTypeError(f"I/N with I from 1 to N is expected, as 2/4, not {text!r}")


class _Job(NamedTuple):
    """What is computed and written.

    Attributes:
        kind: the format of OUT: "hdf5", "npz" or "jsonl".
        settings: arguments of `ELMo.encode_iter`.
        display: shows the progress.
    """

    args: argparse.Namespace
    kind: str
    model: ELMo
    text: TextInput
    settings: dict[str, Any]
    display: ProgressDisplay

    @property
    def keys(self) -> dict[str, bool]:
        """What the writers of files with a key for each sentence are told."""
        return {
            "sentence_keys": self.args.use_sentence_keys,
            "with_index": not self.args.forget_sentences,
        }


def run(args: argparse.Namespace) -> int:
    """Write the vectors of a text."""
    source = flags.model_source(args)
    kind = args.format or _kind_of(args.output)
    _require_fitting_flags(args, kind)
    if args.output != STANDARD:
        _require_free_output(args)
    if args.resume and os.path.exists(args.output) and not os.path.exists(_partial_folder(args)):
        note(f"{args.output} is complete already; nothing to do.")
        return 0
    # Sentences that are to be keys have to be good ones.
    distinct = ("paths" if kind == "hdf5" else "names") if args.use_sentence_keys else None
    text = TextInput(args.input, args.shard, distinct)
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
    settings = {
        "layers": _layers(args, model),
        "pooling": args.pooling,
        "batch_size": args.batch_size,
    }
    write = _write_standard if args.output == STANDARD else _write_file
    with progress_display(args.output) as display:
        write(_Job(args, kind, model, text, settings, display))
    if args.output != STANDARD:
        print(args.output)
    if text.n_repeated or text.n_empty:
        note(f"left out: {text.n_repeated} repeated sentences, {text.n_empty} empty lines")
    return 0


def _kind_of(output: str) -> str:
    if output == STANDARD or output.endswith(".jsonl"):
        return "jsonl"
    return "npz" if output.endswith(".npz") else "hdf5"


def _partial_folder(args: argparse.Namespace) -> str:
    return f"{args.output}.partial"


def _require_fitting_flags(args: argparse.Namespace, kind: str) -> None:
    if args.packed and kind == "jsonl":
        flags.usage_error(args, "--packed is for hdf5 and npz, not for jsonl")
    if args.packed and args.use_sentence_keys:
        flags.usage_error(args, "--packed has no keys: --use-sentence-keys does not go with it")
    if args.resume and args.force:
        flags.usage_error(args, "--resume continues, --force begins anew: choose one of them")
    if args.output == STANDARD and (kind == "hdf5" or args.packed):
        flags.usage_error(args, "standard output takes jsonl, or npz without --packed")
    if args.output == STANDARD and args.resume:
        flags.usage_error(args, "--resume continues a file; OUT is standard output")


def _require_free_output(args: argparse.Namespace) -> None:
    """Check that OUT can be written.

    Raises:
        FileNotFoundError: its folder does not exist.
        InputError: OUT or its partial folder exists, and no flag says what to do.
    """
    folder = os.path.dirname(args.output)
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(
            f"The folder {folder!r} to write {args.output!r} into does not exist."
        )
    if os.path.isdir(args.output):
        raise InputError(f"{args.output}: a folder; a file is to be written there.")
    if args.resume:
        return
    flags.require_free(args, args.output)
    if os.path.exists(_partial_folder(args)) and not args.force:
        raise InputError(
            f"{_partial_folder(args)} was left by an interrupted run: --resume continues it, "
            "--force begins anew."
        )


def _layers(args: argparse.Namespace, model: ELMo) -> str | int:
    if args.layer is None:
        return "all" if args.all else "top" if args.top else "average"
    if args.layer >= model.n_layers:
        raise InputError(
            f"--layer: the model's layers are 0 to {model.n_layers - 1}, not {args.layer}."
        )
    return int(args.layer)


def _write_standard(job: _Job) -> None:
    import numpy as np

    from bilm.embedding import vector_files
    from bilm.embedding.partial_file import EmbeddedSentence, as_dtype

    def embedded() -> Iterator[EmbeddedSentence]:
        for (number, sentence), vectors in _computed(job, job.text.sentences(), 0, 0):
            yield EmbeddedSentence(number, sentence, as_dtype(vectors, np.dtype(job.args.dtype)))

    if job.kind == "jsonl":
        vector_files.write_json_lines(sys.stdout.buffer, embedded())
    else:
        vector_files.write_npz(sys.stdout.buffer, embedded(), **job.keys)
    sys.stdout.buffer.flush()


def _write_file(job: _Job) -> None:
    """To the partial folder, and from there to OUT when all sentences are done."""
    from bilm.embedding.partial_file import PartialFile

    args, folder = job.args, _partial_folder(job.args)
    if args.force and os.path.exists(folder):
        shutil.rmtree(folder)
    try:
        with PartialFile(folder, _run_facts(job)) as partial:
            todo = partial.after_those_done(job.text.sentences(), job.text.name)
            if partial.n_sentences:
                note(f"continuing after {partial.n_sentences:,} sentences")
            job = job._replace(settings=job.settings | {"new_array": partial.new_array})
            computed = _computed(job, todo, partial.n_sentences, partial.n_tokens)
            for (number, sentence), vectors in computed:
                partial.add(number, sentence, len(sentence.split()), vectors)
            partial.save()
            with atomic_write(args.output) as temporary:
                _convert(job, partial, temporary)
            partial.remove()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The same command with --resume continues.") from None


def _run_facts(job: _Job) -> dict[str, Any]:
    """What must be alike for a run to be resumed."""
    args, layers = job.args, job.settings["layers"]
    shape: list[int | None] = [] if args.pooling else [None]
    return {
        "shape": [*([job.model.n_layers] if layers == "all" else []), *shape, job.model.dim],
        "dtype": args.dtype,
        "layers": layers,
        "pooling": args.pooling,
        "shard": "/".join(map(str, args.shard)),
        "precision": args.precision,
        "use_sentence_keys": args.use_sentence_keys,
        "model": job.model.fingerprint(),
    }


def _computed(
    job: _Job, sentences: Iterable[tuple[int, str]], n_sentences: int, n_tokens: int
) -> Iterator[tuple[tuple[int, str], Any]]:
    """((line, sentence), vectors); the next ones are computed while these are written.

    Args:
        n_sentences, n_tokens: that an earlier run has done.
    """
    from bilm.data import prefetch

    items = ((item, item[1]) for item in sentences)
    results = job.model.encode_iter(items, with_ids=True, show_progress=False, **job.settings)
    job.display.update("embedding", n_tokens, job.text.n_tokens, "tokens")
    for part in prefetch(_parts(results), 1):
        for result in part:
            yield result
            n_sentences += 1
            n_tokens += len(result[0][1].split())
            detail = f"{n_sentences:,} sentences"
            job.display.update("embedding", n_tokens, job.text.n_tokens, "tokens", detail)


def _parts(results: Iterable[Any]) -> Iterator[list[Any]]:
    """Results in lists of some thousands of tokens: what is made ahead is bounded."""
    part: list[Any] = []
    n_tokens = 0
    for result in results:
        part.append(result)
        # Characters are as good a measure, and at hand.
        n_tokens += 1 + len(result[0][1]) // 5
        if n_tokens >= _TOKENS_AHEAD:
            yield part
            part, n_tokens = [], 0
    if part:
        yield part


def _convert(job: _Job, partial: PartialFile, path: str) -> None:
    """Write the file that was asked for from the partial one."""
    from bilm.embedding import vector_files

    with_text = not job.args.forget_sentences
    if job.kind == "hdf5":
        if job.args.packed:
            vector_files.write_packed_hdf5(path, partial, with_text=with_text)
        else:
            vector_files.write_hdf5(path, partial.sentences(), **job.keys)
        return
    with open(path, "wb") as file:
        if job.kind == "jsonl":
            vector_files.write_json_lines(file, partial.sentences())
        elif job.args.packed:
            vector_files.write_packed_npz(file, partial, with_text=with_text)
        else:
            vector_files.write_npz(file, partial.sentences(), **job.keys)
