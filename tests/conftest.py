"""Settings and fixtures that all tests share."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal

# TensorFlow reads these when it is imported, so set them before any test module is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from bilm.data import UnicodeCharsVocabulary
from tests import small_corpora, small_runs
from tests.command_line import Text, make_text, train_model
from tests.embedded_text import LINES, Embedded, write_lines
from tests.small_models import write_small_model

GOLDEN = Path(__file__).parent / "fixtures" / "golden"

# Few examples, always the same, and no shrinking of failures, which can take long;
# `pytest --hypothesis-profile=long` draws many different ones.
ANY_TIME = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile(
    "quick",
    derandomize=True,
    max_examples=25,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    **ANY_TIME,
)
settings.register_profile("long", max_examples=1000, **ANY_TIME)
settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Handle SIGINT, which tests send. A process that a shell starts in the background ignores it,
    and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    said = "trace TensorFlow's functions in tests that are marked eager as well"
    parser.addoption("--traced", action="store_true", help=said)


def pytest_collection_finish() -> None:
    """Exclude everything imported so far from later garbage collections, to save time."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run quick tests marked `eager`, and their fixtures, without tracing TensorFlow functions.

    For models this small, tracing takes several times as long as it saves. Slow tests are always
    traced, and with `--traced`, which CI uses in a second run, all tests are.
    """
    is_eager = item.get_closest_marker("eager") and not item.get_closest_marker("slow")
    if not is_eager or item.config.getoption("traced"):
        return (yield)
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    try:
        return (yield)
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder with the original program's recorded results; its README.md describes the files."""
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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    """A small character-based model in the published format; no test changes it.

    It caches word vectors, and these differ in the last bits between traced and eager tests, so
    each module has its own model.
    """
    from bilm import ELMo  # imports TensorFlow, which not all tests need

    made = write_small_model(tmp_path_factory.mktemp("published"), "as_published")
    model = ELMo.from_pretrained(made.folder)
    return Embedded(made.folder, model, model.encode(LINES, "all"))


@pytest.fixture
def place(published: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embedded:
    """A working folder with `LINES` as text.txt and the model as elmo."""
    monkeypatch.chdir(tmp_path)
    write_lines(LINES)
    shutil.copytree(published.folder, "elmo")
    return published


@pytest.fixture
def vocab(tmp_path: Path) -> UnicodeCharsVocabulary:
    """The vocabulary of `small_corpora`."""
    return small_corpora.small_vocabulary(tmp_path)


@pytest.fixture
def write_shards(tmp_path: Path) -> Callable[..., str]:
    """A function that writes shards (see `small_corpora.write_shards`) and returns their glob."""
    return functools.partial(small_corpora.write_shards, tmp_path)
