"""Score text by a language model: log-probability, surprisal, minimal pairs.

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

--pairs reads minimal pairs instead of IN: JSON lines with sentence_good and sentence_bad, as in
BLiMP. It prints, for each phenomenon, the percentage of pairs whose good sentence is more
probable; equal scores count as half. --out also writes the log-probabilities of each pair.

  bilm score text.txt --model training-folder
  bilm score text.txt --model elmo --format tsv --totals
  bilm score raw.txt --model english --tokenizer model --format words
  bilm score --pairs 'blimp/*.jsonl' --model english
"""

from __future__ import annotations

import argparse
import itertools
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD, InputText
from bilm.data.tokenizer import token_spans, tokenizer_for
from bilm.data.untokenized import warn_if_untokenized
from bilm.files.reading import find_all_files
from bilm.progress import counted
from bilm.terminal import note, show, table
from bilm.use.minimal_pairs import PairCounts, read_pairs, score_pairs

if TYPE_CHECKING:
    from bilm.training import Perplexity
    from bilm.use.minimal_pairs import MinimalPair, ScoredPair
    from bilm.use.predictor import Predictor, SentenceScore

_LOGS = ("forward", "backward", "joint")
_SUMS = ("tokens", "unknown", *_LOGS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"input IN": "text to score; - is standard input"}, nargs="?")
    flags.add(parser, text_command.COLUMN)
    flags.add(
        parser,
        {
            "--pairs FILE ...": "minimal pairs, instead of IN: files or globs of JSON lines",
            "--by FIELD": "field of a pair that names its phenomenon (default: linguistics_term, "
            "phenomenon or UID)",
            "--whole_lines": "each line is one sentence (default: lines are split into sentences "
            "by the rules of the tokenizer's language, if it is known)",
        },
    )
    group = text_command.add_predictor(parser)
    flags.add(group, flags.WARM_UP | flags.BATCH_SIZE)
    flags.add(group, flags.PRECISION, default="float32")
    flags.add(parser, {"--totals": "write the sums of each sentence only, not its tokens"})
    text_command.add_result(parser, "jsonl|tsv|surprisal|words")


def run(args: argparse.Namespace) -> int:
    if (args.input is None) == (args.pairs is None):
        flags.usage_error(args, "name a text, IN, or minimal pairs, --pairs")
    if args.format in _FORWARD and (args.totals or args.pairs):
        flags.usage_error(args, f"--format {args.format} excludes --totals and --pairs")
    if args.pairs is None:
        flags.require_effect(args, "--pairs", "by")
    else:
        flags.require_effect(args, "a text", "totals", "whole_lines", "column")
        if args.out == STANDARD:
            flags.require_effect(args, "--out FILE for the scores of each pair", "format", "force")
        pairs = read_pairs(find_all_files(args.pairs), args.by)
        return _score_pairs(args, pairs, text_command.load_predictor(args))
    text = text_command.read_input(args)
    return _score_text(args, text_command.load_predictor(args), text)


# Text


def _score_text(args: argparse.Namespace, predictor: Predictor, text: InputText) -> int:
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


# Minimal pairs

_PAIR_FIELDS = (
    "pair", "phenomenon", "forward_good", "forward_bad", "backward_good", "backward_bad", "unknown",
)  # fmt: skip


def _score_pairs(
    args: argparse.Namespace, pairs: Sequence[MinimalPair], predictor: Predictor
) -> int:
    split = tokenizer_for(predictor.options.tokenizer, args.tokenizer)
    if split is str.split and args.tokenizer is None:
        warn_if_untokenized((pair.good.split() for pair in pairs), args.pairs[0])
    counts: dict[str, PairCounts] = defaultdict(PairCounts)  # "": all pairs

    def pair_scores() -> Iterator[tuple[int, ScoredPair]]:
        scores = score_pairs(predictor, pairs, split, batch_size=args.batch_size)
        for number, score in enumerate(scores):
            for name in {"", score.pair.phenomenon}:
                counts[name].add(score)
            yield number, score

    if args.out == STANDARD:
        with text_command.progress_display(args.out) as display:
            for _ in counted(pair_scores(), display.show, "scoring", len(pairs), "pairs"):
                pass
    else:
        text_command.write_results(
            args, pair_scores(), _PAIR_FIELDS, _pair_rows, "scoring", _pair_objects,
            n_pairs=len(pairs),
        )  # fmt: skip
    _print_accuracies(counts)
    return 0


def _pair_rows(pair: ScoredPair) -> Iterator[tuple[Any, ...]]:
    good, bad = _sums(pair.good), _sums(pair.bad)
    logs = (good["forward"], bad["forward"], good["backward"], bad["backward"])
    yield pair.pair.phenomenon, *logs, int(pair.has_unknown)


def _pair_objects(pair: ScoredPair) -> Iterator[dict[str, Any]]:
    sums = {"good": _sums(pair.good), "bad": _sums(pair.bad)}
    yield {"phenomenon": pair.pair.phenomenon} | sums


def _print_accuracies(counts: dict[str, PairCounts]) -> None:
    total = counts[""]
    has_ties = any(total.n_ties.values())
    rows = [("phenomenon", "pairs", *total.n_right, *["ties"] * has_ties)]
    for name in [*sorted(filter(None, counts)), ""]:
        group = counts[name]
        accuracies = (f"{100 * group.accuracy(direction):.1f} %" for direction in total.n_right)
        ties = "/".join(str(group.n_ties[direction]) for direction in total.n_right)
        rows.append((name or "all", f"{group.n_pairs:,}", *accuracies, *[ties] * has_ties))
    show(table(rows))
    if has_ties:
        note(f"ties ({'/'.join(total.n_right)}): pairs with equal scores, which count as half")
    if total.n_unknown:
        note(
            f"{total.n_unknown:,} of {total.n_pairs:,} pairs have tokens outside the vocabulary, "
            "which are scored as <UNK>"
        )
