"""Building a vocabulary from text: count the words, write the frequent ones."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Mapping

from bilm.data.encoding import BOS, EOS, UNK
from bilm.data.vocabulary import NOT_A_TOKEN
from bilm.errors import InputError
from bilm.files import PathLike, atomic_write, find_files, read_lines

logger = logging.getLogger(__name__)

_SPECIAL = (BOS, EOS, UNK)


def count_words(filepattern: PathLike, max_distinct: int | None = None) -> Counter[str]:
    """How often each word occurs in text files.

    Args:
        filepattern: a glob; words are separated by white space; plain, .gz or .xz.
        max_distinct: bounds the memory: whenever more different words than this are held, the
            rarer half is forgotten, so that the counts of rare words may come out too low. None
            counts all exactly; a million words take about 0.15 GB.

    Raises:
        FileNotFoundError: nothing matches.
        InputError: a file is not UTF-8 (file and line), or no file holds a word.
    """
    if max_distinct is not None and max_distinct < 2:
        raise InputError(f"max_distinct must be 2 or more, not {max_distinct}.")
    counts: Counter[str] = Counter()
    for path in find_files(filepattern):
        for line in read_lines(path):
            counts.update(line.split())
            if max_distinct is not None and len(counts) > max_distinct:
                counts = _frequent_half(counts)
    if not counts:
        raise InputError(f"{filepattern}: no word in these files.")
    return counts


def _frequent_half(counts: Counter[str]) -> Counter[str]:
    kept = heapq.nsmallest(len(counts) // 2, counts, key=lambda word: (-counts[word], word))
    logger.warning(
        "%d different words: those that occurred less than %d times so far are forgotten",
        len(counts),
        counts[kept[-1]],
    )
    return Counter({word: counts[word] for word in kept})


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
    if max_size is not None and max_size < len(_SPECIAL):
        raise InputError(f"max_size must be 3 or more (the special tokens), not {max_size}.")
    words = [word for word, count in counts.items() if count >= min_count]
    for word in words:
        if word.split() != [word]:
            raise InputError(f"{word!r} cannot stand in a vocabulary: it is not one token.")
    words = [word for word in words if word not in (*_SPECIAL, NOT_A_TOKEN)]
    if not words:
        raise InputError(f"{filename}: no word occurs {min_count} times or more.")
    words.sort(key=lambda word: (-counts[word], word))
    lines = [*_SPECIAL, *words][:max_size]
    with atomic_write(filename) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return len(lines)
