"""The example programs run, and give what the same work done by hand gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

from bilm import Batcher

ROOT = Path(__file__).parent.parent
CONLLU = Path(__file__).parent / "fixtures" / "conllu"


def example(name: str) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "usage_examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed_shapes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_usage_character(capsys):
    program = example("usage_character")
    program.main([])
    assert printed_shapes(capsys) == [
        "context (2, 9, 24)",
        "question (1, 6, 24)",
        "context_output (2, 9, 24)",
    ]
    vectors = program.embed(program.MODEL / "options.json", program.MODEL / "weights.hdf5")
    # The mixes are untrained, and so the same; the second sentence has a token less.
    np.testing.assert_array_equal(vectors["context"], vectors["context_output"])
    assert np.any(vectors["context"][1, 7]) and not np.any(vectors["context"][1, 8])


def test_usage_token_agrees_with_characters(tmp_path: Path, capsys):
    program, character = example("usage_token"), example("usage_character")
    program.main([])
    assert printed_shapes(capsys) == ["context (2, 9, 24)", "question (1, 6, 24)"]
    files = (program.MODEL / "options.json", program.MODEL / "weights.hdf5")
    by_word, by_character = program.embed(*files, tmp_path), character.embed(*files)
    for name, vectors in by_word.items():
        np.testing.assert_allclose(vectors, by_character[name], atol=1e-5)
    with h5py.File(tmp_path / "token_embeddings.hdf5") as file:
        n_words = len((tmp_path / "vocab.txt").read_text(encoding="utf-8").splitlines())
        assert file["embedding"].shape == (n_words, 12)


def test_usage_cached_agrees_with_characters(tmp_path: Path, capsys):
    program, character = example("usage_cached"), example("usage_character")
    program.main([])
    assert printed_shapes(capsys) == ["(1, 9, 24)", "(1, 8, 24)"]
    files = (program.MODEL / "options.json", program.MODEL / "weights.hdf5")
    cached = program.embed(program.GOLDEN / "vocab.txt", *files, tmp_path)
    computed = character.embed(*files)["context"]
    for row, vectors in enumerate(cached):
        np.testing.assert_allclose(vectors[0], computed[row, : vectors.shape[1]], atol=1e-5)
    assert program.read_sentence(tmp_path / "embeddings.hdf5", 1).shape == (3, 8, 24)


def test_read_conllu_skips_ranges_and_empty_nodes():
    program = example("pos_tagging")
    training = list(program.read_conllu(CONLLU / "train.conllu"))
    assert len(training) == 12
    assert training[9].words == ["We", "do", "not", "eat", "three", "apples", "."]
    assert training[9].tags == ["PRON", "AUX", "PART", "VERB", "NUM", "NOUN", "PUNCT"]
    assert next(program.read_conllu(CONLLU / "dev.conllu")).words[:4] == [
        "The",
        "dog",
        "sleeps",
        "in",
    ]


def test_read_conllu_without_a_last_blank_line(tmp_path: Path):
    program = example("pos_tagging")
    path = tmp_path / "one.conllu"
    path.write_text("1\tHello\t_\tINTJ" + "\t_" * 6, encoding="utf-8")
    assert list(program.read_conllu(path)) == [(["Hello"], ["INTJ"])]


def test_tagged_sentences_as_arrays():
    program = example("pos_tagging")
    short, long = [["a"], ["b", "c"]], [["DET"], ["NOUN", "_"]]
    sentences = [program.TaggedSentence(*pair) for pair in zip(short, long, strict=True)]
    ids, tags, weights = program.encode(Batcher(None, 12), sentences)
    assert ids.shape == (2, 4, 12)
    assert [program.TAGS[tag] for tag in (tags[0, 0], *tags[1])] == ["DET", "NOUN", "_"]
    assert weights.tolist() == [[1, 0], [1, 1]]


def test_dataset_holds_every_sentence_once():
    program = example("pos_tagging")
    sentences = list(program.read_conllu(CONLLU / "train.conllu"))
    batches = list(program.make_dataset(sentences, max_word_length=50, batch_size=5))
    assert sorted(batch[0].shape[0] for batch in batches) == [2, 5, 5]
    assert sum(float(batch[2].numpy().sum()) for batch in batches) == 78
    # Sentences of like length stand together: of 4 to 6 words, 6 to 7, and 9.
    assert sorted(batch[1].shape[1] for batch in batches) == [6, 7, 9]


@pytest.mark.slow
def test_pos_tagging_learns_saves_and_loads(tmp_path: Path, capsys, golden: Path):
    program = example("pos_tagging")
    model = golden / "inference" / "base"
    saved = tmp_path / "tagger.keras"
    program.main(
        ["--options_file", str(model / "options.json"),
         "--weight_file", str(model / "weights.hdf5"),
         "--train", str(CONLLU / "train.conllu"), "--dev", str(CONLLU / "dev.conllu"),
         "--save", str(saved), "--epochs", "60", "--batch_size", "4",
         "--learning_rate", "0.03"]
    )  # fmt: skip
    lines = [line for line in capsys.readouterr().out.splitlines() if "accuracy " in line[:15]]
    train, dev = (float(line.split()[-1]) for line in lines[:2])
    assert train > 0.8 and dev > 0.3
    assert lines[2].startswith("dev accuracy of ") and float(lines[2].split()[-1]) == dev
    assert saved.exists()
