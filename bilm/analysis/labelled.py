"""Labelled text: all tokens, from CoNLL-U or two columns, or occurrences of words."""

import itertools
from collections.abc import Iterator

import numpy as np

from bilm.analysis.occurrences import Sample, parse_query
from bilm.core.errors import InputError
from bilm.files import conllu
from bilm.files.reading import PathLike, read_lines

# Label columns of CoNLL-U and their 0-based fields; any other name is a feature.
COLUMNS = {"LEMMA": 2, "UPOS": 3, "XPOS": 4, "FEATS": 5, "DEPREL": 7}

_SHOWN = 80  # characters of a wrong line in a message


def read_labelled(path: PathLike, column: str | None = None) -> Sample:
    """The labelled tokens of a file.

    Args:
        path: UTF-8 text (plain or compressed): CoNLL-U, or `token TAB label` with an empty line
            after each sentence.
        column: label column of CoNLL-U: LEMMA, UPOS (None), XPOS, FEATS, DEPREL, or a feature such
            as Case. A token with `_` in the column, or without the feature, has no label.

    Returns:
        a sample of all labelled tokens, without sentences that have no label.

    Raises:
        FileNotFoundError: the file is missing.
        InputError: a line is malformed, no token has a label, or `column` is given without CoNLL-U.
    """
    name = column or "UPOS"
    name = name.upper() if name.upper() in COLUMNS else name
    if is_conllu := _is_conllu(path):
        rows = _conllu_rows(path, name)
    elif column is None:
        rows = _tagged_rows(path)
    else:
        raise InputError(f"{path}: must be CoNLL-U, ten fields per line, for column {column!r}.")
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
        where = f" in {name!r}; column is one of {', '.join(COLUMNS)}, or a feature" * is_conllu
        raise InputError(f"{path}: must have labels{where}.")
    return Sample(sentences, np.array(positions, np.int64), labels)


def _is_conllu(path: PathLike) -> bool:
    """Whether the first line that is neither empty nor a comment has the fields of CoNLL-U."""
    lines = (line for line in read_lines(path) if line.strip() and not line.startswith("#"))
    return next(lines, "").count("\t") + 1 == conllu.N_FIELDS


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


def n_repeated(train: Sample, test: Sample) -> int:
    """The number of test occurrences that are also in the training text, in the same sentence: on
    these, memory is measured."""
    seen = {(train.sentences[number], position) for number, position in train.positions}
    return sum((test.sentences[number], position) in seen for number, position in test.positions)


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
        elif len(fields) == 2 and [len(field.split()) for field in fields] == [1, 1]:
            yield fields[0].strip(), fields[1].strip()
        else:
            rule = "ten fields of CoNLL-U, or a token, a tab and a label, without spaces"
            if "[" in line:
                rule += " (usage_examples/senses.py reads sentences with one [word])"
            raise _wrong_line(path, number, line, rule)


def _wrong_line(path: PathLike, number: int, line: str, rule: str) -> InputError:
    return InputError(f"{path}, line {number}: must be {rule}, got {line[:_SHOWN]!r}.")
