"""Pages that the site's build adds: the command line from its parsers, tutorials as notebooks, and
pages from outside docs/; and the formulas in MathML."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

os.environ["COLUMNS"] = "80"
# Pages of the repository that are part of the site, by their names there.
_OUTSIDE = {
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "english.md": "bilm/models/english/README.md",
    "chinese.md": "bilm/models/chinese/README.md",
    "latin.md": "bilm/models/latin/README.md",
}
_WORDS_PER_MINUTE = 200
# The kind of a page that is read from end to end, in its first line.
_READING = re.compile(r"^\*(?:How-to|Explanation|For developers)(?=:)", re.MULTILINE)
# A comment such as `<!-- file: NAME -->`, and a fenced block.
_PARTS = re.compile(r"^<!-- ([^\n]+) -->\n|^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
# The name and ending of a picture in a page.
_PICTURE = re.compile(r"\]\(([\w-]+)(\.png|\.svg)\)")
# A formula in LaTeX, alone between lines of two dollar signs.
_FORMULA = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.DOTALL | re.MULTILINE)
_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}
# Tutorials that open as notebooks in a clone: `python docs/site_pages.py` writes them.
NOTEBOOKS = [Path("usage_examples", f"{name}.ipynb") for name in ("tutorial_paper", "tutorial_zh")]


def on_files(files: Files, config: Any) -> Files:
    """Add the page of the command line, pages from outside docs/, and the notebooks."""
    folder = Path(config["docs_dir"])
    files.append(File.generated(config, "cli.md", content=_command_line()))
    for name, source in _OUTSIDE.items():
        text = (folder.parent / source).read_text("utf-8")
        text = re.sub(r"\]\((\.\./\.\./\.\./)?docs/", "](", text)
        files.append(File.generated(config, name, content=text))
    for path in sorted(folder.glob("tutorial_*.md")):
        content = json.dumps(notebook(path), ensure_ascii=False, indent=1)
        files.append(File.generated(config, f"{path.stem}.ipynb", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Link tutorials to their notebooks, and pages to pages from outside docs/; add reading times.

    Files that are not part of the site have no address there: their links become plain text.
    """
    markdown = _FORMULA.sub(lambda match: formula(match[1]), markdown)
    minutes = -(-len(markdown.split()) // _WORDS_PER_MINUTE)
    markdown = _READING.sub(rf"\g<0>, {minutes} minutes", markdown, count=1)
    for name, source in _OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({name}")
    markdown = re.sub(r"\[([^]]+)\]\(\.\./[^)]+\)", r"\1", markdown)
    stem = Path(page.file.src_path).stem
    if not stem.startswith("tutorial_"):
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n[:material-download: Jupyter notebook]({stem}.ipynb)\n{rest}"


def formula(latex: str) -> str:
    """A displayed formula in MathML, which browsers render without a script."""
    return f"<div>{convert(latex, display='block')}</div>"


def notebook(page: Path) -> dict[str, Any]:
    """A page as a Jupyter notebook: its Python and shell blocks are cells to run, its pictures are
    in the cells, and links to other pages become plain text."""
    cells: list[dict[str, Any]] = []
    text, comment, end = "", "", 0
    markdown = re.sub(r"(?<!!)\[([^]]+)\]\((?!https:)[^)]+\)", r"\1", page.read_text("utf-8"))
    for part in _PARTS.finditer(markdown):
        text += markdown[end : part.start()]
        end = part.end()
        if part[1]:
            comment = part[1]
            continue
        if part[2] in ("python", "bash") and not comment.startswith("skip"):
            cells += [_cell("markdown", text), _cell("code", _source(part[2], part[3]))]
            text = ""
        else:
            text += part[0]
        comment = ""
    cells.append(_cell("markdown", text + markdown[end:]))
    for cell in cells:
        if pictures := _PICTURE.findall(cell["source"]):
            cell["source"] = _PICTURE.sub(r"](attachment:\1\2)", cell["source"])
            cell["attachments"] = {
                name + ending: {_TYPES[ending]: _base64(page.parent / (name + ending))}
                for name, ending in pictures
            }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    filled = [cell for cell in cells if cell["source"]]
    return {"cells": filled, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def write_notebooks() -> None:
    """Write the notebooks that are part of the repository."""
    for path in NOTEBOOKS:
        content = json.dumps(
            notebook(Path("docs", f"{path.stem}.md")), ensure_ascii=False, indent=1
        )
        path.write_text(content + "\n", "utf-8")


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _source(language: str, text: str) -> str:
    return text if language == "python" else "%%bash\n" + text


def _cell(kind: str, text: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "metadata": {}, "source": text.strip()}
    return cell if kind == "markdown" else cell | {"outputs": [], "execution_count": None}


def _command_line() -> str:
    from bilm.cli import SUBCOMMANDS, make_parser

    page = "# Command line\n\n*Reference.* `bilm SUBCOMMAND --help` prints the same.\n"
    for name in SUBCOMMANDS:
        help_text = make_parser(name, f"bilm {name}").format_help()
        page += f"\n## bilm {name}\n\n```text\n{help_text}```\n"
    return page


if __name__ == "__main__":
    write_notebooks()
