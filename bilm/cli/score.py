"""Score text by a language model: log-probability, surprisal, minimal pairs.

IN is UTF-8 text (plain or compressed), one sentence per line, tokens separated by white space; - is
standard input. Each sentence is scored alone; empty lines are skipped. A token outside the
vocabulary is predicted as <UNK>. Numbers are natural logarithms (nats):

  forward   log p(token | the tokens before it); "end" is log p(</S>)
  backward  log p(token | the tokens after it); "begin" is log p(<S>)
  joint     their sum, the paper's objective

The sums of a sentence include "end" and "begin", so they agree with `bilm test`.

--format surprisal writes a table as lm-zoo does: -log2 p(token | the tokens before it), in bits.
The last token of a sentence is </S>. sentence_id and token_id are the 1-based numbers of
line and token; start and end are the token's position in the line, in characters; known is 0 for a
token outside the vocabulary.

--pairs reads minimal pairs instead of IN: JSON lines with sentence_good and sentence_bad, as in
BLiMP. It prints, for each phenomenon, the percentage of pairs whose good sentence is more
probable; equal scores count as half. --out also writes the log-probabilities of each pair.

  bilm score text.txt --model training-folder
  bilm score text.txt --model elmo --format tsv --totals
  bilm score raw.txt --model elmo --tokenizer en --format surprisal
  bilm score --pairs 'blimp/*.jsonl' --model elmo --tokenizer en
"""

from __future__ import annotations

import argparse
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bilm.cli import flags, text_command
from bilm.cli.text_command import STANDARD
from bilm.core.errors import InputError
from bilm.files.reading import find_all_files
from bilm.progress import counted
from bilm.terminal import note, show, table
from bilm.use.minimal_pairs import PairCounts, read_pairs, score_pairs

if TYPE_CHECKING:
    from bilm.data import Tokenizer
    from bilm.training import Perplexity
    from bilm.use.minimal_pairs import MinimalPair, ScoredPair
    from bilm.use.predictor import Predictor, SentenceScore

LineScore = tuple[str, "SentenceScore"]  # a line and its score

_LOGS = ("forward", "backward", "joint")
_SUMS = ("tokens", "unknown", *_LOGS)
_SURPRISAL = ("sentence_id", "token_id", "token", "surprisal", "start", "end", "known")
_MODEL = "model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"input IN": "text to score; - is standard input"}, nargs="?")
    flags.add(
        parser,
        {
            "--pairs FILE ...": "minimal pairs, instead of IN: files or globs of JSON lines",
            "--by FIELD": "field of a pair that names its phenomenon (default: linguistics_term, "
            "phenomenon or UID)",
            "--tokenizer LANGUAGE": "the sentences are raw text, one per line: split them as `bilm "
            "tokenize --language LANGUAGE` does, or with `model` as the training text of the model "
            "was split (default: at white space; pairs: model, if its tokenizer is known)",
        },
    )
    text_command.add_predictor(parser)
    flags.add(parser, {"--totals": "write the sums of each sentence only, not its tokens"})
    text_command.add_result(parser, "jsonl|tsv|surprisal")


def run(args: argparse.Namespace) -> int:
    if (args.input is None) == (args.pairs is None):
        flags.usage_error(args, "name a text, IN, or minimal pairs, --pairs")
    if args.format == "surprisal" and (args.totals or args.pairs):
        flags.usage_error(args, "--format surprisal excludes --totals and --pairs")
    if args.pairs is None:
        flags.require_effect(args, "--pairs", "by")
    else:
        flags.require_effect(args, "a text", "totals")
        if args.out == STANDARD:
            flags.require_effect(args, "--out FILE for the scores of each pair", "format", "force")
    tokenizer = None
    if args.tokenizer not in (None, _MODEL):
        from bilm.data import Tokenizer

        tokenizer = Tokenizer(args.tokenizer)
    pairs = None if args.pairs is None else read_pairs(find_all_files(args.pairs), args.by)
    predictor = text_command.load_predictor(args)
    if args.tokenizer == _MODEL or (args.tokenizer is None and args.pairs):
        tokenizer = _tokenizer_of(predictor, args)
    if pairs is not None:
        return _score_pairs(args, pairs, predictor, tokenizer)
    return _score_text(args, predictor, tokenizer)


def _tokenizer_of(predictor: Predictor, args: argparse.Namespace) -> Tokenizer | None:
    """The tokenizer of the model's training text; None if it is unknown and was not requested."""
    from bilm.data import Tokenizer

    name = predictor.options.tokenizer
    tokenizer = None if name is None else Tokenizer.from_name(name)
    if tokenizer is None and args.tokenizer == _MODEL:
        reason = "is not known" if name is None else f"({name}) is not available here"
        raise InputError(
            f"--tokenizer model: the tokenizer of the model {reason}: name a language instead."
        )
    return tokenizer


# Text


def _score_text(args: argparse.Namespace, predictor: Predictor, tokenizer: Tokenizer | None) -> int:
    import numpy as np

    from bilm.training import Perplexity
    from bilm.training.verdict import unknown_warning

    name, lines = text_command.read_input(args.input)
    split = str.split if tokenizer is None else tokenizer.tokens
    is_forward = args.format == "surprisal"  # the backward direction is not needed
    losses = np.zeros(1 if is_forward else predictor.options.n_directions)
    counts = Counter[str]()
    first = int(is_forward)  # the number of the first line

    def scores() -> Iterator[tuple[int, LineScore]]:
        sentences = text_command.sentences(name, lines, split, first)
        results = predictor.score_iter(
            sentences, batch_size=args.batch_size, forward_only=is_forward, with_ids=True
        )
        for (number, line), score in results:
            sums = _sums(score)
            counts.update(sentences=1, tokens=sums["tokens"], unknown=sums["unknown"])
            losses[:] -= [sums[direction] for direction in _LOGS[: len(losses)]]
            yield number, (line, score)

    fields: tuple[str, ...] = ("line", "place", "token", "known", *_LOGS)
    rows: Callable[[LineScore], Iterator[tuple[Any, ...]]] = _token_rows
    objects: Callable[[LineScore], Iterator[dict[str, Any]]] | None = _token_objects
    if args.format == "surprisal":
        fields, rows, objects = _SURPRISAL, functools.partial(_surprisal_rows, tokenizer), None
    elif args.totals:
        fields, rows, objects = ("line", *_SUMS), _total_rows, None
    text_command.write_results(args, scores(), fields, rows, "scoring", objects)
    # The end of each sentence is predicted too.
    perplexity = Perplexity.of_losses(losses, counts["tokens"] + counts["sentences"])
    perplexity.unknown = counts["unknown"] / counts["tokens"]
    note(_summary(counts["sentences"], perplexity))
    warning = unknown_warning(perplexity.unknown, name)
    if warning and tokenizer is None:
        warning = (
            f"{perplexity.unknown:.0%} of the tokens of {name} are outside the vocabulary. Raw "
            "text needs --tokenizer LANGUAGE, such as en, or --tokenizer model."
        )
    if warning:
        note(f"warning: {warning}")
    return 0


def _surprisal_rows(
    tokenizer: Tokenizer | None, line_score: LineScore
) -> Iterator[tuple[Any, ...]]:
    """token_id, token, surprisal, start, end, known; the last row is `</S>`."""
    line, score = line_score
    if tokenizer is None:
        spans = [match.span() for match in re.finditer(r"\S+", line)]
    else:
        spans = tokenizer.spans(line)
    spans.append((len(line), len(line)))
    tokens, known = [*score.tokens, "</S>"], [*score.known, True]
    columns = zip(tokens, score.surprisals.tolist(), spans, known, strict=True)
    for number, (token, surprisal, span, is_known) in enumerate(columns, start=1):
        yield number, token, surprisal, *span, int(is_known)


def _sums(score: SentenceScore) -> dict[str, Any]:
    logs = (score.forward_total, score.backward_total, score.joint_total)
    return dict(zip(_SUMS, (len(score.tokens), int((~score.known).sum()), *logs), strict=True))


def _total_rows(line_score: LineScore) -> Iterator[tuple[Any, ...]]:
    yield tuple(_sums(line_score[1]).values())


def _token_rows(line_score: LineScore) -> Iterator[tuple[Any, ...]]:
    """place, token, known, forward, backward, joint; <S> and </S> have no place."""
    _, score = line_score
    if score.backward is not None:
        yield None, "<S>", 1, None, score.begin, None
    logs = [
        [None] * len(score.tokens) if values is None else values.tolist()
        for values in (score.forward, score.backward, score.joint)
    ]
    for k, (token, *numbers) in enumerate(zip(score.tokens, *logs, strict=True)):
        yield k, token, int(score.known[k]), *numbers
    yield None, "</S>", 1, score.end, None, None


def _token_objects(line_score: LineScore) -> Iterator[dict[str, Any]]:
    _, score = line_score
    sums = _sums(score)
    names = ("tokens", "known", "forward", "end", "backward", "begin", "joint")
    yield {
        **{name: getattr(score, name) for name in names},
        "total": {name: sums[name] for name in _LOGS},
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
    args: argparse.Namespace,
    pairs: Sequence[MinimalPair],
    predictor: Predictor,
    tokenizer: Tokenizer | None,
) -> int:
    from bilm.data.untokenized import warn_if_untokenized

    split = str.split if tokenizer is None else tokenizer.tokens
    if tokenizer is None:
        warn_if_untokenized((pair.good.split() for pair in pairs), args.pairs[0])
    else:
        note(f"tokenizer: {tokenizer.name}")
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
