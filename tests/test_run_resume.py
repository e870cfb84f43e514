"""A run that is interrupted in any way ends like an uninterrupted one."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from bilm.cli import main
from bilm.core.errors import InputError
from bilm.data import BidirectionalLMDataset, load_vocab
from bilm.training import load_options_latest_checkpoint, train
from bilm.training.state import RunState, read_state
from tests.command_line import OPTIONS, WORDS, Text, input_error
from tests.compare import assert_same_checkpoint
from tests.processes import saved_steps, start_bilm, wait_for

# Each run takes seconds to trace.
pytestmark = pytest.mark.slow
N_STEPS = 36


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run; tests do not change it."""
    folder = tmp_path_factory.mktemp("whole")
    record = train_here(make_text(folder), folder / "run")
    assert record.n_steps == N_STEPS
    assert record.best_step == record_of(folder / "run").best_step
    assert [step for step, _ in record.heldout] == [7, 14, 21, 28, 35, 36]
    return folder / "run"


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return make_text(tmp_path)


def make_text(tmp_path: Path) -> Text:
    """Three shards of different sentences, so that rows continue across shards."""
    draw = random.Random(5)
    lines = [
        " ".join(draw.choices([*WORDS, "unheard-of"], k=draw.randint(1, 12))) for _ in range(90)
    ]
    parts = {"train-0.txt": lines[:20], "train-1.txt": lines[20:50], "train-2.txt": lines[50:80],
             "heldout.txt": lines[80:], "vocab.txt": ["<S>", "</S>", "<UNK>", *WORDS]}  # fmt: skip
    for name, content in parts.items():
        (tmp_path / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    options = OPTIONS | {"n_epochs": 3, "n_train_tokens": 240, "reset_rate": 0.5}
    options |= {"optimizer": "muon", "initial_accumulator": 0.001, "softmax_bias": "unigram"}
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    names = ("vocab.txt", "train-*.txt", "heldout.txt", "options.json")
    return Text(tmp_path, *(str(tmp_path / name) for name in names))


def train_here(text: Text, save_dir: Path, **settings):
    """A run of 36 steps through the library, with the same settings as `bilm train` uses."""
    options = json.loads(Path(text.options).read_text(encoding="utf-8")) | {"n_tokens_vocab": 14}
    vocabulary = load_vocab(text.vocabulary, 12)
    data = BidirectionalLMDataset(text.training, vocabulary, shuffle_on_load=True, seed=3)
    heldout = BidirectionalLMDataset(text.heldout, vocabulary, test=True)
    options["schedule"] = "cosine"
    settings = {"seed": 3, "heldout": heldout, "heldout_every": "7 steps",
                "save_minutes": 1e-9} | settings  # fmt: skip
    checkpoint = settings.pop("checkpoint", None)
    return train(options, data, 1, save_dir, save_dir, checkpoint, **settings)


def newest(save_dir: Path) -> str:
    """The newest checkpoint of a folder."""
    return load_options_latest_checkpoint(save_dir)[1]


def record_of(save_dir: Path) -> RunState:
    record = read_state(newest(save_dir))
    assert record is not None
    return dataclasses.replace(record, run_seconds=0, elapsed=0)


def log_of(save_dir: Path) -> list[dict]:
    lines = (save_dir / "train_log.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def assert_same_run(save_dir: Path, other: Path) -> None:
    assert_same_checkpoint(newest(save_dir), newest(other))
    assert record_of(save_dir) == record_of(other)
    assert log_of(save_dir) == log_of(other)
    best, other_best = save_dir / "best", other / "best"
    assert {*os.listdir(best)} - {"vocab.txt"} == {*os.listdir(other_best)} - {"vocab.txt"}
    assert_same_checkpoint(newest(best), newest(other_best))


def test_a_run_in_pieces_is_the_run_in_one(whole, text, tmp_path):
    pieces = tmp_path / "pieces"
    checkpoint = None
    for stop in (1, 13, 14):
        interrupted(text, pieces, checkpoint, stop)
        checkpoint = newest(pieces)
        assert checkpoint.endswith(f"-{stop}")
    train_here(text, pieces, checkpoint=checkpoint)
    assert_same_run(pieces, whole)


def interrupted(text: Text, save_dir: Path, checkpoint: str | None, stop: int) -> None:
    """Press Ctrl-C after step `stop`."""

    def press(event):
        if event.step == stop:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_here(text, save_dir, checkpoint=checkpoint, save_minutes=10, progress=press)


def test_what_a_crash_left_of_a_checkpoint_is_passed_over_and_replaced(
    whole, text, tmp_path, caplog
):
    cut = tmp_path / "cut"
    train_here(text, cut, progress=lambda event: event.step == 20)
    assert newest(cut).endswith("model.ckpt-20")
    data = Path(f"{newest(cut)}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:100])
    (cut / ".bilm-saving").mkdir()
    (cut / ".bilm-saving" / "model.ckpt-21.index.tempstate1").write_bytes(b"x")
    (cut / "train_log.jsonl").open("a", encoding="utf-8").write('{"step": 20, "ep')
    checkpoint = newest(cut)
    assert checkpoint.endswith("model.ckpt-19") and "skipped" in caplog.text
    train_here(text, cut, checkpoint=checkpoint, keep_checkpoints=1)
    assert_same_run(cut, whole)
    assert not (cut / ".bilm-saving").exists()
    assert sorted(p.name for p in cut.glob("*model.ckpt*")) == [
        "model.ckpt-36.data-00000-of-00001",
        "model.ckpt-36.index",
    ]


@pytest.mark.parametrize("harm", ["removed", "cut off"])
def test_a_shard_that_dies_ends_the_run_and_loses_nothing(harm, whole, text, tmp_path):
    dead = tmp_path / "dead"
    contents = {path: path.read_bytes() for path in tmp_path.glob("train-*.txt")}

    def harm_all(event):
        for path, content in contents.items():
            path.unlink(missing_ok=True) if harm == "removed" else path.write_bytes(content[:-20])

    message = "does not exist" if harm == "removed" else "must not change while it is read"
    with pytest.raises((InputError, FileNotFoundError), match=message) as error:
        train_here(text, dead, save_minutes=10, progress=harm_all)
    checkpoint = newest(dead)
    assert f"; the last checkpoint is {checkpoint}." in str(error.value)
    with pytest.raises((InputError, FileNotFoundError)):
        train_here(text, dead, checkpoint=checkpoint)
    for path, content in contents.items():
        path.write_bytes(content)
    train_here(text, dead, checkpoint=checkpoint)
    assert_same_run(dead, whole)


def command_of(text: Text, save_dir: Path) -> list[str]:
    return ["train", "--save_dir", str(save_dir), "--vocab_file", text.vocabulary,
            "--train_prefix", text.training, "--options_file", text.options, "--seed", "3",
            "--heldout_prefix", text.heldout, "--heldout_every", "7steps", "--patience", "9",
            "--lr_schedule", "cosine", "--save_minutes", "1e-6",
            "--precision", "float32"]  # fmt: skip


def last_step(save_dir: Path) -> int:
    return max(saved_steps(save_dir), default=0)


def test_killed_at_any_moment_the_same_command_goes_on(whole, text, tmp_path):
    killed = tmp_path / "killed"
    draw = random.Random(7)
    reached = []
    for steps in (0, 1, 9, 22):
        process = start_bilm(command_of(text, killed))
        wait_for(lambda n=steps: last_step(killed) >= n, process)
        time.sleep(draw.random() / 4)
        process.kill()
        process.communicate()
        reached.append(last_step(killed))
    assert reached[-1] >= 22 and main(command_of(text, killed)) == 0
    assert_same_run(killed, whole)
    assert main(command_of(text, killed)) == 0  # all steps are done
    assert_same_run(killed, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_saves_its_steps(text, tmp_path, number):
    """SECURITY.md: Ctrl-C or a kill loses at most the work since the last save."""
    save_dir = tmp_path / "run"
    endless = ("--n_epochs", "100000", "--save_minutes", "60", "--heldout_every", "100000epochs")
    process = start_bilm([*command_of(text, save_dir), *endless])
    wait_for((save_dir / "train_log.jsonl").exists, process)  # after the first step
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 130 and "the same command resumes the run" in error
    assert last_step(save_dir) >= 1


def test_the_same_command_with_other_options_is_refused(text, tmp_path, capsys):
    save_dir = tmp_path / "run"
    arguments = command_of(text, save_dir)
    assert main([*arguments, "--n_train_tokens", "40"]) == 0
    more = ("--n_train_tokens", "60", "--precision", "bfloat16", "--lr_schedule", "linear")
    error = input_error([*arguments, *more], capsys)
    assert "n_train_tokens is 40 there, 60 here" in error
    assert "precision is 'float32' there, 'bfloat16' here" in error
    assert "schedule is 'cosine' there, 'linear' here" in error
