"""Optional packages: imported where they are used, with an install command in the error message."""

from __future__ import annotations

import importlib
from typing import Any

from bilm.core.errors import InputError

# The packages of the extras in setup.py, as pip is given them.
_EXTRAS = {
    "chinese": "jieba",
    "english": "spacy",
    "look": "scikit-learn gensim matplotlib",
    "parquet": "pyarrow",
    "plot": "matplotlib",
    "ray": "'ray>=2.60,<3' pyarrow",
    "tasks": "seqeval",
    "tensorboard": "tensorboard",
}
_EXTRA_OF = {
    "gensim": "look",
    "jieba": "chinese",
    "matplotlib": "plot",
    "pyarrow": "parquet",
    "ray": "ray",
    "scipy": "look",  # which scikit-learn brings
    "seqeval": "tasks",
    "sklearn": "look",
    "spacy": "english",
    "tensorboard": "tensorboard",
    "threadpoolctl": "look",
}


def import_extra(module: str, purpose: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: such as "sklearn.cluster".
        purpose: the feature that needs it, for the message, such as "bilm project".

    Raises:
        InputError: the package is not installed; the message has the command to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        packages = _EXTRAS[_EXTRA_OF[package]]
        raise InputError(
            f"{purpose} needs the Python module {package}: `pip install {packages}` installs it."
        ) from error
