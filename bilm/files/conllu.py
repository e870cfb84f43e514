"""CoNLL-U: one token per line in ten fields separated by tabs, an empty line after each sentence.

https://universaldependencies.org/format.html
"""

import re
from collections.abc import Iterable, Iterator

from bilm.core.errors import InputError, shown

N_FIELDS = 10
# The ids of a word, of a multiword token (3-4), and of an empty node (5.1).
_ID = re.compile(r"(\d+)(?:-(\d+)|\.\d+)?")
_FIRST_ID, _HEAD = re.compile(r"1|1-\d+|0\.1"), re.compile(r"\d+|_")


def looks_like_conllu(lines: Iterable[str]) -> bool | None:
    """Whether the first line with content is the first token of a CoNLL-U file; None if there are
    only comments. A file that begins with an empty line is not CoNLL-U."""
    is_first = True
    for line in lines:
        if line.startswith("#") or not (line.strip() or is_first):
            is_first = False
            continue
        fields = line.split("\t")
        is_token = len(fields) == N_FIELDS and _FIRST_ID.fullmatch(fields[0]) is not None
        return is_token and _HEAD.fullmatch(fields[6]) is not None
    return None


def read_tokens(lines: Iterable[str], source: object) -> Iterator[list[str] | None]:
    """The ten fields of each line with a token; None after each sentence.

    Raises:
        InputError: a line is malformed, or an id does not follow the one before it, such as 1
            without an empty line after the last sentence (file and line).
    """
    last = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            last = 0
            yield None
        elif not line.startswith("#"):
            fields, where = line.split("\t"), f"{source}, line {number}"
            match = _ID.fullmatch(fields[0])
            if len(fields) != N_FIELDS or match is None or not fields[1].strip():
                raise InputError(
                    f"{where}: must be ten fields separated by tabs, an id and a token first, got "
                    f"{shown(line)}."
                )
            is_word, first = match[0] == match[1], int(match[1])
            if first <= last and (is_word or match[2]):
                raise InputError(
                    f"{where}: the id {match[0]} must not follow {last}: an empty line ends each "
                    "sentence."
                )
            last = first if is_word else last
            yield fields
    yield None


def read_sentences(lines: Iterable[str], source: object) -> Iterator[list[str]]:
    """The tokens of each sentence as they are written: the column FORM of multiword tokens, and of
    words outside them. Errors as for `read_tokens`."""
    tokens: list[str] = []
    divided = 0  # id of the last word of the latest multiword token
    for fields in read_tokens(lines, source):
        if fields is None:
            if tokens:
                yield tokens
            tokens, divided = [], 0
            continue
        first, dash, last = fields[0].partition("-")
        if dash:
            divided = int(last)
        if dash or ("." not in first and int(first) > divided):
            tokens.append(fields[1].strip())
