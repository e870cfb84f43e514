"""How texts are tokenised: records, and the tokens of a model's texts.

The record of a text is a JSON file next to it, `NAME.tokenizer.json`, or `tokenizer.json` for the
texts of a folder: the tokenizer's name, and the size of each text in bytes, so that the record does
not apply to another text of the same name. `bilm shard` and `bilm train` copy the name, finally
into the model's options.
"""

import functools
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bilm.core.errors import InputError, shown
from bilm.data.tokenizer import Tokenizer, clean, split_sentences, tokenizer_for
from bilm.files.reading import (
    PLAIN,
    TOKENIZER_FILE,
    PathLike,
    Text,
    matching_files,
    read_json_object,
    require_path,
)
from bilm.files.writing import fill_json

logger = logging.getLogger(__name__)

# Records


def record_beside(path: PathLike) -> str:
    """The name of the record of one text."""
    return f"{require_path(path, 'a text file')}.{TOKENIZER_FILE}"


def write_record(path: PathLike, tokenizer: str, sizes: Mapping[str, int], **facts: str) -> None:
    """Write a record: the name of a tokenizer, the names and sizes (bytes) of its texts, and
    further facts."""
    fill_json(path, {"tokenizer": tokenizer, "bytes": dict(sizes), **facts})


def read_record(files: Iterable[PathLike]) -> str | None:
    """The name of the tokenizer of all texts; None if a record is missing, or names differ.

    A record without sizes (written by hand) applies to all texts of its folder. A `tokenizer.json`
    of another program is not a record.
    """
    read = functools.cache(read_json_object)  # a folder's record describes many texts
    names = {_recorded_tokenizer(os.fspath(file), read) for file in files}
    return names.pop() if len(names) == 1 else None


def _recorded_tokenizer(file: str, read: Callable[[str], dict[str, Any]]) -> str | None:
    folder, name = os.path.split(file)
    for path in (record_beside(file), os.path.join(folder, TOKENIZER_FILE)):
        if os.path.isfile(path):
            record = read(path)
            tokenizer, sizes = record.get("tokenizer"), record.get("bytes")
            if not isinstance(tokenizer, str):
                continue
            if not isinstance(sizes, dict) or sizes.get(name) == os.path.getsize(file):
                return tokenizer
    return None


# Tokens of a model's text


class TextTokens(NamedTuple):
    """How the lines of a text are split into the tokens of a model.

    A text in CoNLL-U or FASTA, or with a column, is read as it is.
    """

    recorded: str | None = None  # the tokenizer of the model's training text
    # See `tokenizer_for`. None: text that is tokenised like the model's is read as it is; otherwise
    # `split` raises an InputError, or logs a warning if the model has no record.
    choice: str | None = None
    column: int | None = None  # 1-based number of the column with the tokens; None: no columns

    def split(self, text: Text) -> tuple[Callable[[str], list[str]], Iterator[str]]:
        """The function that splits the sentences of a text, and the sentences."""
        sentences = text.sentences()
        if text.kind != PLAIN:
            if self.choice not in (None, "spaces"):
                raise InputError(f"{text.name} is {text.kind}, which needs no tokenizer.")
            return str.split, sentences
        if self.choice is not None and (self.recorded or self.choice != "model"):
            return tokenizer_for(self.recorded, self.choice), sentences
        is_file = os.path.isfile(text.name)
        if self.recorded is not None and is_file and read_record([text.name]) == self.recorded:
            return str.split, sentences
        sample = list(itertools.islice(sentences, N_SENTENCES))
        if self.recorded is None:
            warn_if_untokenized(map(str.split, sample), text.name)
        elif problem := _difference(sample, self.recorded):
            raise InputError(
                f"{text.name}{problem}. Choose --tokenizer model to tokenise it, or --tokenizer "
                "spaces to read it as it is."
            )
        return str.split, itertools.chain(sample, sentences)

    def read(self, text: Text) -> Iterator[list[str]]:
        """The tokens of each sentence of a text."""
        split, sentences = self.split(text)
        return map(split, sentences)

    def sentences(self, line: str, split: Callable[[str], list[str]]) -> list[list[str]]:
        """The tokens of each sentence of a line, with the function of `split`; where sentences end
        depends on the language of the tokenizer. Without a language, a line is a sentence."""
        tokens = split(line)
        language, _, method = (self.recorded or "").partition(" ")
        if self.choice not in (None, "model"):
            language = "" if self.choice == "spaces" else self.choice
        elif not method or method.startswith("residues"):
            language = ""
        if not (language and tokens):
            return [tokens] if tokens else []
        text = line if split is str.split else clean(line)
        sentences = [*filter(None, map(split, split_sentences(text, language)))]
        # A mark within a token of the text does not end a sentence.
        joined = [token for sentence in sentences for token in sentence]
        return [tokens] if split is str.split and joined != tokens else sentences


_LEAST_EQUAL = 0.98  # proportion of the lines that the tokenizer must leave as they are


def _difference(lines: Sequence[str], recorded: str) -> str | None:
    """Where lines are not tokenised as by a model's tokenizer, to follow their name; None if they
    are. Without the tokenizer, lines must look tokenised."""
    tokenizer = Tokenizer.from_name(recorded)
    if tokenizer is None:
        reason = why_untokenized(map(str.split, lines))
        return reason and f" is not tokenised like the text of the model: {reason}"
    n_lines, different = 0, list[tuple[int, str]]()
    for number, line in enumerate(lines, start=1):
        n_lines += bool(line.strip())
        words = line.split()
        if tokenizer.tokens(line) != words:
            word = next(word for word in words if tokenizer.tokens(word) != [word])
            different.append((number, word))
    if len(different) <= (1 - _LEAST_EQUAL) * n_lines:
        return None
    number, word = different[0]
    tokens = tokenizer.tokens(word)
    parts = " ".join([*map(shown, tokens[:8]), *["..."] * (len(tokens) > 8)]) or "nothing"
    return (
        f", line {number} is not tokenised like the text of the model: {shown(word)} would be "
        f"{parts}"
    )


N_SENTENCES = 1000
"""Number of sentences in the sample."""

_MARK, _CLOSING = ",;:!?،؛؟۔।॥։՝።፣፤፥፦፧፨།༎，；！？、。", "\"'”’»)\\]』」》"
_ATTACHED = re.compile(rf"\w.*[{_MARK}][{_CLOSING}]*|.*\w\w\.[{_CLOSING}]*")
# A long word of a script without spaces between words: Chinese characters and kana (words of
# katakana alone may be longer); Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile(
    "(?![\u30a0-\u30ff]{1,11}(?![\u30a0-\u30ff\u3041-\u309f\u3400-\u9fff]))"
    "(?:[\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][^\\s]*){9}"
    "|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{15}"
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


def warn_if_other_tokenizer(text: str, tokenizer: str | None) -> None:
    """Log a warning if the record of a text, a file or a glob, names another tokenizer than the
    model's `tokenizer`."""
    name = read_record(matching_files(text))
    if name is not None and tokenizer is not None and name != tokenizer:
        logger.warning(
            "%s was tokenised by %r, but the training text of the model by %r: the results may be "
            "worse", text, name, tokenizer,
        )  # fmt: skip
