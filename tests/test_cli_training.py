"""`bilm train` and `bilm restart` from end to end, on a small text."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from bilm.cli import main, make_parser
from bilm.cli.training_run import override
from bilm.core.options import Options, preset
from bilm.training import load_options_latest_checkpoint, train
from bilm.training.state import read_state
from tests.command_line import OPTIONS, input_error, train_arguments

pytestmark = pytest.mark.eager

# Train


def test_train_leaves_a_model_and_its_vocabulary(trained):
    text, save_dir = trained
    names = os.listdir(save_dir)
    assert {"checkpoint", "options.json", "vocab.txt"} <= set(names)
    kept = Path(save_dir, "vocab.txt").read_text(encoding="utf-8")
    assert kept == Path(text.vocabulary).read_text(encoding="utf-8")
    options = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    assert options["n_tokens_vocab"] == 14
    # Counted by the program: 72 sentences of 6 words and </S>.
    assert options["n_train_tokens"] == 504


def test_the_options_of_a_run_have_the_size_of_its_corpus(trained, tmp_path, capsys):
    text, save_dir = trained
    stored = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    (tmp_path / "options.json").write_text(json.dumps(stored | {"n_train_tokens": 40}), "utf-8")
    arguments = train_arguments(text, str(tmp_path / "m"))
    arguments[arguments.index(text.options)] = str(tmp_path / "options.json")
    assert main(arguments) == 0
    warning = "options.json: n_train_tokens is 40, but --train_prefix has 504 words and sentence"
    assert warning in capsys.readouterr().err


@pytest.mark.slow
def test_train_prints_the_model_and_shows_progress(text, capsys):
    save_dir = str(text.folder / "my model")
    arguments = train_arguments(text, save_dir, "--n_train_tokens=40", "--n-epochs", "2")
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("trained 4 steps; the model is ")
    assert "step 4/4  perplexity " in captured.err and "(sampled)" in captured.err
    assert "  epoch 2\n" in captured.err
    assert f"bilm test --save_dir '{save_dir}' --test_prefix HELDOUT\n" in captured.err


def precision_of(save_dir: str) -> str:
    _, checkpoint = load_options_latest_checkpoint(save_dir)
    return read_state(checkpoint).precision


@pytest.mark.slow
def test_the_default_recipe_takes_the_precision_of_the_processor(text, monkeypatch):
    def arguments(name: str, *more: str) -> list[str]:
        return ["train", "--save_dir", str(text.folder / name), "--vocab_file", text.vocabulary,
                "--train_prefix", text.training, "--preset", "tiny", "--n_epochs", "1",
                "--n_train_tokens", "700", *more]  # fmt: skip

    monkeypatch.setattr("bilm.cli.train.fast_precision", lambda: "bfloat16")
    for name, more, expected in (
        ("default", (), "bfloat16"),
        ("original", ("--recipe", "original", "--batch_size", "32"), "float32"),
    ):
        assert main(arguments(name, *more)) == 0
        assert precision_of(str(text.folder / name)) == expected
    # The same command still resumes the run on a CPU with another default precision.
    monkeypatch.setattr("bilm.cli.train.fast_precision", lambda: "float32")
    assert main(arguments("default")) == 0


@pytest.mark.slow
def test_flags_override_the_options_file(text):
    save_dir = str(text.folder / "new")
    more = ("--n_train_tokens", "12", "--batch-size", "2", "--learning_rate", "0.05")
    assert main(train_arguments(text, save_dir, *more)) == 0
    options = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    assert (options["batch_size"], options["learning_rate"]) == (2, 0.05)
    assert options["n_train_tokens"] == 12


def test_sigint_reaches_a_run_that_a_script_started_in_the_background(text, monkeypatch, capsys):
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("bilm.training.train", interrupted)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert main(train_arguments(text, str(text.folder / "new"))) == 130
    assert "interrupted. No checkpoint had been written yet." in capsys.readouterr().err


def test_train_refuses_a_folder_with_a_model(trained, capsys):
    text, save_dir = trained
    before = sorted(os.listdir(save_dir))
    error = input_error(train_arguments(text, save_dir, "--n_epochs", "2"), capsys)
    assert error.startswith(f"bilm: error: {save_dir!r} has a trained model of another run, ")
    assert "n_epochs is 1 there, 2 here" in error
    assert f"`bilm restart --save_dir {save_dir}`" in error
    assert "another --save_dir" in error
    assert sorted(os.listdir(save_dir)) == before


def test_an_options_file_with_another_length_is_refused(trained, tmp_path, capsys):
    text, save_dir = trained
    path = tmp_path / "options.json"
    path.write_text(json.dumps(OPTIONS | {"n_epochs": 4}), encoding="utf-8")
    arguments = train_arguments(text, save_dir, "--batch_size=12")
    arguments[arguments.index(text.options)] = str(path)
    assert "n_epochs is 1 there, 4 here" in input_error(arguments, capsys)


def test_restart_keeps_keys_that_are_not_options(trained, tmp_path):
    text, save_dir = trained
    shutil.copytree(save_dir, tmp_path / "run")
    path = tmp_path / "run" / "options.json"
    options = json.loads(path.read_text(encoding="utf-8"))
    options |= {"mine": [1], "lstm": options["lstm"] | {"note": "x"}}
    path.write_text(json.dumps(options), encoding="utf-8")
    arguments = ["restart", "--save_dir", str(tmp_path / "run"), "--train_prefix", text.training]
    assert main([*arguments, "--n_epochs", "2"]) == 0
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written == options | {"n_epochs": 2}


def test_train_refuses_another_vocabulary_beside_it(text, capsys):
    save_dir = text.folder / "new"
    save_dir.mkdir()
    (save_dir / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nother\n", encoding="utf-8")
    error = input_error(train_arguments(text, str(save_dir)), capsys)
    assert "must have the 4 words of" in error and str(save_dir / "vocab.txt") in error


@pytest.mark.slow
def test_train_with_few_words_uses_the_full_softmax_and_says_so(text, capsys):
    Path(text.options).write_text(
        json.dumps(OPTIONS | {"n_negative_samples_batch": 14}), encoding="utf-8"
    )
    save_dir = str(text.folder / "new")
    assert main(train_arguments(text, save_dir, "--n_train_tokens=20")) == 0
    error = capsys.readouterr().err
    assert "has 14 words, not more than the 14" in error
    assert "  perplexity " in error and "sampled)" not in error
    options = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    assert options["sample_softmax"] is False


def test_train_of_one_direction_and_of_words(text, capsys):
    options = {key: value for key, value in OPTIONS.items() if key != "char_cnn"}
    Path(text.options).write_text(json.dumps(options | {"bidirectional": False}), encoding="utf-8")
    save_dir = str(text.folder / "new")
    assert main(train_arguments(text, save_dir, "--n_train_tokens=20")) == 0
    capsys.readouterr()
    assert main(["test", "--save_dir", save_dir, "--test_prefix", text.heldout]) == 0
    printed = capsys.readouterr()
    names = [line.split()[0] for line in printed.out.splitlines()]
    assert names == ["forward", "predictions", "unknown"]
    n = 5 * 7  # five sentences of six tokens and </S>
    assert f"scoring {n}/{n} predictions" in printed.err


def test_an_interrupt_tells_how_to_resume(trained, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("bilm.training.train", interrupt)
    text, save_dir = trained
    assert main(["restart", "--save_dir", save_dir, "--train_prefix", text.training]) == 130
    said = capsys.readouterr().err
    assert f"The last checkpoint is in {save_dir}; the same command resumes the run." in said


# Restart


def test_restart_has_the_flags_of_the_original_program_and_the_rate():
    parser = make_parser("restart")
    flags = set(re.findall(r"--\w+", parser.format_usage()))
    names = "save_dir vocab_file train_prefix n_gpus batch_size n_train_tokens n_epochs"
    assert flags == {f"--{name}" for name in (*names.split(), "learning_rate")}


@pytest.mark.slow
def test_restart_trains_further(text, capsys):
    save_dir = str(text.folder / "new")
    assert main(train_arguments(text, save_dir, "--n_train_tokens=40")) == 0
    before = Path(save_dir, "checkpoint").read_text(encoding="utf-8")
    arguments = ["restart", "--save_dir", save_dir, "--train_prefix", text.training]
    assert main([*arguments, "--n_train_tokens", "60", "--n_epochs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-4].startswith("trained 1 step; ")
    assert Path(save_dir, "checkpoint").read_text(encoding="utf-8") != before


def test_restart_of_a_run_that_is_done(trained, capsys):
    text, save_dir = trained
    arguments = ["restart", "--save_dir", save_dir, "--train_prefix", text.training]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("all steps of this run are done; the model is ")
    assert "More --n_epochs train it further." in captured.err


def test_epochs_replace_the_steps_of_a_run():
    options = Options.from_dict(preset("tiny") | {"n_steps": 100}, training=True)
    changed = override(options, argparse.Namespace(n_epochs=3))
    assert (changed.n_epochs, changed.n_steps) == (3, None)
    assert override(options, argparse.Namespace(n_epochs=None)) == options


def test_a_run_that_is_done_is_of_its_text(trained, capsys):
    text, save_dir = trained
    other = text.folder / "other.txt"
    other.write_text("a b\n" * 50, encoding="utf-8")
    arguments = ["restart", "--save_dir", save_dir, "--train_prefix", str(other)]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "cannot resume reading the corpus: the corpus has other files or sizes." in captured.err


@pytest.mark.slow
def test_restart_takes_an_original_checkpoint(tmp_path: Path, golden: Path, capsys):
    save_dir = tmp_path / "model"
    save_dir.mkdir()
    for path in (golden / "training" / "characters" / "start").iterdir():
        (save_dir / path.name).write_bytes(path.read_bytes())
    arguments = ["restart", "--save-dir", str(save_dir), "--vocab-file", str(golden / "vocab.txt"),
                 "--train-prefix", str(golden / "corpus" / "*.txt"), "--n_epochs", "1"]  # fmt: skip
    assert main(arguments) == 0
    record = read_state(load_options_latest_checkpoint(save_dir)[1])
    assert record.done > 0 and (record.tokens, record.passes) == (None, None)
    kept = (save_dir / "vocab.txt").read_text(encoding="utf-8")
    assert kept == (golden / "vocab.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_held_out_text_is_measured_every_epoch_by_default(text, tmp_path, capsys):
    arguments = train_arguments(text, str(tmp_path / "m"), "--heldout_prefix", text.heldout)
    assert main([*arguments, "--batch_size=12"]) == 0
    assert "best held-out perplexity" in capsys.readouterr().out


def test_held_out_files_that_are_training_text_are_counted(text, tmp_path, capsys):
    flags = ["--heldout_prefix", text.training, "--n_train_tokens=20"]
    assert main(train_arguments(text, str(tmp_path / "m"), *flags)) == 0
    assert "Warning: --heldout_prefix has 2 files of the training text." in capsys.readouterr().err


def test_the_vocabulary_of_the_best_model_is_the_one_that_was_read(text, tmp_path, monkeypatch):
    def train_after_a_change(*arguments, **settings):
        words = Path(text.vocabulary).read_text(encoding="utf-8").split("\n")
        Path(text.vocabulary).write_text("\n".join(sorted(words)), encoding="utf-8")
        return train(*arguments, **settings)

    monkeypatch.setattr("bilm.training.train", train_after_a_change)
    before = Path(text.vocabulary).read_text(encoding="utf-8")
    arguments = train_arguments(text, str(tmp_path / "m"), "--heldout_prefix", text.heldout)
    assert main([*arguments, "--n_train_tokens=20"]) == 0
    for folder in (tmp_path / "m", tmp_path / "m" / "best"):
        assert (folder / "vocab.txt").read_text(encoding="utf-8") == before


@pytest.mark.slow
def test_a_run_that_is_done_is_measured_on_a_new_held_out_text(text, tmp_path, capsys):
    arguments = train_arguments(text, str(tmp_path / "m"), "--n_train_tokens=20")
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments, "--heldout_prefix", text.heldout]) == 0
    done, best = capsys.readouterr().out.splitlines()
    assert done.startswith("all steps of this run are done; ")
    assert best.startswith("best held-out perplexity ") and best.endswith(" after step 1")
