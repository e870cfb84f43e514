"""Vectors of a corpus and of a vocabulary, from files to files."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest

from bilm import BidirectionalLanguageModel, ELMo, dump_bilm_embeddings, dump_token_embeddings
from bilm.core.errors import InputError
from bilm.core.lstm import Mode
from bilm.inference.corpus_encoder import CorpusEncoder, PackedRunner
from tests import oracle

WORDS = "the a of model word sentence straße слово 言葉 x".split()
UNKNOWN = ["unknown", "nirgends", "<S>", "w" * 60, "é" * 30]


def random_sentences(n, seed=0, longest=25):
    """Sentences of many lengths, some empty, with some words outside the vocabulary."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, longest, n)
    lengths[[1, n - 1]] = 0
    return [list(random.choice(WORDS + UNKNOWN, length)) for length in lengths]


class Files:
    """A model in files, and its options and weights for the formulas."""

    def __init__(self, folder, kind):
        self.options = dict(oracle.MODELS[kind])
        self.vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
        if "char_cnn" not in self.options:
            self.options["n_tokens_vocab"] = len(self.vocabulary)
        self.weights = oracle.random_weights(self.options, seed=8)
        self.options_file, self.weight_file = oracle.write_model(folder, self.options, self.weights)
        self.vocab_file = str(folder / "vocab.txt")
        self.folder = folder
        (folder / "vocab.txt").write_text("\n".join(self.vocabulary) + "\n", encoding="utf-8")

    def ids(self, sentences):
        """Inference ids; 0 is padding."""
        if "char_cnn" in self.options:
            width = self.options["char_cnn"].get("max_characters_per_token", 50)
            return oracle.character_ids(sentences, width)
        number = {word: k + 1 for k, word in enumerate(self.vocabulary)}
        ids = np.zeros((len(sentences), max(map(len, sentences)) + 2), np.int32)
        for row, sentence in enumerate(sentences):
            whole = ["<S>", *sentence, "</S>"]
            ids[row, : len(whole)] = [number.get(word, number["<UNK>"]) for word in whole]
        return ids

    def dump(self, dataset_file, outfile):
        dump_bilm_embeddings(
            self.vocab_file, str(dataset_file), self.options_file, self.weight_file, str(outfile)
        )


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("characters"), "short_words_261")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("words"), "words")


@pytest.fixture(params=["characters", "words"])
def files(request):
    return request.getfixturevalue(request.param)


def write_sentences(path, sentences):
    path.write_text("".join(" ".join(s) + "\n" for s in sentences), encoding="utf-8")
    return path


@pytest.mark.eager
def test_every_sentence_as_the_model_alone_gives_it(files, tmp_path):
    sentences = random_sentences(40, longest=14)
    path = write_sentences(tmp_path / "text.txt", sentences)
    files.dump(path, tmp_path / "out.hdf5")
    dumped = oracle.read_hdf5(tmp_path / "out.hdf5")
    assert dumped.keys() == {str(number) for number in range(40)}
    model = BidirectionalLanguageModel(
        files.options_file, files.weight_file, use_character_inputs="char_cnn" in files.options
    )
    together = model(files.ids(sentences))["lm_embeddings"].numpy()
    expected = oracle.embed(files.weights, files.options, files.ids(sentences)).lm_embeddings
    for number, sentence in enumerate(sentences):
        ours, n = dumped[str(number)], len(sentence)
        assert ours.shape == (3, n, 16) and ours.dtype == np.float32
        np.testing.assert_allclose(ours, together[number, :, :n], 1e-5, 2e-5)
        np.testing.assert_allclose(ours, expected[number, :, :n], 1e-5, 2e-5)
    for number in (1, 39, 7):
        alone = model(files.ids(sentences[number : number + 1]))["lm_embeddings"][0]
        np.testing.assert_allclose(dumped[str(number)], alone, 1e-5, 2e-5)


@pytest.mark.eager
def test_lines_are_sentences_and_white_space_divides(words, tmp_path):
    with gzip.open(tmp_path / "text.txt.gz", "wt", encoding="utf-8") as file:
        file.write("the  model\t\n   \n\na word of\u00a0x\r\n")
    words.dump(tmp_path / "text.txt.gz", tmp_path / "out.hdf5")
    shapes = {name: value.shape for name, value in oracle.read_hdf5(tmp_path / "out.hdf5").items()}
    assert shapes == {"0": (3, 2, 16), "1": (3, 0, 16), "2": (3, 0, 16), "3": (3, 4, 16)}


@pytest.mark.slow
def test_a_very_long_line(words, tmp_path):
    """It is computed and written part by part."""
    start = random_sentences(4, seed=5)[0]
    path = write_sentences(tmp_path / "text.txt", [start, start + ["the"] * 33_000])
    words.dump(path, tmp_path / "out.hdf5")
    dumped = oracle.read_hdf5(tmp_path / "out.hdf5")
    assert dumped["1"].shape == (3, len(start) + 33_000, 16)
    forward, backward = np.split(dumped["1"], 2, axis=-1)
    expected = np.split(dumped["0"], 2, axis=-1)[0]
    np.testing.assert_allclose(forward[:, : len(start)], expected, 1e-5, 2e-5)
    # Far from both ends, equal words have equal states.
    for states in (forward, backward):
        np.testing.assert_allclose(states[:, 10_000], states[:, 20_000], 1e-5, 2e-5)


@pytest.mark.eager
def test_a_file_without_a_line_gives_a_file_without_a_dataset(words, tmp_path):
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    words.dump(tmp_path / "empty.txt", tmp_path / "out.hdf5")
    assert oracle.read_hdf5(tmp_path / "out.hdf5") == {}


@pytest.mark.parametrize(
    "mode, loop_steps",
    [
        pytest.param(Mode.COMPILED_STEPS, 9, marks=pytest.mark.slow),
        (Mode.COMPILED_LOOP, 3),
        pytest.param(Mode.COMPILED_LOOP, 9, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "window_tokens", [12, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 40, 1000))]
)
def test_windows_and_forgotten_words_change_nothing(characters, window_tokens, mode, loop_steps):
    """Sentences come out in the order of the text, however they are packed into rows."""
    sentences = random_sentences(30, seed=3, longest=8)
    expected = oracle.embed(
        characters.weights, characters.options, characters.ids(sentences)
    ).lm_embeddings
    elmo = ELMo.from_pretrained((characters.options, characters.weight_file))
    encoder = CorpusEncoder(
        elmo.network,
        elmo.word_ids,
        window_tokens=window_tokens,
        runner=PackedRunner(
            elmo.network,
            mode=mode,
            rows=(2, 4),
            compiling=0,
            longest=6,
            kept_words=9,
            loop_steps=loop_steps,
        ),
        kept_bytes=100,
    )
    for _ in range(2):
        results = list(encoder.layers(iter(sentences)))
        assert len(results) == 30
        for sentence, layers, one in zip(sentences, results, expected, strict=True):
            np.testing.assert_allclose(layers, one[:, : len(sentence)], 1e-5, 2e-5)


def test_sentences_after_an_error_in_the_middle(characters, monkeypatch):
    """Pre-activations that could not be computed are computed again."""
    sentences = random_sentences(12, seed=3, longest=5)
    expected = oracle.embed(
        characters.weights, characters.options, characters.ids(sentences)
    ).lm_embeddings
    elmo = ELMo.from_pretrained((characters.options, characters.weight_file))
    runner = PackedRunner(
        elmo.network, mode=Mode.COMPILED_LOOP, rows=(2,), compiling=0, kept_words=60
    )
    encoder = CorpusEncoder(elmo.network, elmo.word_ids, runner=runner)
    assert len(list(encoder.layers(sentences[:4]))) == 4

    def fails(vectors):
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(elmo.network.stacks[-1], "word_products", fails)
        list(encoder.layers(sentences))
    for sentence, layers, one in zip(sentences, encoder.layers(sentences), expected, strict=True):
        np.testing.assert_allclose(layers, one[:, : len(sentence)], 1e-5, 2e-5)


def test_files_that_do_not_fit(words, characters, tmp_path):
    text = write_sentences(tmp_path / "text.txt", [["the"]])
    out = tmp_path / "out.hdf5"
    good = [words.vocab_file, str(text), words.options_file, words.weight_file]
    few = tmp_path / "few.txt"
    few.write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"few\.txt must have 13 words, as many"):
        dump_bilm_embeddings(str(few), *good[1:], str(out))
    with pytest.raises(InputError, match="the weights do not fit the options"):
        dump_bilm_embeddings(good[0], good[1], characters.options_file, good[3], str(out))
    assert not out.exists()


def test_vectors_of_a_vocabulary(characters, tmp_path):
    """One row per word, in the order of the vocabulary."""
    out = tmp_path / "cache.hdf5"
    arguments = (characters.vocab_file, characters.options_file, characters.weight_file, str(out))
    dump_token_embeddings(*arguments)
    dumped = oracle.read_hdf5(out)
    assert list(dumped) == ["embedding", "vocabulary/words"]
    assert dumped["embedding"].shape == (13, 8) and dumped["embedding"].dtype == np.float32
    ids = characters.ids([characters.vocabulary[3:]])
    expected = oracle.embed(characters.weights, characters.options, ids).token_embeddings[0]
    np.testing.assert_allclose(dumped["embedding"][3:], expected[1:-1], 1e-5, 5e-6)
    np.testing.assert_allclose(dumped["embedding"][[0, 1]], expected[[0, -1]], 1e-5, 5e-6)


def test_a_cache_serves_as_the_characters_do(characters, tmp_path):
    cache = tmp_path / "cache.hdf5"
    files = (characters.options_file, characters.weight_file)
    dump_token_embeddings(characters.vocab_file, *files, str(cache))
    of_words = BidirectionalLanguageModel(
        *files, use_character_inputs=False, embedding_weight_file=str(cache)
    )
    sentence = ["the", "言葉", "of", "x"]
    number = {word: k + 1 for k, word in enumerate(characters.vocabulary)}
    ids = np.array([[number[word] for word in ("<S>", *sentence, "</S>")]])
    expected = oracle.embed(characters.weights, characters.options, characters.ids([sentence]))
    np.testing.assert_allclose(of_words(ids)["lm_embeddings"], expected.lm_embeddings, 1e-5, 5e-6)


def test_vectors_of_a_vocabulary_from_a_model_of_words(words, tmp_path):
    with pytest.raises(
        InputError, match=r"options\.json: char_cnn is missing: the weights of a word-level"
    ):
        dump_token_embeddings(
            words.vocab_file, words.options_file, words.weight_file, str(tmp_path / "out.hdf5")
        )
    assert os.listdir(tmp_path) == []
