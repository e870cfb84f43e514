"""Weight files: names, shapes, and errors that list everything that is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from bilm.core.errors import InputError
from bilm.core.network import build_network
from bilm.core.options import Options
from bilm.core.softmax import Softmax
from bilm.files.model_files import read_options
from bilm.files.weights import (
    load_network,
    open_weights,
    save_hdf5,
    softmax_weights,
    standard_name,
    weight_table,
)
from tests import oracle
from tests.oracle.files import hdf5_name

CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/"


def network_of(options, seed=None):
    n_tokens = None if "char_cnn" in options else options["n_tokens_vocab"]
    return build_network(Options.from_dict(options, training=False), n_tokens, seed=seed)


def load_hdf5(path, table):
    with open_weights(path) as weights:
        weights.load(table)


def values_of(network):
    table = weight_table(network)
    return {weight.dataset: weight.variable.value.numpy() for weight in table if weight.dataset}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


@pytest.mark.parametrize("kind", oracle.MODELS)
def test_written_and_read_again(tmp_path, kind):
    """Names and shapes are the published ones, and every value comes back."""
    options = oracle.MODELS[kind]
    network = network_of(options, seed=5)
    path = tmp_path / "weights.hdf5"
    save_hdf5(path, values_of(network))
    stored = oracle.read_hdf5(path)
    assert all(value.dtype == np.float32 for value in stored.values())
    shapes = {name: value.shape for name, value in oracle.random_weights(options, 0).items()}
    assert {name: value.shape for name, value in stored.items()} == shapes
    other = network_of(options)
    load_hdf5(path, weight_table(other))
    assert_same(values_of(other), stored)
    weights = oracle.random_weights(options, 1)
    oracle.write_hdf5(path, weights)
    load_hdf5(path, weight_table(other))
    assert_same(values_of(other), weights)


def odd_names(weights, n_layers, n_directions):
    """The names under which the original program dumped models that it cannot load again."""
    parts = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
    odd = {}
    for name, value in weights.items():
        if name.startswith("RNN_"):
            *_, last = name.split("/")
            if n_layers == 1:
                name = name.replace("MultiRNNCell/Cell0/", "")
            if n_directions == 1:
                name = name.replace("RNN_0/RNN/", "rnn/").replace(last, parts[last])
        odd[name] = value
    return odd


@pytest.mark.parametrize("n_directions", [1, 2])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_odd_names_of_the_original_program(tmp_path, n_layers, n_directions):
    options = oracle.MODELS["as_published"]
    options = options | {"lstm": options["lstm"] | {"n_layers": n_layers}}
    options["bidirectional"] = n_directions == 2
    weights = oracle.random_weights(options, 3)
    odd = odd_names(weights, n_layers, n_directions)
    assert (odd.keys() == weights.keys()) == (n_layers == n_directions == 2)
    if n_directions == 1:
        cell = "rnn/LSTMCell/" if n_layers == 1 else "rnn/MultiRNNCell/Cell1/LSTMCell/"
        assert {cell + n for n in ("kernel", "bias", "projection/kernel")} <= odd.keys()
    oracle.write_hdf5(tmp_path / "odd.hdf5", odd)
    network = network_of(options)
    load_hdf5(tmp_path / "odd.hdf5", weight_table(network))
    assert_same(values_of(network), weights)


def test_other_groups_are_ignored(tmp_path):
    options = oracle.MODELS["as_published"]
    weights = oracle.random_weights(options, 3)
    others = {"softmax/W": np.ones((9, 8)), "softmax/b": np.ones(9), "vocabulary": np.arange(9)}
    oracle.write_hdf5(tmp_path / "weights.hdf5", weights | others)
    with h5py.File(tmp_path / "weights.hdf5", "a") as file:
        file["tokens"] = ["a", "b"]
        file.attrs["made by"] = "someone"
        file.create_group("RNN_2")
    network = network_of(options)
    load_hdf5(tmp_path / "weights.hdf5", weight_table(network))
    assert_same(values_of(network), weights)


def test_a_number_beyond_float16_is_an_error(tmp_path):
    values = {"CNN_proj/W_proj": np.array([[1.0, 1e5]], np.float32)}
    with pytest.raises(InputError, match=r"float16 are at most 65504, and CNN_proj/W_proj has 1"):
        save_hdf5(tmp_path / "w.hdf5", values, dtype="float16")


def test_numbers_of_other_types_are_read(tmp_path):
    options = oracle.MODELS["words"]
    weights = oracle.random_weights(options, 3)
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for k, (name, value) in enumerate(weights.items()):
            file[name] = value.astype([">f8", "<f2", "<f4"][k % 3])
    network = network_of(options)
    load_hdf5(tmp_path / "weights.hdf5", weight_table(network))
    for name, value in values_of(network).items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, weights[name], 1e-3, 1e-4)


def test_everything_that_does_not_fit_is_named_at_once(tmp_path):
    """SECURITY.md: weights that do not fit their options are an error."""
    options = oracle.MODELS["as_published"]
    weights = oracle.random_weights(options, 3)
    before = network_of(options)
    missing = [CELL.format(1, 0) + "B", "CNN_high_1/W_carry", "char_embed"]
    for name in missing:
        del weights[name]
    weights["CNN/W_cnn_0"] = np.zeros((1, 1, 4, 5))
    weights["CNN_proj/b_proj"] = np.zeros(8)[np.newaxis]
    weights["CNN/W_cnn_3"] = np.zeros((1, 7, 4, 2))
    weights[CELL.format(0, 2) + "W_0"] = np.zeros((16, 80))
    path = tmp_path / "weights.hdf5"
    oracle.write_hdf5(path, weights)
    with pytest.raises(InputError) as caught:
        load_hdf5(path, weight_table(before))
    first, *lines = str(caught.value).splitlines()
    assert str(path) in first
    found = {name.strip(): what.split()[0] for name, what in (line.split(": ") for line in lines)}
    expected = dict.fromkeys(missing, "missing,")
    expected |= dict.fromkeys(("CNN/W_cnn_0", "CNN_proj/b_proj"), "must")
    expected |= dict.fromkeys(("CNN/W_cnn_3", CELL.format(0, 2) + "W_0"), "unexpected,")
    assert found == expected
    assert not any(value.any() for name, value in values_of(before).items() if "carry" not in name)


@pytest.fixture(scope="module")
def words_file(tmp_path_factory):
    """Options and weights file of a word model."""
    folder = tmp_path_factory.mktemp("words")
    options = oracle.MODELS["words"]
    _, path = oracle.write_model(folder, options, oracle.random_weights(options, 3))
    return options, path


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_file_that_is_cut_off(tmp_path, words_file, share):
    options, path = words_file
    with open(path, "rb") as file:
        data = file.read()
    (tmp_path / "cut.hdf5").write_bytes(data[: int(share * len(data))])
    with pytest.raises(
        InputError, match=r"cut\.hdf5: .*(an empty file|not an HDF5 file, or damaged: )"
    ):
        load_hdf5(tmp_path / "cut.hdf5", weight_table(network_of(options)))


def test_damage_within_a_file(tmp_path, words_file):
    """Changed bytes in the file's structure raise an `InputError` or make no difference."""
    options, path = words_file
    with open(path, "rb") as file:
        data = file.read()
    network = network_of(options)
    random = np.random.default_rng(2)
    n_errors = 0
    for _ in range(60):
        damaged = bytearray(data)
        for place in random.integers(0, 6000, 20):
            damaged[place] ^= random.integers(1, 256)
        (tmp_path / "damaged.hdf5").write_bytes(damaged)
        try:
            load_hdf5(tmp_path / "damaged.hdf5", weight_table(network))
        except InputError as error:
            assert "damaged.hdf5: " in str(error)
            n_errors += 1
    assert n_errors > 20


def test_a_token_cache_in_a_file_of_its_own(tmp_path, words_file):
    """The weights may also contain a character encoder, and the cache file other weights."""
    options = oracle.MODELS["as_published"]
    weights = oracle.random_weights(options, 4)
    _, path = oracle.write_model(tmp_path, options, weights)
    cache = oracle.read_hdf5(words_file[1])["embedding"]
    network = build_network(read_options(options), 37)
    with open_weights(path) as weights_file, open_weights(words_file[1]) as table:
        assert table.n_embedded() == 37
        load_network(network, weights_file, table)
    values = values_of(network)
    np.testing.assert_array_equal(values.pop("embedding"), cache)
    assert_same(values, {n: v for n, v in weights.items() if n.startswith("RNN_")})


def test_a_file_without_a_cache(tmp_path):
    oracle.write_hdf5(tmp_path / "a.hdf5", {"W": np.zeros(3)})
    message = r"a\.hdf5 must hold a dataset 'embedding'"
    with pytest.raises(InputError, match=message), open_weights(tmp_path / "a.hdf5") as weights:
        weights.n_embedded()
    oracle.write_hdf5(tmp_path / "a.hdf5", {"embedding": np.zeros(3)})
    message = r"\(tokens, projection_dim\), got \(3,\)"
    with pytest.raises(InputError, match=message), open_weights(tmp_path / "a.hdf5") as weights:
        weights.n_embedded()
    message = r"The weights file '.*none' does not exist\."
    with pytest.raises(FileNotFoundError, match=message), open_weights(tmp_path / "none"):
        pytest.fail("the block is not entered")


def test_a_cache_of_another_size(tmp_path):
    """The number of rows may differ, but another width raises an error."""
    options = oracle.MODELS["words"]
    _, path = oracle.write_model(tmp_path, options, oracle.random_weights(options, 4))
    oracle.write_hdf5(tmp_path / "cache.hdf5", {"embedding": np.zeros((5, 9))})
    network = build_network(read_options(options), 5)
    message = r"cache\.hdf5: .*\s+embedding: must have"
    with (
        open_weights(path) as weights,
        open_weights(tmp_path / "cache.hdf5") as table,
        pytest.raises(InputError, match=message),
    ):
        load_network(network, weights, table)


@pytest.mark.parametrize("kind", oracle.MODELS)
def test_names_in_checkpoints(kind):
    """The TF1 names of each kind of model follow the scheme of the recorded checkpoints."""
    options = oracle.MODELS[kind]
    network = network_of(options)
    softmax = Softmax(11, 8)
    table = [*weight_table(network), *softmax_weights(softmax)]
    for weight in table:
        dataset = weight.dataset or weight.checkpoint.removeprefix("lm/")
        assert hdf5_name(weight.checkpoint) == dataset
    names = {weight.checkpoint for weight in table}
    assert {"lm/softmax/W", "lm/softmax/b"} <= names
    one_layer = options["lstm"].get("n_layers", 1) == 1
    assert any("multi_rnn_cell/cell_0" in name for name in names) != one_layer
    one_direction = not options.get("bidirectional", True)
    assert any(name.startswith("lm/rnn/") for name in names) == one_direction
    tied = Softmax(11, 8, tied=softmax.W)
    assert [weight.checkpoint for weight in softmax_weights(tied)] == ["lm/softmax/b"]


WRITE = """
import resource, signal, sys
import numpy as np
from bilm.files.hdf5 import writing_hdf5

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with writing_hdf5("a.hdf5") as file:
    for k in range(100):
        file[f"{k % 7}/{k}"] = np.full((k, 11), k, np.float32)
    file["large"] = np.ones((300, 1000), np.float32)
    file.attrs["text"] = "y" * 1000
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.001, 0.05, 0.2, 0.9, 0.999])
def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(tmp_path, share):
    def write(limit):
        command = [sys.executable, "-c", WRITE, str(limit)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert write(2**30).returncode == 0
    size = os.path.getsize(tmp_path / "a.hdf5")
    done = write(int(share * size))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("File too large")


@pytest.mark.parametrize("kind", oracle.MODELS)
def test_standard_names(kind):
    """Also of the names that the original used for some models."""
    options = read_options(oracle.MODELS[kind])
    for weight in weight_table(build_network(options, None if options.char_cnn else 37)):
        assert standard_name(weight.odd_dataset or weight.dataset) == weight.dataset
