"""Keras knows the package's layers by name as soon as `import bilm` was done.

Keras loads a saved model's layers from its register of names, and a class comes into that when
its module is imported. Ours are imported when they are first used, and Keras itself is slow to
import. So stand-ins are put into the register, at once if Keras is there and otherwise when
somebody imports it; a stand-in imports the class when a saved model names it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = "bilm"


def name_layers(modules: Mapping[str, str]) -> None:
    """Let Keras find layers in saved models.

    Args:
        modules: the names of classes, and of the modules that they can be imported from.
    """
    keras = sys.modules.get("keras")
    if keras is None:
        sys.meta_path.insert(0, _WhenKerasIsImported(modules))
    else:
        _register(keras, modules)


def _register(keras: ModuleType, modules: Mapping[str, str]) -> None:
    known = keras.saving.get_custom_objects()
    for name, module in modules.items():
        known.setdefault(f"{PACKAGE}>{name}", _stand_in(name, module))


def _stand_in(name: str, module: str) -> type:
    """What Keras asks of a registered class: to be made of a configuration."""

    def from_config(config: dict[str, Any]) -> Any:
        return getattr(importlib.import_module(module), name).from_config(config)

    return type(name, (), {"from_config": staticmethod(from_config), "__module__": module})


class _WhenKerasIsImported(MetaPathFinder):
    """Finds nothing itself: it lets the others find Keras, and registers after its import."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "keras" or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _register(module, self._modules)

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
