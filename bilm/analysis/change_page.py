"""A page of the words that changed most: the sentences of the clusters that grew and shrank."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bilm.analysis.clusters import cluster_titles, typical_words
from bilm.analysis.contexts import Context, line_markup
from bilm.analysis.occurrences import Layer, Occurrences
from bilm.analysis.page import write_page
from bilm.analysis.semantic_change import NEW, OLD, Change, ClusteredUses, cluster_uses, uses_of
from bilm.files.reading import PathLike

if TYPE_CHECKING:
    from bilm.use.predictor import Predictor

_MOVED = 0.02  # smallest difference of proportions that counts as growing or shrinking
_HINT = """<p class='hint'>The most changed words by excess: the mean cosine distance of occurrences
in different corpora minus the mean distance within a corpus, with its 95 % interval. It is about 0
for a word that did not change; p is the probability of such a value if occurrences are exchanged
between the corpora. Bars are the proportions of the clusters in each corpus.</p>"""


def write_change_page(
    path: PathLike,
    old: Occurrences,
    new: Occurrences,
    changes: Sequence[Change],
    *,
    n_words: int = 20,
    n_lines: int = 5,
    layer: Layer = "top",
    corpora: tuple[str, str] = (OLD, NEW),
    predictor: Predictor | None = None,
) -> None:
    """Write a page that needs no network.

    For each of the first `n_words` of `changes`, from `measure_change`, it shows the proportion of
    each cluster in both corpora, and the `n_lines` sentences nearest to the centre of each cluster:
    from the new corpus if the cluster grew, otherwise from the old one. Substitutes from
    `predictor`, or else nearby words, name the clusters; `corpora` are the names of the corpora.
    """
    measured = [change for change in changes if change.is_measured][:n_words]
    both = (old, uses_of(old)), (new, uses_of(new))
    sections = []
    for number, change in enumerate(measured, start=1):
        old_uses, new_uses = (corpus.select(rows[change.word]) for corpus, rows in both)
        uses = cluster_uses(old_uses, new_uses, layer)
        names = cluster_titles(typical_words(uses.occurrences, uses.clusters, predictor))
        heading = (
            f"<h2>{number}. {html.escape(change.word)} <small>excess {change.excess:.3f} "
            f"({change.excess_low:.3f} to {change.excess_high:.3f}), p {change.excess_p:.3f}; JSD "
            f"{change.jsd:.3f}, p {change.jsd_p:.3f}; {change.n_old:,} and {change.n_new:,} "
            "occurrences</small></h2>"
        )
        content = heading + _bars(uses, names, corpora) + _lines(uses, names, corpora, n_lines)
        sections.append(f"<section>{content}</section>")
    title = f"Words that changed: {corpora[0]} and {corpora[1]}"
    hint = _HINT if sections else "<p>No word occurs often enough in both corpora.</p>"
    write_page(path, title, hint + "".join(sections))


def _bars(uses: ClusteredUses, names: Sequence[str], corpora: Sequence[str]) -> str:
    """The proportions of the clusters in each corpus."""
    bars = ""
    for corpus, shares in zip(corpora, uses.shares, strict=True):
        listed, parts = [], ""
        for k, (name, share) in enumerate(zip(names, shares, strict=True)):
            listed.append(f"{name} {share.value:.0%}")
            width = f"{100 * share.value:.2f}%"
            parts += f'<span style="width:{width};background:{_colour(k)}"></span>'
        label = html.escape(f"{corpus}: {', '.join(listed)}")
        bars += (
            f'<div class="shares"><small>{html.escape(corpus)}</small>'
            f'<div role="img" aria-label="{label}">{parts}</div></div>'
        )
    return bars


def _lines(uses: ClusteredUses, names: Sequence[str], corpora: Sequence[str], n_lines: int) -> str:
    """The typical sentences of each cluster; clusters that grew come first."""
    content = ""
    shares = [[share.value for share in corpus] for corpus in uses.shares]
    growth = [after - before for before, after in zip(*shares, strict=True)]
    for cluster in sorted(range(len(names)), key=lambda k: -growth[k]):
        before, after = shares[0][cluster], shares[1][cluster]
        grew = growth[cluster] > 0
        moved = ("grew: " if grew else "shrank: ") if abs(growth[cluster]) >= _MOVED else ""
        typical = uses.typical(cluster, NEW if grew else OLD, n_lines)
        lines = "".join(line_markup(Context.of(uses.occurrences, use)) for use in typical)
        content += (
            f'<h3><span class="chip" style="background:{_colour(cluster)}"></span>'
            f"{html.escape(names[cluster])} <small>{moved}{before:.0%} → {after:.0%}; sentences "
            f'from {html.escape(corpora[grew])}</small></h3><ul class="lines">{lines}</ul>'
        )
    return content


def _colour(cluster: int) -> str:
    return f"var(--c{cluster % 7})"  # of page.css
