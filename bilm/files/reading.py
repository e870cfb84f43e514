"""Reading text and JSON files, and checks on the names of files."""

import bz2
import codecs
import contextlib
import csv
import functools
import glob
import gzip
import hashlib
import io
import itertools
import json
import logging
import lzma
import os
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bilm.core.errors import InputError, iterable, require, shown, without_secrets
from bilm.files import conllu
from bilm.progress import ShowStage, Stage

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]
TextSource = PathLike | IO[bytes]
"""A text file, or a binary stream of text."""

# The files of a model folder; a training folder also holds the last two.
WEIGHTS_FILE, OPTIONS_FILE, VOCABULARY_FILE = "model.hdf5", "options.json", "vocab.txt"
STATE_FILE = "checkpoint"  # of a training folder: the names of its checkpoints
HDF5 = (".hdf5", ".h5")
TOKENIZER_FILE = "tokenizer.json"
"""The record of how a folder's texts were tokenised; a single text has TEXT.tokenizer.json."""
SAVED_MODEL_FILES = ("saved_model.pb", "fingerprint.pb", "variables/variables.index",
                     "variables/variables.data-00000-of-00001")  # fmt: skip
"""The files of a SavedModel; the first one identifies it."""

LONGEST_LINE = 2**24
"""Maximum number of bytes in a line of text, and in a word."""


# Names


def find_files(pattern: PathLike) -> list[str]:
    """The files that a glob matches, sorted by name; see `matching_files`."""
    pattern = require_path(pattern, "a pattern of files")
    files = matching_files(pattern)
    if not files:
        raise FileNotFoundError(f"No file matches {pattern!r}.{_hint(pattern)}")
    return files


def _hint(pattern: str) -> str:
    """Why a pattern matches no file, as text to append to a message; may be empty."""
    folder = os.path.join(pattern, "")
    starts = [f"{folder}train-", folder] if os.path.isdir(pattern) else [pattern]
    for start in filter(None, starts):
        if matching_files(f"{glob.escape(start)}*"):
            return f" Name files by a pattern: '{start}*'."
    return " It is not a regular file." if os.path.exists(pattern) else ""


def matching_files(pattern: str) -> list[str]:
    """The files that a glob matches, sorted by name; may be empty.

    Records of `bilm tokenize` are skipped. Brackets in the name of an existing file or folder are
    literal.
    """
    if os.path.isfile(pattern):
        return [pattern]
    folder = os.path.dirname(pattern)
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    matches = glob.glob(glob.escape(folder) + pattern.removeprefix(folder))
    files = sorted(filter(os.path.isfile, matches))
    return [path for path in files if not path.endswith(TOKENIZER_FILE)]


def find_all_files(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that one or several globs match, without duplicates, sorted by name."""
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    require(iterable("names of files"), patterns=patterns)
    files: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in find_files(pattern)}):
        files.setdefault(os.path.realpath(path), path)
    if not files:
        raise InputError("patterns must name at least one file.")
    return list(files.values())


def require_path(path: Any, what: str = "a file or folder") -> str:
    """The name of a file or folder as text."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise InputError(f"The name of {what} must be text or a path, got {shown(path)}.")
    return os.fsdecode(path)


def require_file(path: PathLike, what: str) -> str:
    """The name of a file that exists, as text."""
    path = require_path(path, f"the {what}")
    if not os.path.isfile(path):
        problem = "is not a regular file" if os.path.exists(path) else "does not exist"
        raise FileNotFoundError(f"The {what} {without_secrets(path)!r} {problem}.")
    add_input(path)
    return path


class _CommandFiles:
    """The files of a subcommand, by device and inode: inputs, and outputs that it may replace; and
    the outputs that did not exist at its start."""

    def __init__(self) -> None:
        self.inputs: set[tuple[int, int]] = set()
        self.replaced: dict[tuple[int, int], str] = {}
        self.new: set[str] = set()

    def add(self, path: str, is_output: bool) -> None:
        """Add an existing file, which must not be both input and output."""
        status = os.stat(path)
        key = (status.st_dev, status.st_ino)
        if is_output:
            self.replaced[key] = path
        else:
            self.inputs.add(key)
        if key in self.inputs and key in self.replaced:
            raise InputError(f"{self.replaced[key]!r} is an input: name another output.")


_commands: list[_CommandFiles] = []  # the running subcommand's last; empty in other programs


@contextlib.contextmanager
def protected_files() -> Iterator[None]:
    """Within the block, which is a subcommand, no file that it reads is replaced, even with
    --force, and without it no file that appears meanwhile."""
    _commands.append(_CommandFiles())
    try:
        yield
    finally:
        _commands.pop()


def add_input(path: str) -> None:
    """Record that the subcommand reads a file; `require_file` does so."""
    for files in _commands[-1:]:
        files.add(path, is_output=False)


def declare_outputs(paths: Iterable[str], *, updated: Iterable[str], overwrite: bool) -> None:
    """Declare the outputs of the subcommand; it may read the `updated` ones."""
    for files in _commands[-1:]:
        for path in filter(os.path.isfile, paths := list(paths)):
            files.add(path, is_output=True)
        for path in itertools.chain(updated, [] if overwrite else paths):
            if not os.path.exists(path):
                files.new.add(os.path.realpath(path))


def must_be_new(path: str) -> bool:
    """Whether the subcommand may not replace a file that it writes now, for the first time."""
    new = _commands[-1].new if _commands else set()
    is_new = os.path.realpath(path) in new
    new.discard(os.path.realpath(path))
    return is_new


def holds_checkpoint(save_dir: PathLike) -> bool:
    """Whether a folder holds a checkpoint. (A run that was killed while it wrote its first one
    leaves the file `checkpoint` without one.)"""
    return any(Path(save_dir).glob("model.ckpt-*.index"))


def size_of(files: Iterable[PathLike]) -> int:
    """The total size of files on the disk, in bytes."""
    return sum(map(os.path.getsize, files))


# Text

# Kinds of text, recognised by their first lines, or chosen with a column.
PLAIN, FASTA, CONLLU, COLUMNS = "plain text", "FASTA", "CoNLL-U", "columns"
# Content that failed downloads leave instead of a file, recognised by its first characters.
_SUBSTITUTES = {
    "a web page (HTML or XML)": re.compile(
        r"<(!doctype|html|\?xml|head|error|mediawiki)\b", re.IGNORECASE
    ),
    "a Git LFS pointer instead of the file, which `git lfs pull` gets": re.compile(
        "version https://git-lfs"
    ),
}
# Kinds without sentences, recognised by the start of the text.
_TAGGED = "text with tags"
_TAGS = "body|corpus|div|docs?|document|p|s|sent|sentence|seg|tei\\w*|texts?|tok|w"
_NO_SENTENCES = {
    **_SUBSTITUTES,
    # <S> is the beginning of a sentence, as in the text of other language models.
    _TAGGED: re.compile(rf"[ \t]*(?!(?-i:<S>))<({_TAGS})(\s[^<>\n]*)?/?>", re.I),
    "JSON": re.compile(
        r'(\[\s*)?\{\s*"[^"\n]*"\s*:|\[(\s*\n\s*)?("(\\.|[^"\\\n])*"\s*[],]|\[["\d-])'
    ),
    "subtitles": re.compile(
        r"[ \t]*\d+\s*\n(\d+:)?\d\d:\d\d[,.]\d{3} -->|WEBVTT\b|\{\d+\}\{\d+\}|\[Script Info\]|"
        r"\d+:\d\d:\d\d\.\d{3},\d+:"
    ),
    "RTF": re.compile(r"\{\\rtf"),
    "LaTeX": re.compile(r"(%.*\n\s*)*\\(documentclass|begin\{)"),
    "syntactic trees": re.compile(r"\(\s*\(?(ROOT|TOP|S1?|NP|SQ|SINV|SBARQ|FRAG)\b\S*\s+\("),
    "a transcript (CHAT, TextGrid)": re.compile(r'@UTF8|@Begin|File type = "ooTextFile'),
}
# A name in the first row of a table; the markup around sentences in columns.
_HEADER, _MARKUP = re.compile(r'"?[^\W\d][\w ./()%-]{0,39}"?'), re.compile(r"</?\w[^<>]*>\s*")
# The last column of text in columns with spaces: O, B-PER, NN, 12, (S*
_LAST_COLUMN = re.compile(r"[A-Z\d_(*,.:;$#`'-]\S*")
_LEAST_ROWS = 4  # that show columns with spaces
_TABLE = "a table with tabs"

_BLOCK = 1 << 16  # bytes to decode at once
_HEAD = 512  # bytes that identify the format of a file
_LONGEST_HEADER = 16 * _BLOCK  # most characters of comments before the first token of CoNLL-U
_COMPRESSION: tuple[tuple[re.Pattern[bytes], Callable[[IO[bytes]], Any]], ...] = (
    (re.compile(rb"\x1f\x8b"), lambda stream: gzip.GzipFile(fileobj=stream)),
    (re.compile(rb"\xfd7zXZ\0"), lambda stream: _decompressing(stream, lzma.LZMADecompressor)),
    (
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
        lambda stream: _decompressing(stream, bz2.BZ2Decompressor),
    ),
)
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)
# First bytes of files that are not UTF-8, their format, and what to do.
_NOT_TEXT = (
    (re.compile(rb"PK\x03\x04"), "a ZIP file", "Unpack it first"),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), "a 7z archive", "Unpack it first: 7z x FILE"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "Zstandard data", "Unpack it first: zstd -d FILE"),
    (re.compile(rb"\x04\x22\x4d\x18"), "LZ4 data", "Unpack it first: lz4 -d FILE"),
    (re.compile(rb"(?s:.{257})ustar"), "a tar archive", "Unpack it first: tar -xf FILE"),
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), "UTF-32", "Convert it: iconv -f UTF-32 -t UTF-8"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8"),
    (re.compile(rb"([^\0]\0){4}"), "UTF-16", "Convert it: iconv -f UTF-16LE -t UTF-8"),
    (re.compile(rb"(\0[^\0]){4}"), "UTF-16", "Convert it: iconv -f UTF-16BE -t UTF-8"),
    (re.compile(rb"%PDF"), "a PDF file", "Extract its text first: pdftotext FILE"),
    (re.compile(rb"\x89HDF|PAR1|\x93NUMPY|\x89PNG"), "a binary file", "Name a text file"),
)


def new_digest() -> hashlib.blake2b:
    """A hash for the bytes of a text, see `text_digest`."""
    return hashlib.blake2b(digest_size=16)


def text_digest(path: PathLike) -> str:
    """The identity of a text: a hexadecimal hash of its bytes, decompressed.

    `open_text`, `read_lines` and `read_text` compute it while they read to the end, given a
    `new_digest()`.
    """
    digest = new_digest()
    with open_text(path, digest=digest) as text:
        for _ in text.blocks():
            pass
    return digest.hexdigest()


class Text:
    """A text file or stream, which can be read once: as `blocks`, `lines` or `sentences`.

    The format is recognised by content, not by name: gzip, xz and bzip2 data is decompressed;
    text whose first character is ">" is FASTA; text whose first line, after comments, is a token of
    CoNLL-U is CoNLL-U. Other formats (tables, columns, tags, JSON ...) are recognised in the first
    lines and have no sentences. A byte order mark at the start is dropped.

    Args:
        stream: binary stream.
        name: the stream's name in messages.
        digest: updated with the decompressed bytes as they are read.
        column: number, from 1, of the column with the tokens, for text in columns.

    Raises:
        InputError: the data is damaged or not UTF-8, or has a NUL byte or a line of more than
            `LONGEST_LINE` bytes (line, and the kind of file if it is not text); also in reading.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: PathLike,
        digest: hashlib.blake2b | None = None,
        column: int | None = None,
    ) -> None:
        self.name = os.fspath(name)
        self._stream = stream
        self._digest = digest
        data = decompressed(stream)
        # `read1` returns the bytes of a pipe that have arrived.
        self._blocks = self._decode(getattr(data, "read1", data.read))
        self._first = next(self._blocks, "")
        self._column = column

    @functools.cached_property
    def kind(self) -> str:
        """PLAIN, FASTA, CONLLU, COLUMNS (with `column`), or a kind without sentences, such as
        "JSON"."""
        if self._column is not None:
            return COLUMNS
        kind = None
        # The first read of a pipe may be short.
        while len(self._first) < _BLOCK or (kind := _kind(self._first)) is None:
            if not (more := next(self._blocks, "")):
                break
            self._first += more
        return kind or _kind(self._first) or PLAIN

    @property
    def unit(self) -> str:
        """What `sentences` yields: "line", "sequence" or "sentence"."""
        return {FASTA: "sequence", PLAIN: "line"}.get(self.kind, "sentence")

    def bytes_read(self) -> int:
        """Bytes read of a file on the disk, which may be compressed."""
        return os.lseek(self._stream.fileno(), 0, os.SEEK_CUR)

    def blocks(self) -> Iterator[str]:
        """The text in blocks of complete lines, with their ends."""
        return itertools.chain([self._first] if self._first else [], self._blocks)

    def lines(self) -> Iterator[str]:
        """The lines as they are in the file, without their ends, LF or CRLF."""
        for block in self.blocks():
            lines = block.removesuffix("\n").split("\n")
            yield from [line.rstrip("\r") for line in lines] if "\r" in block else lines

    def sentences(self) -> Iterator[str]:
        """The sentences: the lines of plain text, which may be empty; for CoNLL-U the tokens as
        written (column FORM; multiword tokens are not split), joined by spaces.

        Raises:
            InputError: the text is FASTA or has no sentences; a line of CoNLL-U is malformed.
        """
        if self.kind == COLUMNS:
            return self._joined(_read_column(self.lines(), self._column or 1, self.name))
        if self.kind == FASTA:
            raise InputError(
                f"{self.name} is FASTA, because it begins with '>'. `bilm tokenize "
                f"{shlex.quote(self.name)} OUT` writes its sequences as sentences. If it is plain "
                "text, put an empty line before it."
            )
        if self.kind == CONLLU:
            return self._joined(conllu.read_sentences(self.lines(), self.name))
        if self.kind == PLAIN:
            return self.lines()
        name, cure = shlex.quote(self.name), "Extract its text first"
        if self.kind == _TABLE:
            cure = f"Cut out its column N of sentences first: cut -f N {name} > OUT"
        elif "columns" in self.kind:
            cure = f"`bilm tokenize {name} OUT --column N` writes its column N"
        raise InputError(
            f"{self.name}: must be text, got {self.kind}. {cure}; if it is plain text, put an "
            "empty line before it."
        )

    def _joined(self, sentences: Iterable[Sequence[str]]) -> Iterator[str]:
        """Sentences as text, with a warning about tokens with spaces in them."""
        n_divided = 0
        for tokens in sentences:
            sentence = " ".join(tokens)
            n_words = len(sentence.split())
            n_divided += n_words != len(tokens)
            if self.kind == COLUMNS and n_words > 2 * len(tokens):
                raise InputError(
                    f"{self.name}: column {self._column} must have tokens, got sentences. Cut it "
                    f"out: cut -f {self._column} {shlex.quote(self.name)} > OUT"
                )
            yield sentence
        if n_divided:
            warn_once(
                f"{self.name}: {n_divided:,} sentences have tokens with spaces in them, which are "
                "read as several tokens"
            )

    def _decode(self, read: Callable[[int], bytes]) -> Iterator[str]:
        """Blocks of complete lines from the data that `read` returns."""
        n_lines, rest, data = 0, b"", b"?"
        while data:
            with compressed_damage_named(f"{self.name}, after line {n_lines}"):
                data = read(_BLOCK)
            if self._digest is not None:
                self._digest.update(data)
            content = rest + data
            self._require_short_line(content, n_lines)
            end = content.rfind(b"\n") + 1 if data else len(content)
            block, rest = content[:end], content[end:]
            if n_lines == 0:
                block = block.removeprefix(codecs.BOM_UTF8)
            text, wrong, problem = _decoded_lines(block)
            if text:
                yield text
            if problem:
                for magic, name, cure in _NOT_TEXT if n_lines == 0 else ():
                    if magic.match(content[:_HEAD]):
                        raise InputError(f"{self.name}: must be UTF-8 text, got {name}. {cure}.")
                line = n_lines + text.count("\n") + 1
                number = wrong - (block.rfind(b"\n", 0, wrong) + 1)
                where = f"byte {number} is 0x{block[wrong]:02x}"
                raise InputError(f"{self.name}, line {line}: {problem.format(where)}.")
            n_lines += text.count("\n")

    def _require_short_line(self, content: bytes, n_lines: int) -> None:
        """Require a first line of at most LONGEST_LINE bytes, after `n_lines` lines."""
        if len(content) > LONGEST_LINE:
            line, _, _ = content[: LONGEST_LINE + 2].partition(b"\n")
            if len(line.rstrip(b"\r")) > LONGEST_LINE:
                raise InputError(
                    f"{self.name}, line {n_lines + 1}: a line must have at most {LONGEST_LINE:,} "
                    "bytes. Write one sentence per line."
                )


def _decoded_lines(block: bytes) -> tuple[str, int, str]:
    """The text of a block, or of its lines before the first byte that is not text; the index of
    that byte, and the problem ("" without one)."""
    wrong, problem = -1, ""
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = error.start
        problem = "not UTF-8: {}. Convert the text: iconv -f ENCODING -t UTF-8"
    nul = block.find(b"\0", 0, wrong if problem else None)
    if nul >= 0:
        wrong, problem = nul, "not text: {}"
    if problem:
        text = block[: block.rfind(b"\n", 0, wrong) + 1].decode("utf-8")
    return text, wrong, problem


def _kind(text: str) -> str | None:
    """The kind of a text by its first lines; None if more lines are needed."""
    if text.startswith(">"):
        return FASTA
    for kind, start in _NO_SENTENCES.items():
        if start.match(text):
            return _columns(text) or kind if kind == _TAGGED else kind
    is_conllu = conllu.looks_like_conllu(text.removesuffix("\n").split("\n"))
    if is_conllu is None and len(text) < _LONGEST_HEADER:
        return None
    return CONLLU if is_conllu else _columns(text) or PLAIN


def _columns(text: str) -> str | None:
    """The kind of text in columns or of a table, by its first lines; None for other text."""
    lines = text.removesuffix("\n").split("\n")
    if not lines[0].strip():
        return None
    lines_of_tokens = (line for line in lines if not line.startswith(("#", "@@", "-DOCSTART-")))
    rows = [line for line in lines_of_tokens if line.strip() and not _MARKUP.fullmatch(line)]
    cells = [line.strip().split("\t") for line in rows]
    widths = {len(row) for row in cells}
    has_header = len(cells[0]) > 1 and all(map(_HEADER.fullmatch, cells[0])) if cells else False
    if len(rows) > 1 and min(widths) > 1 and (len(widths) == 1 or has_header):
        n_texts = sum(any(" " in cell.strip() for cell in row) for row in cells)
        return _TABLE if n_texts >= len(rows) / 2 else "columns with tabs"
    cells = [line.split() for line in rows]
    if len(rows) >= _LEAST_ROWS and len({len(row) for row in cells}) == 1 < len(cells[0]):
        last = [row[-1] for row in cells]
        # Groups of rows end with an empty line or with markup.
        is_grouped = len(rows) < len(lines) < 2 * len(rows)
        if (
            is_grouped
            and (len({*last}) > 1 or "O" in last)
            and all(map(_LAST_COLUMN.fullmatch, last))
        ):
            return "columns with spaces"
    for mark in ",;":
        with contextlib.suppress(csv.Error):
            table = [*csv.reader(lines[:-1] if len(lines) > 2 else lines, delimiter=mark)]
            is_table = len({len(row) for row in table if row}) == 1 < len(table[0])
            if is_table and len(table) > 1 and all(map(_HEADER.fullmatch, table[0])):
                return "a table (CSV)"
    return None


def _read_column(lines: Iterable[str], column: int, name: str) -> Iterator[list[str]]:
    """The tokens of one column of each sentence, which ends with an empty line or markup."""
    tokens: list[str] = []
    n_columns = 0
    for number, line in enumerate(lines, start=1):
        fields = line.split("\t" if "\t" in line else None)
        is_structure = line.startswith("-DOCSTART-") or _MARKUP.fullmatch(line) is not None
        is_comment = line.startswith("#") and len(fields) != n_columns
        if is_structure or not line.strip():
            if tokens:
                yield tokens
            tokens = []
        elif not is_comment:
            if not 1 <= column <= len(fields) or not (token := fields[column - 1].strip()):
                raise InputError(
                    f"{name}, line {number}: must have column {column}, got {shown(line)}."
                )
            n_columns = len(fields)
            tokens.append(token)
    if tokens:
        yield tokens


def substitute_for_a_file(path: PathLike) -> str | None:
    """What a file holds instead of data: nothing, a Git LFS pointer or a web page; or None."""
    with open(path, "rb") as file:
        start = file.read(256).decode("latin-1").lstrip()
    if not start:
        return "an empty file"
    return next((name for name, pattern in _SUBSTITUTES.items() if pattern.match(start)), None)


def decompressed(stream: IO[bytes]) -> Any:
    """A stream of the decompressed data if it begins like gzip, xz or bzip2 data; otherwise the
    stream itself."""
    head = b""
    if stream.seekable():
        start = stream.tell()
        head = stream.read(_HEAD)
        stream.seek(start)
    else:
        while len(head) < _HEAD and (more := stream.read(_HEAD - len(head))):
            head += more
        read = getattr(stream, "read1", stream.read)
        rest = iter(functools.partial(read, _BLOCK), b"")
        stream = io.BufferedReader(_Stream(itertools.chain([head], rest)), _BLOCK)
    return next((reader(stream) for magic, reader in _COMPRESSION if magic.match(head)), stream)


class _Stream(io.RawIOBase):
    """A stream of blocks of bytes."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest = blocks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(filter(None, self._blocks), b"")
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _decompressing(stream: IO[bytes], new: Callable[[], Any]) -> io.BufferedReader:
    return io.BufferedReader(_Stream(_decompressed_blocks(stream, new)), _BLOCK)


def _decompressed_blocks(stream: IO[bytes], new: Callable[[], Any]) -> Iterator[bytes]:
    """The data of compressed streams one after the other, with zeros between them. (The classes of
    `lzma` and `bz2` drop all streams after zeros.)"""
    data = stream.read(_BLOCK)
    while data:
        decompressor = new()
        while not decompressor.eof:
            if decompressor.needs_input and not data and not (data := stream.read(_BLOCK)):
                raise EOFError("the data ends too early")
            yield decompressor.decompress(data, _BLOCK)
            data = b""
        data = decompressor.unused_data.lstrip(b"\0")
        while not data and (more := stream.read(_BLOCK)):
            data = more.lstrip(b"\0")


@contextlib.contextmanager
def compressed_damage_named(path: PathLike) -> Iterator[None]:
    """Raise an InputError with the name of a compressed file that is damaged or truncated."""
    try:
        yield
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{path}: damaged: {error}.") from error


@contextlib.contextmanager
def open_text(
    source: TextSource,
    name: PathLike | None = None,
    digest: hashlib.blake2b | None = None,
    column: int | None = None,
) -> Iterator[Text]:
    """Open a text within the block: a file, or a binary stream that is called `name` in messages;
    see `Text`."""
    if not isinstance(source, str | os.PathLike):
        yield Text(source, name or "the stream", digest, column)
        return
    source = require_file(source, "text file")
    if os.path.isfile(record := f"{source}.{TOKENIZER_FILE}"):  # belongs to the text
        add_input(record)
    with open(source, "rb") as stream:
        yield Text(stream, name or source, digest, column)


def read_lines(
    source: TextSource, name: PathLike | None = None, digest: hashlib.blake2b | None = None
) -> Iterator[str]:
    """The lines of a text as they are, without their ends, for files whose lines are not sentences.
    Arguments as for `open_text`."""
    with open_text(source, name, digest) as text:
        yield from text.lines()


def read_text(
    source: TextSource, name: PathLike | None = None, digest: hashlib.blake2b | None = None
) -> Iterator[str]:
    """The sentences of a text, tokens separated by spaces; see `Text.sentences`. Arguments as for
    `open_text`."""
    with open_text(source, name, digest) as text:
        yield from text.sentences()


def read_files(
    files: Iterable[str],
    doing: str,
    progress: ShowStage,
    read: Callable[[Text], Iterable[Any]] = Text.sentences,
    column: int | None = None,
) -> Iterator[tuple[Text, Iterator[Any]]]:
    """Pairs of a text and its sentences, which must be read before the next text; `doing` names the
    stage in progress reports; `column` as for `Text`."""
    files = list(files)
    before, total = 0, size_of(files)

    def sentences(text: Text) -> Iterator[Any]:
        for number, sentence in enumerate(read(text)):
            if number % 256 == 0:
                progress(Stage(doing, before + text.bytes_read(), total))
            yield sentence

    for path in files:
        with open_text(path, column=column) as text:
            yield text, sentences(text)
        before += os.path.getsize(path)
    progress(Stage(doing, total, total))


def plain_start(sentence: str) -> str:
    """The prefix of a plain text file before its first sentence: an empty line if the sentence
    would be mistaken for a byte order mark or another kind of text."""
    is_ambiguous = sentence.startswith("\ufeff") or _kind(sentence) not in (PLAIN, None)
    return "\n" if is_ambiguous else ""


@functools.lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Log a warning once per process, because a text may be read many times."""
    logger.warning("%s", message)


# JSON


def read_json_object(path: PathLike, what: str = "JSON file") -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    value = parse_json("\n".join(read_lines(require_file(path, what))), path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: must hold a JSON object, got {shown(value)}.")
    return value


def parse_json(text: str | bytes, source: PathLike) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not JSON: {error}.") from error
