"""Sentences: of a text file, the sequences of a FASTA file, or a caller's lists; and how the
tokenizer of a text is known.

The record of a text is a JSON file next to it, `NAME.tokenizer.json`, or `tokenizer.json` for the
texts of a folder: the tokenizer's name, and the size of each text in bytes, so that the record does
not apply to another text of the same name. `bilm shard` and `bilm train` copy the name, finally
into the model's options.
"""

import functools
import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bilm.core.errors import SENTENCES, TEXT, InputError, is_ordered, require, shown
from bilm.data.tokenizer import Tokenizer, clean, split_sentences, tokenizer_for
from bilm.files.reading import (
    FASTA,
    PLAIN,
    TOKENIZER_FILE,
    PathLike,
    Text,
    matching_files,
    open_text,
    read_json_object,
    read_lines,
    read_text,
    require_path,
    warn_once,
)
from bilm.files.writing import fill_json

logger = logging.getLogger(__name__)

# Records


def record_beside(path: PathLike) -> str:
    """The name of the record of one text."""
    return f"{require_path(path, 'a text file')}.{TOKENIZER_FILE}"


def write_record(path: PathLike, tokenizer: str, sizes: Mapping[str, int], **facts: str) -> None:
    """Write a record: the name of a tokenizer, the names and sizes (bytes) of its texts, and
    further facts."""
    fill_json(path, {"tokenizer": tokenizer, "bytes": dict(sizes), **facts})


def read_record(files: Iterable[PathLike]) -> str | None:
    """The name of the tokenizer of all texts; None if a record is missing, or names differ.

    A record without sizes (written by hand) applies to all texts of its folder. A `tokenizer.json`
    of another program is not a record.
    """
    read = functools.cache(read_json_object)  # a folder's record describes many texts
    names = {_recorded_tokenizer(os.fspath(file), read) for file in files}
    return names.pop() if len(names) == 1 else None


def _recorded_tokenizer(file: str, read: Callable[[str], dict[str, Any]]) -> str | None:
    folder, name = os.path.split(file)
    for path in (record_beside(file), os.path.join(folder, TOKENIZER_FILE)):
        if os.path.isfile(path):
            record = read(path)
            tokenizer, sizes = record.get("tokenizer"), record.get("bytes")
            if not isinstance(tokenizer, str):
                continue
            if not isinstance(sizes, dict) or sizes.get(name) == os.path.getsize(file):
                return tokenizer
    return None


# Tokens of a model's text


class TextTokens(NamedTuple):
    """How the lines of a text are split into the tokens of a model.

    A text in CoNLL-U or FASTA, or with a column, is read as it is.
    """

    recorded: str | None = None  # the tokenizer of the model's training text
    # See `tokenizer_for`. None: text that is tokenised like the model's is read as it is; otherwise
    # `split` raises an InputError, or logs a warning if the model has no record.
    choice: str | None = None
    column: int | None = None  # 1-based number of the column with the tokens; None: no columns

    def split(self, text: Text) -> tuple[Callable[[str], list[str]], Iterator[str]]:
        """The function that splits the sentences of a text, and the sentences."""
        sentences = text.sentences()
        if text.kind != PLAIN:
            if self.choice not in (None, "spaces"):
                raise InputError(f"{text.name} is {text.kind}, which needs no tokenizer.")
            return str.split, sentences
        if self.choice is not None and (self.recorded or self.choice != "model"):
            return tokenizer_for(self.recorded, self.choice), sentences
        is_file = os.path.isfile(text.name)
        if self.recorded is not None and is_file and read_record([text.name]) == self.recorded:
            return str.split, sentences
        sample = list(itertools.islice(sentences, N_SENTENCES))
        if self.recorded is None:
            warn_if_untokenized(map(str.split, sample), text.name)
        elif problem := _difference(sample, self.recorded):
            raise InputError(
                f"{text.name}{problem}. Choose --tokenizer model to tokenise it, or --tokenizer "
                "spaces to read it as it is."
            )
        return str.split, itertools.chain(sample, sentences)

    def read(self, text: Text) -> Iterator[list[str]]:
        """The tokens of each sentence of a text."""
        split, sentences = self.split(text)
        return map(split, sentences)

    def sentences(self, line: str, split: Callable[[str], list[str]]) -> list[list[str]]:
        """The tokens of each sentence of a line, with the function of `split`; where sentences end
        depends on the language of the tokenizer. Without a language, a line is a sentence."""
        tokens = split(line)
        language, _, method = (self.recorded or "").partition(" ")
        if self.choice not in (None, "model"):
            language = "" if self.choice == "spaces" else self.choice
        elif not method or method.startswith("residues"):
            language = ""
        if not (language and tokens):
            return [tokens] if tokens else []
        text = line if split is str.split else clean(line)
        sentences = [*filter(None, map(split, split_sentences(text, language)))]
        # A mark within a token of the text does not end a sentence.
        joined = [token for sentence in sentences for token in sentence]
        return [tokens] if split is str.split and joined != tokens else sentences


_LEAST_EQUAL = 0.98  # proportion of the lines that the tokenizer must leave as they are


def _difference(lines: Sequence[str], recorded: str) -> str | None:
    """Where lines are not tokenised as by a model's tokenizer, to follow their name; None if they
    are. Without the tokenizer, lines must look tokenised."""
    tokenizer = Tokenizer.from_name(recorded)
    if tokenizer is None:
        reason = why_untokenized(map(str.split, lines))
        return reason and f" is not tokenised like the text of the model: {reason}"
    n_lines, different = 0, list[tuple[int, str]]()
    for number, line in enumerate(lines, start=1):
        n_lines += bool(line.strip())
        words = line.split()
        if tokenizer.tokens(line) != words:
            word = next(word for word in words if tokenizer.tokens(word) != [word])
            different.append((number, word))
    if len(different) <= (1 - _LEAST_EQUAL) * n_lines:
        return None
    number, word = different[0]
    tokens = tokenizer.tokens(word)
    parts = " ".join([*map(shown, tokens[:8]), *["..."] * (len(tokens) > 8)]) or "nothing"
    return (
        f", line {number} is not tokenised like the text of the model: {shown(word)} would be "
        f"{parts}"
    )


N_SENTENCES = 1000
"""Number of sentences in the sample."""

_MARK, _CLOSING = ",;:!?،؛؟۔।॥։՝።፣፤፥፦፧፨།༎，；！？、。", "\"'”’»)\\]』」》"
_ATTACHED = re.compile(rf"\w.*[{_MARK}][{_CLOSING}]*|.*\w\w\.[{_CLOSING}]*")
# A long word of a script without spaces between words: Chinese characters and kana (words of
# katakana alone may be longer); Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile(
    "(?![\u30a0-\u30ff]{1,11}(?![\u30a0-\u30ff\u3041-\u309f\u3400-\u9fff]))"
    "(?:[\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][^\\s]*){9}"
    "|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{15}"
)
_MOST_TOKENS = 1000  # per line on average, unless they are characters or residues


def why_untokenized(sentences: Iterable[Sequence[str]]) -> str | None:
    """Why sentences (lists of tokens) do not look tokenised: words without spaces, punctuation
    attached to words, or complete documents as lines; None if they look tokenised."""
    sample = [tokens for tokens in itertools.islice(sentences, N_SENTENCES) if tokens]
    tokens = list(itertools.chain.from_iterable(sample))
    unspaced = list(filter(_UNSPACED.match, tokens))
    if len(unspaced) > 0.1 * len(tokens):
        return f"there are no spaces between words, as in {unspaced[0][:20]!r}"
    # A full stop within a line may belong to an abbreviation.
    ends = [line[-1] for line in sample]
    attached = [token for token in tokens if token[-1] != "." and _ATTACHED.fullmatch(token)]
    attached += [token for token in ends if token[-1] == "." and _ATTACHED.fullmatch(token)]
    if len(attached) > max(2, len(sample) / 3):
        return f"punctuation is attached to words, as in {attached[0][:20]!r}"
    if len(tokens) > _MOST_TOKENS * len(sample) and sum(map(len, tokens)) > 2 * len(tokens):
        return f"lines have {len(tokens) // len(sample):,} tokens on average"
    return None


def warn_if_untokenized(sentences: Iterable[Sequence[str]], source: object) -> bool:
    """Log a warning, and return True, if the first sentences (lists of tokens) do not look
    tokenised."""
    reason = why_untokenized(sentences)
    if reason is not None:
        logger.warning(
            "%s does not look tokenised: %s. `bilm tokenize` turns raw text into one sentence per "
            "line, with tokens separated by spaces",
            source,
            reason,
        )
    return reason is not None


def warn_if_other_tokenizer(text: str, tokenizer: str | None) -> None:
    """Log a warning if the record of a text, a file or a glob, names another tokenizer than the
    model's `tokenizer`."""
    name = read_record(matching_files(text))
    if name is not None and tokenizer is not None and name != tokenizer:
        logger.warning(
            "%s was tokenised by %r, but the training text of the model by %r: the results may be "
            "worse", text, name, tokenizer,
        )  # fmt: skip


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
