"""Warnings about text that is not tokenised, or not as the training text of a model was."""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from bilm.core.errors import shown
from bilm.data.tokenized_text import read_record
from bilm.data.tokenizer import Tokenizer
from bilm.files.reading import PathLike

logger = logging.getLogger(__name__)

N_SENTENCES = 1000
"""Number of sentences in the sample."""

# Marks that are separate tokens in tokenised text; a full stop may belong to an abbreviation.
_MARK, _CLOSING = ",;!?،؛؟।॥，；！？、。", "\"'”’»)\\]』」》"
_GLUED = re.compile(rf"\w.*[{_MARK}][{_CLOSING}]*")
_ALONE = re.compile(rf"[{_MARK}.…]+")
_GLUED_STOP = re.compile(rf".*\w\w\.[{_CLOSING}]*")
_ENDS = re.compile("[.!?。！？।]"), re.compile(rf".*\w\w[.!?。！？।][{_CLOSING}]*")
# Scripts without spaces between words, and the characters of their longest common words: Chinese
# characters and hiragana; Thai, Lao, Burmese, Khmer.
_UNSPACED = (
    (re.compile("[\u3041-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"), 8),
    (re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"), 30),
)


def why_untokenized(sentences: Iterable[Sequence[str]]) -> str | None:
    """Why sentences (lists of tokens) do not look tokenised; None if they do."""
    sample = [s for s in itertools.islice(sentences, N_SENTENCES) if s]
    tokens = list(itertools.chain.from_iterable(sample))
    if not tokens:
        return None
    return (
        _words_without_spaces(tokens)
        or _glued_punctuation(sample, tokens)
        or _long_lines(sample, tokens)
        or _no_words(tokens)
    )


def _words_without_spaces(tokens: Sequence[str]) -> str | None:
    for script, longest in _UNSPACED:
        lengths = [(len(script.findall(token)), token) for token in tokens]
        n_tokens = sum(length > 0 for length, _ in lengths)
        long = [token for length, token in lengths if length > longest]
        if long and len(long) >= 0.1 * n_tokens:
            return f"there are no spaces between words ({_quoted(long[:1])})"
    return None


def _glued_punctuation(sample: Sequence[Sequence[str]], tokens: Sequence[str]) -> str | None:
    glued = [token for token in tokens if _GLUED.fullmatch(token)]
    glued += [s[-1] for s in sample if _GLUED_STOP.fullmatch(s[-1])]
    n_alone = sum(_ALONE.fullmatch(token) is not None for token in tokens)
    if len(glued) >= max(3, 0.01 * len(tokens)) and len(glued) > n_alone:
        return f"punctuation is attached to words ({_quoted(glued[:2])})"
    return None


def _long_lines(sample: Sequence[Sequence[str]], tokens: Sequence[str]) -> str | None:
    # Attached full stops may be abbreviations, so they count only if no full stop is separate.
    n_alone, n_attached = (sum(map(bool, map(end.fullmatch, tokens))) for end in _ENDS)
    n_ends = n_alone or n_attached
    if n_ends > 20 * len(sample):
        return f"lines have about {n_ends // len(sample):,} sentences on average"
    # Lines of single characters or residues may be long.
    per_line, size = len(tokens) // len(sample), sum(map(len, tokens)) / len(tokens)
    if per_line > 2000 and size > 2:
        return f"lines have {per_line:,} tokens on average"
    return None


def _no_words(tokens: Sequence[str]) -> str | None:
    size = sum(map(len, tokens)) / len(tokens)
    if size > 30:
        return f"tokens have {size:,.0f} characters on average"
    if len(tokens) >= 2000 and len(set(tokens)) > 0.9 * len(tokens):
        return f"of the first {len(tokens):,} tokens {len(set(tokens)):,} are different"
    return None


def _quoted(tokens: Sequence[str]) -> str:
    return ", ".join(repr(token if len(token) <= 20 else f"{token[:20]}...") for token in tokens)


def warn_if_untokenized(
    sentences: Iterable[Sequence[str]], source: object, tokenizer: str | None = None
) -> bool:
    """Log a warning if the first sentences (lists of tokens) do not look tokenised, and return
    whether it was logged; `tokenizer` is the name of the expected tokenizer, if known."""
    sentences = list(itertools.islice(sentences, N_SENTENCES))
    warning = tokenizer and tokenization_warning(tokenizer, sentences)
    reason = None if warning else why_untokenized(sentences)
    if warning:
        logger.warning("%s: %s", source, warning)
    elif reason:
        logger.warning(
            "%s does not look tokenised: %s. `bilm tokenize` turns raw text into one sentence per "
            "line, with tokens separated by spaces",
            source,
            reason,
        )
    return bool(warning or reason)


class UntokenizedCheck:
    """Warns at most once, over all calls, about the first sentences that a model is given;
    `tokenizer` is the name of its training text's tokenizer, if known."""

    def __init__(self, tokenizer: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._sample: list[Sequence[str]] = []
        self._n_left = N_SENTENCES

    def add(self, tokens: Sequence[str]) -> None:
        """Look at a sentence, if there were not enough yet."""
        if self._n_left:
            self._sample.append(tokens)
            self._n_left -= 1
            if not self._n_left:
                self.finish()

    def finish(self) -> None:
        """Warn if the sentences since the last call do not look tokenised."""
        sample, self._sample = self._sample, []
        if sample and warn_if_untokenized(sample, "the text", self._tokenizer):
            self._n_left = 0


# Text that was tokenised differently


def warn_if_other_tokenizer(path: PathLike, tokenizer: str | None) -> None:
    """Log a warning if a text's record names another tokenizer than the model's `tokenizer`."""
    name = read_record([path])
    if name is not None and tokenizer is not None and name != tokenizer:
        logger.warning(
            "%s was tokenised by %r, but the training text of the model by %r: the vectors may be "
            "worse",
            path,
            name,
            tokenizer,
        )


# Tokens in the sample, and the proportion of them that the tokenizer may split.
_SAMPLE, _SPLIT = 2000, 0.02


def tokenization_warning(name: str, sentences: Iterable[Sequence[str]]) -> str | None:
    """A warning if text does not look like the output of the tokenizer with this name, which does
    not split its own tokens; None if it does, or if the tokenizer is not installed."""
    tokenizer = Tokenizer.from_name(name)
    if tokenizer is None:
        return None
    sample = list(itertools.islice(itertools.chain.from_iterable(sentences), _SAMPLE))
    split = {token: tokenizer.tokens(token) for token in set(sample)}
    counts = Counter(token for token in sample if split[token] != [token])
    if counts.total() <= _SPLIT * len(sample):
        return None
    token = counts.most_common(1)[0][0]
    return (
        f"{counts.total():,} of {len(sample):,} tokens do not look like those of the model's "
        f"tokenizer ({name}), which would split {shown(token)} into "
        f"{shown(' '.join(split[token]))}. `bilm tokenize --language {tokenizer.language} --method "
        f"{tokenizer.method}` splits text in the same way"
    )
