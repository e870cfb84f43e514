"""The text of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from bilm.analysis.demo_text import (
    docstring_sentences,
    gather_docstrings,
    read_texts,
    set_aside,
    write_sentences,
)

SOURCE = '''"""The docstring of a module has a sentence. X = 1"""

def sorted_keys(table, reverse):
    """Return the keys of ``table`` in their order.

    A longer text that is wrapped
    over two lines; see the manual.

    Parameters
    ----------
    table : dict
        The mapping whose keys are wanted here.

    Args:
      reverse (bool, optional): If true, the order
        is that of the last key.

    >>> print("This is not part of the prose.")
    This is not part of the prose.

    ```python
    # This is no prose but a comment.
    ```

    * The first of the items has a text.
    * the second has no capital in it.
    Short ones are left.
    Key value pairs have no small words.
    It is set to a = b or to c = d.
    The last sentence has no mark at its end
    """
    return "This is the text of a message and not a docstring."
'''


def test_docstring_sentences_are_prose_alone():
    assert list(docstring_sentences(SOURCE)) == [
        "The docstring of a module has a sentence.",
        "Return the keys of table in their order.",
        "A longer text that is wrapped over two lines; see the manual.",
        "The mapping whose keys are wanted here.",
        "If true, the order is that of the last key.",
        "The first of the items has a text.",
    ]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of an importable package with three modules."""
    folder = tmp_path / "some_package"
    sources = {
        "__init__.py": "raise RuntimeError('it is imported')",
        "a.py": '"""This is the one sentence of the module."""',
        "b.py": '"""This is the one sentence of the module. This is a second one in it."""',
        "c.py": '"""\xff is not UTF-8. This is the third one of them."""',
        "tests/d.py": '"""This is a sentence of the tests."""',
    }
    for name, source in sources.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(source.encode("latin-1"))
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


@pytest.mark.slow
def test_docstrings_are_gathered_once_from_files_that_are_not_imported(package):
    documents = gather_docstrings(("no_such_package", package))
    assert documents[-3:] == [
        [["This", "is", "the", "one", "sentence", "of", "the", "module", "."]],
        [["This", "is", "a", "second", "one", "in", "it", "."]],
        [["This", "is", "the", "third", "one", "of", "them", "."]],
    ]
    texts = [" ".join(sentence) for document in documents for sentence in document]
    assert len(texts) == len(set(texts)) > 5000
    assert {text[-1] for text in texts} == set(".!?")


def documents_of(n: int) -> list[list[list[str]]]:
    return [[[f"w{i}", "x"] for _ in range(3)] for i in range(n)]


def test_whole_documents_are_set_aside():
    documents = documents_of(20)
    text = set_aside(documents, share=0.2, max_tokens=1000, seed=1)
    assert len(text.heldout) == 12
    held = {sentence[0] for sentence in text.heldout}
    assert len(held) == 4
    assert held.isdisjoint(sentence[0] for sentence in text.training)
    assert len(text.training) == 48
    assert set_aside(documents, share=0.2, max_tokens=1000, seed=1) == text
    assert set_aside(documents, share=0.2, max_tokens=1000, seed=2) != text
    assert len(set_aside(documents, share=0.5, max_tokens=6, seed=1).heldout) == 3


def test_some_text_is_always_left_to_train_on():
    text = set_aside(documents_of(2), share=0.99, max_tokens=1000)
    assert len(text.training) == len(text.heldout) == 3


def test_read_texts(tmp_path: Path):
    raw, tokenized = tmp_path / "raw.txt", tmp_path / "tokenized.txt"
    raw.write_text("It's one. It's two\nlines!\n", encoding="utf-8")
    tokenized.write_text("".join(f"s {n}.\n\n" for n in range(150)), encoding="utf-8")
    assert read_texts([raw], tokenized=False, max_tokens=100) == [
        [["It", "'s", "one", "."], ["It", "'s", "two", "lines", "!"]]
    ]
    documents = read_texts([tokenized], tokenized=True, max_tokens=1000)
    assert [len(document) for document in documents] == [100, 50]
    assert documents[0][0] == ["s", "0."]
    assert sum(map(len, read_texts([tokenized], tokenized=True, max_tokens=10))) == 5


@pytest.mark.parametrize("has_jieba", [False, True])
def test_chinese_text_is_recognised(tmp_path: Path, monkeypatch, has_jieba):
    if has_jieba:
        pytest.importorskip("jieba")
    else:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    text = tmp_path / "chinese.txt"
    text.write_text("我们坐火车去北京。\n你来了吗？我带了iPad。\n他走了\n" * 50, encoding="utf-8")
    documents = read_texts([text], tokenized=False, max_tokens=10_000)
    assert [len(document) for document in documents] == [100, 100]
    if has_jieba:
        assert documents[0][0] == ["我们", "坐火车", "去", "北京", "。"]
    else:
        assert documents[0][2] == ["我", "带", "了", "iPad", "。"]


def test_sentences_are_written_as_training_reads_them(tmp_path: Path):
    write_sentences(tmp_path / "a.txt", [["Straße", "."], ["b"]])
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "Straße .\nb\n"
