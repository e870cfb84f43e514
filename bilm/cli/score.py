"""Give the log-probability of each token and sentence of a text.

IN is UTF-8 text (plain, .gz, .xz), one sentence a line, tokens separated by white space; - is
standard input. Each sentence is scored alone; empty lines are skipped. All numbers are natural
logarithms (nats):

  forward   log p(token | the tokens before it); "end" is that of </S>
  backward  log p(token | the tokens after it); "begin" is that of <S>
  joint     their sum, the paper's objective

A token outside the vocabulary is predicted as <UNK>. The sums of a sentence include its end and its
begin, so that they add up to what `bilm test` measures.

  bilm score text.txt --model training-folder
  bilm score text.txt --model elmo --format tsv --totals
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bilm.cli import flags, text_job
from bilm.cli.terminal import note
from bilm.cli.text_job import TextInput, rounded
from bilm.core.errors import InputError

if TYPE_CHECKING:
    from bilm.training import Perplexity
    from bilm.use.predictor import SentenceScore

_LOGS = ("forward", "backward", "joint")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"input IN": "text to score; - is standard input"})
    text_job.add_predictor(parser)
    flags.add(parser, {"--totals": "write the sums of each sentence only, not its tokens"})
    text_job.add_result(parser)


def run(args: argparse.Namespace) -> int:
    predictor = text_job.load_predictor(args)
    import numpy as np

    from bilm.training import Perplexity

    text = TextInput(args.input)
    sentences = (item for item in text.sentences() if item[1])
    n_sentences = n_predictions = 0
    losses = np.zeros(predictor.options.n_directions)

    def counted() -> Iterator[tuple[int, SentenceScore]]:
        nonlocal n_sentences, n_predictions
        scores = predictor.score_iter(sentences, batch_size=args.batch_size, with_ids=True)
        for number, score in scores:
            n_sentences += 1
            n_predictions += len(score.tokens) + 1
            sums = _sums(score)
            losses[:] -= [sums[name] for name in _LOGS[: len(losses)]]
            yield number, score
        if not n_sentences:
            raise InputError(f"{text.name}: there is no sentence to score.")

    first: tuple[str, ...]
    first, rows, objects = ("place", "token", "known"), _token_rows, _token_objects
    if args.totals:
        first, rows, objects = ("tokens", "unknown"), _total_rows, _total_objects
    text_job.write_results(args, counted(), ("line", *first, *_LOGS), rows, objects, "scoring")
    note(_summary(n_sentences, Perplexity.of_losses(losses, n_predictions)))
    return 0


def _sums(score: SentenceScore) -> dict[str, Any]:
    return {
        "tokens": len(score.tokens),
        "unknown": int((~score.known).sum()),
        "forward": score.forward_total,
        "backward": score.backward_total,
        "joint": score.joint_total,
    }


def _total_rows(score: SentenceScore) -> Iterator[tuple[Any, ...]]:
    yield tuple(_sums(score).values())


def _total_objects(score: SentenceScore) -> Iterator[dict[str, Any]]:
    yield {name: rounded(value) for name, value in _sums(score).items()}


def _token_rows(score: SentenceScore) -> Iterator[tuple[Any, ...]]:
    """place, token, known, forward, backward, joint; the begin and the end have no place."""
    if score.backward is not None:
        yield None, "<S>", 1, None, score.begin, None
    logs = [
        [None] * len(score.tokens) if values is None else values.tolist()
        for values in (score.forward, score.backward, score.joint)
    ]
    for k, (token, *of_token) in enumerate(zip(score.tokens, *logs, strict=True)):
        yield k, token, int(score.known[k]), *of_token
    yield None, "</S>", 1, score.end, None, None


def _token_objects(score: SentenceScore) -> Iterator[dict[str, Any]]:
    sums = _sums(score)
    logs = ("forward", "end", "backward", "begin", "joint")
    yield {
        "tokens": score.tokens,
        "known": score.known.tolist(),
        **{name: rounded(getattr(score, name)) for name in logs},
        "total": {name: rounded(sums[name]) for name in _LOGS},
    }


def _summary(n_sentences: int, perplexity: Perplexity) -> str:
    """The text's perplexity, as `bilm test` has it."""
    text = f"{n_sentences:,} sentences, {perplexity.n_predictions:,} predictions; perplexity: "
    text += f"forward {perplexity.forward:.4f}"
    if perplexity.backward is None:
        return text
    return f"{text}, backward {perplexity.backward:.4f}, both {float(perplexity):.4f}"
