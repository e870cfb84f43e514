"""Building a vocabulary from text: counting words, in one process or several, and writing them."""

import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bilm.core.errors import InputError, integer, require, require_at_least
from bilm.core.options import CharCNNOptions
from bilm.data.encoding import BOS, EOS, UNK, is_cut
from bilm.data.prefetch import map_in_order, windows
from bilm.data.sentences import warn_if_untokenized
from bilm.data.vocabulary import NOT_A_TOKEN
from bilm.files.reading import PLAIN, PathLike, Text, find_all_files, read_files, read_text, size_of
from bilm.files.writing import Outputs, atomic_write, text_file
from bilm.progress import ShowStage, Stage, quiet

logger = logging.getLogger(__name__)

_SPECIAL = (BOS, EOS, UNK)
MAX_CHARACTERS = CharCNNOptions.max_characters_per_token
"""The default maximum of bytes per word, including two boundary characters."""
_NO_WORDS = frozenset((*_SPECIAL, NOT_A_TOKEN))
_MOST_CHARACTERS = 1 << 22  # maximum that a process counts at once


def count_words(
    patterns: PathLike | Iterable[PathLike],
    *,
    jobs: int = 1,
    progress: ShowStage = quiet,
    least_block: int = 1 << 20,
) -> Counter[str]:
    """The number of occurrences of each word in text files.

    A million different words take about 0.15 GB in each process.

    Args:
        patterns: one or several globs of plain or compressed files. Each file is counted once.
        jobs: number of processes. They are spawned, so with more than one, a program must run its
            main code under `if __name__ == "__main__":`.
        progress: called regularly with a `Stage` of the bytes read.
        least_block: minimum number of characters that a process counts at once.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        InputError: a file is not UTF-8 (file and line) or damaged, the files hold no word, or a
            process was killed.
    """
    files = find_all_files(patterns)
    total = size_of(files)
    size = max(least_block, min(total // (32 * jobs), _MOST_CHARACTERS))
    counts: Counter[str] = Counter()
    progress(Stage("counting", 0, total))
    blocks = (
        "".join(group)
        for _, lines in read_files(files, "counting", progress, _blocks)
        for group, _ in windows(lines, len, size)
    )
    with contextlib.closing(map_in_order(jobs if total > size else 1, _count, blocks)) as results:
        for block_counts in results:
            counts.update(block_counts)
    if not counts:
        raise InputError(f"{files[0]}{' ...' if len(files) > 1 else ''}: no word in these files.")
    return counts


def _blocks(text: Text) -> Iterable[str]:
    """Blocks of lines: of plain text as they are in the file."""
    return text.blocks() if text.kind == PLAIN else (f"{line}\n" for line in text.sentences())


def _count(block: str) -> Counter[str]:
    return Counter(block.split())


def write_vocabulary(
    filename: PathLike, counts: Mapping[str, int], min_count: int = 1, max_size: int | None = None
) -> int:
    """Write a vocabulary file, which appears only when complete.

    The order is `<S>`, `</S>`, `<UNK>`, then descending count, on which the sampled softmax relies;
    ties are sorted by word, so that the file is reproducible.

    Args:
        counts: occurrences of each word; special tokens among them are not repeated.
        min_count: minimum number of occurrences of a word.
        max_size: maximum number of lines, including the three special tokens; None: no limit.

    Returns:
        The number of lines, which is the size of the vocabulary.

    Raises:
        InputError: a word is empty or holds white space, `max_size` is below 3, or no word remains.
    """
    require_at_least(len(_SPECIAL), max_size=max_size)
    for word, count in counts.items():
        if count >= min_count and word.split() != [word]:
            raise InputError(f"{word!r} cannot be in a vocabulary: it is not one token.")
    words = _ranked(counts, min_count, max_size)
    with atomic_write(filename) as temporary:
        _write(temporary, words)
    return len(_SPECIAL) + len(words)


def _ranked(counts: Mapping[str, int], min_count: int, max_size: int | None) -> list[str]:
    """The words of a vocabulary, in its order, without the special tokens."""
    frequent = [
        word for word, count in counts.items() if count >= min_count and word not in _NO_WORDS
    ]
    if not frequent:
        raise InputError(f"No word occurs {min_count} times or more.")
    words = sorted(frequent, key=lambda word: (-counts[word], word))
    return words if max_size is None else words[: max_size - len(_SPECIAL)]


def _write(path: str, words: Iterable[str]) -> None:
    with text_file(path) as file:
        file.writelines(f"{word}\n" for word in itertools.chain(_SPECIAL, words))


class VocabularyReport(NamedTuple):
    """The size of a text and of its vocabulary."""

    n_tokens: int
    n_types: int  # distinct tokens
    n_words: int  # words of the vocabulary, without the three special tokens
    n_covered: int  # tokens that are in the vocabulary
    # Types and tokens that a model with the default `max_characters_per_token` cuts.
    n_cut_types: int = 0
    n_cut_tokens: int = 0

    @property
    def size(self) -> int:
        """Lines of the vocabulary file."""
        return self.n_words + len(_SPECIAL)

    @property
    def coverage(self) -> float:
        """Proportion of tokens that are in the vocabulary, 0 to 1."""
        return self.n_covered / self.n_tokens


def build_vocabulary(
    patterns: PathLike | Iterable[PathLike],
    filename: PathLike,
    *,
    min_count: int = 1,
    max_size: int | None = None,
    jobs: int = 1,
    progress: ShowStage = quiet,
    overwrite: bool = True,
) -> VocabularyReport:
    """Write the vocabulary of text files, which appears only when complete.

    Arguments, order and errors as for `count_words` and `write_vocabulary`.

    Args:
        overwrite: False raises an InputError if `filename` exists.
    """
    require_at_least(len(_SPECIAL), max_size=max_size)
    require(integer(), jobs=jobs)
    files = find_all_files(patterns)
    outputs = Outputs([filename], inputs={"patterns": files}, overwrite=overwrite)
    with outputs.temporaries() as (temporary,):
        warn_if_untokenized(map(str.split, read_text(files[0])), files[0])
        counts = count_words(files, jobs=jobs, progress=progress)
        for word in counts.keys() & set(_SPECIAL):
            logger.warning(
                "the text holds %s %d times: special tokens do not count as words",
                word,
                counts[word],
            )
        words = _ranked(counts, min_count, max_size)
        _write(temporary, words)
    n_covered = sum(counts[word] for word in words)
    cut_counts = [n for word, n in counts.items() if is_cut(word, MAX_CHARACTERS)]
    return VocabularyReport(
        counts.total(), len(counts), len(words), n_covered, len(cut_counts), sum(cut_counts)
    )
