"""A corpus that every machine with this package has: the English docstrings of its libraries.

Source files are parsed, never imported. What is kept is prose: sentences, each once.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bilm.demo.sentences import Sentence, split_sentences, tokenize

PACKAGES = ("numpy", "keras", "tensorflow")
"""The packages that are read beside Python's own library."""

_SKIPPED_FOLDERS = frozenset(
    ("site-packages", "dist-packages", "__pycache__", "test", "tests", "testing", "idle_test")
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Shorter strings that are no docstrings are messages, patterns and templates.
_MIN_TEXT = 400


@dataclass(frozen=True)
class SourceFolder:
    """A folder of Python source: `name` is the package's, "python" for the standard library."""

    name: str
    path: Path


def find_sources(packages: tuple[str, ...] = PACKAGES) -> list[SourceFolder]:
    """Folders of the standard library and of the `packages` that are installed."""
    folders = [SourceFolder("python", Path(sysconfig.get_paths()["stdlib"]))]
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders.append(SourceFolder(name, Path(spec.origin).parent))
    return folders


def source_files(folder: Path) -> list[Path]:
    """Python files below a folder, sorted, without tests and without installed packages."""
    return sorted(
        path
        for path in folder.rglob("*.py")
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(folder).parts[:-1])
    )


def module_sentences(path: Path) -> list[Sentence]:
    """The prose of one Python file, as tokenised sentences in their order in the file.

    A file that cannot be read or parsed (another version's syntax, another encoding) has none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return []
    sentences = []
    for text in _texts(tree):
        for paragraph in prose_paragraphs(text):
            for sentence in split_sentences(paragraph):
                tokens = tokenize(sentence)
                if is_prose(tokens):
                    sentences.append(tokens)
    return sentences


def _texts(tree: ast.Module) -> Iterator[str]:
    """Docstrings, and the long texts that programs attach to objects as their docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if len(node.value) >= _MIN_TEXT and " " in node.value:
                yield node.value
        elif isinstance(node, _DOCUMENTED):
            docstring = ast.get_docstring(node, clean=False)
            if docstring and len(docstring) < _MIN_TEXT:
                yield docstring


# Lines and blocks that are not prose.
_FENCE = re.compile(r"\s*(```|~~~)")
_DOCTEST = re.compile(r"\s*(>>>|\.\.\. |In \[\d+\]:)")
_RULE = re.compile(r"\s*([-=~^*+#|_\"`][-=~^*+#|_\"` ]{2,})$")
_TABLE = re.compile(r"\s*\|.*\||\S+ {3,}\S+ {3,}\S")
_DIRECTIVE = re.compile(r"\s*\.\. *(?:[\w-]+::|_[^:]+:|\[)")
_PROSE_DIRECTIVE = re.compile(r"\s*\.\. *(?:note|warning|versionadded|versionchanged|deprecated)::")
# What stands before the prose of an item: bullets, :param x:, and "name (type):" of Args lists.
_ITEM = re.compile(
    r"\s*(?:[-*+•]\s+|\(?\d{1,2}[.)]\s+|:\w+[^:]*:\s*|[*`\w.]+(?: ?\([^)]*\))?`*:(?:\s+|$))"
)
_NUMPY_FIELD = re.compile(r"\s*[*`\w., ]+ : ")
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?: <[^>]*>)?`")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}(\w[^*]*)\*{1,2}(?!\w)")
_LINK = re.compile(r"`([^`<]+?)\s*<[^>]*>`_{0,2}|\[([^\]]+)\]\([^)]*\)")


def prose_paragraphs(docstring: str) -> list[str]:
    """Paragraphs of a docstring, one line each, without what is not prose.

    Dropped: fenced code, doctests, literal blocks, tables, headings with their rules, directives,
    and the names and types before the descriptions of arguments. Mark-up loses its marks.
    """
    paragraphs: list[str] = []
    words: list[str] = []
    indent, hanging = 0, False
    for line in _prose_lines(inspect.cleandoc(docstring).splitlines()):
        depth = len(line) - len(line.lstrip())
        item = _ITEM.match(line)
        joins = depth == indent or (hanging and depth > indent)
        if words and (not line or item or not joins):
            paragraphs.append(" ".join(words))
            words = []
        if not line:
            hanging = False
        elif item:
            indent, hanging = depth, True
        elif not joins:
            indent, hanging = depth, False
        text = line[item.end() :] if item else line
        words.extend(_without_markup(text).split())
    return [*paragraphs, " ".join(words)] if words else paragraphs


def _prose_lines(lines: list[str]) -> Iterator[str]:
    """The lines that may hold prose; what was dropped becomes a blank line."""
    fenced, block_indent, doctest = False, None, False
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip())
        blank = not line.strip()
        if _FENCE.match(line):
            fenced = not fenced
            yield ""
            continue
        if block_indent is not None and not blank and depth <= block_indent:
            block_indent = None
        doctest = not blank and (doctest or bool(_DOCTEST.match(line)))
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if blank or fenced or doctest or block_indent is not None or _is_layout(line, following):
            prose = ""
        else:
            prose = line
        if _opens_block(line) and block_indent is None:
            block_indent = depth
        yield prose.replace("::", ":") if prose.rstrip().endswith("::") else prose


def _is_layout(line: str, following: str) -> bool:
    """Rules, headings (a rule follows), tables, directives and `name : type` lines."""
    patterns = (_RULE, _TABLE, _DIRECTIVE, _NUMPY_FIELD)
    return bool(_RULE.match(following)) or any(pattern.match(line) for pattern in patterns)


def _opens_block(line: str) -> bool:
    """Whether deeper lines that follow are code: after `::` and after most directives."""
    if _DIRECTIVE.match(line):
        return not _PROSE_DIRECTIVE.match(line)
    return line.rstrip().endswith("::")


def _without_markup(text: str) -> str:
    text = _ROLE.sub(r"\1", text)
    text = _LINK.sub(lambda match: match.group(1) or match.group(2), text)
    return _EMPHASIS.sub(r"\1", text).replace("`", "")


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*$")
_SMALL_WORDS = frozenset(
    "a an the is are was be been to of in for on by with from as at it its this that these those "
    "and or if not no can may will must should has have had does do when which who you we "
    "there all any each".split()
)


def is_prose(tokens: Sentence) -> bool:
    """Whether tokens look like an English sentence and not like code, a list or a heading.

    It starts with a capital or a number, ends with a mark, has five to a hundred tokens, at least
    one small word such as "the", and two thirds of its tokens or more are plain words.
    """
    if not 5 <= len(tokens) <= 100 or tokens[-1] not in {".", "!", "?"}:
        return False
    if not tokens[0][0].isupper() or _SMALL_WORDS.isdisjoint(token.lower() for token in tokens):
        return False
    plain = sum(1 for token in tokens if _WORD.match(token))
    odd = sum(1 for token in tokens if token in {"=", "{", "}", "<", ">", "\\", "|", "@", "$", "_"})
    return 3 * plain >= 2 * (len(tokens) - 1) and 10 * odd <= len(tokens)
