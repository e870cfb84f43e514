"""What is distributed: requirements, licences, README, and a command that starts quickly."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import bilm

ROOT = Path(__file__).parent.parent
LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def run_setup() -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of setup(), and the names in setup.py."""
    with mock.patch("setuptools.setup") as setup:
        names = runpy.run_path(str(ROOT / "setup.py"))
    return setup.call_args.kwargs, names


def test_setup_says_what_the_package_needs():
    keywords, _ = run_setup()
    assert keywords["name"] == "bilm-keras"
    assert keywords["python_requires"] == ">=3.10"
    assert keywords["install_requires"] == [
        "tensorflow>=2.18", "keras>=3.12,<4", "numpy>=1.26.4", "h5py>=3.11", "pooch>=1.8",
        "rich>=13", "wrapt>=1.14",
    ]  # fmt: skip
    assert keywords["entry_points"] == {"console_scripts": ["bilm=bilm.cli:main"]}


def test_windows_is_refused_with_the_reason():
    code = "import sys, wrapt; sys.platform = 'win32'; import bilm"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "ImportError: bilm locks files with fcntl, which Windows lacks: use WSL 2.\n"
    )


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("bilm em", ["embed "]),
        ("bilm embed --pool", ["--pooling "]),
        ("bilm embed --pooling m", ["mean", "max"]),
    ],
)
def test_shells_complete_subcommands_flags_and_values(line, completions, tmp_path):
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    environment = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    environment |= {
        "IFS": "\n",
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "bilm"]
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=True)
    assert answer.read_text().splitlines() == completions


def test_setup_reads_the_version_without_importing_the_package():
    code = "import runpy, sys; sys.argv = ['setup.py', '--version']; runpy.run_path('setup.py'); "
    code += "sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == bilm.__version__


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["embed", "--help"], ["models"]])
def test_commands_that_answer_at_once_import_nothing_heavy(arguments):
    """Nor does a subcommand import the others."""
    heavy = {"tensorflow", "keras", "numpy", "h5py", "bilm.cli.train"}
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


def licences() -> dict[str, str]:
    """The table of NOTICE: folders and their licences."""
    rows = re.findall(r"^(\S+/) +(\S+) ", (ROOT / "NOTICE").read_text("utf-8"), re.MULTILINE)
    return dict(rows)


def test_data_and_pictures_have_a_licence():
    """Every file that is not source has a row in NOTICE, and every row has files."""
    folders = ("benchmarks", "bilm", "bin", "docs", "tests", "usage_examples")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    source = {".py", ".pyc", ".md", ".c", ".css", ".js", ".html", ".ipynb", ".typed"}
    tables = ("published.json", "languages.json")  # source, too
    paths = (path for path in paths if path.suffix not in source and path.name not in tables)
    data = [path.relative_to(ROOT).as_posix() for path in paths]
    assert len(data) > 50
    for name in data:
        assert any(name.startswith(folder) for folder in licences()), name
    for folder in licences():
        assert any(name.startswith(folder) for name in data), folder


def test_models_and_samples_carry_their_licence():
    others = {name: licence for name, licence in licences().items() if licence != "Apache-2.0"}
    models = {path.parent for path in (ROOT / "bilm" / "models").glob("*/options.json")}
    for path in models:
        licence = licences()[path.relative_to(ROOT).as_posix() + "/"]
        text = (path / "LICENSE").read_text("utf-8")
        assert text.startswith(f"SPDX-License-Identifier: {licence}\n")
    for name, licence in others.items():
        text = (ROOT / name / "LICENSE").read_text("utf-8")
        assert text.startswith(f"SPDX-License-Identifier: {licence}\n")
        kind, version = re.fullmatch(r"CC-(BY|BY-SA)-(\d\.0)", licence).groups()
        assert f"https://creativecommons.org/licenses/{kind.lower()}/{version}/" in text
        card = ROOT / name / "README.md"
        assert not card.exists() or f"CC {kind} {version}" in card.read_text("utf-8")
    keywords, _ = run_setup()
    assert keywords["license_expression"].split(" AND ") == sorted({*licences().values()})
    collected = {path for pattern in keywords["license_files"] for path in ROOT.glob(pattern)}
    assert collected >= {ROOT / name / "LICENSE" for name in others}


def test_every_file_of_the_package_is_installed():
    package = ROOT / "bilm"
    patterns = ["**/*.py", "**/*.pyc", *run_setup()[0]["package_data"]["bilm"]]
    installed = {path for pattern in patterns for path in package.glob(pattern)}
    assert {path for path in package.rglob("*") if path.is_file()} <= installed


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_the_source_distribution_has_all_files():
    """Setuptools adds setup.py, pyproject.toml, MANIFEST.in and LICENSE itself."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    words = (ROOT / "MANIFEST.in").read_text("utf-8").split("\n", 1)[1].split()
    patterns = {*words, "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE"}
    tops = {name.partition("/")[0] for name in done.stdout.splitlines()}
    assert [top for top in tops if not any(Path(top).match(p) for p in patterns)] == []


def test_extras_are_named_after_the_package_that_they_install():
    extras = run_setup()[0]["extras_require"]
    for extra, requirements in extras.items():
        names = {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}
        assert names == {extra} if len(names) == 1 else extra not in names
    pages = [ROOT / "README.md", ROOT / "README.zh.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        text = page.read_text("utf-8")
        for names in re.findall(r"\.\[([\w,]+)\]'", text) + re.findall(r"extra `(\w+)`", text):
            assert {*names.split(",")} <= extras.keys(), (page, names)


@pytest.mark.parametrize("repository", ["", "https://github.com/owner/bilm"])
def test_readme_on_a_package_index_has_no_relative_links(repository):
    text = run_setup()[1]["long_description"](repository)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets and all(target.startswith(("https://", "#")) for target in targets)
    picture = f"({repository}/raw/v{bilm.__version__}/docs/elmo.svg)"
    assert (picture in text) == bool(repository)
    assert "(docs/" not in text and "manual" in text


def test_constraints_of_the_oldest_versions():
    """`.ci/run oldest` installs each requirement at its lower bound."""
    program = ROOT / ".ci" / "lower_bounds.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert {"tensorflow==2.18", "numpy==1.26.4", "keras==3.12", "rich==13"} <= set(found)
    assert "ray==2.60" in found and len({line.partition("==")[0] for line in found}) == len(found)
