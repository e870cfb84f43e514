"""Question answering: find the answer in a paragraph, by attention in both directions (a small
version of BiDAF, Seo et al. 2017).

  python usage_examples/questions.py --data qa --model elmo --words vectors.txt --seeds 1 2 3

The folder has train.json, dev.json and test.json in the form of SQuAD 1.1 (also .gz, .xz). Without
test.json, dev.json is the test part, and the last tenth of train.json the dev part. A regular
expression splits the text into tokens (common/reading.py). As in SQuAD, the measures are exact
match and word F1 with the best of the given answers, both without articles and punctuation.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from common.experiment import Built, Example, Scores, Task, program
from common.layers import bilstm, masked_softmax
from common.reading import Spans, parts_of, tokenise
from common.vectors import ModelInputs
from keras import ops

from bilm.core.errors import InputError
from bilm.files.reading import read_lines

LONGEST_ANSWER = 17  # in tokens
_FAR = -1e4


class Question(NamedTuple):
    """A question about a paragraph."""

    tokens: tuple[str, ...]
    context: str  # the paragraph as raw text
    spans: Spans  # its tokens
    answers: list[str]
    target: tuple[int, int]  # first and last token of the most frequent answer


def main(argv: Sequence[str] | None = None) -> None:
    """Train and measure a reader for each seed."""
    program(make_task, __doc__, argv, batch_size=64)


def make_task(args: argparse.Namespace) -> Task:
    """Build the task from a data folder."""

    def examples(path: str) -> list[Example]:
        return [
            Example(
                {"context": question.spans.tokens, "question": question.tokens},
                np.array(question.target, np.int32),
                gold=question,
            )
            for question in read(path)
        ]

    parts = parts_of(args.data, ".json", examples)
    build = functools.partial(build_reader, size=args.size, dropout=args.dropout)
    return Task("questions", parts, build, decode, score)


def read(path: str) -> Iterator[Question]:
    """Read the questions of a file."""
    try:
        articles = json.loads("\n".join(read_lines(path)))["data"]
        for a, article in enumerate(articles):
            for p, paragraph in enumerate(article["paragraphs"]):
                context, spans = paragraph["context"], tokenise(paragraph["context"])
                for q, item in enumerate(paragraph["qas"]):
                    where = f"{path}, article {a}, paragraph {p}, question {q}"
                    yield as_question(where, context, spans, item)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: must have the form of SQuAD 1.1: {error!r:.80}.") from None


def as_question(where: str, context: str, spans: Spans, item: dict[str, Any]) -> Question:
    """Parse a SQuAD question about a paragraph; `where` is its location, for error messages."""
    tokens = tokenise(item["question"]).tokens
    answers = [(answer["text"], answer["answer_start"]) for answer in item["answers"]]
    if not tokens or not answers:
        raise InputError(
            f"{where}: must have a question and an answer, got {item['question']!r:.80}."
        )
    for answer, begin in answers:
        if context[begin : begin + len(answer)] != answer:
            raise InputError(f"{where}: the answer {answer!r:.80} must be at character {begin}.")
    ((answer, begin), _) = Counter(answers).most_common(1)[0]
    target = spans.covering(begin, begin + len(answer))
    if target is None:
        raise InputError(f"{where}: the answer must have a token, got {answer!r:.80}.")
    return Question(tokens, context, spans, [answer for answer, _ in answers], target)


def build_reader(inputs: ModelInputs, size: int, dropout: float) -> Built:
    """Paragraph and question -> LSTM -> attention in both directions -> LSTM -> scores of the first
    and last token (batch, 2, time)."""
    drop = keras.layers.Dropout(dropout)
    encoder = bilstm(size)
    context, question = inputs.text("context"), inputs.text("question")
    # ELMo "at the output" is added before the attention, as in section 5.2.
    c, q = (
        inputs.at_output(text, drop(encoder(text.vectors, mask=text.mask)))
        for text in (context, question)
    )
    # w . [c; q; c * q] for each pair of tokens: (batch, time, question time)
    scaling = keras.layers.EinsumDense("btd,d->btd", (None, c.shape[-1]))
    scaling.supports_masking = True
    likeness = (
        keras.layers.Dense(1)(c)
        + ops.transpose(keras.layers.Dense(1)(q), (0, 2, 1))
        + ops.matmul(scaling(c), ops.transpose(q, (0, 2, 1)))
    )
    attended = ops.matmul(masked_softmax(likeness, question.mask[:, None, :]), q)
    strongest = ops.max(ops.where(question.mask[:, None, :], likeness, _FAR), axis=2)
    summary = ops.matmul(masked_softmax(strongest, context.mask)[:, None, :], c)  # (batch, 1, dim)
    hidden = keras.layers.concatenate([c, attended, c * attended, c * summary])
    hidden = keras.layers.Dense(2 * size, activation="relu")(drop(hidden))
    modelled = drop(bilstm(size)(hidden, mask=context.mask))
    both = keras.layers.Dense(2)(keras.layers.concatenate([hidden, modelled]))
    scores = ops.transpose(both, (0, 2, 1))  # (batch, time, 2) -> (batch, 2, time)
    scores = ops.where(context.mask[:, None, :], scores, _FAR)
    return Built(scores, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def decode(model: keras.Model, scores: np.ndarray, batch: Sequence[Example]) -> list[str]:
    """The answers: the text of the span with the highest sum of both scores."""
    first, last = scores[:, 0, :, np.newaxis], scores[:, 1, np.newaxis, :]
    time = scores.shape[-1]
    length = 1 + np.arange(time) - np.arange(time)[:, np.newaxis]  # (first, last)
    possible = (length >= 1) & (length <= LONGEST_ANSWER)
    best = np.where(possible, first + last, -np.inf).reshape(len(batch), -1).argmax(axis=1)
    answers = []
    for place, example in zip(best, batch, strict=True):
        begin, end = divmod(int(place), time)
        question: Question = example.gold
        answers.append(question.context[question.spans.begins[begin] : question.spans.ends[end]])
    return answers


def score(examples: Sequence[Example], predictions: Sequence[str]) -> Scores:
    """F1 and exact match, in per cent."""
    pairs = [
        (e.gold.answers, predicted) for e, predicted in zip(examples, predictions, strict=True)
    ]
    f1 = sum(max(word_f1(answer, predicted) for answer in answers) for answers, predicted in pairs)
    exact = sum(
        any(normalised(answer) == normalised(predicted) for answer in answers)
        for answers, predicted in pairs
    )
    return {"f1": 100 * f1 / len(pairs), "exact": 100 * exact / len(pairs)}


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles, with single spaces, as in SQuAD."""
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", plain).split())


def word_f1(answer: str, predicted: str) -> float:
    """F1 of the words of two answers."""
    expected, found = normalised(answer).split(), normalised(predicted).split()
    common = sum((Counter(expected) & Counter(found)).values())
    return 2 * common / (len(expected) + len(found)) if common else 0.0


if __name__ == "__main__":
    main()
