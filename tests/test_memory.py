"""Sizes that nothing bounds but the memory: refused before any is taken, and named."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

import bilm
from bilm import InputError, preset
from bilm.data import BidirectionalLMDataset, load_vocab
from bilm.memory import free_memory, require_memory
from tests.command_line import OPTIONS, make_text


def test_what_is_there():
    free = free_memory()
    assert free > 2**20
    require_memory(2**26, "what is small")
    with pytest.raises(InputError, match=r"^rows = 5: at least 1,099,511,627,776 MB of memory wou"):
        require_memory(2**60, "rows = 5")
    require_memory(free // 4, "a part")


def test_a_bound_of_the_process_counts():
    program = "from bilm.memory import *; print(free_memory()); require_memory(2**30, 'it')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)),
    )
    assert 0 < int(done.stdout) < 2**29
    assert "InputError: it: at least 1,024 MB of memory would be needed; " in done.stderr


def with_lstm(**changes):
    return OPTIONS | {"n_tokens_vocab": 14, "lstm": OPTIONS["lstm"] | changes}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (with_lstm(dim=2**20, projection_dim=2**19), "the network that the options ask for: at l"),
        (
            with_lstm(projection_dim=2**18) | {"n_tokens_vocab": 10**8},
            "n_tokens_vocab = 100000000 words of 262144 numbers: at least",
        ),
    ],
)
def test_networks_that_no_memory_holds(options, message):
    with pytest.raises(InputError, match=message):
        bilm.LanguageModel(options, is_training=False)


def test_states_that_no_memory_holds(tmp_path):
    options = preset("original") | {"bidirectional": True}
    options["lstm"] |= {"dim": 2**14, "projection_dim": 8}
    with pytest.raises(InputError, match="max_batch_size = 1048576: at least "):
        bilm.BidirectionalLanguageModel(options, None, max_batch_size=2**20, stateful=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return make_text(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2**20, 2**20), "a batch of 1048576 rows by 1048576 tokens: at least 13,631,488 MB"),
        ((2**20 + 1, 5), "batch_size: a whole number from 1 to 1048576 is expected, not 1048577"),
        ((4, 10**30), "num_steps: a whole number from 1 to 1048576 is expected, not 1000"),
        ((1000, 20), "a batch of 1000 rows by 20 tokens would have the text in it more than 16 t"),
    ],
)
def test_batches_far_larger_than_the_text(text, shape, message):
    data = BidirectionalLMDataset(text.training, load_vocab(text.vocabulary, 12))
    with pytest.raises(InputError, match=message):
        next(data.iter_batches(*shape))
    batch = next(data.iter_batches(100, 20))  # which has the text in it nine times
    assert batch["token_ids"].shape == (100, 20)


def test_training_whose_steps_no_memory_holds(text, tmp_path):
    data = BidirectionalLMDataset(text.training, load_vocab(text.vocabulary, 12))
    options = with_lstm() | {"batch_size": 2**20, "unroll_steps": 2**20}
    with pytest.raises(InputError, match="batch_size = 1048576, unroll_steps = 1048576: at least "):
        bilm.train(options, data, 1, tmp_path / "run", None)
