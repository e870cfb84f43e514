"""`ELMo.encode`: layers, pooling, streams, long sentences, token caches; against the formulas."""

from __future__ import annotations

import itertools
import logging
import pickle
import re
import threading

import numpy as np
import pytest
import tensorflow as tf

from bilm import (
    ELMo,
    InputError,
    ScalarMix,
    Tokenizer,
    dump_token_embeddings,
    weight_layers,
)
from bilm.inference.corpus_encoder import CorpusEncoder, PackedRunner
from tests import oracle
from tests.compare import close
from tests.small_models import write_small_model

TEXT = ["the cat sees a bird .", "", "a dog", "the the the", "ünïcödé 猫 .", "bird"]
TOKENS = [line.split() for line in TEXT]


def all_layers(options, weights, sentences):
    """The layers by the NumPy formulas: a list of (layers, tokens, dim)."""
    width = options["char_cnn"].get("max_characters_per_token", 50)
    together = oracle.embed(weights, options, oracle.character_ids(sentences, width))
    return [
        layers[:, : len(s)] for layers, s in zip(together.lm_embeddings, sentences, strict=True)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A loaded model, and the layers of TOKENS by the NumPy formulas."""
    made = write_small_model(tmp_path_factory.mktemp("model"), "as_published")
    return ELMo.from_pretrained(made.files), all_layers(made.options, made.weights, TOKENS)


@pytest.fixture(scope="module")
def chunked(tmp_path_factory):
    """A model that computes sentences of more than 20 tokens in chunks of 8."""
    return small_chunks(tmp_path_factory.mktemp("chunked"), "as_published")


def small_chunks(folder, kind):
    options, weights, _ = write_small_model(folder, kind)
    elmo = ELMo.from_pretrained(folder)
    elmo.corpus.window_tokens, elmo.corpus.chunk_tokens = 20, 8
    return elmo, options, weights


# Text


def test_text_is_split_like_the_training_text(tmp_path):
    words = ["She", "'s", "at", "the", "bank", "."]
    made = write_small_model(tmp_path, "as_published", tokenizer=Tokenizer("en").name)
    elmo = ELMo(*made.files)
    assert elmo.tokens("She's at the bank.") == words
    (expected,) = elmo.encode([words])
    for text in ("She's at the bank.", tf.constant("She 's at the bank .")):
        np.testing.assert_array_equal(elmo.encode(text), expected)
    np.testing.assert_array_equal(elmo.encode(["She's at the bank."], "top")[0].shape, (6, 16))
    np.testing.assert_array_equal(elmo.word_vector("She's at the [bank]."), expected[4])
    letters = re.compile("[A-Za-z]").findall
    choices = (("spaces", ["It's", "a."]), (letters, ["I", "t"]), ("xx", ["It's", "a"]))
    for tokenizer, tokens in choices:
        other = ELMo.from_pretrained(made.folder, tokenizer=tokenizer)
        assert other.tokens("It's a.")[: len(tokens)] == tokens
    assert pickle.loads(pickle.dumps(other)).tokens("It's a.") == ["It's", "a", "."]
    with pytest.raises(InputError, match="language must be an ISO 639 code"):
        ELMo(made.folder, tokenizer="english")


def test_residues(tmp_path):
    made = write_small_model(tmp_path, "as_published", tokenizer="xx residues 1")
    assert [len(v) for v in ELMo(made.folder).encode(["MKVLA", ["MKVLA"]])] == [5, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"device": "cpu"}, TypeError, "TensorFlow chooses it"),
        ({"show_progress_bar": True}, TypeError, "the argument is show_progress"),
        ({"normalise": True}, TypeError, "encode.. has no argument 'normalise'"),
        ({"layers": [0, 1, 2]}, InputError, "'all' for all layers, or weights as floats"),
    ],
)
def test_arguments_of_other_libraries(model, arguments, error, message):
    with pytest.raises(error, match=message):
        model[0].encode(["a"], **arguments)


# Layers


def test_layers(model):
    elmo, expected = model
    assert (elmo.n_layers, elmo.dim) == (3, 16)
    for layers, wanted in [
        ("all", lambda x: x),
        ("average", lambda x: x.mean(axis=0)),
        ("top", lambda x: x[2]),
        (0, lambda x: x[0]),
        (1, lambda x: x[1]),
        (-1, lambda x: x[2]),
        ([0.5, 0, 2], lambda x: 0.5 * x[0] + 2 * x[2]),
    ]:
        vectors = elmo.encode(TEXT, layers)
        assert len(vectors) == len(TEXT)
        for actual, all_of_it in zip(vectors, expected, strict=True):
            assert actual.dtype == np.float32
            assert actual.base is None or actual.base.nbytes == actual.nbytes
            close(actual, wanted(all_of_it))
    assert elmo.encode(TEXT, "all")[1].shape == (3, 0, 16)
    assert elmo.encode(TEXT)[1].shape == (0, 16)


@pytest.mark.parametrize(
    "options",
    [{}, {"use_top_only": True}, {"do_layer_norm": True}, {"return_regularization": True}],
)
def test_a_mix_gives_what_the_layer_gives(model, options):
    elmo, expected = model
    mix = ScalarMix(3, **options)
    mix.gamma.assign([1.7])
    if mix.W is not None:
        mix.W.assign([0.3, -1.0, 2.0])
    vectors = elmo.encode(TOKENS, layers=mix)
    for actual, layers in zip(vectors, expected, strict=True):
        mask = np.ones((1, layers.shape[1]), bool)
        wanted = weight_layers(
            "m",
            {"lm_embeddings": tf.constant(layers[None], tf.float32), "mask": tf.constant(mask)},
            mix=mix,
        )["weighted_op"]
        close(actual, wanted[0])


# Pooling and output


@pytest.mark.parametrize("layers", ["top", "all"])
def test_pooling(model, layers):
    elmo, expected = model
    for pooling, function in [("mean", np.mean), ("max", np.max)]:
        vectors = elmo.encode(TEXT, layers, pooling)
        for actual, all_of_it in zip(vectors, expected, strict=True):
            wanted = all_of_it if layers == "all" else all_of_it[-1]
            empty = wanted.shape[-2] == 0
            assert actual.dtype == np.float32
            close(actual, np.zeros(actual.shape) if empty else function(wanted, axis=-2))
        assert vectors[1].shape == ((3, 16) if layers == "all" else (16,))


@pytest.mark.parametrize("layers", ["top", "all"])
def test_padded_and_ragged(model, layers):
    elmo, _ = model
    listed = elmo.encode(TEXT, layers)
    padded = elmo.encode(TEXT, layers, output="padded")
    ragged = elmo.encode(TEXT, layers, output="ragged")
    assert padded.vectors.shape == ((6, 3, 6, 16) if layers == "all" else (6, 6, 16))
    assert padded.mask.sum(axis=1).tolist() == [6, 0, 2, 3, 3, 1]
    assert ragged.row_lengths().numpy().tolist() == [6, 0, 2, 3, 3, 1]
    for k, vectors in enumerate(listed):
        n = vectors.shape[-2]
        np.testing.assert_array_equal(padded.vectors[k, ..., :n, :], vectors)
        assert not padded.vectors[k, ..., n:, :].any()
        np.testing.assert_array_equal(np.moveaxis(ragged[k].numpy(), 0, -2), vectors)


def test_no_sentences(model):
    elmo, _ = model
    assert elmo.encode([]) == []
    assert elmo.encode([], output="padded").vectors.shape == (0, 0, 16)
    assert elmo.encode([], "all", output="ragged").shape.as_list() == [0, None, 3, 16]


# Batches and streams


class CountingRunner(PackedRunner):
    """Records the number of sentences in each call."""

    def __init__(self, network):
        super().__init__(network)
        self.sizes = []

    def __call__(self, table, numbers, lengths, *more):
        self.sizes.append(len(lengths))
        return super().__call__(table, numbers, lengths, *more)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_vectors_do_not_depend_on_the_batch(model, batch_size):
    elmo, expected = model
    vectors = elmo.encode(TEXT * 2, "all", batch_size=batch_size)
    for actual, wanted in zip(vectors, expected * 2, strict=True):
        close(actual, wanted)


def test_sentences_of_a_batch(model):
    """At most `batch_size` sentences are computed together; empty sentences cost nothing."""
    elmo, _ = model
    runner = CountingRunner(elmo.network)
    corpus = CorpusEncoder(elmo.network, elmo.word_ids, runner=runner)
    for batch_size, n_batches in ((1, 10), (2, 6), (4, 3), (100, 1), (None, 1)):
        runner.sizes.clear()
        assert len(list(corpus.layers(TOKENS * 2, batch_size))) == 12
        assert max(runner.sizes) <= (batch_size or 12) and sum(runner.sizes) == 10
        assert len(runner.sizes) == n_batches


@pytest.mark.slow
def test_a_stream_without_end_carries_ids_along(model):
    elmo, expected = model
    pairs = ((f"id-{n}", TEXT[n % 6]) for n in itertools.count())
    stream = elmo.encode_iter(pairs, "all", with_ids=True)
    for n, (name, vectors) in enumerate(itertools.islice(stream, 50)):
        assert name == f"id-{n}"
        close(vectors, expected[n % 6])


@pytest.mark.parametrize("batch_size", [None, 2])
def test_results_before_a_fault_of_the_stream_come_first(model, batch_size):
    def stream():
        yield from TOKENS[:3]
        raise OSError("the text has gone")

    results = []
    with pytest.raises(OSError, match="the text has gone"):
        for vectors in model[0].encode_iter(stream(), "all", batch_size=batch_size):
            results.append(vectors)
    assert len(results) == 3
    for found, wanted in zip(results, model[1], strict=False):
        close(found, wanted)
    assert not [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def test_two_streams_of_a_model_read_in_turn(model):
    """The streams are computed in threads that share a cache of words."""
    elmo, expected = model
    streams = [elmo.encode_iter(TEXT * 3, "all", batch_size=size) for size in (1, 2)]
    for n, pair in enumerate(zip(*streams, strict=True)):
        for vectors in pair:
            close(vectors, expected[n % 6])
    assert n == 17


def test_a_stream_of_pairs_has_pairs(model):
    with pytest.raises(InputError, match="sentence 1 must be a pair"):
        list(model[0].encode_iter([("x", "a"), "b"], with_ids=True))


def test_progress(model, capsys):
    elmo, _ = model
    seen = []
    elmo.encode(TEXT, show_progress=seen.append)
    assert [stage.done for stage in seen] == [6, 6, 8, 11, 14, 15]
    assert seen[-1] == ("embedding", 15, None, "tokens", "6 sentences")
    for show_progress in (False, None):
        elmo.encode(TEXT, show_progress=show_progress)
        assert capsys.readouterr() == ("", "")
    elmo.encode(TEXT, show_progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0] == "embedding 0 tokens" and lines[-1].startswith("embedding 15 tokens  6 sent")


def test_progress_by_the_level_of_the_logger(model, capsys):
    logger = logging.getLogger("bilm")
    logger.setLevel(logging.INFO)
    try:
        model[0].encode(TEXT)
    finally:
        logger.setLevel(logging.NOTSET)
    assert "embedding 15 tokens  6 sentences" in capsys.readouterr().err


# Long sentences


def long_sentence(n):
    words = ["the", "cat", "sees", "a", "bird", "猫", "."]
    return [words[(k * k) % 7] + str(k % 5) for k in range(n)]


@pytest.mark.parametrize("layers", ["all", "average", "top", 0])
@pytest.mark.parametrize("pooling", [None, "mean", "max"])
def test_a_long_sentence_in_chunks(chunked, layers, pooling):
    elmo, options, weights = chunked
    sentences = [TOKENS[0], long_sentence(21), long_sentence(61), [], long_sentence(40), TOKENS[2]]
    assert {block.layers.shape[1] for block in elmo.corpus.blocks(sentences[1])} == {8, 5}
    vectors = elmo.encode(sentences, layers, pooling)
    function = {"mean": np.mean, "max": np.max}.get(pooling)
    for actual, wanted in zip(vectors, all_layers(options, weights, sentences), strict=True):
        if layers != "all":
            wanted = (
                wanted.mean(axis=0)
                if layers == "average"
                else wanted[{"top": 2}.get(layers, layers)]
            )
        if function is not None:
            wanted = function(wanted, axis=-2) if wanted.shape[-2] else np.zeros(actual.shape)
        assert actual.dtype == np.float32
        close(actual, wanted)


def test_a_long_sentence_with_a_mix_that_normalises(model, chunked):
    """Both models have the same weights."""
    mix = ScalarMix(3, do_layer_norm=True)
    sentence = long_sentence(50)
    in_chunks, whole = (elmo.encode([sentence], mix)[0] for elmo in (chunked[0], model[0]))
    close(in_chunks, whole)


@pytest.mark.slow
def test_a_long_sentence_with_one_direction_and_no_projection(tmp_path):
    for kind in ("one_direction", "no_lstm_projection_tight_clips"):
        elmo, options, weights = small_chunks(tmp_path / kind, kind)
        sentence = long_sentence(43)
        close(elmo.encode([sentence], "all")[0], all_layers(options, weights, [sentence])[0])
        pooled = elmo.encode([sentence], "all", "max")[0]
        close(pooled, all_layers(options, weights, [sentence])[0].max(axis=1))


@pytest.mark.parametrize("kind", ["as_published", "one_direction"])
def test_vectors_of_the_boundaries(tmp_path, kind):
    """With the vectors of <S> and </S>; the last sentence is computed in chunks."""
    elmo, options, weights = small_chunks(tmp_path, kind)
    sentences = [*TOKENS, long_sentence(43)]
    found = elmo.encode(sentences, "all", boundaries=True)
    for actual, sentence in zip(found, sentences, strict=True):
        wanted = oracle.embed(weights, options, oracle.character_ids([sentence], 50))
        assert actual.shape[1] == len(sentence) + 2
        close(actual, wanted.with_boundaries[0])
    padded = elmo.encode(TEXT, boundaries=True, output="padded")
    assert padded.mask.sum(axis=1).tolist() == [8, 2, 4, 5, 5, 3]
    close(elmo.encode(TEXT, "top", "mean", boundaries=True)[2], found[2][-1].mean(axis=0))
    close(elmo.encode(sentences, "all")[0], found[0][:, 1:-1])


# Token caches and tables of words

WORDS = ["<S>", "</S>", "<UNK>", "the", "a", "cat", "."]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Paths of a vocabulary and of its token cache, made by the model of `model`."""
    folder = tmp_path_factory.mktemp("cache")
    files = write_small_model(folder, "as_published").files
    vocabulary = folder / "words.txt"
    vocabulary.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    dump_token_embeddings(vocabulary, *files, folder / "cache.hdf5")
    return vocabulary, folder / "cache.hdf5", files


@pytest.mark.eager
def test_words_outside_a_cache_are_encoded_from_characters(model, cache, tmp_path):
    _, expected = model
    vocabulary, file, files = cache
    elmo = ELMo.from_pretrained(files, vocab_file=vocabulary, embedding_weight_file=file)
    assert elmo.vocabulary is not None and elmo.vocabulary.size == 7
    for actual, wanted in zip(elmo.encode(TEXT, "all"), expected, strict=True):
        close(actual, wanted)
    # Words in the cache get its rows, not vectors from their characters.
    table = oracle.read_hdf5(file)["embedding"]
    oracle.write_hdf5(tmp_path / "changed.hdf5", {"embedding": table + 1})
    changed = ELMo.from_pretrained(
        files, vocab_file=vocabulary, embedding_weight_file=tmp_path / "changed.hdf5"
    )
    close(changed.encode(["the dog"], 0)[0][0, :8], table[3] + 1)
    close(changed.encode(["the dog"], 0)[0][1], elmo.encode(["the dog"], 0)[0][1])
    close(changed.encode([["<UNK>"]], 0)[0][0, :8], table[2] + 1)


def test_a_cache_without_character_weights_names_the_word(model, cache, tmp_path):
    _, expected = model
    vocabulary, file, files = cache
    weights = oracle.read_hdf5(files[1])
    lstms = {name: value for name, value in weights.items() if name.startswith("RNN_")}
    oracle.write_hdf5(tmp_path / "lstms.hdf5", lstms)
    elmo = ELMo.from_pretrained(
        (files[0], tmp_path / "lstms.hdf5"), vocab_file=vocabulary, embedding_weight_file=file
    )
    close(elmo.encode(["the the the"], "all")[0], expected[3])
    with pytest.raises(InputError, match="sentence 1, word 2: 'dog' has no vector"):
        elmo.encode(["the cat", "a dog"])
    assert elmo.encode([["<UNK>", "cat"]])[0].shape == (2, 16)


def test_a_cache_needs_its_vocabulary(cache, tmp_path):
    _, file, files = cache
    assert ELMo.from_pretrained(files, embedding_weight_file=file).vocabulary.words == WORDS
    turned = tmp_path / "turned.txt"
    turned.write_text("\n".join([*WORDS[:3], *WORDS[:2:-1]]), encoding="utf-8")
    with pytest.raises(
        InputError,
        match=r"turned.txt must have the words of .*, but word 3 is '.' instead of 'the'",
    ):
        ELMo.from_pretrained(files, vocab_file=turned, embedding_weight_file=file)
    # Other programs' caches do not contain their words.
    other = tmp_path / "other.hdf5"
    oracle.write_hdf5(other, {"embedding": oracle.read_hdf5(file)["embedding"]})
    with pytest.raises(InputError, match="a token cache needs its vocabulary"):
        ELMo.from_pretrained(files, embedding_weight_file=other)
    few = tmp_path / "few.txt"
    few.write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"few.txt must have 7 words, .* got 3"):
        ELMo.from_pretrained(files, vocab_file=few, embedding_weight_file=other)


def test_how_a_model_is_shown(cache):
    _, file, files = cache
    assert repr(ELMo.from_pretrained(files)) == "<ELMo: 3 layers of 16, from characters, float32>"
    cached = ELMo.from_pretrained(files, embedding_weight_file=file, precision="bfloat16")
    expected = "<ELMo: 3 layers of 16, from cache and characters (7 words), bfloat16>"
    assert repr(cached) == expected


def test_a_model_of_words(tmp_path):
    made = write_small_model(tmp_path, "words")
    files = made.files
    with pytest.raises(InputError, match="a word-level model needs its vocabulary"):
        ELMo.from_pretrained(files)
    words = ["<S>", "</S>", "<UNK>", *(f"w{n}" for n in range(34))]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    elmo = ELMo.from_pretrained(files, vocab_file=tmp_path / "words.txt")
    vectors = elmo.encode(["w0 w33 unheard-of", "w5"], "all")
    ids = np.array([[1, 4, 37, 3, 2], [1, 9, 2, 0, 0]])
    expected = oracle.embed(made.weights, made.options, ids).lm_embeddings
    close(vectors[0], expected[0])
    close(vectors[1], expected[1, :, :1])


def test_an_unknown_word_does_not_spoil_later_calls(tmp_path):
    """A word-level model without <UNK>."""
    write_small_model(tmp_path, "one_direction_one_layer_words", ["<S>", "</S>"])
    elmo = ELMo.from_pretrained(tmp_path)
    expected = elmo.encode(["w1 w0"])[0]
    with pytest.raises(InputError, match="sentence 1, word 2: 'unheard-of' has no vector"):
        elmo.encode(["w0", "w0 unheard-of"])
    np.testing.assert_array_equal(elmo.encode(["w1 w0"])[0], expected)
