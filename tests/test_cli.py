"""The `bilm` command: help, usage, exit codes, and error messages."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.cli import SUBCOMMANDS, main, make_parser
from tests.command_line import input_error, train_arguments, usage_error

ROOT = Path(__file__).parent.parent


# Help and usage


def test_help_names_every_subcommand(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    for name in SUBCOMMANDS:
        summary = (make_parser(name).description or "").partition("\n")[0].rstrip(".")
        assert f" {name} {summary} " in " ".join(printed.split())


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_fits_a_terminal_and_its_examples_can_be_pasted(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = make_parser(name, f"bilm {name}").format_help()
    usage, _, rest = text.partition("\n\n")  # argparse does not break a group of the usage
    assert usage.startswith("usage: ") and max(map(len, rest.splitlines())) <= 80
    examples = [
        shlex.split(line.partition("<")[0], comments=True)
        for line in rest.replace("\\\n", "").splitlines()
        if line.startswith("  bilm ")
    ]
    assert examples
    for _, subcommand, *arguments in examples:
        make_parser(subcommand).parse_args(arguments)


def test_without_a_subcommand_help_is_printed_and_the_code_is_2(capsys):
    assert main([]) == 2
    assert "usage: bilm" in capsys.readouterr().err


def test_unknown_subcommand(capsys):
    error = usage_error(["tarin"], capsys)
    assert error.startswith(
        "bilm: error: argument SUBCOMMAND: invalid choice: 'tarin' (choose from "
    )


def test_abbreviated_flags_are_refused(text, capsys):
    arguments = [*train_arguments(text, "model"), "--n_ep", "1"]
    assert usage_error(arguments, capsys) == (
        "bilm train: error: unrecognized arguments: --n_ep 1; did you mean --n_epochs?\n"
        "See `bilm train --help`.\n"
    )


def test_a_pattern_that_the_shell_expanded(text, capsys):
    files = [str(text.folder / f"train-{k}.txt") for k in (0, 1)]
    arguments = ["train", "--save_dir", "m", "--vocab_file", "v", "--train_prefix", *files]
    assert f"unrecognized arguments: {files[1]}; quote a pattern ('text/*.txt')" in usage_error(
        arguments, capsys
    )


def test_dump_needs_no_vocabulary_without_softmax_and_folder(capsys):
    arguments = ["dump", "--save_dir", "m", "--outfile", "w.hdf5", "--vocab_file", "v.txt"]
    error = usage_error([*arguments, "--without_softmax"], capsys)
    assert "--vocab_file with --outfile is for the softmax" in error


@pytest.mark.parametrize(
    ("flag", "value", "rule"),
    [
        ("--batch_size", "2.5", "must be an integer >= 1, got '2.5'"),
        ("--seed", "-1", "must be an integer >= 0, got '-1'"),
        ("--learning_rate", "nan", "must be a number > 0, got 'nan'"),
        ("--precision", "float16", "invalid choice: 'float16'"),
    ],
)
def test_values_of_flags_are_checked(flag, value, rule, text, capsys):
    arguments = train_arguments(text, "model", f"{flag}={value}")
    assert rule in usage_error(arguments, capsys)


# Failures


def test_a_file_that_may_not_be_written_is_an_error_of_one_line(text, capsys):
    (text.folder / "file").write_text("", encoding="utf-8")
    error = input_error(train_arguments(text, str(text.folder / "file" / "model")), capsys)
    assert "Not a directory" in error and "Errno" not in error


def test_names_that_no_file_can_have(tmp_path, text, capsys):
    before = sorted(os.listdir(tmp_path))
    error = "bilm: error: The name of a file or folder must be text or a path, got ''."
    assert input_error(["vocab", text.training, "--out", ""], capsys) == error
    assert input_error(["embed", text.heldout, "", "--model", "m"], capsys) == error
    assert sorted(os.listdir(tmp_path)) == before


def test_a_bug_keeps_its_traceback(monkeypatch, text):
    def broken(args):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("bilm.cli.train.run", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(train_arguments(text, "model"))


def test_an_interrupt_ends_with_130(monkeypatch, text, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("bilm.cli.train.run", interrupted)
    assert main(train_arguments(text, "model")) == 130
    assert capsys.readouterr().err == "\nbilm: interrupted.\n"


@pytest.mark.slow
def test_wrong_paths_and_flags_are_reported_before_tensorflow_is_imported(text):
    train = train_arguments(text, "m")
    commands = [
        ([*train, "--vocab_file", "none.txt"], "The vocab file 'none.txt' does not exist."),
        ([*train, "--train_prefix", "none-*"], "No file matches 'none-*'."),
        ([*train, "--heldout_prefix", "none"], "No file matches 'none'."),
        ([*train, "--patience", "2"], "--patience requires --heldout_prefix"),
        ([*train, "--heldout_every", "9steps"], "--heldout_every requires --heldout_prefix"),
        ([*train, "--time", "2h", "--n_epochs", "2"], "--time replaces --n_epochs"),
        ([*train, "--time", "soon"], "--time: must be a duration such as 30min or 2h, got 'soon'"),
        ([*train, "--heldout_every", "week"], "--heldout_every: must be epoch, 2epochs, 500steps"),
        ([*train, "--save_dir", "vocab.txt"], "'vocab.txt' must be a folder, got a file."),
        (["test", "--save_dir", "bare", "--test_prefix", text.heldout], "file 'bare/options.json'"),
        (["dump", "--save_dir", "run", "--outfile", "none/w.hdf5"], "The folder 'none' to write"),
        (["dump", "--save_dir", "run", "--outfile", "vocab.txt"], "'vocab.txt' would be overwr"),
        (["senses", "cat", "--model", "none", "--text", text.heldout], "model 'none' does not ex"),
        (["report", text.heldout, "--model", "none"], "The model 'none' does not exist."),
        (["export", "run", "vocab.txt"], "'vocab.txt' must be a folder"),
        (["convert", "none", "m"], "The model 'none' does not exist."),
        (["plot", "none"], "There is no training log at 'none'."),
        (["restart", "--save_dir", "none", "--train_prefix", text.training], "'none/options.json'"),
        (["test", "--save_dir", "none", "--test_prefix", text.heldout], "'none/options.json'"),
        (["dump", "--save_dir", "none", "--model_dir", "m"], "The options file 'none/options.json"),
        (["info", "orginal"], "The model 'orginal' does not exist. Did you mean 'original'?"),
        (["embed", text.heldout, "o.hdf5", "--model", "none"], "The model 'none' does not exist."),
        (["embed", "none", "o.hdf5", "--model", "m"], "The text file 'none' does not exist."),
        (["embed", "a", "o.npz", "--model", "m", "--resume", "--force"], "choose one"),
    ]
    (text.folder / "bare").mkdir()
    (text.folder / "run").mkdir()
    (text.folder / "run" / "options.json").write_text("{}", encoding="utf-8")
    code = (
        "import sys, json\n"
        "from bilm.cli import main\n"
        "for arguments in json.load(sys.stdin):\n"
        "    try:\n        assert main(arguments) == 1\n"
        "    except SystemExit as ended:\n        assert ended.code == 2\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps([arguments for arguments, _ in commands]),
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=text.folder, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    for error, (_, message) in zip(errors, commands, strict=True):
        assert message in error
