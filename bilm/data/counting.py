"""Building a vocabulary from text: count the words, write the frequent ones."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from bilm.data.counting_processes import count_files
from bilm.data.encoding import BOS, EOS, UNK
from bilm.data.sorted_runs import Record, SortedRuns, by_count
from bilm.data.text_files import ShowStage, Stage, corpus_files, quiet, work_folder
from bilm.data.vocabulary import NOT_A_TOKEN
from bilm.errors import InputError
from bilm.files import PathLike, atomic_write, find_files, read_lines

logger = logging.getLogger(__name__)

MAX_DISTINCT = 2_000_000
"""Different words that `build_vocabulary` holds in memory at once: about 0.5 GB."""

_SPECIAL = (BOS, EOS, UNK)
_NO_WORDS = frozenset((*_SPECIAL, NOT_A_TOKEN))
_TYPES_BETWEEN_LOOKS = 1 << 16


def count_words(filepattern: PathLike) -> Counter[str]:
    """How often each word occurs in text files, exactly and in memory.

    A million different words take about 0.15 GB; `build_vocabulary` needs no more for any text.

    Args:
        filepattern: a glob; words are separated by white space; plain, .gz or .xz.

    Raises:
        FileNotFoundError: nothing matches.
        InputError: a file is not UTF-8 (file and line), or no file holds a word.
    """
    counts: Counter[str] = Counter()
    for path in find_files(filepattern):
        for line in read_lines(path):
            counts.update(line.split())
    if not counts:
        raise InputError(f"{filepattern}: no word in these files.")
    return counts


def write_vocabulary(
    filename: PathLike,
    counts: Mapping[str, int],
    min_count: int = 1,
    max_size: int | None = None,
) -> int:
    """Write a vocabulary file, whole or not at all.

    The order is `<S>`, `</S>`, `<UNK>`, then by falling count, which the sampled softmax relies
    on, then by word, so that the same counts give the same file.

    Args:
        counts: occurrences of each word. Special tokens among the words are not repeated.
        min_count: leave rarer words out.
        max_size: most lines of the file, the three special ones included; None is no bound.

    Returns:
        The number of lines, which is the size of the vocabulary.

    Raises:
        InputError: a word is empty or holds white space, `max_size` is below 3, or no word is left.
        FileNotFoundError: the folder to write into does not exist.
    """
    _require_size(max_size)
    words = [word for word, count in counts.items() if count >= min_count]
    for word in words:
        if word.split() != [word]:
            raise InputError(f"{word!r} cannot stand in a vocabulary: it is not one token.")
    words = [word for word in words if word not in _NO_WORDS]
    if not words:
        raise InputError(f"{filename}: no word occurs {min_count} times or more.")
    words.sort(key=lambda word: (-counts[word], word))
    lines = [*_SPECIAL, *words][:max_size]
    with atomic_write(filename) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return len(lines)


def _require_size(max_size: int | None) -> None:
    if max_size is not None and max_size < len(_SPECIAL):
        raise InputError(f"max_size must be 3 or more (the special tokens), not {max_size}.")


@dataclass(frozen=True)
class VocabularyReport:
    """What a vocabulary was made of.

    Attributes:
        n_tokens: words of the text, each occurrence counted.
        n_types: different words of the text.
        n_words: words of the vocabulary; the three special tokens are not counted.
        n_covered: tokens of the text that are words of the vocabulary.
    """

    n_tokens: int
    n_types: int
    n_words: int
    n_covered: int

    @property
    def size(self) -> int:
        """Lines of the vocabulary file."""
        return self.n_words + len(_SPECIAL)

    @property
    def coverage(self) -> float:
        """Share of the tokens that are words of the vocabulary, 0 to 1."""
        return self.n_covered / self.n_tokens


def build_vocabulary(
    patterns: PathLike | Iterable[PathLike],
    filename: PathLike,
    *,
    min_count: int = 1,
    max_size: int | None = None,
    jobs: int = 1,
    max_distinct: int = MAX_DISTINCT,
    counts_file: PathLike | None = None,
    progress: ShowStage = quiet,
) -> VocabularyReport:
    """Write the vocabulary of text files of any size, whole or not at all.

    The order of the file is that of `write_vocabulary`. Counts are exact in bounded memory: what
    memory does not hold is sorted on the disk, in the folder of `filename`. The result depends on
    the text alone, not on `jobs`, `max_distinct` or the order of the files.

    Args:
        patterns: a glob, or several; plain, .gz or .xz. A file is counted once.
        min_count: leave rarer words out.
        max_size: most lines of the file, the three special ones included; None is no bound.
        jobs: processes to count in; see `count_files` for programs that ask for more than one.
        max_distinct: different words to hold in memory at once; 1 or more.
        counts_file: also write every different word, a tab and its count, in the same order.
        progress: is called now and then with a `Stage`.

    Raises:
        FileNotFoundError: a pattern matches nothing, or a folder to write into does not exist.
        InputError: a file is not UTF-8 (file and line), damaged, or also to be written; no file
            holds a word; no word is left; a number is out of its range.
    """
    _require_size(max_size)
    for name, value in (("jobs", jobs), ("max_distinct", max_distinct)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more, not {value}.")
    files = corpus_files(patterns)
    targets = [os.fspath(path) for path in (filename, counts_file) if path is not None]
    _require_apart(targets, files)
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(atomic_write(path)) for path in targets]
        folder = os.path.dirname(targets[0]) or "."
        work = stack.enter_context(work_folder(folder, ".vocab-"))
        counted = count_files(files, work, jobs=jobs, max_distinct=max_distinct, progress=progress)
        ranking = _rank(counted, work, 1 if counts_file else min_count, max_distinct, progress)
        if not ranking.n_tokens:
            raise InputError(f"{', '.join(_shown(files))}: no word in these files.")
        outputs = [
            stack.enter_context(open(path, "w", encoding="utf-8", newline="\n"))
            for path in temporaries
        ]
        n_words, n_covered = _write_words(ranking.records, min_count, max_size, *outputs)
        if not n_words and max_size != len(_SPECIAL):
            raise InputError(f"{targets[0]}: no word occurs {min_count} times or more.")
    return VocabularyReport(ranking.n_tokens, ranking.n_types, n_words, n_covered)


def _require_apart(targets: Sequence[str], files: Sequence[str]) -> None:
    taken = set(map(os.path.realpath, files))
    for path in targets:
        if os.path.realpath(path) in taken:
            raise InputError(f"{path} is a file of the text, or is to be written twice.")
        taken.add(os.path.realpath(path))


def _shown(files: Sequence[str]) -> list[str]:
    """The names of files for a message, of many the first ones."""
    return [*files] if len(files) <= 3 else [*files[:2], f"... {files[-1]}"]


class _Ranking(NamedTuple):
    """Words by falling count, and what all words come to, those left out included."""

    records: SortedRuns
    n_tokens: int
    n_types: int


def _rank(
    counted: Iterable[Record], folder: PathLike, least: int, limit: int, progress: ShowStage
) -> _Ranking:
    """Sort the words that occur `least` times by count, at most `limit` in memory at once."""
    ranked = SortedRuns(folder, by_count)
    batch: list[Record] = []
    n_tokens = n_types = 0
    for word, count in counted:
        n_tokens += count
        n_types += 1
        if word in _SPECIAL:
            logger.warning(
                "the text holds %s %d times: special tokens are set by the program, not by the "
                "text, and do not count as words",
                word,
                count,
            )
        if count >= least:
            batch.append((word, count))
        if len(batch) >= limit:
            ranked.add(batch)
            batch = []
        if n_types % _TYPES_BETWEEN_LOOKS == 0:
            progress(Stage("merging", n_types, None, "words"))
    ranked.add(batch)
    return _Ranking(ranked, n_tokens, n_types)


def _write_words(
    records: Iterable[Record],
    min_count: int,
    max_size: int | None,
    vocabulary: TextIO,
    counts: TextIO | None = None,
) -> tuple[int, int]:
    """Write the vocabulary, and all counts; gives its number of words and their occurrences."""
    vocabulary.writelines(f"{token}\n" for token in _SPECIAL)
    n_words = n_covered = 0
    room = None if max_size is None else max_size - len(_SPECIAL)
    for word, count in records:
        if counts is not None:
            counts.write(f"{word}\t{count}\n")
        if count >= min_count and n_words != room and word not in _NO_WORDS:
            vocabulary.write(f"{word}\n")
            n_words += 1
            n_covered += count
    return n_words, n_covered
