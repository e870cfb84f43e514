"""Shared by the command-line tests: a small text, model options, and checks of errors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from bilm.cli import main

WORDS = ("the", "cat", "dog", "bird", "sees", "hears", "finds", "a", "small", "old", ".")
OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 4]],
        "max_characters_per_token": 12,
        "n_characters": 261,
        "n_highway": 1,
    },
    "lstm": {"dim": 8, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True},
    "dropout": 0.1,
    "n_epochs": 1,
    "batch_size": 4,
    "unroll_steps": 5,
    "n_negative_samples_batch": 6,
}


@dataclass(frozen=True)
class Text:
    """Paths of a small text, its vocabulary and a model's options."""

    folder: Path
    vocabulary: str
    training: str
    heldout: str
    options: str


def make_text(folder: Path) -> Text:
    sentences = [
        f"{a} {n} {v} {b} {m} ."
        for a in ("the", "a")
        for n in ("cat", "dog", "bird")
        for v in ("sees", "hears", "finds")
        for b in ("small", "old")
        for m in ("cat", "unknown")
    ]
    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    contents = {"train-0.txt": sentences[::2], "train-1.txt": sentences[1::2],
                "heldout.txt": sentences[:5], "vocab.txt": vocabulary}  # fmt: skip
    for name, lines in contents.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    return Text(
        folder,
        str(folder / "vocab.txt"),
        str(folder / "train-*.txt"),
        str(folder / "heldout.txt"),
        str(folder / "options.json"),
    )


def train_arguments(text: Text, save_dir: str, *more: str) -> list[str]:
    return ["train", "--save_dir", save_dir, "--vocab_file", text.vocabulary,
            "--train_prefix", text.training, "--options_file", text.options, *more]  # fmt: skip


def train_model(folder: Path) -> tuple[Text, str]:
    """Train a model on a small text; tests that share these must not change them."""
    text = make_text(folder)
    save_dir = str(folder / "model")
    assert main(train_arguments(text, save_dir, "--batch_size=12")) == 0  # eight steps
    return text, save_dir


def usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command with wrong usage; return its standard error."""
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    return capsys.readouterr().err


def input_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that fails because of its input; return its one-line error message."""
    capsys.readouterr()
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    errors = [line for line in captured.err.splitlines() if "error: " in line]
    assert len(errors) == 1 and "Traceback" not in captured.err
    return errors[0]
