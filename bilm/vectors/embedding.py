"""Vectors of one text as one file, as `bilm embed` without an engine writes them.

from bilm import ELMo, embed_file

elmo = ELMo.from_pretrained("elmo")
embed_file("proteins.fasta", "proteins.h5", elmo, layers="sum")
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.core.errors import InputError, one_of, require, shown
from bilm.data.sentences import Sentence, is_fasta, read_keys, read_sentences
from bilm.data.untokenized import warn_if_other_tokenizer
from bilm.files.reading import PathLike, require_file
from bilm.files.writing import Outputs
from bilm.vectors import vector_files
from bilm.vectors.arrow import import_pyarrow, require_row, write_parquet
from bilm.vectors.job_folder import JobFolder, check_output
from bilm.vectors.job_pieces import EmbeddedSentence, JobPieces, Wanted, as_dtype

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo


class Format(NamedTuple):
    """What a format of a file of vectors can do."""

    stream: bool = False  # it can be written to a stream
    keys: bool = True  # a sentence can be its own key


FORMATS = {
    "hdf5": Format(),
    "npz": Format(stream=True),
    "jsonl": Format(stream=True),
    "parquet": Format(keys=False),
}
"""The formats of files of vectors, by the ending that chooses each."""

ShowEmbedded = Callable[[int, int, int | None], None]
"""Is called with the sentences and tokens so far, and the sentences of the text, if known."""


class ArgumentsError(InputError):
    """Arguments that cannot be combined."""


class EmbeddedFile(NamedTuple):
    """The result of a job."""

    n_sentences: int = 0  # in the file
    n_left: int = 0  # taken over from an interrupted job
    n_repeated: int = 0  # repeated lines, left out because the sentence is the key
    n_empty: int = 0  # empty lines, left out for the same reason
    was_complete: bool = False  # the file existed; nothing was done


def embed_file(
    text: PathLike,
    out: PathLike,
    model: ELMo,
    *,
    layers: str | int | Sequence[float] = "average",
    pooling: str | None = None,
    dtype: str = "float32",
    format: str | None = None,
    ids: PathLike | None = None,
    sentence_keys: bool = False,
    with_text: bool = True,
    shard: tuple[int, int] = (1, 1),
    batch_size: int | None = None,
    resume: bool = False,
    force: bool = False,
) -> EmbeddedFile:
    """Write the vectors of a text. For the arguments and errors see `EmbeddingJob` and
    `EmbeddingJob.run`."""
    job = EmbeddingJob(
        text,
        out,
        layers=layers,
        pooling=pooling,
        dtype=dtype,
        format=format,
        ids=ids,
        sentence_keys=sentence_keys,
        with_text=with_text,
        shard=shard,
        batch_size=batch_size,
        resume=resume,
        force=force,
    )
    return job.run(model)


@dataclass
class EmbeddingJob:
    """A text and the file to write its vectors to. Arguments are checked before any work.

    Args:
        text: UTF-8, plain, .gz or .xz, one sentence per line; or FASTA (.fasta, .fa), whose ids
            are the keys; or a binary stream of text.
        out: file to write, or a binary stream. Finished vectors are kept in a folder OUT.partial
            until the file is complete.
        layers: as for `ELMo.encode`, except a `ScalarMix`.
        pooling: None, "mean" or "max" over the tokens of a sentence.
        dtype: "float32" or "float16".
        format: one of `FORMATS`; None: chosen by the ending of OUT, otherwise HDF5; JSON lines for
            a stream.
        ids: file with one key per line for the sentences; None: line numbers are the keys.
        sentence_keys: the sentence is its own key. A repeated sentence is computed and written
            once, an empty line not at all.
        with_text: write the sentences as well: `sentence_to_index`, or in Parquet the text.
        shard: (i, n): only the lines i, i + n, ... of 1, 2, ..., for n jobs that share a text.
        batch_size: most sentences computed together; None: chosen for speed.
        resume: continue an interrupted job if there is one; if OUT exists, do nothing.
        force: replace OUT and discard an interrupted job.

    Attributes:
        is_complete: the job resumes and OUT is complete.

    Raises:
        ArgumentsError: arguments that cannot be combined.
        FileNotFoundError: the text, the ids or the folder of OUT do not exist.
        InputError: OUT or an interrupted job exists, and neither `resume` nor `force` is given;
            an argument has a wrong value; pyarrow is missing for Parquet.
    """

    text: Any  # PathLike | IO[bytes]
    out: Any
    layers: str | int | Sequence[float] = "average"
    pooling: str | None = None
    dtype: str = "float32"
    format: str | None = None
    ids: PathLike | None = None
    sentence_keys: bool = False
    with_text: bool = True
    shard: tuple[int, int] = (1, 1)
    batch_size: int | None = None
    resume: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        self.is_complete, self.is_stream = False, not isinstance(self.out, str | os.PathLike)
        self.is_file = isinstance(self.text, str | os.PathLike)
        self.is_fasta = (not self.is_file or os.path.isfile(self.text)) and is_fasta(self.text)
        self.has_ids = self.ids is not None or self.is_fasta
        self._name = os.fspath(self.text) if self.is_file else "standard input"
        ending = "" if self.is_stream else os.path.splitext(self.out)[1].removeprefix(".")
        by_ending = ending if ending in FORMATS else "hdf5"
        self.kind = self.format or ("jsonl" if self.is_stream else by_ending)
        self.wanted = Wanted.of(self.layers, self.pooling, self.dtype)
        self._check_arguments()
        inputs = {"text": self.text} if self.is_file else {}
        inputs |= {} if self.ids is None else {"ids": self.ids}
        for argument, path in inputs.items():
            require_file(path, f"{argument} file")
        if not self.is_stream:
            Outputs([], updated=[self.out], inputs=inputs)
            self.is_complete = check_output(self.out, resume=self.resume, force=self.force)
        if self.kind == "parquet":
            import_pyarrow()

    def _check_arguments(self) -> None:
        kind, (i, n) = self.kind, self.shard
        require(one_of(tuple(FORMATS)), format=kind)
        if not 1 <= i <= n:
            raise InputError(f"shard must be (i, n) with 1 <= i <= n, got {self.shard}.")
        by_sentence, stream = self.sentence_keys, self.is_stream
        streams = [name for name, its in FORMATS.items() if its.stream]
        for is_broken, rule in (
            (by_sentence and not FORMATS[kind].keys, f"{kind} has no keys, so no sentence_keys"),
            (by_sentence and self.has_ids, "sentence_keys does not go with ids or FASTA"),
            (self.ids is not None and self.is_fasta, "ids does not go with FASTA, which has ids"),
            (self.resume and self.force, "resume continues, force starts over: choose one"),
            (stream and self.resume, "resume continues a file; the output is a stream"),
            (stream and kind not in streams, f"a stream takes {' or '.join(streams)}, not {kind}"),
        ):
            if is_broken:
                raise ArgumentsError(rule)

    def run(self, model: ELMo, show: ShowEmbedded = lambda *_: None) -> EmbeddedFile:
        """Compute the vectors and write the file; `show` is called after each sentence.

        Raises:
            InputError: a line is not UTF-8, cannot be a key or has a word without a vector (file
                and line); keys are repeated, or not as many as the sentences; the interrupted job
                had other settings or another text; another process writes OUT.
        """
        if self.is_complete:
            return EmbeddedFile(was_complete=True)
        shape = self.wanted.shape(model.options)
        settings = {  # everything that determines the vectors besides the text
            "shape": shape,
            "model": model.fingerprint(),
            "precision": model.precision,
            **self.wanted._asdict(),
            "shard": list(self.shard),
            "keys": "sentences" if self.sentence_keys else "ids" if self.has_ids else "numbers",
        }
        left_out = Counter[str]()
        if self.is_file and not self.is_fasta:
            warn_if_other_tokenizer(self.text, model.options.tokenizer)
        # All of a file is checked before the work.
        n_all = self._check(model, shape, left_out) if self.is_file else None
        todo = (
            (sentence, self._tokens(sentence, model, shape))
            for sentence in self._sentences(left_out)
        )

        def encode(n_left: int, n_tokens: int, new_array: Any = None) -> Iterator[Any]:
            show(n_left, n_tokens, n_all)
            return model.encode_iter(
                todo,
                self.layers,
                self.pooling,
                batch_size=self.batch_size,
                with_ids=True,
                show_progress=lambda n, m: show(n_left + n, n_tokens + m, n_all),
                new_array=new_array,
            )

        if self.is_stream:
            results, dtype = encode(0, 0), self.dtype
            embedded = (EmbeddedSentence(s, as_dtype(vectors, dtype)) for s, vectors in results)
            self._write(self.out, embedded, settings)
            self.out.flush()
            return EmbeddedFile(n_repeated=left_out["repeated"], n_empty=left_out["empty"])
        with JobFolder(self.out, settings, resume=self.resume, force=self.force) as folder:
            if folder.is_over:
                return EmbeddedFile(was_complete=True)
            with JobPieces(folder.pieces_folder, shape, self.dtype) as pieces:
                n_left, n_tokens = pieces.n_sentences, 0
                for left, _ in pieces.sentences():
                    sentence, tokens = next(todo, (None, []))
                    if left != sentence:
                        raise InputError(
                            f"{self._place(left)} is not the sentence whose vectors are in "
                            f"{folder.out}.partial. Resume with the same text, or start over with "
                            "--force."
                        )
                    n_tokens += len(tokens)
                for found in encode(n_left, n_tokens, pieces.new_array):
                    pieces.add(*found)
                pieces.save()
                with folder.result() as temporary:
                    self._write(temporary, pieces, settings)
        n_repeated, n_empty = left_out["repeated"], left_out["empty"]
        return EmbeddedFile(pieces.n_sentences, n_left, n_repeated, n_empty)

    def _write(self, out: Any, embedded: Any, settings: dict[str, Any]) -> None:
        """Write the file; `embedded` are pieces, or for a stream sentences with vectors."""
        with_text, has_ids, files = self.with_text, self.has_ids, vector_files
        with_index = with_text and not self.sentence_keys and not has_ids
        if self.kind == "jsonl":
            with contextlib.nullcontext(out) if self.is_stream else open(out, "wb") as file:
                files.write_jsonl(file, embedded)
        elif self.kind == "parquet":
            write_parquet(out, embedded, settings, with_text=with_text, with_keys=has_ids)
        elif self.kind == "npz":
            files.write_npz(out, embedded, with_index=with_index)
        elif self.kind == "hdf5":
            files.write_hdf5(out, embedded, with_index=with_index, original_ids=has_ids)
        else:
            raise NotImplementedError(f"the format {self.kind} has no writer")

    def _place(self, sentence: Sentence) -> str:
        """The file and line of a sentence, for messages."""
        kind = "sequence" if self.is_fasta else "line"
        return f"{self._name}, {kind} {sentence.number + 1}"

    def _check(self, model: ELMo, shape: Sequence[int | None], left_out: Counter[str]) -> int:
        """Check the text and its keys, and return the number of sentences. They are split into
        tokens only if a table may lack a word, or a row of Parquet may be too large."""
        needs_tokens = model.vocabulary is not None or self.kind == "parquet"
        n_sentences = 0
        for sentence in self._sentences(left_out):
            n_sentences += 1
            if needs_tokens:
                self._tokens(sentence, model, shape)
        return n_sentences

    def _tokens(self, sentence: Sentence, model: ELMo, shape: Sequence[int | None]) -> list[str]:
        """The tokens of a sentence. Each must have a vector, and the format must hold them."""
        tokens, place = sentence.text.split(), self._place(sentence)
        model.refuse_unknown(tokens, place)
        if self.kind == "parquet":
            require_row(len(tokens), shape, self.dtype, place)
        return tokens

    def _sentences(self, left_out: Counter[str]) -> Iterator[Sentence]:
        """The sentences of this shard, in order, after checking their keys. If the sentence is the
        key, repeated and empty lines are skipped, and counted in `left_out`."""
        i, n = self.shard
        keys = vector_files.Keys(paths=self.kind == "hdf5")
        left_out.clear()
        for sentence in self._with_keys():
            is_ours, place = sentence.number % n == i - 1, self._place(sentence)
            if sentence.key == "":
                left_out["empty"] += is_ours
            elif sentence.key is not None and not keys.is_new(sentence.key, place):
                if not self.sentence_keys:
                    raise InputError(f"{place}: the key {shown(sentence.key)} is repeated.")
                left_out["repeated"] += is_ours
            elif is_ours:
                yield sentence

    def _with_keys(self) -> Iterator[Sentence]:
        found = read_sentences(self.text, self._name)
        if self.sentence_keys:
            yield from (sentence._replace(key=sentence.text) for sentence in found)
        elif self.ids is None:
            yield from found
        else:
            ids = read_keys(self.ids)
            for sentence, key in itertools.zip_longest(found, ids):
                if sentence is None or key is None:
                    raise InputError(
                        f"{self.ids} must have one key for each line of {self._name}, got "
                        f"{len(ids)} keys for {'fewer' if sentence is None else 'more'} lines."
                    )
                yield sentence._replace(key=key)
