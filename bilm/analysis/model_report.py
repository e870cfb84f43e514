"""A report on a model: its quality, its training and possible problems.

The layers are measured as in Ethayarajh (2019), "How contextual are contextualized word
representations?", section 3.
"""

from __future__ import annotations

import html
import math
import random
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.analysis.occurrences import Sentence, is_word, unit
from bilm.analysis.pictures import page
from bilm.core.errors import InputError, not_finite
from bilm.data.sentences import read_stream
from bilm.progress import ShowStage, counted, quiet
from bilm.terminal import printable, table
from bilm.training.verdict import unigram_perplexity, verdict

if TYPE_CHECKING:
    from bilm.use.elmo import ELMo
    from bilm.use.predictor import Predictor

_WIDTH = 100  # of the text
_FIRST_TOKENS = 3
_MAX_WORDS = 1000  # whose self-similarity is measured
# Perplexity by word frequencies divided by the perplexity of a reference model, on held-out text of
# its training corpus.
_REFERENCE = ["reference: WikiText-2, 10 minutes", "", "6.2", ""]


class LayerGeometry(NamedTuple):
    """Measures of a layer, with cosines of vectors that are not centred.

    Anisotropy is 0 for uniformly distributed directions, 1 if all vectors have the same direction.
    Self-similarity is 1 if a word's vector does not depend on its context.
    """

    anisotropy: float  # mean cosine of random words of different sentences
    self_similarity: float  # mean cosine of two occurrences of a word, mean over words
    intra_sentence: float  # mean cosine of a token and its sentence's mean, mean over sentences
    norm: float  # mean length of a vector
    largest_share: float  # largest proportion of the squared lengths in one dimension


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
        return "\n\n".join(f"{title}\n{text}" for title, text in self._sections())

    def as_html(self) -> bytes:
        """The report as a page for a browser, in UTF-8."""
        sections = (f"<h2>{t}</h2><pre>{html.escape(text)}</pre>" for t, text in self._sections())
        return page(f"Report on {dict(self.model).get('model', 'a model')}", "".join(sections))

    def _sections(self) -> Iterator[tuple[str, str]]:
        """Title and text of each section."""
        for title, paragraphs, lines in self._contents():
            filled = (textwrap.fill(printable(paragraph), _WIDTH) for paragraph in paragraphs)
            yield title, "\n".join([*filled, *map(printable, lines)])

    def _contents(self) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
        """Title, paragraphs and lines of each section."""
        yield "Verdict", self.verdict, ()
        if self.suspicions:
            yield "Suspicious", self.suspicions, ()
        text = f"{self.n_sentences:,} sentences, {self.n_tokens:,} tokens of {self.text}"
        if self.prediction is None:
            yield "Prediction", ["Not measured: the model has no softmax."], ()
        else:
            about = (
                f"{text}, each sentence alone; {self.prediction.unknown:.1%} of the tokens are "
                "outside the vocabulary. `times lower` compares with this text's word frequencies; "
                "the reference model was measured in the same way, on its own text."
            )
            rows = [["", "perplexity", "times lower", f"first {_FIRST_TOKENS} words"]]
            rows.append(["word ranks alone", f"{self.prediction.by_rank:,.1f}", "", ""])
            base = self.prediction.by_frequency
            rows.append(["this text's word frequencies", f"{base:,.1f}", "", ""])
            for name, perplexity, first in self.prediction.directions():
                rows.append([name, f"{perplexity:,.1f}", f"{base / perplexity:.1f}",
                             f"{first:,.1f}"])  # fmt: skip
            yield "Prediction", [about], table([*rows, _REFERENCE])
        rows = [["layer", "random", "same word", "sentence", "length"]]
        for number, layer in enumerate(self.layers):
            base, same, sentence, length, _ = layer
            rows.append([str(number), f"{base:.3f}", f"{same:.3f} ({same - base:.3f})",
                         f"{sentence:.3f} ({sentence - base:.3f})", f"{length:.2f}"])  # fmt: skip
        about = (
            f"{text}. random: words of different sentences (anisotropy). same word: two "
            "occurrences of a word. sentence: a token and the mean of its sentence. In brackets: "
            "minus random. The lower `same word` in brackets, the more a layer depends on context."
        )
        yield "Layers (mean cosines)", [about], table(rows)
        yield "Model", [f"{name or 'also'}: {what}" for name, what in self.model], ()


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
        progress: called with a `Stage` of sentences.

    Raises:
        InputError: there is too little text, or vectors or scores are not finite.
    """
    sentences = [tokens for _, tokens in read_stream(sentences, with_ids=False) if tokens]
    layers = measure_layers(elmo, sentences, progress=progress)
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


def measure_layers(
    elmo: ELMo,
    sentences: Iterable[str | Sentence],
    *,
    min_occurrences: int = 5,
    seed: int = 0,
    progress: ShowStage = quiet,
) -> list[LayerGeometry]:
    """Measure each layer on at least two sentences: lists of tokens, or text that is split on white
    space. Empty sentences are skipped.

    Self-similarity is over at most 1,000 words with `min_occurrences`; `progress` is called with
    a `Stage` of sentences. Memory does not depend on the number of sentences.

    Raises:
        InputError: there are fewer than two sentences, no word occurs often enough, or the vectors
            are not finite.
    """
    sentences = [tokens for _, tokens in read_stream(sentences, with_ids=False) if tokens]
    counts = Counter(token for sentence in sentences for token in sentence if is_word(token))
    words = sorted(word for word, count in counts.items() if count >= max(2, min_occurrences))
    draw = random.Random(seed)
    if len(words) > _MAX_WORDS:
        words = draw.sample(words, _MAX_WORDS)
    if len(sentences) < 2 or not words:
        raise InputError(
            f"the text must have two sentences and a word that occurs {max(2, min_occurrences)} "
            f"times, got {len(sentences)} sentences and {len(words)} such words."
        )
    numbers = {word: number for number, word in enumerate(words)}
    # Sums over sentences: (layers, dim) for each word and for random tokens; (layers,) otherwise.
    by_word = np.zeros((len(words), elmo.n_layers, elmo.dim))
    random_units, squares = np.zeros((2, elmo.n_layers, elmo.dim))
    norms, intra = np.zeros((2, elmo.n_layers))
    pairs = zip(sentences, elmo.encode_iter(sentences, "all"), strict=True)
    total = len(sentences)
    for sentence, vectors in counted(pairs, progress, "measuring layers", total, "sentences"):
        if not np.isfinite(vectors).all():
            raise not_finite("the model's vectors")
        vectors = vectors.astype(np.float64)  # (layers, tokens, dim)
        units = unit(vectors)
        random_units += units[:, draw.randrange(len(sentence))]
        squares += np.square(vectors).sum(axis=1)
        norms += np.linalg.norm(vectors, axis=2).sum(axis=1)
        if len(sentence) > 1:
            mean = unit(vectors.mean(axis=1, keepdims=True))
            intra += (units * mean).sum(axis=2).mean(axis=1)
        for position, token in enumerate(sentence):
            if token in numbers:
                by_word[numbers[token]] += units[:, position]
    word_counts = np.array([counts[word] for word in words])[:, np.newaxis]
    measures = np.stack([
        _mean_cosine(random_units, np.array(len(sentences))),
        _mean_cosine(by_word, word_counts).mean(axis=0),
        intra / max(sum(len(sentence) > 1 for sentence in sentences), 1),
        norms / sum(map(len, sentences)),
        squares.max(axis=1) / np.maximum(squares.sum(axis=1), 1e-12),
    ])  # fmt: skip
    return [LayerGeometry._make(layer) for layer in measures.T.tolist()]


def _mean_cosine(sums: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Mean cosine of pairs among n unit vectors, given their sums (..., dim)."""
    # The squared length of a sum contains each pair twice, and n times 1.
    return (np.square(sums).sum(axis=-1) - n) / (n * (n - 1))


def measure_prediction(
    predictor: Predictor,
    sentences: Sequence[Sentence],
    counts: Mapping[str, int] | None = None,
    progress: ShowStage = quiet,
    training_counts: np.ndarray | None = None,
) -> Prediction:
    """The perplexity of sentences in each direction, and of two baselines; see `make_report`.

    The baseline of frequencies subtracts each target from the counts that predict it, and
    interpolates with the log-uniform distribution over ranks by Witten and Bell's weights (it
    counts as much as one occurrence of each different word).
    """
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
    vocabulary, n_words = predictor.vocabulary, predictor.vocabulary.size
    counts = Counter(targets) if counts is None else counts
    ids = np.array([vocabulary.word_to_id(word) for word in targets])
    by_rank = np.log1p(1 / (np.arange(n_words) + 1)) / math.log(n_words + 1)
    text_ids = [vocabulary.word_to_id(word) for word in counts]
    by_id = np.bincount(text_ids, np.array(list(counts.values()), np.float64), n_words)
    n_different = np.count_nonzero(by_id)
    mixed = (by_id - 1).clip(0) + n_different * by_rank
    mixed /= max(by_id.sum() - 1, 0) + n_different
    losses["by_rank"] = -np.log(by_rank[ids])
    losses["by_frequency"] = -np.log(mixed[ids])
    with np.errstate(over="ignore"):
        means = {name: float(np.exp(np.mean(nats))) for name, nats in losses.items()}
    if not all(map(math.isfinite, means.values())):
        raise not_finite("the model's scores")
    perplexities: dict[str, Any] = {"backward": None, "first_backward": None, **means}
    if training_counts is not None and len(training_counts) == n_words:
        occurrences = np.bincount(ids, minlength=n_words)
        perplexities["unigram"] = unigram_perplexity(training_counts, occurrences)
    unknown = 1 - float(np.mean(is_known))
    return Prediction(**perplexities, unknown=unknown, n_predictions=len(targets))


def suspicions(layers: Sequence[LayerGeometry], prediction: Prediction | None) -> list[str]:
    """Sentences on suspicious figures, with a remedy."""
    sentences: list[tuple[object, str]] = []  # whether to show it, and the sentence
    for number, layer in enumerate(layers):
        random_words, same_word, _, _, share = layer
        sentences += [
            (random_words > 0.9, f"Layer {number}: two random words have a cosine of "
             f"{random_words:.2f}. Subtract the mean vector before comparing."),
            (number and same_word > 0.98, f"Layer {number}: a word has nearly the same vector in "
             f"all contexts (cosine {same_word:.2f})."),
            (share > 0.5, f"Layer {number}: one dimension has {share:.0%} of the squared length of "
             "the vectors. Standardise the dimensions before comparing."),
        ]  # fmt: skip
    norms = [layer.norm for layer in layers]
    ratio = max(norms) / max(min(norms), 1e-12)
    sentences.append((
        ratio > 10, f"The mean lengths of the layers' vectors differ by a factor of {ratio:.0f}. "
        "Use a mix with layer normalisation (do_layer_norm).",
    ))  # fmt: skip
    if prediction is not None:
        different = "the text is of another kind, or tokenised differently from the training text"
        states = "the model was not trained from the initial LSTM states (see --warm_up)"
        for name, perplexity, first in prediction.directions():
            is_bad = perplexity > prediction.by_rank
            sentences += [
                (is_bad, f"The {name} perplexity, {perplexity:,.0f}, is above "
                 f"{prediction.by_rank:,.0f}, the perplexity of word ranks alone: {different}, or "
                 f"{states}."),
                (not is_bad and first > 20 * perplexity, f"The {name} perplexity of the first three"
                 f" words is {first:,.0f}, overall {perplexity:,.0f}: {states}."),
            ]  # fmt: skip
        perplexities = [perplexity for _, perplexity, _ in prediction.directions()]
        ratio = max(perplexities) / min(perplexities)
        sentences += [
            (ratio > 1.5, "The perplexities of the two directions differ by a factor of "
             f"{ratio:.1f}; one direction is hardly trained."),
            (prediction.unknown > 0.1, f"{prediction.unknown:.0%} of the tokens are outside the "
             f"vocabulary: {different}. Perplexity is then too low, because <UNK> is easy to "
             "predict."),
        ]  # fmt: skip
    return [sentence for is_shown, sentence in sentences if is_shown]
