"""Tokens wherever they come in: without white space, and "" only as padding at the end."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import (
    Batcher,
    BidirectionalLanguageModel,
    CharacterIds,
    ELMo,
    ELMoEmbedding,
    InputError,
    Predictor,
    TokenBatcher,
    WordIds,
    export_saved_model,
)
from tests.compare import close
from tests.scored_models import KINDS, Model
from tests.small_models import write_small_model
from tests.small_runs import VOCABULARY

pytestmark = pytest.mark.eager

TOKENS = [["the", "cat"], ["dog"]]
PADDED = [["the", "cat", "", ""], ["dog", "", "", ""]]
FORMS = {
    "lists": lambda tokens: tokens,
    "bytes": lambda tokens: [[token.encode() for token in sentence] for sentence in tokens],
    "array": np.array,
    "objects": lambda tokens: np.array(tokens, object),
    "tensor": tf.constant,
}
WRONG = {
    "white space": [["the cat", "."], ["dog", "."]],
    "a column": [["the cat runs"], ["the dog"]],
    "no-break space": [["dog"], ["a\u00a0b"]],
    "padding in front": [["", "", "dog"], ["the", "cat", "."]],
    "an empty token": [["dog", "", "cat"], ["the", "cat", "."]],
}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    return write_small_model(folder, "one_direction_one_layer_words", VOCABULARY)


@pytest.fixture(scope="module")
def embedding(words):
    return ELMoEmbedding.from_pretrained(words.folder)


@pytest.fixture(scope="module")
def served(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    signatures = tf.saved_model.load(export_saved_model(words.folder, folder)).signatures
    return lambda tokens: signatures["tokens"](
        tokens=tokens, sequence_len=tf.constant([len(row) for row in tokens.numpy()])
    )


@pytest.fixture(scope="module")
def in_python(words, tmp_path_factory):
    """Functions that take tokens in any form; sentences are rows of the results."""
    elmo = ELMo.from_pretrained(words.folder)
    kind, changes = KINDS["one_layer_tied"]
    folder = Model(tmp_path_factory.mktemp("scored") / "model", kind, **changes).folder
    predictor = Predictor.from_pretrained(folder)
    return {
        "encode": elmo.encode,
        "encode_iter": lambda tokens: list(elmo.encode_iter(tokens)),
        "score": lambda tokens: [score.forward for score in predictor.score(tokens)],
        "substitutes": lambda tokens: [
            np.stack([place.log_probabilities for place in places])
            for places in predictor.substitutes(tokens, "all")
        ],
        "Batcher": Batcher(None, 9).batch_sentences,
        "TokenBatcher": TokenBatcher(words.vocab_file).batch_sentences,
    }


@pytest.fixture(scope="module")
def in_graphs(words, embedding):
    """Functions that take tokens as Keras layers do."""
    text = keras.Input((None,), dtype="string")
    model = keras.Model(text, embedding(text))
    ids = CharacterIds(9)
    return {
        "CharacterIds": ids,
        "WordIds": WordIds(VOCABULARY),
        "ELMoEmbedding": embedding,
        "tf.data": lambda tokens: next(
            iter(tf.data.Dataset.from_tensors(tf.constant(tokens)).map(ids))
        ),
        "predict": lambda tokens: model.predict(tf.constant(tokens), verbose=0),
    }


def test_empty_tokens_at_the_end_are_padding(in_python, in_graphs):
    for name, function in in_python.items():
        wanted = function(TOKENS)
        for form in FORMS.values():
            for result, expected in zip(function(form(PADDED)), wanted, strict=True):
                np.testing.assert_array_equal(result, expected, err_msg=name)
    for name, function in in_graphs.items():
        result, wanted = np.asarray(function(PADDED)), np.asarray(function([["the", "cat"]]))
        np.testing.assert_allclose(result[0, : wanted.shape[1]], wanted[0], 1e-5, err_msg=name)
        assert not result[0, wanted.shape[1] :].any()


@pytest.mark.parametrize("kind", WRONG)
def test_tokens_with_white_space_or_before_which_there_is_padding(in_python, in_graphs, kind):
    message = "token.*must not (contain white space|be empty)"
    for function in in_python.values():
        for form in FORMS.values():
            with pytest.raises(InputError, match=message):
                function(form(WRONG[kind]))
    for function in in_graphs.values():
        with pytest.raises((InputError, tf.errors.InvalidArgumentError), match=message):
            function(WRONG[kind])


def test_a_saved_model_checks_the_tokens_of_sentences(served):
    for tokens in WRONG.values():
        with pytest.raises(tf.errors.InvalidArgumentError, match="must not"):
            served(tf.constant(tokens))


def test_text_as_tensors_and_bytes(in_python, in_graphs):
    text = ["the cat", "dog"]
    for function in (in_python["encode"], in_python["score"], in_graphs["ELMoEmbedding"]):
        wanted = function(text)
        for form in (np.array(text), tf.constant(text), [line.encode() for line in text]):
            for result, expected in zip(function(form), wanted, strict=True):
                np.testing.assert_array_equal(result, expected)
    one = in_python["encode"](tf.constant("the cat"))
    np.testing.assert_allclose(one, in_python["encode"](text)[0], 1e-5, 1e-6)
    for wrong, message in (([b"\xff"], "must be UTF-8"), (5, "a list of")):
        with pytest.raises(InputError, match=message):
            in_python["encode"](wrong)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame_is_not_its_column_names(in_python, in_graphs, library):
    text = ["the cat", "dog"]
    frame = pytest.importorskip(library).DataFrame({"cat": text})
    for function in (in_python["encode"], in_python["score"], in_graphs["ELMoEmbedding"]):
        for result, expected in zip(function(frame["cat"]), function(text), strict=True):
            np.testing.assert_array_equal(result, expected)
        with pytest.raises(InputError, match="must not contain white space"):
            function(frame)


def test_ids_are_padded_at_the_end(words):
    """As with Keras' pad_sequences, which pads in front."""
    layer = BidirectionalLanguageModel(*words.files, use_character_inputs=False)
    ids = np.array([[1, 4, 5, 2], [0, 1, 4, 2]])
    with pytest.raises(InputError, match=r"padding \(0\) only at the end"):
        layer(ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"padding \(0\) only at the end"):
        list(tf.data.Dataset.from_tensors(ids).map(lambda batch: layer(batch)["mask"]))


def test_a_layer_without_weights_does_not_run(embedding):
    text = keras.Input((None,), dtype="string")
    model = keras.Model(text, embedding(text))
    copy = keras.models.clone_model(model)
    for run in (copy, lambda tokens: copy.predict(tokens, verbose=0)):
        with pytest.raises(
            (InputError, tf.errors.InvalidArgumentError), match="weights were never loaded"
        ):
            run(tf.constant(PADDED))
    copy.set_weights(model.get_weights())
    close(copy(tf.constant(PADDED)), model(tf.constant(PADDED)))
