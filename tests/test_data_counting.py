"""A vocabulary from text."""

from __future__ import annotations

import lzma

import pytest

from bilm.data import Vocabulary, count_words, write_vocabulary
from bilm.errors import InputError


def test_count_words_of_all_files(tmp_path):
    (tmp_path / "a.txt").write_text("b a\n\n  b\tc \n", encoding="utf-8")
    with lzma.open(tmp_path / "b.txt.xz", "wt", encoding="utf-8") as file:
        file.write("b ä")
    assert count_words(tmp_path / "*.txt*") == {"b": 3, "a": 1, "c": 1, "ä": 1}


def test_bounded_counting_keeps_the_frequent_words(tmp_path, caplog):
    lines = [f"the cat rare{number}" for number in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    counts = count_words(tmp_path / "a.txt", max_distinct=10)
    assert len(counts) <= 10
    assert (counts["the"], counts["cat"]) == (50, 50)
    assert "are forgotten" in caplog.text


def test_written_by_falling_count_then_by_word(tmp_path):
    path = tmp_path / "vocab.txt"
    counts = {"b": 2, "a": 2, "z": 5, "rare": 1, "<S>": 9, "<UNK>": 7, "!!!MAXTERMID": 8}
    assert write_vocabulary(path, counts, min_count=2) == 6
    assert path.read_text(encoding="utf-8").split() == ["<S>", "</S>", "<UNK>", "z", "a", "b"]
    assert Vocabulary(path, validate_file=True).size == 6


def test_cut_by_size(tmp_path):
    path = tmp_path / "vocab.txt"
    assert write_vocabulary(path, {"a": 1, "b": 2, "c": 3}, max_size=5) == 5
    assert path.read_text(encoding="utf-8").split()[3:] == ["c", "b"]


@pytest.mark.parametrize(
    ("counts", "arguments", "message"),
    [
        ({"a": 1}, {"min_count": 2}, r"vocab.txt: no word occurs 2 times or more\."),
        ({"<S>": 1}, {}, r"no word occurs 1 times or more\."),
        ({"a": 1}, {"max_size": 2}, r"max_size must be 3 or more \(the special tokens\), not 2\."),
        ({"a b": 1}, {}, r"'a b' cannot stand in a vocabulary: it is not one token\."),
        ({"": 1}, {}, r"'' cannot stand in a vocabulary"),
        ({"a\n": 1}, {}, r"'a\\n' cannot stand in a vocabulary"),
    ],
)
def test_refusals_leave_what_is_there(tmp_path, counts, arguments, message):
    path = tmp_path / "vocab.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        write_vocabulary(path, counts, **arguments)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_without_words(tmp_path):
    (tmp_path / "a.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match=r"a.txt: no word in these files\."):
        count_words(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError, match="No file matches"):
        count_words(tmp_path / "b*.txt")


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo \xff\n")
    with pytest.raises(InputError, match=r"a.txt, line 2: not UTF-8"):
        count_words(tmp_path / "a.txt")


def test_max_distinct_out_of_range(tmp_path):
    with pytest.raises(InputError, match=r"max_distinct must be 2 or more, not 1\."):
        count_words(tmp_path / "a.txt", max_distinct=1)
