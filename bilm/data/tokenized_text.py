"""Raw text files to one tokenised file, and the record of how it was tokenised.

The text has one sentence per line; the tokenizer's name is recorded in a JSON file next to the
text, `NAME.tokenizer.json`, or in `tokenizer.json` for all texts of a folder. `bilm shard` and
`bilm train` copy it, finally into the model's options.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bilm.core.errors import TEXT, InputError, one_of, require, shown
from bilm.data.tokenizer import ANY_LANGUAGE, Tokenizer, ends_sentence, is_unspaced
from bilm.files.reading import (
    TOKENIZER_FILE,
    PathLike,
    ShowStage,
    find_all_files,
    quiet,
    read_files,
    read_json_object,
    require_path,
)
from bilm.files.writing import atomic_write_all, compressed_as, write_json

LINES = ("sentence", "paragraph", "wrapped")
"""What a line of raw text is: a sentence, a paragraph, or part of one that ends at a blank line."""

# Lines in the sample that decides what a line is.
_LOOKED_AT = 2000
# Most characters of a joined paragraph: data may lack blank lines.
_LONGEST_PARAGRAPH = 1_000_000
# Largest width of wrapped prose, and the least proportion of its lines that are as full as the next
# word allows.
_WIDEST, _FULL = 200, 0.8
# Largest proportions of wrapped lines that end a sentence, and that are followed by a capital; of
# one-sentence lines that seem to hold two sentences.
_FEW_ENDS, _FEW_CAPITALS, _FEW_INNER_ENDS = 0.4, 0.5, 0.2


class TokenizedText(NamedTuple):
    """Numbers of sentences and tokens of a tokenised text, the kind of lines of each source file
    (one of `LINES`), and the tokenizer's name."""

    n_sentences: int
    n_tokens: int
    lines: dict[str, str]
    tokenizer: str


def tokenize(
    text: str, language: str = ANY_LANGUAGE, *, method: str | None = None, lines: str | None = None
) -> list[list[str]]:
    """Split raw text into sentences, each a list of tokens.

    Joined, the tokens are the text's NFC form without white space.

    Args:
        text: raw text of any number of lines.
        language, method: see `Tokenizer`, also for the errors.
        lines: kind of lines: "sentence", "paragraph" (several sentences), or "wrapped" (sentences
            run over several lines, and a blank line ends a paragraph); None: detected.
    """
    require(TEXT, text=text)
    tokenizer = Tokenizer(language, method)
    _, sentences = split_text(text.split("\n"), tokenizer, lines)
    return list(sentences)


def tokenize_files(
    patterns: PathLike | Iterable[PathLike],
    out: PathLike,
    language: str = ANY_LANGUAGE,
    *,
    method: str | None = None,
    lines: str | None = None,
    progress: ShowStage = quiet,
    overwrite: bool = False,
) -> TokenizedText:
    """Write the sentences of raw text files, one per line, their tokens separated by spaces.

    `out` and `out.tokenizer.json`, with the tokenizer's name, appear when they are complete. Memory
    does not grow with the text.

    Args:
        patterns: a glob, or several: UTF-8 text, plain, .gz or .xz; read in the order of names.
        out: the file to write, compressed if its name ends in .gz or .xz.
        language, method: as for `Tokenizer`.
        lines: as for `tokenize`; None: detected from the first 2,000 lines of each file.
        progress: called regularly with a `Stage`.
        overwrite: False raises an error if a file exists.

    Raises:
        FileNotFoundError: a pattern matches nothing, or the folder to write into does not exist.
        InputError: as for `Tokenizer`; a file is not UTF-8 (file and line), damaged or would be
            overwritten; the text is empty.
    """
    tokenizer = Tokenizer(language, method)
    files = find_all_files(patterns)
    of_file: dict[str, str] = {}
    n_sentences = n_tokens = 0
    with atomic_write_all([out, record_beside(out)], overwrite=overwrite) as (temporary, record):
        write_record(record, tokenizer.name)
        with compressed_as(out, temporary) as file:
            for path, read in read_files(files, "tokenising", progress):
                of_file[path], sentences = split_text(read, tokenizer, lines)
                for sentence in sentences:
                    file.write(f"{' '.join(sentence)}\n".encode())
                    n_sentences += 1
                    n_tokens += len(sentence)
        if not n_sentences:
            raise InputError(f"{files[0]}{' ...' if len(files) > 1 else ''}: no text.")
    return TokenizedText(n_sentences, n_tokens, of_file, tokenizer.name)


def split_text(
    text: Iterable[str], tokenizer: Tokenizer, lines: str | None = None
) -> tuple[str, Iterator[list[str]]]:
    """The kind of lines (see `tokenize`), and an iterator over the sentences' tokens, which reads
    lines as needed."""
    require(one_of((None, *LINES)), lines=lines)
    text = map(str.strip, text)
    if lines is None:
        first = list(itertools.islice(text, _LOOKED_AT))
        lines, text = what_lines_are(first, tokenizer), itertools.chain(first, text)
    return lines, _sentences(text, tokenizer, lines)


def _sentences(text: Iterable[str], tokenizer: Tokenizer, lines: str) -> Iterator[list[str]]:
    for paragraph in _joined(text) if lines == "wrapped" else filter(None, text):
        sentences = [paragraph] if lines == "sentence" else tokenizer.sentences(paragraph)
        yield from map(tokenizer.tokens, sentences)


def _joined(text: Iterable[str]) -> Iterator[str]:
    """The paragraphs of wrapped lines."""
    parts: list[str] = []
    length = 0
    for line in itertools.chain(text, [""]):
        if parts and (not line or length > _LONGEST_PARAGRAPH):
            yield "".join(parts)
            parts, length = [], 0
        if line:
            # Scripts such as Chinese have no space to restore.
            if parts and not (is_unspaced(parts[-1][-1]) and is_unspaced(line[0])):
                parts.append(" ")
            parts.append(line)
            length += len(line)


def what_lines_are(text: Sequence[str], tokenizer: Tokenizer) -> str:
    """One of `LINES`, from the first lines of a text, without white space around them.

    Lines of wrapped prose end where the next word did not fit; few end with a sentence, and few
    are followed by a capital.
    """
    filled = [line for line in text if line]
    pairs = [(line, after) for line, after in itertools.pairwise(text) if line and after]
    # The 98th percentile: a long word may make a few lines longer.
    width = sorted(map(len, filled))[int(0.98 * len(filled))] if filled else 0
    if pairs and width <= _WIDEST:
        n_full = sum(len(line) + _length_of_first(after) > width for line, after in pairs)
        n_ends = sum(ends_sentence(line) for line, _ in pairs)
        n_capitals = sum(after[0].isupper() for _, after in pairs)
        few = n_ends < _FEW_ENDS * len(pairs) and n_capitals < _FEW_CAPITALS * len(pairs)
        if few and n_full >= _FULL * len(pairs):
            return "wrapped"
    n_several = sum(len(tokenizer.sentences(line)) > 1 for line in filled)
    return "paragraph" if n_several > _FEW_INNER_ENDS * len(filled) else "sentence"


def _length_of_first(line: str) -> int:
    """Length of the first word, with the space before it."""
    return 1 if is_unspaced(line[0]) else 1 + len(line.split(maxsplit=1)[0])


# The record


def record_beside(path: PathLike) -> str:
    """The name of the record of one text."""
    return f"{require_path(path, 'a text file')}.{TOKENIZER_FILE}"


def write_record(path: PathLike, tokenizer: str) -> None:
    """Write the name of a tokenizer as a record."""
    write_json(path, {"tokenizer": tokenizer})


def read_record(files: Iterable[PathLike]) -> str | None:
    """The name of the tokenizer of all texts; None if a record is missing, or they differ."""
    names: set[str | None] = set()
    for file in files:
        records = (record_beside(file), os.path.join(os.path.dirname(file), TOKENIZER_FILE))
        record = next(filter(os.path.isfile, records), None)
        name = read_json_object(record).get("tokenizer") if record else None
        if record and not isinstance(name, str):
            raise InputError(f"{record}: tokenizer must be text, got {shown(name)}.")
        names.add(name)
    return names.pop() if len(names) == 1 else None
