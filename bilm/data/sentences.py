"""Sentences: of a text file, the sequences of a FASTA file, or a caller's lists."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bilm.core.errors import SENTENCES, TEXT, InputError, is_ordered, require, shown
from bilm.data.untokenized import TextTokens
from bilm.files.reading import (
    FASTA,
    PathLike,
    Text,
    open_text,
    read_lines,
    read_text,
    warn_once,
)

Tokens = Sequence[str]

_RESIDUES = re.compile("[A-Za-z*.-]*")
# Unusual characters of sequences: tokens, but reported in a warning.
_REPORTED = {
    "gaps (- or .)": "-.",
    "stops (*)": "*",
    "ambiguous residues (B, J, X or Z)": "BJXZbjxz",
    "lower-case residues (read as upper case)": "abcdefghijklmnopqrstuvwxyz",
}


class Sentence(NamedTuple):
    """A sentence of a text."""

    number: int  # 0-based number of its line or FASTA record
    text: str  # without white space at its ends; the residues of a sequence, separated by spaces
    key: str | None = None  # such as a FASTA id; None: the number

    @property
    def name(self) -> str:
        """The key, or the number."""
        return str(self.number) if self.key is None else self.key


def read_fasta(path: PathLike) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the sequences of a FASTA file.

    `elmo.encode_iter(read_fasta("proteins.fasta"), with_ids=True)` gives their vectors. As in
    SeqVec, gaps, stops and ambiguous residues are tokens; one warning reports their counts.

    Args:
        path: UTF-8 text, may be compressed (gzip, xz, bzip2). A sequence may have any number of
            lines.

    Yields:
        id, the first word after ">", and the residues, one upper-case letter each.

    Raises:
        FileNotFoundError: the file does not exist.
        InputError: the text does not start with ">", a sequence has no id, or a line has characters
            other than residues (file and line).
    """
    with open_text(path) as text:
        yield from read_sequences(text)


def read_sequences(text: Text) -> Iterator[tuple[str, list[str]]]:
    """`read_fasta` of an open text."""
    key: str | None = None
    residues: list[str] = []
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.lines(), start=1):
        where = f"{text.name}, line {number}"
        if line.startswith(">"):
            if key is not None:
                yield key, residues
            key, residues = next(iter(line[1:].split()), ""), []
            if not key:
                raise InputError(f"{where}: '>' must be followed by an id.")
            continue
        sequence = "".join(line.split())
        if sequence and key is None:
            raise InputError(f"{where}: FASTA must begin with '>' and an id, got {shown(line)}.")
        if not _RESIDUES.fullmatch(sequence):
            raise InputError(
                f"{where}: residues must be letters A to Z, '*', '-' or '.', got {shown(line)}."
            )
        counts.update(sequence)
        residues += sequence.upper()
    if key is not None:
        yield key, residues
    numbers = {what: sum(map(counts.__getitem__, letters)) for what, letters in _REPORTED.items()}
    reported = [f"{what}: {n:,}" for what, n in numbers.items() if n]
    if reported:
        warn_once(f"{text.name} has unusual residues, each a token: {'; '.join(reported)}")


def read_sentences(text: Text, tokens: TextTokens) -> Iterator[Sentence]:
    """The sentences of plain text, CoNLL-U or FASTA, split by `tokens`."""
    if text.kind == FASTA:
        for number, (key, residues) in enumerate(read_sequences(text)):
            yield Sentence(number, " ".join(residues), key)
        return
    split, sentences = tokens.split(text)
    for number, sentence in enumerate(sentences):
        is_split = split is str.split
        yield Sentence(number, sentence.strip() if is_split else " ".join(split(sentence)))


def read_keys(path: PathLike) -> list[str]:
    """The keys of sentences, one per line, without white space at their ends."""
    keys = [line.strip() for line in read_lines(path)]
    if "" in keys:
        raise InputError(f"{path}, line {keys.index('') + 1}: a key must not be empty.")
    return keys


# Sentences from the caller

# Errors of a token, also used within a graph.
EMPTY_TOKEN = 'must not be empty: "" is padding, only at the end of a sentence'
WHITE_SPACE = (
    "must not contain white space (for sentences of shape (batch, 1), pass text[:, 0]; of a data "
    "frame, a column)"
)


def as_tokens(
    sentence: Any, where: str, split: Callable[[str], list[str]] | None = str.split
) -> list[str]:
    """The tokens of a sentence: a list of tokens, or text for `split`; None does not allow text.
    Bytes are UTF-8; trailing "" is padding. `where` names the sentence in messages."""
    sentence = as_python(sentence)
    if split is not None and isinstance(sentence, str | bytes):
        return split(_decode(sentence, where))
    if not is_ordered(sentence):
        rule = "a list of tokens" if split is None else "text or a list of tokens"
        raise InputError(f"{where} must be {rule}, got {shown(sentence)}.")
    tokens = list(sentence)
    if not all(map(TEXT.holds, tokens)):
        tokens = [_decode(token, f"{where}, token {k}") for k, token in enumerate(tokens)]
    while tokens and not tokens[-1]:
        tokens.pop()
    if " ".join(tokens).split() != tokens:
        _reject_token(tokens, where)
    return tokens


def as_python(values: Any) -> Any:
    """A tensor, array or data frame as lists of its values; other values as they are."""
    if hasattr(values, "to_list"):  # a ragged tensor
        return values.to_list()
    values = values.numpy() if hasattr(values, "numpy") else values
    if hasattr(values, "to_numpy") and not hasattr(values, "tolist"):
        values = values.to_numpy()  # iterating over a data frame would give its column names
    return values.tolist() if hasattr(values, "tolist") else values


def _decode(value: Any, where: str) -> str:
    value = as_python(value)
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise InputError(f"{where} must be text, got {type(value).__name__} {shown(value)}.")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where} must be UTF-8, got {shown(value)}.") from None


def _reject_token(tokens: Sequence[str], where: str) -> None:
    """Raise an InputError for the first token that is empty or has white space."""
    for position, token in enumerate(tokens):
        if not token:
            raise InputError(f"{where}, token {position} {EMPTY_TOKEN}.")
        if token.split() != [token]:
            raise InputError(f"{where}, token {position} {WHITE_SPACE}, got {shown(token)}.")


def read_stream(
    sentences: Iterable[Any], with_ids: bool, split: Callable[[str], list[str]] = str.split
) -> Iterator[tuple[Any, list[str]]]:
    """Pairs (id, tokens) of sentences: lists, tensors, arrays or streams of text or tokens. The ids
    are numbers or, if `with_ids`, come from the input, which then has pairs (id, sentence).
    `split` turns text into tokens."""
    sentences = as_python(sentences)
    require(SENTENCES, sentences=sentences)
    return _pairs(sentences, with_ids, split)


def _pairs(
    items: Iterable[Any], with_ids: bool, split: Callable[[str], list[str]]
) -> Iterator[tuple[Any, list[str]]]:
    for number, item in enumerate(items):
        where = f"sentence {number}"
        if not with_ids:
            yield number, as_tokens(item, where, split)
        elif isinstance(item, tuple | list) and len(item) == 2:
            yield item[0], as_tokens(item[1], where, split)
        else:
            raise InputError(f"{where} must be a pair (id, sentence), got {shown(item)}.")


# A word in a sentence, as text

_MARKED = re.compile(r"(?<!\S)\[(\S+)\](?!\S)")
_MARKED_ANYWHERE = re.compile(r"\[([^\s\[\]]+)\]")


def parse_query(
    text: str, split: Callable[[str], list[str]] = str.split
) -> tuple[tuple[str, ...], int]:
    """The tokens of a sentence such as "they [play] cards", and the position of the marked
    token; `split` makes tokens of text, see `bilm.data.tokenizer.tokenizer_for`."""
    require(TEXT, text=text)
    marked = [*(_MARKED if split is str.split else _MARKED_ANYWHERE).finditer(text)]
    if len(marked) != 1:
        raise InputError(
            f"{shown(text)}: exactly one token must be in brackets, with spaces around it, as in "
            f'"they [play] cards"; got {len(marked)}.'
        )
    before, after = text[: marked[0].start()], text[marked[0].end() :]
    word = split(marked[0][1])
    if len(word) != 1:
        raise InputError(f"{shown(text)}: the brackets must hold one token, got {shown(word)}.")
    tokens = split(before)
    return (*tokens, *word, *split(after)), len(tokens)


# Warm-up text: every sentence starts from the mean of the states after reading it

# A file with one sentence per line, or sentences: text that is split on white space, or tokens.
WarmUpText = PathLike | Iterable[str | Sequence[str]]

N_WARM_UP_WORDS = 2048
"""Number of words to read; a shorter text is repeated."""


def read_warm_up(text: WarmUpText) -> list[list[str]]:
    """The sentences of a warm-up: the first `N_WARM_UP_WORDS` words of a text, which is repeated if
    it is shorter."""
    if isinstance(text, str | os.PathLike):
        text = read_text(text)
    else:
        require(SENTENCES, sentences=text)
    sentences: list[list[str]] = []
    n_words = 0
    for number, sentence in enumerate(text):
        tokens = as_tokens(sentence, f"warm_up: sentence {number}")
        if tokens:
            sentences.append(tokens)
            n_words += len(tokens)
        if n_words >= N_WARM_UP_WORDS:
            break
    if not sentences:
        raise InputError("warm_up must hold a word, got none.")
    return sentences * -(-N_WARM_UP_WORDS // n_words)
