"""Rows: the vectors of a text, from the text file to the HDF5 file."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import memory
from benchmarks.effort import Effort
from benchmarks.operations import embedding_operations
from benchmarks.results import Figure, Measured, NotAvailable, Speed
from benchmarks.workspace import Workspace

# The vocabulary file changes nothing with character input; it only has to be one.
_NO_VOCABULARY = "<S>\n</S>\n<UNK>\n"


@dataclass(frozen=True)
class EmbeddingRow:
    """Embed a file whose vocabulary is not known beforehand.

    The time is that of the whole call: loading the weights, tracing, reading, computing, writing.

    Args:
        preset: the size.
        precision: of the products.
        wanted: tokens a second for each GFLOP/s; None where no goal is set.
        original: the original program's tokens a second.
        n_tokens: of the file, in a full and in a quick run.
    """

    preset: str
    precision: str
    wanted: float | None
    original: float
    n_tokens: tuple[int, int]

    def __call__(self, workspace: Workspace, effort: Effort) -> Measured:
        """Measure the row."""
        text = workspace.text(effort.pick(*self.n_tokens, 2_000))
        files = EmbeddingFiles(workspace, effort.preset(self.preset), self.precision)
        one_sentence = workspace.text(1).path
        files.embed(one_sentence)  # imports, threads
        start = files.embed(one_sentence)
        seconds = files.embed(text.path)
        operations = embedding_operations(files.options, text.n_tokens, text.lengths)
        return Measured(
            Speed(
                text.n_tokens / seconds,
                operations / text.n_tokens,
                self.precision,
                self.wanted,
                self.original,
            ),
            (
                Figure("a file of one sentence", start, "s"),
                Figure("most memory", memory.peak() / 2**20, "MB"),
            ),
            {
                "seconds": seconds,
                "seconds_of_one_sentence": start,
                "n_tokens": text.n_tokens,
                "n_sentences": text.n_sentences,
                "distinct_words": len(text.lengths),
            },
        )


class EmbeddingFiles:
    """The files of a model, and one door to embed text with them.

    Raises:
        NotAvailable: the precision cannot be chosen.
    """

    def __init__(self, workspace: Workspace, network: str, precision: str = "float32") -> None:
        from bilm import dump_bilm_embeddings

        self._dump = dump_bilm_embeddings
        self._chosen = {} if precision == "float32" else {"precision": precision}
        if not self._chosen.keys() <= inspect.signature(dump_bilm_embeddings).parameters.keys():
            raise NotAvailable("dump_bilm_embeddings has no argument `precision`")
        self.options, self._options_file, self._weight_file = workspace.network(network)
        self._vocabulary = workspace.folder / "no-vocabulary.txt"
        self._vocabulary.write_text(_NO_VOCABULARY, encoding="utf-8")

    def embed(self, text: Path) -> float:
        """Write a text's vectors, take them away again, and return how many seconds it took."""
        outfile = text.with_suffix(".hdf5")
        start = time.perf_counter()
        self._dump(
            self._vocabulary,
            text,
            self._options_file,
            self._weight_file,
            outfile,
            **self._chosen,
        )
        seconds = time.perf_counter() - start
        outfile.unlink()
        return seconds
