"""A page of the words that changed most: the sentences of the clusters that grew and shrank."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.analysis.change import NEW, OLD, Change, ClusteredUses, cluster_uses, uses_of
from bilm.analysis.clusters import TYPICAL, nearby_words, substitute_words, typical_occurrences
from bilm.analysis.occurrences import Layer, Occurrences
from bilm.analysis.page import line_markup, page
from bilm.files.reading import PathLike
from bilm.files.writing import atomic_write

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor

_NAME_WORDS = 5
_COLOURS = 7  # of page.css
_MOVED = 0.02  # difference of proportions from which a cluster grew or shrank


def write_change_page(
    path: PathLike,
    old: Occurrences,
    new: Occurrences,
    changes: Sequence[Change],
    *,
    layer: Layer = "top",
    n_words: int = 20,
    n_lines: int = 5,
    seed: int = 0,
    corpora: tuple[str, str] = (OLD, NEW),
    predictor: Predictor | None = None,
) -> None:
    """Write a page that needs no network.

    For each word it shows the proportion of each cluster in both corpora, and the sentences nearest
    to the centres of the clusters, those that grew first: of a cluster that grew from the new
    corpus, of one that shrank from the old one.

    Args:
        path: file to write.
        old, new, layer, seed: as for `measure_change`.
        changes: its result; the first measured words are shown.
        n_words: number of words.
        n_lines: number of sentences per cluster.
        corpora: names of the two corpora.
        predictor: a language model whose substitutes are the names of the clusters; None takes
            words that occur nearby.
    """
    measured = [change for change in changes if change.is_measured][:n_words]
    both = uses_of(old), uses_of(new)
    sections = []
    for number, change in enumerate(measured, start=1):
        own = [
            part.select(found[change.word]) for part, found in zip((old, new), both, strict=True)
        ]
        uses = cluster_uses(own[0], own[1], layer, seed)
        sections.append(_section(number, change, uses, corpora, n_lines, predictor))
    title = f"Words that changed: {corpora[0]} and {corpora[1]}"
    hint = (
        "<p class='hint'>The most changed words by excess: the mean cosine distance of occurrences "
        "in different corpora minus that within a corpus. It is about 0 for a word that did not "
        "change. Bars are the proportions of the clusters in each corpus.</p>"
    )
    if not sections:
        hint = "<p>No word occurs often enough in both corpora.</p>"
    with atomic_write(path) as temporary:
        Path(temporary).write_bytes(page(title, hint + "".join(sections)))


def _section(
    number: int,
    change: Change,
    uses: ClusteredUses,
    corpora: tuple[str, str],
    n_lines: int,
    predictor: Predictor | None,
) -> str:
    names = _names(uses, predictor)
    colours = [f"var(--c{k % _COLOURS})" for k in range(len(names))]
    parts = [
        f"<h2>{number}. {html.escape(change.word)} <small>excess {change.excess:.3f}, PRT "
        f"{change.prt:.3f}, APD {change.apd:.3f}, JSD {change.jsd:.3f}; {change.n_old:,} and "
        f"{change.n_new:,} occurrences</small></h2>"
    ]
    for corpus, shares in zip(corpora, uses.shares, strict=True):
        said = ", ".join(f"{n} {s:.0%}" for n, s in zip(names, shares, strict=True))
        bars = "".join(
            f'<span style="width:{100 * share:.2f}%;background:{colour}"></span>'
            for share, colour in zip(shares, colours, strict=True)
        )
        label = html.escape(f"{corpus}: {said}", quote=True)
        parts.append(
            f'<div class="shares"><small>{html.escape(corpus)}</small>'
            f'<div role="img" aria-label="{label}">{bars}</div></div>'
        )
    growth = uses.shares[1] - uses.shares[0]
    for cluster in sorted(range(len(names)), key=lambda k: -growth[k]):
        before, after = uses.shares[:, cluster]
        moved = (
            "" if abs(growth[cluster]) < _MOVED else "grew: " if growth[cluster] > 0 else "shrank: "
        )
        lines = "".join(
            _line(uses.occurrences, use)
            for use in uses.typical(cluster, NEW if growth[cluster] > 0 else OLD, n_lines)
        )
        parts.append(
            f'<h3><span class="chip" style="background:{colours[cluster]}"></span>'
            f"{html.escape(names[cluster])} <small>{moved}{before:.0%} → {after:.0%}; sentences "
            f"from {html.escape(corpora[int(growth[cluster] > 0)])}</small></h3>"
            f'<ul class="lines">{lines}</ul>'
        )
    return "<section>" + "".join(parts) + "</section>"


def _names(uses: ClusteredUses, predictor: Predictor | None) -> list[str]:
    """A name for each cluster: its typical words."""
    occurrences, clusters = uses.occurrences, uses.clusters
    numbers = range(len(clusters))
    if predictor is None:
        words = [nearby_words(occurrences, clusters, k, _NAME_WORDS) for k in numbers]
    else:
        typical = [typical_occurrences(occurrences, clusters, k, TYPICAL) for k in numbers]
        words = substitute_words(predictor, occurrences, typical, _NAME_WORDS)
    return [" ".join(word for _, word in own) or f"cluster {k + 1}" for k, own in enumerate(words)]


def _line(occurrences: Occurrences, use: int) -> str:
    tokens, position = occurrences.sentence(use), int(occurrences.positions[use, 1])
    sides = " ".join(tokens[:position]), " ".join(tokens[position + 1 :])
    return line_markup("", sides[0], tokens[position], sides[1])
