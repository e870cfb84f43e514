"""Try it all: train a small model on this machine and look at its vectors.

The demo needs no download. It prints and runs other subcommands. The text is the English docstrings
of the installed Python, NumPy, Keras and TensorFlow. `bilm train` trains on it for a few minutes
and reports the quality of the model. `bilm senses` and `bilm project` show words with two clear
clusters of occurrences, and `bilm static` shows their static vectors for comparison. Without
--corpus, the page of the model `english` is written before the training.

Requires scikit-learn and gensim (the extra `look`).

  bilm demo
  bilm demo --corpus my-text.txt --out my-demo

--corpus is raw text, which is tokenised by the English or Chinese rules of `bilm tokenize`. With
--tokenized, it has one sentence per line and tokens separated by spaces. Only the first three
million tokens are used.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bilm.cli import flags
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.progress import ProgressDisplay
from bilm.terminal import import_tensorflow, note

if TYPE_CHECKING:
    from bilm.analysis.demo_text import SplitText

_MAX_TOKENS = 3_000_000
_HELDOUT_PROPORTION = 0.03
_MAX_HELDOUT_TOKENS = 50_000
_MANY_TOKENS = 100_000  # from this size on, the vocabulary drops words that occur only twice
_LEAST_OCCURRENCES = 10  # minimum for each word of --words
_SHIPPED = "english"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "--out FOLDER": "folder for text, model and pages; it must not exist yet (default: "
            "bilm-demo)",
            "--minutes X": "training time; everything else needs about a minute (default: 3)",
            "--corpus FILE ...": "your own text (UTF-8, plain or compressed)",
            "--tokenized": "--corpus has one sentence per line, tokens separated by spaces",
            "--words WORD ...": "words to show (default: the words with the clearest clusters)",
        },
    )
    parser.set_defaults(out="bilm-demo", minutes=3.0)


def run(args: argparse.Namespace) -> int:
    if not args.corpus:
        flags.require_effect(args, "--corpus", "tokenized")
    if os.path.exists(args.out):
        raise InputError(
            f"--out must be a new folder, got {args.out}, perhaps from an earlier demo: remove it, "
            "or name another one."
        )
    for module in ("sklearn", "gensim"):
        import_extra(module, "bilm demo")
    text = _read_text(args)
    words = None if args.words is None else _frequent(args.words, text)
    note("loading TensorFlow ...")
    import_tensorflow()
    try:
        _run_all(args, text, words)
    except SystemExit as failed:
        return int(failed.code or 0)
    print(f"\nAll files are in {args.out}; `bilm train --help` shows how to train your own.")
    return 0


def _bilm(*words: str) -> None:
    """Print a command and run it; exit if it fails."""
    from bilm.cli import main

    print(f"\n$ bilm {shlex.join(words)}", flush=True)
    if code := main(words):
        raise SystemExit(code)


def _read_text(args: argparse.Namespace) -> SplitText:
    from bilm.analysis.demo_text import gather_docstrings, read_texts, set_aside

    if args.corpus:
        note("reading the text ...")
        documents = read_texts(args.corpus, args.tokenized, _MAX_TOKENS)
    else:
        note("reading the docstrings of Python, NumPy, Keras and TensorFlow ...")
        documents = gather_docstrings()
    text = set_aside(documents, _HELDOUT_PROPORTION, _MAX_HELDOUT_TOKENS)
    for name, sentences in (("training", text.training), ("held-out", text.heldout)):
        n_tokens = sum(map(len, sentences))
        print(f"{name:<11}{len(sentences):>9,} sentences {n_tokens:>10,} tokens")
    return text


def _frequent(words: Sequence[str], text: SplitText) -> list[str]:
    counts = Counter(itertools.chain(*text.training))
    frequent = [word for word in words if counts[word] >= _LEAST_OCCURRENCES]
    for word in words:
        if word not in frequent:
            note(f"{word!r} must occur {_LEAST_OCCURRENCES} times in the text, got {counts[word]}.")
    if not frequent:
        raise InputError(
            f"--words: at least one of them must occur {_LEAST_OCCURRENCES} times in the text."
        )
    return frequent


def _run_all(args: argparse.Namespace, text: SplitText, words: list[str] | None) -> None:
    from bilm.analysis.demo_text import write_sentences
    from bilm.files.named_models import published_models

    os.makedirs(args.out)
    names = ("train.txt", "heldout.txt", "vocab.txt", "model", "elmo", "vectors.txt")
    training, heldout, vocabulary, model, elmo, vectors = (
        os.path.join(args.out, name) for name in names
    )
    write_sentences(training, text.training)
    write_sentences(heldout, text.heldout)
    shipped = {entry.name for entry in published_models() if entry.is_present}
    if not args.corpus and _SHIPPED in shipped:
        _show_words(args, text, words, _SHIPPED)
    min_count = "3" if sum(map(len, text.training)) >= _MANY_TOKENS else "2"
    _bilm("vocab", training, "--out", vocabulary, "--min_count", min_count)
    seconds = f"{max(1, round(60 * args.minutes))}s"
    _bilm("train", "--preset", "tiny", "--time", seconds, "--save_dir", model,
          "--vocab_file", vocabulary, "--train_prefix", training,
          "--heldout_prefix", heldout)  # fmt: skip
    _bilm("dump", "--save_dir", model, "--best", "--model_dir", elmo)
    if shown := _show_words(args, text, words, elmo):
        _bilm("static", "--text", training, "--out", vectors, "--epochs", "2", "--min_count", "2")
        _bilm("static", "--vectors", vectors, "--nearest", *shown, "--n", "6")


def _show_words(
    args: argparse.Namespace, text: SplitText, words: list[str] | None, model: str
) -> list[str]:
    """Show and return the words; None chooses the words with the clearest clusters."""
    if words is None:
        from bilm.analysis.demo_text import clearest_words
        from bilm.use.elmo import ELMo

        elmo = ELMo.from_pretrained(model)
        with ProgressDisplay() as display:
            words = clearest_words(elmo, text.training, progress=display.show)
        if not words:
            print("\nNo word of the text has two clear clusters of occurrences in this model.")
            return []
    occurrences, page = (
        os.path.join(args.out, f"{os.path.basename(model)}.{ending}") for ending in ("npz", "html")
    )
    training = os.path.join(args.out, "train.txt")
    _bilm("senses", *words, "--match_case", "--max_clusters", "2", "--lines", "3", "--model", model,
          "--text", training, "--max_occurrences", "300", "--occurrences", occurrences)  # fmt: skip
    _bilm("project", "--occurrences", occurrences, "--out", page)
    print(f"Open {page} in a browser: each dot is an occurrence of a word in its sentence.")
    return words
