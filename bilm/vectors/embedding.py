"""Vectors of a text as one file, as `bilm embed` writes them.

from bilm import ELMo, embed_file

elmo = ELMo.from_pretrained("elmo")
embed_file("proteins.fasta", "proteins.h5", elmo, layers="sum")
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, differences, one_of, plain, require, shown
from bilm.data.sentences import Sentence, read_keys, read_sentences
from bilm.data.untokenized import N_SENTENCES, TextTokens
from bilm.files.identity import facts_digest, without_old_digests
from bilm.files.reading import (
    FASTA,
    PathLike,
    Text,
    new_digest,
    open_text,
    require_file,
    text_digest,
)
from bilm.files.writing import Outputs
from bilm.progress import ShowStage, Stage, quiet
from bilm.vectors.arrow import require_row, settings_facts
from bilm.vectors.store import VectorStore, check_output, remove_job
from bilm.vectors.vector_files import (
    FORMATS,
    EmbeddedSentence,
    VectorSpec,
    as_dtype,
    read_facts,
)

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo


_NAME = "\0"  # before the name of an argument in a message


class ArgumentsError(InputError):
    """Arguments that cannot be combined."""

    def __init__(self, message: str) -> None:
        super().__init__(message.replace(_NAME, ""))
        self.for_flags = message.replace(f"{_NAME}sent", f"{_NAME}use_sent").replace(_NAME, "--")


class EmbeddedFile(NamedTuple):
    """The result of a job."""

    n_sentences: int = 0  # in the file
    n_left: int = 0  # already finished by an interrupted job
    n_repeated: int = 0  # repeated lines, skipped because the sentence is the key
    n_empty: int = 0  # empty lines, skipped for the same reason
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
    tokenizer: str | None = None,
    column: int | None = None,
    resume: bool = False,
    force: bool = False,
    progress: ShowStage = quiet,
) -> EmbeddedFile:
    """Write the vectors of a text.

    Args:
        text: a file of text, CoNLL-U or FASTA, recognised by its content (`bilm.files.reading`).
            The ids of FASTA are the keys.
        out: file to write. Finished vectors are kept in a folder OUT.partial until the file is
            complete.
        model: computes the vectors.
        layers: as for `ELMo.encode`, except a `ScalarMix`.
        pooling: None, "mean" or "max" over the tokens of a sentence.
        dtype: "float32" or "float16".
        format: one of `FORMATS`; None: by the ending of OUT.
        ids: file with one key per line for the sentences; None: line numbers are the keys.
        sentence_keys: the sentence is its own key. A repeated sentence is computed and written
            once; empty lines are skipped.
        with_text: also write the sentences: `sentence_to_index` if line numbers are the keys, or in
            Parquet the text.
        shard: (i, n): only the lines i, i + n, ... of 1, 2, ..., for n jobs that share a text.
        batch_size: maximum number of sentences computed together; None: chosen for speed.
        tokenizer: "model", "spaces" or a language code splits each line into tokens, see
            `tokenizer_for`; None: as it is, if it is tokenised like the model's text. The tokens
            are what is written as text.
        column: read the tokens in this column, from 1, of a text in columns.
        resume: continue an interrupted job if there is one; if OUT is the complete result of the
            same job, do nothing.
        force: replace OUT and discard an interrupted job.
        progress: called with a `Stage` after each sentence.

    Returns:
        numbers of sentences, by what happened to them.

    Raises:
        FileNotFoundError: the text, the ids or the folder of OUT do not exist.
        InputError: arguments are wrong or cannot be combined; the text is not tokenised like the
            model's, and `tokenizer` is None; a line is not UTF-8, cannot be a key
            or has a word without a vector (file and line); keys are repeated, or their number
            differs from the sentences'; OUT or an interrupted job exists, and neither `resume` nor
            `force` is given; the job to resume had other settings or another text; another process
            writes OUT; pyarrow is missing for Parquet.
    """
    job = EmbeddingJob(
        text, out, layers, pooling, dtype, format, ids, sentence_keys, with_text, shard, batch_size,
        tokenizer, column, resume, force,
    )  # fmt: skip
    return job.run(model, progress)


@dataclass
class EmbeddingJob:
    """The arguments of `embed_file`. They and the keys of the text are checked before the model is
    loaded. `text` and `out` may also be binary streams; the output is then JSON lines by default.

    Attributes:
        sample: the tokens of the first sentences of a file.

    Raises:
        ArgumentsError: arguments cannot be combined. Other errors as for `embed_file`.
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
    tokenizer: str | None = None
    column: int | None = None
    resume: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        self.is_stream = not isinstance(self.out, str | os.PathLike)
        self.is_file = isinstance(self.text, str | os.PathLike)
        self._digest = new_digest()
        if not self.is_file:
            self.text = Text(self.text, "standard input", self._digest, self.column)
        self._split = TextTokens(None, "spaces", self.column)  # until the model is known
        self._name = os.fspath(self.text) if self.is_file else self.text.name
        self.kind = self._kind()
        self._format = FORMATS[self.kind]
        self.spec = VectorSpec.of(self.layers, self.pooling, self.dtype)
        inputs = {"text": self.text} if self.is_file else {}
        inputs |= {} if self.ids is None else {"ids": self.ids}
        for argument, path in inputs.items():
            require_file(path, f"{argument} file")
        if not self.is_stream:
            Outputs([], updated=[self.out], inputs=inputs)
            check_output(self.out, resume=self.resume, force=self.force)
        self._format.require_packages()
        self._skipped = Counter[str]()
        self._n_all: int | None = None
        self._n_longest, self._longest = 0, ""
        self.sample: list[list[str]] = []
        with open_text(self.text, column=self.column) as text:
            self.is_fasta, self._unit = text.kind == FASTA, text.unit
            self.has_ids = self.ids is not None or self.is_fasta
            self._check_arguments()
            if self.is_file:
                self._read_ahead(text)

    def _read_ahead(self, text: Text) -> None:
        """Read a file once before the work, for errors, a sample and the numbers of sentences and
        tokens."""
        self._n_all = 0
        for sentence in self._sentences(text):
            n_tokens = len(tokens := sentence.text.split())
            if n_tokens > self._n_longest:
                self._n_longest, self._longest = n_tokens, self._where(sentence)
            if self._n_all < N_SENTENCES:
                self.sample.append(tokens)
            self._n_all += 1

    def _kind(self) -> str:
        """The name of the format by the argument, or by the ending of OUT."""
        if self.format is not None:
            require(one_of(tuple(FORMATS)), format=self.format)
        if self.is_stream:
            return self.format or "jsonl"
        name = os.path.basename(os.fspath(self.out)).lower()
        root, ending = os.path.splitext(name)
        is_gzip = ending == ".gz"
        ending = os.path.splitext(root)[1] + ending if is_gzip else ending
        by_ending = {end: kind for kind, form in FORMATS.items() for end in form.endings}
        kind = self.format or by_ending.get(ending)
        if kind is None or (is_gzip and kind != "jsonl"):
            raise ArgumentsError(
                f"OUT must end in {', '.join(filter(None, by_ending))}, or have no ending, got "
                f"{name!r}; for another ending (but .gz), set {_NAME}format"
            )
        return kind

    def _check_arguments(self) -> None:
        self.shard = (plain(self.shard[0]), plain(self.shard[1]))
        kind, (i, n) = self.kind, self.shard
        if not 1 <= i <= n:
            raise InputError(f"shard must be (i, n) with 1 <= i <= n, got {self.shard}.")
        by_sentence, stream = self.sentence_keys, self.is_stream
        streams = [name for name, form in FORMATS.items() if form.can_stream]
        has_no_keys = not self._format.has_sentence_keys
        for is_broken, rule in (
            (by_sentence and has_no_keys, f"{kind} cannot hold {_NAME}sentence_keys"),
            (by_sentence and self.has_ids, f"{_NAME}sentence_keys excludes {_NAME}ids and FASTA"),
            (self.ids is not None and self.is_fasta, f"{_NAME}ids excludes FASTA, which has ids"),
            (
                self.resume and self.force,
                f"{_NAME}resume continues, {_NAME}force starts over: choose one",
            ),
            (stream and self.resume, f"{_NAME}resume continues a file; the output is a stream"),
            (stream and kind not in streams, f"a stream can be {' or '.join(streams)}, not {kind}"),
        ):
            if is_broken:
                raise ArgumentsError(rule)

    def run(self, model: ELMo, progress: ShowStage = quiet) -> EmbeddedFile:
        """Compute the vectors and write the file; arguments and errors as for `embed_file`."""
        shape = self.spec.shape(model.options)
        self._split = TextTokens(model.options.tokenizer, self.tokenizer, self.column)
        settings = self._settings(model, shape)
        if self.resume and os.path.lexists(self.out):
            self._require_complete(settings)
            remove_job(self.out, settings)
            return EmbeddedFile(was_complete=True)
        self._check_text(model, shape)
        if self.is_stream:
            return self._write_stream(model, settings, progress)
        todo = self._todo(model, shape)
        choices = {"resume": self.resume, "force": self.force}
        with VectorStore(self.out, settings, **choices) as store:
            n_left, n_tokens = store.n_sentences, self._skip_saved(todo, store)
            show = self._progress(progress, n_left, n_tokens)
            for sentence, vectors in self._encode(model, todo, show, store.new_array):
                store.add(sentence, vectors)
            store.save()
            facts = self._facts(settings, store.n_sentences)
            with Outputs([self.out], overwrite=self.force).temporaries() as (temporary,):
                self._format.write(temporary, store, settings, facts)
            store.remove()
        return self._result(store.n_sentences, n_left)

    def _write_stream(
        self, model: ELMo, settings: dict[str, Any], progress: ShowStage
    ) -> EmbeddedFile:
        """Write to a stream, as the vectors are computed; a stream gets no facts."""
        n_written = itertools.count()
        todo = self._todo(model, settings["shape"])
        results = zip(self._encode(model, todo, self._progress(progress)), n_written, strict=False)
        embedded = (EmbeddedSentence(*result) for result, _ in results)
        self._format.write(self.out, embedded, settings, facts="")
        self.out.flush()
        return self._result(next(n_written))

    def _result(self, n_sentences: int, n_left: int = 0) -> EmbeddedFile:
        skipped = self._skipped
        return EmbeddedFile(n_sentences, n_left, skipped["repeated"], skipped["empty"])

    def _settings(self, model: ELMo, shape: Sequence[int | None]) -> dict[str, Any]:
        """All that determines the result, except the text."""
        return {
            "shape": shape,
            "model": model.fingerprint(),
            "network": facts_digest([model.options.inference_dict(), model.model.words.words]),
            "precision": model.precision,
            **self.spec._asdict(),
            "shard": list(self.shard),
            "keys": "sentences" if self.sentence_keys else "ids" if self.has_ids else "numbers",
            "format": self.kind,
            "with_text": self.with_text,
            **{
                n: getattr(self, n) for n in ("tokenizer", "column") if getattr(self, n) is not None
            },
        }

    def _check_text(self, model: ELMo, shape: Sequence[int | None]) -> None:
        """Check that a file's longest sentence fits the format."""
        if self._format.has_rows:
            require_row(self._n_longest, shape, self.dtype, self._longest)

    def _skip_saved(self, todo: Iterator[tuple[Sentence, list[str]]], store: VectorStore) -> int:
        """Skip the sentences in the store, which must be the same; return their tokens."""
        n_tokens = 0
        for sentence in store.sentences():
            other, tokens = next(todo, (None, []))
            if other != sentence:
                raise InputError(
                    f"{self._name} must begin with the {store.n_sentences:,} sentences whose "
                    f"vectors are in {store.path}. Resume with the same text, or start over with "
                    "force."
                )
            n_tokens += len(tokens)
        return n_tokens

    def _progress(self, progress: ShowStage, n_left: int = 0, n_tokens: int = 0) -> ShowStage:
        """A callback for `encode_iter`, which counts sentences; some are finished already."""
        counter = itertools.count(n_left)

        def show(stage: Stage) -> None:
            detail = f"{n_tokens + stage.done:,} tokens"
            progress(Stage("embedding", next(counter), self._n_all, "sentences", detail))

        return show

    def _encode(
        self, model: ELMo, todo: Iterator[Any], show: ShowStage, new_array: Any = None
    ) -> Iterator[tuple[Sentence, Any]]:
        show(Stage("embedding", 0, None))
        for sentence, vectors in model.encode_iter(
            todo,
            self.layers,
            self.pooling,
            batch_size=self.batch_size,
            with_ids=True,
            show_progress=show,
            new_array=new_array,
        ):
            if isinstance(vectors, np.ndarray):  # otherwise it was checked block by block
                vectors = as_dtype(vectors, self.dtype, self._where(sentence))
            yield sentence, vectors

    def _facts(self, settings: dict[str, Any], n_sentences: int) -> str:
        """The facts of the job for the complete file, as JSON; valid after the text was read."""
        texts = [self._digest.hexdigest()]
        texts += [] if self.ids is None else [text_digest(self.ids)]
        names = ("network", "shard", "keys", "with_text", "tokenizer", "column")
        facts = {name: settings[name] for name in names if name in settings}
        facts |= {"text": texts, "sentences": n_sentences}
        return json.dumps(settings_facts(settings) | facts)

    def _require_complete(self, settings: dict[str, Any]) -> None:
        """Require that OUT is the complete result of this job."""
        n_all = sum(1 for _ in self._sentences())  # a stream is read only here
        stored = read_facts(self.out, self.kind, is_empty=not n_all)
        if stored is None:
            return
        ours = json.loads(self._facts(settings, n_all))
        stored = without_old_digests(stored, ours) | {"version": ours["version"]}
        stored.setdefault("network", ours["network"])  # files of earlier versions
        if listed := differences(stored, ours, "there", "now"):
            raise InputError(
                f"{self.out} is the result of another job: {'; '.join(listed)}. Move it away, or "
                "replace it with force."
            )

    def _todo(
        self, model: ELMo, shape: Sequence[int | None]
    ) -> Iterator[tuple[Sentence, list[str]]]:
        """The sentences and their tokens."""
        return ((each, self._tokens(each, model, shape)) for each in self._sentences())

    def _where(self, sentence: Sentence) -> str:
        """The file and line of a sentence, for messages."""
        return f"{self._name}, {self._unit} {sentence.number + 1}"

    def _tokens(self, sentence: Sentence, model: ELMo, shape: Sequence[int | None]) -> list[str]:
        """The tokens of a sentence, after checking that they have vectors and fit the format."""
        tokens, where = sentence.text.split(), self._where(sentence)
        model.refuse_unknown(tokens, where)
        if self._format.has_rows:
            require_row(len(tokens), shape, self.dtype, where)
        return tokens

    def _sentences(self, text: Text | None = None) -> Iterator[Sentence]:
        """The sentences of this shard, in order, after checking their keys. If sentences are keys,
        repeated and empty lines are skipped, and counted in `_skipped`."""
        i, n = self.shard
        keys, skipped = self._format.keys(), self._skipped
        skipped.clear()
        for sentence in self._with_keys(text):
            is_ours, where = sentence.number % n == i - 1, self._where(sentence)
            if sentence.key == "":
                skipped["empty"] += is_ours
            elif sentence.key is not None and not keys.is_new(sentence.key, where):
                if not self.sentence_keys:
                    raise InputError(f"{where}: the key {shown(sentence.key)} is repeated.")
                skipped["repeated"] += is_ours
            elif is_ours:
                yield sentence

    def _with_keys(self, text: Text | None) -> Iterator[Sentence]:
        if self.is_file and text is None:
            self._digest = new_digest()
        sentences = read_sentences(text or self.text, self._name, self._digest, self._split)
        if self.sentence_keys:
            yield from (sentence._replace(key=sentence.text) for sentence in sentences)
        elif self.ids is None:
            yield from sentences
        else:
            ids = read_keys(self.ids)
            for sentence, key in itertools.zip_longest(sentences, ids):
                if sentence is None or key is None:
                    raise InputError(
                        f"{self.ids} must have one key for each {self._unit} of {self._name}, got "
                        f"{len(ids)} keys for {'fewer' if sentence is None else 'more'} "
                        f"{self._unit}s."
                    )
                yield sentence._replace(key=key)
