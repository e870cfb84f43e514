"""Initial values of the variables: the distributions of the original program."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from bilm.core.keras_backend import keras


def uniform(bound: float, seed: int | None, name: str) -> keras.initializers.Initializer:
    """Uniform between -bound and +bound."""
    return _seeded(lambda seed: keras.initializers.RandomUniform(-bound, bound, seed), seed, name)


def normal(deviation: float, seed: int | None, name: str) -> keras.initializers.Initializer:
    """Normal with mean 0."""
    return _seeded(lambda seed: keras.initializers.RandomNormal(0.0, deviation, seed), seed, name)


def glorot(seed: int | None, name: str) -> keras.initializers.Initializer:
    """Glorot and Bengio (2010), uniform."""
    return _seeded(keras.initializers.GlorotUniform, seed, name)


def _seeded(make: Callable[[int], Any], seed: int | None, name: str) -> Any:
    """An initializer with its own seed for each variable, so that values do not depend on the order
    of creation. Without a seed, zeros: the variable is about to be loaded."""
    if seed is None:
        return keras.initializers.Zeros()
    return make(zlib.crc32(f"{seed} {name}".encode()))
