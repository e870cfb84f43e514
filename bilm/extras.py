"""Optional packages: imported where they are used, with an install command in the error message."""

import importlib
from typing import Any

from bilm.core.errors import InputError

# What to install for a module; for others the package of that name.
_PACKAGES = dict.fromkeys(
    ("gensim", "scipy", "sklearn", "threadpoolctl"), "scikit-learn gensim matplotlib"
)


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
        install = f"pip install {_PACKAGES.get(package, package)}"
        raise MissingPackageError(
            f"{purpose} needs the Python module {package}: `{install}` installs it."
        ) from error
