"""Initial values of the variables: the distributions of the original program.

Each variable has a seed of its own, made from the model's seed and the variable's name, so that
its values depend neither on the order of building nor on the other variables. Without a seed
(None) the values are zeros: the variables are about to be loaded.
"""

from __future__ import annotations

import zlib

import keras


def uniform(bound: float, seed: int | None, name: str) -> keras.initializers.Initializer:
    """Uniform between -bound and +bound."""
    if seed is None:
        return keras.initializers.Zeros()
    return keras.initializers.RandomUniform(-bound, bound, seed=_seed_of(seed, name))


def normal(
    deviation: float, seed: int | None, name: str, mean: float = 0.0
) -> keras.initializers.Initializer:
    """Normal with a standard deviation."""
    if seed is None:
        return keras.initializers.Zeros()
    return keras.initializers.RandomNormal(mean, deviation, seed=_seed_of(seed, name))


def glorot(seed: int | None, name: str) -> keras.initializers.Initializer:
    """Glorot and Bengio (2010), uniform."""
    if seed is None:
        return keras.initializers.Zeros()
    return keras.initializers.GlorotUniform(seed=_seed_of(seed, name))


def _seed_of(seed: int, name: str) -> int:
    return zlib.crc32(f"{seed} {name}".encode())
