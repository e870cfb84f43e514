"""Write the vectors of a text.

IN is UTF-8 text (plain, .gz, .xz), one sentence a line, tokens separated by white space; - is
standard input. OUT is a file of vectors; its ending chooses the format:

  bilm embed text.txt vectors.hdf5 --model elmo --all       as `allennlp elmo` writes them
  bilm embed text.txt vectors.npz --model elmo --average    for numpy.load
  bilm embed text.txt vectors.hdf5 --model elmo --packed    few arrays, for very many sentences
  bilm embed text.txt vectors.parquet --model elmo --top    a row a sentence, for data frames
  bilm embed - - --model elmo --top < text.txt              JSON lines, on standard output

The key of a sentence is its line number, counted from 0; an empty line is a sentence of no tokens.
In Parquet, which needs the extra `parquet`, the number is in the column id.
Until OUT is complete, the vectors are in a folder OUT.partial, which needs as much space again;
after a crash the same command with --resume continues from it.

On Ray, which needs the extra `ray`, many processes or machines share the files of a corpus; OUT is
a folder of Parquet files:

  bilm embed 'text/*.txt' vectors --model elmo --pooling mean --engine ray --workers 2
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bilm.cli import flags, ray_job, text_job
from bilm.cli.terminal import note
from bilm.cli.text_job import STANDARD, TextInput, progress_display
from bilm.core.errors import InputError
from bilm.files.reading import require_name
from bilm.files.writing import atomic_write, require_plain_output

if TYPE_CHECKING:
    from bilm.progress import ProgressDisplay
    from bilm.use.elmo import ELMo

Computed = tuple[tuple[int, str], Any]  # (number of the line, sentence), vectors
_TOKENS_AHEAD = 4096
# The endings of OUT that choose them, and functions `write_NAME` of `vector_files`.
_FORMATS = ("hdf5", "npz", "jsonl", "parquet")
_LAYERS = {
    "--all": "all layers (layers, tokens, dim)",
    "--top": "the top layer (tokens, dim)",
    "--average": "the average of all layers (tokens, dim); default",
    "--layer N>=0": "one layer; layer 0 has the vectors of the tokens without context",
}
_VECTORS = {
    "--pooling mean|max": "one vector for each sentence, the mean or the maximum over its tokens",
    "--dtype float32|float16": "type of the numbers in OUT (default: float32); Spark does not read "
    "float16 from Parquet",
}
_FILE = {
    f"--format {'|'.join(_FORMATS)}": "format of OUT (default: what its ending names, otherwise "
    "hdf5; standard output: jsonl)",
    "--packed": "one array of all vectors, and the offset of each sentence",
    "--use_sentence_keys": "the sentence is the key, not its line number; a sentence that is "
    "repeated is computed and written once, an empty line not at all",
    "--forget_sentences": "leave out sentence_to_index (with --packed and in Parquet: the text)",
    "--force": "overwrite OUT and discard OUT.partial",
}
_RESUME = {
    "--resume": "continue from what an interrupted run left in OUT.partial; without one, begin; "
    "if OUT exists, do nothing",
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
    text_job.add_elmo(parser.add_argument_group("model"))
    group = parser.add_argument_group("vectors")
    flags.add(group.add_mutually_exclusive_group(), _LAYERS)
    flags.add(group, _VECTORS)
    flags.add(parser.add_argument_group("file"), _FILE)
    group = parser.add_argument_group("job")
    flags.add(group, flags.BATCH_SIZE)
    shard = "embed every Nth line only, beginning with line I (1 to N), so that N jobs share a text"
    flags.add(group, {"--shard I/N": shard}, type=_shard, default=(1, 1))
    flags.add(group, _RESUME | flags.PRECISION)
    ray_job.add_flags(parser)
    parser.set_defaults(dtype="float32", precision="float32")


def run(args: argparse.Namespace) -> int:
    ray_job.require_fitting_flags(args)
    if args.engine is not None:
        return ray_job.run(args, _chosen_layers(args))
    args.format = args.format or _kind_of(args.output)
    _require_fitting_flags(args)
    if args.output != STANDARD:
        _require_free_output(args)
    if args.format == "parquet":
        from bilm.jobs.arrow import import_pyarrow

        import_pyarrow()
    if args.resume and os.path.exists(args.output) and not os.path.exists(_partial_folder(args)):
        note(f"{args.output} is complete already; nothing to do.")
        return 0
    model = text_job.load_elmo(args)
    distinct = None
    if args.use_sentence_keys:  # sentences that are to be keys have to be good ones
        distinct = "paths" if args.format == "hdf5" else "names"
    layers = _layers(args, model)
    facts = _run_facts(args, model, layers)
    text = TextInput(args.input, args.shard, distinct, _check(args, model, facts))
    text.look_through()
    if args.input != STANDARD:
        from bilm.data.tokenized_text import warn_if_other_tokenizer

        warn_if_other_tokenizer(args.input, model.options.tokenizer)
    encode = functools.partial(
        model.encode_iter,
        layers=layers,
        pooling=args.pooling,
        batch_size=args.batch_size,
        with_ids=True,
        show_progress=False,
    )
    with progress_display(args.output) as display:
        compute = functools.partial(_computed, encode, display, text.n_tokens)
        if args.output == STANDARD:
            _write_standard(args, compute(text.sentences()), facts)
        else:
            _write_file(args, text, compute, facts)
    if args.output != STANDARD:
        print(args.output)
    if text.n_repeated or text.n_empty:
        note(f"left out: {text.n_repeated} repeated sentences, {text.n_empty} empty lines")
    return 0


def _kind_of(output: str) -> str:
    if output == STANDARD:
        return "jsonl"
    ending = os.path.splitext(output)[1].removeprefix(".")
    return ending if ending in _FORMATS else "hdf5"


def _partial_folder(args: argparse.Namespace) -> str:
    return f"{args.output}.partial"


def _require_fitting_flags(args: argparse.Namespace) -> None:
    if args.packed and args.format in ("jsonl", "parquet"):
        flags.usage_error(args, f"--packed is for hdf5 and npz, not for {args.format}")
    if args.packed and args.use_sentence_keys:
        flags.usage_error(args, "--packed has no keys: --use-sentence-keys does not go with it")
    if args.use_sentence_keys and args.format == "parquet":
        flags.usage_error(args, "parquet has a column of numbers, id: it has no keys")
    if args.resume and args.force:
        flags.usage_error(args, "--resume continues, --force begins anew: choose one of them")
    if args.output == STANDARD and (args.format in ("hdf5", "parquet") or args.packed):
        flags.usage_error(args, "standard output takes jsonl, or npz without --packed")
    if args.output == STANDARD and args.resume:
        flags.usage_error(args, "--resume continues a file; OUT is standard output")


def _require_free_output(args: argparse.Namespace) -> None:
    """Check that OUT can be written.

    Raises:
        FileNotFoundError: its folder does not exist.
        InputError: OUT or its partial folder exists, and no flag says what to do.
    """
    folder = os.path.dirname(require_name(args.output))
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(
            f"The folder {folder!r} to write {args.output!r} into does not exist."
        )
    if os.path.isdir(args.output):
        raise InputError(f"{args.output!r} must be a file or not exist, it is a folder.")
    if args.resume:
        require_plain_output(args.output)
        return
    flags.require_free(args, args.output)
    if os.path.exists(_partial_folder(args)) and not args.force:
        raise InputError(
            f"{_partial_folder(args)} was left by an interrupted run: --resume continues it, "
            "--force begins anew."
        )


def _chosen_layers(args: argparse.Namespace) -> str | int:
    if args.layer is None:
        return "all" if args.all else "top" if args.top else "average"
    return int(args.layer)


def _layers(args: argparse.Namespace, model: ELMo) -> str | int:
    if args.layer is not None and args.layer >= model.n_layers:
        raise InputError(
            f"--layer: the model's layers are 0 to {model.n_layers - 1}, not {args.layer}."
        )
    return _chosen_layers(args)


def _check(
    args: argparse.Namespace, model: ELMo, facts: dict[str, Any]
) -> Callable[[Sequence[str], str], None]:
    """Refuses sentences whose words have no vector, or that the format cannot hold."""
    if args.format != "parquet":
        return model.refuse_unknown
    from bilm.jobs.arrow import require_row

    def check(tokens: Sequence[str], where: str) -> None:
        model.refuse_unknown(tokens, where)
        require_row(len(tokens), facts["shape"], args.dtype, where)

    return check


def _write_standard(
    args: argparse.Namespace, computed: Iterator[Computed], facts: dict[str, Any]
) -> None:
    import numpy as np

    from bilm.jobs.partial_file import EmbeddedSentence, as_dtype

    dtype = np.dtype(args.dtype)
    sentences = (EmbeddedSentence(*item, as_dtype(vectors, dtype)) for item, vectors in computed)
    _writer(args, facts)(sys.stdout.buffer, sentences)
    sys.stdout.buffer.flush()


def _write_file(
    args: argparse.Namespace,
    text: TextInput,
    compute: Callable[..., Iterator[Computed]],
    facts: dict[str, Any],
) -> None:
    """To the partial folder, and from there to OUT when all sentences are done."""
    from bilm.jobs.partial_file import PartialFile

    folder, write = _partial_folder(args), _writer(args, facts)
    if args.force and os.path.exists(folder):
        shutil.rmtree(folder)
    try:
        with PartialFile(folder, facts) as partial:
            todo = partial.after_those_done(text.sentences(), text.name)
            done = partial.n_sentences, partial.n_tokens
            if partial.n_sentences:
                note(f"continuing after {partial.n_sentences:,} sentences")
            for (number, sentence), vectors in compute(todo, *done, new_array=partial.new_array):
                partial.add(number, sentence, len(sentence.split()), vectors)
            partial.save()
            content = partial if args.packed else partial.sentences()
            with atomic_write(args.output) as temporary:
                if args.format == "hdf5":
                    write(temporary, content)
                else:
                    with open(temporary, "wb") as file:
                        write(file, content)
            partial.remove()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The same command with --resume continues.") from None


def _writer(args: argparse.Namespace, facts: dict[str, Any]) -> Callable[..., None]:
    """The function of `bilm.jobs.vector_files` that writes OUT."""
    from bilm.jobs import arrow, vector_files

    if args.format == "parquet":
        with_text = not args.forget_sentences
        return functools.partial(arrow.write_parquet, facts=facts, with_text=with_text)
    if args.format == "jsonl":
        return vector_files.write_jsonl
    layout = "packed_" if args.packed else ""
    write = getattr(vector_files, f"write_{layout}{args.format}")
    if args.packed:
        return functools.partial(write, with_text=not args.forget_sentences)
    with_index = not args.forget_sentences
    return functools.partial(write, sentence_keys=args.use_sentence_keys, with_index=with_index)


def _run_facts(args: argparse.Namespace, model: ELMo, layers: str | int) -> dict[str, Any]:
    """What must be alike for a run to be resumed."""
    shape: list[int | None] = [] if args.pooling else [None]
    return {
        "shape": [*([model.n_layers] if layers == "all" else []), *shape, model.dim],
        "dtype": args.dtype,
        "layers": layers,
        "pooling": args.pooling,
        "shard": "/".join(map(str, args.shard)),
        "precision": args.precision,
        "use_sentence_keys": args.use_sentence_keys,
        "model": model.fingerprint(),
    }


def _computed(
    encode: Callable[..., Iterator[Computed]],
    display: ProgressDisplay,
    n_all: int | None,
    sentences: Iterable[tuple[int, str]],
    n_sentences: int = 0,
    n_tokens: int = 0,
    **settings: Any,
) -> Iterator[Computed]:
    """The vectors of sentences; the next ones are computed while these are written.

    Args:
        encode, settings: `ELMo.encode_iter`, and further arguments of it.
        n_all: tokens of the text, if that is known.
        n_sentences, n_tokens: that an earlier run has done.
    """
    from bilm.data import prefetch

    results = encode(((item, item[1]) for item in sentences), **settings)
    display.update("embedding", n_tokens, n_all, "tokens")
    for part in prefetch(_parts(results), 1):
        for result in part:
            yield result
            n_sentences += 1
            n_tokens += len(result[0][1].split())
            display.update("embedding", n_tokens, n_all, "tokens", f"{n_sentences:,} sentences")


def _parts(results: Iterable[Computed]) -> Iterator[list[Computed]]:
    """Results in lists of some thousands of tokens: what is made ahead is bounded."""
    from bilm.data import up_to_fault

    part: list[Computed] = []
    faults: list[Exception] = []
    n_tokens = 0
    for result in up_to_fault(results, faults):
        part.append(result)
        # Characters are as good a measure, and at hand.
        n_tokens += 1 + len(result[0][1]) // 5
        if n_tokens >= _TOKENS_AHEAD:
            yield part
            part, n_tokens = [], 0
    if part:
        yield part
    if faults:
        raise faults[0]
