"""A report on a model: its quality, its training and possible problems."""

from __future__ import annotations

import html
import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.contexts import Context, in_context, line_markup
from bilm.analysis.geometry import LayerGeometry, measure_layers
from bilm.analysis.occurrences import (
    Occurrences,
    Sample,
    Sentence,
    comparison_form,
    forms_of,
    ordinary_words,
    sample_uses,
)
from bilm.analysis.page import page
from bilm.core.errors import InputError
from bilm.data.sentences import read_stream
from bilm.inference.scorer import exp_of_loss
from bilm.progress import ShowStage, counted, quiet
from bilm.terminal import table
from bilm.training.verdict import unigram_perplexity, verdict

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo
    from bilm.use.predictor import Predictor

_WIDTH = 100  # of text for a terminal
_FIRST_TOKENS = 3
_OCCURRENCES = 200  # of each example word, at most
_MIN_OCCURRENCES = 3
_N_WORDS = 4
_TOKENS = 20  # on each side of a word in context
# Limits beyond which a figure is suspicious; see `suspicions`.
_UNKNOWN = 0.1
_DIRECTIONS_DIFFER = 1.5
_FIRST_WORSE = 20.0
_ALL_ALIKE = 0.9
_NOT_CONTEXTUAL = 0.98
_ONE_DIMENSION = 0.5
_NORMS_DIFFER = 10.0
# Perplexity by word frequencies divided by the perplexity of reference models, each on held-out
# text of its training corpus.
_REFERENCES = (
    ("reference: bilm demo, 3 minutes", 6.8),
    ("reference: WikiText-2, 10 minutes", 6.2),
)


@dataclass(frozen=True)
class Prediction:
    """How well the language model predicts a text, each sentence alone: perplexities."""

    forward: float
    backward: float | None  # None without a backward direction
    by_rank: float  # of the log-uniform distribution over the ranks of the vocabulary
    by_frequency: float  # of each word's frequency in the rest of the text, smoothed by its rank
    first_forward: float  # of the first three words
    first_backward: float | None
    unknown: float  # proportion of tokens outside the vocabulary
    n_predictions: int  # words and sentence ends
    # Of each word's frequency in the training text, as `bilm train` reports it; None if unknown.
    unigram: float | None = None

    @property
    def both(self) -> float:
        """Perplexity over both directions."""
        return self.forward if self.backward is None else math.sqrt(self.forward * self.backward)

    def directions(self) -> Iterator[tuple[str, float, float]]:
        """For each direction: name, perplexity, and perplexity of the first words."""
        yield "forward", self.forward, self.first_forward
        if self.backward is not None and self.first_backward is not None:
            yield "backward", self.backward, self.first_backward


@dataclass(frozen=True)
class Report:
    """The measurements of a model."""

    model: list[tuple[str, str]]  # facts: a name and a text, as in `bilm info`
    text: str  # name of the measured text
    n_sentences: int  # of the measured sample
    n_tokens: int
    prediction: Prediction | None  # None if the model has no softmax
    layers: list[LayerGeometry]  # from the token layer (0) to the top
    examples: list[list[Context]]  # occurrences of words, each before its nearest neighbours
    verdict: list[str]  # sentences on the quality and training of the model
    suspicions: list[str]  # sentences on suspicious figures

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        return asdict(self) | {
            "model": dict(self.model),
            "layers": [layer._asdict() for layer in self.layers],
        }

    def as_text(self) -> str:
        """The report for a terminal."""
        return "\n".join(line for section in _sections(self) for line in section.lines())

    def as_html(self) -> bytes:
        """The report as a page for a browser, in UTF-8."""
        body = "\n".join(section.markup() for section in _sections(self))
        return page(f"Report on {dict(self.model).get('model', 'a model')}", body)


def make_report(
    elmo: ELMo,
    sentences: Iterable[str | Sentence],
    text: str,
    model: list[tuple[str, str]],
    *,
    predictor: Predictor | None = None,
    counts: Mapping[str, int] | None = None,
    training_counts: np.ndarray | None = None,
    trained: Mapping[str, Any] | None = None,
    measurements: Sequence[float] = (),
    words: Sequence[str] | None = None,
    seed: int = 0,
    progress: ShowStage = quiet,
) -> Report:
    """Measure a model on sentences that it was not trained on.

    Args:
        elmo: the model.
        sentences: about a thousand sentences, as from `sample_sentences`; see `measure_layers`.
        text: name of the text.
        model: facts about the model, shown in the report.
        predictor: the same model with its softmax, if available.
        counts: frequency of each word in the complete text; None counts `sentences`.
        training_counts: occurrences of each word of the vocabulary in the training text, (n_words,)
            by id, for the verdict; None or empty: unknown.
        trained: "tokens" and "passes" of the training, if known.
        measurements: held-out perplexities during training, in order.
        words: words to show in context; None chooses frequent ones.
        progress: called with a `Stage` of sentences.

    Raises:
        InputError: there is too little text, or one of `words` occurs less than three times.
    """
    sentences = [tokens for _, tokens in read_stream(sentences, with_ids=False) if tokens]
    if words is None:
        words = ordinary_words(sentences, _N_WORDS)
    else:
        _require_words(words, sentences)
    sample = None
    if words:
        sample = sample_uses(sentences, words, max_occurrences=_OCCURRENCES, seed=seed)
    layers = measure_layers(elmo, sentences, seed=seed, progress=progress)
    prediction = None
    if predictor is not None:
        prediction = measure_prediction(predictor, sentences, counts, progress, training_counts)
    trained = trained or {}
    return Report(
        model,
        text,
        len(sentences),
        sum(map(len, sentences)),
        prediction,
        layers,
        [] if sample is None else _examples(elmo, sample),
        verdict(
            perplexity=None if prediction is None else prediction.both,
            unigram=None if prediction is None else prediction.unigram,
            unknown=None if prediction is None else prediction.unknown,
            tokens=trained.get("tokens"),
            passes=trained.get("passes"),
            measurements=measurements,
        ),
        suspicions(layers, prediction),
    )


def measure_prediction(
    predictor: Predictor,
    sentences: Sequence[Sentence],
    counts: Mapping[str, int] | None = None,
    progress: ShowStage = quiet,
    training_counts: np.ndarray | None = None,
) -> Prediction:
    """The perplexity of sentences in each direction, and of two baselines; see `make_report`."""
    losses: defaultdict[str, list[float]] = defaultdict(list)
    is_known: list[bool] = []
    targets: list[str] = []
    scores = predictor.score_iter(map(list, sentences))
    for score in counted(scores, progress, "predicting", len(sentences), "sentences"):
        targets += [*score.tokens, "</S>"]
        is_known += score.known.tolist()
        losses["forward"] += [*-score.forward, -score.end]
        losses["first_forward"] += [*-score.forward[:_FIRST_TOKENS]]
        if score.backward is not None and score.begin is not None:
            losses["backward"] += [*-score.backward, -score.begin]
            losses["first_backward"] += [*-score.backward[-_FIRST_TOKENS:]]
    vocabulary = predictor.vocabulary
    counts = Counter(targets) if counts is None else counts
    ids = np.array([vocabulary.word_to_id(word) for word in targets])
    losses["by_rank"], losses["by_frequency"] = _baselines(
        ids,
        np.array([vocabulary.word_to_id(word) for word in counts]),
        np.array(list(counts.values()), np.float64),
        vocabulary.size,
    )
    perplexities: dict[str, Any] = {"backward": None, "first_backward": None}
    if training_counts is not None and len(training_counts) == vocabulary.size:
        occurrences = np.bincount(ids, minlength=vocabulary.size)
        perplexities["unigram"] = unigram_perplexity(training_counts, occurrences)
    perplexities |= {name: exp_of_loss(float(np.mean(nats))) for name, nats in losses.items()}
    unknown = 1 - float(np.mean(is_known))
    return Prediction(**perplexities, unknown=unknown, n_predictions=len(targets))


def _baselines(
    targets: np.ndarray, ids: np.ndarray, counts: np.ndarray, n_words: int
) -> tuple[list[float], list[float]]:
    """The losses of `targets` (ids) by rank and by frequency.

    `counts` are the frequencies of `ids` in a text with the targets; each target is subtracted from
    the counts that predict it. Frequencies are interpolated with the log-uniform distribution by
    Witten and Bell's weights (it counts as much as one occurrence of each different word).
    """
    by_rank = np.log1p(1 / (np.arange(n_words) + 1)) / math.log(n_words + 1)
    by_id = np.bincount(ids, counts, n_words)
    n_different = np.count_nonzero(by_id)
    mixed = (by_id - 1).clip(0) + n_different * by_rank
    mixed /= max(by_id.sum() - 1, 0) + n_different
    return (-np.log(by_rank[targets])).tolist(), (-np.log(mixed[targets])).tolist()


def _require_words(words: Sequence[str], sentences: Sequence[Sentence]) -> None:
    """Require that words occur often enough to be compared with their neighbours."""
    counts = Counter(comparison_form(token) for sentence in sentences for token in sentence)
    for word in words:
        n = sum(counts[form] for form in forms_of(comparison_form(word)))
        if n < _MIN_OCCURRENCES:
            raise InputError(
                f"words: {word!r} must occur {_MIN_OCCURRENCES} times in the {len(sentences):,} "
                f"measured sentences, got {n}: measure more sentences, or choose another word."
            )


def _examples(elmo: ELMo, sample: Sample) -> list[list[Context]]:
    occurrences = Occurrences.encoded(elmo, sample)
    examples = []
    for word in sample.counts:
        if len(occurrences.of(word)) < _MIN_OCCURRENCES:
            continue
        for number in dict.fromkeys(occurrences.contrasting_pair(word)):
            nearest = occurrences.neighbours(number, 2).same_word
            rows = [(None, number), *nearest]
            examples.append([Context.of(occurrences, k, cosine) for cosine, k in rows])
    return examples


def suspicions(layers: Sequence[LayerGeometry], prediction: Prediction | None) -> list[str]:
    """Sentences on suspicious figures, with a remedy."""
    return [
        *_layer_suspicions(layers),
        *(_prediction_suspicions(prediction) if prediction else ()),
    ]


def _layer_suspicions(layers: Sequence[LayerGeometry]) -> Iterator[str]:
    for number, layer in enumerate(layers):
        if layer.anisotropy > _ALL_ALIKE:
            yield (
                f"Layer {number}: two random words have a cosine of {layer.anisotropy:.2f}. "
                "Subtract the mean vector before comparing."
            )
        if number and layer.self_similarity > _NOT_CONTEXTUAL:
            yield (
                f"Layer {number}: a word has nearly the same vector in all contexts (cosine "
                f"{layer.self_similarity:.2f})."
            )
        if layer.largest_share > _ONE_DIMENSION:
            yield (
                f"Layer {number}: one dimension has {layer.largest_share:.0%} of the squared "
                "length of the vectors. Standardise the dimensions before comparing."
            )
    norms = [layer.norm for layer in layers]
    ratio = max(norms) / max(min(norms), 1e-12)
    if ratio > _NORMS_DIFFER:
        yield (
            f"The mean lengths of the layers' vectors differ by a factor of {ratio:.0f}. Use a mix "
            "with layer normalisation (do_layer_norm)."
        )


def _prediction_suspicions(prediction: Prediction) -> Iterator[str]:
    different = "the text is of another kind, or tokenised differently from the training text"
    for name, perplexity, first in prediction.directions():
        if perplexity > prediction.by_rank:
            yield (
                f"The {name} perplexity, {perplexity:,.0f}, is above {prediction.by_rank:,.0f}, "
                f"the perplexity of word ranks alone: {different}, or the model was not trained "
                "from the initial LSTM states (see --warm_up)."
            )
        elif first > _FIRST_WORSE * perplexity:
            yield (
                f"The {name} perplexity of the first three words is {first:,.0f}, overall "
                f"{perplexity:,.0f}: the model was not trained from the initial LSTM states (see "
                "--warm_up, and --reset_rate of `bilm train`)."
            )
    perplexities = [perplexity for _, perplexity, _ in prediction.directions()]
    ratio = max(perplexities) / min(perplexities)
    if _DIRECTIONS_DIFFER < ratio < math.inf:
        yield (
            f"The perplexities of the two directions differ by a factor of {ratio:.1f}; one "
            "direction is hardly trained."
        )
    if prediction.unknown > _UNKNOWN:
        yield (
            f"{prediction.unknown:.0%} of the tokens are outside the vocabulary: {different}. "
            "Perplexity is then too low, because <UNK> is easy to predict."
        )


class _Section(NamedTuple):
    """A section of a report: paragraphs, a table and words in context."""

    title: str
    paragraphs: Sequence[str]
    rows: Sequence[Sequence[str]] = ()  # with the table's head
    contexts: Sequence[Sequence[Context]] = ()
    kind: str = ""  # CSS class of the paragraphs

    def lines(self) -> Iterator[str]:
        yield from (self.title, "-" * len(self.title))
        for paragraph in self.paragraphs:
            yield from textwrap.wrap(paragraph, _WIDTH)
        yield from table(self.rows) if self.rows else ()
        for group in self.contexts:
            yield from (*in_context(group, _WIDTH), "")
        yield from [] if self.contexts else [""]

    def markup(self) -> str:
        content = [f"<h2>{html.escape(self.title)}</h2>"]
        content += [f'<p class="{self.kind}">{html.escape(text)}</p>' for text in self.paragraphs]
        if self.rows:
            content.append('<div class="table"><table>')
            for number, row in enumerate(self.rows):
                tag = "td" if number else "th"
                cells = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
                content.append(f"<tr>{cells}</tr>")
            content.append("</table></div>")
        for group in self.contexts:
            lines = "".join(line_markup(context, _TOKENS) for context in group)
            content.append(f'<ul class="lines cosines">{lines}</ul>')
        return "\n".join(content)


def _sections(report: Report) -> Iterator[_Section]:
    yield _Section("Verdict", report.verdict, kind="verdict")
    if report.suspicions:
        yield _Section("Suspicious", report.suspicions, kind="verdict warning")
    text = f"{report.n_sentences:,} sentences, {report.n_tokens:,} tokens of {report.text}"
    if report.prediction is None:
        yield _Section("Prediction", ["Not measured: the model has no softmax."])
    else:
        yield _prediction_section(report.prediction, text)
    rows = [["layer", "random", "same word", "sentence", "length"]]
    for number, layer in enumerate(report.layers):
        rows.append([
            str(number),
            f"{layer.anisotropy:.3f}",
            f"{layer.self_similarity:.3f} ({layer.adjusted_self_similarity:.3f})",
            f"{layer.intra_sentence:.3f} ({layer.adjusted_intra_sentence:.3f})",
            f"{layer.norm:.2f}",
        ])  # fmt: skip
    about_layers = (
        f"{text}. random: words of different sentences (anisotropy). same word: two "
        "occurrences of a word. sentence: a token and the mean of its sentence. In brackets: "
        "minus random. The lower `same word` in brackets, the more a layer depends on context."
    )
    yield _Section("Layers (mean cosines)", [about_layers], rows)
    if report.examples:
        about_words = (
            "Each occurrence is followed by the nearest occurrences of its word in the top layer, "
            "with their cosines."
        )
        yield _Section("Words in context", [about_words], contexts=report.examples)
    yield _Section("Model", [f"{name or 'also'}: {what}" for name, what in report.model])


def _prediction_section(prediction: Prediction, text: str) -> _Section:
    rows = [["", "perplexity", "times lower", f"first {_FIRST_TOKENS} words"]]
    rows.append(["word ranks alone", f"{prediction.by_rank:,.1f}", "", ""])
    rows.append(["this text's word frequencies", f"{prediction.by_frequency:,.1f}", "", ""])
    for name, perplexity, first in prediction.directions():
        better = prediction.by_frequency / perplexity
        rows.append([name, f"{perplexity:,.1f}", f"{better:.1f}", f"{first:,.1f}"])
    rows += [[name, "", f"{better:.1f}", ""] for name, better in _REFERENCES]
    return _Section(
        "Prediction",
        [
            f"{text}, each sentence alone; {prediction.unknown:.1%} of the tokens are outside the "
            "vocabulary. `times lower` compares with this text's word frequencies; the "
            "reference models were measured in the same way, each on its own text."
        ],
        rows,
    )
