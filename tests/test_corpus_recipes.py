"""Recipes of docs/corpus.md that need an extra: run where it is installed, as they are printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import blocks_of

PAGE = Path(__file__).parent.parent / "docs" / "corpus.md"
FILES = {
    block.comment.removeprefix("file: "): block.text
    for block in blocks_of(PAGE)
    if block.comment.startswith("file: ")
}


def run_recipe(program: str, text: str, folder: Path) -> list[list[str]]:
    """The sentences that a program of the page makes of a text of the page."""
    for name in (program, text):
        (folder / name).write_text(FILES[name], encoding="utf-8")
    command = [sys.executable, program, text, "tokens.txt"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = (folder / "tokens.txt").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines]


def same_text(sentences: list[list[str]], text: str) -> bool:
    return "".join("".join(tokens) for tokens in sentences) == "".join(FILES[text].split())


@pytest.mark.parametrize(
    ("program", "text"),
    [("english.py", "letter.txt"), ("chinese_characters.py", "travel.txt")],
)
def test_recipes_lose_nothing(program, text, tmp_path):
    assert same_text(run_recipe(program, text, tmp_path), text)


def test_english_with_spacy(tmp_path):
    pytest.importorskip("spacy")
    sentences = run_recipe("english_spacy.py", "letter.txt", tmp_path)
    assert same_text(sentences, "letter.txt")
    assert sentences[0] == "Mr. Hale left at 6.30 in the morning .".split()
    assert sentences[1][2:4] == ["wo", "n't"]


def test_chinese_with_jieba(tmp_path):
    pytest.importorskip("jieba")
    sentences = run_recipe("chinese_words.py", "travel.txt", tmp_path)
    assert same_text(sentences, "travel.txt")
    assert sentences[0] == "我们 坐火车 去 北京 。".split()
    assert len(sentences) == 3 and "iPad" in sentences[1]
