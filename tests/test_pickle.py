"""Models that are pickled, copied, and handed to other processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from bilm import (
    BidirectionalLanguageModel,
    ELMo,
    ELMoEmbedding,
    InputError,
    Predictor,
    Pretrained,
    dump_token_embeddings,
)
from bilm.files.weights import weight_table
from tests.scored_models import KINDS, Model
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager

TEXT = ["the cat sees a bird .", "", "a dog", "ünïcödé 猫 w5 ."]


def elmo_of(kind, folder):
    """A model of the given kind, with its files in `folder`."""
    made = write_small_model(folder, "words" if kind == "words" else "as_published")
    words = ["<S>", "</S>", "<UNK>", "the", "bird", *(f"w{n}" for n in range(32))]
    (folder / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    if kind == "words":
        return ELMo.from_pretrained(made.files, vocab_file=folder / "words.txt")
    if kind == "cache":
        dump_token_embeddings(folder / "words.txt", *made.files, folder / "cache.hdf5")
        files = {"vocab_file": folder / "words.txt", "embedding_weight_file": folder / "cache.hdf5"}
        return ELMo.from_pretrained(made.files, **files)
    if kind == "bfloat16":
        return ELMo.from_pretrained(made.files, precision="bfloat16", warm_up=[["a", "dog"]])
    return ELMo.from_pretrained(made.files)


def assert_alike(found, expected):
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize(
    "kind",
    [
        "characters",
        "words",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("cache", "bfloat16")),
    ],
)
def test_a_model_needs_none_of_its_files(tmp_path, kind):
    elmo = elmo_of(kind, tmp_path / "model")
    elmo.corpus.window_tokens, elmo.corpus.chunk_tokens = 20, 8
    expected = elmo.encode(TEXT, "all")
    shutil.rmtree(tmp_path / "model")
    for copied in (pickle.loads(pickle.dumps(elmo)), copy.deepcopy(elmo)):
        assert_alike(copied.encode(TEXT, "all"), expected)
        assert copied.fingerprint() == elmo.fingerprint()
        assert (copied.options, copied.dim, copied.n_layers) == (elmo.options, 16, 3)
    # A copy has its own variables.
    copied.network.stacks[0].weights[0].assign(0 * copied.network.stacks[0].weights[0])
    assert copied.fingerprint() != elmo.fingerprint()
    assert_alike(elmo.encode(TEXT, "all"), expected)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    kind, changes = KINDS["one_layer_tied"]
    return Predictor.from_pretrained(
        Model(tmp_path_factory.mktemp("m") / "m", kind, **changes).folder
    )


def test_a_predictor(predictor):
    pickled = pickle.loads(pickle.dumps(predictor))
    for copied in (pickled, copy.deepcopy(predictor)):
        assert copied.options == predictor.options
        found, expected = (p.score(["the small dog", "a"])[0] for p in (copied, predictor))
        assert_alike([found.forward, found.backward], [expected.forward, expected.backward])
    found, expected = (p.substitutes(["the ___ dog"], n=3)[0][0] for p in (pickled, predictor))
    assert found.words == expected.words
    assert_alike([found.log_probabilities], [expected.log_probabilities])


@pytest.mark.slow
def test_models_in_another_process(tmp_path, predictor):
    elmo = elmo_of("characters", tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    # `multiprocessing.Pool` would wait forever for a process that fails to start.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        vectors = pool.submit(elmo.encode, TEXT, "all").result(timeout=120)
        score = pool.submit(predictor.score, ["the small dog"]).result(timeout=120)[0]
    assert_alike(vectors, elmo.encode(TEXT, "all"))
    np.testing.assert_array_equal(score.forward, predictor.score(["the small dog"])[0].forward)


def test_views_of_one_model_share_its_variables(predictor):
    model = predictor.model
    elmo = model.elmo
    layer = ELMoEmbedding.from_pretrained(model, layers="average")
    ids_layer = BidirectionalLanguageModel.from_pretrained(model)
    for network in (elmo.network, layer.language_model.network, ids_layer.network):
        pairs = zip(weight_table(network), weight_table(model.network), strict=True)
        assert all(one.variable is other.variable for one, other in pairs)
    expected = elmo.encode(["the small dog"])[0]
    np.testing.assert_allclose(layer(["the small dog"])[0], expected, 2e-5, 2e-5)
    copied_elmo, copied_predictor = pickle.loads(pickle.dumps((elmo, predictor)))
    assert copied_elmo.model is copied_predictor.model


def test_a_saved_folder_is_the_same_model(tmp_path, predictor):
    predictor.model.save(tmp_path / "shared")
    names = {path.name for path in (tmp_path / "shared").iterdir()}
    assert names == {"model.hdf5", "options.json", "vocab.txt", "README.md"}
    again = Pretrained(tmp_path / "shared").load()
    assert again.fingerprint() == predictor.model.fingerprint()
    found, expected = (m.predictor.score(["the small dog"])[0] for m in (again, predictor.model))
    assert_alike([found.forward, found.backward], [expected.forward, expected.backward])
    with pytest.raises(InputError, match="would be overwritten"):
        again.elmo.save(tmp_path / "shared")


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_a_saved_model_without_a_softmax(tmp_path, kind):
    elmo = elmo_of(kind, tmp_path / "model")
    elmo.save(tmp_path / "shared")
    assert_alike(ELMo(tmp_path / "shared").encode(TEXT, "all"), elmo.encode(TEXT, "all"))


def send_errors(pipe, works):
    for work in works:
        try:
            work()
        except InputError as error:
            pipe.send(str(error))


def test_work_after_a_fork_is_an_error(predictor):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    works = [lambda: predictor.score(["a"]), lambda: pickle.loads(pickle.dumps(predictor))]
    process = context.Process(target=send_errors, args=(there, works))
    process.start()
    for _ in works:
        assert here.poll(60)
        assert "start processes with multiprocessing.get_context('spawn')" in here.recv()
    process.join()
