"""Tags of spans in IOB2, and their measure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence

from bilm.core.errors import InputError, import_extra


def check_tags(tags: Sequence[str], where: str) -> None:
    """Require that the last tag of a sentence is O, B-X, or I-X after B-X or I-X."""
    kind, _, name = tags[-1].partition("-")
    if tags[-1] == "O" or (kind == "B" and name):
        return
    before = tags[-2] if len(tags) > 1 else "the beginning of a sentence"
    if kind != "I" or not name or before not in (f"B-{name}", f"I-{name}"):
        raise InputError(
            f"{where}: must be a tag in IOB2 (O, B-X, or I-X after B-X or I-X), got {tags[-1]!r} "
            f"after {before}."
        )


def span_scores(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1, precision and recall of spans in per cent, from the tags of each sentence in IOB2; a span
    counts as found if its label, first and last token are correct."""
    return set_scores(map(spans, gold), map(spans, found))


def spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The spans of a sentence's tags, by seqeval: label, first and last token, in order."""
    scheme = import_extra("seqeval.scheme", "The measure of spans")
    (found,) = scheme.Entities([list(tags)], scheme.IOB2).entities
    return sorted(((e.tag, e.start, e.end - 1) for e in found), key=lambda span: span[1])


def set_scores(
    gold: Iterable[Collection[Hashable]], found: Iterable[Collection[Hashable]]
) -> dict[str, float]:
    """F1, precision and recall in per cent of the elements of all sets, one set per sentence."""
    pairs = [(set(a), set(b)) for a, b in zip(gold, found, strict=True)]
    right = sum(len(a & b) for a, b in pairs)
    n_gold, n_found = (sum(len(pair[k]) for pair in pairs) for k in (0, 1))
    return {
        "f1": 100 * 2 * right / max(1, n_gold + n_found),
        "precision": 100 * right / max(1, n_found),
        "recall": 100 * right / max(1, n_gold),
    }
