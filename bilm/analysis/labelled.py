"""Labelled text: tokens with a label each, from CoNLL-U or columns, or uses of words with a label.

    train = read_labelled("en_ewt-ud-train.conllu", "UPOS")
    train.sentences[0], train.labels[0]

Three forms are told apart by the first line that is neither empty nor a comment:

    CoNLL-U                 ten fields separated by tabs, an empty line after each sentence
    token TAB label         two fields, an empty line after each sentence
    label TAB sentence      a use of a word a line, which is in [brackets]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bilm.analysis.occurrences import Sample, parse_query
from bilm.core.errors import InputError
from bilm.files.reading import PathLike, read_lines

# Columns of CoNLL-U that are labels, and their fields from 0; other names are those of features.
COLUMNS = {"LEMMA": 2, "UPOS": 3, "XPOS": 4, "FEATS": 5, "DEPREL": 7}
_N_FIELDS = 10
_TOKEN_ID = re.compile(r"[0-9]+")
# A range such as 3-4 of a word that is divided, and an empty node such as 5.1: no tokens.
_NO_TOKEN_ID = re.compile(r"[0-9]+-[0-9]+|[0-9]+\.[0-9]+")
_MARKED = re.compile(r"\[\S+\]")
_SHOWN = 80  # characters of a wrong line in a message

TAGGED, USES, CONLLU = "token TAB label", "label TAB sentence with one [word]", "CoNLL-U"


def read_labelled(path: PathLike, column: str = "UPOS") -> Sample:
    """The labelled tokens of a file, of whichever of the three forms it is.

    Args:
        path: UTF-8 text (plain, .gz, .xz).
        column: of CoNLL-U: LEMMA, UPOS, XPOS, FEATS, DEPREL, or a feature such as Number; tokens
            that have nothing there (`_`, or not this feature) have no label.

    Returns:
        a sample of all tokens that have a label; sentences without any are left out.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: a line is not of the form, or there is no label.
    """
    form = labelled_form(path)
    if form == USES:
        return read_labelled_uses(path)
    return read_conllu(path, column) if form == CONLLU else read_tagged(path)


def labelled_form(path: PathLike) -> str:
    """Which of CONLLU, TAGGED and USES a file is, by its first line with fields.

    Raises:
        FileNotFoundError, InputError: there is no such file, or it is none of them.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) == _N_FIELDS:
            return CONLLU
        if len(fields) == 2:
            words = fields[1].split()
            is_use = len(words) > 1 or (len(words) == 1 and _MARKED.fullmatch(words[0]))
            return USES if is_use else TAGGED
        raise InputError(
            f"{path}, line {number}: ten fields of CoNLL-U, `token TAB label` or `label TAB "
            f"sentence with one [word]` are expected, not {_fields(fields)}: {line[:_SHOWN]!r}."
        )
    raise InputError(f"{path}: there is no sentence with labels.")


def read_labelled_uses(path: PathLike) -> Sample:
    """Labelled uses of words, one per line: `label TAB sentence with one [word] in brackets`.

    Consecutive lines with the same sentence are uses within one sentence, which is encoded once.

    Raises:
        FileNotFoundError, InputError: there is no such file, or a line has another form.
    """
    sentences: list[tuple[str, ...]] = []
    positions, labels = [], []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            raise InputError(
                f"{path}, line {number}: must be a label, a tab and a sentence with one [word] in "
                f"brackets, got {line[:_SHOWN]!r}."
            )
        try:
            tokens, position = parse_query(text)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if not sentences or sentences[-1] != tokens:
            sentences.append(tokens)
        positions.append((len(sentences) - 1, position))
        labels.append(label.strip())
    if not sentences:
        raise InputError(f"{path}: there is no labelled use of a word.")
    return Sample(sentences, np.array(positions, np.int64), labels)


def read_conllu(path: PathLike, column: str = "UPOS") -> Sample:
    """The tokens of a CoNLL-U file that have a label in `column`; see `read_labelled`.

    Ranges (3-4) and empty nodes (5.1) are no tokens. A token may hold a blank, as the format has
    it.
    """
    index = COLUMNS.get(column.upper())
    reader = _Reader()
    features: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            reader.end_sentence()
            continue
        if line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        fields = line.split("\t")
        if len(fields) != _N_FIELDS:
            raise InputError(
                f"{where}: ten fields separated by tabs are expected, not {_fields(fields)}: "
                f"{line[:_SHOWN]!r}."
            )
        if _NO_TOKEN_ID.fullmatch(fields[0]):
            continue
        if not _TOKEN_ID.fullmatch(fields[0]):
            raise InputError(
                f"{where}: the first field is the number of a token (1), a range (1-2) or an "
                f"empty node (1.1), not {fields[0]!r}."
            )
        token = fields[1]
        _check_token(token, where, blanks=True)
        if index is None:
            values = _features(fields[COLUMNS["FEATS"]], where)
            features.update(values)
            label = values.get(column)
        else:
            label = _label(fields[index], token, index)
        reader.add(token, label)
    reader.end_sentence()
    if not reader.labels:
        raise InputError(_no_label(path, column, index, features))
    return reader.sample()


def read_tagged(path: PathLike) -> Sample:
    """The tokens of a file of lines `token TAB label`, an empty line after each sentence."""
    reader = _Reader()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            reader.end_sentence()
            continue
        where = f"{path}, line {number}"
        fields = line.split("\t")
        if len(fields) != 2:
            raise InputError(
                f"{where}: a token, a tab and a label are expected, not {_fields(fields)}: "
                f"{line[:_SHOWN]!r}."
            )
        token, label = fields[0], fields[1].strip()
        _check_token(token, where, blanks=False)
        if not label:
            raise InputError(f"{where}: the label of {token!r} is empty.")
        reader.add(token, label)
    reader.end_sentence()
    if not reader.labels:
        raise InputError(f"{path}: there is no sentence with labels.")
    return reader.sample()


def limited(sample: Sample, max_tokens: int, seed: int = 0) -> Sample:
    """At most `max_tokens` labelled tokens of a sample, in whole sentences that are drawn.

    Args:
        sample: labelled tokens.
        max_tokens: how many are kept, at most, but those of one sentence at least.
        seed: of the drawing.

    Returns:
        the sample itself if it is no larger; else one of the drawn sentences, in their order.
    """
    if len(sample) <= max_tokens:
        return sample
    counts = np.bincount(sample.positions[:, 0], minlength=len(sample.sentences))
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sample.sentences))
    n_kept = max(1, int(np.searchsorted(np.cumsum(counts[order]), max_tokens, "right")))
    kept = np.sort(order[:n_kept])
    rows = np.flatnonzero(np.isin(sample.positions[:, 0], kept))
    positions = sample.positions[rows].copy()
    positions[:, 0] = np.searchsorted(kept, positions[:, 0])
    labels = None if sample.labels is None else [sample.labels[row] for row in rows]
    return Sample([sample.sentences[number] for number in kept], positions, labels)


@dataclass
class _Reader:
    """Puts sentences together, a token at a time."""

    sentences: list[tuple[str, ...]] = field(default_factory=list)
    positions: list[tuple[int, int]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    _tokens: list[tuple[str, str | None]] = field(default_factory=list)

    def add(self, token: str, label: str | None) -> None:
        self._tokens.append((token, label))

    def end_sentence(self) -> None:
        """The tokens so far are a sentence; without any label it is left out."""
        labelled = [(k, label) for k, (_, label) in enumerate(self._tokens) if label is not None]
        if labelled:
            self.positions += [(len(self.sentences), k) for k, _ in labelled]
            self.labels += [label for _, label in labelled]
            self.sentences.append(tuple(token for token, _ in self._tokens))
        self._tokens = []

    def sample(self) -> Sample:
        return Sample(self.sentences, np.array(self.positions, np.int64), self.labels)


def _check_token(token: str, where: str, blanks: bool) -> None:
    if not token.strip():
        raise InputError(f"{where}: the token is empty.")
    if token != token.strip() or (not blanks and len(token.split()) > 1):
        raise InputError(
            f"{where}: a token without blanks is expected, not {token[:_SHOWN]!r}; fields are "
            "separated by one tab."
        )


def _label(value: str, token: str, index: int) -> str | None:
    """What is in a column; `_` is nothing, unless it is the lemma of the token `_`."""
    is_lemma = index == COLUMNS["LEMMA"] and token == "_"
    return None if not value.strip() or (value == "_" and not is_lemma) else value


def _features(value: str, where: str) -> dict[str, str]:
    """The features of a token: {"Number": "Sing", ...}."""
    if value == "_":
        return {}
    pairs = [pair.partition("=") for pair in value.split("|")]
    if not all(name and equals and is_value for name, equals, is_value in pairs):
        raise InputError(
            f"{where}: features are `_` or of the form Name=Value|Name=Value, not "
            f"{value[:_SHOWN]!r}."
        )
    return {name: value for name, _, value in pairs}


def _no_label(path: PathLike, column: str, index: int | None, features: set[str]) -> str:
    if index is not None:
        return f"{path}: no token has a label in the column {column.upper()}."
    there = ", ".join(sorted(features)) or "none"
    return (
        f"{path}: column: one of {', '.join(COLUMNS)}, or a feature is expected, not {column!r}; "
        f"features in the file: {there}."
    )


def _fields(fields: Sequence[str]) -> str:
    return f"{len(fields)} field{'s' if len(fields) > 1 else ''}"
