"""A fresh install: the requirements, the version, and a command that starts quickly."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import bilm

ROOT = Path(__file__).parent.parent
LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def setup_keywords() -> dict[str, object]:
    """The arguments of setup() that are literals."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    setup = next(c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "setup")
    literal = {}
    for keyword in setup.keywords:
        try:
            literal[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            continue
    return literal


def test_setup_says_what_the_package_needs():
    keywords = setup_keywords()
    assert keywords["name"] == "bilm-keras"
    assert keywords["python_requires"] == ">=3.10"
    assert keywords["install_requires"] == [
        "tensorflow>=2.18", "keras>=3.12,<4", "numpy>=1.26.4", "h5py>=3.11", "pooch>=1.8",
        "rich>=13", "wrapt>=1.14",
    ]  # fmt: skip
    assert keywords["entry_points"] == {"console_scripts": ["bilm=bilm.cli:main"]}


def test_setup_reads_the_version_without_importing_the_package():
    code = "import runpy, sys; sys.argv = ['setup.py', '--version']; runpy.run_path('setup.py'); "
    code += "sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == bilm.__version__


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["embed", "--help"], ["models"], ["info", "english"]]
)
def test_commands_that_answer_at_once_import_nothing_heavy(arguments):
    """Nor does a subcommand import the others."""
    heavy = {"tensorflow", "keras", "bilm.cli.train"}
    heavy |= set() if arguments[0] == "info" else {"numpy", "h5py"}
    code = (
        "import sys\nfrom bilm.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"heavy = {heavy!r} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_program_of_2018_trains_its_model():
    program = runpy.run_path(str(ROOT / "bin" / "train_elmo.py"))
    given = ["--save_dir", "x", "--vocab_file", "v"]
    expected = ["--preset", "original", "--recipe", "original", *given]
    assert program["with_defaults"](given) == expected
    for chosen in (["--preset", "tiny"], ["--options_file=o.json"], ["--init_from", "elmo"]):
        assert program["with_defaults"]([*given, *chosen]) == [*given, *chosen]


@pytest.mark.parametrize("program", ["train_elmo", "restart", "run_test", "dump_weights"])
def test_programs_in_bin_are_doors_to_verbs(program):
    done = subprocess.run(
        [sys.executable, str(ROOT / "bin" / f"{program}.py"), "--help"],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {program}.py [-h]")


def test_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "bilm", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"bilm {bilm.__version__}\n")


@pytest.mark.slow
@pytest.mark.parametrize("level", ["", "3"])
def test_tensorflow_is_imported_without_its_greetings(level):
    code = (
        "from bilm.terminal import import_tensorflow as load; load(); load()\n"
        "from bilm import ELMo; ELMo.from_pretrained('english').encode(['a word'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != LEVEL}
    environment |= {LEVEL: level} if level else {}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_constraints_of_the_oldest_versions():
    """`.ci/run oldest` installs each requirement at its lower bound."""
    program = ROOT / ".ci" / "lower_bounds.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert {"tensorflow==2.18", "numpy==1.26.4", "keras==3.12", "rich==13"} <= set(found)
    assert "ray==2.60" in found and len({line.partition("==")[0] for line in found}) == len(found)
