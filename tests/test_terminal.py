"""Control characters in names from files do not reach the terminal."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import zipfile

import h5py
import pytest

from bilm.cli import main
from bilm.terminal import note, printable, warnings_on_stderr
from tests.small_models import write_small_model

# Clear the screen, set the title, clear by a one-character CSI, change the text direction.
EVIL = "\x1b[2J\x1b]0;x\x07\x9b2J\u202e\u061c"
SHOWN = r"\u001b[2J\u001b]0;x\u0007\u009b2J\u202e\u061c"


def test_control_characters_are_shown_as_escapes():
    assert printable(f"a{EVIL}b\ud812\r") == rf"a{SHOWN}b\ud812\u000d"
    plain = "Zürich \t 東京 \n \N{GRINNING FACE} क्\u200dष"
    assert printable(plain) == plain


def test_loggers_that_are_created_while_output_is_hidden_can_write():
    code = (
        "import logging\n"
        "from bilm.terminal import python_only_on_stderr\n"
        "with python_only_on_stderr():\n"
        "    handler = logging.StreamHandler()\n"
        "logging.getLogger().addHandler(handler)\n"
        "logging.warning('retracing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "retracing\n"


def test_long_messages_are_cut(capsys):
    note("a" * 2000)
    note("b" * 1_000_000)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "a" * 2000
    assert second == "b" * 2000 + " ... (998,000 characters more)"


def test_usage_errors_are_cut_and_shown_plainly(capsys):
    with pytest.raises(SystemExit):
        main(["train", f"--n_epochs={EVIL}{'9' * 100_000}"])
    message = capsys.readouterr().err.rpartition("error: ")[2]
    assert message.startswith("argument --n_epochs: must be an integer >= 1, got '")
    assert len(message) < 2200 and EVIL[0] not in message and EVIL[-1] not in message


def dataset(folder, model):
    with h5py.File(model.files[1], "a") as file:
        file[f"CNN/{EVIL}"] = 1.0
    return ["info", str(folder)], 1


def other_dataset(folder, model):
    with h5py.File(model.files[1], "a") as file:
        file[f"other/{EVIL}"] = 1.0
    return ["info", str(folder)], 0


def option_key(folder, model):
    options = json.dumps(model.options | {EVIL: 1})
    (folder / "options.json").write_text(options, encoding="utf-8")
    return ["info", str(folder)], 0


def zip_member(folder, model):
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a", "b"):
            archive.writestr(f"{EVIL}{name}.hdf5", "")
    return ["info", str(path)], 1


def file_name(folder, model):
    os.rename(folder / "weights.hdf5", folder / f"{EVIL}.hdf5")
    return ["info", str(folder)], 0


@pytest.mark.parametrize("case", [dataset, other_dataset, option_key, zip_member, file_name])
def test_names_from_files_at_the_terminal(tmp_path, capsys, case):
    arguments, code = case(tmp_path, write_small_model(tmp_path, "as_published"))
    assert main(arguments) == code
    shown = capsys.readouterr()
    both = shown.out + shown.err
    assert "[2J" in both
    assert not set(both) & set("\x1b\x07\x9b\u202e")


def test_a_subcommand_within_another_shows_a_warning_once(capsys):
    with warnings_on_stderr("bilm demo"), warnings_on_stderr("bilm vocab"):
        logging.getLogger("bilm").warning("%s is not tokenised", "a.txt")
    assert capsys.readouterr().err == "bilm demo: warning: a.txt is not tokenised\n"
