"""`bilm embed`: file formats, pipes, flags, and error messages."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm import InputError, TableEmbedder, dump_bilm_embeddings, dump_token_embeddings
from bilm.cli import main
from bilm.vectors.vector_files import FORMATS
from tests import oracle
from tests.command_line import input_error
from tests.embedded_text import LINES, embed, read

pytestmark = pytest.mark.eager

# Files


@pytest.mark.parametrize("flag", ["--all", "--top", "--average", "--layers=1", "none"])
def test_hdf5_as_allennlp_writes_it(place, flag, capsys):
    embed(*([] if flag == "none" else [flag]))
    captured = capsys.readouterr()
    assert captured.out == "out.hdf5\n"
    # On a slow machine, which prints a line before the end, the last line has the rate too.
    assert re.search(r"embedding 6/6 sentences  (.+ sentences/s  )?18 tokens\n", captured.err)
    arrays, index = read()
    assert sorted(arrays) == ["0", "1", "2", "3", "4", "5"]
    assert index == {LINES[0]: "3", "": "1", "a  dog": "2", "猫 / dog": "4", "bird": "5"}
    for key, layers in enumerate(place.expected):
        choose = {"--all": lambda x: x, "--top": lambda x: x[2], "--layers=1": lambda x: x[1]}
        wanted = choose.get(flag, lambda x: x.mean(axis=0))(layers)
        assert arrays[str(key)].dtype == np.float32 and arrays[str(key)].shape == wanted.shape
        np.testing.assert_allclose(arrays[str(key)], wanted, atol=1e-6)
    assert sorted(os.listdir()) == ["elmo", "out.hdf5", "text.txt"]


def test_forget_sentences(place):
    embed("--forget-sentences")
    assert read()[1] is None


def test_sentence_keys(place, capsys):
    embed("--use-sentence-keys", "--top", "--batch-size", "2")
    assert "left out: 1 repeated sentences, 1 empty lines" in capsys.readouterr().err
    with h5py.File("out.hdf5") as file:
        for number in (0, 2, 4, 5):
            vectors = file[LINES[number].strip()][()]
            np.testing.assert_allclose(vectors, place.expected[number][2], atol=1e-6)
    arrays, index = read()
    assert len(arrays) == 4 and index is None


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooling_and_float16(place, pooling):
    embed("--pooling", pooling, "--dtype", "float16", "--top")
    arrays, _ = read()
    for key, layers in enumerate(place.expected):
        wanted = getattr(layers[2], pooling)(axis=0) if layers.shape[1] else np.zeros(16)
        assert arrays[str(key)].dtype == np.float16
        np.testing.assert_allclose(arrays[str(key)], wanted, atol=5e-3)


def test_values_too_large_for_float16(place, capsys):
    bias = {"CNN_proj/b_proj": np.full(8, 7e4, np.float32)}
    oracle.write_hdf5("elmo/weights.hdf5", oracle.read_hdf5("elmo/weights.hdf5") | bias)
    for out in ("out.hdf5", "-"):
        arguments = ["embed", "text.txt", out, "--model=elmo", "--layers=0", "--dtype=float16"]
        error = input_error(arguments, capsys)
        assert re.search(r"values of float16 are at most 65504, and a vector has 700\d\d", error)


def test_npz(place):
    assert main(["embed", "text.txt", "out.npz", "--model", "elmo", "--all"]) == 0
    found = np.load("out.npz")
    assert sorted(found) == ["0", "1", "2", "3", "4", "5", "sentence_to_index"]
    assert json.loads(str(found["sentence_to_index"][0]))["bird"] == "5"
    for key, layers in enumerate(place.expected):
        np.testing.assert_allclose(found[str(key)], layers, atol=1e-6)


def test_compressed_text_and_json_lines(place):
    with gzip.open("text.gz", "wt", encoding="utf-8") as file:
        file.write("bird\na dog\n")
    assert main(["embed", "text.gz", "out.jsonl", "--model", "elmo", "--layers", "2"]) == 0
    lines = [json.loads(line) for line in Path("out.jsonl").read_text("utf-8").splitlines()]
    assert [(x["line"], x["tokens"]) for x in lines] == [(0, ["bird"]), (1, ["a", "dog"])]
    vectors = np.array(lines[1]["vectors"], np.float32)
    np.testing.assert_allclose(vectors, place.expected[2][2], atol=1e-6)


# Standard input and output


def standard(monkeypatch, content):
    """Feed `content` to standard input, and capture the bytes of standard output."""
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8"))
    return out


def test_json_lines_from_a_pipe_to_a_pipe(place, monkeypatch):
    out = standard(monkeypatch, Path("text.txt").read_bytes())
    assert main(["embed", "-", "-", "--model", "elmo", "--all"]) == 0
    lines = [json.loads(line) for line in out.getvalue().decode().splitlines()]
    assert [line["line"] for line in lines] == [0, 1, 2, 3, 4, 5]
    assert lines[4]["tokens"] == ["猫", "/", "dog"]
    for line, layers in zip(lines, place.model.encode(LINES, "all"), strict=True):
        np.testing.assert_array_equal(
            np.array(line["vectors"], np.float32).reshape(layers.shape), layers
        )


def test_npz_to_a_pipe(place, monkeypatch):
    # A byte order mark is not part of the first word.
    out = standard(monkeypatch, b"\xef\xbb\xbfbird\na dog\n")
    arguments = ["embed", "-", "-", "--model=elmo", "--format=npz", "--all", "--dtype=float16"]
    assert main(arguments) == 0
    found = np.load(io.BytesIO(out.getvalue()))
    assert found["1"].dtype == np.float16
    for key, wanted in (("0", place.expected[5]), ("1", place.expected[2])):
        np.testing.assert_allclose(found[key], wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_fasta_from_a_pipe(place, monkeypatch, compress):
    out = standard(monkeypatch, compress(b">P1\nMKV\n>P2\nMW\n"))
    assert main(["embed", "-", "-", "--model", "elmo"]) == 0
    lines = [json.loads(line) for line in out.getvalue().decode().splitlines()]
    assert [(line["key"], line["tokens"]) for line in lines] == [("P1", [*"MKV"]), ("P2", [*"MW"])]


# Errors


def test_the_flag_has_every_format(capsys):
    with pytest.raises(SystemExit):
        main(["embed", "--help"])
    assert f"--format {{{','.join(FORMATS)}}}" in capsys.readouterr().out


def test_sentences_that_cannot_be_keys(place, capsys):
    Path("text.txt").write_text("good\n.\n", encoding="utf-8")
    arguments = ["embed", "text.txt", "out.hdf5", "--model", "elmo", "--use-sentence-keys"]
    error = input_error(arguments, capsys)
    assert "text.txt, line 2: '.' cannot be a key" in error
    arguments[2] = "out.npz"
    assert main(arguments) == 0
    assert np.load("out.npz")["."].shape == (1, 16)


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (
            "hdf5",
            ["a/b", "c", "d.e"],
            [
                "a",
                "a//b",
                "a/b/c",
                "c/d",
                "/c",
                ".",
                "/",
                "x/",
                "and / or /",
                "./c",
                "a\0b",
                "x" * 70000,
            ],
        ),
        ("npz", ["a", "b.npy", "a/b", "."], ["a.npy", "b", "a\0b", "x" * 70000]),
        ("jsonl", ["a", "a.npy", "a/b", ".", "/"], ["a\0b"]),
    ],
)
def test_keys_that_a_format_cannot_hold(kind, taken, refused):
    keys = FORMATS[kind].keys()
    for key in taken:
        assert keys.is_new(key, "line 1") and not keys.is_new(key, "line 2")
    for key in refused:
        with pytest.raises(InputError, match=r"line 3: .* cannot be a key"):
            keys.is_new(key, "line 3")


def test_endings_in_upper_case_and_compressed(place):
    embed(out="o.NPZ")
    assert sorted(np.load("o.NPZ"))[:2] == ["0", "1"]
    embed(out="o.JSONL.gz")
    embed("--format=jsonl", out="o.txt")
    lines = gzip.decompress(Path("o.JSONL.gz").read_bytes())
    assert lines == Path("o.txt").read_bytes() and len(lines.splitlines()) == 6


def test_an_unknown_word_is_named_with_its_line(published, tmp_path, capsys):
    """The model has a token cache, but no weights of a character encoder."""
    folder = published.folder
    words = tmp_path / "words.txt"
    words.write_text("<S>\n</S>\n<UNK>\na\n", encoding="utf-8")
    files = (str(folder / "options.json"), str(folder / "weights.hdf5"))
    dump_token_embeddings(words, *files, tmp_path / "cache.hdf5")
    weights = {k: v for k, v in oracle.read_hdf5(files[1]).items() if k.startswith("RNN_")}
    oracle.write_hdf5(tmp_path / "lstms.hdf5", weights)
    (tmp_path / "text.txt").write_text("a a\na b\n", encoding="utf-8")
    error = input_error(
        ["embed", str(tmp_path / "text.txt"), str(tmp_path / "o.hdf5"), "--options_file", files[0],
         "--weight_file", str(tmp_path / "lstms.hdf5"), "--vocab_file", str(words),
         "--embedding_weight_file", str(tmp_path / "cache.hdf5")], capsys,
    )  # fmt: skip
    assert "text.txt, line 2, word 2: 'b' has no vector" in error and "words.txt" in error


@pytest.mark.parametrize("out", ["out.hdf5", "out.npz", "out.jsonl", "out.parquet", "-"])
def test_vectors_that_are_not_finite(place, tmp_path, capsys, out):
    """SECURITY.md: NaN and infinity are refused in results."""
    if out == "out.parquet":
        pytest.importorskip("pyarrow")
    shutil.copytree(place.folder, "huge")
    with h5py.File("huge/weights.hdf5", "r+") as file:
        for name in ("W_proj", "b_proj"):
            file["CNN_proj"][name][...] = 3e38
    for name in ("--layers=0", "--average"):
        error = input_error(["embed", "text.txt", out, "--model=huge", name, "--force"], capsys)
        assert "text.txt, line 1: the model's vectors are not finite" in error
    assert not os.path.exists(out)
    table = pytest.importorskip("pyarrow").table({"text": LINES})
    with pytest.raises(InputError, match="sentence 0: the model's vectors are not finite"):
        TableEmbedder("huge", layers=0)(table)
    Path("vocab.txt").write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"text\.txt, line 1: the model's vectors are not"):
        dump_bilm_embeddings(
            "vocab.txt", "text.txt", "huge/options.json", "huge/weights.hdf5", "o.hdf5"
        )
