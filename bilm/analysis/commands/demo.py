"""Try it all: train a small model on this machine and look at its vectors.

Needs no download. Gathers the English docstrings of the installed Python, NumPy, Keras and
TensorFlow, builds a vocabulary, trains the tiny preset for a few minutes, measures held-out
perplexity and a unigram model's, dumps the weights and loads them again. Then it looks for words
whose uses fall into two groups, shows typical lines of both beside the nearest words of a vector
that is the same in all contexts, and writes a page to be opened in a browser.

Needs the packages of the extra `look`:
`pip install scikit-learn gensim altair vl-convert-python`.

  bilm demo
  bilm demo --corpus my-text.txt --out my-demo

Text given by --corpus is raw prose: simple rules for English split it into sentences, and separate
words from punctuation. With --tokenized, text that has one sentence a line and its tokens separated
by white space is used as it is. Only the first three million tokens are used.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from bilm.cli import flags
from bilm.cli.terminal import import_tensorflow, note
from bilm.core.errors import InputError
from bilm.extras import import_extra
from bilm.progress import ProgressDisplay, duration

if TYPE_CHECKING:
    from bilm.analysis.demo.job import DemoFiles
    from bilm.analysis.demo.raw_text import SplitText
    from bilm.training import TrainingProgress

_MAX_TOKENS = 3_000_000
_HELDOUT_SHARE = 0.03
_MAX_HELDOUT_TOKENS = 50_000
_LEAST_USES = 10  # of a word of --words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "--out FOLDER": "folder for text, model and weights; it must not exist yet (default: "
            "bilm-demo)",
            "--minutes X": "time to train for; the rest takes about a minute (default: 3)",
            "--corpus FILE ...": "your own text (plain, .gz, .xz; UTF-8)",
            "--tokenized": "--corpus has one sentence a line, tokens separated by white space",
            "--words WORD ...": "words to show (default: those with the clearest groups)",
        },
    )
    parser.set_defaults(out="bilm-demo", minutes=3.0)


def run(args: argparse.Namespace) -> int:
    if args.tokenized and not args.corpus:
        flags.usage_error(args, "--tokenized goes with --corpus")
    if os.path.exists(args.out):
        raise InputError(
            f"{args.out} exists, perhaps from an earlier demo, and is never overwritten: name "
            "another folder by --out, or remove it."
        )
    import_extra("sklearn", "bilm demo")
    text = _read_text(args)
    words_to_show = _words_to_show(args, text)
    note("loading TensorFlow ...")
    import_tensorflow()
    from bilm.analysis.demo.job import DemoFiles, write_text

    files = DemoFiles.in_folder(args.out)
    words = write_text(files, text)
    print(f"vocabulary {len(words):>9,} words")
    _train(args, files)
    _measure(files, text, words)
    _show_senses(files, text, words_to_show)
    print(f"\nAll files are in {args.out}; `bilm train --help` tells how to train your own.")
    return 0


def _read_text(args: argparse.Namespace) -> SplitText:
    from bilm.analysis.demo.raw_text import count_tokens, gather_docstrings, read_texts, set_aside

    if args.corpus:
        _title(f"Text: {', '.join(args.corpus)}")
        documents = read_texts(args.corpus, args.tokenized, _MAX_TOKENS)
    else:
        _title("Text: the docstrings of Python, NumPy, Keras and TensorFlow")
        note("reading the source files ...")
        documents = gather_docstrings()
    text = set_aside(documents, _HELDOUT_SHARE, _MAX_HELDOUT_TOKENS)
    for name, sentences in (("training", text.training), ("held-out", text.heldout)):
        print(f"{name:<11}{len(sentences):>9,} sentences {count_tokens(sentences):>10,} tokens")
    return text


def _train(args: argparse.Namespace, files: DemoFiles) -> None:
    from bilm.analysis.demo.job import train_for

    _title(f"Training: the tiny preset, for {args.minutes:g} minutes")
    note("compiling ...")
    seconds = 60 * args.minutes
    with ProgressDisplay() as display:

        def show(event: TrainingProgress) -> None:
            left = duration(max(0.0, seconds - event.seconds))
            # As the training sees it: with dropout, and perhaps of the sampled softmax.
            detail = f"perplexity {event.perplexity:,.1f}  {left} left"
            display.update("step", event.step, detail=detail)

        try:
            record = train_for(files, seconds, show)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"What has been written is in {args.out}.") from None
    print(f"{record.n_steps:,} steps, {record.n_tokens:,} tokens in {duration(record.seconds)}")


def _measure(files: DemoFiles, text: SplitText, words: list[str]) -> None:
    from bilm.analysis.demo.job import heldout_perplexity, unigram_perplexity

    _title("Held-out perplexity (lower is better)")
    unigram = unigram_perplexity(text.training, text.heldout, words)
    print(f"unigram model           {unigram:8.1f}", flush=True)
    perplexity = heldout_perplexity(files)
    print(f"forward language model  {perplexity.forward:8.1f}")
    print(f"backward language model {perplexity.backward:8.1f}")
    print(f"both                    {float(perplexity):8.1f}")


def _words_to_show(args: argparse.Namespace, text: SplitText) -> list[str] | None:
    """The words of --words that occur often enough; None if it is not given."""
    if args.words is None:
        return None
    from bilm.analysis.demo.two_senses import count_uses

    counts = count_uses(text.heldout + text.training, args.words)
    for word, count in counts.items():
        if count < _LEAST_USES:
            note(f"{word!r} occurs {count} times in the text; {_LEAST_USES} are needed to show it.")
    words = [word for word, count in counts.items() if count >= _LEAST_USES]
    if not words:
        raise InputError(f"--words: none of them occurs {_LEAST_USES} times in the text.")
    return words


def _show_senses(files: DemoFiles, text: SplitText, words: list[str] | None) -> None:
    from bilm.analysis.demo.job import load_model
    from bilm.analysis.demo.two_senses import all_uses, find_two_senses, static_vectors
    from bilm.analysis.pictures import write_picture
    from bilm.analysis.projection import project

    _title("What a word means in its context: two groups of the uses of a word")
    elmo, sentences = load_model(files), text.heldout + text.training
    note("one vector for each frequent word ...")
    static = static_vectors(elmo, sentences)
    with ProgressDisplay() as display:
        found = find_two_senses(
            elmo,
            sentences,
            static,
            words,
            progress=lambda done, total: display.update("encoding", done, total, "occurrences"),
        )
    for senses in found:
        print(f"\n{senses.word}, {senses.count:,} times in the text")
        if senses.word in static:
            nearest = ", ".join(word for _, word in static.nearest(senses.word, 6))
            print(f"  one vector for all its uses; nearest words: {nearest}")
        for group, size in enumerate(senses.clusters.sizes):
            share = size / len(senses.occurrences)
            nearest = ", ".join(senses.near[group])
            print(f"  group {group + 1}, {share:.0%} of its uses; nearest words: {nearest}")
            for line in senses.lines(group):
                print(f"    {line}")
    uses = all_uses(found)
    write_picture(
        files.page,
        uses,
        project(uses, "pca"),
        title=f"Uses of {', '.join(senses.word for senses in found)}",
    )
    print(f"\nOpen {files.page} in a browser: each dot is a use of a word, and shows its sentence.")


def _title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)
