"""The `bilm` command: help, usage, exit codes, and error messages."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from bilm.cli import SUBCOMMANDS, main, make_parser
from tests.command_line import input_error, train_arguments

ROOT = Path(__file__).parent.parent


# Help and usage


def test_help_names_every_subcommand(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    for name in SUBCOMMANDS:
        summary = (make_parser(name).description or "").partition("\n")[0].rstrip(".")
        assert f" {name} {summary} " in " ".join(printed.split())


@pytest.mark.parametrize(
    "words, name", [("neighbors play", "neighbours"), ("encode a.txt", "embed"), ("help", "--help")]
)
def test_other_names_of_subcommands(words, name, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert f"did you mean `bilm {name}`?" in capsys.readouterr().err


def test_a_model_is_named_in_two_ways(capsys):
    assert main(["info", "english"]) == main(["info", "--model", "english"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    with pytest.raises(SystemExit, match="2"):
        main(["info", "english", "--model", "chinese"])
    assert "name one model, got english and --model chinese" in capsys.readouterr().err


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


# Failures


def test_a_file_that_may_not_be_written_is_an_error_of_one_line(text, capsys):
    (text.folder / "file").write_text("", encoding="utf-8")
    error = input_error(train_arguments(text, str(text.folder / "file" / "model")), capsys)
    assert "Not a directory" in error and "Errno" not in error


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
