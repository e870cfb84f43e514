"""Warnings about text that is not tokenised, or not in the same way as a model's training text."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Sequence

from bilm.data.tokenized_text import read_record
from bilm.files.reading import matching_files

logger = logging.getLogger(__name__)

N_SENTENCES = 1000
"""Number of sentences in the sample."""

_MARK, _CLOSING = ",;:!?،؛؟۔।॥։՝።፣፤፥፦፧፨།༎，；！？、。", "\"'”’»)\\]』」》"
_ATTACHED = re.compile(rf"\w.*[{_MARK}][{_CLOSING}]*|.*\w\w\.[{_CLOSING}]*")
# A long word of a script without spaces between words: Chinese characters and hiragana; Thai, Lao,
# Burmese, Khmer.
_UNSPACED = re.compile(
    "(?:[\u3041-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][^\\s]*){9}"
    "|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{31}"
)
_MOST_TOKENS = 1000  # per line on average, unless they are characters or residues


def why_untokenized(sentences: Iterable[Sequence[str]]) -> str | None:
    """Why sentences (lists of tokens) do not look tokenised: words without spaces, punctuation
    attached to words, or complete documents as lines; None if they look tokenised."""
    sample = [tokens for tokens in itertools.islice(sentences, N_SENTENCES) if tokens]
    tokens = list(itertools.chain.from_iterable(sample))
    unspaced = list(filter(_UNSPACED.match, tokens))
    if len(unspaced) > 0.1 * len(tokens):
        return f"there are no spaces between words, as in {unspaced[0][:20]!r}"
    # A full stop within a line may belong to an abbreviation.
    ends = [line[-1] for line in sample]
    attached = [token for token in tokens if token[-1] != "." and _ATTACHED.fullmatch(token)]
    attached += [token for token in ends if token[-1] == "." and _ATTACHED.fullmatch(token)]
    if len(attached) > max(2, len(sample) / 3):
        return f"punctuation is attached to words, as in {attached[0][:20]!r}"
    if len(tokens) > _MOST_TOKENS * len(sample) and sum(map(len, tokens)) > 2 * len(tokens):
        return f"lines have {len(tokens) // len(sample):,} tokens on average"
    return None


def warn_if_untokenized(sentences: Iterable[Sequence[str]], source: object) -> bool:
    """Log a warning, and return True, if the first sentences (lists of tokens) do not look
    tokenised."""
    reason = why_untokenized(sentences)
    if reason is not None:
        logger.warning(
            "%s does not look tokenised: %s. `bilm tokenize` turns raw text into one sentence per "
            "line, with tokens separated by spaces",
            source,
            reason,
        )
    return reason is not None


class UntokenizedCheck:
    """Warns at most once about the first sentences that a model receives."""

    def __init__(self) -> None:
        self._sample: list[Sequence[str]] = []
        self._n_remaining = N_SENTENCES

    def add(self, tokens: Sequence[str]) -> None:
        """Add a sentence to the sample."""
        if self._n_remaining:
            self._sample.append(tokens)
            self._n_remaining -= 1
            if not self._n_remaining:
                self.finish()

    def finish(self) -> None:
        """Warn if the sentences since the last call do not look tokenised."""
        sample, self._sample = self._sample, []
        if sample and warn_if_untokenized(sample, "the text"):
            self._n_remaining = 0


def warn_if_other_tokenizer(text: str, tokenizer: str | None) -> None:
    """Log a warning if the record of a text, a file or a glob, names another tokenizer than the
    model's `tokenizer`."""
    name = read_record(matching_files(text))
    if name is not None and tokenizer is not None and name != tokenizer:
        logger.warning(
            "%s was tokenised by %r, but the training text of the model by %r: the results may be "
            "worse",
            text,
            name,
            tokenizer,
        )
