"""The demo: its text, its unigram model, its neighbours, and the whole job on small text."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from bilm.cli import main
from bilm.demo.corpus import Corpus, count_words, part, read_texts, without_repeats
from bilm.demo.docstrings import (
    find_sources,
    is_prose,
    module_sentences,
    prose_paragraphs,
    source_files,
)
from bilm.demo.job import DemoFolder, heldout_perplexity, load_embedder, steps_in
from bilm.demo.neighbours import Contexts, Occurrence, sample_with, telling_words
from bilm.demo.sentences import read_prose, read_tokenized, split_sentences, tokenize
from bilm.demo.unigram import UnigramModel
from bilm.errors import InputError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat's left-to-right key.", ["The", "cat's", "left-to-right", "key", "."]),
        ("Use f(x, 1,024.5)!", ["Use", "f", "(", "x", ",", "1,024.5", ")", "!"]),
        ("See os.path, e.g. here...", ["See", "os.path", ",", "e.g.", "here", "..."]),
        ("naïve Straße №5 — 中文", ["naïve", "Straße", "№", "5", "—", "中文"]),
        ("  \t ", []),
    ],
)
def test_tokenize(text, tokens):
    assert tokenize(text) == tokens


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? four", ["One.", "Two!", "Three? four"]),
        ("Dr. B. Lee, i.e. she, left. He slept.", ["Dr. B. Lee, i.e. she, left.", "He slept."]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("Version 3.11 is out (now). 2 follow.", ["Version 3.11 is out (now).", "2 follow."]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("", []),
    ],
)
def test_split_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_read_prose_joins_lines_of_a_paragraph():
    lines = ["A sentence that runs", "over two lines. And one", "", "A heading", "", "The end."]
    assert [" ".join(sentence) for sentence in read_prose(lines)] == [
        "A sentence that runs over two lines .",
        "And one",
        "A heading",
        "The end .",
    ]


def test_read_tokenized_takes_lines_as_they_are():
    assert list(read_tokenized(["a b. c", "", " d "])) == [["a", "b.", "c"], ["d"]]


DOCSTRING = """Return the *sorted* keys of ``table``.

    A longer text that is wrapped
    over two lines; see `the manual <https://example.org>`_.

    Parameters
    ----------
    table : dict
        The mapping whose keys are wanted.

    Args:
      reverse (bool, optional): If true, the order
        is turned round.

    Example::

        keys = sorted_keys({"a": 1})

    >>> sorted_keys({})
    []

    ```python
    This is no prose. It is code.
    ```

    .. code-block:: python

        Neither is this.

    * :func:`sorted` does the work.
    """


def test_prose_paragraphs_keep_prose_alone():
    assert prose_paragraphs(DOCSTRING) == [
        "Return the sorted keys of table.",
        "A longer text that is wrapped over two lines; see the manual.",
        "The mapping whose keys are wanted.",
        "If true, the order is turned round.",
        "sorted does the work.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The key is the first of the two .", True),
        ("the key is the first of the two .", False),
        ("The key is the first of the two", False),
        ("Key value pairs here .", False),
        ("Numbers : 1 , 2 , 3 , 4 , 5 and 6 .", False),
        ("Set a = b and c = d or e = f .", False),
    ],
)
def test_is_prose(text, expected):
    assert is_prose(text.split()) is expected


def test_module_sentences_of_a_file(tmp_path: Path):
    source = tmp_path / "module.py"
    source.write_text(
        '"""The docstring of a module has a sentence. X = 1"""\n'
        "def function():\n"
        "    '''Return the value of the function. It is not called here.'''\n"
        "    return 'This is the text of a message and not a docstring.'\n",
        encoding="utf-8",
    )
    assert [" ".join(sentence) for sentence in module_sentences(source)] == [
        "The docstring of a module has a sentence .",
        "Return the value of the function .",
        "It is not called here .",
    ]


@pytest.mark.parametrize("content", [b"def broken(:\n", b"\xff\xfe\x00", b"x = '\x00'"])
def test_module_sentences_of_a_file_that_is_not_python(tmp_path: Path, content: bytes):
    source = tmp_path / "broken.py"
    source.write_bytes(content)
    assert module_sentences(source) == []


def test_sources_are_found_without_importing_them():
    folders = {folder.name: folder.path for folder in find_sources()}
    assert set(folders) == {"python", "numpy", "keras", "tensorflow"}
    names = [path.name for path in source_files(folders["python"])]
    assert "argparse.py" in names
    assert not [path for path in source_files(folders["python"]) if "site-packages" in path.parts]
    assert [folder.name for folder in find_sources(("no_such_package",))] == ["python"]


def test_standard_library_gives_prose():
    sentences = module_sentences(Path(find_sources(())[0].path) / "argparse.py")
    assert ["Command-line", "parsing", "library"] not in sentences
    assert len(sentences) > 20
    assert all(sentence[-1] in ".!?" for sentence in sentences)


def test_without_repeats():
    documents = [[["a"], ["b"]], [["a"]], [["c"], ["b"], ["c"]]]
    assert without_repeats(documents) == [[["a"], ["b"]], [["c"]]]


def documents_of(n: int) -> list[list[list[str]]]:
    return [[[f"w{i}", "x"] for _ in range(3)] for i in range(n)]


def test_part_sets_whole_documents_aside():
    documents = documents_of(20)
    corpus = part(documents, share=0.2, max_tokens=1000, seed=1)
    assert len(corpus.heldout) == 12
    held = {sentence[0] for sentence in corpus.heldout}
    assert len(held) == 4
    assert held.isdisjoint(sentence[0] for sentence in corpus.training)
    assert len(corpus.training) == 48
    assert part(documents, share=0.2, max_tokens=1000, seed=1) == corpus
    assert part(documents, share=0.2, max_tokens=1000, seed=2) != corpus
    assert len(part(documents, share=0.5, max_tokens=6, seed=1).heldout) == 3


def test_part_needs_two_documents():
    with pytest.raises(InputError, match="too short to set some of it aside: 101 sentences"):
        part(documents_of(1), share=0.2, max_tokens=10, seed=0)


def test_part_always_leaves_text_to_train_on():
    corpus = part(documents_of(2), share=0.99, max_tokens=1000, seed=0)
    assert len(corpus.training) == len(corpus.heldout) == 3


def test_read_texts(tmp_path: Path):
    raw, tokenized = tmp_path / "raw.txt", tmp_path / "tokenized.txt"
    raw.write_text("It's one. It's two\nlines!\n", encoding="utf-8")
    tokenized.write_text("".join(f"s {n}\n" for n in range(150)), encoding="utf-8")
    assert read_texts([raw], tokenized=False, max_tokens=100) == [
        [["It's", "one", "."], ["It's", "two", "lines", "!"]]
    ]
    documents = read_texts([tokenized], tokenized=True, max_tokens=1000)
    assert [len(document) for document in documents] == [100, 50]
    assert sum(map(len, read_texts([tokenized], tokenized=True, max_tokens=10))) == 5


def test_read_texts_names_the_file_without_text(tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match=r"empty\.txt: no text in it"):
        read_texts([empty], tokenized=False, max_tokens=100)


def test_unigram_model_by_hand():
    model = UnigramModel([["a", "b"], ["a", "rare"]], ["<S>", "</S>", "<UNK>", "a", "b", "c"])
    # Targets: a 2, b 1, <UNK> 1, </S> 2; one more for each of the 5 words that can be targets.
    assert model.log_probability("a") == pytest.approx(math.log(3 / 11))
    assert model.log_probability("c") == pytest.approx(math.log(1 / 11))
    expected = math.exp(-(math.log(3 / 11) + math.log(2 / 11) + math.log(3 / 11)) / 3)
    assert model.perplexity([["a", "other"]]) == pytest.approx(expected)


def test_occurrence_in_context():
    sentence = list("abcdefg")
    assert Occurrence(sentence, 0).in_context(2) == "[a] b c ..."
    assert Occurrence(sentence, 3).in_context(2) == "... b c [d] e f ..."
    assert Occurrence(sentence, 6).in_context(9) == "a b c d e f [g]"


def embed_by_subject(pool):
    """Every word gets the vector of its sentence's first word."""
    subjects = {
        "money": [1.0, 0.1],
        "interest": [1.0, 0.3],
        "water": [-1.0, 0.0],
        "fish": [-1, 0.2],
    }
    return [np.tile(np.float32(subjects[s[0]]), (len(s), 1)) for s in pool]


def test_contexts_find_the_nearest():
    pool = [[s, "of", "bank", str(n)] for n, s in enumerate(("money", "water", "interest", "fish"))]
    contexts = Contexts(pool, embed_by_subject)
    assert contexts.frequent_words(["bank", "absent", "2"], 4) == ["bank"]
    one, other = contexts.apart("Bank")
    # One of money, one of a river.
    assert (one.sentence[0] in {"money", "interest"}) != (
        other.sentence[0] in {"money", "interest"}
    )
    found = contexts.neighbours(one, 1)
    alike = {"money": "interest", "interest": "money", "water": "fish", "fish": "water"}
    (cosine, nearest), (_, other_word) = found.same_word[0], found.other_words[0]
    assert nearest.word == "bank" and nearest.sentence[0] == alike[one.sentence[0]]
    assert 0.5 < cosine < 1.0
    assert other_word.word != "bank" and other_word.sentence[0] == alike[one.sentence[0]]


def test_contexts_do_not_know_other_occurrences():
    contexts = Contexts([["money", "bank"], ["water", "bank"]], embed_by_subject)
    with pytest.raises(KeyError, match="absent"):
        contexts.apart("absent")
    with pytest.raises(KeyError):
        contexts.neighbours(Occurrence(["a", "bank"], 1))


def test_sample_with_prefers_sentences_with_the_words():
    sentences = [[f"w{n}"] for n in range(50)] + [["Key", "x"]]
    assert ["Key", "x"] in sample_with(sentences, ["key"], 5, seed=0)
    assert len(sample_with(sentences, ["key"], 5, seed=0)) == 5


def test_telling_words_are_frequent_but_not_the_most_frequent():
    sentences = [["common"] * 9, ["usual"] * 5, ["Capital"] * 6, ["of"] * 4, ["word"] * 3, ["rare"]]
    assert telling_words(sentences, 2) == ["usual", "word"]


def test_count_words():
    assert count_words([["a", "b"], ["a"]]) == {"a": 2, "b": 1}
    assert Corpus([], []).training == []


def test_demo_refuses_a_folder_that_exists(tmp_path: Path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert (
        "exists, perhaps from an earlier demo, and is never overwritten" in capsys.readouterr().err
    )


def test_demo_tokenized_needs_a_corpus(tmp_path: Path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--out", str(tmp_path / "new"), "--tokenized"])
    assert "--tokenized goes with --corpus" in capsys.readouterr().err


def test_demo_names_a_missing_corpus(tmp_path: Path, capsys):
    assert main(["demo", "--out", str(tmp_path / "new"), "--corpus", "no-such-file.txt"]) == 1
    assert "no-such-file.txt" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("times", "seconds", "n_steps"),
    [
        ([10.0], 100.0, 10),
        ([10.0, 11.0, 12.0], 100.0, 91),  # a second each, but for the first, which compiles
        ([10.0, 12.0], 12.0, 2),
        ([200.0], 100.0, 1),
    ],
)
def test_steps_that_the_time_will_do_for(times, seconds, n_steps):
    assert steps_in(times, seconds) == n_steps


OWN_TEXT = "".join(
    f"The {a} cat sees the {b} dog of Mr. {c}.\nIt says that the {b} dog sees a {a} bird!\n\n"
    for a in ("small", "old", "green", "quick")
    for b in ("red", "kind", "loud", "tired")
    for c in ("Smith", "Jones", "Brown", "Miller", "Wilson")
)


@pytest.fixture(scope="module")
def own_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoFolder, int]:
    """The demo on a small text of one's own: its folder, and its exit code."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "text.txt").write_text(OWN_TEXT, encoding="utf-8")
    out = str(folder / "out")
    code = main(["demo", "--corpus", str(folder / "text.txt"), "--out", out, "--minutes", "0.05"])
    return DemoFolder(out), code


@pytest.mark.slow
def test_demo_leaves_text_model_and_weights(own_demo):
    folder, code = own_demo
    assert code == 0
    names = ["checkpoints", "heldout.txt", "train.txt", "weights.hdf5", "weights.options.json"]
    assert sorted(os.listdir(folder.path)) == names
    heldout = Path(folder.heldout).read_text(encoding="utf-8").splitlines()
    assert all(line.endswith((" .", " !")) for line in heldout)
    n_lines = len(Path(folder.training).read_text(encoding="utf-8").splitlines()) + len(heldout)
    assert n_lines == 160


@pytest.mark.slow
def test_demo_vectors_do_not_depend_on_the_batch(own_demo):
    folder, _ = own_demo
    embed = load_embedder(folder, layer=2)
    sentences = [["The", "old", "cat"], ["dog"], ["It", "says", "that", "the"], ["a", "b"]]
    together = embed(sentences)
    assert [rows.shape for rows in together] == [(len(s), 128) for s in sentences]
    for sentence, rows in zip(sentences, together, strict=True):
        np.testing.assert_allclose(embed([sentence])[0], rows, atol=1e-5)


@pytest.mark.slow
def test_demo_folder_is_one_that_the_other_verbs_take(own_demo, capsys):
    folder, _ = own_demo
    arguments = ["test", "--save_dir", folder.checkpoints, "--test_prefix", folder.heldout]
    assert main(arguments) == 0
    printed = float(capsys.readouterr().out.splitlines()[2].split()[-1])
    assert printed == pytest.approx(float(heldout_perplexity(folder)), rel=1e-5)


@pytest.mark.slow
def test_demo_prints_what_it_found(tmp_path: Path, capsys):
    text = tmp_path / "text.txt"
    lines = (" ".join(sentence) for sentence in read_prose(OWN_TEXT.splitlines()))
    text.write_text("\n".join(lines), encoding="utf-8")
    arguments = ["demo", "--corpus", str(text), "--tokenized", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--minutes", "0.02", "--words", "dog", "absent"]) == 0
    captured = capsys.readouterr()
    for part_of_report in (
        "training ",
        "held-out ",
        "unigram model ",
        "forward language model ",
        "backward language model ",
        "[dog]",
        "  same word   ",
        "  other words ",
    ):
        assert part_of_report in captured.out
    assert "'absent' does not occur three times in the text." in captured.err
    assert "step 1/" in captured.err
    before = sorted(os.listdir(tmp_path / "out"))
    assert main(arguments) == 1
    assert sorted(os.listdir(tmp_path / "out")) == before
