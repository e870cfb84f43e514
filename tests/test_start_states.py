"""Initial states: resets in training, warm-up, and perplexities that compare them."""

from __future__ import annotations

import copy
import itertools
import json
import logging

import h5py
import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.cli import main
from bilm.core.errors import InputError
from bilm.core.language_model import Feed
from bilm.core.lstm import BatchSlice
from bilm.core.network import WARM_UP_ROWS
from bilm.core.options import Options
from bilm.data.sentences import N_WARM_UP_WORDS, read_warm_up
from bilm.files.checkpoints import load_variables
from bilm.files.weights import open_weights, weight_table
from bilm.inference.corpus_encoder import EncodedWords, warm_up_network
from bilm.inference.scorer import Scorer
from bilm.training import LanguageModel, train
from bilm.training.evaluation import evaluate
from bilm.training.inputs import draw_resets, make_feed, sentence_starts, step_inputs
from bilm.training.state import load_mean_states
from bilm.training.trainer import Trainer
from tests import oracle
from tests.oracle.embeddings import zero_states
from tests.oracle.files import hdf5_name
from tests.oracle.lstm import layers_of, run_direction
from tests.oracle.training import loss_and_gradients
from tests.scored_models import KINDS, Model
from tests.small_runs import ROWS, STEPS, Batches, random_batch, small_options

# Resets: choice of sentences


def feeds_of(corpus, kind, n=6):
    """Batches as dicts and as feeds, and the ids of BOS and EOS (None for characters)."""
    options = small_options(kind)
    data = corpus.data(options)
    read = Options.from_dict(options, training=True)
    batches = list(itertools.islice(data.iter_batches(ROWS, STEPS), n))
    assert len(batches) == n
    marks = None if "char_cnn" in options else (data.vocab.bos, data.vocab.eos)
    return batches, [make_feed(batch, read) for batch in batches], marks


@pytest.mark.parametrize("kind", ["short_words_261", "words"])
def test_sentences_start_where_a_mark_is_read(corpus, kind):
    batches, feeds, marks = feeds_of(corpus, kind)
    n_starts = 0
    for batch, feed in zip(batches, feeds, strict=True):
        starts = sentence_starts(feed, marks)
        np.testing.assert_array_equal(starts[0], (batch["token_ids"] == 0).T)
        np.testing.assert_array_equal(starts[1], (batch["token_ids_reverse"] == 1).T)
        np.testing.assert_array_equal(starts[0], starts[1])
        n_starts += starts[0].sum()
    assert n_starts > 5


def begins_everywhere(n_rows=40, n_steps=30):
    """A feed in which every input is `<S>`."""
    zeros = np.zeros((2, n_steps, n_rows), np.int32)
    return Feed(np.array([1], np.int32), zeros, zeros)


def test_the_draw_follows_from_seed_step_and_row():
    feed, marks = begins_everywhere(), (0, 1)
    drawn = draw_resets(feed, marks, 0.2, (3, 7))
    assert len(drawn) == 2 and drawn[0].shape == (30, 40)
    np.testing.assert_array_equal(*drawn)
    assert 0.15 < drawn[0].mean() < 0.25
    np.testing.assert_array_equal(drawn[0], draw_resets(feed, marks, 0.2, (3, 7))[0])
    for other in ((4, 7), (3, 8)):
        assert np.any(drawn[0] != draw_resets(feed, marks, 0.2, other)[0])
    half = draw_resets(begins_everywhere(10), marks, 0.2, (3, 7), BatchSlice(20, 40))
    np.testing.assert_array_equal(half[0], drawn[0][:, 20:30])
    assert draw_resets(feed, marks, 1.0, (3, 7))[0].all()


def test_nothing_is_drawn_within_a_sentence(corpus):
    _, feeds, marks = feeds_of(corpus, "words")
    n_drawn = 0
    for step, feed in enumerate(feeds):
        drawn = draw_resets(feed, marks, 0.5, (0, step))
        starts = sentence_starts(feed, marks)
        for of_direction, allowed in zip(drawn, starts, strict=True):
            assert not np.any(of_direction & ~allowed)
            n_drawn += of_direction.sum()
    assert n_drawn > 0


# Resets: the training step


@pytest.mark.parametrize("kind", ["short_words_261", "words", "one_direction_one_layer_words"])
def test_a_step_is_that_of_the_formulas(corpus, kind):
    """Losses, gradients and final states of a batch whose rows start from different states."""
    batches, feeds, marks = feeds_of(corpus, kind)
    fullest = int(np.argmax([sentence_starts(feed, marks).sum() for feed in feeds]))
    options = small_options(kind, reset_rate=0.5)
    weights = oracle.random_weights(options, 3) | oracle.random_softmax(options, 4)
    trainer = Trainer(Options.from_dict(options, training=True))
    model, table = trainer.model, trainer.table
    for weight in table:
        weight.variable.assign(weights[hdf5_name(weight.checkpoint)])
    draw = np.random.default_rng(1)
    states = tf.nest.map_structure(
        lambda x: tf.constant(draw.normal(size=x.shape) * 0.3, tf.float32),
        model.network.zero_states(ROWS),
    )
    (inputs,) = step_inputs(feeds[fullest], model.options, (9, 5), marks)
    resets = inputs.resets[0]
    assert 0 < resets.sum() < resets.size
    losses, after, gradients = trainer.gradients(inputs, states)
    before = [[tuple(x.numpy() for x in state) for state in one] for one in states]
    expected, of_weights, expected_after = loss_and_gradients(
        weights, options, batches[fullest], before, resets=resets.T
    )
    np.testing.assert_allclose(np.mean(losses), expected, 1e-5)
    assert len(gradients) == len(table)
    names = {id(weight.variable): hdf5_name(weight.checkpoint) for weight in table}
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        of_variable = of_weights[names[id(variable)]]
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), of_variable, 1e-4, 1e-5)
    for one, other in zip(tf.nest.flatten(after), tf.nest.flatten(expected_after), strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


# Resets: the option


def test_words_without_a_vocabulary_are_refused(tmp_path):
    options = small_options(reset_rate=0.1)
    with pytest.raises(InputError, match=r"reset_rate = 0\.1: the data must have a vocab"):
        train(options, Batches([random_batch()]), 1, tmp_path, None)


@pytest.mark.slow
def test_characters_need_no_vocabulary(corpus, tmp_path):
    batches, _, _ = feeds_of(corpus, "short_words_261", n=2)
    options = small_options("short_words_261", reset_rate=1.0, n_epochs=1)
    record = train(options, Batches(batches), 1, tmp_path, None)
    # Every sentence begins in its batch or in the batch before.
    assert record.n_steps == 2
    again = train(options | {"reset_rate": 0.0}, Batches(batches), 1, tmp_path / "2", None)
    assert record.train_perplexity != again.train_perplexity


@pytest.mark.eager
def test_the_flag(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("a b\nb\n" * 20, encoding="utf-8")
    (tmp_path / "vocab").write_text("<S>\n</S>\n<UNK>\na\nb\n", encoding="utf-8")
    options = small_options("one_direction_one_layer_words", n_tokens_vocab=5)
    del options["n_train_tokens"]
    (tmp_path / "options").write_text(json.dumps(options | {"n_epochs": 1}), encoding="utf-8")
    arguments = [
        "train", "--save_dir", str(tmp_path / "run"), "--vocab_file", str(tmp_path / "vocab"),
        "--train_prefix", str(text), "--options_file", str(tmp_path / "options"),
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        main([*arguments, "--reset_rate", "2"])
    assert "must be a number from 0 to 1, got '2'" in capsys.readouterr().err
    assert main([*arguments, "--reset_rate", "0.25"]) == 0
    made = json.loads((tmp_path / "run" / "options.json").read_text(encoding="utf-8"))
    assert made["reset_rate"] == 0.25
    assert made["n_train_tokens"] == 3 * 20 + 2 * 20  # words and sentence ends
    capsys.readouterr()
    assert main(["info", str(tmp_path / "run")]) == 0
    assert "; reset rate 0.25; " in capsys.readouterr().out
    bilm.dump_weights(tmp_path / "run", tmp_path / "weights.hdf5")
    with open_weights(tmp_path / "weights.hdf5") as weights:
        facts = weights.training()
    assert facts["reset_rate"] == 0.25 and facts["steps"] == 100 // (ROWS * STEPS)
    assert facts["tokens"] == facts["steps"] * ROWS * STEPS
    assert facts["n_train_tokens"] == 100 and facts["n_tokens_vocab"] == 5


# Warming up: the states


TEXT = ["the cat sees a dog", "", ["tree", "runs", "unheard-of"], "a"]
SENTENCES = [["cat", "runs"], ["the"], ["a", "dog", "sees", "the", "house"]]
MODEL = "as_published"


def oracle_states(weights, options):
    """The mean over rows of the states after a text, computed step by step."""
    sentences = read_warm_up(TEXT)
    rows = np.array_split(np.arange(len(sentences)), WARM_UP_ROWS)
    result = []
    for d in range(2):
        layers = layers_of(weights, options, d)
        of_rows = []
        for row in rows:
            words = []
            for number in row:
                framed = ["<S>", *sentences[number], "</S>"]
                words += framed[:-1] if d == 0 else framed[:0:-1]
            ids = np.stack([oracle.word_characters(word, 50) for word in words])[np.newaxis]
            tokens = oracle.encode(weights, options, weights["char_embed"], ids)
            _, states, _ = run_direction(layers, tokens, zero_states(options, 1)[d])
            of_rows.append(states)
        result.append(
            [
                tuple(np.mean([states[i][k] for states in of_rows], axis=0) for k in range(2))
                for i in range(len(layers))
            ]
        )
    return result


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A folder with a model and a warm-up text, and the expected vectors."""
    folder = tmp_path_factory.mktemp("warm")
    options = oracle.MODELS[MODEL]
    weights = oracle.random_weights(options, seed=7)
    oracle.write_model(folder / "elmo", options, weights)
    lines = [line if isinstance(line, str) else " ".join(line) for line in TEXT]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    expected, after_text = [], oracle_states(weights, options)
    for sentence in SENTENCES:
        states = copy.deepcopy(after_text)  # `embed` changes them in place
        ids = oracle.character_ids([sentence], 50)
        expected.append(oracle.embed(weights, options, ids, states).lm_embeddings[0])
    return folder, expected


def assert_vectors(received, expected):
    assert len(received) == len(expected) > 0
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, 2e-5, 2e-5)


@pytest.mark.slow
def test_vectors_after_a_warm_up(warm):
    folder, expected = warm
    elmo = bilm.ELMo.from_pretrained(folder / "elmo", warm_up=folder / "text.txt")
    assert_vectors(elmo.encode(SENTENCES, "all"), expected)
    cold = bilm.ELMo.from_pretrained(folder / "elmo")
    assert np.abs(cold.encode(SENTENCES, "all")[0] - expected[0]).max() > 0.01
    assert cold.fingerprint() != elmo.fingerprint()


@pytest.mark.slow
def test_a_long_sentence_after_a_warm_up(warm):
    """Sentences that are computed in chunks start from the same states."""
    folder, expected = warm
    elmo = bilm.ELMo.from_pretrained(folder / "elmo", warm_up=TEXT)
    elmo.corpus.window_tokens, elmo.corpus.chunk_tokens = 20, 8
    long = SENTENCES[0] * 20
    first = elmo.encode([long], "all")[0]
    forward = expected[0].shape[-1] // 2
    np.testing.assert_allclose(first[:, :2, :forward], expected[0][..., :forward], 2e-5, 2e-5)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    kind, changes = KINDS["one_layer_tied"]
    return Model(tmp_path_factory.mktemp("scored"), kind, **changes)


@pytest.mark.slow
def test_scores_after_a_warm_up(scored, corpus, tmp_path):
    """`Predictor` begins from the mean states after a text, which are not zeros."""
    data = corpus.data(scored.options, "heldout.txt", test=True)
    text = tmp_path / "text"
    text.write_text("the cat sees\na dog\n", encoding="utf-8")
    predictor = bilm.Predictor.from_pretrained(scored.folder, warm_up=text)
    scores = predictor.score([" ".join(s) for s in corpus.heldout])
    total = -sum(score.forward_total for score in scores)
    model = LanguageModel(scored.options, is_training=False, seed=None)
    load_variables(scored.prefix, weight_table(model))
    cold = evaluate(Scorer(model), data)
    words = EncodedWords(model.network, data.vocab.word_ids)
    warm_up_network(model.network, words, read_warm_up(text))
    warm = evaluate(Scorer(model), data)
    np.testing.assert_allclose(warm.losses[0], total, 1e-5)
    assert abs(cold.forward / warm.forward - 1) > 1e-3


def test_texts_of_any_length():
    assert read_warm_up(["a b"]) == [["a", "b"]] * (N_WARM_UP_WORDS // 2)
    assert read_warm_up(["a"] * (N_WARM_UP_WORDS + 5)) == [["a"]] * N_WARM_UP_WORDS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (["", []], "warm_up must hold a word"),
        (["a", ["b", 3]], "warm_up: sentence 1, token 1 must be text"),
    ],
)
def test_texts_that_warm_nothing_up(text, message):
    with pytest.raises(InputError, match=message):
        read_warm_up(text)


# Comparing initial states


def far_from(model, scale):
    """States of each direction, far from zeros."""
    draw = np.random.default_rng(0)
    return tf.nest.map_structure(
        lambda x: tf.constant(draw.normal(size=x.shape) * scale, tf.float32),
        model.network.zero_states(1),
    )


def test_the_ratio_of_training_states_and_its_warning(scored, corpus, caplog):
    model = LanguageModel(scored.options, is_training=False, seed=None)
    for weight in weight_table(model):
        weight.variable.assign(scored.weights[hdf5_name(weight.checkpoint)])
    data = corpus.data(scored.options, "heldout.txt", test=True)
    states = far_from(model, 3.0)
    whole = evaluate(Scorer(model), data, training_states=states)
    other = evaluate(Scorer(model), data, begin=states)
    # All sentences fit into one batch, so the ratio is that of the two perplexities.
    np.testing.assert_allclose(
        whole.start_ratio, [whole.forward / other.forward, whole.backward / other.backward], 1e-4
    )
    assert other.start_ratio is None
    scorer = Scorer(model)
    with caplog.at_level(logging.WARNING):
        evaluate(scorer, data, training_states=states).warn_if_lost(0.0)
    assert "performs badly" not in caplog.text  # zeros are better
    for variable, value in zip(
        tf.nest.flatten([stack.initial for stack in model.stacks]),
        tf.nest.flatten(states),
        strict=True,
    ):
        variable.assign(value)
    evaluate(scorer, data, training_states=model.network.zero_states(1)).warn_if_lost(0.0)
    assert "where this model performs badly: its held-out forward perplexity is" in caplog.text


# Training states saved with the weights


@pytest.mark.slow
def test_weights_with_the_mean_states_of_training(corpus, tmp_path, capsys):
    """Results with saved states equal those from the training states; without them they differ."""
    options = small_options("short_words_261", n_epochs=1)
    record = train(options, corpus.data(options), 1, tmp_path / "run", None)
    vocabulary = (corpus.folder / "vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "run" / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    for name, flags in (("with", ["--with_states"]), ("without", [])):
        arguments = ["dump", "--save_dir", str(tmp_path / "run"), *flags]
        assert main([*arguments, "--model_dir", str(tmp_path / name)]) == 0
    model = LanguageModel(options, is_training=False, seed=None)
    load_variables(record.checkpoint, weight_table(model))
    begin = load_mean_states(record.checkpoint, model.network.zero_states)
    data = corpus.data(options, "heldout.txt", test=True)
    expected = evaluate(Scorer(model), data, begin=begin)
    totals = {}
    for name in ("with", "without"):
        scores = bilm.Predictor.from_pretrained(tmp_path / name).score(corpus.heldout)
        totals[name] = -sum(score.forward_total for score in scores)
    np.testing.assert_allclose(totals["with"], expected.losses[0], 1e-5)
    assert abs(totals["without"] - totals["with"]) > 1e-4
    for variable, value in zip(
        tf.nest.flatten([stack.initial for stack in model.stacks]),
        tf.nest.flatten(begin),
        strict=True,
    ):
        variable.assign(value)
    sentence = corpus.heldout[0]
    vectors = bilm.ELMo.from_pretrained(tmp_path / "with").encode([sentence], "top")[0]
    ids = bilm.Batcher(None, 7).batch_sentences([sentence])
    files = (tmp_path / "with" / "options.json", tmp_path / "with" / "model.hdf5")
    for stateful in (False, True):
        layer = bilm.BidirectionalLanguageModel(*files, stateful=stateful)
        top = layer(ids)["lm_embeddings"][0, -1]
        np.testing.assert_allclose(top, vectors, 1e-5, 1e-6)
    words = model.encoder(tf.constant(ids[0], tf.int32))[:, tf.newaxis]
    layers, _ = model.network.sentence_layers(
        words, tf.constant([len(sentence) + 2]), model.network.initial_states()
    )
    np.testing.assert_allclose(vectors, layers[-1][1:-1, 0], 1e-5, 1e-6)
    capsys.readouterr()
    assert main(["info", str(tmp_path / "with")]) == 0
    assert "initial states  own\n" in capsys.readouterr().out


@pytest.mark.eager
def test_states_that_do_not_fit_or_are_not_there(corpus, scored, tmp_path):
    with pytest.raises(InputError, match="with_states: the checkpoint lacks LSTM states"):
        bilm.dump_weights(scored.folder, tmp_path / "weights.hdf5", with_states=True)
    options = small_options("short_words_261", n_epochs=1)
    train(options, corpus.data(options), 1, tmp_path / "run", None)
    bilm.dump_weights(tmp_path / "run", tmp_path / "weights.hdf5", with_states=True)
    with h5py.File(tmp_path / "weights.hdf5", "a") as file:
        del file["states/0/0/c"]
        file["states/0/0/c"] = np.zeros((1, 3), np.float32)
    with pytest.raises(InputError, match=r"states/0/0/c: must have shape \(1, 20\)"):
        bilm.ELMo.from_pretrained((tmp_path / "weights.options.json", tmp_path / "weights.hdf5"))
