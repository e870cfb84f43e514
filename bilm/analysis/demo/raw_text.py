"""Text for the demo: docstrings, or the user's own, as sentences of tokens."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bilm.core.errors import InputError
from bilm.data.tokenized_text import read_sentences
from bilm.data.tokenizer import Tokenizer, is_unspaced
from bilm.files.reading import PathLike, read_lines
from bilm.files.writing import atomic_write

Tokens = list[str]
"""A sentence, its punctuation apart from its words, without <S> and </S>."""

Document = list[Tokens]
"""Sentences that belong together; held-out text is made of whole documents."""

PACKAGES = ("numpy", "keras", "tensorflow")
"""The packages whose docstrings are read beside those of Python's own library."""

_SKIPPED_FOLDERS = frozenset(
    ("site-packages", "dist-packages", "__pycache__", "test", "tests", "testing", "idle_test")
)
# The user's text has no documents of its own: so many successive sentences are one.
_SENTENCES_PER_DOCUMENT = 100
# Lines of a text that its tokenizer is chosen by.
_LOOKED_AT = 1000

_DOCSTRING = re.compile(r'"""(.+?)"""', re.DOTALL)
# What is no prose: doctests, fenced code, headings with a rule, fields such as "axis : int".
_NOT_PROSE = re.compile(
    r"^ *>>>.*(?:\n.+)*|^ *```(?s:.*?)```|^.*\n *[-=~]{3,} *$|^ *[\w*, ]+ : .*$", re.MULTILINE
)
# What comes before the prose of an item: bullets, ":param x:" and "x (int):".
_ITEM = re.compile(
    r"^ *(?:[-*] |\d+[.)] |:\w+[^:\n]*:|[*`\w]+(?: ?\([^)\n]*\))?:(?= |$))", re.MULTILINE
)
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_PROSE = re.compile(r"[A-Z][\w ,;:'’\"()./-]*[.!?]")
_SMALL_WORDS = frozenset(
    "a an the is are was be to of in for on by with from as at it its this that if not can "
    "when which".split()
)


@functools.cache
def _english() -> Tokenizer:
    return Tokenizer("en")


def gather_docstrings(packages: Sequence[str] = PACKAGES) -> list[Document]:
    """The prose of the docstrings of Python and of the `packages` that are installed.

    Source files are read and not imported.

    Returns:
        one document a module, in a fixed order; each sentence is there once, where it comes first.
    """
    specs = [importlib.util.find_spec(name) for name in packages]
    folders = [Path(sysconfig.get_paths()["stdlib"])]
    folders += [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    documents, seen = [], set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            above = path.relative_to(folder).parts[:-1]
            if not _SKIPPED_FOLDERS.isdisjoint(above) or not path.is_file():
                continue
            source = path.read_text(encoding="utf-8", errors="replace")
            fresh = [s for s in dict.fromkeys(docstring_sentences(source)) if s not in seen]
            seen.update(fresh)
            if fresh:
                documents.append([*map(_english().tokens, fresh)])
    return documents


def docstring_sentences(source: str) -> Iterator[str]:
    """The sentences in the docstrings of a Python file that look like English prose.

    A sentence begins with a capital, ends with a mark, consists of letters, digits and common
    punctuation, and has five words or more, one of them a small one such as "the".

    Args:
        source: the file's text; strings in three double quotes count as docstrings.
    """
    for docstring in _DOCSTRING.findall(source):
        prose = _ITEM.sub("\n\n", _NOT_PROSE.sub("\n\n", docstring)).replace("`", "")
        for paragraph in _PARAGRAPH_END.split(prose):
            for sentence in _english().sentences(" ".join(paragraph.split())):
                words = sentence.split()
                has_small_word = not _SMALL_WORDS.isdisjoint(words)
                if len(words) >= 5 and has_small_word and _PROSE.fullmatch(sentence):
                    yield sentence


def read_texts(paths: Sequence[PathLike], tokenized: bool, max_tokens: int) -> list[Document]:
    """Documents of the user's own text, up to `max_tokens` tokens of it.

    Args:
        paths: UTF-8 files, plain, .gz or .xz.
        tokenized: one sentence per line, tokens separated by white space; otherwise raw text, of
            which the tokenizer is chosen by the script.

    Raises:
        InputError: a file is not UTF-8, or holds no text.
    """
    documents: list[Document] = [[]]
    n_tokens = 0
    for path in paths:
        before = n_tokens
        for sentence in _sentences(read_lines(path), tokenized):
            if n_tokens >= max_tokens:
                return documents
            if len(documents[-1]) == _SENTENCES_PER_DOCUMENT:
                documents.append([])
            documents[-1].append(sentence)
            n_tokens += len(sentence)
        if n_tokens == before:
            raise InputError(f"{path}: no text in it.")
    return documents


def _sentences(lines: Iterator[str], tokenized: bool) -> Iterable[Tokens]:
    if tokenized:
        return filter(None, map(str.split, lines))
    first = list(itertools.islice(lines, _LOOKED_AT))
    tokenizer = _tokenizer_for("".join(first))
    return read_sentences(itertools.chain(first, lines), tokenizer)[1]


def _tokenizer_for(text: str) -> Tokenizer:
    """The English rules, or Chinese words or characters if the text has no spaces between words."""
    letters = list(filter(str.isalpha, text))
    if sum(map(is_unspaced, letters)) <= len(letters) / 2:
        return _english()
    has_jieba = importlib.util.find_spec("jieba") is not None
    return Tokenizer("zh", "jieba" if has_jieba else "characters")


class SplitText(NamedTuple):
    """Sentences to train on, in random order, and held-out ones, in the order of the text."""

    training: list[Tokens]
    heldout: list[Tokens]


def set_aside(
    documents: Sequence[Document], share: float, max_tokens: int, seed: int = 0
) -> SplitText:
    """Set whole documents aside as held-out text.

    Args:
        share: of the tokens, for held-out text.
        max_tokens: the most of them, to within a document.
        seed: of the choice, and of the order of the training sentences.

    Raises:
        InputError: there are not two documents.
    """
    if len(documents) < 2:
        raise InputError(
            f"the text is too short to set some of it aside: {_SENTENCES_PER_DOCUMENT + 1} "
            "sentences are needed at least."
        )
    generator = random.Random(seed)
    order = generator.sample(range(len(documents)), len(documents))
    sizes = [count_tokens(document) for document in documents]
    wanted = min(share * sum(sizes), max_tokens)
    chosen: set[int] = set()
    for index in order[:-1]:
        if sum(sizes[k] for k in chosen) >= wanted:
            break
        chosen.add(index)
    training = [s for k, document in enumerate(documents) if k not in chosen for s in document]
    # Held-out sentences are scored alone; in random order, training learns no more context either.
    generator.shuffle(training)
    return SplitText(training, [s for k in sorted(chosen) for s in documents[k]])


def count_tokens(sentences: Iterable[Tokens]) -> int:
    """Tokens of sentences."""
    return sum(map(len, sentences))


def write_sentences(path: PathLike, sentences: Iterable[Tokens]) -> None:
    """Write sentences in the form that training reads, whole or not at all."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as text:
        text.writelines(f"{' '.join(sentence)}\n" for sentence in sentences)
