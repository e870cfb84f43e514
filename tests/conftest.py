"""What all tests share: the recorded numbers of the original program, and a quiet TensorFlow."""

from __future__ import annotations

import functools
import os
import signal

# Read when TensorFlow is first imported, so set before any test module is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from collections.abc import Callable
from pathlib import Path

import pytest

from bilm.data import UnicodeCharsVocabulary
from tests import small_corpora, small_runs
from tests.command_line import Text, make_text, train_model

GOLDEN = Path(__file__).parent / "fixtures" / "golden"


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A process that a shell starts in the background ignores SIGINT, and so do its children;
    tests send it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of what the original program computes; its README.md says what each file is."""
    return GOLDEN


@pytest.fixture
def text(tmp_path: Path) -> Text:
    """A small text for the command line."""
    return make_text(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Text, str]:
    """A small text, and the folder of a model trained on it; no test changes either."""
    return train_model(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> small_runs.Corpus:
    """A small corpus to train on; no test changes it."""
    return small_runs.write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def vocab(tmp_path: Path) -> UnicodeCharsVocabulary:
    """The vocabulary of `small_corpora`."""
    return small_corpora.small_vocabulary(tmp_path)


@pytest.fixture
def write_shards(tmp_path: Path) -> Callable[..., str]:
    """Writes shards, lists of sentences, each a list of words; gives the pattern."""
    return functools.partial(small_corpora.write_shards, tmp_path)
