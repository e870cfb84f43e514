"""`bilm tokenize` and `tokenize_files`: from files to a file, and the record of the tokenizer."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from bilm import InputError
from bilm.cli import main
from bilm.data import shard_corpus, tokenize_files
from bilm.data.sentences import read_record
from bilm.files.reading import find_all_files
from tests.command_line import OPTIONS, input_error, usage_error
from tests.test_tokenizer import WRAPPED

TOKENISED = """\
Mr . Hale left at 6.30 in the morning .
" It wo n't rain , " he said ; nobody believed him .
Did it ?
It rained for three days -- and the well-kept garden stood under water !
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with wrapped text and text of one sentence per line."""
    monkeypatch.chdir(tmp_path)
    Path("wrapped.txt").write_text(f"{WRAPPED}\n", "utf-8")
    with gzip.open("lines.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\ufeffCafe\u0301 one.\r\n\r\nTwo, three\r\n")
    return tmp_path


def test_tokenize_writes_and_reports(folder, capsys):
    arguments = ["tokenize", "wrapped.txt", "*.gz", "out.txt", "--language", "en"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert Path("out.txt").read_text("utf-8") == "Café one .\nTwo , three\n" + TOKENISED
    assert json.loads(Path("out.txt.tokenizer.json").read_text("utf-8")) == {
        "tokenizer": "en rules 2",
        "bytes": {"out.txt": os.path.getsize("out.txt")},
        "unicode": unicodedata.unidata_version,
    }
    assert captured.out.splitlines() == [
        "sentences    6",
        "tokens       47",
        "tokenizer    en rules 2",
        "input lines  one sentence each (1 file), parts of paragraphs (1 file)",
        "next:",
        "  bilm shard out.txt --out_dir shards --heldout 0.01",
    ]
    assert "tokenising 0/0 kB" in captured.err
    before = os.listdir()
    assert "'out.txt', 'out.txt.tokenizer.json' would" in (input_error(arguments, capsys))
    assert os.listdir() == before
    assert main([*arguments, "--force", "--lines", "paragraph"]) == 0
    assert 'rain , " he said ; nobody believed him .\n' in Path("out.txt").read_text("utf-8")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_output_is_compressed_as_its_name_says(folder, ending):
    report = tokenize_files("wrapped.txt", f"out.txt{ending}", "en")
    assert (report.n_sentences, report.n_tokens) == (4, 41)
    assert report.lines == {"wrapped.txt": "wrapped"} and report.tokenizer == "en rules 2"
    opened = {"": open, ".gz": gzip.open, ".xz": lzma.open}[ending]
    with opened(f"out.txt{ending}", "rt", encoding="utf-8") as file:
        assert file.read() == TOKENISED
    first = Path(f"out.txt{ending}").read_bytes()
    tokenize_files("wrapped.txt", f"out.txt{ending}", "en", overwrite=True)
    assert Path(f"out.txt{ending}").read_bytes() == first


def test_sequences_and_treebanks_have_tokens(folder, capsys):
    """FASTA and CoNLL-U under any name need no language."""
    Path("p.txt").write_text(">P1 a protein\nMKV\nla\n>P2\nMW*\n", "utf-8")
    Path("t.txt").write_text(
        "".join(f"{n}\t{w}\t_\tX\t_\t_\t0\t_\t_\t_\n" for n, w in ((1, "dr."), (2, "Ik")))
        + "\n", "utf-8",
    )  # fmt: skip
    assert main(["tokenize", "p.txt", "p.out"]) == 0
    assert Path("p.out").read_text("utf-8") == "M K V L A\nM W *\n"
    assert read_record(["p.out"]) == "xx residues 1"
    printed = capsys.readouterr()
    assert "protein sequences (1 file)" in printed.out and "stops (*): 1" in printed.err
    assert main(["tokenize", "t.txt", "t.out"]) == 0
    assert Path("t.out").read_text("utf-8") == "dr. Ik\n"
    assert "tokenizer    CoNLL-U\n" in capsys.readouterr().out
    assert "--language" in usage_error(["tokenize", "p.txt", "wrapped.txt", "out"], capsys)


def test_standard_input_to_standard_output(folder, capsys, monkeypatch):
    text = io.TextIOWrapper(io.BytesIO("हिन्दी में। क्या?\n".encode()))
    monkeypatch.setattr(sys, "stdin", text)
    assert main(["tokenize", "-", "-", "--language", "hi"]) == 0
    assert capsys.readouterr().out == "हिन्दी में ।\nक्या ?\n"
    # Other kinds of text are recognised, as in files.
    conllu = "1\tIk\t_\t_\t_\t_\t_\t_\t_\t_\n2\tdr.\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    for given, tokens in ((">p 1\nMKV\nLA\n", "M K V L A\n"), (conllu, "Ik dr.\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        assert main(["tokenize", "-", "-"]) == 0
        assert capsys.readouterr().out == tokens
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"plain text\n")))
    assert "--language CODE is required" in usage_error(["tokenize", "-", "-"], capsys)
    error = usage_error(["tokenize", "wrapped.txt", "-", "--language", "hi"], capsys)
    assert "- stands for both IN and OUT, or for neither" in error


def test_invisible_characters_are_counted(folder, capsys):
    Path("soft.txt").write_text("co\u00adop\u00aderate a\u200bb\n\u202bx\n", "utf-8")
    assert main(["tokenize", "soft.txt", "out.txt", "--language", "en"]) == 0
    assert Path("out.txt").read_text("utf-8") == "cooperate a b\nx\n"
    assert "removed      3 invisible characters\n" in capsys.readouterr().out


def test_records_are_no_text(folder):
    tokenize_files("wrapped.txt", "a.txt", "en")
    Path("tokenizer.json").write_text('{"tokenizer": "moses"}', "utf-8")
    assert find_all_files("*") == ["a.txt", "lines.txt.gz", "wrapped.txt"]
    assert find_all_files("tokenizer.json") == ["tokenizer.json"]


def test_the_record_of_texts(folder):
    tokenize_files("wrapped.txt", "a.txt", "en")
    assert read_record(["a.txt"]) == read_record([folder / "a.txt"]) == "en rules 2"
    assert read_record(["wrapped.txt"]) is None is read_record(["a.txt", "wrapped.txt"])
    Path("tokenizer.json").write_text('{"tokenizer": "moses"}', "utf-8")
    assert read_record(["wrapped.txt", "lines.txt.gz"]) == "moses"
    assert read_record(["a.txt", "wrapped.txt"]) is None
    # A record of another program, such as Hugging Face's tokenizers.
    Path("tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE"}}', "utf-8")
    assert read_record(["wrapped.txt"]) is None
    assert read_record(["a.txt"]) == "en rules 2"


def test_shards_have_the_record_of_their_text(folder):
    tokenize_files("wrapped.txt", "a.txt", "en")
    shard_corpus("a.txt", "shards", n_shards=2)
    assert sorted(os.listdir("shards")) == ["tokenizer.json", "train-00.txt", "train-01.txt"]
    assert read_record(["shards/train-00.txt"]) == "en rules 2"
    Path("shards/later.txt").write_text("Not by that tokenizer.\n", "utf-8")
    Path("shards/train-01.txt").write_text("Another text.\n", "utf-8")
    assert read_record(["shards/later.txt"]) is None is read_record(["shards/train-01.txt"])
    with pytest.raises(InputError, match="must hold no shards"):
        shard_corpus("a.txt", "shards", n_shards=1)
    Path("plain.txt").write_text("no record of it\n", "utf-8")
    shard_corpus("plain.txt", "others")
    assert os.listdir("others") == ["train-00.txt"]


@pytest.mark.slow
def test_a_model_knows_the_tokenizer_of_its_text(folder, capsys):
    Path("raw.txt").write_text("The cat doesn't see the dog. The dog sees it.\n" * 40, "utf-8")
    Path("options.json").write_text(json.dumps(OPTIONS), "utf-8")
    for command in (
        "tokenize raw.txt text.txt --language en",
        "shard text.txt --out_dir shards",
        "vocab shards/train-*.txt --out vocab.txt",
        "train --save_dir model --vocab_file vocab.txt --train_prefix shards/train-*.txt "
        "--options_file options.json",
        "dump --save_dir model --model_dir elmo",
        "info elmo",
    ):
        assert main(command.split()) == 0
    assert "tokenizer       en rules 2\n" in capsys.readouterr().out
    for file in ("model/options.json", "elmo/options.json"):
        assert json.loads(Path(file).read_text("utf-8"))["tokenizer"] == "en rules 2"

    def warnings(name, *more):
        arguments = ["embed", name, f"{name}.npz", "--model", "elmo", "--force", *more]
        assert main(arguments) == 0
        return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]

    assert warnings("text.txt") == []
    tokenize_files("raw.txt", "de.txt", "de")
    for name in ("raw.txt", "de.txt"):
        error = input_error(["embed", name, "v.npz", "--model", "elmo"], capsys)
        assert f"{name}, line 1 is not tokenised like the text of the model: " in error
    assert warnings("raw.txt", "--tokenizer", "model") == []
    sentences = [str(number) for number in range(80)]
    with np.load("raw.txt.npz") as raw, np.load("text.txt.npz") as tokenised:
        assert raw["0"].shape[0] == 13  # a line, with two sentences
        assert sorted(tokenised) == sorted([*sentences, "sentence_to_index"])
    assert warnings("raw.txt", "--tokenizer", "spaces") == []


@pytest.mark.slow
def test_several_processes_write_the_same(folder):
    """Blocks of text keep their order, and paragraphs are not cut."""
    Path("long.txt").write_text(f"{WRAPPED}\n\n" * 6000, "utf-8")
    for jobs in (1, 2):
        made = tokenize_files("long.txt", "out.txt", "en", jobs=jobs, overwrite=True)
        assert (made.n_sentences, made.n_tokens) == (24_000, 246_000)
        assert Path("out.txt").read_bytes() == TOKENISED.encode() * 6000
