"""Labelled text: all tokens, from CoNLL-U or two columns, or occurrences of words.

    train = read_labelled("en_ewt-ud-train.conllu", "UPOS")
    train.sentences[0], train.labels[0]

The first line that is neither empty nor a comment determines the form:

    CoNLL-U                 ten fields separated by tabs, an empty line after each sentence
    token TAB label         two fields, an empty line after each sentence
    label TAB sentence      one occurrence of a word per line, the word in [brackets]
"""

import itertools
import re
from collections.abc import Iterator

import numpy as np

from bilm.analysis.occurrences import Sample, parse_query
from bilm.core.errors import InputError
from bilm.files import conllu
from bilm.files.reading import CONLLU, PathLike, read_lines

# Label columns of CoNLL-U and their 0-based fields; any other name is a feature.
COLUMNS = {"LEMMA": 2, "UPOS": 3, "XPOS": 4, "FEATS": 5, "DEPREL": 7}
TAGGED, USES = "token TAB label", "label TAB sentence with one [word]"

_SHOWN = 80  # characters of a wrong line in a message


def read_labelled(path: PathLike, column: str = "UPOS") -> Sample:
    """The labelled tokens of a file in any of the three forms.

    Args:
        path: UTF-8 text (plain or compressed).
        column: label column of CoNLL-U: LEMMA, UPOS, XPOS, FEATS, DEPREL, or a feature such as
            Case. A token with `_` in the column, or without the feature, has no label.

    Returns:
        a sample of all labelled tokens, without sentences that have no label.

    Raises:
        FileNotFoundError: the file is missing.
        InputError: a line is malformed, or no token has a label.
    """
    form = labelled_form(path)
    if form == USES:
        return read_labelled_uses(path)
    name = column.upper() if column.upper() in COLUMNS else column
    rows = _conllu_rows(path, name) if form == CONLLU else _tagged_rows(path)
    sentences: list[tuple[str, ...]] = []
    positions: list[tuple[int, int]] = []
    labels: list[str] = []
    for is_sentence, group in itertools.groupby(rows, bool):
        sentence = [row for row in group if row is not None]
        if is_sentence and any(label for _, label in sentence):
            labelled = [(k, label) for k, (_, label) in enumerate(sentence) if label]
            positions += [(len(sentences), k) for k, _ in labelled]
            labels += [label for _, label in labelled]
            sentences.append(tuple(token for token, _ in sentence))
    if not labels:
        raise InputError(
            f"{path}: column must be one of {', '.join(COLUMNS)}, or a feature, and have "
            f"labels in the file, got {column!r}."
        )
    return Sample(sentences, np.array(positions, np.int64), labels)


def labelled_form(path: PathLike) -> str:
    """The form of a file, CONLLU, TAGGED or USES, by its first line with fields."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) == conllu.N_FIELDS:
            return CONLLU
        if len(fields) == 2:
            return USES if re.search(r"\S\s+\S|^\s*\[\S+\]\s*$", fields[1]) else TAGGED
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


def _conllu_rows(path: PathLike, column: str) -> Iterator[tuple[str, str] | None]:
    """Each token with its label, or ""; None after a sentence."""
    for fields in conllu.read_tokens(read_lines(path), path):
        if fields is None:
            yield None
            continue
        if not fields[0].isdecimal():  # a multiword token, or an empty node
            continue
        token = fields[1].strip()
        values = dict(pair.split("=", 1) for pair in fields[5].split("|") if "=" in pair)
        label = fields[COLUMNS[column]].strip() if column in COLUMNS else values.get(column, "")
        # `_` means no label, but it is also the lemma of the token `_`.
        is_missing = label == "_" and (column, token) != ("LEMMA", "_")
        # As in other commands, white space in a form (10 000) separates tokens.
        first, *rest = token.split() or [token]
        yield first, "" if is_missing else label
        yield from ((part, "") for part in rest)


def _tagged_rows(path: PathLike) -> Iterator[tuple[str, str] | None]:
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if not line.strip():
            yield None
        elif len(fields) == 2 and fields[0].split() == [fields[0]] and fields[1].strip():
            yield fields[0], fields[1].strip()
        else:
            raise _wrong_line(path, number, line, "a token without spaces, a tab and a label")


def _wrong_line(path: PathLike, number: int, line: str, rule: str) -> InputError:
    return InputError(f"{path}, line {number}: must be {rule}, got {line[:_SHOWN]!r}.")
