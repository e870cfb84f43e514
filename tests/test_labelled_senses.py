"""The labelled senses of usage_examples have as many sentences of each sense in both halves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bilm.analysis import read_labelled_uses

FOLDER = Path(__file__).parent.parent / "usage_examples" / "labelled_senses"


@pytest.mark.parametrize(("language", "n_words"), [("english", 6), ("chinese", 4)])
def test_senses_are_balanced(language, n_words):
    seen = set()
    for part in ("train", "test"):
        sample = read_labelled_uses(FOLDER / f"{language}-{part}.txt")
        words = [sample.sentences[line][position] for line, position in sample.positions]
        senses = Counter(zip(words, sample.labels, strict=True))
        assert len(senses) == 2 * n_words and set(senses.values()) == {6}
        assert len(set(words)) == n_words and not seen & set(sample.sentences)
        seen |= set(sample.sentences)
