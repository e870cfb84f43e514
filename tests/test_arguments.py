"""Arguments of another type than their annotation says: named, with what was received."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm import InputError
from bilm.analysis import parse_query, sample_uses
from bilm.core.errors import checked, require_iterable, require_words
from bilm.data import encode_words
from bilm.files.reading import PathLike


@checked
def example(
    n: int,
    x: float | None = None,
    *,
    text: str = "",
    path: PathLike | None = None,
    flag: bool = False,
    words: Sequence[str] = (),
    other: dict | None = None,
) -> tuple:
    """Takes one of each kind that is checked, and one that is not."""
    return n, x, text, path, flag, words, other


def test_what_is_of_its_type_is_handed_on():
    assert example(1) == (1, None, "", None, False, (), None)
    arguments = {"text": "a", "path": Path("b"), "flag": np.bool_(True), "words": {"a": 1}.keys()}
    assert example(np.int64(3), 2, **arguments)[:5] == (3, 2, "a", Path("b"), True)
    assert example(n=2, x=np.float32(0.5), flag=1, words=["a"], other=5)[1] == 0.5
    assert example.__doc__ is not None and example.__name__ == "example"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": "1"}, "n: a whole number is expected, not '1'."),
        ({"n": True}, "n: a whole number is expected, not True."),
        ({"n": 1.0}, "n: a whole number is expected, not 1.0."),
        ({"n": 10**5000}, "n: a whole number is expected, not a number of more than 100 digits."),
        ({"x": float("nan")}, "x: a number or None is expected, not nan."),
        ({"x": 10**400}, "x: a number or None is expected, not a number of more than 100 digits."),
        ({"text": b"a"}, "text: text is expected, not b'a'."),
        ({"path": 5}, "path: a path or None is expected, not 5."),
        ({"flag": "yes"}, "flag: True or False is expected, not 'yes'."),
        ({"words": "words"}, "words: a list of words is expected, not 'words'."),
        ({"words": [1]}, "words: a list of words is expected, not [1]."),
    ],
)
def test_what_is_of_another_type_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        example(**{"n": 1} | arguments)
    assert str(caught.value) == message


def test_arguments_by_position_are_checked_too():
    with pytest.raises(InputError, match="x: a number or None is expected, not 'a'"):
        example(1, "a")
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments"):
        example(1, 2, 3)


@pytest.mark.parametrize("value", ["text", b"bytes", {"a"}, {"a": 1}, [1], 5, None, np.array(1)])
def test_what_is_no_list_of_words(value):
    with pytest.raises(InputError, match=r"^words: a list of words is expected, not "):
        require_words(words=value)


@pytest.mark.parametrize("value", ["text", b"bytes", 5, None, np.array(1)])
def test_what_cannot_be_gone_through(value):
    with pytest.raises(InputError, match=r"^ids: numbers are expected, not "):
        require_iterable("numbers", ids=value)


def test_where_users_call(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\n", encoding="utf-8")
    vocabulary = bilm.Vocabulary(tmp_path / "vocab.txt")
    for call, message in (
        (lambda: bilm.Vocabulary(5), "filename: a path is expected, not 5"),
        (lambda: bilm.load_vocab(tmp_path, "9"), "max_word_length: a whole number or None is"),
        (lambda: vocabulary.word_ids([["a"]]), "words: a list of words is expected, not"),
        (lambda: vocabulary.decode(3), "cur_ids: ids of words are expected, not 3"),
        (lambda: vocabulary.id_to_word("a"), "cur_id: a whole number is expected, not 'a'"),
        (lambda: vocabulary.encode([1], split=False), "sentence: text or a list of words is"),
        (lambda: encode_words([1], 5), "words: a list of words is expected, not"),
        (lambda: encode_words(["a"], 2**31), "max_word_length must be 3 or more"),
        (lambda: bilm.Batcher(None, 9).batch_sentences(5), "a list of sentences is expected, not"),
        (lambda: bilm.Batcher(None, 9).batch_sentences([5]), "sentence 0: a list of tokens is"),
        (lambda: parse_query(5), "text: text is expected, not 5"),
        (lambda: sample_uses([5], ["a"]), "sentence 0: a list of words is expected, not 5"),
        (lambda: sample_uses(["a"], 5), "words: words are expected, not 5"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            call()
