"""options.json: reading, defaults, errors, and writing."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from bilm.core.errors import InputError
from bilm.core.network import build_network
from bilm.core.options import PRESETS, CharCNNOptions, LSTMOptions, Options, preset, preset_like
from bilm.files.weights import weight_table

LSTM = {"dim": 20, "projection_dim": 8}
CHAR_CNN = {"activation": "relu", "filters": [[1, 4], [2, 6]], "embedding": {"dim": 4}}
PUBLISHED = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "embedding": {"dim": 16},
        "n_characters": 262,
        "max_characters_per_token": 50,
    },
}


def test_the_published_file():
    options = Options.from_dict(PUBLISHED, training=False)
    assert options.lstm == LSTMOptions(4096, 512, 2, 3, 3, True)
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    assert options.char_cnn == CharCNNOptions(filters, "relu", 16, n_highway=2)
    assert options.bidirectional and options.n_directions == 2
    assert options.max_word_length == 50
    assert options.char_cnn.n_filters == 2048
    assert options.inference_dict() == PUBLISHED


def test_what_is_absent():
    options = Options.from_dict({"lstm": LSTM, "char_cnn": CHAR_CNN}, training=True)
    assert options.lstm == LSTMOptions(20, 8, 1, None, None, False)
    assert options.char_cnn.n_highway == 0
    assert options.char_cnn.max_characters_per_token == 50
    assert (options.learning_rate, options.sample_softmax) == (0.2, True)
    assert not options.share_embedding_softmax
    assert (options.dropout, options.all_clip_norm_val) == (0.1, 10.0)
    assert (options.n_epochs, options.batch_size, options.unroll_steps) == (10, 128, 20)
    assert options.n_negative_samples_batch == 8192
    assert options.n_tokens_vocab is None and options.n_train_tokens is None


@pytest.mark.parametrize("training, directions", [(True, 1), (False, 2)])
def test_directions_when_the_file_does_not_say(training, directions):
    assert Options.from_dict({"lstm": LSTM}, training).n_directions == directions
    for given in (True, False):
        options = Options.from_dict({"lstm": LSTM, "bidirectional": given}, training)
        assert options.bidirectional is given


def test_word_input():
    options = Options.from_dict({"lstm": LSTM, "n_tokens_vocab": 30}, training=False)
    assert options.char_cnn is None and options.max_word_length is None
    assert options.inference_dict() == {
        "lstm": LSTM | {"n_layers": 1, "use_skip_connections": False},
        "n_tokens_vocab": 30,
    }


def test_the_projection_of_the_lstm():
    assert LSTMOptions(20, 8).has_projection
    assert not LSTMOptions(8, 8).has_projection


def test_one_direction_is_written_for_inference():
    options = Options.from_dict({"lstm": LSTM, "bidirectional": False}, training=True)
    assert options.inference_dict()["bidirectional"] is False
    assert not Options.from_dict(options.inference_dict(), training=False).bidirectional


@pytest.mark.parametrize("n_characters", [261, 262])
def test_261_and_262_characters_are_read_alike_and_written_right(n_characters):
    char_cnn = CHAR_CNN | {"n_characters": n_characters}
    options = Options.from_dict({"lstm": LSTM, "char_cnn": char_cnn}, training=True)
    assert options == Options.from_dict({"lstm": LSTM, "char_cnn": CHAR_CNN}, training=True)
    assert options.training_dict()["char_cnn"]["n_characters"] == 261
    assert options.inference_dict()["char_cnn"]["n_characters"] == 262


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"char_cnn": CHAR_CNN},
        {"all_clip_norm_val": None, "n_train_tokens": 1000, "n_tokens_vocab": 50},
        {"bidirectional": True, "learning_rate": 1, "dropout": 0, "share_embedding_softmax": True},
    ],
)
def test_training_options_written_and_read_again(changes, tmp_path):
    options = Options.from_dict({"lstm": LSTM} | changes, training=True)
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options.training_dict()), encoding="utf-8")
    assert Options.from_file(path, training=True) == options


def test_a_count_of_tokens_that_is_null_is_absent():
    values = {"lstm": LSTM, "n_train_tokens": None}
    assert Options.from_dict(values, training=True).n_train_tokens is None


def test_unknown_keys_cause_a_warning(caplog):
    char_cnn = CHAR_CNN | {"widths": 3, "pool": 4}
    values = {"lstm": LSTM | {"forget_bias": 1}, "char_cnn": char_cnn, "lr": 0.1}
    with caplog.at_level(logging.WARNING):
        Options.from_dict(values, training=True, source="a.json")
    assert [record.getMessage() for record in caplog.records] == [
        "a.json: ignored unknown keys: lr",
        "a.json: lstm: ignored unknown keys: forget_bias",
        "a.json: char_cnn: ignored unknown keys: pool, widths",
    ]


def with_lstm(**changes):
    return {"lstm": LSTM | changes}


def with_cnn(**changes):
    return {"lstm": LSTM, "char_cnn": CHAR_CNN | changes}


WHOLE = r"must be an integer from 1 to [\d,]+, got"
NUMBER = "must be a number above 0 and up to 3e38, got"
BOOL = "must be true or false, got"
PAIRS = r"char_cnn.filters must be a list of \[width, number\]"

BAD = [
    ({}, "lstm is missing; it must be a JSON object"),
    (with_lstm(cell_clip=0), f"lstm.cell_clip {NUMBER} 0"),
    (
        {"lstm": LSTM, "char_cnn": {"filters": [], "embedding": {}}},
        r"char_cnn.activation is missing; it must",
    ),
    (with_cnn(filters=[[1, 0]]), PAIRS),
    (with_cnn(filters=[[51, 4]]), rf"{PAIRS} with widths of at most"),
    ({"lstm": LSTM, "n_epochs": 1.5}, "n_epochs must be an integer from 1"),
    ({"lstm": LSTM, "dropout": 1}, "dropout must be a number >= 0 and below 1 or null"),
    ({"lstm": LSTM, "all_clip_norm_val": 0}, f"all_clip_norm_val {NUMBER[:-5]} or null, got 0"),
    (with_cnn() | {"share_embedding_softmax": True}, "share_embedding_softmax must be false with"),
]


@pytest.mark.parametrize("values, message", BAD)
def test_values_that_break_a_rule(values, message):
    with pytest.raises(InputError, match=f"^some.json: {message}"):
        Options.from_dict(values, training=True, source="some.json")


HUGE = 10**4000
SIZE = "must be an integer from 1 to 1,048,576, got"
TOO_HIGH = [
    (with_lstm(cell_clip=HUGE), r"lstm.cell_clip must be a number above 0"),
    (with_cnn(filters=[[1, 2**20], [2, 1]]), r"char_cnn.filters must be a list .* = 50"),
]


@pytest.mark.parametrize("values, message", TOO_HIGH)
def test_numbers_that_no_model_has(values, message):
    with pytest.raises(InputError, match=f"^some.json: {message}") as caught:
        Options.from_dict(values, training=True, source="some.json")
    assert len(str(caught.value)) < 500


def test_a_changed_copy_is_checked_too():
    options = Options.from_dict(PUBLISHED, training=True)
    assert dataclasses.replace(options, batch_size=3).batch_size == 3
    with pytest.raises(InputError, match=f"batch_size {WHOLE} 0"):
        dataclasses.replace(options, batch_size=0)


def test_files_that_hold_no_options(tmp_path):
    path = tmp_path / "options.json"
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*options.json'"):
        Options.from_file(path, training=True)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match=r"options.json must be a JSON object, got"):
        Options.from_file(path, training=True)
    path.write_text('{"lstm": {}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"options.json: lstm.dim is missing; it must"):
        Options.from_file(path, training=True)


def test_presets_are_the_sizes_of_the_paper():
    assert set(PRESETS) == {"tiny", "base", "small", "medium", "original"}
    original = preset("original")
    for part in ("lstm", "char_cnn"):
        assert original[part] | {"n_characters": 262} == PUBLISHED[part] | {"n_characters": 262}
    sizes = {name: preset(name)["lstm"] for name in PRESETS}
    assert {name: (s["dim"], s["projection_dim"]) for name, s in sizes.items()} == {
        "tiny": (256, 64),
        "base": (512, 128),
        "small": (1024, 128),
        "medium": (2048, 256),
        "original": (4096, 512),
    }
    assert {name: preset(name)["char_cnn"]["n_highway"] for name in PRESETS} == {
        "tiny": 1,
        "base": 1,
        "small": 1,
        "medium": 1,
        "original": 2,
    }
    for name in ("small", "medium", "original"):
        assert preset(name)["char_cnn"]["filters"] == PUBLISHED["char_cnn"]["filters"]
    assert preset("tiny")["char_cnn"]["filters"] == [[1, 16], [2, 16], [3, 32], [4, 64], [5, 128]]


def test_presets_with_the_originals_recipe():
    for name in PRESETS:
        values = preset(name, "original")
        tiny = name in ("tiny", "base")
        assert values["char_cnn"]["n_characters"] == 261
        assert values["lstm"]["use_skip_connections"] is True
        assert (values["lstm"]["cell_clip"], values["lstm"]["proj_clip"]) == (3, 3)
        assert values["lstm"]["n_layers"] == 2
        assert values["bidirectional"] is True
        assert (values["dropout"], values["all_clip_norm_val"]) == (0.1, 10.0)
        assert (values["batch_size"], values["unroll_steps"]) == (64 if tiny else 128, 20)
        assert values["n_negative_samples_batch"] == (2048 if tiny else 8192)
        assert values["n_epochs"] == 10
        assert "n_tokens_vocab" not in values and "n_train_tokens" not in values
        assert Options.from_dict(values, training=True).training_dict() == values


def test_the_original_recipe_has_the_originals_keys_alone():
    ours = {
        "n_steps", "optimizer", "adam_learning_rate", "initial_accumulator", "softmax_bias",
        "softmax_weights",
        "schedule", "warmup_steps", "tokenizer",
    }  # fmt: skip
    assert not ours & set(preset("original", "original"))
    assert preset("original", "original")["reset_rate"] == 0.0
    assert ours - set(preset("base")) == {"n_steps", "tokenizer"}


def test_fine_tuning_a_large_network_has_a_lower_rate():
    rates = {}
    for name in PRESETS:
        network = Options.from_dict(preset(name), training=True)
        tuned = preset_like(network)
        assert tuned.lstm == network.lstm and tuned.batch_size == network.batch_size
        rates[name] = tuned.adam_learning_rate
    assert rates == {
        "tiny": 0.005, "base": 0.006, "small": 0.002, "medium": 0.002, "original": 0.002
    }  # fmt: skip


def test_a_preset_that_is_not():
    with pytest.raises(InputError, match="preset must be one of tiny, base, small"):
        preset("large")
    with pytest.raises(InputError, match=r"preset must be one of .*, got \['tiny'\]"):
        preset(["tiny"])
    with pytest.raises(InputError, match="recipe must be one of default, original"):
        preset("tiny", "best")


@pytest.mark.parametrize(
    "name, n_parameters",
    [
        ("small", 13_593_296),
        pytest.param("medium", 28_027_728, marks=pytest.mark.slow),
        pytest.param("original", 93_600_848, marks=pytest.mark.slow),
    ],
)
def test_number_of_parameters(name, n_parameters):
    network = build_network(Options.from_dict(preset(name), training=True))
    counted = sum(weight.variable.numpy().size for weight in weight_table(network))
    assert counted == n_parameters
