"""Sentences of text and FASTA files, and the keys that files of vectors have."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm import InputError, embed_file, read_fasta
from bilm.data.sentences import Sentence
from tests.command_line import input_error
from tests.embedded_text import embed, read, sentences_of
from tests.processes import start_program

pytestmark = pytest.mark.eager

FASTA = ">P1|x first protein\nmkv\n\nL A\r\n>P2\n>sp/P3\nMW*\n"
PROTEINS = [("P1|x", list("MKVLA")), ("P2", []), ("sp/P3", list("MW*"))]


def write_fasta(content=FASTA, path="proteins.fasta"):
    Path(path).write_text(content, encoding="utf-8", newline="")
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# Reading


def test_sequences(place):
    assert list(read_fasta(write_fasta())) == PROTEINS
    with gzip.open("p.fa.gz", "wt", encoding="utf-8") as file:
        file.write(FASTA)
    assert list(read_fasta("p.fa.gz")) == PROTEINS
    assert list(sentences_of("p.fa.gz")) == [
        Sentence(0, "M K V L A", "P1|x"), Sentence(1, "", "P2"), Sentence(2, "M W *", "sp/P3"),
    ]  # fmt: skip
    assert list(read_fasta(write_fasta(""))) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("MKV\n", r"line 1: FASTA must begin with '>' and an id, got 'MKV'"),
        (">P1\nMKV\n>  \nMK\n", "line 3: '>' must be followed by an id"),
        (">P1\nMKV1\n", "line 2: residues must be letters .*, got 'MKV1'"),
        (">P1\nسلام\n", "line 2: residues must be letters"),
        (">P1\nMK\n\ufb01x\n", "line 3: residues must be letters"),  # a ligature
    ],
)
def test_faults_of_fasta_files(content, message):
    with pytest.raises(InputError, match=r"proteins\.fasta, " + message):
        list(read_fasta(write_fasta(content)))


def test_lines_of_a_stream():
    sentences = sentences_of(io.BytesIO(b" a  b \r\n\n"))
    assert list(sentences) == [Sentence(0, "a  b"), Sentence(1, "")]
    with pytest.raises(InputError, match="input, line 3: not UTF-8"):
        next(sentences_of(io.BytesIO(b" a  b \r\n\n\xff\n")))


# Proteins


def test_proteins_as_seqvec_writes_them(place):
    write_fasta()
    embed("--layers", "sum", text="proteins.fasta")
    expected = place.model.encode([tokens for _, tokens in PROTEINS], "all")
    arrays, index = read()
    assert sorted(arrays) == ["P1|x", "P2", "sp/P3"] and index is None
    with h5py.File("out.hdf5") as file:
        for (key, _), layers in zip(PROTEINS, expected, strict=True):
            np.testing.assert_allclose(file[key][()], layers.sum(axis=0), atol=1e-5)
            assert file[key].attrs["original_id"] == key


@pytest.mark.parametrize("ending", ["hdf5", "npz", "jsonl"])
def test_means_of_proteins_in_every_format(place, ending):
    write_fasta()
    out = f"out.{ending}"
    done = embed_file("proteins.fasta", out, place.model, layers="sum", pooling="mean")
    assert done.n_sentences == 3
    of_layers = place.model.encode([tokens for _, tokens in PROTEINS], "all", "mean")
    expected = {
        key: layers.sum(axis=0) for (key, _), layers in zip(PROTEINS, of_layers, strict=True)
    }
    if ending == "hdf5":
        found = read(out)[0]
    elif ending == "npz":
        found = dict(np.load(out))
    else:
        lines = [json.loads(line) for line in Path(out).read_text("utf-8").splitlines()]
        found = {line["key"]: np.array(line["vectors"]) for line in lines}
        assert [line["line"] for line in lines] == [0, 1, 2]
    assert found.keys() == expected.keys()
    for key, vectors in expected.items():
        assert found[key].shape == (16,)
        np.testing.assert_allclose(found[key], vectors, atol=1e-5)


def test_proteins_in_parquet(place):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_fasta()
    embed("--layers", "sum", "--forget_sentences", text="proteins.fasta", out="out.parquet")
    table = parquet.read_table("out.parquet")
    assert table.column_names == ["id", "key", "vectors"]
    assert table["key"].to_pylist() == [key for key, _ in PROTEINS]
    assert [len(row) for row in table["vectors"]] == [5, 0, 3]


def test_sums_of_layers(place):
    (layers,) = place.model.encode(["a bird"], "all")
    (summed,) = place.model.encode(["a bird"], "sum")
    np.testing.assert_allclose(summed, layers.sum(axis=0), atol=1e-6)


# User-defined keys


def write_ids(*ids):
    Path("ids.txt").write_text("".join(f"{key}\n" for key in ids), encoding="utf-8")
    return "--ids=ids.txt"


def test_ids(place):
    embed(write_ids("b", " a ", "x/y", "ü 1", "10", "9"), "--top")
    arrays, index = read()
    assert sorted(arrays) == ["10", "9", "a", "b", "x/y", "ü 1"] and index is None
    for key, layers in zip(("b", "a", "x/y", "ü 1"), place.expected, strict=False):
        np.testing.assert_allclose(arrays[key], layers[2], atol=1e-6)
    embed("--ids=ids.txt", "--top", "--shard=2/3", out="shard.hdf5")
    assert sorted(read("shard.hdf5")[0]) == ["10", "a"]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("abcab", "text.txt, line 4: the key 'a' is repeated."),
        ("abcdefg", "ids.txt must have one key for each line"),
        (["a", "b/c", "b", "d", "e", "f"], "line 3: 'b' cannot be a key"),
    ],
)
def test_keys_that_are_wrong_are_found_before_the_work(place, capsys, ids, message):
    flag = write_ids(*ids)
    error = input_error(["embed", "text.txt", "out.hdf5", "--model", "elmo", flag], capsys)
    assert message in error
    assert not list(Path().glob("out.hdf5*"))


# Text that would break a format with separators


@pytest.mark.slow
def test_memory_of_a_long_protein(place):
    """All layers of 35,000 residues take 205 MB, but the process needs far less extra memory."""
    from tests.small_models import write_small_model

    changes = {"lstm": {"dim": 32, "projection_dim": 256}}
    write_small_model(Path("wide"), "as_published", **changes)
    for name, n in (("short", 1_000), ("long", 35_000)):
        write_fasta(f">one\nM\n>titin\n{'MKVLAWGHTR' * (n // 10)}\n", f"{name}.fasta")
    peaks = []
    for name in ("short", "long"):
        program = (
            "import resource, sys; from bilm.cli import main; "
            f"code = main(['embed', '{name}.fasta', '{name}.h5', '--model', 'wide', '--all']); "
            "print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        process = start_program(program)
        printed, said = process.communicate(timeout=600)
        code, peak = printed.split("\n")[-2].split()
        assert code == "0", said
        peaks.append(int(peak) * 1024)
    with h5py.File("long.h5") as file:
        assert file["titin"].shape == (3, 35_000, 512)
    assert peaks[1] - peaks[0] < 150e6
