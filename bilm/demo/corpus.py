"""Text for the demo: gathered, parted into training and held-out text, written as shards."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bilm.demo.docstrings import find_sources, module_sentences, source_files
from bilm.demo.sentences import Sentence, read_prose, read_tokenized
from bilm.errors import InputError
from bilm.files import PathLike, read_lines

Document = list[Sentence]
"""Sentences that belong together; held-out text is made of whole documents."""

# Text has no documents of its own; neighbouring sentences are kept together in this many.
_SENTENCES_OF_A_DOCUMENT = 100
_FILES_OF_A_TASK = 16


@dataclass(frozen=True)
class Corpus:
    """Sentences to train on, in random order, and held-out ones, in the order of the text."""

    training: list[Sentence]
    heldout: list[Sentence]


def gather_docstrings(
    n_processes: int = 1, progress: Callable[[int, int], None] | None = None
) -> list[Document]:
    """The prose of the docstrings of Python, NumPy, Keras and TensorFlow as they are installed.

    Args:
        n_processes: processes that parse files side by side.
        progress: called with the numbers of files read and of all files.

    Returns:
        one document a module, in a fixed order. A sentence that was there before is left out.
    """
    files = [path for folder in find_sources() for path in source_files(folder.path)]
    documents: list[Document] = []
    for document in _parsed(files, n_processes):
        documents.append(document)
        if progress is not None:
            progress(len(documents), len(files))
    return without_repeats(documents)


def _parsed(files: Sequence[Path], n_processes: int) -> Iterator[Document]:
    if n_processes == 1:
        yield from map(module_sentences, files)
        return
    # A forked process would inherit the threads of TensorFlow, if it is there already.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, mp_context=context) as pool:
        yield from pool.map(module_sentences, files, chunksize=_FILES_OF_A_TASK)


def without_repeats(documents: Iterable[Document]) -> list[Document]:
    """The documents with each sentence once, where it comes first; empty documents go."""
    seen: set[str] = set()
    kept = []
    for document in documents:
        fresh = []
        for sentence in document:
            text = " ".join(sentence)
            if text not in seen:
                seen.add(text)
                fresh.append(sentence)
        if fresh:
            kept.append(fresh)
    return kept


def read_texts(paths: Sequence[PathLike], tokenized: bool, max_tokens: int) -> list[Document]:
    """Documents of the user's own text, up to `max_tokens` tokens of it.

    Args:
        paths: UTF-8 files, plain, .gz or .xz.
        tokenized: one sentence a line, tokens parted by white space; otherwise raw prose, which
            is split into sentences and tokens.

    Raises:
        InputError: a file is not UTF-8, or holds no text.
    """
    read = read_tokenized if tokenized else read_prose
    documents: list[Document] = [[]]
    n_tokens = 0
    for path in paths:
        before = n_tokens
        for sentence in read(read_lines(path)):
            if n_tokens >= max_tokens:
                return documents
            if len(documents[-1]) == _SENTENCES_OF_A_DOCUMENT:
                documents.append([])
            documents[-1].append(sentence)
            n_tokens += len(sentence)
        if n_tokens == before:
            raise InputError(f"{path}: no text in it.")
    return documents


def part(documents: Sequence[Document], share: float, max_tokens: int, seed: int) -> Corpus:
    """Set whole documents aside as held-out text.

    Args:
        share: of the tokens, for held-out text.
        max_tokens: the most of them.
        seed: of the choice, and of the order of the training sentences.

    Raises:
        InputError: there are not two documents.
    """
    if len(documents) < 2:
        raise InputError(
            f"the text is too short to set some of it aside: {_SENTENCES_OF_A_DOCUMENT + 1} "
            "sentences are needed at least."
        )
    order = list(range(len(documents)))
    generator = random.Random(seed)
    generator.shuffle(order)
    total = sum(count_tokens(document) for document in documents)
    wanted, n_heldout, chosen = min(share * total, max_tokens), 0, set()
    for index in order[:-1]:
        if n_heldout >= wanted:
            break
        chosen.add(index)
        n_heldout += count_tokens(documents[index])
    training = [s for i, document in enumerate(documents) if i not in chosen for s in document]
    # Test sentences stand alone; in random order, the text before one tells nothing of it either.
    generator.shuffle(training)
    return Corpus(training, [s for i in sorted(chosen) for s in documents[i]])


def count_tokens(sentences: Iterable[Sentence]) -> int:
    """Tokens of sentences."""
    return sum(map(len, sentences))


def count_words(sentences: Iterable[Sentence]) -> Counter[str]:
    """How often each token occurs."""
    return Counter(token for sentence in sentences for token in sentence)


def write_sentences(path: PathLike, sentences: Iterable[Sentence]) -> None:
    """Write sentences in the form that training reads."""
    with open(path, "w", encoding="utf-8") as text:
        text.writelines(f"{' '.join(sentence)}\n" for sentence in sentences)
