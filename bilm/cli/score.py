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
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from bilm.cli import text_job
from bilm.cli.text_job import TextInput, rounded, tabbed
from bilm.errors import InputError

if TYPE_CHECKING:
    from bilm.prediction import SentenceScore

_SUMS = ("line", "tokens", "unknown", "forward", "backward", "joint")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bilm score`."""
    parser.add_argument("input", metavar="IN", help="text to score; - is standard input")
    text_job.add_predictor(parser)
    parser.add_argument(
        "--totals", action="store_true", help="write the sums of each sentence only, not its tokens"
    )
    text_job.add_result(parser)


def run(args: argparse.Namespace) -> int:
    """Write the scores of a text."""
    predictor = text_job.load_predictor(args)
    text = TextInput(args.input)
    sentences = (item for item in text.sentences() if item[1])
    scores = predictor.score_iter(sentences, batch_size=args.batch_size, with_ids=True)
    sums = _Sums(predictor.options.n_directions)
    with text_job.opened(args) as out, text_job.progress_display(args.out) as display:
        if args.format == "tsv":
            _write_header(out, args.totals)
        for number, score in scores:
            sums.add(score)
            write = _write_tsv if args.format == "tsv" else _write_json
            write(out, number, score, args.totals)
            display.update("scoring", sums.n_sentences, unit="sentences")
        if not sums.n_sentences:
            raise InputError(f"{text.name}: there is no sentence to score.")
    print(sums.text(), file=sys.stderr)
    return 0


def _write_json(out: TextIO, number: int, score: SentenceScore, totals: bool) -> None:
    sums = dict(zip(_SUMS, _sums(number, score), strict=True))
    values = {key: rounded(v) if isinstance(v, float) else v for key, v in sums.items()}
    if not totals:
        values = {
            "line": number,
            "tokens": score.tokens,
            "known": score.known.tolist(),
            "forward": rounded(score.forward),
            "end": rounded(score.end),
            "backward": rounded(score.backward),
            "begin": rounded(score.begin),
            "joint": rounded(score.joint),
            "total": {key: values[key] for key in _SUMS[3:]},
        }
    out.write(json.dumps(values, ensure_ascii=False) + "\n")


def _sums(number: int, score: SentenceScore) -> tuple[Any, ...]:
    return (
        number,
        len(score.tokens),
        int((~score.known).sum()),
        score.forward_total,
        score.backward_total,
        score.joint_total,
    )


def _write_header(out: TextIO, totals: bool) -> None:
    names = _SUMS if totals else ("line", "place", "token", "known", *_SUMS[3:])
    out.write(tabbed(names))


def _write_tsv(out: TextIO, number: int, score: SentenceScore, totals: bool) -> None:
    if totals:
        out.write(tabbed(_sums(number, score)))
        return
    for row in _token_rows(score):
        out.write(tabbed((number, *row)))


def _token_rows(score: SentenceScore) -> Iterator[tuple[Any, ...]]:
    """place, token, known, forward, backward, joint; the begin and the end have no place."""
    if score.backward is not None:
        yield None, "<S>", 1, None, score.begin, None
    joint = score.joint
    for k, token in enumerate(score.tokens):
        backward = None if score.backward is None else float(score.backward[k])
        both = None if joint is None else float(joint[k])
        yield k, token, int(score.known[k]), float(score.forward[k]), backward, both
    yield None, "</S>", 1, score.end, None, None


class _Sums:
    """The text's perplexity, as `bilm test` has it."""

    def __init__(self, n_directions: int) -> None:
        self.n_sentences = 0
        self._n_predictions = 0
        self._losses = [0.0] * n_directions

    def add(self, score: SentenceScore) -> None:
        self.n_sentences += 1
        self._n_predictions += len(score.tokens) + 1
        for d, total in enumerate((score.forward_total, score.backward_total)):
            if total is not None:
                self._losses[d] -= total

    def text(self) -> str:
        import numpy as np

        from bilm.training import Perplexity

        perplexity = Perplexity.of_losses(np.array(self._losses), self._n_predictions)
        said = f"{self.n_sentences:,} sentences, {self._n_predictions:,} predictions; perplexity: "
        said += f"forward {perplexity.forward:.4f}"
        if perplexity.backward is None:
            return said
        return f"{said}, backward {perplexity.backward:.4f}, both {float(perplexity):.4f}"
