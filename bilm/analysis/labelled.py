"""Labelled text: all tokens, from CoNLL-U or two columns, or occurrences of words.

    train = read_labelled("en_ewt-ud-train.conllu", "UPOS")
    train.sentences[0], train.labels[0]

The first line that is neither empty nor a comment determines the form:

    CoNLL-U                 ten fields separated by tabs, an empty line after each sentence
    token TAB label         two fields, an empty line after each sentence
    label TAB sentence      one occurrence of a word per line, the word in [brackets]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

import numpy as np

from bilm.analysis.occurrences import Sample, parse_query
from bilm.core.errors import InputError
from bilm.files import conllu
from bilm.files.reading import CONLLU, PathLike, read_lines

# Label columns of CoNLL-U and their 0-based fields; any other name is a feature.
COLUMNS = {"LEMMA": 2, "UPOS": 3, "XPOS": 4, "FEATS": 5, "DEPREL": 7}
_MARKED = re.compile(r"\[\S+\]")
_SHOWN = 80  # characters of a wrong line in a message

TAGGED, USES = "token TAB label", "label TAB sentence with one [word]"

# A token and its label, "" without a label; None at the end of a sentence.
_Row = tuple[str, str] | None


def read_labelled(path: PathLike, column: str = "UPOS") -> Sample:
    """The labelled tokens of a file in any of the three forms.

    Args:
        path: UTF-8 text (plain or compressed).
        column: label column of CoNLL-U: LEMMA, UPOS, XPOS, FEATS, DEPREL, or a feature such as
            Number. A token with `_` in the column, or without the feature, has no label.

    Returns:
        a sample of all labelled tokens, without sentences that have no label.

    Raises:
        FileNotFoundError: the file is missing.
        InputError: a line is malformed, or no token has a label.
    """
    form = labelled_form(path)
    if form == USES:
        return read_labelled_uses(path)
    name = column.upper() if form == TAGGED or column.upper() in COLUMNS else column
    features: set[str] = set()
    rows = _conllu_rows(path, name, features) if form == CONLLU else _tagged_rows(path)
    sample = _sample_of(rows)
    if len(sample):
        return sample
    if form == TAGGED or name in COLUMNS:
        raise InputError(f"{path}: must have a label in the column {name}.")
    raise InputError(
        f"{path}: column must be one of {', '.join(COLUMNS)}, or a feature of the file "
        f"({', '.join(sorted(features)) or 'which has no features'}), got {column!r}."
    )


def labelled_form(path: PathLike) -> str:
    """The form of a file, CONLLU, TAGGED or USES, by its first line with fields."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) == conllu.N_FIELDS:
            return CONLLU
        if len(fields) == 2:
            words = fields[1].split()
            is_use = len(words) > 1 or (len(words) == 1 and _MARKED.fullmatch(words[0]))
            return USES if is_use else TAGGED
        rule = "ten fields of CoNLL-U, `token TAB label` or `label TAB sentence with one [word]`"
        raise _wrong_line(path, number, line, rule)
    raise InputError(f"{path}: must have a sentence with labels.")


def read_labelled_uses(path: PathLike) -> Sample:
    """Labelled occurrences of words, one `label TAB sentence with one [word] in brackets` per line.

    Consecutive lines with the same sentence are joined, so that it is encoded once.

    Raises:
        FileNotFoundError: the file is missing.
        InputError: a line is malformed.
    """
    sentences: list[tuple[str, ...]] = []
    positions, labels = [], []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip():
            rule = "a label, a tab and a sentence with one [word] in brackets"
            raise _wrong_line(path, number, line, rule)
        try:
            tokens, position = parse_query(text)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if not sentences or sentences[-1] != tokens:
            sentences.append(tokens)
        positions.append((len(sentences) - 1, position))
        labels.append(label.strip())
    if not sentences:
        raise InputError(f"{path}: must have a labelled occurrence of a word.")
    return Sample(sentences, np.array(positions, np.int64), labels)


def limited(sample: Sample, max_tokens: int, seed: int = 0) -> Sample:
    """Up to `max_tokens` labelled tokens, in randomly drawn sentences; at least one sentence."""
    if len(sample) <= max_tokens:
        return sample
    numbers = sample.positions[:, 0]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(sample.sentences))
    ends = np.cumsum(np.bincount(numbers, minlength=len(order))[order])
    sentences = np.sort(order[: max(1, np.searchsorted(ends, max_tokens, "right"))])
    part = sample.select(np.isin(numbers, sentences))
    part.positions[:, 0] = np.searchsorted(sentences, part.positions[:, 0])
    return Sample([sample.sentences[number] for number in sentences], part.positions, part.labels)


def _conllu_rows(path: PathLike, column: str, features: set[str]) -> Iterator[_Row]:
    """The tokens with their label in `column`; adds the names of all features to `features`."""
    for fields in conllu.read_tokens(read_lines(path), path):
        if fields is None:
            yield None
            continue
        if not fields[0].isdecimal():  # a multiword token, or an empty node
            continue
        token = fields[1].strip()
        values = dict(pair.split("=", 1) for pair in fields[5].split("|") if "=" in pair)
        features.update(values)
        label = fields[COLUMNS[column]].strip() if column in COLUMNS else values.get(column, "")
        # `_` means no label, but it is also the lemma of the token `_`.
        is_missing = label == "_" and (column, token) != ("LEMMA", "_")
        # As in other commands, white space in a form (10 000) separates tokens.
        first, *rest = token.split() or [token]
        yield first, "" if is_missing else label
        yield from ((part, "") for part in rest)


def _tagged_rows(path: PathLike) -> Iterator[_Row]:
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if not line.strip():
            yield None
        elif len(fields) == 2 and fields[0].split() == [fields[0]] and fields[1].strip():
            yield fields[0], fields[1].strip()
        else:
            raise _wrong_line(path, number, line, "a token without spaces, a tab and a label")


def _sample_of(rows: Iterable[_Row]) -> Sample:
    sentences: list[tuple[str, ...]] = []
    positions: list[tuple[int, int]] = []
    labels: list[str] = []
    for row, sentence in itertools.groupby(rows, bool):
        if not row:
            continue
        tokens, fields = zip(*filter(None, sentence), strict=True)
        if any(fields):
            positions += [(len(sentences), k) for k, label in enumerate(fields) if label]
            labels += filter(None, fields)
            sentences.append(tokens)
    return Sample(sentences, np.array(positions, np.int64), labels)


def _wrong_line(path: PathLike, number: int, line: str, rule: str) -> InputError:
    return InputError(f"{path}, line {number}: must be {rule}, got {line[:_SHOWN]!r}.")
