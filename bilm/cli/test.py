"""Measure a model's perplexity on held-out text.

Every token of the text is predicted by the full softmax; a word outside the vocabulary counts as
<UNK>. Prints the perplexity of each direction and of both together. Each sentence is scored
independently of the others, just as `bilm embed` computes its vectors.

  bilm test --save_dir model --test_prefix heldout.txt
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from typing import TYPE_CHECKING

from bilm.cli import flags, training_run
from bilm.files.writing import text_file
from bilm.progress import ProgressDisplay
from bilm.terminal import import_tensorflow, note

if TYPE_CHECKING:
    from bilm.training import SentenceScores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, flags.SAVE_DIR, required=True)
    flags.add(parser, flags.BEST | flags.RUN_VOCABULARY)
    flags.add(parser, flags.corpus("--test_prefix", "held-out text"), required=True)
    flags.add(
        parser,
        {
            "--batch_size ROWS": "rows of a batch (default: 256); without --carry_state it does "
            "not change the result",
            "--carry_state": "carry the LSTM states from sentence to sentence, as the original "
            "program does (default: each sentence stands alone)",
            "--per_sentence FILE": "write the score of every sentence, separated by tabs, in the "
            "order of the text",
            **flags.FORCE,
        },
    )
    parser.set_defaults(batch_size=256)


def run(args: argparse.Namespace) -> int:
    if args.per_sentence and args.carry_state:
        flags.usage_error(args, "--per_sentence scores each sentence alone, not --carry_state")
    outputs = flags.outputs(args, per_sentence=args.per_sentence)
    flags.require_run(args.save_dir)
    flags.require_inputs(args)
    import_tensorflow()
    from bilm.data.sentences import warn_if_other_tokenizer
    from bilm.training import test
    from bilm.training.verdict import unknown_warning

    args.save_dir = training_run.model_folder(args)
    options, _, checkpoint = training_run.read_run(args.save_dir)
    options = dataclasses.replace(options, sample_softmax=False)
    warn_if_other_tokenizer(args.test_prefix, options.tokenizer)
    vocabulary, options = training_run.load_vocabulary(args, options, args.save_dir)
    corpus = training_run.open_corpus(options, args.test_prefix, vocabulary, test=True)
    with ProgressDisplay() as display:
        perplexity = test(
            options,
            checkpoint,
            corpus,
            batch_size=args.batch_size,
            carry_state=args.carry_state,
            per_sentence=args.per_sentence is not None,
            progress=display.show,
        )
    if perplexity.sentences is not None:
        with outputs.temporaries() as (temporary,):
            _write_scores(temporary, perplexity.sentences)
    figures = [("forward perplexity", perplexity.forward)]
    if perplexity.backward is not None:
        figures += [("backward perplexity", perplexity.backward), ("perplexity", perplexity)]
    for name, figure in figures:
        print(f"{name:<21}{figure:.4f}")
    print(f"predictions          {perplexity.n_predictions:,}")
    print(f"unknown tokens       {perplexity.unknown:.2%}")
    if warning := unknown_warning(perplexity.unknown or 0.0, args.test_prefix):
        note(f"warning: {warning}")
    return 0


def _write_scores(path: str, scores: SentenceScores) -> None:
    names = ("forward_nats", "backward_nats")[: len(scores.losses)]
    with text_file(path) as file:
        file.write("\t".join(("sentence", "predictions", *names, "perplexity")) + "\n")
        for k, n in enumerate(scores.n_predictions.tolist()):
            losses = scores.losses[:, k]
            perplexity = math.exp(min(700.0, losses.mean() / n))
            fields = (str(k + 1), str(n), *(f"{loss:.4f}" for loss in losses), f"{perplexity:.4f}")
            file.write("\t".join(fields) + "\n")
