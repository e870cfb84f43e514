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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.core.errors import InputError, differences, one_of, plain, require, shown
from bilm.data.sentences import Sentence, TextTokens, read_keys, read_sentences
from bilm.files.identity import facts_digest, without_old_digests
from bilm.files.reading import FASTA, PathLike, new_digest, open_text, require_file, text_digest
from bilm.files.writing import Outputs
from bilm.progress import ShowStage, Stage, quiet
from bilm.vectors.store import VectorStore, check_output, remove_job
from bilm.vectors.vector_files import (
    FORMATS,
    VectorSpec,
    as_dtype,
    import_pyarrow,
    read_facts,
    require_row,
    settings_facts,
)

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo


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
    if not hasattr(model, "encode_iter"):
        raise InputError(f"model must be an ELMo, got {shown(model)}.")
    job = EmbeddingJob(
        text, out, layers, pooling, dtype, format, ids, sentence_keys, with_text, shard, batch_size,
        tokenizer, column, resume, force,
    )  # fmt: skip
    return job.run(model, job.read(model), progress)


@dataclass
class EmbeddingJob:
    """The arguments of `embed_file`, which are checked before the model is loaded. `text` and `out`
    may also be binary streams; the output is then JSON lines by default.

    Errors as for `embed_file`.
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
        self._is_file = isinstance(self.text, str | os.PathLike)
        self._name = os.fspath(self.text) if self._is_file else "standard input"
        self.kind = self._kind()
        self._format = FORMATS[self.kind]
        self.spec = VectorSpec.of(self.layers, self.pooling, self.dtype)
        self._check_arguments()
        inputs = {"text": self.text} if self._is_file else {}
        inputs |= {} if self.ids is None else {"ids": self.ids}
        for argument, path in inputs.items():
            require_file(path, f"{argument} file")
        if not self.is_stream:
            Outputs([], updated=[self.out], inputs=inputs)
            check_output(self.out, resume=self.resume, force=self.force)
        if self._format.is_table:
            import_pyarrow()
        self._digest, self._skipped = new_digest(), Counter[str]()
        self._n_sentences: int | None = None  # unknown for a stream
        self._has_ids = self.ids is not None

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
            raise InputError(
                f"OUT must end in {', '.join(filter(None, by_ending))}, or have no ending, got "
                f"{name!r}; for another ending (but .gz), choose a format: {', '.join(FORMATS)}."
            )
        return kind

    def _check_arguments(self) -> None:
        self.shard = (plain(self.shard[0]), plain(self.shard[1]))
        i, n = self.shard
        if not 1 <= i <= n:
            raise InputError(f"shard must be (i, n) with 1 <= i <= n, got {self.shard}.")
        if self.sentence_keys and (self.ids is not None or self._format.is_table):
            raise InputError("Sentences cannot be keys in Parquet, or in addition to other keys.")
        if self.resume and self.force:
            raise InputError("resume continues, force starts over: choose one.")
        if self.is_stream and (self.resume or not self._format.can_stream):
            raise InputError("A stream must be npz or jsonl, and cannot be resumed.")

    def read(self, model: ELMo) -> Iterator[Sentence]:
        """The sentences of this shard, tokens separated by spaces.

        A file is read twice, so that memory does not grow with it: here, to check its keys and
        words and to count it, and while its vectors are computed.
        """
        if self._is_file:
            self._n_sentences = sum(1 for _ in self._sentences(model))
        sentences = self._sentences(model)
        first = list(itertools.islice(sentences, 1))  # the kind of a stream is known from here
        return itertools.chain(first, sentences)

    def _sentences(self, model: ELMo) -> Iterator[Sentence]:
        self._digest, self._skipped = new_digest(), Counter()
        with open_text(self.text, self._name, self._digest, self.column) as text:
            if text.kind == FASTA:
                self._has_ids = True
                for name in ("sentence_keys", "ids"):
                    if getattr(self, name):
                        raise InputError(
                            f"{self._name} is FASTA, whose ids are the keys: leave out {name}."
                        )
            self._unit = text.unit
            tokens = TextTokens(model.options.tokenizer, self.tokenizer, self.column)
            sentences = self._with_keys(read_sentences(text, tokens))
            yield from self._checked(sentences, model)

    def _with_keys(self, sentences: Iterator[Sentence]) -> Iterator[Sentence]:
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

    def _checked(self, sentences: Iterator[Sentence], model: ELMo) -> Iterator[Sentence]:
        """The sentences of this shard. If sentences are keys, repeated and empty lines are skipped,
        and counted in `_skipped`."""
        i, n = self.shard
        keys, skipped, shape = self._format.keys(), self._skipped, self.spec.shape(model.options)
        for sentence in sentences:
            is_ours, where = sentence.number % n == i - 1, self._where(sentence)
            if sentence.key == "":
                skipped["empty"] += is_ours
            elif sentence.key is not None and not keys.is_new(sentence.key, where):
                if not self.sentence_keys:
                    raise InputError(f"{where}: the key {shown(sentence.key)} is repeated.")
                skipped["repeated"] += is_ours
            elif is_ours:
                tokens = sentence.text.split()
                model.refuse_unknown(tokens, where)
                if self._format.is_table:
                    require_row(len(tokens), shape, self.dtype, where)
                yield sentence

    def _where(self, sentence: Sentence) -> str:
        """The file and line of a sentence, for messages."""
        return f"{self._name}, {self._unit} {sentence.number + 1}"

    def run(
        self, model: ELMo, sentences: Iterable[Sentence], progress: ShowStage = quiet
    ) -> EmbeddedFile:
        """Compute the vectors of the sentences that `read` returned, and write the file; arguments
        and errors as for `embed_file`."""
        settings = self._settings(model)
        if self.resume and os.path.lexists(self.out):
            self._require_complete(settings, sum(1 for _ in sentences))
            remove_job(self.out, settings)
            return EmbeddedFile(was_complete=True)
        todo = ((sentence, sentence.text.split()) for sentence in sentences)
        if self.is_stream:
            n_written = itertools.count()
            results = zip(self._encode(model, todo, progress), n_written, strict=False)
            self._format.write(self.out, (result for result, _ in results), settings, facts="")
            self.out.flush()
            return self._result(next(n_written))
        choices = {"resume": self.resume, "force": self.force}
        with VectorStore(self.out, settings, **choices) as store:
            finished = store.n_sentences, self._skip_saved(todo, store)
            new = self._encode(model, todo, progress, *finished, store.new_array)
            for sentence, vectors in new:
                store.add(sentence, vectors)
            store.save()
            facts = self._facts(settings, store.n_sentences)
            with Outputs([self.out], overwrite=self.force).temporaries() as (temporary,):
                self._format.write(temporary, store, settings, facts)
            store.remove()
        return self._result(store.n_sentences, finished[0])

    def _result(self, n_sentences: int, n_left: int = 0) -> EmbeddedFile:
        skipped = self._skipped
        return EmbeddedFile(n_sentences, n_left, skipped["repeated"], skipped["empty"])

    def _settings(self, model: ELMo) -> dict[str, Any]:
        """All that determines the result, except the text."""
        optional = {"tokenizer": self.tokenizer, "column": self.column}
        return {
            "shape": self.spec.shape(model.options),
            "model": model.fingerprint(),
            "network": facts_digest([model.options.inference_dict(), model.model.words.words]),
            "precision": model.precision,
            **self.spec._asdict(),
            "shard": list(self.shard),
            "keys": "sentences" if self.sentence_keys else "ids" if self._has_ids else "numbers",
            "format": self.kind,
            "with_text": self.with_text,
            **{name: value for name, value in optional.items() if value is not None},
        }

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

    def _encode(
        self,
        model: ELMo,
        todo: Iterator[tuple[Sentence, list[str]]],
        progress: ShowStage,
        n_finished: int = 0,
        n_finished_tokens: int = 0,
        new_array: Any = None,
    ) -> Iterator[tuple[Sentence, Any]]:
        counter = itertools.count(n_finished)

        def show(stage: Stage) -> None:
            detail = f"{n_finished_tokens + stage.done:,} tokens"
            progress(Stage("embedding", next(counter), self._n_sentences, "sentences", detail))

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

    def _require_complete(self, settings: dict[str, Any], n_all: int) -> None:
        """Require that OUT is the complete result of this job, of `n_all` sentences."""
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
