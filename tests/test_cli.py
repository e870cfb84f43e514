"""The `bilm` command from end to end: what it does, what it prints, how it fails."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import h5py
import pytest

from bilm.cli import VERBS, main
from bilm.cli.progress import ProgressLine, TrainingLine, duration

ROOT = Path(__file__).parent.parent
WORDS = ("the", "cat", "dog", "bird", "sees", "hears", "finds", "a", "small", "old", ".")
OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 4]],
        "max_characters_per_token": 12,
        "n_characters": 261,
        "n_highway": 1,
    },
    "lstm": {"dim": 8, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True},
    "dropout": 0.1,
    "n_epochs": 1,
    "batch_size": 4,
    "unroll_steps": 5,
    "n_negative_samples_batch": 6,
}


@dataclass(frozen=True)
class Text:
    """Paths of a small text, its vocabulary and a model's options."""

    folder: Path
    vocabulary: str
    training: str
    heldout: str
    options: str


def make_text(folder: Path) -> Text:
    sentences = [
        f"{a} {n} {v} {b} {m} ."
        for a in ("the", "a")
        for n in ("cat", "dog", "bird")
        for v in ("sees", "hears", "finds")
        for b in ("small", "old")
        for m in ("cat", "unknown")
    ]
    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    contents = {"train-0.txt": sentences[::2], "train-1.txt": sentences[1::2],
                "heldout.txt": sentences[:5], "vocab.txt": vocabulary}  # fmt: skip
    for name, lines in contents.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    return Text(
        folder,
        str(folder / "vocab.txt"),
        str(folder / "train-*.txt"),
        str(folder / "heldout.txt"),
        str(folder / "options.json"),
    )


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return make_text(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Text, str]:
    """A text, and the folder of a model trained on it; tests must not change them."""
    text = make_text(tmp_path_factory.mktemp("trained"))
    save_dir = str(text.folder / "model")
    assert main(train_arguments(text, save_dir)) == 0
    return text, save_dir


def train_arguments(text: Text, save_dir: str, *more: str) -> list[str]:
    return ["train", "--save_dir", save_dir, "--vocab_file", text.vocabulary,
            "--train_prefix", text.training, "--options_file", text.options, *more]  # fmt: skip


def usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that breaks a rule of usage; return what it prints on standard error."""
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    return capsys.readouterr().err


def input_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that fails for its input; return its one line of error."""
    capsys.readouterr()
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    errors = [line for line in captured.err.splitlines() if "error: " in line]
    assert len(errors) == 1 and "Traceback" not in captured.err
    return errors[0]


# Help and usage


def test_help_names_every_verb(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    printed = capsys.readouterr().out
    for verb in VERBS:
        assert f"\n    {verb} " in printed


@pytest.mark.parametrize(
    ("verb", "flags"),
    [
        ("train", ["--save_dir", "--vocab_file", "--train_prefix", "--preset", "--options_file",
                   "--n_epochs", "--batch_size", "--learning_rate", "--n_train_tokens",
                   "--n_gpus", "--seed", "--precision"]),
        ("restart", ["--save_dir", "--vocab_file", "--train_prefix", "--n_gpus", "--batch_size",
                     "--n_train_tokens", "--n_epochs"]),
        ("test", ["--save_dir", "--vocab_file", "--test_prefix", "--batch_size", "--carry_state"]),
        ("dump", ["--save_dir", "--outfile", "--model_dir", "--vocab_file", "--force"]),
        ("demo", ["--out", "--minutes", "--corpus", "--tokenized", "--words", "--seed"]),
    ],
)  # fmt: skip
def test_help_of_a_verb_names_its_flags(verb, flags, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([verb, "--help"])
    printed = capsys.readouterr().out
    for flag in flags:
        assert f"  {flag} " in printed or f"  {flag}\n" in printed


def test_without_a_verb_help_is_printed_and_the_code_is_2(capsys):
    assert main([]) == 2
    assert "usage: bilm" in capsys.readouterr().err


def test_unknown_verb(capsys):
    assert "invalid choice: 'learn'" in usage_error(["learn"], capsys)


def test_abbreviated_flags_are_refused(text, capsys):
    arguments = [*train_arguments(text, "model"), "--n_ep", "1"]
    assert "unrecognized arguments: --n_ep" in usage_error(arguments, capsys)


def test_preset_and_options_file_exclude_each_other(text, capsys):
    arguments = train_arguments(text, "model", "--preset", "tiny")
    assert "--preset: not allowed with argument --options_file" in usage_error(arguments, capsys)


def test_dump_needs_one_target(capsys):
    error = usage_error(["dump", "--save_dir", "model"], capsys)
    assert "one of the arguments --outfile --model_dir is required" in error


def test_dump_takes_a_vocabulary_for_a_model_folder_only(capsys):
    arguments = ["dump", "--save_dir", "m", "--outfile", "w.hdf5", "--vocab_file", "v.txt"]
    assert "--vocab_file goes with --model_dir" in usage_error(arguments, capsys)


@pytest.mark.parametrize(
    ("flag", "value", "rule"),
    [
        ("--n_epochs", "0", "a whole number from 1 is expected, not '0'"),
        ("--batch_size", "2.5", "a whole number from 1 is expected, not '2.5'"),
        ("--n_train_tokens", "many", "a whole number from 1 is expected, not 'many'"),
        ("--n_gpus", "0", "a whole number from 1 is expected, not '0'"),
        ("--seed", "-1", "a whole number from 0 is expected, not '-1'"),
        ("--learning_rate", "0", "a number above 0 is expected, not '0'"),
        ("--learning_rate", "nan", "a number above 0 is expected, not 'nan'"),
        ("--learning_rate", "fast", "a number above 0 is expected, not 'fast'"),
        ("--preset", "huge", "invalid choice: 'huge'"),
        ("--precision", "float16", "invalid choice: 'float16'"),
    ],
)
def test_values_of_flags_are_checked(flag, value, rule, text, capsys):
    arguments = train_arguments(text, "model", f"{flag}={value}")
    if flag == "--preset":
        arguments = [a for a in arguments if a not in ("--options_file", text.options)]
    assert rule in usage_error(arguments, capsys)


# Train


def test_train_leaves_a_model_and_its_vocabulary(trained):
    text, save_dir = trained
    names = os.listdir(save_dir)
    assert {"checkpoint", "options.json", "vocab.txt"} <= set(names)
    kept = Path(save_dir, "vocab.txt").read_text(encoding="utf-8")
    assert kept == Path(text.vocabulary).read_text(encoding="utf-8")
    options = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    assert options["n_tokens_vocab"] == 14
    # 72 sentences of 6 words: counted, not typed.
    assert options["n_train_tokens"] == 432


def test_train_prints_the_model_and_shows_progress(text, capsys):
    save_dir = str(text.folder / "new")
    arguments = train_arguments(text, save_dir, "--n_train_tokens=40", "--n-epochs", "2")
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("trained 4 steps; the model is ")
    assert "step 4 of 4  epoch 2  sampled perplexity " in captured.err
    assert f"bilm test --save_dir {save_dir}" in captured.err


def test_flags_stand_above_the_options_file(text):
    save_dir = str(text.folder / "new")
    more = ("--n_train_tokens", "12", "--batch-size", "2", "--learning_rate", "0.05")
    assert main(train_arguments(text, save_dir, *more)) == 0
    options = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    assert (options["batch_size"], options["learning_rate"]) == (2, 0.05)
    assert options["n_train_tokens"] == 12


def test_train_refuses_a_folder_with_a_model(trained, capsys):
    text, save_dir = trained
    before = sorted(os.listdir(save_dir))
    error = input_error(train_arguments(text, save_dir), capsys)
    assert error.startswith(f"bilm: error: {save_dir} has a trained model in it")
    assert f"`bilm restart --save_dir {save_dir}`" in error
    assert "another --save_dir" in error
    assert sorted(os.listdir(save_dir)) == before


def test_train_refuses_another_vocabulary_beside_it(text, capsys):
    save_dir = text.folder / "new"
    save_dir.mkdir()
    (save_dir / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nother\n", encoding="utf-8")
    error = input_error(train_arguments(text, str(save_dir)), capsys)
    assert "differs from" in error and str(save_dir / "vocab.txt") in error


def test_train_with_few_words_uses_the_full_softmax_and_says_so(text, capsys):
    Path(text.options).write_text(
        json.dumps(OPTIONS | {"n_negative_samples_batch": 14}), encoding="utf-8"
    )
    save_dir = str(text.folder / "new")
    assert main(train_arguments(text, save_dir, "--n_train_tokens=20")) == 0
    error = capsys.readouterr().err
    assert "has 14 words, not more than the 14 negative samples" in error
    assert "epoch 1  perplexity " in error
    options = json.loads(Path(save_dir, "options.json").read_text(encoding="utf-8"))
    assert options["sample_softmax"] is False


def test_train_names_both_sizes_of_the_vocabulary(text, capsys):
    Path(text.options).write_text(json.dumps(OPTIONS | {"n_tokens_vocab": 99}), encoding="utf-8")
    error = input_error(train_arguments(text, str(text.folder / "new")), capsys)
    assert f"{text.options} is for n_tokens_vocab = 99 words, but {text.vocabulary} has 14" in error


def test_train_of_one_direction_and_of_words(text, capsys):
    options = {key: value for key, value in OPTIONS.items() if key != "char_cnn"}
    Path(text.options).write_text(json.dumps(options | {"bidirectional": False}), encoding="utf-8")
    save_dir = str(text.folder / "new")
    assert main(train_arguments(text, save_dir, "--n_train_tokens=20")) == 0
    capsys.readouterr()
    assert main(["test", "--save_dir", save_dir, "--test_prefix", text.heldout]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["forward", "predictions"]


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [
        ("vocabulary", b"<S>\n</S>\nthe\n", "lacks <UNK>"),
        ("vocabulary", b"", "empty"),
        ("vocabulary", b"<S>\n</S>\n<UNK>\n\xff\n", "line 4: not UTF-8"),
        ("vocabulary", None, "does not exist"),
        ("training", b"", "no "),
        ("training", b"the cat\n\xff\xfe\n", "line 2: not UTF-8"),
        ("training", None, "No file matches"),
        ("options", b"[1, 2]", "a JSON object is expected, not a list"),
        ("options", b"{", "not JSON"),
        ("options", b"{}", "lstm: a JSON object is expected"),
        ("options", None, "does not exist"),
    ],
)
def test_train_with_a_bad_file(flag, content, message, text, capsys):
    path = text.folder / "bad"
    if content is not None:
        path.write_bytes(content)
    files = SimpleNamespace(**text.__dict__ | {flag: str(path)})
    error = input_error(train_arguments(files, str(text.folder / "new")), capsys)
    assert message in error and "bad" in error
    assert not (text.folder / "new" / "checkpoint").exists()


# Restart


def test_restart_trains_further(text, capsys):
    save_dir = str(text.folder / "new")
    assert main(train_arguments(text, save_dir, "--n_train_tokens=40")) == 0
    before = Path(save_dir, "checkpoint").read_text(encoding="utf-8")
    arguments = ["restart", "--save_dir", save_dir, "--train_prefix", text.training]
    assert main([*arguments, "--n_train_tokens", "60", "--n_epochs", "1"]) == 0
    assert "trained " in capsys.readouterr().out
    assert Path(save_dir, "checkpoint").read_text(encoding="utf-8") != before


def test_restart_takes_an_original_checkpoint(tmp_path: Path, golden: Path, capsys):
    save_dir = tmp_path / "model"
    save_dir.mkdir()
    for path in (golden / "training" / "characters" / "start").iterdir():
        (save_dir / path.name).write_bytes(path.read_bytes())
    arguments = ["restart", "--save-dir", str(save_dir), "--vocab-file", str(golden / "vocab.txt"),
                 "--train-prefix", str(golden / "corpus" / "*.txt"), "--n_epochs", "1"]  # fmt: skip
    assert main(arguments) == 0
    kept = (save_dir / "vocab.txt").read_text(encoding="utf-8")
    assert kept == (golden / "vocab.txt").read_text(encoding="utf-8")


def test_restart_without_a_model(text, capsys):
    arguments = ["restart", "--save_dir", str(text.folder), "--train_prefix", text.training]
    assert str(text.folder) in input_error(arguments, capsys)


def test_restart_needs_the_vocabulary(tmp_path: Path, golden: Path, capsys):
    start = golden / "training" / "characters" / "start"
    arguments = ["restart", "--save_dir", str(start), "--train_prefix", str(golden / "corpus/*")]
    assert f"{start} has no vocab.txt: name it by --vocab_file" in input_error(arguments, capsys)


# Test


def test_test_prints_perplexities_that_do_not_depend_on_the_batch(trained, capsys):
    text, save_dir = trained
    printed = []
    for batch_size in ("1", "3", "256"):
        capsys.readouterr()
        assert main(["test", "--save_dir", save_dir, "--test_prefix", text.heldout,
                     "--batch_size", batch_size]) == 0  # fmt: skip
        printed.append(capsys.readouterr().out)
    lines = [line.rsplit(maxsplit=1) for line in printed[0].splitlines()]
    names = ["forward perplexity", "backward perplexity", "perplexity", "predictions"]
    assert [name for name, _ in lines] == names
    forward, backward, joint, n_predictions = (float(value) for _, value in lines)
    # Five sentences of six words and an end, each direction.
    assert n_predictions in (35, 70)
    assert joint == pytest.approx((forward * backward) ** 0.5, abs=1e-3)
    for other in printed[1:]:
        values = [float(line.split()[-1]) for line in other.splitlines()]
        assert values == pytest.approx([forward, backward, joint, n_predictions], rel=1e-5)


def test_test_with_carried_state(trained, capsys):
    text, save_dir = trained
    arguments = ["test", "--save_dir", save_dir, "--test_prefix", text.heldout]
    assert main([*arguments, "--batch_size", "1", "--carry_state"]) == 0
    assert "perplexity" in capsys.readouterr().out


def test_test_refuses_another_vocabulary(trained, tmp_path: Path, capsys):
    text, save_dir = trained
    other = tmp_path / "other.txt"
    other.write_text("<S>\n</S>\n<UNK>\nword\n", encoding="utf-8")
    arguments = ["test", "--save_dir", save_dir, "--test_prefix", text.heldout]
    error = input_error([*arguments, "--vocab_file", str(other)], capsys)
    assert f"{other} differs from {save_dir}/vocab.txt" in error


def test_test_of_an_original_model_with_a_vocabulary_of_another_size(golden: Path, text, capsys):
    start = golden / "training" / "characters" / "start"
    arguments = ["test", "--save_dir", str(start), "--test_prefix", text.heldout]
    error = input_error([*arguments, "--vocab_file", text.vocabulary], capsys)
    assert f"{start} is for n_tokens_vocab = " in error and f"{text.vocabulary} has 14" in error


# Dump


def test_dump_writes_weights_and_options(trained, tmp_path: Path, capsys):
    _, save_dir = trained
    outfile = tmp_path / "weights.hdf5"
    assert main(["dump", "--save_dir", save_dir, "--outfile", str(outfile)]) == 0
    assert capsys.readouterr().out.split() == [str(outfile), str(tmp_path / "weights.options.json")]
    with h5py.File(outfile) as file:
        assert file["char_embed"].shape == (261, 4)
    options = json.loads((tmp_path / "weights.options.json").read_text(encoding="utf-8"))
    assert options["char_cnn"]["n_characters"] == 262


def test_dump_writes_a_model_folder(trained, tmp_path: Path):
    text, save_dir = trained
    folder = tmp_path / "elmo"
    assert main(["dump", "--save_dir", save_dir, "--model_dir", str(folder)]) == 0
    assert sorted(os.listdir(folder)) == ["model.hdf5", "options.json", "vocab.txt"]
    from bilm import BidirectionalLanguageModel

    BidirectionalLanguageModel(folder / "options.json", folder / "model.hdf5")
    kept = (folder / "vocab.txt").read_text(encoding="utf-8")
    assert kept == Path(text.vocabulary).read_text(encoding="utf-8")


def test_dump_overwrites_only_when_forced(trained, tmp_path: Path, capsys):
    _, save_dir = trained
    outfile = tmp_path / "weights.hdf5"
    outfile.write_bytes(b"precious")
    arguments = ["dump", "--save_dir", save_dir, "--outfile", str(outfile)]
    error = input_error(arguments, capsys)
    assert f"{outfile} would be overwritten: --force allows it" in error
    assert outfile.read_bytes() == b"precious"
    assert main([*arguments, "--force"]) == 0
    assert outfile.read_bytes() != b"precious"


def test_dump_of_a_folder_overwrites_only_when_forced(trained, tmp_path: Path, capsys):
    _, save_dir = trained
    (tmp_path / "options.json").write_text("{}", encoding="utf-8")
    arguments = ["dump", "--save_dir", save_dir, "--model_dir", str(tmp_path)]
    assert "options.json would be overwritten" in input_error(arguments, capsys)
    assert os.listdir(tmp_path) == ["options.json"]
    assert main([*arguments, "--force"]) == 0
    assert sorted(os.listdir(tmp_path)) == ["model.hdf5", "options.json", "vocab.txt"]


def test_dump_without_a_model(tmp_path: Path, capsys):
    arguments = ["dump", "--save_dir", str(tmp_path), "--outfile", str(tmp_path / "w.hdf5")]
    assert str(tmp_path) in input_error(arguments, capsys)
    assert os.listdir(tmp_path) == []


# Failures


def test_a_file_that_may_not_be_written_is_an_error_of_one_line(text, capsys):
    (text.folder / "file").write_text("", encoding="utf-8")
    error = input_error(train_arguments(text, str(text.folder / "file" / "model")), capsys)
    assert "Not a directory" in error and "Errno" not in error


def test_a_bug_keeps_its_traceback(monkeypatch, text):
    def broken(args):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("bilm.cli.train.run", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(train_arguments(text, "model"))


def test_an_interrupt_ends_with_130(monkeypatch, text, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("bilm.cli.train.run", interrupted)
    assert main(train_arguments(text, "model")) == 130
    assert capsys.readouterr().err == "\nbilm: interrupted.\n"


@pytest.mark.slow
def test_ctrl_c_says_what_is_saved(text):
    save_dir = str(text.folder / "new")
    process = subprocess.Popen(
        [sys.executable, "-m", "bilm", *train_arguments(text, save_dir, "--n_epochs=100000")],
        cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while "step " not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "bilm: interrupted." in error and "Traceback" not in error


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(trained, tmp_path: Path):
    _, save_dir = trained
    command = f"'{sys.executable}' -m bilm dump --save_dir '{save_dir}' --model_dir '{tmp_path}/m' "
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "Broken pipe" not in done.stderr


@pytest.mark.slow
def test_the_old_programs_work_from_end_to_end(text):
    def run(program: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "bin" / program), *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    save_dir, weights = str(text.folder / "new"), text.folder / "weights.hdf5"
    common = ("--save_dir", save_dir, "--vocab_file", text.vocabulary)
    run("train_elmo.py", *common, "--train_prefix", text.training, "--options_file", text.options)
    run("restart.py", *common, "--train_prefix", text.training, "--n_gpus", "1",
        "--batch_size", "4", "--n_train_tokens", "40", "--n_epochs", "1")  # fmt: skip
    printed = run("run_test.py", *common, "--test_prefix", text.heldout, "--batch_size", "8")
    assert "forward perplexity" in printed
    run("dump_weights.py", "--save_dir", save_dir, "--outfile", str(weights))
    assert weights.exists()


# Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass by call."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_progress_line_in_a_log_is_sparse():
    stream = io.StringIO()
    line = ProgressLine(stream, Clock(1.0))
    for number in range(1, 46):
        line.show(f"line {number}", last=number == 45)
    assert stream.getvalue() == "line 1\nline 21\nline 41\nline 45\n"


def test_progress_line_on_a_terminal_renews_itself():
    stream = Terminal()
    line = ProgressLine(stream, Clock(0.15))
    for text in ("a long line", "passed over", "short"):
        line.show(text)
    line.close()
    line.close()
    assert stream.getvalue() == "\ra long line\rshort      \n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (3600, "1 h 00 min"),
     (86400, "1 d 00 h")],
)  # fmt: skip
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_training_line_measures_from_the_second_event():
    stream = io.StringIO()
    show = TrainingLine(ProgressLine(stream, Clock(30.0)), sampled=True)

    def event(step: int, tokens: int, seconds: float) -> SimpleNamespace:
        return SimpleNamespace(
            step=step, n_steps=1000, epoch=1, perplexity=1234.56, tokens=tokens, seconds=seconds
        )

    show(event(1, 100, 10.0))  # the first step compiles
    show(event(11, 1100, 12.0))
    show(event(1000, 100000, 1010.0))
    assert stream.getvalue().splitlines() == [
        "step 1 of 1,000  epoch 1  sampled perplexity 1,234.6",
        "step 11 of 1,000  epoch 1  sampled perplexity 1,234.6  500 tokens/s  3 min 18 s to go",
        "step 1,000 of 1,000  epoch 1  sampled perplexity 1,234.6  100 tokens/s  0 s to go",
    ]
