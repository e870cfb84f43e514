"""The messages of the mistakes that people make most, word for word: fixtures/messages.txt.

This is the only place where whole messages are checked. Elsewhere tests check the type of an error,
and its place or a few words.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import bilm
import bilm.analysis
from bilm.cli import main
from tests.scored_models import KINDS, Model
from tests.small_models import write_small_model
from tests.small_runs import VOCABULARY, small_options

pytestmark = pytest.mark.eager

FILES: dict[str, str | bytes] = {
    "text.txt": "the cat sees a dog\nthe dog runs\n" * 9,
    "vocab.txt": "\n".join(VOCABULARY) + "\n",
    "lower.txt": "<s>\n</s>\nthe\n",
    "short.txt": "<S>\n</S>\nthe\n",
    "keys.txt": "a\nb\na\n",
    "empty.txt": "",
    "latin.txt": b"the caf\xe9\n",
    "binary.txt": b"\x89PNG\r\n\x1a\n\0\0",
    "options.json": "{}",
    "list.json": "[1]",
    "bad.json": '{"lstm": }',
    "cut.zip": b"PK\x03\x04 cut off",
    "nothing/text.txt": "",
    "several/a.hdf5": "",
    "several/b.hdf5": "",
    "pair/model.hdf5": "",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a character model (elmo), a word model without its vocabulary (words), a
    training folder (run), and `FILES`."""
    folder = tmp_path_factory.mktemp("messages")
    write_small_model(folder / "elmo", "as_published")
    write_small_model(folder / "words", "words")
    kind, changes = KINDS["one_layer_tied"]
    Model(folder / "run", kind, **changes)
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture(autouse=True)
def place(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")


@functools.cache
def elmo():
    return bilm.ELMo.from_pretrained("elmo")


@functools.cache
def predictor():
    return bilm.Predictor.from_pretrained("run")


@functools.cache
def layer():
    return bilm.BidirectionalLanguageModel("elmo/options.json", "elmo/weights.hdf5")


@functools.cache
def occurrences():
    sample = bilm.analysis.sample_uses(["the cat sees", "a cat", "cat"], ["cat"])
    return bilm.analysis.Occurrences.encoded(elmo(), sample)


def vocabulary():
    return bilm.load_vocab("vocab.txt")


def options(lstm=(), cnn=(), **changes):
    char_cnn = {"activation": "relu", "filters": [[1, 4]], "embedding": {"dim": 4}} | dict(cnn)
    values = {"lstm": {"dim": 20, "projection_dim": 8} | dict(lstm), "char_cnn": char_cnn}
    return bilm.Options.from_dict(values | changes, training=True, source="options.json")


def train(settings=(), **changes):
    """Train with changed options, and with other arguments than these."""
    arguments = {"n_gpus": 1, "tf_save_dir": "new", "tf_log_dir": None} | dict(settings)
    data = bilm.LMDataset("text.txt", vocabulary())
    bilm.train(small_options() | changes, data, **arguments)


def table():
    """The rows of fixtures/messages.txt by their group: a call in Python, or a command, and its
    message."""
    groups = {}
    lines = iter(
        (Path(__file__).parent / "fixtures" / "messages.txt").read_text("utf-8").split("\n")
    )
    for line in lines:
        if line.startswith("# "):
            rows = groups[line[2:]] = []
        elif line:
            rows.append((line, next(lines).removeprefix("    ")))
    return groups


TABLE = table()
ROWS = [row for rows in TABLE.values() for row in rows]


@pytest.mark.parametrize(
    ("call", "message"), [row for row in ROWS if not row[0].startswith("bilm ")]
)
def test_calls(call, message):
    with pytest.raises((bilm.InputError, FileNotFoundError)) as caught:
        eval(call, globals() | {"keras": keras, "np": np})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("command", "message"), [row for row in ROWS if row[0].startswith("bilm ")]
)
def test_commands(capsys, command, message):
    """Only usage errors name the subcommand."""
    try:
        code = main(shlex.split(command)[1:])
    except SystemExit as end:
        code = end.code
    (error,) = (line for line in capsys.readouterr().err.splitlines() if "error: " in line)
    assert (code, error) == (1 if message.startswith("bilm: ") else 2, message)


@pytest.mark.slow
def test_wrong_paths_and_flags_are_reported_before_tensorflow_is_imported():
    program = (
        "import json, sys\n"
        "from bilm.cli import main\n"
        "for words in json.load(sys.stdin):\n"
        "    try:\n        assert main(words) == 1\n"
        "    except SystemExit as end:\n        assert end.code == 2\n"
        "    assert not {'tensorflow', 'keras'} & set(sys.modules), words\n"
    )
    rows = [*TABLE["Usage of commands"], *TABLE["Commands, before TensorFlow is imported"]]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        input=json.dumps([shlex.split(command)[1:] for command, _ in rows]),
        env={**os.environ, "PYTHONPATH": str(Path(bilm.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
