"""Raw text files to one tokenised file, with one sentence per line, and its record."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bilm.core.errors import TEXT, InputError, integer, one_of, require
from bilm.data.prefetch import map_in_order, windows
from bilm.data.sentences import read_sequences, record_beside, write_record
from bilm.data.tokenizer import ANY_LANGUAGE, Tokenizer, count_invisible, ends_sentence, is_unspaced
from bilm.files.reading import (
    COLUMNS,
    CONLLU,
    FASTA,
    PLAIN,
    PathLike,
    Text,
    find_all_files,
    plain_start,
    read_files,
    size_of,
)
from bilm.files.writing import Outputs, compressed
from bilm.progress import ShowStage, Stage, quiet

LINES = ("sentence", "paragraph", "wrapped")
"""What a line of raw text is: a sentence, a paragraph, or part of one that ends at a blank line."""

# Text per process that makes another process worthwhile, and text sent to a process at once.
_BYTES_PER_JOB, _BLOCK_CHARACTERS = 1 << 20, 1 << 18
# Size of the sample in which the kind of lines is detected.
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 2000, 4_000_000
# Most characters of a joined paragraph: data may lack blank lines.
_LONGEST_PARAGRAPH = 1_000_000
# Limits for lines to count as wrapped prose: the width in characters, and proportions of lines.
_WIDEST = 200
_FULL = 0.8  # at least this many end where the next word would not fit
_FEW_ENDS = 0.4  # fewer end a sentence
_FEW_CAPITALS = 0.5  # fewer are followed by a capital
_SOME_INNER_ENDS = 0.02  # more seem to hold the end of a sentence within the line
# If more lines than this proportion seem to hold several sentences, lines are paragraphs.
_FEW_INNER_ENDS = 0.2


class TokenizedText(NamedTuple):
    """The result of `tokenize_files`."""

    n_sentences: int
    n_tokens: int
    # The kind of lines of each source file: one of `LINES`, or FASTA, CONLLU or COLUMNS of
    # `bilm.files.reading`.
    lines: dict[str, str]
    tokenizer: str  # its name
    n_invisible: int  # characters that `bilm.data.tokenizer.clean` removed


def tokenize(
    text: str, language: str = ANY_LANGUAGE, *, method: str | None = None, lines: str | None = None
) -> list[list[str]]:
    """Split raw text into sentences, each a list of tokens.

    Joined, the tokens are the text's NFC form without white space and invisible characters.

    Args:
        text: raw text of any number of lines.
        language, method: see `Tokenizer`, also for the errors.
        lines: kind of lines: "sentence", "paragraph" (several sentences), or "wrapped" (sentences
            run over several lines, and a blank line ends a paragraph); None: detected.
    """
    require(TEXT, text=text)
    tokenizer = Tokenizer(language, method)
    lines, paragraphs = read_paragraphs(text.split("\n"), tokenizer, lines)
    return list(_split(paragraphs, tokenizer, lines))


def tokenize_files(
    patterns: PathLike | Iterable[PathLike],
    out: PathLike,
    language: str | None = None,
    *,
    method: str | None = None,
    lines: str | None = None,
    column: int | None = None,
    jobs: int = 1,
    progress: ShowStage = quiet,
    overwrite: bool = False,
) -> TokenizedText:
    """Write the sentences of raw text files, one per line, their tokens separated by spaces.

    `out` and `out.tokenizer.json`, with the tokenizer's name, appear when they are complete. Memory
    does not grow with the text.

    Args:
        patterns: one or several globs of UTF-8 text, plain or compressed; read in the order of
            names. In FASTA, each sequence is a sentence and each residue a token; CoNLL-U keeps its
            tokens.
        out: the file to write, compressed if its name ends in .gz or .xz.
        language, method: of plain text, as for `Tokenizer`; None: "xx".
        lines: as for `tokenize`; None: detected from the first 2,000 lines of each file.
        column: write the tokens in this column, from 1, of texts in columns.
        jobs: number of processes, for more than a megabyte of text. They are spawned, so with more
            than one, a program must run its main code under `if __name__ == "__main__":`.
        progress: called regularly with a `Stage`.
        overwrite: False raises an InputError if a file exists.

    Raises:
        FileNotFoundError: a pattern matches nothing, or the folder to write into does not exist.
        InputError: as for `Tokenizer`; a file is not UTF-8 (file and line), damaged or would be
            overwritten; the text is empty.
    """
    require(integer(), jobs=jobs)
    files = find_all_files(patterns)
    tokenizer = Tokenizer(ANY_LANGUAGE if language is None else language, method)
    total = size_of(files)
    jobs = min(jobs, -(-total // _BYTES_PER_JOB))
    kinds: dict[str, str] = {}

    def blocks() -> Iterator[_Paragraphs]:
        for text, sentences in read_files(files, "tokenising", progress, _sentences, column):
            kind, paragraphs = text.kind, sentences
            if kind == PLAIN:
                kind, paragraphs = read_paragraphs(sentences, tokenizer, lines)
            kinds[text.name] = kind
            if kind != FASTA:  # an empty sequence keeps its line
                paragraphs = filter(None, paragraphs)
            for block, _ in windows(paragraphs, len, _BLOCK_CHARACTERS):
                yield block, tokenizer.language, tokenizer.method, kind

    n_sentences = n_tokens = n_invisible = 0
    outputs = Outputs([out, record_beside(out)], inputs={"patterns": files}, overwrite=overwrite)
    with outputs.temporaries() as (temporary, record):
        progress(Stage("tokenising", 0, total))
        with (
            compressed(temporary) as file,
            contextlib.closing(map_in_order(jobs, _tokenize_block, blocks())) as results,
        ):
            for sentences, n_lines, n, n_removed in results:
                if not file.tell():
                    first, _, _ = sentences.partition(b"\n")
                    file.write(plain_start(first.decode()).encode())
                file.write(sentences)
                n_sentences += n_lines
                n_tokens += n
                n_invisible += n_removed
        if not n_sentences:
            raise InputError(f"{files[0]}{' ...' if len(files) > 1 else ''}: no text.")
        kind, *others = {*kinds.values()}
        name = tokenizer.name if others else _NAMES.get(kind, tokenizer.name)
        sizes = {os.path.basename(out): os.path.getsize(temporary)}
        write_record(record, name, sizes, unicode=unicodedata.unidata_version)
    return TokenizedText(n_sentences, n_tokens, kinds, name, n_invisible)


def _sentences(text: Text) -> Iterable[str]:
    """The lines of plain text, and the sentences of FASTA and CoNLL-U, as tokens with spaces."""
    if text.kind == FASTA:
        return (" ".join(residues) for _, residues in read_sequences(text))
    return text.sentences()


# Tokenizer names to record for kinds of text that are already split into tokens.
_NAMES = {CONLLU: CONLLU, COLUMNS: COLUMNS, FASTA: Tokenizer(ANY_LANGUAGE, "residues").name}


# Paragraphs, the language and method of their tokenizer, and their kind (of `LINES` or `_NAMES`).
_Paragraphs = tuple[list[str], str, str, str]
_tokenizer = functools.lru_cache(1)(Tokenizer)  # one per process


def _tokenize_block(block: _Paragraphs) -> tuple[bytes, int, int, int]:
    """Lines of tokens, and the numbers of lines, tokens and removed characters."""
    paragraphs, language, method, kind = block
    n_invisible = 0
    if kind in _NAMES:
        sentences = [sentence.split() for sentence in paragraphs]
    else:
        n_invisible = sum(map(count_invisible, paragraphs))
        sentences = list(_split(paragraphs, _tokenizer(language, method), kind))
    text = "".join(f"{' '.join(sentence)}\n" for sentence in sentences)
    return text.encode(), sum(map(bool, sentences)), sum(map(len, sentences)), n_invisible


def tokens_of_text(
    text: Text, language: str = ANY_LANGUAGE, method: str | None = None, lines: str | None = None
) -> Iterator[list[str]]:
    """The sentences of an open text, read as needed; arguments as for `tokenize_files`."""
    if text.kind == PLAIN:
        tokenizer = Tokenizer(language, method)
        lines, paragraphs = read_paragraphs(text.sentences(), tokenizer, lines)
        yield from _split(paragraphs, tokenizer, lines)
    else:
        yield from map(str.split, _sentences(text))


def read_paragraphs(
    text: Iterable[str], tokenizer: Tokenizer, lines: str | None = None
) -> tuple[str, Iterator[str]]:
    """The kind of lines (see `tokenize`), and an iterator over the paragraphs, or the sentences if
    each line is one."""
    require(one_of((None, *LINES)), lines=lines)
    text = map(str.strip, text)
    if lines is None:
        first: list[str] = []
        size = 0
        for line in itertools.islice(text, _SAMPLE_LINES):
            first.append(line)
            size += len(line)
            if size > _SAMPLE_CHARACTERS:
                break
        lines, text = detect_lines(first, tokenizer), itertools.chain(first, text)
    return lines, _join_wrapped(text) if lines == "wrapped" else filter(None, text)


def _split(paragraphs: Iterable[str], tokenizer: Tokenizer, lines: str) -> Iterator[list[str]]:
    for paragraph in paragraphs:
        sentences = [paragraph] if lines == "sentence" else tokenizer.sentences(paragraph)
        yield from map(tokenizer.tokens, sentences)


def _join_wrapped(text: Iterable[str]) -> Iterator[str]:
    """The paragraphs of wrapped lines, each on one line."""
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


def detect_lines(text: Sequence[str], tokenizer: Tokenizer) -> str:
    """One of `LINES`, from the first lines of a text, without white space around them.

    Lines of wrapped prose end where the next word did not fit; few end with a sentence, and few
    are followed by a capital.
    """
    nonempty = [line for line in text if line]
    pairs = [(line, after) for line, after in itertools.pairwise(text) if line and after]
    # The 98th percentile: a long word may make a few lines longer.
    width = sorted(map(len, nonempty))[int(0.98 * len(nonempty))] if nonempty else 0
    n_several = sum(len(tokenizer.sentences(line)) > 1 for line in nonempty)
    # In verse, and in text without punctuation, no line holds the end of one sentence and the start
    # of the next.
    if pairs and width <= _WIDEST and n_several > _SOME_INNER_ENDS * len(nonempty):
        n_full = sum(len(line) + _length_of_first(after) > width for line, after in pairs)
        n_ends = sum(ends_sentence(line) for line, _ in pairs)
        n_capitals = sum(after[0].isupper() for _, after in pairs)
        few = n_ends < _FEW_ENDS * len(pairs) and n_capitals < _FEW_CAPITALS * len(pairs)
        if few and n_full >= _FULL * len(pairs):
            return "wrapped"
    return "paragraph" if n_several > _FEW_INNER_ENDS * len(nonempty) else "sentence"


def _length_of_first(line: str) -> int:
    """Length of the first word, with the space before it."""
    return 1 if is_unspaced(line[0]) else 1 + len(line.split(maxsplit=1)[0])
