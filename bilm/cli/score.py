"""Score text by a language model: log-probability and surprisal.

IN is UTF-8 text (plain or compressed); - is standard input. Each sentence of a line is scored
alone; empty lines are skipped. A token outside the vocabulary is predicted as <UNK>. Numbers are
natural logarithms (nats):

  forward   log p(token | the tokens before it); "end" is log p(</S>)
  backward  log p(token | the tokens after it); "begin" is log p(<S>)
  joint     their sum, the paper's objective

The sums of a sentence include "end" and "begin", so they agree with `bilm test`.

--format surprisal writes a table like lm-zoo's: -log2 p(token | the tokens before it), in bits. The
last token of a sentence is </S>. line, sentence (in the line) and token_id are 1-based numbers;
start and end are the token's position in the line, in characters; known is 0 for a token outside
the vocabulary. --format words has a row for each word between white space instead, with the sum
over its tokens, to be joined with reading times.

  bilm score text.txt --model training-folder
  bilm score text.txt --model elmo --format tsv --totals
  bilm score raw.txt --model english --tokenizer model --format words
"""

from __future__ import annotations

import argparse
import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.cli import flags, text_command
from bilm.data.tokenizer import token_spans
from bilm.terminal import note

if TYPE_CHECKING:
    from bilm.training import Perplexity
    from bilm.use.predictor import SentenceScore

_LOGS = ("forward", "backward", "joint")
_SUMS = ("tokens", "unknown", *_LOGS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"input IN": "text to score; - is standard input"})
    flags.add(parser, text_command.COLUMN)
    flags.add(
        parser,
        {
            "--whole_lines": "each line is one sentence (default: lines are split into sentences "
            "by the rules of the tokenizer's language, if it is known)",
        },
    )
    group = text_command.add_model(parser, text_command.PREDICTOR)
    flags.add(group, flags.WARM_UP | flags.BATCH_SIZE)
    flags.add(group, flags.PRECISION, default="float32")
    flags.add(parser, {"--totals": "write the sums of each sentence only, not its tokens"})
    text_command.add_result(parser, "jsonl|tsv|surprisal|words")


def run(args: argparse.Namespace) -> int:
    if args.format in _FORWARD and args.totals:
        flags.usage_error(args, f"--format {args.format} excludes --totals")
    text = text_command.read_input(args)
    predictor = text_command.load_predictor(args)
    import numpy as np

    from bilm.training import Perplexity
    from bilm.training.verdict import unknown_warning

    model_tokens = text_command.model_tokens(args)
    is_forward = args.format in _FORWARD  # the backward direction is not needed
    losses = np.zeros(1 if is_forward else predictor.options.n_directions)
    counts = Counter[str]()

    def sentences() -> Iterator[tuple[tuple[int, str], list[str]]]:
        for line, tokens in text_command.sentences(text):
            divided = [tokens] if args.whole_lines else model_tokens.sentences(line[1], text.split)
            yield from ((line, sentence) for sentence in divided)

    def scores() -> Iterator[tuple[int, LineScores]]:
        results = predictor.score_iter(
            sentences(), batch_size=args.batch_size, forward_only=is_forward, with_ids=True
        )
        for (number, line), group in itertools.groupby(results, key=operator.itemgetter(0)):
            in_line = [score for _, score in group]
            for score in in_line:
                sums = _sums(score)
                counts.update(sentences=1, tokens=sums["tokens"], unknown=sums["unknown"])
                losses[:] -= [sums[direction] for direction in _LOGS[: len(losses)]]
            # Tables of surprisal count from 1.
            yield number + is_forward, LineScores(line, text.split, in_line)

    fields, rows, objects = _TABLES[args.format if is_forward else "totals" * args.totals]
    text_command.write_results(args, scores(), ("line", *fields), rows, "scoring", objects)
    # The end of each sentence is predicted too.
    perplexity = Perplexity.of_losses(losses, counts["tokens"] + counts["sentences"])
    perplexity.unknown = counts["unknown"] / counts["tokens"]
    note(_summary(counts["sentences"], perplexity))
    if warning := unknown_warning(perplexity.unknown, text.name):
        note(f"warning: {warning}")
    return 0


class LineScores(NamedTuple):
    """A line, the function that splits it into tokens, and the scores of its sentences."""

    line: str
    split: Callable[[str], list[str]]
    scores: list[SentenceScore]

    def spans(self) -> Iterator[tuple[int, int]]:
        """Character offsets of all tokens in the line."""
        if self.split is str.split:
            return (match.span() for match in re.finditer(r"\S+", self.line))
        return iter(token_spans(self.line, (t for score in self.scores for t in score.tokens)))


def _surprisal_rows(line: LineScores) -> Iterator[tuple[Any, ...]]:
    """sentence, token_id, token, surprisal, start, end, known; a sentence ends with `</S>`."""
    spans, end = line.spans(), 0
    for sentence, score in enumerate(line.scores, start=1):
        columns = zip(score.tokens, score.surprisals.tolist(), score.known, strict=False)
        for number, (token, surprisal, is_known) in enumerate(columns, start=1):
            start, end = next(spans)
            yield sentence, number, token, surprisal, start, end, int(is_known)
        yield sentence, len(score.tokens) + 1, "</S>", float(score.surprisals[-1]), end, end, 1


def _word_rows(line: LineScores) -> Iterator[tuple[Any, ...]]:
    """word, text, surprisal, start, end, tokens, known: the sums over the tokens of each word
    between white space."""
    tokens = [
        (value, bool(is_known))
        for score in line.scores
        for value, is_known in zip(score.surprisals.tolist(), score.known, strict=False)
    ]
    spans = [*line.spans()]
    k = 0
    for number, word in enumerate(re.finditer(r"\S+", line.line), start=1):
        first = k
        while k < len(spans) and spans[k][0] < word.end():
            k += 1
        values, known = [value for value, _ in tokens[first:k]], [b for _, b in tokens[first:k]]
        surprisal = sum(values) if values else None  # invisible characters have no token
        yield number, word[0], surprisal, *word.span(), k - first, int(all(known))


def _sums(score: SentenceScore) -> dict[str, Any]:
    logs = (score.forward_total, score.backward_total, score.joint_total)
    return dict(zip(_SUMS, (len(score.tokens), int((~score.known).sum()), *logs), strict=True))


def _total_rows(line: LineScores) -> Iterator[tuple[Any, ...]]:
    for number, score in enumerate(line.scores):
        yield number, *_sums(score).values()


def _token_rows(line: LineScores) -> Iterator[tuple[Any, ...]]:
    """sentence, place, token, known, forward, backward, joint; <S> and </S> have no place."""
    for number, score in enumerate(line.scores):
        if score.backward is not None:
            yield number, None, "<S>", 1, None, score.begin, None
        logs = [
            [None] * len(score.tokens) if values is None else values.tolist()
            for values in (score.forward, score.backward, score.joint)
        ]
        for k, (token, *numbers) in enumerate(zip(score.tokens, *logs, strict=True)):
            yield number, k, token, int(score.known[k]), *numbers
        yield number, None, "</S>", 1, score.end, None, None


def _token_objects(line: LineScores) -> Iterator[dict[str, Any]]:
    names = ("tokens", "known", "forward", "end", "backward", "begin", "joint")
    for number, score in enumerate(line.scores):
        sums = _sums(score)
        yield {
            "sentence": number,
            **{name: getattr(score, name) for name in names},
            "total": {name: sums[name] for name in _LOGS},
        }


_FORWARD = ("surprisal", "words")  # tables of the forward direction
# Columns after the line, and the functions that make rows and objects of `LineScores`.
_TABLES: dict[str, tuple[tuple[str, ...], Any, Any]] = {
    "": (("sentence", "place", "token", "known", *_LOGS), _token_rows, _token_objects),
    "totals": (("sentence", *_SUMS), _total_rows, None),
    "surprisal": (
        ("sentence", "token_id", "token", "surprisal", "start", "end", "known"),
        _surprisal_rows,
        None,
    ),
    "words": (("word", "text", "surprisal", "start", "end", "tokens", "known"), _word_rows, None),
}


def _summary(n_sentences: int, perplexity: Perplexity) -> str:
    """The text's perplexity and its proportion of unknown tokens, as `bilm test` prints them."""
    text = f"{n_sentences:,} sentences, {perplexity.n_predictions:,} predictions; perplexity: "
    text += f"forward {perplexity.forward:.4f}"
    if perplexity.backward is not None:
        text += f", backward {perplexity.backward:.4f}, both {float(perplexity):.4f}"
    return f"{text}, unknown tokens {perplexity.unknown:.2%}"
