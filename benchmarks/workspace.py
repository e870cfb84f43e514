"""The files that rows use: text, vocabularies, networks. Each is made when first needed."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bilm import Options, preset
from bilm.data import count_words, write_vocabulary
from bilm.files.reading import read_lines

VOCABULARY = 55_000
"""Vocabulary size of the training rows."""


class Text(NamedTuple):
    """A text file and its counts.

    Attributes:
        path: the file, one sentence per line.
        n_tokens, n_sentences: counts.
        lengths: int64 (distinct,), characters of each distinct word and of <S> and </S>: its
            UTF-8 bytes, at most 48, plus a begin and an end character.
    """

    path: Path
    n_tokens: int
    n_sentences: int
    lengths: np.ndarray


class Workspace:
    """A folder of generated files, and the corpus that they are made from.

    Args:
        folder: folder for the files; existing ones are reused, texts and vocabularies only if they
            were made from a corpus of this name and size.
        corpus: text file with one sentence per line, tokens separated by white space.
    """

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.folder = folder
        self.corpus = corpus

    def text(self, n_tokens: int) -> Text:
        """The first `n_tokens` or so of the corpus, which is repeated if it is too short."""
        path = self._of_corpus(f"text-{n_tokens}.txt")
        _make(path, lambda new: self._write_text(new, n_tokens))
        words: dict[str, None] = {}
        count = sentences = 0
        for line in read_lines(path):
            tokens = line.split()
            words.update(dict.fromkeys(tokens))
            count += len(tokens)
            sentences += 1
        lengths = [min(len(word.encode("utf-8")), 48) + 2 for word in words]
        return Text(path, count, sentences, np.array([*lengths, 3, 3]))

    def _of_corpus(self, name: str) -> Path:
        """A file whose content depends on the corpus."""
        return self.folder / f"{self.corpus.name}-{self.corpus.stat().st_size}-{name}"

    def _write_text(self, path: Path, n_tokens: int) -> None:
        written = 0
        with open(path, "w", encoding="utf-8") as file:
            for line in self._endless_lines():
                file.write(f"{line}\n")
                written += len(line.split())
                if written >= n_tokens:
                    return

    def _endless_lines(self) -> Iterator[str]:
        while True:
            yield from (line for line in read_lines(self.corpus) if line and not line.isspace())

    def vocabulary(self, size: int = VOCABULARY) -> Path:
        """A vocabulary file of exactly `size` lines.

        The most frequent words of the corpus come first; if it has too few, made-up ones follow.
        """
        path = self._of_corpus(f"vocabulary-{size}.txt")
        _make(path, lambda new: self._write_vocabulary(new, size))
        return path

    def _write_vocabulary(self, path: Path, size: int) -> None:
        counts = count_words(self.corpus)
        missing = size - write_vocabulary(path, counts, max_size=size)
        made_up = (f"made-up-{k}" for k in itertools.count())
        new = (word for word in made_up if word not in counts)
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word in itertools.islice(new, missing))

    def network(self, name: str) -> tuple[Options, Path, Path]:
        """Options, options.json and random HDF5 weights of a preset, or of "minimal", a network so
        small that everything around it dominates time and memory."""
        values = preset("tiny" if name == "minimal" else name)
        if name == "minimal":
            values["lstm"] |= {"dim": 32, "projection_dim": 8, "n_layers": 1}
            values["char_cnn"] |= {"filters": [[1, 8], [2, 8]], "n_highway": 0}
        options = Options.from_dict(values, training=True)
        options_file = self.folder / f"{name}-options.json"
        weight_file = self.folder / f"{name}-weights.hdf5"
        options_file.write_text(json.dumps(options.inference_dict()), encoding="utf-8")
        _make(weight_file, lambda new: _write_weights(options, new))
        return options, options_file, weight_file


def _write_weights(options: Options, path: Path) -> None:
    from bilm.core.network import build_network
    from bilm.files.weights import save_hdf5, weight_table

    table = weight_table(build_network(options, seed=0))
    save_hdf5(path, {w.dataset: w.variable.numpy() for w in table if w.dataset is not None})


def _make(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file unless it exists; it gets its name only when it is complete."""
    if path.exists():
        return
    unfinished = path.with_name(f"{path.name}.part")
    write(unfinished)
    os.replace(unfinished, path)
