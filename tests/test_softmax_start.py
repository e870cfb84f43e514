"""The softmax of a new run, from the counts of the training text."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bilm import load_vocab
from bilm.data import LMDataset
from bilm.training.softmax_start import cooccurrence_rows
from tests.small_runs import small_options, train, write_corpus


def information(sentences, n_words: int, window: int = 3) -> np.ndarray:
    """The matrix that `cooccurrence_rows` describes, counted pair by pair."""
    counts = np.zeros((n_words, 2, n_words))
    for sentence in sentences:
        for i, word in enumerate(sentence):
            for d in range(1, window + 1):
                if i >= d:
                    counts[word, 0, sentence[i - d]] += 1 / d
                if i + d < len(sentence):
                    counts[word, 1, sentence[i + d]] += 1 / d
    counts = counts.reshape(n_words, -1)
    of_context = counts.sum(axis=0) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = counts / counts.sum(axis=1, keepdims=True) / (of_context / of_context.sum())
        return np.nan_to_num(np.maximum(np.log(ratio), 0), nan=0, posinf=0, neginf=0)


def text_of(sentences) -> np.ndarray:
    return np.concatenate([[*sentence, -1] for sentence in sentences]).astype(np.int32)[:-1]


WORDS = ["<S>", "</S>", "<UNK>", *"a b ab bab abab aab ba aba baba babab ababab".split()]
WORDS += ["A", "Bab", "Aab", "BAB", "AB", "a1", "1b", "bab1"]


def kind_of(word: str) -> tuple[bool, bool, bool]:
    return word[0].isupper(), word[1:2].isupper(), any(c.isdigit() for c in word)


def rows_by_spelling(vectors: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The rows that `cooccurrence_rows` describes, word by word."""
    own = counts / (counts + 100)
    rows = []
    for i, word in enumerate(WORDS):
        mean = np.zeros(vectors.shape[1])
        for n in range(6):
            ending = word[-n:] if n else ""
            alike = [
                j
                for j, other in enumerate(WORDS)
                if j != i
                and kind_of(other) == kind_of(word)
                and (other[-n:] if n else "") == ending
            ]
            total = sum((own[j] * vectors[j] for j in alike), 10 * mean)
            mean = total / (own[alike].sum() + 10)
        rows.append(own[i] * vectors[i] + 2 * (1 - own[i]) * mean)
    return np.array(rows)


def test_rows_are_singular_vectors_and_the_vectors_of_words_spelled_alike():
    random = np.random.default_rng(1)
    n_words = len(WORDS)  # the last two do not occur
    sentences = [random.integers(0, n_words - 2, random.integers(1, 9)) for _ in range(600)]
    found = cooccurrence_rows(text_of(sentences), WORDS, dim=6)
    left, values, _ = np.linalg.svd(information(sentences, n_words))
    vectors = left[:, :6] * np.sqrt(values[:6])
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    expected = rows_by_spelling(vectors, np.bincount(np.concatenate(sentences), minlength=n_words))
    # Vectors are determined up to a rotation, so their cosines are compared.
    assert found.shape == (n_words, 6) and found.dtype == np.float32
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-3)
    assert found[-1].any()  # from words with a similar spelling


def test_rows_of_more_numbers_than_the_text_has():
    found = cooccurrence_rows(np.array([0, 3, 1], np.int32), ["<S>", "</S>", "x", "y"], dim=50)
    assert found.shape == (4, 50) and np.isfinite(found).all() and found[3].any()


def test_the_first_ids_of_each_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("the dog\n\nthe cat sat\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("dog\n", encoding="utf-8")
    data = LMDataset(tmp_path / "?.txt", load_vocab(tmp_path / "vocab.txt"))
    ids = [0, 3, 2, 1, -1, 0, 3, 4, 2, 1, -1, 0, 2, 1]
    assert data.first_ids(100).tolist() == ids
    assert data.first_ids(2).tolist() == ids[:5] + ids[-3:]  # one sentence per file


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_run_starts_with_the_rows(tmp_path, shuffle):
    corpus = write_corpus(tmp_path)
    options = small_options(softmax_weights="cooccurrence") | {"learning_rate": 1e-30}
    record = train(options, corpus.data(options, shuffle_on_load=shuffle), tmp_path)

    vocabulary = corpus.data(options).vocab
    sentences = [vocabulary.word_ids(["<S>", *words, "</S>"]) for words in corpus.sentences]
    dim = options["lstm"]["projection_dim"]
    expected = cooccurrence_rows(text_of(sentences), vocabulary.words, dim)
    found = tf.train.load_checkpoint(record.checkpoint).get_tensor("lm/softmax/W")
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)


@pytest.mark.parametrize("names", [["iter_batches"], ["iter_batches", "word_counts"]])
def test_own_data_that_cannot_list_words_start_with_random_rows(tmp_path, caplog, names):
    corpus = write_corpus(tmp_path)
    options = small_options(softmax_weights="cooccurrence", softmax_bias="unigram", n_steps=2)
    options["learning_rate"] = 1e-30
    data = corpus.data(options)
    own = SimpleNamespace(**{name: getattr(data, name) for name in names})

    record = train(options, own, tmp_path)
    assert "softmax_weights and softmax_bias are ignored" in caplog.text
    saved = tf.train.load_checkpoint(record.checkpoint)
    weights, bias = (saved.get_tensor(f"lm/softmax/{name}") for name in "Wb")
    assert np.abs(bias).max() < 1e-20 and len(np.unique(weights)) > 0.9 * weights.size
    # Co-occurrences give rows of length 1.
    assert not np.allclose(np.linalg.norm(weights, axis=1), 1, atol=0.1)
