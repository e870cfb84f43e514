"""Scoring with 800,000 words takes at most 1 GB more than holding the model's variables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_runs import small_options

N_WORDS = 800_000
SOFTMAX = N_WORDS * 257 * 4  # bytes
OPTIONS = small_options(
    "short_words_261",
    lstm={"dim": 64, "projection_dim": 256, "n_layers": 1},
    n_tokens_vocab=N_WORDS,
    unroll_steps=20,
)
PROGRAM = """
import json, resource, sys
from pathlib import Path
import numpy as np
import bilm
from bilm.files.weights import weight_table
from bilm.training import LanguageModel
from bilm.files.checkpoints import save_checkpoint

what, folder = sys.argv[1], Path(sys.argv[2])
options = json.loads((folder / "options.json").read_text("utf-8"))
if what == "save":
    tensors = {}
    for weight in weight_table(LanguageModel(options)):
        tensors[weight.checkpoint] = tensors[f"{weight.checkpoint}/Adagrad"] = weight.variable.value
    save_checkpoint(folder, 1, tensors)
elif what == "hold":
    model = LanguageModel(options, is_training=False, seed=None)
else:
    vocabulary = bilm.load_vocab(folder / "vocab.txt", 7)
    data = bilm.BidirectionalLMDataset(folder / "heldout.txt", vocabulary, test=True)
    perplexity = bilm.test(options, str(folder / "model.ckpt-1"), data)
    assert perplexity.n_predictions == 42 * 21, perplexity.n_predictions
    assert N / 2 < perplexity < 2 * N, perplexity
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10)
""".replace("N /", f"{N_WORDS} /").replace("* N,", f"* {N_WORDS},")


def peak(what: str, folder: Path) -> int:
    """Peak memory of a separate process, in bytes."""
    command = [sys.executable, "-c", PROGRAM, what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit")
def test_scoring_with_800_000_words_stays_within_1_gb_above_the_model(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    words = [f"word{k}" for k in range(N_WORDS - 3)]
    vocabulary = "\n".join(["<S>", "</S>", "<UNK>", *words]) + "\n"
    (tmp_path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    lines = [" ".join(words[k :: N_WORDS // 20][:20]) for k in range(42)]
    (tmp_path / "heldout.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    peak("save", tmp_path)
    held = peak("hold", tmp_path)
    assert held > SOFTMAX
    assert peak("score", tmp_path) - held < 1e9
