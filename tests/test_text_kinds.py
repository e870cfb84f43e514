"""Text is recognised by its content, whatever its name, by everything that reads text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from bilm import InputError, LMDataset, load_vocab, read_fasta
from bilm.cli import main
from bilm.data import count_words, shard_corpus
from bilm.data.sentences import TextTokens
from bilm.files.reading import (
    new_digest,
    open_text,
    plain_start,
    read_lines,
    read_text,
    text_digest,
    warn_once,
)
from tests.embedded_text import sentences_of

SENTENCES = ["I can't see it", "猫 sees him", "10 000 cats"]
WORDS = " ".join(SENTENCES).split()
PLAIN = "".join(f"{sentence}\n" for sentence in SENTENCES)


def row(number, form):
    return f"{number}\t{form}\tx\tX\t_\t_\t0\t_\t_\t_\n"


CONLLU = (
    "# newdoc\n# text = I can't see it\n"
    f"{row(1, 'I')}{row('2-3', chr(99) + 'an' + chr(39) + 't')}{row(2, 'ca')}{row(3, 'not')}"
    f"{row(4, 'see')}{row('4.1', 'elided')}{row(5, 'it')}\n# only a comment\n\n"
    f"{row(1, '猫')}{row(2, 'sees')}{row(3, 'him')}\r\n\n{row(1, '10 000')}{row(2, 'cats')}"
)
FASTA = ">P1 first\nmkV-\nL*\n\n>P2\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    warn_once.cache_clear()


def readers(name):
    """What reads sentences: a name for messages, and the sentences."""
    yield "read_text", lambda: list(read_text(name))
    yield "stream", lambda: list(read_text(io.BytesIO(Path(name).read_bytes()), name))
    yield "embed", lambda: [sentence.text for sentence in sentences_of(name)]
    yield "train", lambda: trained(name)
    yield "vocab", lambda: sorted(count_words(name, least_block=7).elements())
    yield "shard", lambda: sharded(name)


def sharded(name):
    shard_corpus(name, "out", n_shards=1)
    return sorted(read_text("out/train-00.txt"), key=SENTENCES.index)


def trained(name):
    """The words of a data set, by the vocabulary."""
    Path("vocab.txt").write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS]), encoding="utf-8")
    vocab = load_vocab("vocab.txt", 50)
    data = LMDataset(name, vocab, test=True)
    return [vocab.decode(ids[1:-1]) for ids, _ in data.get_sentence()]


@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("content", [PLAIN, f"\ufeff{CONLLU}"])
def test_sentences(name, compress, content):
    Path(name).write_bytes(compress(content.encode()))
    for reader, read in readers(name):
        assert read() == (sorted(WORDS) if reader == "vocab" else SENTENCES), reader


@pytest.mark.parametrize("name", ["p.faa", "p.txt", "P.FNA", "p.gz"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_fasta(name, compress, caplog):
    Path(name).write_bytes(compress(FASTA.encode()))
    assert list(read_fasta(name)) == [("P1", list("MKV-L*")), ("P2", [])]
    (warning,) = caplog.messages
    for part in ("gaps (- or .): 1", "stops (*): 1", "lower-case residues (read as upper case): 2"):
        assert part in warning
    for reader, read in readers(name):
        if reader == "embed":
            assert read() == ["M K V - L *", ""]
            continue
        with pytest.raises(InputError, match=rf"{name} is FASTA.* `bilm tokenize {name}"):
            read()
    assert len(caplog.messages) == 1


def zipped(data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", data)
    return file.getvalue()


def tarred(data):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped(PLAIN), "a ZIP file. Unpack"),
        (tarred(PLAIN.encode()), "a tar archive. Unpack"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(90), "a 7z archive"),
        (b"\x28\xb5\x2f\xfd\x04X", "Zstandard data"),
        (PLAIN.encode("utf-16"), "UTF-16. Convert it: iconv"),
        (PLAIN.encode("utf-16-le"), "UTF-16. Convert it: iconv -f UTF-16LE"),
        (PLAIN.encode("utf-16-be"), "UTF-16. Convert it: iconv -f UTF-16BE"),
        (b"\x89HDF\r\n\x1a\n\0\0", "a binary file"),
        (b"one\ntwo \xe9t\xe9\n", "line 2: not UTF-8: byte 4 is 0xe9"),
        (b"one\ntwo\nth\0ree\n", "line 3: not text: byte 2 is 0x00"),
        (b"word\n" * 50_000 + b"a\0b", "line 50001: not text: byte 1 is 0x00"),
        (gzip.compress(b"one\n" * 99)[:-9], "damaged"),
        (bz2.compress(b"one\n" * 99)[:-9], "damaged"),
        (
            b"<!DOCTYPE html>\n<p>one</p>\n",
            r"a.txt: must be text, got a web page \(HTML or XML\). Extract",
        ),
        (b'<?xml version="1.0"?>\n<TEI/>\n', r"got a web page"),
        (b"EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n. . O O\n\nHe PRP B-NP O\n",
         "got columns with spaces. `bilm tokenize a.txt OUT --column N` writes its column N"),
        (b"-DOCSTART- -X- O O\n\n" + b"a DT B-NP O\ncat NN I-NP O\n\n" * 9, "columns with spaces"),
        (CONLLU.replace("\t_\n", "\n").encode(), "got columns with tabs"),
        (CONLLU.replace("\t_\n", "\t_\t_\n").encode(), "got columns with tabs"),
        (b"1\tThe\tthe\tthe\tDT\tDT\t_\t_\t2\t2\tNMOD\tNMOD\t_\t_\n" * 3, "columns with tabs"),
        (b"##12\n@@12\nThe\tthe\tat\ncat\tcat\tnn1\n.\t.\t.\n", "columns with tabs"),
        (b"<text id='1'>\n<s>\nThe\tDT\ncat\tNN\n</s>\n</text>\n", "columns with tabs"),
        (b"Entry\tProtein names\tSequence\nP1\tKinase\tMKV\nP2\t\tMKL\n", "with tabs"),
        (b"1\ta good film\n0\tnot so good\n", "with tabs"),
        (b'id,text\n1,"A cat, a dog"\n2,They ran\n3,"He ""ran"""\n', r"a table \(CSV\). Extract"),
        (b"label;text\n1;x\n2;y\n", r"a table \(CSV\)"),
        (b'<doc id="12" title="A">\nA cat.\n</doc>\n', "text with tags"),
        (b"<text>\nA cat.\n", "text with tags"),
        (b"<s> the cat </s>\n<s> a dog </s>\n", "text with tags"),
        (b"<s>\nThe\tDT\nbank\tNN\n</s>\n", "columns with tabs"),
        (b"<TEI xmlns='x'>\n", "text with tags"),
        (b"1\n00:00:01,000 --> 00:00:02,000\nHello.\n", "got subtitles"),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.\n", "got subtitles"),
        (rb"{\rtf1\ansi A cat.}", "got RTF"),
        (
            b"id\tsentence\n1\tA cat .\n2\tA dog .\n",
            r"got a table with tabs\. Cut out its column N of sentences .*: cut -f N a\.txt > OUT",
        ),
        (b'["A cat.", "A dog."]', "got JSON"),
        (b'[\n  "A cat.",\n  "A dog."\n]\n', "got JSON"),
        (b'{\n  "text": "A cat."\n}\n', "got JSON"),
        (b"%x\n\\documentclass{article}\n", "got LaTeX"),
        (b"( (S (NP-SBJ (DT The)\n", "got syntactic trees"),
        (b"@UTF8\n@Begin\n*CHI: more .\n", "got a transcript"),
        (b'{"id": "7", "text": "one two"}\n', "a.txt: must be text, got JSON."),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "got a Git LFS pointer instead of the file",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_not_text_is_named(data, message):
    Path("a.txt").write_bytes(data)
    for _, read in readers("a.txt"):
        with pytest.raises(InputError, match=message):
            read()
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "data",
    [
        "id\tsentence\n1\tA cat .\n", "The\tDT\ncat\tNN\n", "a,b\n1,2\n", "O DT\ncat NN\n\n" * 4,
        '{"a": 1}\n', '[{"a": 1}]\n', '["A"]\n', "<s>\nA\n", "WEBVTT\nA\n",
        "{\\rtf1\n", "\\documentclass{a}\n", "((S (NP\n", "@UTF8\n", "<html>\n", ">a\nMK\n", CONLLU,
    ],
)  # fmt: skip
def test_an_empty_line_makes_it_plain_text(data):
    for content, is_plain in ((data, False), (f"\n{data}", True)):
        with open_text(io.BytesIO(content.encode())) as text:
            assert (text.kind == "plain text") == is_plain


@pytest.mark.parametrize(
    "lines",
    [
        ["<unk> the cat", "<S> is a token"],
        ["the cat .", "a dog .", "", "he ran .", "it sat ."],
        ["A B C", "", "D E F", "", "G H I", "", "J K L", ""],  # with double spacing
        ["Hello, world.", "A cat, a dog.", "Well, yes."],
        ["[ 1 ] the cat", '[ " Yes " , he said ]', "{ a }", "( S ( he said ) )"],
        ["\tA cat sat.", "\tA dog ran."],
        ["1", "2", "", "3"],
        ["one\ttwo"],
        ["# 1", "# 2 x"],
        ["1 : 30 --> 2", "the end"],
        [""],
    ],
)
def test_text_that_looks_like_another_format(lines):
    Path("a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert list(read_text("a.txt")) == lines


@pytest.mark.parametrize(
    "data",
    [
        "# doc\nI P O\ncan't V O\nsee V O\nit P O\n\n猫 N O\nsees V O\nhim P O\n".replace(
            " ", "\t"
        ),
        "I P\ncan't V\nsee V\nit P\n\n-DOCSTART- X\n\n猫 N\nsees V\nhim P\n",
        "<text id='1'>\n<s>\nI\tP\ncan't\tV\nsee\tV\nit\tP\n</s>\n"
        "<s>\n猫\tN\nsees\tV\nhim\tP\n</s>\n</text>\n",
    ],
)
def test_a_column(data):
    """A column is read as tokens, one sentence up to each empty line or tag."""
    Path("a.txt").write_text(data, encoding="utf-8")
    sentences = sentences_of("a.txt", TextTokens("en rules 2", column=1))
    assert [sentence.text for sentence in sentences] == SENTENCES[:2]
    assert main(["tokenize", "a.txt", "b.txt", "--column", "1"]) == 0
    assert list(read_text("b.txt")) == SENTENCES[:2]
    with pytest.raises(InputError, match=r"a\.txt, line \d+: must have column 9, got"):
        list(sentences_of("a.txt", TextTokens(column=9)))
    Path("a.txt").write_text("1\tA cat sees it .\n2\tA dog .\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"column 2 must have tokens, got sentences.* cut -f 2 a"):
        list(sentences_of("a.txt", TextTokens(column=2)))


class Pipe(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data):
        self.data = io.BytesIO(data)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self.data.readinto(memoryview(buffer)[:1])


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("content", [PLAIN, CONLLU])
def test_a_slow_pipe(compress, content):
    stream = io.BufferedReader(Pipe(compress(content.encode())))
    assert list(read_text(stream, "pipe")) == SENTENCES


@pytest.mark.parametrize("padding", [b"", bytes(4), bytes(1 << 17)])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_several_compressed_streams(compress, padding):
    parts = [compress(f"{line}\n".encode()) + padding for line in SENTENCES]
    Path("a.txt").write_bytes(b"".join(parts))
    assert list(read_text("a.txt")) == SENTENCES
    Path("a.txt").write_bytes(b"".join(parts) + b"rest")
    with pytest.raises(InputError, match=r"a\.txt, after line 3: damaged"):
        list(read_text("a.txt"))


def test_an_empty_sequence_keeps_its_line():
    Path("p.fasta").write_text(">A\n>B\nMK\n>C\n", encoding="utf-8")
    assert main(["tokenize", "p.fasta", "out.txt"]) == 0
    assert list(read_text("out.txt")) == ["", "M K", ""]


@pytest.mark.parametrize(
    "first", ["\ufeffx y", "> 5 %", row(1, "a").strip(), "<html> x", "plain words"]
)
def test_sentences_survive_being_first(first):
    """A sentence that a file of its own would begin with, like a mark or another format."""
    Path("in.txt").write_text(f"\n{first}\n", encoding="utf-8")
    shards = shard_corpus("in.txt", "out")
    assert [*filter(None, read_text(shards.training.pattern.replace("*", "00")))] == [first]
    assert plain_start("plain words") == ""


def test_the_digest_of_a_text():
    Path("a.txt").write_text(PLAIN, encoding="utf-8")
    Path("b.bz2").write_bytes(bz2.compress(PLAIN.encode()))
    Path("c.txt").write_text("".join(reversed(PLAIN.splitlines(True))), encoding="utf-8")
    digest = new_digest()
    assert list(read_lines("a.txt", digest=digest)) == SENTENCES
    assert digest.hexdigest() == text_digest("a.txt") == text_digest("b.bz2")
    assert text_digest("a.txt") != text_digest("c.txt")
