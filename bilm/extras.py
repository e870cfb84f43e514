"""Packages that not everybody needs: imported where they are used, or an error says what to do."""

from __future__ import annotations

import importlib
from typing import Any

from bilm.core.errors import InputError

# The module that is imported, what pip calls its package, and the extra of setup.py.
_PACKAGES = {
    "altair": ("altair", "look"),
    "gensim": ("gensim", "look"),
    "matplotlib": ("matplotlib", "plot"),
    "pyarrow": ("pyarrow", "parquet"),
    "ray": ("'ray[data]>=2.60,<2.64'", "ray"),
    "seqeval": ("seqeval", "tasks"),
    "sklearn": ("scikit-learn", "look"),
    "threadpoolctl": ("scikit-learn", "look"),
    "vl_convert": ("vl-convert-python", "look"),
}


def import_extra(module: str, purpose: str) -> Any:
    """A module of a package that is an extra.

    Args:
        module: such as "sklearn.cluster".
        purpose: who needs it, for the message, such as "bilm project".

    Raises:
        InputError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package, extra = _PACKAGES[module.partition(".")[0]]
        raise InputError(
            f"{purpose} needs the package {package}: `pip install {package}` or "
            f"`pip install 'bilm-keras[{extra}]'` does it."
        ) from error
