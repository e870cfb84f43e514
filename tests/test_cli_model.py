"""`bilm test` and `bilm dump` from end to end, and the old programs in sequence."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import bilm
from bilm.cli import main
from bilm.core.language_model import LanguageModel
from bilm.files.model_files import read_options
from bilm.files.weights import open_weights
from bilm.training.fine_tuning import load_pretrained
from tests.command_line import input_error
from tests.compare import contents

pytestmark = pytest.mark.eager

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("flag", "arguments", "read"),
    [
        ("test_prefix", ["test", "--save_dir={run}", "--test_prefix={text}", "--per_sentence={o}"],
         ["text.txt", "run/vocab.txt", "run/options.json", "run/train_log.jsonl",
          "run/checkpoint", "run/model.ckpt-*.index"]),
        ("save_dir", ["dump", "--save_dir={run}", "--outfile={o}"],
         ["run/vocab.txt", "run/options.json", "run/checkpoint", "run/train_log.jsonl"]),
        ("save_dir", ["dump", "--save_dir={run}", "--best", "--outfile={o}"],
         ["run/train_log.jsonl", "run/model.ckpt-*.index", "run/best/model.ckpt-*.index"]),
        ("input", ["embed", "{text}", "{o}", "--format=hdf5", "--model={pub}"],
         ["text.txt", "pub/model.hdf5", "pub/options.json", "pub/vocab.txt"]),
        ("input", ["score", "{text}", "--model={pub}", "--out={o}"], ["pub/vocab.txt"]),
        ("input", ["score", "{text}", "--model={run}", "--out={o}"],
         ["text.txt", "text.txt.tokenizer.json", "run/vocab.txt", "run/model.ckpt-*.data-*",
          "run/train_log.jsonl"]),
        ("input", ["substitutes", "{text}", "--model={run}", "--out={o}"],
         ["text.txt", "run/options.json"]),
        ("warm_up", ["score", "{folder}/x", "--model={run}", "--warm_up={text}", "--out={o}"],
         ["text.txt"]),
        ("files", ["vocab", "{folder}/*.txt", "--out={o}"], ["text.txt"]),
    ],
)  # fmt: skip
def test_no_command_overwrites_what_it_reads(trained, tmp_path, capsys, flag, arguments, read):
    """SECURITY.md: neither under another name of the file nor with --force."""
    for folder in ("run", "run/best"):
        shutil.copytree(trained[1], tmp_path / folder)
    shutil.copy(trained[0].heldout, tmp_path / "text.txt")
    shutil.copy(tmp_path / "text.txt", tmp_path / "x")
    (tmp_path / "text.txt.tokenizer.json").write_text('{"tokenizer": "mine"}')
    run, pub = str(tmp_path / "run"), str(tmp_path / "pub")
    assert main(["dump", "--save_dir", run, "--model_dir", pub]) == 0
    for name in read:
        name = next(tmp_path.glob(name)).relative_to(tmp_path)
        before = contents(tmp_path, "**/*")
        (tmp_path / "link").symlink_to(tmp_path / name)
        for out in (tmp_path / name, tmp_path / "run" / ".." / name, tmp_path / "link"):
            names = {"run": run, "pub": pub, "text": tmp_path / "text.txt", "folder": tmp_path}
            command = [part.format(o=out, **names) for part in arguments]
            error = input_error([*command, "--force"], capsys)
            by = rf" \({flag}\)" if str(name) == "text.txt" else ""
            assert re.search(rf"{name}' is an input{by}", error)
        (tmp_path / "link").unlink()
        assert contents(tmp_path, "**/*") == before


def test_a_model_folder_is_not_that_of_a_training_run(trained, tmp_path, capsys):
    _, save_dir = trained
    shutil.copytree(save_dir, tmp_path / "run")
    before = contents(tmp_path / "run")
    for folder in (save_dir, str(tmp_path / "run")):
        arguments = ["dump", "--save_dir", save_dir, "--model_dir", folder, "--force"]
        assert f"{str(folder)!r} is the folder of a training run" in input_error(arguments, capsys)
    assert contents(tmp_path / "run") == before


# Test


@pytest.mark.slow
def test_test_prints_perplexities_that_do_not_depend_on_the_batch(trained, capsys):
    text, save_dir = trained
    printed = []
    for batch_size in ("3", "256"):
        capsys.readouterr()
        assert main(["test", "--save_dir", save_dir, "--test_prefix", text.heldout,
                     "--batch_size", batch_size]) == 0  # fmt: skip
        lines = capsys.readouterr().out.splitlines()
        printed.append(lines)
    lines = [re.split(" {2,}", line) for line in printed[0]]
    assert lines.pop() == ["unknown tokens", "6.67%"]
    names = ["forward perplexity", "backward perplexity", "perplexity", "predictions"]
    assert [name for name, _ in lines] == names
    forward, backward, joint, n_predictions = (float(value) for _, value in lines)
    # Five sentences of six words and </S>, in each direction.
    assert n_predictions in (35, 70)
    assert joint == pytest.approx((forward * backward) ** 0.5, abs=1e-3)
    for other in printed[1:]:
        values = [float(line.split()[-1]) for line in other[:-1]]
        assert values == pytest.approx([forward, backward, joint, n_predictions], rel=1e-5)


# Dump


def test_dump_writes_a_model_folder(trained, tmp_path: Path):
    text, save_dir = trained
    folder, words = tmp_path / "elmo", Path(save_dir, "vocab.txt").read_bytes()
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(words))
    more = ["--vocab_file", str(tmp_path / "v.txt.gz")]
    assert main(["dump", "--save_dir", save_dir, "--model_dir", str(folder), *more]) == 0
    assert sorted(os.listdir(folder)) == ["model.hdf5", "options.json", "vocab.txt"]
    assert (folder / "vocab.txt").read_bytes() == words
    from bilm import BidirectionalLanguageModel

    BidirectionalLanguageModel(folder / "options.json", folder / "model.hdf5")
    kept = (folder / "vocab.txt").read_text(encoding="utf-8")
    assert kept == Path(text.vocabulary).read_text(encoding="utf-8")


def test_dump_in_half_precision(trained, tmp_path: Path):
    """The file is half the size; matrices are rounded to float16 but loaded as float32."""
    _, save_dir = trained
    for name, flags in (("whole", []), ("half", ["--dtype", "float16"])):
        folder = str(tmp_path / name)
        assert main(["dump", "--save_dir", save_dir, "--model_dir", folder, *flags]) == 0
    with h5py.File(tmp_path / "half" / "model.hdf5") as half:
        assert half["softmax/W"].dtype == half["char_embed"].dtype == np.float16
        assert half["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"].dtype == np.float32
        rounded = half["softmax/W"][:]
    with h5py.File(tmp_path / "whole" / "model.hdf5") as whole:
        np.testing.assert_array_equal(rounded, whole["softmax/W"][:].astype(np.float16))
    models = [bilm.ELMo.from_pretrained(tmp_path / name) for name in ("whole", "half")]
    vectors = [model.encode(["the cat sees it"])[0] for model in models]
    assert vectors[1].dtype == np.float32
    np.testing.assert_allclose(vectors[1], vectors[0], atol=5e-3)


def test_dump_with_a_softmax_of_integers(trained, tmp_path: Path, capsys):
    """Each row is rounded to 255 steps; all that reads a softmax reads it."""
    _, save_dir = trained
    flags = {"whole": [], "small": ["--dtype", "float16", "--softmax_dtype", "int8"]}
    for name, more in flags.items():
        folder = str(tmp_path / name)
        assert main(["dump", "--save_dir", save_dir, "--model_dir", folder, *more]) == 0
    with open_weights(tmp_path / "whole" / "model.hdf5") as whole:
        exact, bias = whole.numbers("softmax/W"), whole.numbers("softmax/b")
    with open_weights(tmp_path / "small" / "model.hdf5") as small:
        assert small.words() is not None
        rows, scales = small.numbers("softmax/W"), small.numbers("softmax/W_scales")
        np.testing.assert_array_equal(small.numbers("softmax/b"), bias)
    np.testing.assert_allclose(scales, np.abs(exact).max(axis=1) / 127, rtol=1e-6)
    assert np.all(np.abs(rows - exact) <= 0.5001 * scales[:, np.newaxis])
    with h5py.File(tmp_path / "small" / "model.hdf5") as file:
        assert file["softmax/W"].dtype == np.int8 and file["char_embed"].dtype == np.float16
    scores = [bilm.Predictor.from_pretrained(tmp_path / name).score(["the cat"]) for name in flags]
    np.testing.assert_allclose(scores[1][0].forward, scores[0][0].forward, atol=0.01)
    capsys.readouterr()
    assert main(["info", str(tmp_path / "small"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["predicts"] == len(bias) and facts["weights"]["other_datasets"] == []
    options = read_options(tmp_path / "small" / "options.json")
    options = dataclasses.replace(options, n_tokens_vocab=len(bias))
    model = LanguageModel(options, is_training=False, seed=None)
    vocabulary = bilm.Vocabulary(tmp_path / "small" / "vocab.txt")
    assert load_pretrained(tmp_path / "small", None, model, vocabulary) == (len(bias),) * 2
    np.testing.assert_array_equal(model.softmax.W.numpy(), rows)


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(trained, tmp_path: Path):
    _, save_dir = trained
    command = f"'{sys.executable}' -m bilm dump --save_dir '{save_dir}' --model_dir '{tmp_path}/m' "
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "Broken pipe" not in done.stderr


@pytest.mark.slow
def test_the_old_programs_work_from_end_to_end(text):
    def run(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "bin" / program), *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    save_dir, weights = str(text.folder / "new"), text.folder / "weights.hdf5"
    common = ("--save_dir", save_dir, "--vocab_file", text.vocabulary)
    run("train_elmo.py", *common, "--train_prefix", text.training, "--options_file", text.options)
    run("restart.py", *common, "--train_prefix", text.training, "--n_gpus", "1",
        "--batch_size", "4", "--n_train_tokens", "40", "--n_epochs", "1")  # fmt: skip
    printed = run("run_test.py", *common, "--test_prefix", text.heldout, "--batch_size", "8")
    assert "forward perplexity" in printed
    run("dump_weights.py", "--save_dir", save_dir, "--outfile", str(weights))
    assert weights.exists()
