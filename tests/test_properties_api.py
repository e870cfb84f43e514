"""The public names with an argument of any kind: they work, or say which argument is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bilm
from bilm import analysis
from bilm.data import build_vocabulary, encode_words, shard_corpus
from tests.anything import values, works_or_refuses
from tests.fuzz.formats import TEXT, WORDS, make_checkpoint, make_model, make_packed, write_lines
from tests.hand_made import two_senses

pytestmark = pytest.mark.eager

SENTENCES = [["the", "cat"], ["a"]]
# Arguments that name what is written.
WRITTEN = {"filename", "counts_file", "out_dir", "outfile", "options_file"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with files of several kinds: model, run, packed.hdf5, vocab.txt, text.txt."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("model", "run"):
        (folder / name).mkdir()
    make_model(folder / "model")
    make_checkpoint(folder / "run")
    make_packed(folder)
    write_lines(folder / "vocab.txt", WORDS)
    write_lines(folder / "text.txt", TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # what a test writes under a name of its own stays here
        yield folder


class Things:
    """What calls are made with, each made once."""

    def __init__(self, folder):
        self.folder = folder
        self.vocab_file, self.text = str(folder / "vocab.txt"), str(folder / "text.txt")
        self.pair = (folder / "model" / "options.json", folder / "model" / "weights.hdf5")
        self.elmo = bilm.ELMo.from_pretrained(folder / "model")
        self.predictor = bilm.Predictor.from_pretrained(folder / "run")
        self.layer = bilm.BidirectionalLanguageModel(*self.pair)
        self.vocabulary = bilm.UnicodeCharsVocabulary(self.vocab_file, 9)
        self.ids = bilm.Batcher(None, 9).batch_sentences(SENTENCES)
        self.layers = self.layer(self.ids)
        self.uses = two_senses(4)


@pytest.fixture(scope="module")
def things(place):
    return Things(place)


def call(function, **arguments):
    """A call with arguments by name; those that have a default are None here if they are so."""
    return function, arguments


def data_calls(t):
    vocabulary, data = t.vocabulary, bilm.LMDataset(t.text, t.vocabulary, test=True)
    return {
        "Vocabulary": call(bilm.Vocabulary, filename=t.vocab_file, validate_file=False),
        "UnicodeCharsVocabulary": call(
            bilm.UnicodeCharsVocabulary, filename=t.vocab_file, max_word_length=9
        ),
        "load_vocab": call(bilm.load_vocab, vocab_file=t.vocab_file, max_word_length=9),
        "word_to_id": call(vocabulary.word_to_id, word="the"),
        "word_ids": call(vocabulary.word_ids, words=["the"]),
        "id_to_word": call(vocabulary.id_to_word, cur_id=3),
        "decode": call(vocabulary.decode, cur_ids=[3, 4]),
        "encode of a vocabulary": call(vocabulary.encode, sentence="the cat", split=True),
        "encode_chars": call(vocabulary.encode_chars, sentence=["the"], split=False),
        "word_to_char_ids": call(vocabulary.word_to_char_ids, word="the"),
        "encode_words": call(encode_words, words=["the"], max_word_length=9),
        "Batcher": call(bilm.Batcher, lm_vocab_file=t.vocab_file, max_token_length=9),
        "TokenBatcher": call(bilm.TokenBatcher, lm_vocab_file=t.vocab_file),
        "batch_sentences": call(bilm.Batcher(None, 9).batch_sentences, sentences=SENTENCES),
        "batch_sentences of words": call(
            bilm.TokenBatcher(t.vocab_file).batch_sentences, sentences=SENTENCES
        ),
        "LMDataset": call(
            bilm.LMDataset, filepattern=t.text, vocab=vocabulary, seed=0, worker=(0, 1)
        ),
        "BidirectionalLMDataset": call(
            bilm.BidirectionalLMDataset, filepattern=t.text, vocab=vocabulary, seed=0, worker=(0, 1)
        ),
        "iter_batches": call(
            lambda **a: next(data.iter_batches(**a), None), batch_size=2, num_steps=3
        ),
        "iter_distinct": call(
            lambda **a: next(data.iter_distinct(**a), None), batch_size=2, num_steps=3, state=None
        ),
        "iter_sentence_batches": call(
            lambda **a: next(data.iter_sentence_batches(**a), None), max_tokens=20
        ),
        "build_vocabulary": call(
            build_vocabulary, patterns=t.text, filename=str(t.folder / "new.txt"), min_count=1,
            max_size=None, counts_file=None,
        ),
        "shard_corpus": call(
            shard_corpus, patterns=t.text, out_dir=str(t.folder / "shards"), n_shards=2,
            shard_bytes=100, heldout=0, seed=0, compress=None,
        ),
        "preset": call(bilm.preset, name="tiny"),
        "Options.from_dict": call(
            bilm.Options.from_dict, values=bilm.preset("tiny"), training=True
        ),
        "Options.from_file": call(bilm.Options.from_file, path=str(t.pair[0]), training=False),
        "PackedVectors": call(bilm.PackedVectors, path=str(t.folder / "packed.hdf5")),
        "load_options_latest_checkpoint": call(
            bilm.load_options_latest_checkpoint, tf_save_dir=str(t.folder / "run")
        ),
    }  # fmt: skip


def model_calls(t):
    elmo, predictor, layers = t.elmo, t.predictor, t.layers
    return {
        "encode": call(
            elmo.encode, sentences=SENTENCES, layers="average", pooling=None, batch_size=None,
            output="list",
        ),
        "encode_iter": call(
            lambda **a: list(elmo.encode_iter(**a)), sentences=[(1, "a"), (2, "b")],
            layers="all", with_ids=True,
        ),
        "score": call(predictor.score, sentences=SENTENCES, batch_size=None),
        "substitutes": call(
            predictor.substitutes, sentences=SENTENCES, places="all", n=3, directions=None,
            prior=None, batch_size=None,
        ),
        "BidirectionalLanguageModel": call(t.layer, ids=t.ids),
        "ScalarMix": call(bilm.ScalarMix, n_layers=3, l2_coef=None, do_layer_norm=False),
        "mix": call(
            bilm.ScalarMix(3), lm_embeddings=layers["lm_embeddings"], mask=layers["mask"]
        ),
        "weight_layers": call(
            lambda **a: bilm.weight_layers("a", layers, **a), l2_coef=0.1, use_top_only=False,
            mix=None,
        ),
        "CharacterIds": call(bilm.CharacterIds, max_characters_per_token=9),
        "text of CharacterIds": call(bilm.CharacterIds(9), text=["the cat"]),
        "WordIds": call(bilm.WordIds, vocabulary=WORDS),
        "text of WordIds": call(bilm.WordIds(WORDS), text=[["the", "cat"]]),
    }  # fmt: skip


def loading_calls(t):
    options, weights = map(str, t.pair)
    return {
        "ELMo.from_pretrained": call(
            bilm.ELMo.from_pretrained, source=t.pair, vocab_file=None, embedding_weight_file=None,
            precision="float32", warm_up=None,
        ),
        "Predictor.from_pretrained": call(
            bilm.Predictor.from_pretrained, source=str(t.folder / "run"), vocab_file=None,
            precision="float32", warm_up=None,
        ),
        "BidirectionalLanguageModel": call(
            bilm.BidirectionalLanguageModel, options_file=options, weight_file=weights,
            embedding_weight_file=None, max_batch_size=2, n_tokens=None, precision="float32",
            stateful=True,
        ),
        "ELMoEmbedding": call(
            bilm.ELMoEmbedding, options_file=options, weight_file=weights, vocab_file=None,
            embedding_weight_file=None, layers="mix", l2_coef=None, precision="float32",
            words=None, warm_up=None,
        ),
        "dump_token_embeddings": call(
            bilm.dump_token_embeddings, vocab_file=t.vocab_file, options_file=options,
            weight_file=weights, outfile=str(t.folder / "cache.hdf5"), words_at_once=4,
        ),
        "dump_bilm_embeddings": call(
            bilm.dump_bilm_embeddings, vocab_file=t.vocab_file, dataset_file=t.text,
            options_file=options, weight_file=weights, outfile=str(t.folder / "out.hdf5"),
            precision="float32",
        ),
        "dump_weights": call(
            bilm.dump_weights, tf_save_dir=str(t.folder / "run"),
            outfile=str(t.folder / "weights.hdf5"), vocab_file=None, options_file=None,
        ),
        "LanguageModel": call(
            bilm.LanguageModel, options=bilm.load_options_latest_checkpoint(t.folder / "run")[0],
            is_training=True, seed=0, precision="float32",
        ),
    }  # fmt: skip


def analysis_calls(t):
    uses = t.uses
    return {
        "parse_query": call(analysis.parse_query, text="a [b]"),
        "sample_uses": call(
            analysis.sample_uses, sentences=SENTENCES, words=["the"], max_occurrences=5, seed=0
        ),
        "sample_sentences": call(analysis.sample_sentences, sentences=SENTENCES, n=1, seed=0),
        "read_labelled": call(analysis.read_labelled, path=t.text, column="UPOS"),
        "Occurrences.load": call(analysis.Occurrences.load, path=t.text),
        "layer": call(uses.layer, layer=1),
        "neighbours": call(uses.neighbours, query=0, n=3, layer="top"),
        "StaticVectors.load": call(analysis.StaticVectors.load, path=t.text, max_words=None),
        "cluster_occurrences": call(
            analysis.cluster_occurrences,
            occurrences=uses, n_clusters=2, layer=1, max_clusters=3, seed=0,
        ),
        "project": call(analysis.project, occurrences=uses, layers=[1, 2], method="pca", seed=0),
    }  # fmt: skip


def check(calls, data):
    """Replace one argument of one of the calls."""
    function, arguments = calls[data.draw(st.sampled_from(sorted(calls)), label="call")]
    name = data.draw(st.sampled_from(sorted(arguments)), label="argument")
    value = data.draw(values, label="value")
    if name in WRITTEN and isinstance(value, str) and ("/" in value or ".." in value):
        return  # outside of the folder of the tests
    with works_or_refuses():
        function(**arguments | {name: value})


MANY = settings(max_examples=8 * settings().max_examples)


@pytest.mark.parametrize(
    "kind", [data_calls, model_calls, analysis_calls], ids=lambda f: f.__name__
)
def test_the_calls_themselves_work(things, kind):
    for name, (function, arguments) in kind(things).items():
        if name not in ("read_labelled", "Occurrences.load", "StaticVectors.load"):
            function(**arguments)


@MANY
@given(data=st.data())
def test_data_with_any_argument(things, data):
    check(data_calls(things), data)


@MANY
@given(data=st.data())
def test_models_with_any_argument(things, data):
    check(model_calls(things), data)


@pytest.mark.slow
@MANY
@given(data=st.data())
def test_loading_with_any_argument(things, data):
    check(loading_calls(things), data)


@MANY
@given(data=st.data())
def test_analysis_with_any_argument(things, data):
    check(analysis_calls(things), data)


@given(k=values)
def test_a_sentence_of_packed_vectors(things, k):
    with bilm.PackedVectors(things.folder / "packed.hdf5") as packed:
        for get in (packed.__getitem__, packed.line, packed.text):
            with works_or_refuses(IndexError):
                np.asarray(get(k))
