"""Examples from files: tables and JSON lines, checked as they are read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from bilm.core.errors import InputError
from bilm.files.reading import PathLike, read_lines

# A token of raw text: a number, 's, a word with hyphens, any other character.
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*(?!\w)|['’]s\b|\w+(?:-\w+)*|[^\w\s]")
_SHOWN = 80  # characters of a wrong line in a message

T = TypeVar("T")


def find_file(folder: PathLike, name: str) -> str:
    """The file `name` of a folder, plain or compressed (name.gz, name.xz)."""
    path = file_if_there(folder, name)
    if path is None:
        raise FileNotFoundError(f"The file {os.path.join(folder, name)!r} does not exist.")
    return path


def file_if_there(folder: PathLike, name: str) -> str | None:
    """`find_file`, or None for a missing file."""
    paths = (os.path.join(folder, f"{name}{ending}") for ending in ("", ".gz", ".xz"))
    return next(filter(os.path.isfile, paths), None)


def read_json_lines(
    path: PathLike, fields: Mapping[str, type]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its file and line for messages.

    Args:
        path: UTF-8 (plain or compressed), one JSON object per line.
        fields: required fields and their types.
    """
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: must be JSON: {error}.") from None
        if not isinstance(value, dict):
            raise InputError(f"{where}: must be a JSON object, got {line[:_SHOWN]!r}.")
        for name, kind in fields.items():
            if not isinstance(value.get(name), kind):
                raise InputError(
                    f"{where}: {name!r} must be of type {kind.__name__}, got "
                    f"{value.get(name)!r:.80}."
                )
        yield where, value


def read_columns(
    path: PathLike, n_columns: int, *, header: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """The lines of a table with columns separated by tabs, each with its file and line for
    messages; an empty line is an empty list.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if header and number == 1:
            continue
        columns = line.split("\t") if line.strip() else []
        if columns and len(columns) != n_columns:
            raise InputError(
                f"{path}, line {number}: must have {n_columns} columns separated by tabs, got "
                f"{len(columns)}: {line[:_SHOWN]!r}."
            )
        yield f"{path}, line {number}", columns


def as_tokens(value: Any, where: str) -> tuple[str, ...]:
    """A sentence given as text with spaces between tokens, or as a list of tokens."""
    tokens = tuple(value.split()) if isinstance(value, str) else tuple(value)
    if not tokens or not all(isinstance(t, str) and t.split() == [t] for t in tokens):
        raise InputError(f"{where}: must be tokens without spaces, got {value!r:.80}.")
    return tokens


class Spans(NamedTuple):
    """The tokens of raw text, and the offsets of the first character and after the last one."""

    tokens: tuple[str, ...]
    begins: list[int]
    ends: list[int]

    def covering(self, begin: int, end: int) -> tuple[int, int] | None:
        """The first and last token that overlap with a range of characters, or None."""
        found = [
            k for k, (b, e) in enumerate(zip(self.begins, self.ends, strict=True))
            if b < end and e > begin
        ]  # fmt: skip
        return (found[0], found[-1]) if found else None


def tokenise(text: str) -> Spans:
    """Split raw text into tokens by the regular expression `_TOKEN`."""
    found = list(_TOKEN.finditer(text))
    return Spans(
        tuple(match[0] for match in found),
        [match.start() for match in found],
        [match.end() for match in found],
    )


def parts_of(
    folder: PathLike, ending: str, read: Callable[[str], Sequence[T]]
) -> dict[str, list[T]]:
    """The examples of a folder: train, dev and test. Either dev or test may be missing.

    If one is missing, the last tenth of train is the dev part, and the file that exists, dev or
    test, is the test part.
    """
    train = find_file(folder, f"train{ending}")
    dev, test = (file_if_there(folder, f"{part}{ending}") for part in ("dev", "test"))
    if dev is None and test is None:
        find_file(folder, f"test{ending}")
    found = {
        part: list(read(path))
        for part, path in (("train", train), ("dev", dev), ("test", test))
        if path is not None
    }
    if len(found) == 3:
        return found
    n = len(found["train"])
    if n < 2:
        raise InputError(
            f"{train}: must have at least 2 examples, to set a tenth of them aside, got {n}."
        )
    begin = n - max(1, round(0.1 * n))
    return {
        "train": found["train"][:begin],
        "dev": found["train"][begin:],
        "test": found["test" if test else "dev"],
    }
