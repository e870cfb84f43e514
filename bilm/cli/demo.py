"""Try it all: look at words with a model of the package, then train a small model.

The demo needs no download. It prints and runs other subcommands, on the package's sample of
Wikipedia. `bilm senses` and `bilm project` show the senses of words with the model `english` (or
`chinese`), and make a page to explore. Then a small model is trained on the same text, in the time
of --minutes, and `bilm report` measures it.

Requires scikit-learn and matplotlib (the extra `look`).

  bilm demo
  bilm demo --model chinese --minutes 3
"""

import argparse
import os
import shlex

from bilm.cli import flags
from bilm.core.errors import InputError, import_extra
from bilm.terminal import import_tensorflow, note

# Nouns with several senses that are frequent in the samples.
_WORDS = {"english": ["plant", "square"], "chinese": ["苹果"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "--out FOLDER": "folder for text, models and pages; it must not exist yet (default: "
            "bilm-demo)",
            f"--model {'|'.join(_WORDS)}": "model of the package, and language of the text "
            "(default: english)",
            "--minutes X": "training time; everything else needs about a minute (default: 1.5)",
        },
    )
    parser.set_defaults(out="bilm-demo", model="english", minutes=1.5)


def run(args: argparse.Namespace) -> int:
    from bilm.files.model_files import sample_text

    if os.path.exists(args.out):
        raise InputError(
            f"--out must be a new folder, got {args.out}, perhaps from an earlier demo: remove it, "
            "or name another one."
        )
    for module in ("sklearn", "matplotlib"):
        import_extra(module, "bilm demo")
    note("loading TensorFlow ...")
    import_tensorflow()
    os.makedirs(args.out)
    page, occurrences, report, vocabulary, text, folder, elmo = (
        os.path.join(args.out, name)
        for name in ("senses.html", "senses.npz", "report.html", "vocab.txt", "text", "run", "elmo")
    )
    try:
        _bilm("senses", *_WORDS[args.model], "--model", args.model, "--lines", "2",
              "--max_occurrences", "200", "--occurrences", occurrences)  # fmt: skip
        _bilm("project", "--occurrences", occurrences, "--out", page)
        _bilm("shard", sample_text(args.model) or "", "--out_dir", text, "--heldout", "500",
              "--n_shards", "1")  # fmt: skip
        training, heldout = (os.path.join(text, f"{part}-*.txt") for part in ("train", "heldout"))
        _bilm("vocab", training, "--out", vocabulary, "--min_count", "3")
        _bilm("train", "--preset", "tiny", "--time", f"{max(1, round(60 * args.minutes))}s",
              "--save_dir", folder, "--vocab_file", vocabulary,
              "--train_prefix", training, "--heldout_prefix", heldout)  # fmt: skip
        _bilm("dump", "--save_dir", folder, "--model_dir", elmo)
        _bilm("report", heldout, "--model", elmo, "--out", report)
    except SystemExit as failed:
        return int(failed.code or 0)
    print(f"\nOpen {page} and {report} in a browser: each dot of the first is an occurrence.")
    print(f"All files are in {args.out}; `bilm train --help` shows how to train your own model.")
    return 0


def _bilm(*words: str) -> None:
    """Print a command and run it; exit if it fails."""
    from bilm.cli import main

    print(f"\n$ bilm {shlex.join(words)}", flush=True)
    if code := main(words):
        raise SystemExit(code)
