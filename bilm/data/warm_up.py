"""Initial states for models that were not trained to start from zeros.

With `reset_rate` 0, as in the original program, training starts from zero states only once per row,
but in use every text starts from them. Instead, such a model can start from the mean of its states
after reading a warm-up text. They are computed once and are the same for every sentence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from bilm.core.errors import InputError
from bilm.data.sentences import as_tokens, require_sentences
from bilm.files.reading import PathLike, read_lines

# A file with one sentence per line, or sentences: text that is split on white space, or tokens.
WarmUpText = PathLike | Iterable[str | Sequence[str]]

N_WORDS = 2048
"""Number of words to read; a shorter text is repeated."""


def read_text(text: WarmUpText) -> list[list[str]]:
    """The sentences of a warm-up: the first `N_WORDS` words of a text, which is repeated if it is
    shorter."""
    is_file = isinstance(text, str | os.PathLike)
    if not is_file:
        require_sentences(text)
    sentences: list[list[str]] = []
    n_words = 0
    for number, sentence in enumerate(read_lines(text) if is_file else text):  # type: ignore[arg-type]
        tokens = as_tokens(sentence, f"warm_up: sentence {number}")
        if tokens:
            sentences.append(tokens)
            n_words += len(tokens)
        if n_words >= N_WORDS:
            break
    if not sentences:
        name = os.fspath(text) if is_file else "the sentences"  # type: ignore[arg-type]
        raise InputError(f"warm_up: {name} must hold a word, got none.")
    return sentences * -(-N_WORDS // n_words)
