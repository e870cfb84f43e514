"""docs/migrating.md: programs of other packages give the same numbers after the page's changes.

The arithmetic of the other package is done in NumPy, as its source has it; each test names the
function. Tests of commands, saved models and converted models are elsewhere.
"""

from __future__ import annotations

import json

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm import (
    Batcher,
    BidirectionalLanguageModel,
    ELMo,
    ELMoEmbedding,
    InputError,
    Predictor,
    ScalarMix,
    TokenBatcher,
    dump_token_embeddings,
    weight_layers,
)
from bilm.cli import main
from tests import oracle
from tests.command_line import input_error
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager

SENTENCES = [["They", "saw", "it", "."], ["Hello"], ["An", "unknownword", "here"]]
SCALARS, GAMMA = [0.5, -1.0, 2.0], 0.9


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_small_model(tmp_path_factory.mktemp("model"), "as_published")


@pytest.fixture(scope="module")
def elmo(model):
    return ELMo.from_pretrained(model.folder)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def embed(model, sentences, states=None):
    ids = oracle.character_ids(sentences, 50)
    return oracle.embed(model.weights, model.options, ids, states)


def ids_of(sentences):
    return Batcher(None, 50).batch_sentences(sentences)


# AllenNLP 0.9


def allennlp_elmo(model, sentences, scalars=(0, 0, 0), gamma=1.0, *, norm=False, boundaries=False):
    """`Elmo.forward` (allennlp/modules/elmo.py): the mix of `ScalarMix.forward`, whose mask has
    <S> and </S>; then `remove_sentence_boundaries` (nn/util.py), zeros past a sentence's end."""
    result = embed(model, sentences)
    mask = np.arange(result.with_boundaries.shape[2]) < result.lengths[:, None] + 2
    layers = np.moveaxis(result.with_boundaries, 1, 0)  # (layers, batch, time + 2, dim)
    if norm:
        means = layers[:, mask].mean(axis=(1, 2))[:, None, None, None]
        variances = layers[:, mask].var(axis=(1, 2))[:, None, None, None]
        layers = (layers - means) / np.sqrt(variances + 1e-12)
    mixed = gamma * np.tensordot(np.exp(scalars) / np.exp(scalars).sum(), layers, axes=1)
    if boundaries:
        return mixed * mask[..., None]
    return mixed[:, 1:-1] * result.mask[..., None]


def test_elmo_embedder(model, elmo):
    """`ElmoEmbedder.embed_batch`, `embed_sentences` and `batch_to_embeddings`
    (allennlp/commands/elmo.py), whose second batch starts from the states after the first."""
    states = oracle.zero_states(model.options, 3)
    first, second = (embed(model, batch, states) for batch in (SENTENCES, SENTENCES[::-1]))
    vectors, mask = elmo.encode(SENTENCES, layers="all", output="padded")
    close(vectors, first.lm_embeddings)
    np.testing.assert_array_equal(mask, first.mask)
    for row, found in enumerate(elmo.encode_iter(SENTENCES, layers="all")):
        close(found, first.lm_embeddings[row, :, : len(SENTENCES[row])])
    carrying = BidirectionalLanguageModel(*model.files, stateful=True)
    for batch, expected in ((SENTENCES, first), (SENTENCES[::-1], second)):
        close(carrying(ids_of(batch))["lm_embeddings"], expected.lm_embeddings)
    assert np.abs(elmo.encode(SENTENCES[2:], "all")[0] - second.lm_embeddings[0, :, :3]).max() > 0.1
    # _ElmoBiLm (allennlp/modules/elmo.py)
    bilm = BidirectionalLanguageModel(*model.files, boundaries=True)
    close(bilm(ids_of(SENTENCES))["lm_embeddings"], first.with_boundaries)


def test_flair(model, elmo):
    """`ELMoEmbeddings` (flair/embeddings/legacy.py): `use_layers_all`, after `embed_batch` has
    embedded "hello" for the length of a vector."""
    states = oracle.zero_states(model.options, 3)
    embed(model, [["hello"]], states)
    theirs = embed(model, SENTENCES, states).lm_embeddings
    for row, layers in enumerate(elmo.encode(SENTENCES, layers="all")):
        ours = np.concatenate(layers, axis=-1)
        expected = np.concatenate(theirs[row, :, : len(SENTENCES[row])], axis=-1)
        if row > 0:
            close(ours, expected)
        else:
            assert np.abs(ours - expected).max() > 0.01


def test_keys_of_many_langs(model, tmp_path):
    """`test_main` (elmoformanylangs/__main__.py) writes each sentence under such a key."""
    sentences = [["They", "saw", "it", "."], ["The", "U.S.", "said", "a/b"]]
    keys = ["They\tsaw\tit\t$period$", "The\tU$period$S$period$\tsaid\ta$backslash$b"]
    text, ids, out = (str(tmp_path / name) for name in ("text.txt", "ids.txt", "out.hdf5"))
    for path, lines in ((text, map(" ".join, sentences)), (ids, keys)):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    assert main(["embed", text, out, "--model", str(model.folder), "--ids", ids]) == 0
    with h5py.File(out) as file:
        assert sorted(file) == sorted(keys)
        for key, layers in zip(keys, embed(model, sentences).lm_embeddings, strict=True):
            close(file[key][()], layers.mean(axis=0))


def test_seqvec(model, elmo):
    """`process_embedding` (seqvec/seqvec.py) and `reduce_per_protein` (bio_embeddings)."""
    layers = embed(model, [list("SEQWENCE")]).lm_embeddings[0]
    close(elmo.encode([list("SEQWENCE")], layers="sum")[0], layers.sum(axis=0))
    protein = elmo.encode([list("SEQWENCE")], layers="sum", pooling="mean")[0]
    close(protein, layers.sum(axis=0).mean(axis=0))


def test_ids_of_allennlp_are_an_error(model):
    """`batch_to_ids` adds no <S> and </S>: the first and the last word would be cut off."""
    ids = ids_of(SENTENCES)
    without = np.where(ids == ids[0, -1], 0, ids)[:, 1:-1]
    layer = ELMoEmbedding.from_pretrained(model.folder)
    for call in (layer, BidirectionalLanguageModel(*model.files)):
        with pytest.raises(InputError, match="ids must start with <S> and end with </S>"):
            call(without)


@pytest.mark.slow
def test_ids_of_allennlp_are_an_error_in_a_graph(model):
    ids = keras.Input((None, 50), dtype="int32")
    program = keras.Model(ids, ELMoEmbedding.from_pretrained(model.folder)(ids))
    assert program.predict(ids_of(SENTENCES), verbose=0).shape == (3, 4, 16)
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids must start with <S>"):
        program.predict(ids_of(SENTENCES)[:, 1:], verbose=0)


def test_elmo_module(model, elmo):
    layer = ELMoEmbedding.from_pretrained(model.files)
    ids = ids_of(SENTENCES)
    close(layer(ids), allennlp_elmo(model, SENTENCES))
    groups = layer(np.stack([ids, ids[::-1]]))  # ids (batch, n, time, 50)
    close(groups[1], allennlp_elmo(model, SENTENCES[::-1]))
    # No dropout, unlike Elmo's default of 0.5.
    np.testing.assert_array_equal(layer(ids, training=True), layer(ids))
    # requires_grad
    assert [weight.shape for weight in layer.trainable_weights] == [(3,), (1,)]
    tuned = ELMoEmbedding.from_pretrained(model.files, train_language_model=True)
    assert len(tuned.trainable_weights) == len(model.weights) + 2


def test_scalars_of_the_mix(model, elmo):
    """`scalar_mix_parameters`, which are frozen, `initial_scalar_parameters`, and the scalars and
    gamma of a trained `Elmo`."""
    expected = allennlp_elmo(model, SENTENCES, SCALARS)
    mix = ScalarMix(weights=SCALARS)
    close(elmo.encode(SENTENCES, layers=mix, output="padded").vectors, expected)
    frozen = ELMoEmbedding.from_pretrained(model.folder, layers=mix.layer_weights(3))
    close(frozen(SENTENCES), expected)
    assert frozen.trainable_weights == []
    trained = ELMoEmbedding.from_pretrained(
        model.folder, layers=ScalarMix(weights=SCALARS, gamma=GAMMA)
    )
    close(trained(SENTENCES), allennlp_elmo(model, SENTENCES, SCALARS, GAMMA))
    assert len(trained.trainable_weights) == 2
    # ScalarMix on a list of tensors, without a mask
    layers = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    factors = np.exp(SCALARS) / np.exp(SCALARS).sum()
    tensors = list(np.moveaxis(layers, 1, 0))
    close(mix(np.stack(tensors, axis=1)), sum(map(np.multiply, factors, tensors)))


def test_two_representations(model):
    """num_output_representations=2: one language model, two mixes."""
    layers = BidirectionalLanguageModel(*model.files)(ids_of(SENTENCES))
    for scalars, gamma in ((SCALARS, GAMMA), (SCALARS[::-1], 2.0)):
        mix = ScalarMix(weights=scalars, gamma=gamma)
        mixed = weight_layers("output", layers, mix=mix)["weighted_op"]
        close(mixed, allennlp_elmo(model, SENTENCES, scalars, gamma))


def test_boundaries_and_layer_normalisation(model, elmo):
    expected = allennlp_elmo(model, SENTENCES, boundaries=True)
    close(elmo.encode(SENTENCES, boundaries=True, output="padded").vectors, expected)
    layer = ELMoEmbedding.from_pretrained(model.folder, boundaries=True)
    close(layer(SENTENCES), expected)
    close(layer(SENTENCES)[:, :-1], expected[:, :-1])  # supar's bos_eos=(True, False)
    normed = allennlp_elmo(model, SENTENCES, norm=True, boundaries=True)
    with_boundaries = ELMoEmbedding.from_pretrained(
        model.folder, do_layer_norm=True, boundaries=True
    )
    close(with_boundaries(SENTENCES), normed)
    without = ELMoEmbedding.from_pretrained(model.folder, do_layer_norm=True)(SENTENCES)
    assert np.abs(without - allennlp_elmo(model, SENTENCES, norm=True)).max() > 0.01


# bilm-tf


def test_a_mix_trained_by_bilm_tf(model, elmo):
    """`weight_layers` (bilm/elmo.py): softmax(W + 1 / layers), in variables (3,) and (1,)."""
    W, gamma = np.array(SCALARS, np.float32), np.array([GAMMA], np.float32)
    result = embed(model, SENTENCES)
    expected, _ = oracle.weight_layers(result.lm_embeddings, result.mask, W, gamma[0])
    mix = ScalarMix(weights=W, gamma=float(gamma[0]))
    close(elmo.encode(SENTENCES, layers=mix, output="padded").vectors, expected)


def test_usage_token(model, elmo, tmp_path):
    """usage_token.py, whose vocabulary is a set without <UNK> and without a last line feed."""
    words = {"<S>", "</S>"}.union(*SENTENCES)
    vocabulary, cache = tmp_path / "vocab_small.txt", tmp_path / "tokens.hdf5"
    vocabulary.write_text("\n".join(words), encoding="utf-8")
    dump_token_embeddings(vocabulary, *model.files, cache)
    bilm = BidirectionalLanguageModel(
        *model.files, use_character_inputs=False, embedding_weight_file=cache
    )
    batcher = TokenBatcher(vocabulary)
    context = weight_layers("input", bilm(batcher.batch_sentences(SENTENCES)), l2_coef=0.0)
    question = bilm(batcher.batch_sentences([["Hello"]]))
    question = weight_layers("input", question, l2_coef=0.0, mix=context["mix"])
    close(context["weighted_op"], elmo.encode(SENTENCES, output="padded").vectors)
    close(question["weighted_op"][0], elmo.encode([["Hello"]])[0])


@pytest.mark.slow
def test_more_gpus_than_there_are(text, capsys):
    arguments = ["train", "--save_dir", str(text.folder / "gpus"), "--n_gpus", "3", "--preset=tiny",
                 "--vocab_file", text.vocabulary, "--train_prefix", text.training]  # fmt: skip
    assert "n_gpus must be at most 1, got 3" in input_error(arguments, capsys)


# simple_elmo 0.9


def simple_elmo_vectors(model, sentences, layers, warmup):
    """`ElmoModel.get_elmo_vectors` (elmo_helpers.py) for one batch: the first batch is read twice,
    and the token layer is not zero at padding."""
    states = oracle.zero_states(model.options, len(sentences))
    for _ in range(1 + warmup):
        result = embed(model, sentences, states)
    vectors = result.lm_embeddings.copy()
    padding = oracle.encode(
        model.weights, model.options, oracle.table_with_padding(model.weights["char_embed"]),
        np.zeros((1, 1, 50), int),
    )  # fmt: skip
    vectors[:, 0][~result.mask] = np.tile(padding[0, 0], 2)
    return {"average": vectors.mean(axis=1), "top": vectors[:, -1], "all": vectors}[layers]


def simple_elmo_average(model, sentences, layers):
    """`ElmoModel.get_elmo_vector_average`: the mean over the batch's time axis, of length 1."""
    means = simple_elmo_vectors(model, sentences, layers, warmup=False).mean(axis=1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def unit_means(elmo, sentences, layers):
    pooled = np.stack(elmo.encode(sentences, layers, pooling="mean"))
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_get_elmo_vectors(model, elmo, layers):
    vectors, mask = elmo.encode(SENTENCES, layers, output="padded")
    mask = mask[:, None, :, None] if layers == "all" else mask[..., None]
    close(vectors, simple_elmo_vectors(model, SENTENCES, layers, warmup=False) * mask)
    bilm = BidirectionalLanguageModel(*model.files, max_batch_size=32, stateful=True)
    for _ in range(2):
        warm = bilm(ids_of(SENTENCES))["lm_embeddings"].numpy()
    warm = {"average": warm.mean(axis=1), "top": warm[:, -1], "all": warm}[layers]
    close(warm, simple_elmo_vectors(model, SENTENCES, layers, warmup=True) * mask)
    assert (elmo.dim, elmo.n_layers) == (2 * model.options["lstm"]["projection_dim"], 3)


def test_get_elmo_vector_average(model, elmo):
    same_length = [sentence[:1] for sentence in SENTENCES]
    close(
        unit_means(elmo, same_length, "average"), simple_elmo_average(model, same_length, "average")
    )
    close(unit_means(elmo, SENTENCES, "top"), simple_elmo_average(model, SENTENCES, "top"))
    # With the token layer, its padding counts there.
    ours = unit_means(elmo, SENTENCES, "average")
    theirs = simple_elmo_average(model, SENTENCES, "average")
    close(ours[0], theirs[0])
    assert np.abs(ours[1] - theirs[1]).max() > 0.01


@pytest.mark.slow
def test_get_elmo_substitutes(golden):
    """`ElmoModel.get_elmo_substitutes` predicts from one neighbour, from zero states: at the first
    word, from <S> alone, as a language model does; `logp` are logits."""
    folder = golden / "training" / "characters" / "end"
    weights = oracle.read_checkpoint(folder / "model.ckpt-10").weights
    options = json.loads((folder / "options.json").read_text("utf-8"))
    words = (golden / "vocab.txt").read_text("utf-8").splitlines()
    layers = oracle.embed(weights, options, oracle.character_ids([[]], 50)).with_boundaries
    hidden = layers[0, -1, 0, : options["lstm"]["projection_dim"]]  # forward, after <S>
    logits = weights["softmax/W"] @ hidden + weights["softmax/b"]
    predictor = Predictor.from_pretrained(folder, vocab_file=golden / "vocab.txt")
    ((first, *_),) = predictor.substitutes(["the number"], "all", n=5, directions="forward")
    ids = [words.index(word) for word in first.words]
    close(first.log_probabilities - first.log_probabilities[0], logits[ids] - logits[ids[0]])
    logits[[words.index(word) for word in ("<S>", "</S>", "<UNK>")]] = -np.inf
    assert ids == np.argsort(-logits)[:5].tolist()


# TF-Hub, DeepPavlov


def test_outputs_of_the_module(model, elmo):
    """`default` and `word_emb` of the TF-Hub module, which DeepPavlov's ELMoEmbedder returns."""
    result = embed(model, SENTENCES)
    means = [
        layers[:, : len(sentence)].mean(axis=(0, 1))
        for layers, sentence in zip(result.lm_embeddings, SENTENCES, strict=True)
    ]
    close(np.stack(elmo.encode(SENTENCES, pooling="mean")), np.stack(means))
    layer = ELMoEmbedding.from_pretrained(model.folder, layers="average")
    pooled = keras.layers.GlobalAveragePooling1D()(layer(SENTENCES))  # hub.KerasLayer
    close(pooled, np.stack(means))
    tokens = elmo.encode(SENTENCES, layers=0)
    dim = elmo.dim // 2
    close(tokens[0][:, :dim], result.token_embeddings[0, 1:5])
    np.testing.assert_array_equal(tokens[0][:, :dim], tokens[0][:, dim:])
    padded = np.array([[*s, *[""] * (4 - len(s))] for s in SENTENCES])
    close(np.concatenate(elmo.encode(padded)), np.concatenate(elmo.encode(SENTENCES)))
