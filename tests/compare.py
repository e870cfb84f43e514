"""Comparison of numbers, checkpoints and folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def close(actual, expected, rtol=1e-5, atol=5e-6):
    """Require a model's vectors to agree with those of the formulas."""
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def checkpoint_tensors(prefix):
    """All tensors of a checkpoint by name, except its record."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    names = set(reader.get_variable_to_shape_map()) - {"bilm/record"}
    return {name: reader.get_tensor(name) for name in names}


def assert_same_checkpoint(checkpoint, other, rtol=0.0, atol=0.0, without=()):
    """Compare variables, accumulators, LSTM states, step and perplexity, except the tensors
    `without`; by default exactly."""
    values, expected = checkpoint_tensors(checkpoint), checkpoint_tensors(other)
    for name in without:
        values.pop(name, None), expected.pop(name, None)
    assert values.keys() == expected.keys() and values
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol, atol, err_msg=name)


def contents(folder, pattern="*"):
    """The contents of the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in Path(folder).glob(pattern) if path.is_file()}
