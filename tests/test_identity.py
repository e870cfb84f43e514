"""Models are recognised by a fingerprint wherever two files must belong together."""

from __future__ import annotations

import dataclasses

import h5py
import numpy as np
import pytest

from bilm import (
    BidirectionalLanguageModel,
    ELMo,
    ELMoEmbedding,
    InputError,
    Predictor,
    dump_token_embeddings,
)
from bilm.analysis import Occurrences, measure_change, sample_uses
from bilm.files.identity import require_same_model, without_old_digests
from bilm.files.weights import open_weights
from tests import oracle
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager

WORDS = ["<S>", "</S>", "<UNK>", "they", "saw", "it"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of the same shape, with a token cache and a softmax each."""
    folder = tmp_path_factory.mktemp("models")
    models = [
        write_small_model(folder / name, "as_published", WORDS, seed=seed)
        for name, seed in (("one", 1), ("two", 2))
    ]
    for model in models:
        dump_token_embeddings(model.vocab_file, *model.files, model.folder / "cache.hdf5")
        softmax = {"softmax/W": np.ones((6, 8)), "softmax/b": np.zeros(6)}
        oracle.write_hdf5(model.folder / "softmax_weights.hdf5", softmax)
        oracle.write_hdf5(model.folder / "with_softmax.hdf5", softmax | model.weights)
    return models


def test_things_of_one_model():
    require_same_model("a.h5", "0123", "b.h5", "0123")
    require_same_model("a.h5", None, "b.h5", "0123")
    require_same_model("a.h5", "01234567", "b.h5", "0123")  # another format
    with pytest.raises(InputError, match=r"a\.h5 and b\.h5 .* same model, .* 0123 and 89ab"):
        require_same_model("a.h5", "0123", "b.h5", "89ab")
    theirs = {"model": "01234567", "layer": 1, "text": "89abcdef"}
    assert without_old_digests(theirs, {"model": "0123"}) == theirs | {"model": "0123"}


@pytest.mark.parametrize("kind", ["as_published", "words"])
def test_a_file_and_a_loaded_model_have_one_fingerprint(tmp_path, kind):
    model = write_small_model(tmp_path / kind, kind, WORDS)
    with open_weights(model.files[1]) as weights:
        expected = weights.fingerprint
    settings = {"vocab_file": model.vocab_file} if kind == "words" else {}
    elmo = ELMo.from_pretrained(model.files, precision="bfloat16", **settings)
    assert elmo.fingerprint() == expected is not None and len(expected) == 32


def test_what_a_fingerprint_depends_on(models):
    one, two = (ELMo.from_pretrained(model.files) for model in models)
    cached = ELMo.from_pretrained(
        models[0].files, embedding_weight_file=models[0].folder / "cache.hdf5"
    )
    warm = ELMo.from_pretrained(models[0].files, warm_up=["they saw it"])
    assert one.fingerprint() == cached.fingerprint()
    assert len({elmo.fingerprint() for elmo in (one, two, warm)}) == 3


@pytest.mark.parametrize("load", [
    lambda model, cache: ELMo.from_pretrained(model.files, embedding_weight_file=cache),
    lambda model, cache: ELMoEmbedding(*model.files, embedding_weight_file=cache),
    lambda model, cache: BidirectionalLanguageModel(*model.files, False, cache),
])  # fmt: skip
def test_a_token_cache_of_another_model(models, load):
    """SECURITY.md: fingerprints of two models."""
    one, two = models
    load(one, one.folder / "cache.hdf5")
    with pytest.raises(InputError, match=r"two/cache\.hdf5 and .*one/weights\.hdf5 .* same model"):
        load(one, two.folder / "cache.hdf5")


def test_a_token_cache_of_the_original_program(models, tmp_path):
    """It has no fingerprint, so only its shape is checked."""
    one, two = models
    with h5py.File(two.folder / "cache.hdf5") as cache:
        oracle.write_hdf5(tmp_path / "cache.hdf5", {"embedding": cache["embedding"][()]})
    ELMo.from_pretrained(
        one.files, embedding_weight_file=tmp_path / "cache.hdf5", vocab_file=one.vocab_file
    )


def test_a_softmax_of_another_model(models):
    """SECURITY.md: fingerprints of two models."""
    one, two = models
    vocabulary = {"vocab_file": one.vocab_file}
    for model, name in ((one, "with_softmax.hdf5"), (two, "softmax_weights.hdf5")):
        Predictor.from_pretrained(one.files, softmax_file=model.folder / name, **vocabulary)
    with pytest.raises(InputError, match=r"two/with_softmax\.hdf5 and .* same model"):
        Predictor.from_pretrained(
            one.files, softmax_file=two.folder / "with_softmax.hdf5", **vocabulary
        )


def test_vectors_of_two_models(models):
    """SECURITY.md: fingerprints of two models.

    Occurrences carry the fingerprint; without one they pass.
    """
    sample = sample_uses(["they saw it", "it saw"], ["saw"])
    elmos = [ELMo.from_pretrained(model.files) for model in models]
    old, new = (Occurrences.encoded(elmo, sample) for elmo in elmos)
    with pytest.raises(InputError, match="same model"):
        measure_change(old, new)
    (change,) = measure_change(old, dataclasses.replace(new, about={}))
    assert (change.n_old, change.n_new) == (2, 2)
