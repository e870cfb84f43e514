"""`bilm embed` on long jobs: shards, crashes at any moment, sentences that do not fit in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm import ELMo
from bilm.cli import main
from bilm.data.sentences import Sentence
from bilm.files.writing import locked
from bilm.vectors.store import VectorStore
from bilm.vectors.vector_files import FORMATS, as_dtype
from tests.command_line import input_error
from tests.compare import close
from tests.embedded_text import LINES, embed, read, write_lines
from tests.processes import start_bilm, wait_for
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager

PARTIAL = Path("out.hdf5.partial")


# Shards, crashes


def test_shards_share_the_lines(place):
    for i in (1, 2):
        embed("--shard", f"{i}/2", out=f"{i}.hdf5")
    first, index = read("1.hdf5")
    second, _ = read("2.hdf5")
    assert (sorted(first), sorted(second)) == (["0", "2", "4"], ["1", "3", "5"])
    assert index == {LINES[0]: "0", "a  dog": "2", "猫 / dog": "4"}


def crash_after(monkeypatch, n, *flags, out="out.hdf5"):
    """Crash once `n` sentences are saved, after some data of the next."""
    add = VectorStore.add

    def add_until(store, *arguments):
        if store.n_sentences == n:
            store.save()
            for name in ("vectors", "sentences"):
                with open(Path(store.path, name), "ab") as file:
                    file.write(b"half")
            raise SystemError("crash")
        add(store, *arguments)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(VectorStore, "add", add_until)
        embed("--all", *flags, out=out)
    assert not os.path.exists(out)


@pytest.mark.parametrize("ending", ["hdf5", "npz"])
def test_resume_after_a_crash(place, monkeypatch, capsys, ending):
    """SECURITY.md: what was saved is not lost; what was not saved is cut off."""
    out = f"out.{ending}"
    crash_after(monkeypatch, 3, out=out)
    # A value that is never computed shows that the vectors are reused.
    with open(f"{out}.partial/vectors", "r+b") as file:
        file.write(np.float32(7).tobytes())
    embed("--all", "--resume", out=out)
    assert "3 sentences are taken over from the interrupted job" in capsys.readouterr().err
    arrays = read()[0] if ending == "hdf5" else dict(np.load(out))
    assert arrays["0"][0, 0, 0] == 7
    arrays["0"][0, 0, 0] = place.expected[0][0, 0, 0]
    for key, layers in enumerate(place.expected):
        np.testing.assert_allclose(arrays[str(key)], layers, atol=1e-6)
    assert not os.path.exists(f"{out}.partial")


def test_the_store_of_another_process_and_files_of_the_user(place, monkeypatch, capsys):
    """SECURITY.md: neither used nor removed."""
    crash_after(monkeypatch, 3)
    command = ["embed", "text.txt", "out.hdf5", "--model=elmo", "--all"]
    with locked(PARTIAL / "lock", ""):
        for flag in ("--resume", "--force"):
            assert "another process is writing there" in input_error([*command, flag], capsys)
    (PARTIAL / "notes.txt").write_text("mine")
    assert main([*command, "--resume"]) == 0
    assert os.listdir(PARTIAL) == ["notes.txt"]
    os.remove("out.hdf5")
    for content in ("{}", "[]", '{"program": "bilm embed", "version": 5, "settings": 1}', None):
        if content is not None:
            (PARTIAL / "job.json").write_text(content)
        for flag in ("--resume", "--force"):
            error = input_error([*command, flag], capsys)
            assert "out.hdf5.partial is not a folder of an interrupted job" in error
        (PARTIAL / "job.json").unlink(missing_ok=True)
    assert os.listdir(PARTIAL) == ["notes.txt"]


def test_a_store_that_was_cut_off(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    os.truncate(PARTIAL / "vectors", 10)
    command = ["embed", "text.txt", "out.hdf5", "--model=elmo", "--all"]
    assert "vectors is cut off: start over with" in input_error([*command, "--resume"], capsys)
    assert main([*command, "--force"]) == 0 and len(read()[0]) == 6


def test_a_result_that_appears_is_kept_and_so_are_the_vectors(place, monkeypatch, capsys):
    command = ["embed", "text.txt", "out.hdf5", "--model=elmo", "--all"]
    add = VectorStore.add

    def appear(store, *arguments):
        Path("out.hdf5").write_text("mine")
        add(store, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(VectorStore, "add", appear)
        assert "'out.hdf5' would be overwritten" in input_error(command, capsys)
    assert Path("out.hdf5").read_text() == "mine"
    os.remove("out.hdf5")
    assert main([*command, "--resume"]) == 0
    assert "6 sentences are taken over" in capsys.readouterr().err


def test_a_save_costs_what_is_new(tmp_path):
    sizes = []
    with VectorStore(tmp_path / "out", {"dtype": "float32"}, resume=False, force=False) as store:
        for number in range(2000):
            store.add(Sentence(number, "a\ud800\0\u2028"), np.full((1, 2), number, np.float32))
            if number in (10, 1999):
                store.save()
                sizes.append((tmp_path / "out.partial" / "job.json").stat().st_size)
        assert [vectors[0, 1] for _, vectors in store] == list(range(2000))
        assert {sentence.text for sentence in store.sentences()} == {"a\ud800\0\u2028"}
        store.remove()
    assert sizes[1] - sizes[0] < 20 and os.listdir(tmp_path) == []


@pytest.mark.parametrize("out", ["out.hdf5", "o.npz", "o.jsonl.gz", "o.parquet"])
def test_resume_knows_its_own_result(place, capsys, out):
    if out == "o.parquet":
        pytest.importorskip("pyarrow")
    resume = ["embed", "text.txt", out, "--model=elmo", "--resume"]
    assert main(resume) == 0
    before = Path(out).read_bytes()
    assert main(resume) == 0
    assert f"{out} is complete already" in capsys.readouterr().err
    for flag, message in (
        ("--top", "layers is 'average' there, 'top' now"),
        ("--shard=1/2", "shard"),
    ):
        assert message in input_error([*resume, flag], capsys)
    write_lines([*LINES[:-1], "dogs"])
    assert "is the result of another job: text is" in input_error(resume, capsys)
    assert Path(out).read_bytes() == before
    Path(out).write_text("mine\n", encoding="utf-8")
    assert "not a complete file of vectors" in input_error(resume, capsys)
    assert not list(Path().glob("*.partial"))


@pytest.mark.parametrize("out", ["out.hdf5", "o.npz", "o.jsonl", "o.jsonl.gz"])
def test_resume_knows_the_result_of_an_empty_text(place, capsys, out):
    write_lines([])
    resume = ["embed", "text.txt", out, "--model=elmo", "--resume"]
    assert main(resume) == main(resume) == 0
    assert f"{out} is complete already" in capsys.readouterr().err


def test_resume_with_another_text_or_other_vectors(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    resume = ["embed", "text.txt", "out.hdf5", "--model", "elmo", "--resume"]
    error = input_error([*resume, "--top"], capsys)
    assert "out.hdf5.partial holds vectors of another job: layers is 'all' there, " in error
    assert "was left by an interrupted job: resume" in input_error([*resume[:-1], "--all"], capsys)
    write_lines([LINES[0], "another text", *LINES[2:]])
    error = input_error([*resume, "--all"], capsys)
    assert "text.txt must begin with the 3 sentences" in error
    write_lines(LINES[:2])
    assert "text.txt must begin with the 3" in input_error([*resume, "--all"], capsys)
    write_lines(["another text"] * 6)
    assert main([*resume[:-1], "--all", "--force"]) == 0
    assert read()[1] == {"another text": "5"}


def test_resume_with_other_options_of_the_same_weights(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    options = json.loads(Path("elmo/options.json").read_text(encoding="utf-8"))
    options["lstm"]["use_skip_connections"] = not options["lstm"].get("use_skip_connections")
    Path("elmo/options.json").write_text(json.dumps(options), encoding="utf-8")
    resume = ["embed", "text.txt", "out.hdf5", "--model", "elmo", "--all", "--resume"]
    assert "network is '" in input_error(resume, capsys)


def test_a_text_that_has_grown(place, monkeypatch):
    crash_after(monkeypatch, 6 - 1)
    write_lines([*LINES, "a bird"])
    embed("--all", "--resume")
    assert sorted(read()[0]) == ["0", "1", "2", "3", "4", "5", "6"]


def test_resume_with_another_format_or_without_the_sentences(place, monkeypatch, capsys):
    crash_after(monkeypatch, 3)
    resume = ["embed", "text.txt", "out.hdf5", "--model", "elmo", "--all", "--resume"]
    assert "format is 'hdf5' there, 'npz' now" in input_error([*resume, "--format=npz"], capsys)
    assert "with_text" in input_error([*resume, "--forget_sentences"], capsys)
    assert main(resume) == 0
    assert "with_text" in input_error([*resume, "--forget_sentences"], capsys)


@pytest.mark.parametrize("out", ["out.jsonl", "out.jsonl.gz", "out.npz", "out.hdf5"])
def test_a_result_that_was_cut_off_is_not_complete(place, capsys, out):
    command = ["embed", "text.txt", out, "--model", "elmo", "--all"]
    assert main(command) == 0
    whole = Path(out).read_bytes()
    after_a_line = whole[: len(whole) // 2].rfind(b"\n") + 1
    for end in (len(whole) - 9, *([after_a_line] if out == "out.jsonl" else [])):
        Path(out).write_bytes(whole[:end])
        error = input_error([*command, "--resume"], capsys)
        assert f"{out} exists, and is not a complete file" in error
        assert Path(out).read_bytes() == whole[:end]


def test_resume_where_nothing_was_begun(place):
    embed("--resume")
    assert len(read()[0]) == 6


@pytest.mark.slow
def test_resume_after_kill_9(tmp_path):
    """After a kill with some pieces written, no sentence is repeated or missing in the result."""
    changes = {"lstm": {"dim": 32, "projection_dim": 256}}
    folder = write_small_model(tmp_path / "elmo", "as_published", **changes).folder
    n_lines = 3000  # 59 MB per thousand
    lines = [f"{n} a dog sees the cat and finds {n + 1} ." for n in range(n_lines)]
    write_lines(lines, tmp_path / "text.txt")
    command = ["embed", str(tmp_path / "text.txt"), str(tmp_path / "out.hdf5"), "--model",
               str(folder), "--resume", "--all"]  # fmt: skip
    partial = tmp_path / "out.hdf5.partial"
    process = start_bilm(command)
    record = partial / "job.json"
    wait_for(record.exists, process)
    wait_for(lambda: b'"n_sentences": 0,' not in record.read_bytes(), process)
    process.kill()
    process.communicate()
    n_saved = json.loads(record.read_bytes())["lengths"]["n_sentences"]
    assert 0 < n_saved < n_lines
    process = start_bilm(command)
    _, said = process.communicate()
    assert process.returncode == 0
    assert f"{n_saved:,} sentences are taken over from the interrupted job" in said
    model = ELMo.from_pretrained(folder)
    with h5py.File(tmp_path / "out.hdf5") as file:
        index = json.loads(file["sentence_to_index"][0])
        assert index == {line: str(k) for k, line in enumerate(lines)} and len(file) == n_lines + 1
        for k in (0, n_saved - 1, n_saved, n_saved + 1, n_lines // 2, n_lines - 1):
            close(file[str(k)][()], model.encode([lines[k]], "all")[0])
    os.remove(tmp_path / "out.hdf5")  # 177 MB


# Long sentences on disk


@pytest.mark.parametrize("layers", [pytest.param("all", marks=pytest.mark.slow), "average"])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_a_long_sentence_stays_on_the_disk(published, tmp_path, monkeypatch, layers, dtype):
    model = ELMo.from_pretrained(published.folder)
    texts = ["bird", "", " ".join(f"w{n % 7}" for n in range(50)), "a dog"]
    expected = model.encode(texts, layers)
    model.corpus.window_tokens, model.corpus.chunk_tokens = 20, 8
    shape = [3, None, 16] if layers == "all" else [None, 16]
    kept = []

    with VectorStore(tmp_path / "o", {"dtype": dtype}, resume=False, force=False) as store:
        for number, vectors in model.encode_iter(
            enumerate(texts), layers, with_ids=True, new_array=store.new_array
        ):
            kept.append(not isinstance(vectors, np.ndarray))
            if not kept[-1]:
                vectors = as_dtype(vectors, dtype, "")
            store.add(Sentence(number, texts[number]), vectors)
        settings = {"keys": "numbers", "with_text": True, "shape": shape, "dtype": dtype}
        parquet = pytest.importorskip("pyarrow.parquet")
        monkeypatch.setattr(FORMATS["parquet"], "group_bytes", 700)
        for kind, form in FORMATS.items():
            form.write(tmp_path / f"o.{kind}", store, settings, "{}")
        assert kept == [False, False, True, False]
    arrays, lines = read(tmp_path / "o.hdf5")[0], (tmp_path / "o.jsonl").read_text("utf-8")
    npz = np.load(tmp_path / "o.npz")
    for k, vectors in enumerate(expected):
        of_line = json.loads(lines.splitlines()[k])["vectors"]
        for of_format in (arrays[str(k)], npz[str(k)], np.reshape(of_line, vectors.shape)):
            np.testing.assert_allclose(of_format, vectors, atol=1e-6 if "32" in dtype else 5e-3)
    file = parquet.ParquetFile(tmp_path / "o.parquet")
    rows = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    assert rows == [2, 1, 1]
    column = file.read()["layer_1" if layers == "all" else "vectors"].to_pylist()
    for row, vectors in zip(column, expected, strict=True):
        wanted = vectors[1] if layers == "all" else vectors
        np.testing.assert_allclose(
            np.reshape(row, wanted.shape), wanted, atol=1e-6 if "32" in dtype else 5e-3
        )
