"""Text to ids within a graph: the same as the batchers, and as the formulas."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import Batcher, CharacterIds, InputError, TokenBatcher, WordIds
from tests import oracle

SENTENCES = [
    ["The", "cat", "Größe", "苹果", "😀", "."],
    [],
    ["<S>", "within", "</S>", "<UNK>"],
    ["x" * 80, "é" * 30],
    ["a\0b", "\0", "ß\0", "<s>", "<S>x"],
    ["Größe" * 5, "苹果" * 9],
]
VOCABULARY = ["<S>", "</S>", "<UNK>", "cat", "The", "", "苹果", "cat", "a\0b"]


@pytest.mark.parametrize("width", [3, 7, 50])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_character_ids_are_the_batchers(width, graph):
    layer = CharacterIds(width)
    run = layer
    if graph:
        run = tf.function(layer, input_signature=[tf.TensorSpec((None, None), tf.string)])
    ids = run(tf.ragged.constant(SENTENCES).to_tensor(""))
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, oracle.character_ids(SENTENCES, width))
    np.testing.assert_array_equal(ids, Batcher(None, width).batch_sentences(SENTENCES))


def test_word_ids_are_the_batchers(tmp_path):
    """If a token is repeated, its last id wins."""
    words = VOCABULARY[:-1]  # a file cannot hold NUL
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    ids = WordIds(words)(SENTENCES)
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(
        ids, TokenBatcher(tmp_path / "vocab.txt").batch_sentences(SENTENCES)
    )
    np.testing.assert_array_equal(ids[0], [1, 5, 8, 3, 7, 3, 3, 2])


def test_sentences_are_split_as_python_splits():
    """At all white space of Unicode, and not at other unusual characters."""
    spaces = [chr(n) for n in range(sys.maxunicode + 1) if chr(n).isspace()]
    others = ["\u200b", "\u2060", "\ufeff", "\x1b", "\x0e", "\u180e", "_"]
    lines = [f"{c}a{c}{c}b{c}" for c in [*spaces, *others]]
    lines += ["", "   ", "".join(spaces), f"x{''.join(spaces)}y"]
    split = [line.split() for line in lines]
    assert len(spaces) == 29 and {len(s) for s in split} == {0, 1, 2}
    np.testing.assert_array_equal(CharacterIds(9)(lines), Batcher(None, 9).batch_sentences(split))


FORMS = {
    "lists": lambda tokens: tokens,
    "tuples": lambda tokens: tuple(map(tuple, tokens)),
    "bytes": lambda tokens: [[token.encode() for token in s] for s in tokens],
    "ragged": tf.ragged.constant,
    "tensor": lambda tokens: tf.ragged.constant(tokens).to_tensor(""),
    "objects": lambda tokens: tf.ragged.constant(tokens).to_tensor("").numpy(),
    "array": lambda tokens: tf.ragged.constant(tokens).to_tensor("").numpy().astype("S20"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_text(form):
    tokens = [["a", "sentence"], [], ["of", "three", "words"]]
    layer, expected = CharacterIds(12), Batcher(None, 12).batch_sentences(tokens)
    np.testing.assert_array_equal(layer(FORMS[form](tokens)), expected)
    lines = [" ".join(sentence) for sentence in tokens]
    for text in (lines, tuple(lines), np.array(lines), np.array(lines, object), tf.constant(lines)):
        np.testing.assert_array_equal(layer(text), expected)


def test_batches_without_a_token():
    layer = CharacterIds(5)
    empty = Batcher(None, 5).batch_sentences([[], []])
    for text in (["", " "], [[], []], [["", ""], ["", ""]]):
        ids = layer(text)
        np.testing.assert_array_equal(ids[:, :2], empty)
        assert not ids.numpy()[:, 2:].any()
    assert layer([]).shape == (0, 2, 5)
    assert layer(tf.zeros((0, 4), tf.string)).shape == (0, 6, 5)


def test_masks():
    for layer in (CharacterIds(6), WordIds(VOCABULARY)):
        text = ["a b c", "", "a"]
        expected = np.arange(5) < np.array([5, 2, 3])[:, np.newaxis]
        np.testing.assert_array_equal(layer(text)._keras_mask, expected)


def test_on_keras_inputs():
    for axes, time in (((), None), ((None,), None), ((4,), 6)):
        text = keras.Input(axes, dtype="string")
        assert CharacterIds(7)(text).shape == (None, time, 7)
        assert WordIds(VOCABULARY)(text).shape == (None, time)
        assert CharacterIds(7)(text).dtype == "int32"


@pytest.mark.parametrize("layer", [CharacterIds(7, name="c"), WordIds(VOCABULARY, name="w")])
def test_layers_from_their_configuration(layer):
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    np.testing.assert_array_equal(copy(SENTENCES), layer(SENTENCES))


def test_in_a_data_set():
    lines = tf.data.Dataset.from_tensor_slices(["a b", "cat", "The cat ."]).batch(2)
    for layer in (CharacterIds(7), WordIds(VOCABULARY)):
        batches = list(lines.map(layer))
        np.testing.assert_array_equal(batches[0], layer(["a b", "cat"]))
        np.testing.assert_array_equal(batches[1], layer(["The cat ."]))


def test_text_whose_number_of_axes_is_unknown():
    """As after `tf.py_function`."""
    traced = tf.function(CharacterIds(7), autograph=False)
    with pytest.raises(InputError, match=r"text must have .* call text\.set_shape\(\(None,\)\)"):
        traced.get_concrete_function(tf.TensorSpec(None, tf.string))


@pytest.mark.parametrize(
    "text, message",
    [
        ([["a"], ["b", 3.5]], "sentence 1, token 1 must be text, got float 3.5"),
        (tf.zeros((2, 3)), "text must be strings, got float32;"),
        (tf.constant("a"), r"sentences \(batch,\) or tokens"),
        ("a text", "text must be a list of sentences, got 'a text'"),
    ],
)
def test_what_is_no_text(text, message):
    with pytest.raises(InputError, match=message):
        CharacterIds(7)(text)


def test_a_vocabulary_without_unk_is_enough_for_its_own_words(tmp_path):
    words = [word for word in VOCABULARY[:-1] if word != "<UNK>"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    layer, batcher = WordIds(words), TokenBatcher(tmp_path / "vocab.txt")
    known, unknown = [["The", "cat"], [], ["苹果"]], [["cat"], ["The", "Größe", "dog"]]
    message = "not in the vocabulary, which lacks <UNK>"
    in_graph = tf.function(layer, input_signature=[tf.TensorSpec((None, None), tf.string)])
    padded = [tf.ragged.constant(sentences).to_tensor("") for sentences in (known, unknown)]
    for ids in (
        layer(known),
        in_graph(padded[0]),
        type(layer).from_config(layer.get_config())(known),
    ):
        np.testing.assert_array_equal(ids, batcher.batch_sentences(known))
    with pytest.raises(InputError, match=message):
        layer(unknown)
    with pytest.raises(InputError, match="'Größe' is not in the vocabulary"):
        batcher.batch_sentences(unknown)
    with pytest.raises(tf.errors.InvalidArgumentError, match="lacks <UNK> for such words"):
        in_graph(padded[1])
