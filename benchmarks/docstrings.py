"""The text of the benchmarks: the prose of the docstrings of Python and of installed packages."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from bilm import Tokenizer

_PACKAGES = ("numpy", "keras", "tensorflow")
_SKIPPED_FOLDERS = frozenset(
    ("site-packages", "dist-packages", "__pycache__", "test", "tests", "testing", "idle_test")
)
_DOCSTRING = re.compile(r'"""(.+?)"""', re.DOTALL)
# Doctests, fenced code, headings with a rule, fields such as "axis : int".
_NOT_PROSE = re.compile(
    r"^ *>>>.*(?:\n.+)*|^ *```(?s:.*?)```|^.*\n *[-=~]{3,} *$|^ *[\w*, ]+ : .*$", re.MULTILINE
)
# The start of an item: bullets, ":param x:" and "x (int):".
_ITEM = re.compile(
    r"^ *(?:[-*] |\d+[.)] |:\w+[^:\n]*:|[*`\w]+(?: ?\([^)\n]*\))?:(?= |$))", re.MULTILINE
)
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_PROSE = re.compile(r"[A-Z][\w ,;:'’\"()./-]*[.!?]")
_SMALL_WORDS = frozenset(
    "a an the is are was be to of in for on by with from as at it its this that if not can "
    "when which".split()
)


def write_docstrings(path: Path) -> None:
    """Write each sentence once, tokenised. Source files are read, not imported."""
    specs = [importlib.util.find_spec(name) for name in _PACKAGES]
    folders = [Path(sysconfig.get_paths()["stdlib"])]
    folders += [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    tokenizer, sentences = Tokenizer("en"), dict[str, None]()
    for folder in folders:
        for source in sorted(folder.rglob("*.py")):
            above = source.relative_to(folder).parts[:-1]
            if _SKIPPED_FOLDERS.isdisjoint(above) and source.is_file():
                text = source.read_text(encoding="utf-8", errors="replace")
                sentences.update(dict.fromkeys(_sentences(text, tokenizer)))
    lines = (f"{' '.join(tokenizer.tokens(sentence))}\n" for sentence in sentences)
    path.write_text("".join(lines), encoding="utf-8")


def _sentences(source: str, tokenizer: Tokenizer) -> Iterator[str]:
    """The sentences that look like prose: at least five words, among them one such as "the"."""
    for docstring in _DOCSTRING.findall(source):
        prose = _ITEM.sub("\n\n", _NOT_PROSE.sub("\n\n", docstring)).replace("`", "")
        for paragraph in _PARAGRAPH_END.split(prose):
            for sentence in tokenizer.sentences(" ".join(paragraph.split())):
                words = sentence.split()
                has_small_word = not _SMALL_WORDS.isdisjoint(words)
                if len(words) >= 5 and has_small_word and _PROSE.fullmatch(sentence):
                    yield sentence
