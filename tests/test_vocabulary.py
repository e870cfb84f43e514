"""Vocabulary files, and words as ids and as characters."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from bilm.core.errors import InputError
from bilm.data import UnicodeCharsVocabulary, Vocabulary, load_vocab
from bilm.data.encoding import encode_words

PAD = 260


@pytest.fixture
def write(tmp_path):
    """Writes a vocabulary file of the given lines; returns its path."""

    def write(*lines):
        path = tmp_path / "vocab.txt"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def test_ids_are_the_lines_of_the_file(write):
    vocab = Vocabulary(write("</S>", "<S>", " the \t", "<UNK>", "Größe"))
    assert (vocab.eos, vocab.bos, vocab.unk, vocab.size) == (0, 1, 3, 5)
    assert [vocab.word_to_id(word) for word in ("the", "Größe", "cat", "<S>")] == [2, 4, 3, 1]
    assert vocab.id_to_word(4) == "Größe"
    assert vocab.decode(np.array([1, 2, 3, 0])) == "<S> the <UNK> </S>"


def test_maxtermid_has_no_id_and_blank_lines_keep_theirs(write):
    vocab = Vocabulary(write("!!!MAXTERMID", "<S>", "</S>", "", "<UNK>", "the"))
    assert (vocab.bos, vocab.eos, vocab.unk, vocab.word_to_id("the")) == (0, 1, 3, 4)
    assert vocab.id_to_word(2) == ""


def test_last_id_of_a_token_that_occurs_twice(write):
    vocab = Vocabulary(write("<S>", "</S>", "<UNK>", "a", "b", "a"))
    assert vocab.word_to_id("a") == 5
    assert vocab.size == 6
    assert vocab.id_to_word(3) == "a"


def test_lines_without_a_word(write):
    """Blank lines, and all but the last line of a repeated token."""
    vocab = Vocabulary(write("<S>", "a", "", "</S>", "<UNK>", "a", "b", " "))
    assert vocab.has_word.tolist() == [True, False, False, True, True, True, True, False]
    assert vocab.known_ids(["a", "", "b"]).tolist() == [5, -1, 6]


def test_unusual_line_separators_do_not_end_a_line(write):
    vocab = Vocabulary(write("<S>", "</S>", "<UNK>", "a\u2028b", "c"))
    assert vocab.word_to_id("c") == 4


def test_encode(write):
    vocab = Vocabulary(write("<S>", "</S>", "<UNK>", "the", "cat"))
    ids = vocab.encode("the  cat sat")
    assert ids.dtype == np.int32
    assert ids.tolist() == [0, 3, 4, 2, 1]
    # Only BOS and EOS are swapped; the words keep their order.
    assert vocab.encode("the cat sat", reverse=True).tolist() == [1, 3, 4, 2, 0]
    assert vocab.encode(["the", "cat"], split=False).tolist() == [0, 3, 4, 1]
    assert vocab.encode("").tolist() == [0, 1]


def test_characters(write):
    vocab = UnicodeCharsVocabulary(write("<S>", "</S>", "<UNK>", "ß"), 6)
    assert vocab.max_word_length == 6
    marks = (vocab.bos_char, vocab.eos_char, vocab.bow_char, vocab.eow_char, vocab.pad_char)
    assert marks == (256, 257, 258, 259, 260)
    assert vocab.bos_chars.tolist() == [258, 256, 259, PAD, PAD, PAD]
    assert vocab.eos_chars.tolist() == [258, 257, 259, PAD, PAD, PAD]
    assert vocab.word_to_char_ids("ß").tolist() == [258, 0xC3, 0x9F, 259, PAD, PAD]
    assert vocab.word_to_char_ids("").tolist() == [258, 259, PAD, PAD, PAD, PAD]
    assert vocab.word_to_char_ids("abcd").tolist() == [258, 97, 98, 99, 100, 259]
    assert vocab.word_to_char_ids("abcdefg").tolist() == [258, 97, 98, 99, 100, 259]
    # Words are cut after a number of bytes, even within a character.
    assert vocab.word_to_char_ids("abcß").tolist() == [258, 97, 98, 99, 0xC3, 259]
    assert vocab.word_to_char_ids("<S>").tolist() == vocab.bos_chars.tolist()


def test_word_char_ids_are_the_words_of_the_file(write):
    lines = ["</S>", "", "<S>", "a-long-word", "<UNK>", "\x01", "苹果"]
    vocab = UnicodeCharsVocabulary(write(*lines), 5)
    table = vocab.word_char_ids
    assert table.dtype == np.int32
    assert table.shape == (7, 5)
    for line, row in zip(lines, table, strict=True):
        np.testing.assert_array_equal(row, vocab.word_to_char_ids(line))
    assert table[5].tolist() == [258, 1, 259, PAD, PAD]
    assert vocab.word_char_ids is table


def test_lone_surrogates_have_no_bytes():
    assert encode_words(["a\ud800b"], 5).tolist() == [[258, 97, 98, 259, PAD]]


def test_encode_words_against_a_loop():
    words = [
        "",
        "a",
        "Größe",
        "",
        "x" * 60,
        "苹果",
        "😀",
        "<S>",
        "</S>",
        "<UNK>",
        "a\x00b",
        "é" * 24,
    ]
    for longest in (3, 4, 7, 50):
        table = encode_words(words, longest)
        assert table.dtype == np.uint16
        for word, row in zip(words, table, strict=True):
            content = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode("utf-8")))
            expected = [258, *content[: longest - 2], 259]
            assert row.tolist() == expected + [PAD] * (longest - len(expected))


def test_encode_words_of_nothing():
    assert encode_words([], 50).shape == (0, 50)


def test_encode_chars(write):
    vocab = UnicodeCharsVocabulary(write("<S>", "</S>", "<UNK>", "the"), 5)
    chars = vocab.encode_chars("the ox")
    assert chars.dtype == np.int32
    ox = [258, 111, 120, 259, PAD]
    the = [258, 116, 104, 101, 259]
    assert chars.tolist() == [vocab.bos_chars.tolist(), the, ox, vocab.eos_chars.tolist()]
    backwards = vocab.encode_chars(["ox"], reverse=True, split=False)
    assert backwards.tolist() == [vocab.eos_chars.tolist(), ox, vocab.bos_chars.tolist()]


def test_golden_vocabulary(golden):
    vocab = load_vocab(golden / "vocab.txt", 50)
    lines = (golden / "vocab.txt").read_text(encoding="utf-8").split()
    assert isinstance(vocab, UnicodeCharsVocabulary)
    assert vocab.size == len(lines)
    assert [vocab.id_to_word(number) for number in range(vocab.size)] == lines


def test_load_vocab_without_characters(golden):
    vocab = load_vocab(golden / "vocab.txt")
    assert type(vocab) is Vocabulary
    assert not hasattr(vocab, "max_word_length")


def test_vocabularies_can_be_pickled(golden):
    vocab = load_vocab(golden / "vocab.txt", 50)
    assert pickle.loads(pickle.dumps(vocab)).encode("the end").tolist() == [
        *vocab.encode("the end")
    ]


@pytest.mark.parametrize("characters", [None, 50])
def test_a_vocabulary_without_unk_is_for_its_own_words(write, characters):
    """As in the original, whose own test vocabulary has no <UNK>."""
    path = write("the", "<S>", "</S>", "cat")
    vocab = Vocabulary(path) if characters is None else UnicodeCharsVocabulary(path, characters)
    assert vocab.encode("the cat").tolist() == [1, 0, 3, 2]
    assert vocab.word_to_id("cat") == 3 and vocab.word_ids([]).shape == (0,)
    assert vocab.known_ids(["cat", "dog", "<UNK>"]).tolist() == [3, -1, -1]
    message = "'dog' is not in the vocabulary"
    for needs_it in (
        lambda: vocab.word_to_id("dog"),
        lambda: vocab.word_ids(["cat", "dog", "bird"]),
        lambda: vocab.encode("the dog"),
    ):
        with pytest.raises(InputError, match=message):
            needs_it()
    with pytest.raises(InputError, match=r"vocab.txt: the vocabulary lacks <UNK>, which must"):
        _ = vocab.unk


def test_validation_requires_the_special_tokens_as_in_the_original(write):
    vocab = load_vocab(write("<S>", "</S>", "<UNK>", "a", "b", "a", ""))
    assert getattr(vocab, "_id_to" + "_word") == vocab.words  # the original's name
    path = write("<S>", "</S>", "a")
    assert Vocabulary(path).size == 3
    for make in (Vocabulary, lambda *args: UnicodeCharsVocabulary(path, 50, True)):
        with pytest.raises(InputError, match="lacks <UNK>"):
            make(path, True)
    with pytest.raises(InputError, match="lacks <UNK>"):
        load_vocab(path, 50)
