"""Plain text to tokenised sentences: a small splitter and tokeniser for the demo.

They know English punctuation and little else, on purpose: tokenisation for real work is the
user's, with a tokeniser made for the language. Text that is already tokenised needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Sentence = list[str]
"""The tokens of one sentence, punctuation apart, without <S> and </S>."""

# A full stop after one of these does not end a sentence.
_ABBREVIATIONS = frozenset(
    "e.g i.e cf vs viz al approx resp fig figs eq eqs sec ch vol no pp p ed eds dr mr mrs ms prof "
    "st jr sr inc ltd co dept est jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_BOUNDARY = re.compile(r"([.!?]+[\"'”’)\]]*)\s+(?=[\"'“‘(\[]?[^\W_])|([。！？]+[」』”]?)")
_LAST_WORD = re.compile(r"([^\W\d_][\w.]*)$")
_TOKEN = re.compile(
    r"(?:[eE]\.g|[iI]\.e|etc|cf|vs|Mrs?|Dr|St)\.(?=\s|[,;:)])"  # abbreviations keep their stop
    r"|\d+(?:[.,]\d+)*"  # 3 and 1,024.5
    r"|\w+(?:[.'’-]\w+)*"  # words, don't, left-to-right and dotted.names
    r"|\.{2,}|-{2,}"
    r"|[^\w\s]"
)


def tokenize(sentence: str) -> Sentence:
    """Split a sentence into words, numbers and punctuation marks; white space is dropped.

    >>> tokenize("It's one key (e.g. 'id'), isn't it?")
    ["It's", 'one', 'key', '(', 'e.g.', "'", 'id', "'", ')', ',', "isn't", 'it', '?']
    """
    return _TOKEN.findall(sentence)


def split_sentences(paragraph: str) -> list[str]:
    """Cut a paragraph behind its full stops, question and exclamation marks.

    A mark ends a sentence when white space and a letter, digit, quote or bracket follow; not
    after abbreviations, initials, or before a small letter. Chinese marks need no white space.

    >>> split_sentences("See Mr. X, e.g. here. Then stop! Why?")
    ['See Mr. X, e.g. here.', 'Then stop!', 'Why?']
    """
    sentences, start = [], 0
    for match in _BOUNDARY.finditer(paragraph):
        if match.group(1) and not _ends_sentence(paragraph, match):
            continue
        sentences.append(paragraph[start : match.end(match.lastindex or 0)].strip())
        start = match.end()
    rest = paragraph[start:].strip()
    return [*sentences, rest] if rest else sentences


def _ends_sentence(paragraph: str, match: re.Match[str]) -> bool:
    following = paragraph[match.end() :].lstrip("\"'“‘([")[:1]
    if following.islower():
        return False
    if match.group(1) != ".":
        return True
    word = _LAST_WORD.search(paragraph, max(0, match.start() - 20), match.start())
    if word is None:
        return True
    last = word.group(1)
    return last.lower() not in _ABBREVIATIONS and not (len(last) == 1 and last.isupper())


def read_prose(lines: Iterable[str]) -> Iterator[Sentence]:
    """Tokenised sentences of raw text, whose sentences may run over several lines.

    Args:
        lines: text; a blank line ends a paragraph, and with it a sentence.
    """
    unfinished = ""
    for line in lines:
        text = line.strip()
        sentences = split_sentences(f"{unfinished} {text}".strip())
        # The last sentence may go on in the next line.
        unfinished = sentences.pop() if text and sentences else ""
        yield from _tokenized(sentences)
    yield from _tokenized([unfinished])


def _tokenized(sentences: Iterable[str]) -> Iterator[Sentence]:
    for sentence in sentences:
        tokens = tokenize(sentence)
        if tokens:
            yield tokens


def read_tokenized(lines: Iterable[str]) -> Iterator[Sentence]:
    """Sentences of text that has one on a line, its tokens parted by white space."""
    for line in lines:
        tokens = line.split()
        if tokens:
            yield tokens
