"""Labelled text: three file formats, their detection, and errors that name the line."""

from __future__ import annotations

import pytest

from bilm.analysis import read_labelled, read_labelled_uses
from bilm.core.errors import InputError


def row(number, token, tag="X", features="_", relation="dep", lemma=None):
    lemma = token.lower() if lemma is None else lemma
    return "\t".join([str(number), token, lemma, tag, f"{tag}x", features, "0", relation, "_", "_"])


SENTENCES = [
    "# sent_id = 1",
    "# text = Dogs can't",
    row(1, "Dogs", "NOUN", "Case=Nom|Number=Plur", "nsubj", "dog"),
    row("2-3", "can't"),
    row(2, "ca", "AUX"),
    row(3, "n't", "PART", relation="advmod:neg"),
    row("3.1", "nothing", "VERB"),
    "",
    "",
    row(1, "10 000", "NUM", "NumType=Card"),
    row(2, "_", "_", lemma="_"),
]


@pytest.fixture
def write(tmp_path):
    def write_lines(*lines, name="labels.txt"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    return write_lines


@pytest.mark.parametrize(
    ("column", "sentences", "positions", "labels"),
    [
        ("UPOS", 2, [(0, 0), (0, 1), (0, 2), (1, 0)], ["NOUN", "AUX", "PART", "NUM"]),
        ("upos", 2, [(0, 0), (0, 1), (0, 2), (1, 0)], ["NOUN", "AUX", "PART", "NUM"]),
        ("XPOS", 2, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)], "NOUNx AUXx PARTx NUMx _x".split()),
        ("DEPREL", 2, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)],
         ["nsubj", "dep", "advmod:neg", "dep", "dep"]),
        # The lemma of the token `_` is `_`.
        ("LEMMA", 2, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)], ["dog", "ca", "n't", "10 000", "_"]),
        ("FEATS", 2, [(0, 0), (1, 0)], ["Case=Nom|Number=Plur", "NumType=Card"]),
        ("Number", 1, [(0, 0)], ["Plur"]),
    ],
)  # fmt: skip
def test_conllu(write, column, sentences, positions, labels):
    sample = read_labelled(write(*SENTENCES), column)
    assert len(sample.sentences) == sentences and sample.sentences[0] == ("Dogs", "ca", "n't")
    assert sample.sentences[1:] in ([], [("10", "000", "_")])
    assert sample.positions.tolist() == [list(place) for place in positions]
    assert sample.labels == labels


def test_tokens_with_labels(write):
    sample = read_labelled(write("The\tO", "bank\tB-ORG", " ", "", "#\tO", "苹果\tB-ORG", "O\tO "))
    assert sample.sentences == [("The", "bank"), ("#", "苹果", "O")]
    assert sample.positions.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]]
    assert sample.labels == ["O", "B-ORG", "O", "B-ORG", "O"]


def test_uses_of_words_in_one_sentence_are_read_as_one_sentence(write):
    path = write("river\tthe [bank] of a bank", "money\tthe bank of a [bank]", "river\ta [bank]")
    sample = read_labelled_uses(path)
    assert sample.sentences == [("the", "bank", "of", "a", "bank"), ("a", "bank")]
    assert sample.positions.tolist() == [[0, 1], [0, 4], [1, 1]]
    assert sample.labels == ["river", "money", "river"]


@pytest.mark.parametrize(
    ("lines", "labels"),
    [(["# newdoc", "", row(1, "a")], ["X"]), (["a\tDET"], ["DET"]),
     (["#\tSYM", "a\tDET"], ["SYM", "DET"])],
)  # fmt: skip
def test_forms_are_told_apart(write, lines, labels):
    assert read_labelled(write(*lines)).labels == labels


@pytest.mark.parametrize(
    ("lines", "column", "message"),
    [
        (["a b c"], None, "line 1: must be ten fields of CoNLL-U"),
        (["river\tthe [bank] is wide"], None, "line 1: must be ten fields of CoNLL-U"),
        (["a\tDET"], "UPOS", "must be CoNLL-U, ten fields per line, for column 'UPOS'."),
        ([""], None, r"must have labels\."),
        (
            [row(1, "a", features="Case=Nom"), row(2, "b", features="Tense=Past")],
            "Number",
            "must have labels in .Number.; column is one of LEMMA, ",
        ),
        (["a\tDET", "b DET"], None, "line 2: must be ten fields of CoNLL-U, or a token"),
    ],
)
def test_wrong_files_are_named_with_line_and_rule(write, lines, column, message):
    path = write(*lines)
    with pytest.raises(InputError, match=rf"labels\.txt.* {message}"):
        read_labelled(path, column)


def test_sentences_that_no_empty_line_separates(write):
    path = write(row(1, "a"), row(2, "b"), "# sent_id = 2", row(1, "c"))
    with pytest.raises(InputError, match=r"labels\.txt, line 4: the id 1 must not follow 2"):
        read_labelled(path)
