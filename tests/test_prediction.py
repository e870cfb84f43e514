"""`Predictor`: scores of tokens and words for places, against the NumPy formulas."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm import InputError, Predictor
from bilm.core.full_softmax import NEVER
from bilm.use.predictor import likeliest_words
from tests import oracle
from tests.scored_models import KINDS, Model
from tests.small_runs import UNKNOWN, VOCABULARY, WORDS

SLOW = ("characters", "words_tied")
SPECIAL = [0, 1, 2]  # <S>, </S> and <UNK>


@pytest.fixture(
    scope="module",
    params=[pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in KINDS],
)
def model(request, tmp_path_factory):
    kind, changes = KINDS[request.param]
    return Model(tmp_path_factory.mktemp("scored") / request.param, kind, **changes)


@pytest.fixture(scope="module")
def predictor(model):
    return Predictor.from_pretrained(model.folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A bidirectional model and its predictor, shared by the tests."""
    kind, changes = KINDS["one_layer_tied"]
    made = Model(tmp_path_factory.mktemp("scored") / "small", kind, **changes)
    return made, Predictor.from_pretrained(made.folder)


def random_sentences(seed, lengths):
    draw = random.Random(seed)
    return [draw.choices([*WORDS, *UNKNOWN], k=length) for length in lengths]


SENTENCES = [*random_sentences(5, [3, 1, 7, 0, 2, 60, 12]), ["<UNK>", "the"]]


def test_scores_of_each_token(model, predictor):
    scores = predictor.score(SENTENCES)
    assert len(scores) == len(SENTENCES)
    for sentence, score in zip(SENTENCES, scores, strict=True):
        forward, *rest = [-losses for losses in model.sentence_losses(sentence)]
        assert score.tokens == sentence
        assert score.known.tolist() == [word in VOCABULARY for word in sentence]
        assert score.forward.dtype == np.float32
        np.testing.assert_allclose([*score.forward, score.end], forward, 1e-5, 1e-5)
        np.testing.assert_allclose(score.forward_total, forward.sum(), 1e-5, 1e-5)
        if not rest:
            assert score.backward is score.begin is score.joint is None
            assert score.backward_total is score.joint_total is None
            continue
        backward = rest[0]  # from the last token to the first, then <S>
        np.testing.assert_allclose([score.begin, *score.backward], backward[::-1], 1e-5, 1e-5)
        np.testing.assert_allclose(score.joint, score.forward + score.backward)
        np.testing.assert_allclose(score.backward_total, backward.sum(), 1e-5, 1e-5)
        np.testing.assert_allclose(score.joint_total, (forward + backward[::-1]).sum(), 1e-5, 1e-5)


def test_repeated_sentences_and_beginnings(small):
    """Shared beginnings and repeated sentences are predicted once, with equal scores."""
    model, predictor = small
    sentences = [["the", *SENTENCES[2]], ["the", *SENTENCES[2], "the"], ["the", *SENTENCES[2]]]
    scores = predictor.score(sentences)
    for sentence, score in zip(sentences, scores, strict=True):
        forward, backward = [-losses for losses in model.sentence_losses(sentence)]
        np.testing.assert_allclose([*score.forward, score.end], forward, 1e-5, 1e-5)
        np.testing.assert_allclose([score.begin, *score.backward], backward[::-1], 1e-5, 1e-5)
    scores[0].forward[:] = 0
    assert scores[2].forward.all()
    [forward_only] = predictor.score(sentences[1:2], forward_only=True)
    np.testing.assert_allclose(forward_only.forward_total, scores[1].forward_total, 1e-6)
    assert forward_only.backward is forward_only.joint_total is None


def test_scores_in_bfloat16(small):
    model, predictor = small
    scores = Predictor.from_pretrained(model.folder, precision="bfloat16").score(SENTENCES)
    rounded, exact = ([s.forward_total for s in x] for x in (scores, predictor.score(SENTENCES)))
    assert rounded != exact
    np.testing.assert_allclose(rounded, exact, 0.03)


def product(model, sentence, place, directions, prior):
    """The product of the directions' distributions over the words, float64."""
    logits = sum(model.words_of_place(sentence, place, d) for d in directions)
    n = len(VOCABULARY)
    logits = logits - prior * np.log(oracle.log_uniform_probability(np.arange(n), n))
    logits[SPECIAL] = -np.inf
    return logits - np.log(np.exp(logits).sum())


@pytest.mark.parametrize(
    ("directions", "prior"), [(None, 0.0), (None, None), ("forward", None), ("backward", 0.5)]
)
def test_words_of_each_place(model, predictor, directions, prior):
    if directions == "backward" and model.n_directions == 1:
        with pytest.raises(InputError, match="directions must be 'forward' for this"):
            predictor.substitutes(SENTENCES, "all", directions=directions)
        return
    counted = {None: range(model.n_directions), "forward": [0], "backward": [1]}[directions]
    # By default, p(word) counts once, not once per direction.
    used = len(counted) - 1 if prior is None else prior
    sentences = [SENTENCES[0], SENTENCES[3], SENTENCES[2], SENTENCES[7]]
    found = predictor.substitutes(sentences, "all", n=5, directions=directions, prior=prior)
    assert [len(places) for places in found] == [len(sentence) for sentence in sentences]
    for sentence, places in zip(sentences, found, strict=True):
        for number, place in enumerate(places):
            assert (place.place, place.token) == (number, sentence[number])
            expected = product(model, sentence, number, counted, used)
            order = np.argsort(-expected, kind="stable")
            assert place.words == [VOCABULARY[k] for k in order[:5]]
            np.testing.assert_allclose(place.log_probabilities, expected[order[:5]], 1e-5, 1e-5)
            if sentence[number] not in WORDS:
                assert place.of_token is place.rank is None
                continue
            own = VOCABULARY.index(sentence[number])
            np.testing.assert_allclose(place.of_token, expected[own], 1e-5, 1e-5)
            assert place.rank == order.tolist().index(own) + 1


def test_what_stands_in_a_place_is_not_read_for_it(small):
    _, predictor = small
    (gap,), (other,) = predictor.substitutes(["the cat ___ a dog", "the cat sees a dog"], [2])
    assert gap.words == other.words
    # The summation order may differ between rows of a batch.
    np.testing.assert_allclose(gap.log_probabilities, other.log_probabilities, 1e-5, 1e-6)
    assert (gap.of_token, gap.rank) == (None, None) != (other.of_token, other.rank)
    two = predictor.substitutes([["___", "cat", "___"]])[0]
    assert [place.place for place in two] == [0, 2]


def test_all_words_when_more_are_asked_for(small):
    _, predictor = small
    (place,) = predictor.substitutes(["a ___ of"], n=100)[0]
    assert sorted(place.words) == sorted(WORDS)
    np.testing.assert_allclose(np.exp(place.log_probabilities).sum(), 1, 1e-5)


def test_lines_without_a_word_are_never_likely(small, tmp_path):
    made, _ = small
    lines = ["of" if word == "the" else word.replace("and", "") for word in VOCABULARY]
    shutil.copytree(made.folder, tmp_path / "run")
    (tmp_path / "run" / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (place,) = Predictor.from_pretrained(tmp_path / "run").substitutes(["a ___ of"], n=100)[0]
    assert sorted(place.words) == sorted({*WORDS} - {"the", "and"})


def test_batches_change_nothing(small):
    """Results do not depend on batching or on how a long sentence is split."""
    made, predictor = small
    sentences = random_sentences(8, [1, 5, 2, 14, 0, 8])
    expected = predictor.score(sentences)
    places = predictor.substitutes(sentences, "all", n=3)
    other = Predictor.from_pretrained(made.folder)
    for batch_size, budget in ((1, 4096), (2, 4096), (None, 7), (3, 16)):
        other.window_tokens = budget
        scores = other.score(sentences, batch_size=batch_size)
        for score, wanted in zip(scores, expected, strict=True):
            assert score.tokens == wanted.tokens
            np.testing.assert_allclose(score.forward, wanted.forward, 1e-5, 1e-5)
            np.testing.assert_allclose(score.backward, wanted.backward, 1e-5, 1e-5)
            np.testing.assert_allclose(
                [score.end, score.begin], [wanted.end, wanted.begin], 1e-5, 1e-5
            )
        found = other.substitutes(sentences, "all", n=3, batch_size=batch_size)
        for one, wanted in zip(itertools.chain(*found), itertools.chain(*places), strict=True):
            assert (one.place, one.words, one.rank) == (wanted.place, wanted.words, wanted.rank)
            np.testing.assert_allclose(one.log_probabilities, wanted.log_probabilities, 1e-4, 1e-5)


def test_more_sentences_than_are_computed_together(small):
    made, predictor = small
    sentences = random_sentences(9, [2, 3] * 600)
    other = Predictor.from_pretrained(made.folder)
    other.window_tokens = 2000
    found, expected = (
        np.array([[s.forward_total, s.backward_total] for s in p.score(sentences)])
        for p in (predictor, other)
    )
    np.testing.assert_allclose(found, expected, 1e-5)


@pytest.mark.slow
def test_scores_from_several_threads(small):
    """Threads share the vectors of words."""
    made, predictor = small
    texts = [random_sentences(seed, [20, 3, 25]) for seed in range(4)]
    expected = [predictor.score(text) for text in texts]
    places = [predictor.substitutes(text, [1], n=2) for text in texts]
    one_each = predictor.substitutes(["the dog", "a b c"], [[1], [0, 2]], n=1)
    assert [[p.place for p in of_sentence] for of_sentence in one_each] == [[1], [0, 2]]
    other = Predictor.from_pretrained(made.folder)
    other.window_tokens = 8
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(other.score, texts * 3))
        found = list(pool.map(lambda text: other.substitutes(text, [1], n=2), texts * 3))
    for one, wanted in zip(itertools.chain(*scores), itertools.chain(*expected * 3), strict=True):
        np.testing.assert_allclose(one.forward, wanted.forward, 1e-5, 1e-5)
        np.testing.assert_allclose(one.backward, wanted.backward, 1e-5, 1e-5)
    for here, there in zip(itertools.chain(*found), itertools.chain(*places * 3), strict=True):
        assert here[0].words == there[0].words


def test_likeliest_words():
    random = np.random.default_rng(3)
    hidden, W = (random.normal(size=(n, 5)).astype(np.float32) for n in (6, 18))
    bias = random.normal(size=18).astype(np.float32)
    bias[:3] = NEVER
    targets = np.array([3, 17, 8, 4, 5, 5], np.int32)
    logits = hidden @ W.T + bias
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    inputs = map(tf.constant, (hidden, W, bias, targets))
    ids, best, of_targets, ranks = likeliest_words(*inputs, k=9)
    order = np.argsort(-log_p, axis=1, kind="stable")
    np.testing.assert_array_equal(ids, order[:, :9])
    np.testing.assert_allclose(best, np.take_along_axis(log_p, order[:, :9], 1), 1e-5, 1e-5)
    np.testing.assert_allclose(of_targets, log_p[np.arange(6), targets], 1e-5, 1e-5)
    np.testing.assert_array_equal(ranks, np.argmax(order == targets[:, np.newaxis], axis=1))


def test_streams_are_read_a_window_at_a_time(small):
    predictor = Predictor.from_pretrained(small[0].folder)
    predictor.window_tokens = 40
    taken = []

    def stream():
        for number, sentence in enumerate(itertools.cycle(SENTENCES[:3])):
            taken.append(number)
            yield f"id {number}", sentence

    scores = predictor.score_iter(stream(), with_ids=True)
    first = list(itertools.islice(scores, 30))
    assert [name for name, _ in first] == [f"id {number}" for number in range(30)]
    assert len(taken) < 50
    np.testing.assert_allclose(first[0][1].forward, first[27][1].forward, 1e-5)
    taken.clear()
    found = predictor.substitutes_iter(stream(), [0], n=1, with_ids=True)
    assert [name for name, _ in itertools.islice(found, 3)] == ["id 0", "id 1", "id 2"]
    assert len(taken) < 20
    assert list(predictor.score_iter([])) == [] == predictor.substitutes([])


def test_totals_are_what_test_measures(model, predictor, tmp_path):
    sentences = [sentence for sentence in SENTENCES if sentence]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(map(" ".join, sentences)), encoding="utf-8")
    kind = bilm.BidirectionalLMDataset if model.n_directions == 2 else bilm.LMDataset
    width = predictor.options.max_word_length
    vocabulary = bilm.load_vocab(model.folder / "vocab.txt", width)
    measured = model.test(kind(text, vocabulary, test=True), per_sentence=True).sentences
    scores = predictor.score(sentences)
    totals = [[score.forward_total for score in scores]]
    if model.n_directions == 2:
        totals.append([score.backward_total for score in scores])
    np.testing.assert_allclose(np.negative(totals), measured.losses, 1e-5)


# Model sources


@pytest.mark.slow
def test_weights_that_hold_the_softmax(model, predictor, tmp_path):
    weights = tmp_path / "m" / "model.hdf5"
    weights.parent.mkdir()
    bilm.dump_weights(model.folder, weights, with_softmax=True)
    expected = predictor.score(SENTENCES[:3])
    tied = model.options.get("share_embedding_softmax", False)
    with h5py.File(weights) as file:
        assert ("softmax/W" in file) is not tied
        assert file["vocabulary/words"].asstr()[...].tolist() == VOCABULARY
        for name in file["softmax"]:
            stored = model.weights[f"softmax/{name}"]
            np.testing.assert_array_equal(file[f"softmax/{name}"][...], stored)
    archive = shutil.make_archive(tmp_path / "m", "zip", tmp_path / "m")
    for source in (weights.parent, archive, (f"{weights.parent}/model.options.json", weights)):
        found = Predictor.from_pretrained(source)
        assert found.vocabulary.size == len(VOCABULARY)
        for score, wanted in zip(found.score(SENTENCES[:3]), expected, strict=True):
            np.testing.assert_array_equal(score.forward, wanted.forward)


def test_other_readers_pass_the_softmax_over(small, tmp_path):
    made, _ = small
    for name, with_softmax in (("plain", False), ("whole", True)):
        bilm.dump_weights(made.folder, tmp_path / f"{name}.hdf5", with_softmax=with_softmax)
    plain, whole = (
        bilm.ELMo.from_pretrained(
            (tmp_path / f"{name}.options.json", tmp_path / f"{name}.hdf5"),
            vocab_file=made.folder / "vocab.txt",
        )
        for name in ("plain", "whole")
    )
    assert plain.fingerprint() == whole.fingerprint()
    extra = oracle.read_hdf5(tmp_path / "whole.hdf5").keys()
    extra -= oracle.read_hdf5(tmp_path / "plain.hdf5").keys()
    assert extra == {"softmax/b", "vocabulary/words"}


def test_the_vocabulary_that_counts(small, tmp_path):
    """The one in the weights or else vocab.txt counts; a given file must have the same words."""
    made, _ = small
    weights = tmp_path / "model.hdf5"
    bilm.dump_weights(made.folder, weights, with_softmax=True)
    turned = tmp_path / "turned.txt"
    turned.write_text("\n".join([*VOCABULARY[:3], *VOCABULARY[:2:-1]]), encoding="utf-8")
    for source, own in ((tmp_path, "the vocabulary in .*"), (made.folder, ".*vocab.txt")):
        message = rf"turned.txt must have the words of {own}, but word 3 is"
        with pytest.raises(InputError, match=message):
            Predictor.from_pretrained(source, vocab_file=turned)
    with pytest.raises(InputError, match=message):
        bilm.dump_weights(made.folder, tmp_path / "x.hdf5", with_softmax=True, vocab_file=turned)
    named = Predictor.from_pretrained(tmp_path, vocab_file=made.folder / "vocab.txt")
    assert named.vocabulary.words == VOCABULARY
    shutil.copy(turned, tmp_path / "vocab.txt")
    assert Predictor.from_pretrained(tmp_path).vocabulary.id_to_word(3) == VOCABULARY[3]
    with h5py.File(weights, "r+") as file:
        del file["vocabulary"]
    assert Predictor.from_pretrained(tmp_path).vocabulary.id_to_word(3) == VOCABULARY[-1]
    os.remove(tmp_path / "vocab.txt")
    with pytest.raises(InputError, match="the vocabulary of the softmax is missing"):
        Predictor.from_pretrained(tmp_path)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A model whose softmax is in a separate file, as AllenNLP publishes it, and its `Model`."""
    folder = tmp_path_factory.mktemp("published")
    kind, changes = KINDS["characters"]
    made = Model(folder / "run", kind, **changes)
    bilm.dump_weights(made.folder, folder / "elmo_weights.hdf5", with_softmax=False)
    os.rename(folder / "elmo_weights.options.json", folder / "elmo_options.json")
    softmax = {f"softmax/{name}": made.weights[f"softmax/{name}"] for name in "Wb"}
    oracle.write_hdf5(folder / "softmax.hdf5", softmax)
    return folder, made


def assert_scores(predictor, made):
    for score, sentence in zip(predictor.score(SENTENCES[:3]), SENTENCES[:3], strict=True):
        forward, backward = made.sentence_losses(sentence)
        np.testing.assert_allclose([*score.forward, score.end], -forward, 1e-5, 1e-5)
        np.testing.assert_allclose([*score.backward[::-1], score.begin], -backward, 1e-5, 1e-5)


@pytest.mark.slow
def test_a_softmax_in_a_file_of_its_own(published, tmp_path, caplog):
    folder, made = published
    pair = (folder / "elmo_options.json", folder / "elmo_weights.hdf5")
    softmax, words = folder / "softmax.hdf5", made.folder / "vocab.txt"
    assert_scores(Predictor.from_pretrained(pair, softmax_file=softmax, vocab_file=words), made)
    assert not caplog.messages
    # Next to the weights, the softmax is found by its published name.
    for name, source in (("elmo_options.json", pair[0]), ("elmo_weights.hdf5", pair[1]),
                         ("elmo_softmax_weights.hdf5", softmax), ("vocab.txt", words)):  # fmt: skip
        shutil.copy(source, tmp_path / name)
    assert_scores(Predictor.from_pretrained(tmp_path), made)
    Predictor.from_pretrained(tmp_path / "elmo_weights.hdf5")
    bilm.ELMo.from_pretrained(tmp_path)  # ignores the softmax


def test_a_softmax_that_does_not_fit(published, tmp_path, caplog):
    folder, made = published
    pair = (folder / "elmo_options.json", folder / "elmo_weights.hdf5")
    softmax, words = folder / "softmax.hdf5", made.folder / "vocab.txt"
    with pytest.raises(InputError, match=r"elmo_weights.hdf5: the vocabulary"):
        Predictor.from_pretrained(pair, softmax_file=softmax)
    short = tmp_path / "short.txt"
    short.write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"short\.txt must have 18 words"):
        Predictor.from_pretrained(pair, softmax_file=softmax, vocab_file=short)
    narrow = {"softmax/W": np.zeros((18, 3)), "softmax/b": np.zeros(18)}
    oracle.write_hdf5(tmp_path / "narrow.hdf5", narrow)
    with pytest.raises(InputError, match=r"softmax/W: must have shape \(18, 8\),"):
        Predictor.from_pretrained(pair, softmax_file=tmp_path / "narrow.hdf5", vocab_file=words)
    with pytest.raises(InputError, match=r"elmo_weights.hdf5: the softmax"):
        Predictor.from_pretrained(pair, softmax_file=pair[1], vocab_file=words)
    with pytest.raises(InputError, match=r"softmax_file is for weights; .* is a checkpoint"):
        Predictor.from_pretrained(made.folder, softmax_file=softmax)
    assert not caplog.messages
    turned = tmp_path / "turned.txt"
    turned.write_text("\n".join(VOCABULARY[::-1]), encoding="utf-8")
    Predictor.from_pretrained(pair, softmax_file=softmax, vocab_file=turned)
    (message,) = caplog.messages
    assert "turned.txt: the first words should be <S>, </S> and <UNK>" in message


def test_checkpoints_of_the_original(golden, tmp_path):
    folder = golden / "training" / "words" / "end"
    with pytest.raises(InputError, match="end: the vocabulary of the softmax is missing"):
        Predictor.from_pretrained(folder)
    found = Predictor.from_pretrained(folder, vocab_file=golden / "vocab.txt")
    options, weights = found.options, oracle.read_checkpoint(folder / "model.ckpt-10").weights
    words = ["the", "of"]
    ids = np.array([found.vocabulary.word_to_id(word) for word in ["<S>", *words, "</S>"]])
    losses = oracle.sentence_losses(weights, options.training_dict(), [(ids, ids)], 0)
    (score,) = found.score([words])
    np.testing.assert_allclose([*score.forward, score.end], -losses, 1e-5)


def test_models_that_predict_no_words(small, tmp_path):
    made, _ = small
    bilm.dump_weights(made.folder, tmp_path / "model.hdf5")
    with pytest.raises(InputError, match=r"model.hdf5: the softmax \(softmax/b\)"):
        Predictor.from_pretrained(tmp_path)
    short = tmp_path / "short.txt"
    short.write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"short\.txt must have the 18 words"):
        bilm.dump_weights(made.folder, tmp_path / "x.hdf5", with_softmax=True, vocab_file=short)
    copy = shutil.copytree(made.folder, tmp_path / "copy")
    os.remove(copy / "vocab.txt")
    with pytest.raises(InputError, match=r"copy has no vocab.txt: name the"):
        bilm.dump_weights(copy, tmp_path / "x.hdf5", with_softmax=True)
    assert not (tmp_path / "x.hdf5").exists()
