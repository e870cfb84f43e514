"""Every kind of model, in the layouts that models are published in, used by the commands."""

from __future__ import annotations

import gzip
import json
import os
import zipfile

import h5py
import numpy as np
import pytest

from bilm.cli import main
from tests import oracle

pytestmark = pytest.mark.eager

SENTENCES = [["w1", "w0", "w33"], ["w7"], [], ["w2"] * 9]
WORDS = ["<S>", "</S>", "<UNK>", *(f"w{n}" for n in range(34))]
# Training keys that published models have in their options.
OF_A_TRAINING = {
    "bidirectional": True, "dropout": 0.1, "all_clip_norm_val": 10.0, "n_epochs": 3,
    "n_train_tokens": 768648884, "batch_size": 192, "unroll_steps": 20,
    "n_negative_samples_batch": 4096, "n_tokens_vocab": 100000,
}  # fmt: skip


def gzipped(path, text):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def allennlp_pair(folder, options, weights, text):
    """..._options.json and ..._weights.hdf5, each passed by its own flag."""
    oracle.write_model(folder, options, weights)
    pair = [folder / f"elmo_2x20_{name}" for name in ("options.json", "weights.hdf5")]
    for old, new in zip(("options.json", "weights.hdf5"), pair, strict=True):
        os.rename(folder / old, new)
    (folder / "words.txt").write_text(text, encoding="utf-8")
    flags = ["--options-file", str(pair[0]), "--weight-file", str(pair[1])]
    words = [] if "char_cnn" in options else ["--vocab-file", str(folder / "words.txt")]
    return flags, words


def nlpl_folder(folder, options, weights, text):
    """model.hdf5, options.json with training keys, vocab.txt.gz, and unrelated files."""
    unlike = {} if "char_cnn" in options else {"n_tokens_vocab": len(WORDS)}
    if options.get("bidirectional", True):
        options = OF_A_TRAINING | unlike | options
    oracle.write_model(folder, options, weights)
    os.rename(folder / "weights.hdf5", folder / "model.hdf5")
    gzipped(folder / "vocab.txt.gz", text)
    (folder / "meta.json").write_text("{}", encoding="utf-8")
    (folder / "README").write_text("A model.", encoding="utf-8")
    return ["--model", str(folder)], []


def nlpl_zip(folder, options, weights, text):
    """The files of `nlpl_folder` in a ZIP file, with vocab.txt uncompressed."""
    nlpl_folder(folder, options, weights, text)
    os.remove(folder / "vocab.txt.gz")
    (folder / "vocab.txt").write_text(text, encoding="utf-8")
    archive = folder.parent / "171.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, path.name)
    return ["--model", str(archive)], []


CONTAINERS = (allennlp_pair, nlpl_folder, nlpl_zip)
# Each kind of model in one of the containers.
CASES = [(kind, CONTAINERS[k % 3]) for k, kind in enumerate(oracle.MODELS)]
QUICK = ("one_direction_one_layer_words", "short_words_261")


def expected_layers(options, weights):
    """All layers of each sentence, without padding."""
    width = options.get("char_cnn", {}).get("max_characters_per_token", 50)
    if "char_cnn" in options:
        ids = oracle.character_ids(SENTENCES, width)
    else:
        number = {word: k + 1 for k, word in enumerate(WORDS)}
        ids = np.zeros((len(SENTENCES), max(map(len, SENTENCES)) + 2), np.int32)
        for row, sentence in enumerate(SENTENCES):
            framed = [number[word] for word in ("<S>", *sentence, "</S>")]
            ids[row, : len(framed)] = framed
    layers = oracle.embed(weights, options, ids).lm_embeddings
    return [x[:, : len(sentence)] for x, sentence in zip(layers, SENTENCES, strict=True)]


@pytest.mark.parametrize(
    ("kind", "container"),
    [
        pytest.param(
            kind,
            container,
            marks=() if kind in QUICK else pytest.mark.slow,
            id=f"{kind}-{container.__name__}",
        )
        for kind, container in CASES
    ],
)
def test_vectors_and_facts_of_every_model(kind, container, tmp_path, capsys):
    options = oracle.MODELS[kind]
    weights = oracle.random_weights(options, seed=11)
    model, words = container(tmp_path / "model", options, weights, "\n".join(WORDS) + "\n")
    (tmp_path / "text.txt").write_text("\n".join(map(" ".join, SENTENCES)) + "\n", "utf-8")
    text, out = str(tmp_path / "text.txt"), str(tmp_path / "out.hdf5")
    assert main(["embed", text, out, *model, *words, "--all"]) == 0
    expected = expected_layers(options, weights)
    with h5py.File(out) as file:
        for key, wanted in enumerate(expected):
            np.testing.assert_allclose(file[str(key)][...], wanted, rtol=1e-5, atol=1e-5)
    capsys.readouterr()
    # `bilm info` takes a folder, a ZIP file, or weights with their options next to them.
    assert main(["info", "--json", model[-1]]) == 0
    facts = json.loads(capsys.readouterr().out)
    lstm = options["lstm"]
    assert facts["lstm"]["layers"] == lstm.get("n_layers", 1)
    assert facts["lstm"]["skip_connections"] is lstm.get("use_skip_connections", False)
    assert facts["parameters"]["total"] == sum(value.size for value in weights.values())
    assert facts["input"]["kind"] == ("characters" if "char_cnn" in options else "words")
