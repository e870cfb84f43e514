"""Initial states for models that were not trained to start from zeros.

With `reset_rate` 0, as in the original program, a network sees LSTM states of zero once per row of
its batches in training, yet in use every text starts from them. Such a model can start instead from
the mean of the states that it has while reading some text. They are computed once, are the same for
every sentence, and depend on that text alone.
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
"""Words that are read. A shorter text is read over and over."""


def read_text(text: WarmUpText) -> list[list[str]]:
    """The sentences of a warm-up: the first `N_WORDS` words of a text, or all of it repeatedly."""
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
        raise InputError(f"warm_up: {name}: no word to read.")
    return sentences * -(-N_WORDS // n_words)
