"""Is this model any good? What can be said before one uses it, on one page."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.geometry import LayerGeometry, measure_layers
from bilm.analysis.occurrences import Occurrences, Sample, Sentence, ordinary_words, sample_uses

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo
    from bilm.use.predictor import Predictor

# Called with what is done, how much of it, and all of it.
Progress = Callable[[str, int, int], None]

_WIDTH = 100  # of text for a terminal
_FIRST_TOKENS = 3
_USES = 200  # of each word whose neighbours are shown
_N_WORDS = 4
# Beyond these a model is called suspicious; see `suspicions`.
_UNKNOWN = 0.1
_DIRECTIONS_DIFFER = 1.5
_BEGIN_WORSE = 20.0
_ALL_ALIKE = 0.9
_NOT_CONTEXTUAL = 0.98
_ONE_DIMENSION = 0.5
_NORMS_DIFFER = 10.0


@dataclass(frozen=True)
class Prediction:
    """How well the language model predicts a text, each sentence alone.

    Attributes:
        forward, backward: perplexity; None for a direction that the model does not have.
        by_rank: perplexity of a model that knows no context, only the rank of each word in the
            vocabulary (the log-uniform distribution).
        begin_forward, begin_backward: perplexity of the three words where each direction begins.
        unknown: share of the tokens that are outside the vocabulary.
        n_predictions: words and ends of sentences.
    """

    forward: float
    backward: float | None
    by_rank: float
    begin_forward: float
    begin_backward: float | None
    unknown: float
    n_predictions: int


@dataclass(frozen=True)
class Example:
    """A use of a word, and the uses of the same word that are nearest in the top layer."""

    line: str
    nearest: list[tuple[float, str]]


@dataclass(frozen=True)
class Report:
    """What is known of a model.

    Attributes:
        model: pairs of a name and what there is to say, as `bilm info` prints them.
        text: the name of the text that it was measured on.
        n_sentences, n_tokens: that were measured.
        prediction: None if the model has no softmax.
        layers: from the token layer (0) to the top.
        examples: words in context and their neighbours.
        suspicions: sentences that say what is suspicious; none is a good sign.
    """

    model: list[tuple[str, str]]
    text: str
    n_sentences: int
    n_tokens: int
    prediction: Prediction | None
    layers: list[LayerGeometry]
    examples: list[Example]
    suspicions: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: nothing but dictionaries, lists, text and numbers."""
        return asdict(self) | {
            "model": dict(self.model),
            "layers": [layer._asdict() for layer in self.layers],
        }

    def as_text(self) -> str:
        """For a terminal."""
        return "\n".join(line for section in _sections(self) for line in section.lines())

    def as_html(self) -> str:
        """A page of its own, which needs nothing else."""
        body = "\n".join(section.markup() for section in _sections(self))
        title = html.escape(f"Report on {dict(self.model).get('model', 'a model')}")
        return _PAGE.format(title=title, body=body)


def make_report(
    elmo: ELMo,
    sentences: Sequence[Sentence],
    text: str,
    model: list[tuple[str, str]],
    *,
    predictor: Predictor | None = None,
    words: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Measure a model on sentences that it was not trained on.

    Args:
        sentences: a thousand or so, such as `sample_sentences` draws; none of them empty.
        text: their name.
        model: facts about it that are shown as they are.
        predictor: the same model with its softmax, if it has one.
        words: words whose neighbours are shown; None takes some that occur often.
        seed: of what is drawn.
        progress: see `Progress`.

    Raises:
        InputError: there is too little text, or a word does not occur.
    """
    show = progress or (lambda doing, done, total: None)
    total = len(sentences)
    chosen = ordinary_words(sentences, _N_WORDS) if words is None else words
    sample = sample_uses(sentences, chosen, max_occurrences=_USES, seed=seed) if chosen else None
    layers = measure_layers(
        elmo, sentences, seed=seed, progress=lambda done: show("measuring layers", done, total)
    )
    prediction = None
    if predictor is not None:
        prediction = measure_prediction(
            predictor, sentences, lambda done: show("predicting", done, total)
        )
    report = Report(
        model,
        text,
        total,
        sum(map(len, sentences)),
        prediction,
        layers,
        [] if any(layer.not_finite for layer in layers) else _examples(elmo, sample),
    )
    report.suspicions.extend(suspicions(report.layers, report.prediction))
    return report


def measure_prediction(
    predictor: Predictor,
    sentences: Sequence[Sentence],
    progress: Callable[[int], None] | None = None,
) -> Prediction:
    """The perplexity of sentences by direction, and what it is compared with."""
    vocabulary = predictor.vocabulary
    normaliser = math.log(vocabulary.size + 1)
    losses = {name: _Mean() for name in ("forward", "backward", "rank", "first", "last")}
    unknown = _Mean()
    for done, score in enumerate(predictor.score_iter(map(list, sentences)), start=1):
        losses["forward"].add(-score.forward_total, len(score.tokens) + 1)
        losses["first"].add(-score.forward[:_FIRST_TOKENS].sum(), len(score.tokens[:_FIRST_TOKENS]))
        if score.backward is not None and score.backward_total is not None:
            losses["backward"].add(-score.backward_total, len(score.tokens) + 1)
            last = score.backward[-_FIRST_TOKENS:]
            losses["last"].add(-last.sum(), len(last))
        ranks = np.array([vocabulary.word_to_id(word) for word in (*score.tokens, "</S>")])
        by_rank = -np.log(np.log1p(1 / (ranks + 1)) / normaliser)
        losses["rank"].add(by_rank.sum(), len(ranks))
        unknown.add((~score.known).sum(), len(score.tokens))
        if progress is not None:
            progress(done)
    two = losses["backward"].n > 0
    return Prediction(
        losses["forward"].perplexity(),
        losses["backward"].perplexity() if two else None,
        losses["rank"].perplexity(),
        losses["first"].perplexity(),
        losses["last"].perplexity() if two else None,
        unknown.total / max(unknown.n, 1),
        losses["forward"].n,
    )


class _Mean:
    def __init__(self) -> None:
        self.total, self.n = 0.0, 0

    def add(self, total: float, n: int) -> None:
        self.total += float(total)
        self.n += n

    def perplexity(self) -> float:
        mean = self.total / max(self.n, 1)
        return math.exp(mean) if mean < 700 else math.inf


def _examples(elmo: ELMo, sample: Sample | None) -> list[Example]:
    if sample is None:
        return []
    occurrences = Occurrences.encoded(elmo, sample)
    examples = []
    for word in sample.counts:
        if len(occurrences.of(word)) < 3:
            continue
        for occurrence in dict.fromkeys(occurrences.contrasting_pair(word)):
            nearest = occurrences.neighbours(occurrence, 2).same_word
            lines = [(cosine, occurrences.in_context(other)) for cosine, other in nearest]
            examples.append(Example(occurrences.in_context(occurrence), lines))
    return examples


def suspicions(layers: Sequence[LayerGeometry], prediction: Prediction | None) -> list[str]:
    """What is suspicious, in sentences: each names the figure, what is usual, and what to do."""
    return [*_of_layers(layers), *(() if prediction is None else _of_prediction(prediction))]


def _of_layers(layers: Sequence[LayerGeometry]) -> Iterator[str]:
    for number, layer in enumerate(layers):
        if layer.not_finite:
            yield (
                f"Layer {number}: {layer.not_finite} vectors hold numbers that are not finite. The "
                "weights are damaged, or the training diverged."
            )
        elif layer.anisotropy > _ALL_ALIKE:
            yield (
                f"Layer {number}: two random words have a cosine of {layer.anisotropy:.2f}, so all "
                "vectors point nearly the same way. Subtract their mean before you compare them."
            )
        if number and layer.self_similarity > _NOT_CONTEXTUAL:
            yield (
                f"Layer {number}: a word has nearly the same vector in all contexts (cosine "
                f"{layer.self_similarity:.2f}). The layer has learned little from context; was "
                "the training long enough?"
            )
        if layer.largest_share > _ONE_DIMENSION:
            yield (
                f"Layer {number}: one dimension has {layer.largest_share:.0%} of the squared "
                "length of the vectors; cosines show little else. Standardise the dimensions."
            )
    norms = [layer.norm for layer in layers]
    if max(norms) > _NORMS_DIFFER * max(min(norms), 1e-12):
        yield (
            f"The mean lengths of the layers' vectors differ by a factor of "
            f"{max(norms) / max(min(norms), 1e-12):.0f}; an average of the layers is mostly the "
            "longest one. Use a mix with layer normalisation (do_layer_norm)."
        )


def _of_prediction(found: Prediction) -> Iterator[str]:
    directions = {"forward": found.forward, "backward": found.backward}
    begins = {"forward": found.begin_forward, "backward": found.begin_backward}
    for name, perplexity in directions.items():
        begin = begins[name]
        if perplexity is None or begin is None:
            continue
        if perplexity > found.by_rank:
            yield (
                f"The {name} perplexity, {perplexity:,.0f}, is above that of the words' ranks "
                f"alone, {found.by_rank:,.0f}: the model predicts this text worse than one "
                "without context. The text is of another kind, its tokens are made otherwise, or "
                "sentences begin from a state that the model does not know (see --warm_up)."
            )
        elif begin > _BEGIN_WORSE * perplexity:
            yield (
                f"Where the {name} direction begins, perplexity is {begin:,.0f}; on the whole it "
                f"is {perplexity:,.0f}. The model does not know the state in which sentences "
                "begin: see --warm_up, and --reset_rate of `bilm train`."
            )
    if found.backward is not None and math.isfinite(found.forward * found.backward):
        ratio = max(found.forward, found.backward) / min(found.forward, found.backward)
        if ratio > _DIRECTIONS_DIFFER:
            yield (
                f"The perplexities of the two directions differ by a factor of {ratio:.1f}; they "
                "are usually within a tenth of each other. One direction is hardly trained, or "
                "was lost."
            )
    if found.unknown > _UNKNOWN:
        yield (
            f"{found.unknown:.0%} of the tokens are outside the vocabulary. The text is of another "
            "kind, or its tokens are made otherwise than those of the training. Perplexity is then "
            "too good: <UNK> is easily predicted."
        )


class _Section(NamedTuple):
    """A part of the page: a title, text, and a table whose first row names its columns."""

    title: str
    paragraphs: list[str]
    table: list[list[str]]

    def lines(self) -> Iterator[str]:
        yield from (self.title, "-" * len(self.title))
        for paragraph in self.paragraphs:
            yield from textwrap.wrap(paragraph, _WIDTH)
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        for row in self.table:
            first, *others = (
                cell.ljust(width) if k == 0 else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            yield "  ".join([first, *others]).rstrip()
        yield ""

    def markup(self) -> str:
        parts = [f"<h2>{html.escape(self.title)}</h2>"]
        parts += [f"<p>{html.escape(paragraph)}</p>" for paragraph in self.paragraphs]
        if self.table:
            rows = [
                "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
                for tag, row in zip(["th", *["td"] * len(self.table)], self.table, strict=False)
            ]
            parts.append(f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table>")
        return "\n".join(parts)


def _sections(report: Report) -> Iterator[_Section]:
    verdict = report.suspicions or ["Nothing suspicious was found."]
    yield _Section("Verdict", verdict, [])
    yield _Section("Model", [f"{name or 'also'}: {what}" for name, what in report.model], [])
    measured = f"{report.n_sentences:,} sentences, {report.n_tokens:,} tokens of {report.text}."
    yield _Section("Prediction (perplexity, lower is better)", *_prediction_table(report, measured))
    yield _Section(
        "Layers (mean cosines)",
        [
            measured,
            "random: two words of different sentences (anisotropy). same word: two occurrences of "
            "one word. sentence: a token and the mean of its sentence. In brackets: beyond random "
            "words. The lower `same word` in brackets, the more a layer depends on context.",
        ],
        [
            ["layer", "random", "same word", "sentence", "length"],
            *(
                [
                    str(number),
                    f"{layer.anisotropy:.3f}",
                    f"{layer.self_similarity:.3f} ({layer.adjusted_self_similarity:.3f})",
                    f"{layer.intra_sentence:.3f} ({layer.adjusted_intra_sentence:.3f})",
                    f"{layer.norm:.2f}",
                ]
                for number, layer in enumerate(report.layers)
            ),
        ],
    )
    lines = []
    for example in report.examples:
        lines.append(example.line)
        lines += [f"{cosine:.2f}  {line}" for cosine, line in example.nearest]
    if lines:
        yield _Section(
            "Uses of words, and the nearest uses of the same word (top layer)", lines, []
        )


def _prediction_table(report: Report, measured: str) -> tuple[list[str], list[list[str]]]:
    found = report.prediction
    if found is None:
        return ["The model has no softmax, so it predicts nothing that could be measured."], []
    rows = [["direction", "perplexity", f"of the first {_FIRST_TOKENS}"]]
    rows.append(["forward", f"{found.forward:,.1f}", f"{found.begin_forward:,.1f}"])
    if found.backward is not None and found.begin_backward is not None:
        rows.append(["backward", f"{found.backward:,.1f}", f"{found.begin_backward:,.1f}"])
    rows.append(["ranks alone", f"{found.by_rank:,.1f}", ""])
    unknown = f"{found.unknown:.1%} of the tokens are outside the vocabulary."
    return [measured, "Each sentence is predicted alone.", unknown], rows


_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; }}
h2 {{ font-size: 1.1rem; margin: 1.6rem 0 .4rem; }}
p {{ margin: .2rem 0; }}
table {{ border-collapse: collapse; margin-top: .5rem; }}
th, td {{ padding: .2rem .9rem .2rem 0; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
<h1>{title}</h1>
{body}
</html>
"""
