"""Tokens and sentences of any Unicode: through vocabularies, ids, vectors, scores and files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm import Batcher, ELMo, Predictor, TokenBatcher, Vocabulary
from bilm.analysis import Occurrences, Sample
from bilm.data import encode_words
from bilm.data.vocabulary import NOT_A_TOKEN
from tests import oracle
from tests.scored_models import ONE_LAYER, Model
from tests.small_corpora import small_vocabulary
from tests.small_models import write_small_model

WIDTH = 9
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sees", "a", "bird", ".", "dog", "猫"]
STRANGE = (
    "", " ", "\t", "\r", "\0", "\x1b[2J", "\u202etxt", "\u2028", "\x85", "\ufeff", "<S>", "</S>",
    "<UNK>", "!!!MAXTERMID", "nan", "-1", "٣", "9" * 30, "x" * 3000, "猫", "e\u0301" * 40, "a/b",
    "[a]", "a\tb",
)  # fmt: skip

# Any Unicode, including lone surrogates and control characters.
texts = st.one_of(st.text(st.characters(), max_size=12), st.sampled_from(STRANGE))
tokens = texts.filter(lambda text: text.split() == [text])
sentences = st.lists(tokens, max_size=6)


def utf8(word):
    """A word without its lone surrogates, which have no bytes in UTF-8."""
    return word.encode("utf-8", "ignore").decode("utf-8")


# Ids


@given(st.lists(texts, min_size=1, max_size=5), st.integers(3, 60))
def test_characters_are_those_of_the_formulas(words, width):
    ids = encode_words(words, width)
    # <S> with a surrogate in it is not BOS, although its bytes are the same.
    for row, word in zip(ids, words, strict=True):
        if utf8(word) in ("<S>", "</S>") and word != utf8(word):
            continue
        np.testing.assert_array_equal(row, oracle.word_characters(utf8(word), width))


@given(st.lists(sentences, max_size=4))
def test_batches_of_any_tokens(batch):
    ids = Batcher(None, WIDTH).batch_sentences(batch)
    assert ids.shape == (len(batch), max(map(len, batch), default=0) + 2, WIDTH)
    for row, sentence in zip(ids, batch, strict=True):
        assert (row.any(axis=1)).tolist() == [k < len(sentence) + 2 for k in range(len(row))]
    plain = [[utf8(word) for word in sentence] for sentence in batch]
    if batch and plain == batch:
        np.testing.assert_array_equal(ids, oracle.character_ids(batch, WIDTH))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


@given(sentence=sentences)
def test_a_sentence_and_its_ids(vocabulary, sentence):
    ids = vocabulary.encode(sentence, split=False)
    known = [vocabulary.id_to_word(number) for number in ids.tolist()]
    for word, decoded in zip(["<S>", *sentence, "</S>"], known, strict=True):
        assert decoded in (word, "<UNK>")
    np.testing.assert_array_equal(ids, vocabulary.encode(" ".join(sentence)))
    characters = vocabulary.encode_chars(sentence, split=False)
    assert characters.shape == (len(sentence) + 2, 12) and characters.max() <= 260


@given(st.lists(tokens.filter(lambda w: not {"\r", "\n", "\0"} & {*w}), max_size=9), st.booleans())
def test_the_words_of_a_vocabulary_are_its_lines(tmp_path_factory, words, marked):
    path = tmp_path_factory.getbasetemp() / "vocab.txt"
    lines = ["<S>", *map(utf8, words), "</S>", "<UNK>"]
    path.write_text("\n".join(lines), encoding="utf-8-sig" if marked else "utf-8", newline="")
    vocabulary = Vocabulary(path)
    expected = [line.strip() for line in lines if line.strip() != NOT_A_TOKEN]
    assert [vocabulary.id_to_word(k) for k in range(vocabulary.size)] == expected
    ids = {word: number for number, word in enumerate(expected)}
    assert vocabulary.word_ids(expected).tolist() == [ids[word] for word in expected]
    encoded = vocabulary.encode([*expected, "not there"], split=False).tolist()
    assert encoded == [ids["<S>"], *(ids[w] for w in expected), ids["<UNK>"], ids["</S>"]]


# Vectors and scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a character model (elmo), a word model (words) and a training folder (run)."""
    folder = tmp_path_factory.mktemp("models")
    lstm = {"dim": 6, "projection_dim": 4}
    write_small_model(folder / "elmo", "short_words_261", WORDS, lstm=lstm)
    write_small_model(folder / "words", "words", WORDS, lstm=lstm)
    Model(folder / "run", ONE_LAYER, lstm=lstm)
    return folder


@pytest.fixture(scope="module")
def elmo(folder):
    return ELMo.from_pretrained(folder / "elmo")


@pytest.fixture(scope="module")
def elmo_of_words(folder):
    return ELMo.from_pretrained(folder / "words")


@pytest.fixture(scope="module")
def predictor(folder):
    return Predictor.from_pretrained(folder / "run")


@given(batch=st.lists(sentences, max_size=3))
@pytest.mark.parametrize("kind", ["elmo", "elmo_of_words"])
def test_vectors_of_any_text(request, kind, batch):
    model = request.getfixturevalue(kind)
    vectors = model.encode(batch, "all")
    for sentence, layers in zip(batch, vectors, strict=True):
        assert layers.shape == (3, len(sentence), model.dim) and layers.dtype == np.float32
        assert np.isfinite(layers).all()
    for sentence, layers in zip(batch[:1], vectors, strict=False):  # with or without others
        np.testing.assert_allclose(model.encode([sentence], "all")[0], layers, atol=1e-6)
        np.testing.assert_allclose(model.encode([" ".join(sentence)], "all")[0], layers, atol=1e-6)


@given(batch=st.lists(sentences, max_size=3))
def test_scores_of_any_text(predictor, batch):
    for sentence, score in zip(batch, predictor.score(batch), strict=True):
        assert score.tokens == sentence and score.known.shape == (len(sentence),)
        for values in (score.forward, score.end):
            assert np.isfinite(values).all() and (np.asarray(values) <= 1e-5).all()


@given(sentence=sentences.filter(len), data=st.data())
def test_substitutes_in_any_text(predictor, sentence, data):
    place = data.draw(st.integers(0, len(sentence) - 1))
    [[found]] = predictor.substitutes([sentence], [place], n=3)
    assert (found.place, found.token, len(found.words)) == (place, sentence[place], 3)
    assert (np.diff(found.log_probabilities) <= 0).all()


@given(words=st.lists(tokens, min_size=1, max_size=3), labels=st.lists(texts, min_size=3))
def test_labels_of_any_text(elmo, tmp_path_factory, words, labels):
    path = tmp_path_factory.getbasetemp() / "labelled.npz"
    path.unlink(missing_ok=True)
    words, labels = [list(map(utf8, some)) for some in (words, labels[: len(words)])]
    positions = np.array([(0, k) for k in range(len(words))], np.int64)
    Occurrences.encoded(elmo, Sample([tuple(words)], positions, labels), file=path)
    again = Occurrences.load(path)
    assert again.labels == labels
    assert [again.word(k) for k in range(len(again))] == words


@pytest.mark.parametrize("n_letters", [10_000, 1_000_000])
def test_very_long_words(elmo, predictor, tmp_path, n_letters):
    word = "ä" * n_letters
    [alone], [cut] = elmo.encode([[word], ["ä" * 20]], "top")
    # The summation order may differ between rows of a batch.
    np.testing.assert_allclose(alone, cut, rtol=1e-5, atol=1e-6)
    [score] = predictor.score([[word, "a"]])
    assert np.isfinite(score.forward).all() and score.tokens[0] == word
    (tmp_path / "vocab.txt").write_text("\n".join([*WORDS, word]), encoding="utf-8")
    assert Vocabulary(tmp_path / "vocab.txt").word_to_id(word) == len(WORDS)
    ids = TokenBatcher(tmp_path / "vocab.txt").batch_sentences([[word]])
    assert ids.tolist() == [[1, len(WORDS) + 1, 2]]
