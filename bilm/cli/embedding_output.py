"""Where `bilm embed` writes: to a file by way of a partial one, or to standard output."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bilm.cli import arguments
from bilm.cli.embedding_input import STANDARD, EmbeddingInput
from bilm.cli.progress import ProgressLine, duration
from bilm.errors import InputError
from bilm.files import atomic_write

if TYPE_CHECKING:
    from bilm.elmo import ELMo
    from bilm.embedding.partial_file import EmbeddedSentence, PartialFile

FORMATS = ("hdf5", "npz", "jsonl")
_TOKENS_AHEAD = 4096


def check(args: argparse.Namespace) -> str:
    """The format that flags and names ask for.

    Raises:
        FileNotFoundError: the folder for OUT is not there.
        InputError: OUT or its partial folder is there, and no flag says what to do.
    """
    kind = args.format or _by_name(args.output)
    if args.packed and kind == "jsonl":
        arguments.usage_error(args, "--packed is for hdf5 and npz, not for jsonl")
    if args.packed and args.use_sentence_keys:
        arguments.usage_error(args, "--packed has no keys: --use-sentence-keys does not go with it")
    if args.resume and args.force:
        arguments.usage_error(args, "--resume goes on, --force begins anew: one of them")
    if args.output == STANDARD:
        if kind == "hdf5" or args.packed:
            arguments.usage_error(args, "standard output takes jsonl, or npz without --packed")
        if args.resume:
            arguments.usage_error(args, "--resume goes on with a file; OUT is standard output")
        return kind
    folder = os.path.dirname(args.output)
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(
            f"The folder {folder!r} to write {args.output!r} into does not exist."
        )
    if os.path.isdir(args.output):
        raise InputError(f"{args.output}: a folder; a file is to be written there.")
    if args.resume or args.force:
        return kind
    if os.path.exists(args.output):
        raise InputError(f"{args.output} would be overwritten: --force allows it.")
    if os.path.exists(_partial_folder(args)):
        raise InputError(
            f"{_partial_folder(args)} is what an interrupted run left: --resume goes on with it, "
            "--force begins anew."
        )
    return kind


def _by_name(output: str) -> str:
    if output == STANDARD or output.endswith(".jsonl"):
        return "jsonl"
    return "npz" if output.endswith(".npz") else "hdf5"


def _partial_folder(args: argparse.Namespace) -> str:
    return f"{args.output}.partial"


def is_whole(args: argparse.Namespace) -> bool:
    """Whether an earlier run has ended."""
    return os.path.exists(args.output) and not os.path.exists(_partial_folder(args))


def write(
    args: argparse.Namespace,
    kind: str,
    model: ELMo,
    text: EmbeddingInput,
    settings: dict[str, Any],
) -> None:
    """Compute the vectors and write them.

    Args:
        kind: the format.
        settings: arguments of `ELMo.encode_iter`.
    """
    line = ProgressLine(sys.stderr)
    try:
        if args.output == STANDARD:
            _write_standard(args, kind, model, text, settings, line)
        else:
            _write_file(args, kind, model, text, settings, line)
    except KeyboardInterrupt:
        if args.output == STANDARD:
            raise
        raise KeyboardInterrupt("The same command with --resume goes on.") from None
    finally:
        line.close()
    if text.n_repeated or text.n_empty:
        print(
            f"passed over: {text.n_repeated} sentences that came again, {text.n_empty} empty lines",
            file=sys.stderr,
        )


def _write_standard(
    args: argparse.Namespace,
    kind: str,
    model: ELMo,
    text: EmbeddingInput,
    settings: dict[str, Any],
    line: ProgressLine,
) -> None:
    import numpy as np

    from bilm.embedding import vector_files
    from bilm.embedding.partial_file import EmbeddedSentence, as_dtype

    shown = _Shown(line, text, 0, 0)

    def embedded() -> Iterator[EmbeddedSentence]:
        for (number, sentence), vectors in _computed(model, text.sentences(), settings):
            yield EmbeddedSentence(number, sentence, as_dtype(vectors, np.dtype(args.dtype)))
            shown.add(sentence)

    if kind == "jsonl":
        vector_files.write_json_lines(sys.stdout.buffer, embedded())
    else:
        vector_files.write_npz(sys.stdout.buffer, embedded(), **_keys(args))
    sys.stdout.buffer.flush()
    shown.end()


def _write_file(
    args: argparse.Namespace,
    kind: str,
    model: ELMo,
    text: EmbeddingInput,
    settings: dict[str, Any],
    line: ProgressLine,
) -> None:
    from bilm.embedding.partial_file import PartialFile

    folder = _partial_folder(args)
    if args.force and os.path.exists(folder):
        shutil.rmtree(folder)
    with PartialFile(folder, _run_facts(args, model, settings)) as partial:
        todo = partial.after_those_done(text.sentences(), text.name)
        if partial.n_sentences:
            print(f"going on after {partial.n_sentences:,} sentences", file=sys.stderr)
        shown = _Shown(line, text, partial.n_sentences, partial.n_tokens)
        settings = settings | {"new_array": partial.new_array}
        for (number, sentence), vectors in _computed(model, todo, settings):
            partial.add(number, sentence, len(sentence.split()), vectors)
            shown.add(sentence)
        shown.end()
        partial.save()
        with atomic_write(args.output) as temporary:
            _convert(args, kind, partial, temporary)
        partial.remove()
    print(args.output)


def _run_facts(args: argparse.Namespace, model: ELMo, settings: dict[str, Any]) -> dict[str, Any]:
    """What must be alike for a run to go on."""
    shape: list[int | None] = [] if args.pooling else [None]
    shape = [*([model.n_layers] if settings["layers"] == "all" else []), *shape, model.dim]
    return {
        "shape": shape,
        "dtype": args.dtype,
        "layers": settings["layers"],
        "pooling": args.pooling,
        "shard": "/".join(map(str, args.shard)),
        "precision": args.precision,
        "use_sentence_keys": args.use_sentence_keys,
        "model": model.fingerprint(),
    }


def _computed(
    model: ELMo, sentences: Iterable[tuple[int, str]], settings: dict[str, Any]
) -> Iterator[tuple[tuple[int, str], Any]]:
    """((line, sentence), vectors); the next ones are computed while these are written."""
    from bilm.data import prefetch

    items = ((item, item[1]) for item in sentences)
    results = model.encode_iter(items, with_ids=True, show_progress=False, **settings)
    for part in prefetch(_parts(results), 1):
        yield from part


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


def _keys(args: argparse.Namespace) -> dict[str, bool]:
    return {
        "sentence_keys": args.use_sentence_keys,
        "with_index": not args.forget_sentences,
    }


def _convert(args: argparse.Namespace, kind: str, partial: PartialFile, path: str) -> None:
    """Write the file that was asked for from the partial one."""
    from bilm.embedding import vector_files

    if kind == "hdf5":
        if args.packed:
            vector_files.write_packed_hdf5(path, partial, with_text=not args.forget_sentences)
        else:
            vector_files.write_hdf5(path, partial.sentences(), **_keys(args))
        return
    with open(path, "wb") as file:
        if kind == "jsonl":
            vector_files.write_json_lines(file, partial.sentences())
        elif args.packed:
            vector_files.write_packed_npz(file, partial, with_text=not args.forget_sentences)
        else:
            vector_files.write_npz(file, partial.sentences(), **_keys(args))


class _Shown:
    """Progress of the job on the line."""

    def __init__(
        self, line: ProgressLine, text: EmbeddingInput, n_sentences: int, n_tokens: int
    ) -> None:
        self._line = line
        self._text = text
        self._n_sentences = n_sentences
        self._n_tokens = self._before = n_tokens
        self._start = time.monotonic()

    def add(self, sentence: str) -> None:
        self._n_sentences += 1
        self._n_tokens += len(sentence.split())
        self._line.show(self._said())

    def end(self) -> None:
        self._line.show(self._said(), last=True)

    def _said(self) -> str:
        seconds = max(time.monotonic() - self._start, 1e-3)
        rate = (self._n_tokens - self._before) / seconds
        said = f"{self._n_sentences:,} sentences  {self._n_tokens:,} tokens  {rate:,.0f} tokens/s"
        total = self._text.n_tokens
        if not total or not rate:
            return said
        left = duration((total - self._n_tokens) / rate)
        return f"{said}  {self._n_tokens / total:.0%}  {left} to go"
