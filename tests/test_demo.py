"""The demo: its text, its unigram model, the words it shows, and the whole job on small text."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from bilm import tokenize
from bilm.analysis.demo.job import DemoFiles, heldout_perplexity, load_model, unigram_perplexity
from bilm.analysis.demo.raw_text import (
    docstring_sentences,
    gather_docstrings,
    read_texts,
    set_aside,
    write_sentences,
)
from bilm.analysis.demo.two_senses import (
    LAYER,
    all_uses,
    count_uses,
    find_two_senses,
    static_vectors,
)
from bilm.cli import main
from bilm.core.errors import InputError
from bilm.use.elmo import ELMo
from tests.small_models import write_small_model

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
    """The name of a package of three modules that can be imported."""
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


def test_text_of_one_document_is_too_short():
    with pytest.raises(InputError, match="too short to set some of it aside: 101 sentences"):
        set_aside(documents_of(1), share=0.2, max_tokens=10)


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


def test_read_texts_names_the_file_without_text(tmp_path: Path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match=r"empty\.txt: no text in it"):
        read_texts([empty], tokenized=False, max_tokens=100)


def test_sentences_are_written_as_training_reads_them(tmp_path: Path):
    write_sentences(tmp_path / "a.txt", [["Straße", "."], ["b"]])
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "Straße .\nb\n"


def test_unigram_perplexity_by_hand():
    vocabulary = ["<S>", "</S>", "<UNK>", "a", "b", "c"]
    training = [["a", "b"], ["a", "rare"]]
    # Targets: a 2, b 1, <UNK> 1, </S> 2; one more for each of the 5 words that can be targets.
    expected = math.exp(-(math.log(3 / 11) + math.log(2 / 11) + math.log(3 / 11)) / 3)
    assert unigram_perplexity(training, [["a", "other"]], vocabulary) == pytest.approx(expected)
    expected = math.exp(-(math.log(1 / 11) + math.log(3 / 11)) / 2)
    assert unigram_perplexity(training, [["c"]], vocabulary) == pytest.approx(expected)


@pytest.fixture(scope="module")
def elmo(tmp_path_factory: pytest.TempPathFactory) -> ELMo:
    folder = tmp_path_factory.mktemp("model")
    return ELMo.from_pretrained(write_small_model(folder, "short_words_261").files)


# "bank" stands at the ends of sentences of two kinds.
BANKS = [
    [*tokens.split(), str(n)]
    for n in range(20)
    for tokens in ("the bank lends money", "fish swim near this bank")
]


def test_two_groups_of_a_named_word(elmo):
    static = static_vectors(elmo, BANKS)
    (senses,) = find_two_senses(elmo, BANKS, static, ["Bank"])
    assert (senses.word, senses.count, len(senses.occurrences)) == ("bank", 40, 40)
    assert senses.clusters.sizes == [20, 20] and senses.cosine < 0.9
    kinds = [{line.split()[0] for line in senses.lines(group)} for group in (0, 1)]
    assert sorted(kinds, key=str) == [{"fish"}, {"the"}]
    assert all(len(near) == 6 and "bank" not in near for near in senses.near)
    uses = all_uses([senses, senses])
    assert len(uses) == 80 and set(uses.labels) == {"bank 1", "bank 2"}
    assert uses.in_context(79) == senses.occurrences.in_context(39)


def test_words_that_it_finds_itself(elmo):
    static = static_vectors(elmo, BANKS)
    # The most frequent words are passed over.
    found = find_two_senses(elmo, [*BANKS, ["these", "those"] * 50], static)
    assert [senses.word for senses in found] == ["bank"]
    with pytest.raises(InputError, match="no word of the text has two clusters of uses among 40"):
        find_two_senses(elmo, BANKS[:6], static)
    with pytest.raises(InputError, match="the text has no words that could be shown"):
        find_two_senses(elmo, [["1", "2"]], static)


def test_static_vectors_of_the_demo(elmo):
    vectors = static_vectors(elmo, BANKS)
    assert vectors.words[0] == "bank" and len(vectors) == 8
    encoded = zip(BANKS, elmo.encode(BANKS, LAYER), strict=True)
    mean = np.mean([layer[sentence.index("bank")] for sentence, layer in encoded], axis=0)
    np.testing.assert_allclose(vectors.vector("bank"), mean, rtol=1e-4, atol=1e-6)


def test_uses_are_counted():
    assert count_uses([["A", "b"], ["a"]], ["a", "B", "c"]) == {"a": 1, "b": 1, "c": 0}


def test_demo_refuses_a_folder_that_exists(tmp_path: Path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert (
        "exists, perhaps from an earlier demo, and is never overwritten" in capsys.readouterr().err
    )


def test_demo_tokenized_needs_a_corpus(tmp_path: Path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--out", str(tmp_path / "new"), "--tokenized"])
    assert "--tokenized goes with --corpus" in capsys.readouterr().err


def test_demo_needs_words_that_occur(tmp_path: Path, capsys):
    text = tmp_path / "text.txt"
    text.write_text(OWN_TEXT, encoding="utf-8")
    arguments = ["demo", "--out", str(tmp_path / "new"), "--corpus", str(text), "--words", "zebra"]
    assert main(arguments) == 1
    assert "--words: none of them occurs 10 times in the text." in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_demo_names_a_missing_corpus(tmp_path: Path, capsys):
    assert main(["demo", "--out", str(tmp_path / "new"), "--corpus", "no-such-file.txt"]) == 1
    assert "no-such-file.txt" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


OWN_TEXT = "".join(
    f"The {a} cat sees the {b} dog of Mr. {c}.\nIt says that the {b} dog sees a {a} bird!\n\n"
    for a in ("small", "old", "green", "quick")
    for b in ("red", "kind", "loud", "tired")
    for c in ("Smith", "Jones", "Brown", "Miller", "Wilson")
)


@pytest.fixture(scope="module")
def own_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """The demo on a small text of one's own: its folder, and its exit code."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "text.txt").write_text(OWN_TEXT, encoding="utf-8")
    out = str(folder / "out")
    code = main(["demo", "--corpus", str(folder / "text.txt"), "--out", out, "--minutes", "0.05"])
    return out, code


@pytest.mark.slow
def test_demo_leaves_text_model_and_weights(own_demo):
    folder, code = own_demo
    assert code == 0
    names = ["checkpoints", "heldout.txt", "senses.html", "train.txt", "weights.hdf5"]
    names.append("weights.options.json")
    assert sorted(os.listdir(folder)) == names
    files = DemoFiles.in_folder(folder)
    heldout = Path(files.heldout).read_text(encoding="utf-8").splitlines()
    assert all(line.endswith((" .", " !")) for line in heldout)
    n_lines = len(Path(files.training).read_text(encoding="utf-8").splitlines()) + len(heldout)
    assert n_lines == 160


@pytest.mark.slow
def test_demo_folder_is_one_that_the_other_verbs_take(own_demo, capsys):
    files = DemoFiles.in_folder(own_demo[0])
    arguments = ["test", "--save_dir", files.checkpoints, "--test_prefix", files.heldout]
    assert main(arguments) == 0
    printed = float(capsys.readouterr().out.splitlines()[2].split()[-1])
    assert printed == pytest.approx(float(heldout_perplexity(files)), rel=1e-5)
    (vectors,) = load_model(files).encode(["the dog"], "top")
    assert vectors.shape == (2, 128)


@pytest.mark.slow
def test_demo_prints_what_it_found(tmp_path: Path, capsys):
    text = tmp_path / "text.txt"
    lines = (" ".join(sentence) for sentence in tokenize(OWN_TEXT, "en"))
    text.write_text("\n".join(lines), encoding="utf-8")
    arguments = ["demo", "--corpus", str(text), "--tokenized", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--minutes", "0.02", "--words", "dog", "absent"]) == 0
    captured = capsys.readouterr()
    for reported in (
        "training ",
        "held-out ",
        "unigram model ",
        "forward language model ",
        "backward language model ",
        "[dog]",
        "\ndog, ",
        "  one vector for all its uses; nearest words: ",
        "  group 1, ",
        "  group 2, ",
        "senses.html in a browser",
    ):
        assert reported in captured.out
    assert "'absent' occurs 0 times in the text; 10 are needed to show it." in captured.err
    assert "step 1  perplexity " in captured.err
    before = sorted(os.listdir(tmp_path / "out"))
    assert main(arguments) == 1
    assert sorted(os.listdir(tmp_path / "out")) == before
