"""Optional packages: imported where they are used, with an install command in the error message."""

from __future__ import annotations

import importlib
from typing import Any

from bilm.core.errors import InputError

_LOOK = "scikit-learn gensim matplotlib"
# The package to install for each module, as in the extras of setup.py.
_PACKAGES = {
    "fsspec": "'ray[data]>=2.60,<3'",
    "gensim": _LOOK,
    "huggingface_hub": "huggingface_hub",
    "jieba": "jieba",
    "matplotlib": "matplotlib",
    "pyarrow": "pyarrow",
    "ray": "'ray[data]>=2.60,<3'",
    "scipy": _LOOK,
    "seqeval": "seqeval",
    "sklearn": _LOOK,
    "spacy": "spacy",
    "tensorboard": "tensorboard",
    "threadpoolctl": _LOOK,
}


class MissingPackageError(InputError):
    """A package that not everybody needs is not installed."""


def import_extra(module: str, purpose: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: such as "sklearn.cluster".
        purpose: the feature that needs it, such as "bilm project".

    Raises:
        MissingPackageError: the package is not installed; the message has the command to do so.
        InputError: it cannot be imported; the message has the reason.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise InputError(
                f"{purpose} needs the Python module {package}, which is installed but cannot be "
                f"imported: {error}."
            ) from error
        raise MissingPackageError(
            f"{purpose} needs the Python module {package}: `pip install {_PACKAGES[package]}` "
            "installs it."
        ) from error
