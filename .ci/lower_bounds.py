"""Print the lower bound of every requirement in setup.py, as constraints for pip."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import setuptools


def main() -> None:
    settings: dict[str, Any] = {}
    setuptools.setup = lambda **given: settings.update(given)
    runpy.run_path(str(Path(__file__).parent.parent / "setup.py"))
    extras = settings["extras_require"].values()
    requirements = {*settings["install_requires"], *(one for extra in extras for one in extra)}
    for requirement in sorted(requirements):
        # "ray[data]>=2.60,<2.64" -> ray==2.60
        name, version = re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", requirement).groups()
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
