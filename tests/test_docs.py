"""The pages are correct: commands and programs run as printed, links and names are valid.

Fenced blocks marked `bash` or `python` are run in order, each page in its own folder and its Python
blocks in one namespace. An HTML comment before a block changes this:

  <!-- skip: needs ... -->   it is not run; CONTRIBUTING.md lists the reasons
  <!-- file: NAME -->        it is written to a file
  <!-- prints -->            it is the output of the block before; ... matches anything
  <!-- prints: decimals differ --> the same, except decimals, which depend on a model in the package
  <!-- prints: numbers differ -->  the same, except all numbers, which depend on your text
  <!-- fails -->             it is run and must raise InputError; `prints` can give the message
  <!-- small: A => B; ... --> it is run with A replaced by B, to save time

The folder has the text files that the pages name. `<!-- starts with: MODEL ... -->` anywhere in a
page adds models, and `<!-- files of PAGE: NAME ... -->` adds files defined on another page.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import doctest
import importlib
import io
import itertools
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest

import bilm
import bilm.analysis
from bilm.cli import main
from bilm.core.errors import InputError

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "fixtures" / "golden"
PAGES = [ROOT / name for name in ("README.md", "README.zh.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
LANGUAGES = {"bash", "python", "json", "text", "yaml"}
# A path on the author's machine.
MACHINE_PATH = re.compile(r"(?<![\w.~>])/(?:home|mnt|opt|root|tmp|usr|var|work|Users)/\w")
# What may differ from the output on the page.
DIFFERING = {"decimals differ": r"-?\d+\.\d+", "numbers differ": r"-?\d[\d,.]*"}
OUTPUT_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comment before it, its text, and its first line."""

    language: str
    comment: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    blocks, comment, lines = [], "", iter(enumerate(page.read_text("utf-8").splitlines(), 1))
    for number, line in lines:
        if line.startswith("```"):
            text = []
            for _, inner in lines:
                if inner == "```":
                    break
                text.append(inner)
            blocks.append(Block(line[3:], comment, "\n".join(text) + "\n", number + 1))
            comment = ""
        elif line.strip():
            found = re.fullmatch(r"<!-- (.+) -->", line)
            comment = found[1] if found else ""
    return blocks


def files_of(page: Path) -> dict[str, str]:
    """Names and contents of the `file` blocks of a page."""
    kinds = ((block.comment.partition(": "), block.text) for block in blocks_of(page))
    return {name: text for (kind, _, name), text in kinds if kind == "file"}


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def runnable(page: Path) -> bool:
    return any(block.language in ("bash", "python") for block in blocks_of(page))


def write_text_files(folder: Path) -> None:
    """Write corpus/*.txt, heldout.txt and sentences.txt; novel.txt and news.txt, which are not
    tokenised; and the files of `write_uses`."""
    lines = (GOLDEN / "corpus" / "shard-00.txt").read_text("utf-8").splitlines(keepends=True)
    (folder / "corpus").mkdir()
    for number, part in enumerate((lines[::2], lines[1::2])):
        (folder / "corpus" / f"train-{number:02}.txt").write_text("".join(part * 4), "utf-8")
    (folder / "heldout.txt").write_text("".join(lines[:12]), "utf-8")
    (folder / "corpus" / "heldout-00.txt").write_text("".join(lines[:12]), "utf-8")
    (folder / "sentences.txt").write_text("".join(lines[5:9]), "utf-8")
    said = itertools.product(("cat", "old dog", "bird"), ("sees", "hears"), ("tree", "house"))
    english = [f'"The {who} {does} it," she said. Near the {what}!\n' for who, does, what in said]
    (folder / "novel.txt").write_text("\n".join(english * 20), "utf-8")
    said = itertools.product(("我们", "老师", "他"), ("坐火车", "走路"), ("北京", "学校", "上海"))
    chinese = [f"{who}{does}去{where}。{who}来了吗？\n" for who, does, where in said]
    (folder / "news.txt").write_text("".join(chinese * 20), "utf-8")
    write_uses(folder)


def write_uses(folder: Path) -> None:
    """Write wiki.txt and chinese.txt, tokenised, with ambiguous words."""
    said = [
        "she sat on the {} bank of the {}", "the {} bank lends {} its money",
        "they play cards in {} and {}", "his {} play was staged in {}",
        "in spring the {} is {}", "a {} apple fell on the {}",
    ]  # fmt: skip
    words = "river town big small".split()
    english = [line.format(a, b) for line in said for a, b in itertools.product(words, words)]
    (folder / "wiki.txt").write_text("".join(f"{line} .\n" for line in english), "utf-8")
    said = [
        "他 在 {} 银行 {} 工作",
        "他 吃 了 {} {} 苹果",
        "苹果 {} 发布 了 {}",
        "他 的 {} 包袱 {}",
    ]
    words = "大 小 新 旧".split()
    chinese = [line.format(a, b) for line in said for a, b in itertools.product(words, words)]
    (folder / "chinese.txt").write_text("".join(f"{line} 。\n" for line in chinese), "utf-8")


@contextlib.contextmanager
def redirected(words: list[str]) -> Iterator[None]:
    """Remove `< FILE` and `> FILE` from a command, and redirect the streams."""
    with contextlib.ExitStack() as stack:
        for mark, name, mode in (("<", "stdin", "r"), (">", "stdout", "w")):
            if mark in words:
                place = words.index(mark)
                file = stack.enter_context(open(words[place + 1], mode, encoding="utf-8"))
                del words[place : place + 2]
                stack.enter_context(mock.patch.object(sys, name, file))
        yield


def run_shell_line(line: str) -> None:
    """Run a line; `bilm` and Python programs in this process, which has loaded TensorFlow."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "bilm":
        with redirected(words):
            assert main(words[1:]) == 0, line
    elif words[0] == "python" and words[1].endswith(".py"):
        before = sys.argv
        sys.argv = words[1:]
        try:
            runpy.run_path(words[1], run_name="__main__")
        except SystemExit as end:
            assert not end.code, line
        finally:
            sys.argv = before
    else:
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        print(done.stdout, end="")


def run_block(block: Block, page: Path, namespace: dict) -> str:
    """Run a block and return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                run_shell_line(line)
        else:
            padded = "\n" * (block.line - 1) + block.text
            exec(compile(padded, name_of(page), "exec"), namespace)
    return printed.getvalue()


def smaller(block: Block, changes: str) -> Block:
    """Apply the replacements of a `small` comment, each of which must match."""
    text = block.text
    for change in changes.split("; "):
        old, _, new = change.partition(" => ")
        assert old in text, f"line {block.line}: {old!r} is not in the block"
        text = text.replace(old, new)
    return replace(block, text=text)


def run_page(page: Path) -> None:
    namespace: dict = {"__name__": "__page__"}
    printed = ""
    for block in blocks_of(page):
        place = f"{name_of(page)}, line {block.line}"
        kind, _, what = block.comment.partition(": ")
        if kind == "file":
            Path(what).write_text(block.text, "utf-8")
        elif kind == "prints":
            texts = block.text, printed
            if what:
                texts = tuple(re.sub(DIFFERING[what], "0", text) for text in texts)
            matches = doctest.OutputChecker().check_output(*texts, OUTPUT_FLAGS)
            assert matches, f"{place}: it printed\n{printed}"
        elif kind == "fails":
            with pytest.raises(InputError) as error:
                run_block(block, page, namespace)
            printed = f"{error.value}\n"
        elif kind != "skip" and block.language in ("bash", "python"):
            if kind == "small":
                block = smaller(block, what)
            try:
                printed = run_block(block, page, namespace)
            except Exception as error:
                raise AssertionError(f"{place}: {error!r}") from error


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model` from `bilm train`, `elmo` from `bilm dump`, and other models."""
    folder = tmp_path_factory.mktemp("models")
    write_text_files(folder)
    shutil.copy(GOLDEN / "vocab.txt", folder)
    training = ["--train_prefix", str(folder / "corpus" / "train-*.txt"), "--preset", "tiny"]
    vocabulary = ["--vocab_file", str(folder / "vocab.txt"), "--n_epochs", "2"]
    model = ["--save_dir", str(folder / "model")]
    assert main(["train", *model, *vocabulary, *training]) == 0
    assert main(["dump", *model, "--model_dir", str(folder / "elmo")]) == 0
    shutil.copytree(folder / "elmo", folder / "elmo-zh")
    shutil.copytree(GOLDEN / "training" / "characters" / "end", folder / "old-model")
    shutil.copy(GOLDEN / "vocab.txt", folder / "old-vocab.txt")
    shutil.copytree(GOLDEN.parent / "many_langs" / "words_legacy", folder / "many-langs")
    shutil.copytree(ROOT / "usage_examples", folder / "usage_examples")
    for path in (ROOT / "tests" / "fixtures" / "conllu").iterdir():
        shutil.copy(path, folder)
    published = GOLDEN / "inference" / "base"
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(published / name, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", [*filter(runnable, PAGES)], ids=name_of)
def test_page_runs_as_printed(page: Path, models: Path, tmp_path: Path, monkeypatch):
    write_text_files(tmp_path)
    for names in re.findall(r"<!-- starts with: (.+) -->", page.read_text("utf-8")):
        for name in names.split():
            if (models / name).is_dir():
                shutil.copytree(models / name, tmp_path / name)
            else:
                shutil.copy(models / name, tmp_path)
    for other, names in re.findall(r"<!-- files of (\S+): (.+) -->", page.read_text("utf-8")):
        files = files_of(page.parent / other)
        for name in names.split():
            (tmp_path / name).write_text(files[name], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # pages are not printed in a terminal
    run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page_is_well_formed(page: Path):
    text = page.read_text("utf-8")
    assert text.startswith("# ") and text.count("\n```") % 2 == 0
    for block in blocks_of(page):
        place = f"{name_of(page)}, line {block.line}"
        assert block.language in LANGUAGES, place
        kind = block.comment.partition(": ")[0]
        assert kind in ("", "skip", "file", "prints", "fails", "small", "starts with"), place
        if block.language == "json":
            json.loads(block.text)
    assert not MACHINE_PATH.search(text), MACHINE_PATH.search(text)


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def test_blocks_that_are_not_run_are_counted():
    """CONTRIBUTING.md has each reason and the number of its blocks."""
    table = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| (needs [\w ]+) \| (\d+) \|", table, re.MULTILINE)
    comments = [block.comment for page in PAGES for block in blocks_of(page)]
    skipped = Counter(c.removeprefix("skip: ") for c in comments if c.startswith("skip"))
    assert {reason: int(count) for reason, count in rows} == skipped


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    documented = {
        path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    }
    assert {*bilm.__all__, *bilm.analysis.__all__, "test"} <= documented


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
    site = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))
    formulas = [
        text for page in PAGES for text in site["_FORMULA"].findall(page.read_text("utf-8"))
    ]
    assert len(formulas) >= 3
    for latex in formulas:
        rendered = re.sub(r"&#\w+;", "", site["formula"](latex))
        assert rendered.count("<math") == 1
        assert "\\" not in rendered and "&" not in rendered, latex  # commands, alignment


def test_tutorials_become_notebooks_with_blocks_that_are_run_and_pictures():
    pytest.importorskip("mkdocs")
    notebook = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))["notebook"]
    for page in (ROOT / "docs").glob("tutorial_*.md"):
        blocks = [block for block in blocks_of(page) if block.language in ("bash", "python")]
        run = [block.text.strip() for block in blocks if not block.comment.startswith("skip")]
        cells = notebook(page)["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        assert [source.removeprefix("%%bash\n") for source in code] == run
        pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text("utf-8"))
        attached = [picture for cell in cells for picture in cell.get("attachments", {}).items()]
        assert [name for name, _ in attached] == pictures
        for name, content in attached:
            (encoded,) = content.values()
            assert base64.b64decode(encoded) == (page.parent / name).read_bytes()


def test_notebooks_in_the_repository_are_those_of_the_pages():
    pytest.importorskip("mkdocs")
    site = runpy.run_path(str(ROOT / "docs" / "site_pages.py"))
    for path in site["NOTEBOOKS"]:
        written = json.loads((ROOT / path).read_text("utf-8"))
        assert written == site["notebook"](ROOT / "docs" / f"{path.stem}.md"), (
            "run `python docs/site_pages.py`"
        )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists() and found.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors_of(found), target


def test_index_names_every_page():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= set(re.findall(r"\]\((\w+\.md)\)", index))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_the_source_are_there_with_what_is_said_to_be_in_them(page: Path):
    """Source files exist; names in backquotes after the file of a table row occur in that file."""
    for line in prose_of(page).splitlines():
        files = re.findall(r"`((?:bilm|bin|tests|usage_examples)/[\w/]+\.py)`", line)
        for file in files:
            assert (ROOT / file).is_file(), line
        if len(files) == 1 and line.startswith("|"):
            source = (ROOT / files[0]).read_text("utf-8")
            for name in re.findall(r"`([A-Za-z_][\w.]*)`", line.partition(files[0])[2]):
                assert names_in(source) >= set(name.split(".")), (name, line)


def test_the_drawing_of_a_training_step_names_functions_of_the_modules():
    drawing = (ROOT / "docs" / "training-step.svg").read_text("utf-8")
    boxes = re.findall(r'class="h">([\w.]+)</text>\s*<text [^>]*>(bilm/[\w/]+\.py)<', drawing)
    assert len(boxes) > 12 and len(boxes) == drawing.count(".py<")
    for name, module in boxes:
        assert set(name.split(".")) <= names_in((ROOT / module).read_text("utf-8")), (name, module)


def names_in(source: str) -> set[str]:
    """All names in a source file: classes, functions, arguments, attributes, keys."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def test_readme_has_the_commands_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    texts = [block.text.strip() for block in blocks_of(ROOT / "README.md")]
    commands = [text for text in texts if text.startswith("python3 -m venv")]
    assert len(commands) == 2 and all("\n" not in command for command in commands)
    steps = [command.split(" && ") for command in commands]
    for make, install, run in steps:
        assert make == "python3 -m venv .venv" and "$(PYTHON) -m venv $(VENV)" in makefile
        for step in (install, run):
            assert step.replace(".venv/", "\t$(VENV)/") in makefile.splitlines()
    assert [run for *_, run in steps] == [".venv/bin/bilm demo", ".venv/bin/pytest"]


def modules_with_examples() -> list:
    found = []
    for path in sorted((ROOT / "bilm").rglob("*.py")):
        source = path.read_text("utf-8")
        if re.search(r"^ +>>> ", source, re.MULTILINE):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            heavy = re.search(r"^(?:import|from) (?:tensorflow|keras)", source, re.MULTILINE)
            found.append(pytest.param(module, marks=pytest.mark.slow if heavy else ()))
    return found


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings(name: str):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed
