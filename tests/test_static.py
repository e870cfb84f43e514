"""Static vectors: file formats, nearest words, word2vec, analogies, and the subcommand."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from bilm import ELMo
from bilm.analysis import StaticVectors
from bilm.analysis.static_vectors import (
    frequent_words,
    mean_vectors,
    train_word2vec,
)
from bilm.cli import main
from bilm.core.errors import InputError
from tests.command_line import input_error
from tests.compare import close
from tests.small_models import write_small_model

# a and b point nearly the same way, c away from both; d is b - a + c.
WORDS = ["a", "b", "c", "d"]
VECTORS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]], np.float32)
TEXT = "".join(f"{word} {' '.join(map(str, v))}\n" for word, v in zip(WORDS, VECTORS, strict=True))


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return ELMo.from_pretrained(write_small_model(folder, "short_words_261").files)


def written(folder, content, name="vectors.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("header", ["4 3\n", ""], ids=["word2vec", "GloVe"])
def test_files_are_read(tmp_path, header):
    vectors = StaticVectors.load(written(tmp_path, header + TEXT))
    assert vectors.words == WORDS and vectors.dim == 3
    np.testing.assert_array_equal(vectors.vectors, VECTORS)


def test_saved_vectors_are_read_back_exactly(tmp_path):
    random = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    words = ["a\0b", "5", "银行"]  # binary files contain NUL bytes too
    StaticVectors(words, random).save(tmp_path / "v.txt")
    loaded = StaticVectors.load(tmp_path / "v.txt")
    assert loaded.words == words
    np.testing.assert_array_equal(loaded.vectors, random)


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz"])
def test_gensim_reads_what_is_saved(name, tmp_path):
    from gensim.models import KeyedVectors

    StaticVectors(WORDS, VECTORS).save(tmp_path / name)
    keyed = KeyedVectors.load_word2vec_format(str(tmp_path / name))
    assert keyed.index_to_key == WORDS
    np.testing.assert_array_equal(keyed["b"], VECTORS[1])


def test_words_in_small_letters_stand_for_others(tmp_path):
    vectors = StaticVectors(["Bank", "bank", "play"], VECTORS[:3])
    assert [vectors.index(word) for word in ("Bank", "BANK", "Play", "river")] == [0, 1, 2, None]
    assert "Play" in vectors and "river" not in vectors
    expected = [VECTORS[1], [0, 0, 0], VECTORS[2]]
    np.testing.assert_array_equal(vectors.table(["bank", "river", "Play"]), expected)
    assert vectors.table([]).shape == (0, 3)


def test_only_some_words_are_kept(tmp_path):
    path = written(tmp_path, TEXT)
    assert StaticVectors.load(path, keep=["C", "a", "z"]).words == ["a", "c"]


def test_words_typed_in_another_form_than_nfc(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("d\u00e9j\u00e0 1 0\nvu 0 1\n", encoding="utf-8")
    typed = ["de\u0301ja\u0300", "De\u0301j\u00e0"]
    vectors = StaticVectors.load(path, keep=typed)
    assert vectors.words == ["d\u00e9j\u00e0"]
    assert [vectors.index(word) for word in typed] == [0, 0]


def test_words_may_have_spaces(tmp_path):
    path = written(tmp_path, "2 2\nNew York 1 2\nb 3 4\n")
    assert StaticVectors.load(path).words == ["New York", "b"]


def test_the_first_vector_of_a_repeated_word_wins(tmp_path):
    vectors = StaticVectors.load(written(tmp_path, "a 1 2\na 3 4\n"))
    np.testing.assert_array_equal(vectors.vectors, [[1, 2]])


def test_binary_files_are_read(tmp_path):
    from gensim.models import KeyedVectors

    keyed = KeyedVectors(3)
    keyed.add_vectors(["a", "银行", "b"], VECTORS[:3])
    path = tmp_path / "vectors.bin"
    keyed.save_word2vec_format(str(path), binary=True)
    vectors = StaticVectors.load(path, keep=["银行"])
    assert vectors.words == ["银行"]
    np.testing.assert_array_equal(vectors.vectors, VECTORS[1:2])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"vectors\.bin: must be"):
        StaticVectors.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: must be a word and 2 numbers"),
        ("3 2\na 1 2\n", "must have 3 words, as in its first line, got 1."),
        ("", "must have a vector for at least one word"),
        ("-1 2\na 1 2\n", "line 1: must be a word and its numbers, or two"),
        ("1 2\na 1 2\n".encode("utf-16"), "line 1: must be a word and its numbers, or two numbers"),
        ("a nan 2\n", "line 1: must be a word and its numbers"),
    ],
)
def test_wrong_files_are_refused(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(InputError) as error:
        StaticVectors.load(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_a_word_that_would_not_be_read_back_is_refused(tmp_path):
    with pytest.raises(InputError, match="words must have no white space and no lone"):
        StaticVectors(["x y"], VECTORS[:1]).save(tmp_path / "v.txt")
    with pytest.raises(InputError, match="no lone surrogates, got"):
        StaticVectors(["\ud812"], VECTORS[:1]).save(tmp_path / "v.txt")
    assert not list(tmp_path.iterdir())


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(gzip.compress(b"a 1 2\nb 1 3\n" * 99)[:-9])
    with pytest.raises(InputError, match=r"vectors\.txt\.gz: damaged: Compressed file ended"):
        StaticVectors.load(path)


def test_nearest():
    vectors = StaticVectors(WORDS, VECTORS)
    assert [word for _, word in vectors.nearest("a", 2)] == ["b", "c"]
    assert vectors.nearest("a", 1)[0][0] == pytest.approx(0.5**0.5)
    with pytest.raises(InputError, match="'x' has no static vector"):
        vectors.nearest("x")
    with_zero = StaticVectors([*WORDS, "zero"], np.vstack([VECTORS, 0 * VECTORS[:1]]))
    assert with_zero.nearest("a", 9) == vectors.nearest("a", 9)
    with pytest.raises(InputError, match="static vector of 'zero' is zero, without"):
        with_zero.nearest("zero")


def test_analogy():
    vectors = StaticVectors(WORDS, VECTORS)
    assert vectors.analogy("a", "b", "c", 1)[0][1] == "d"
    with pytest.raises(InputError, match="'x' has no static vector"):
        vectors.analogy("a", "x", "c")


def test_analogies_of_a_file(tmp_path, capsys):
    vectors = np.concatenate([VECTORS, [[0, -1, 1]]]).astype(np.float32)
    StaticVectors([*WORDS, "e"], vectors).save(tmp_path / "v.txt")
    path = written(tmp_path, ": one\na b c d\na x c d\n: two\nb a c d\n", "analogies.txt")
    arguments = ["static", "--vectors", str(tmp_path / "v.txt"), "--analogies"]
    assert main([*arguments, str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    # Nothing has a vector for x; a - b + c is e.
    assert lines[1:3] == [["one", "1", "1", "100.0"], ["two", "0", "1", "0.0"]]
    assert lines[3][-3:] == ["1", "2", "50.0"]
    assert "whose four words have vectors" in input_error([*arguments, "google"], capsys)
    path.write_text("a b c\n")
    assert "must have sections of analogies" in input_error([*arguments, str(path)], capsys)


def pairs_of_words(n):
    """Sentences in which a0 occurs with b0, and a1 with b1."""
    return [[f"{side}{k % 2}" for side in "ab" * 3] for k in range(n)]


def test_word2vec_repeats_and_finds_what_goes_together():
    settings = {"dim": 8, "min_count": 1, "epochs": 20}
    methods = ("word2vec", "word2vec", "cbow")
    trained = [train_word2vec(lambda: pairs_of_words(400), method=m, **settings) for m in methods]
    np.testing.assert_array_equal(trained[0].vectors, trained[1].vectors)
    assert np.abs(trained[0].vectors - trained[2].vectors).max() > 0.01
    for vectors in trained:
        assert sorted(vectors.words) == ["a0", "a1", "b0", "b1"]
        assert vectors.nearest("a0", 1)[0][1] == "b0"


def test_word2vec_reads_all_words_of_a_long_sentence():
    """gensim itself ignores the words after the first 10,000."""
    parts = [["a", "b"] * 5000, ["c", "d"] * 5000]
    settings = {"dim": 4, "epochs": 1}
    whole = train_word2vec(lambda: [parts[0] + parts[1]], **settings)
    np.testing.assert_array_equal(whole.vectors, train_word2vec(lambda: parts, **settings).vectors)
    lines = train_word2vec(lambda: map(" ".join, parts), **settings)
    np.testing.assert_array_equal(whole.vectors, lines.vectors)


def test_frequent_words():
    sentences = [["b", "a", "b"], ["c", "a", "d"]]
    assert frequent_words(sentences, 1) == ["a", "b", "c", "d"]
    assert frequent_words(sentences, 2) == ["a", "b"]
    with pytest.raises(InputError, match="min_count: no word of the text occurs 3 times"):
        frequent_words(sentences, 3)


def test_vectors_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="static vectors must be finite"):
        StaticVectors(["a"], np.array([[np.nan, 1]], np.float32))


@pytest.mark.eager
def test_vectors_of_a_model(elmo):
    sentences = [["a", "b"], [], ["b", "c", "b"]]
    encoded = elmo.encode(sentences, "top")
    means = mean_vectors(elmo, ["b", "a", "z"], sentences)
    assert means.words == ["b", "a"]
    b = np.mean([encoded[0][1], encoded[2][0], encoded[2][2]], axis=0)
    np.testing.assert_allclose(means.vectors, [b, encoded[0][0]], rtol=1e-5)
    tokens = mean_vectors(elmo, ["b", "a"], sentences, 0)
    layer = elmo.encode([["a", "b"]], 0)[0]
    np.testing.assert_allclose(tokens.vectors, layer[::-1], rtol=1e-5)


def test_the_verb_makes_and_asks(tmp_path, capsys):
    text = written(tmp_path, "".join(f"{' '.join(s)}\n" for s in pairs_of_words(400)), "text.txt")
    out = str(tmp_path / "v.txt")
    arguments = ["static", "--text", str(text), "--out", out]
    assert main([*arguments, "--dim", "8", "--epochs", "20"]) == 0
    assert capsys.readouterr().out == f"{out}: 4 words, 8 dimensions\n"
    assert main(["static", "--vectors", out, "--nearest", "a0", "--n", "1"]) == 0
    said = capsys.readouterr().out.split()
    assert said[0] == "a0" and said[2] == "b0"
    picture = tmp_path / "map.svg"
    nearest = ["static", "--vectors", out, "--nearest", "a0", "--picture", str(picture)]
    assert main(nearest) == 0
    assert all(f">{word}</text>" in picture.read_text() for word in ("a0", "a1", "b0", "b1"))
    assert "--force" in input_error(nearest, capsys)
    capsys.readouterr()
    assert main(["static", "--vectors", out, "--analogy", "a0", "b0", "a1", "--n", "1"]) == 0
    assert capsys.readouterr().out.split()[-1] == "b1"
    assert "--force" in input_error(arguments, capsys)


@pytest.mark.eager
@pytest.mark.parametrize("method", ["layer0", "mean"])
def test_the_verb_takes_vectors_of_a_model(tmp_path, method):
    model = write_small_model(tmp_path / "model", "short_words_261")
    text = written(tmp_path, "a b\nb c\n", "text.txt")
    arguments = ["static", "--text", str(text), "--out", str(tmp_path / "v.txt")]
    arguments += ["--method", method, "--min_count", "1", "--model", str(model.folder)]
    assert main(arguments) == 0
    elmo = ELMo.from_pretrained(model.files)
    found = StaticVectors.load(tmp_path / "v.txt")
    assert found.words == ["b", "a", "c"]
    encoded = elmo.encode([["a", "b"]], 0 if method == "layer0" else "top")[0]
    close(found.table(["a"])[0], encoded[0])


@pytest.mark.parametrize("is_binary", [False, True])
def test_a_word_that_was_cut_between_bytes_is_skipped(tmp_path, caplog, is_binary):
    path = tmp_path / ("cut.bin" if is_binary else "cut.txt")
    rows = {b"bank": [1, 2], "größe".encode()[:3]: [3, 4], "größe".encode(): [5, 6]}
    content = b"3 2\n"
    for word, row in rows.items():
        numbers = " ".join(map(str, row)).encode() + b"\n"
        content += word + b" " + (np.array(row, "<f4").tobytes() if is_binary else numbers)
    path.write_bytes(content)
    found = StaticVectors.load(path)
    assert found.words == ["bank", "größe"] and found.vectors.tolist() == [[1, 2], [5, 6]]
    assert "1 words are not UTF-8" in caplog.text
