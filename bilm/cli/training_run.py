"""Training folders, for several subcommands; and a call of `bilm train` or `bilm restart`: the run
with its progress, and its report."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import signal
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bilm.cli import flags
from bilm.core.errors import InputError
from bilm.core.options import MOST_CHARACTERS, Options
from bilm.files.reading import find_files, holds_checkpoint
from bilm.progress import ProgressDisplay, Stage, duration
from bilm.terminal import count, import_tensorflow, note

if TYPE_CHECKING:
    from bilm.data.dataset import BidirectionalLMDataset, LMDataset
    from bilm.data.vocabulary import Vocabulary
    from bilm.training import Perplexity
    from bilm.training.state import RunState

# Steps whose mean loss gives the training perplexity.
_LAST_STEPS = 100


# Training folders


def read_run(save_dir: str) -> tuple[Options, RunState | None, str]:
    """The options of the run in a folder, its state (None for the original program), and the
    checkpoint."""
    from bilm.files.checkpoints import load_options_latest_checkpoint
    from bilm.training.state import read_state

    values, checkpoint = load_options_latest_checkpoint(save_dir)
    state = read_state(checkpoint)
    options = Options.from_dict(values, training=True, source=save_dir)
    return options, state, checkpoint


def load_vocabulary(
    args: argparse.Namespace, options: Options, source: str
) -> tuple[Vocabulary, Options]:
    """The vocabulary, and the options with its size and a softmax that fits it. `source` names the
    options in messages."""
    from bilm.data.vocabulary import run_vocabulary

    vocabulary = run_vocabulary(args.save_dir, args.vocab_file, options.max_word_length)
    n_expected, n_words = options.n_tokens_vocab, vocabulary.size
    if n_expected is not None and n_expected != n_words:
        raise InputError(
            f"{source} is for n_tokens_vocab = {n_expected} words, but {vocabulary.source} has "
            f"{n_words}: name the vocabulary that belongs to it, or leave n_tokens_vocab out."
        )
    options = dataclasses.replace(options, n_tokens_vocab=n_words)
    n_samples = options.n_negative_samples_batch
    if options.sample_softmax and n_words <= n_samples:
        note(
            f"{vocabulary.source} has {n_words:,} words, not more than the {n_samples:,} negative "
            "samples of a batch: training with the full softmax."
        )
        options = dataclasses.replace(options, sample_softmax=False)
    return vocabulary, options


def open_corpus(
    options: Options, filepattern: str, vocabulary: Vocabulary, **settings: Any
) -> LMDataset | BidirectionalLMDataset:
    """A data set for the model's directions; `settings` are passed to it."""
    from bilm.data.dataset import BidirectionalLMDataset, LMDataset

    kind = BidirectionalLMDataset if options.bidirectional else LMDataset
    return kind(filepattern, vocabulary, **settings)


def model_folder(args: argparse.Namespace) -> str:
    """--save_dir, or with --best its folder of the best model."""
    from bilm.files.checkpoints import BEST_FOLDER

    if not args.best:
        return args.save_dir
    folder = os.path.join(args.save_dir, BEST_FOLDER)
    if not holds_checkpoint(folder):
        raise InputError(
            f"{args.save_dir} has no best model: `bilm train --heldout_prefix` keeps one."
        )
    return folder


# Runs


def join_workers(n_gpus: int) -> None:
    """Import TensorFlow, and find the devices before it is used; with TF_CONFIG, wait for the other
    workers."""
    import_tensorflow()
    from bilm.training.replicas import find_replicas, find_worker

    worker = find_worker()
    if not worker.is_alone:
        note(f"worker {worker.index} of {worker.count}: waiting for the others ...")
    find_replicas(n_gpus)


def override(options: Options, args: argparse.Namespace, *names: str) -> Options:
    """The options, overridden by the flags `names` and --n_epochs."""
    values = flags.keywords(args, *names, "n_epochs")
    if args.n_epochs is not None:
        options = dataclasses.replace(options, n_steps=None)
    return dataclasses.replace(options, **{k: v for k, v in values.items() if v is not None})


def run_training(
    args: argparse.Namespace,
    options: Options,
    vocabulary: Vocabulary,
    checkpoint: str | None,
    *,
    heldout_prefix: str | None = None,
    **settings: Any,
) -> int:
    """Train into --save_dir with progress and print a report; resume from `checkpoint`, if it is
    not None. `settings` are passed to `bilm.train`."""
    if options.optimizer == "adagrad":
        flags.require_effect(args, "the optimizer muon or adam", "adam_learning_rate")
    from bilm.training import train
    from bilm.training.replicas import find_worker

    # A script starts its background commands with SIGINT ignored. Restore it, so that `kill -INT`
    # saves and ends them too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = find_worker()
    shuffled = {"shuffle_on_load": True, "seed": settings["seed"], "worker": worker.share}
    corpus = open_corpus(options, args.train_prefix, vocabulary, **shuffled)
    heldout = None
    if heldout_prefix is not None:
        in_order = {"test": True, "worker": worker.share}
        heldout = open_corpus(options, heldout_prefix, vocabulary, **in_order)
        if worker.is_chief:
            _check_heldout(args.train_prefix, heldout_prefix, options.tokenizer)
    if checkpoint is not None:
        note(f"resuming from {checkpoint}")
    else:
        _note_text(args, options, corpus)
        note("reading the corpus and compiling the model ...")
    with ProgressDisplay() as display:
        show = training_display(display, options.sample_softmax)
        settings |= {"heldout": heldout, "progress": show}
        folders = args.save_dir, args.save_dir  # of checkpoints and log
        try:
            record = train(options, corpus, args.n_gpus, *folders, checkpoint, **settings)
        except KeyboardInterrupt:
            saved = "No checkpoint had been written yet."
            if holds_checkpoint(args.save_dir):
                saved = (
                    f"The last checkpoint is in {args.save_dir}; the same command resumes the run."
                )
            raise KeyboardInterrupt(saved) from None
    _report(record, args.save_dir, options.sample_softmax)
    return 0


def _check_heldout(training_prefix: str, heldout_prefix: str, tokenizer: str | None) -> None:
    """Warn if the held-out text is not held out, or was split by another tokenizer."""
    from bilm.data.sentences import warn_if_other_tokenizer

    warn_if_other_tokenizer(heldout_prefix, tokenizer)
    training, heldout = (
        set(map(os.path.realpath, find_files(pattern)))
        for pattern in (training_prefix, heldout_prefix)
    )
    if both := training & heldout:
        note(f"Warning: --heldout_prefix has {count(len(both), 'file')} of the training text.")


def _note_text(args: argparse.Namespace, options: Options, corpus: LMDataset) -> None:
    """Print the proportion of unknown tokens, and the number of words that are cut; warn if the
    options file has the size of another corpus, as the file of a run does."""
    from bilm.data.encoding import is_cut

    if args.n_train_tokens is None:
        n_tokens, counted = options.n_train_tokens, corpus.n_train_tokens
        if n_tokens not in (None, counted):
            note(
                f"Warning: {args.options_file}: n_train_tokens is {n_tokens:,}, but --train_prefix "
                f"has {counted:,} words and sentence ends: an epoch of this run has {n_tokens:,}. "
                "Leave n_train_tokens out, and they are counted."
            )
    note(f"--train_prefix: {corpus.unknown_share():.1%} of the tokens are outside the vocabulary")
    length = options.max_word_length or MOST_CHARACTERS
    if n_cut := sum(is_cut(word, length) for word in corpus.vocab.words):
        note(
            f"{count(n_cut, 'word')} of the vocabulary of more than {length - 2} bytes "
            f"will be cut: max_characters_per_token is {length} in the options."
        )


# Display


def training_display(display: ProgressDisplay, sampled: bool) -> Callable[[RunState], None]:
    """A function that shows a run; `sampled` marks perplexities of a sampled softmax."""
    first: tuple[int, float] | None = None  # tokens and seconds of the first step

    def show(record: RunState) -> None:
        nonlocal first
        first = first or (record.n_tokens, record.seconds)
        tokens, seconds = record.n_tokens - first[0], record.seconds - first[1]
        details = []
        if record.time_limit is not None and record.total_steps is None:
            details.append(f"{duration(max(0.0, record.time_limit - record.elapsed))} left")
        details.append(f"perplexity {record.perplexity:,.1f}{' (sampled)' * sampled}")
        # The first step compiles, and has no rate.
        if seconds > 0:
            details.append(f"{tokens / seconds:,.0f} tokens/s")
        details.append(f"epoch {record.epoch}")
        display.show(Stage("step", record.step, record.total_steps, "", "  ".join(details)))
        if record.heldout and record.heldout[-1][0] == record.step:
            text = f"step {record.step:,}: held-out {_in_words(record.heldout[-1][1])}"
            is_best = record.best_step == record.step
            display.note(text + (", the best so far" if is_best else ""))

    return show


def _in_words(perplexity: Perplexity) -> str:
    text = f"perplexity {float(perplexity):,.1f}"
    if perplexity.backward is None:
        return text
    return f"{text} (forward {perplexity.forward:,.1f}, backward {perplexity.backward:,.1f})"


def _report(record: RunState, save_dir: str, sampled: bool) -> None:
    if record.words_carried is not None:
        n_known, n_words = record.words_carried
        note(f"{n_known:,} of the vocabulary's {n_words:,} words were in the first model")
    if record.stopped_early:
        note(f"stopped early: the best held-out perplexity was after step {record.best_step:,}")
    if record.n_steps == 0:
        state, more = "all steps of this run are done", "More --n_epochs train"
        if record.stopped_early:
            state, more = "this run has stopped early", "A higher --patience trains"
    else:
        state = f"trained {count(record.n_steps, 'step')}"
    print(f"{state}; the model is {record.checkpoint}")
    if record.best is not None:
        print(f"best held-out perplexity {record.best:.4f} after step {record.best_step:,}")
    if record.n_steps == 0:
        note(f"{more} it further.")
        return
    print("\n".join(_verdict(record, sampled)))
    best_flag = " --best" if record.best is not None else ""
    run = f"--save_dir {shlex.quote(save_dir)}{best_flag}"
    note(f"Next: bilm test {run} --test_prefix HELDOUT\n      bilm dump {run} --model_dir FOLDER")


def _verdict(record: RunState, sampled: bool) -> list[str]:
    from bilm.training.verdict import comparable, verdict

    text, perplexity, unknown = "held-out", record.best, record.unknown
    unigram = record.heldout_unigram
    if record.heldout:
        unknown = record.heldout[-1][1].unknown
    elif perplexity is None:
        unigram = record.unigram
        if not sampled:
            text = "training"
            perplexity = statistics.geometric_mean(record.train_perplexity[-_LAST_STEPS:])
    measurements = [(step, float(perplexity)) for step, perplexity in record.heldout]
    if record.best is not None and record.best_step not in dict(measurements):  # in an earlier call
        measurements.insert(0, (record.best_step or 0, record.best))
    return verdict(
        perplexity=perplexity,
        text=text,
        unigram=unigram,
        unknown=unknown,
        tokens=record.tokens,
        passes=record.passes,
        measurements=comparable(measurements),
    )
