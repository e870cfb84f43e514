"""A few labelled sentences for each task, which a model can learn from the words alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PARTS = ("train", "dev", "test")


def write_parts(folder: Path, ending: str, text: str) -> Path:
    """Write the same text as train, dev and test part."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        (folder / f"{part}{ending}").write_text(text, encoding="utf-8")
    return folder


def write_lines(folder: Path, lines: list[dict[str, Any]]) -> Path:
    return write_parts(folder, ".jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))


def entities(folder: Path) -> Path:
    sentences = [
        "Anna/B-PER Bell/I-PER lives/O in/O Rome/B-LOC",
        "in/O Rome/B-LOC ,/O Carl/B-PER sleeps/O",
        "Carl/B-PER lives/O in/O New/B-LOC York/I-LOC ./O",
        "Anna/B-PER sleeps/O",
    ]
    rows = (s.replace(" ", "\n").replace("/", "\t") for s in sentences)
    return write_parts(folder, ".tsv", "\n\n".join(rows) + "\n")


def roles(folder: Path) -> Path:
    def line(text: str, predicate: int, tags: str) -> dict[str, Any]:
        frame = {"predicate": predicate, "tags": tags.split()}
        return {"tokens": text.split(), "frames": [frame]}

    return write_lines(
        folder,
        [
            line("They saw it", 1, "B-ARG0 B-V B-ARG1"),
            line("Anna gave the cat milk", 1, "B-ARG0 B-V B-ARG2 I-ARG2 B-ARG1"),
            line("They sleep today", 1, "B-ARG0 B-V B-ARGM-TMP"),
            {"tokens": ["Hello"], "frames": []},
        ],
    )


def entailment(folder: Path) -> Path:
    pairs = [
        ("a man sleeps", "a man sleeps", "entailment"),
        ("a man sleeps", "nobody sleeps", "contradiction"),
        ("a man sleeps", "an old man", "neutral"),
        ("two dogs run", "two dogs run", "entailment"),
        ("two dogs run", "nobody runs", "contradiction"),
        ("two dogs run", "two old dogs", "neutral"),
    ]
    return write_lines(
        folder, [{"premise": p, "hypothesis": h, "label": label} for p, h, label in pairs]
    )


def sentiment(folder: Path) -> Path:
    lines = ["2\ta good film", "2\tgood , very good", "0\ta bad film", "0\tbad , very bad"]
    return write_parts(folder, ".tsv", "\n".join(lines) + "\n")


def questions(folder: Path) -> Path:
    contexts = [
        ("Anna lives in Rome, and Carl lives in Bonn.", [("Who lives in Bonn?", "Carl"),
                                                         ("Where is Anna?", "Rome")]),
        ("The cat ate two old mice.", [("What did it eat?", "two old mice")]),
    ]  # fmt: skip
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": question,
                    "question": question,
                    "answers": [{"text": answer, "answer_start": context.index(answer)}],
                }
                for question, answer in asked
            ],
        }
        for context, asked in contexts
    ]
    return write_parts(folder, ".json", json.dumps({"data": [{"paragraphs": paragraphs}]}))


def coreference(folder: Path) -> Path:
    texts = [
        ("Anna saw Beth when she left.", "she", "Anna", "TRUE", "Beth", "FALSE"),
        ("Carl met Dan before he slept.", "he", "Carl", "FALSE", "Dan", "TRUE"),
        ("Eve told Fay that her cat ran.", "her", "Eve", "FALSE", "Fay", "FALSE"),
    ]
    rows = ["ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"]
    for number, (text, pronoun, a, a_meant, b, b_meant) in enumerate(texts):
        at = text.index(f" {pronoun} ") + 1
        rows.append(
            f"x-{number}\t{text}\t{pronoun}\t{at}\t{a}\t{text.index(a)}\t{a_meant}\t{b}\t"
            f"{text.index(b)}\t{b_meant}\thttp://x"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("development", "validation", "test"):
        (folder / f"gap-{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def senses(folder: Path) -> Path:
    def line(text: str, at: int, lemma: str, key: str) -> dict[str, Any]:
        return {"tokens": text.split(), "senses": [[at, lemma, "NOUN", key]]}

    return write_lines(
        folder,
        [
            line("the bank lends money", 1, "bank", "bank%money"),
            line("a bank of the river", 1, "bank", "bank%river"),
            line("the bank of a river", 1, "bank", "bank%river"),
            line("two cats", 1, "cat", "cat%1"),
        ],
    )
