"""From raw text to sentences of tokens, in many scripts.

The built-in rules need no other package. They use Unicode categories instead of alphabets, so a
combining mark stays with its letter. Text is normalised to NFC; only white space and invisible
characters (`clean`) are dropped: joined, the tokens are the text.

Chinese words come from jieba; spaCy's rules for a language can replace the built-in rules. Both are
extras, imported when a tokenizer that uses them is created.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bilm.core.errors import (
    InputError,
    MissingPackageError,
    Rule,
    import_extra,
    one_of,
    require,
    shown,
)

ANY_LANGUAGE = "xx"
"""The code for any language with spaces between words."""

# Versions of the built-in rules, the latest one last. A rule that changes the tokens of a language
# adds a version to that language only. Abbreviations decide where sentences end, not what their
# tokens are.
_VERSIONS = dict.fromkeys(("ca", "fr", "it"), ("2", "3"))  # 3: elision
_FIRST_VERSIONS = ("2",)  # of other languages
# ISO 639-1 codes; ISO 639-2 codes of languages that have a shorter one; and lists of words in lower
# case, but for the capitalised words that start a sentence rather than continue a name (in the U.S.
# The ...). The dot of an abbreviation does not end a sentence. Some words are abbreviations only
# before a number; years, centuries and units may end a sentence after a number.
_LANGUAGES = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
_TWO_LETTERS, _LONG_CODES = frozenset(_LANGUAGES["codes"].split()), _LANGUAGES["long codes"]
_UNSPACED_LANGUAGES = frozenset(_LANGUAGES["unspaced"].split())
_LANGUAGE = Rule(
    "an ISO 639 code: two letters such as 'en' or 'zh', three letters for a language without such "
    "a code, or 'xx' for any language with spaces between words",
    lambda code: (
        isinstance(code, str)
        and (code in _TWO_LETTERS or re.fullmatch("[a-z]{3}", code) is not None)
        and code not in _LONG_CODES
    ),
)


class Tokenizer:
    """Splits raw text into sentences, and sentences into tokens.

    Args:
        language: ISO 639 code, such as "en", "zh" or "hi"; "xx" is any language with spaces between
            words. Abbreviations, ordinal numbers, Greek question marks, English contractions
            (do n't, Hale 's) and elision in Catalan, French and Italian (l' eau) depend on it.
            Languages outside `LANGUAGES_WITH_RULES` are split like
            "xx".
        method: None: "jieba" for Chinese and "rules" for other languages.
            "rules": words, numbers, addresses and punctuation marks.
            "characters": like "rules", but each character of a script without spaces between words
            (Chinese, Japanese, Thai, ...) is a token.
            "jieba": like "rules", with Chinese words by the package jieba.
            "residues": each letter is a token, for protein sequences.
            "spacy": the tokens of spaCy's blank pipeline for the language.
        version: version of the built-in rules or of the package; None: the latest rules, or the
            installed package.

    Attributes:
        name: language, method and version, such as "en rules 2". Tokenizers with the same name
            split a sentence into the same tokens.

    Raises:
        InputError: `language` or `method` is not one of the above, they conflict, the version is
            unknown, or a package is missing.
    """

    def __init__(
        self, language: str = ANY_LANGUAGE, method: str | None = None, version: str | None = None
    ) -> None:
        require(_LANGUAGE, language=language)
        if method is None:
            method = "jieba" if language == "zh" else "rules"
        require(one_of(tuple(_SPLITTERS)), method=method)
        if method == "jieba" and language != "zh":
            raise InputError(f"language must be 'zh' for method 'jieba', got {shown(language)}.")
        if method == "rules" and language in _UNSPACED_LANGUAGES:
            raise InputError(
                f"language {language!r} has no spaces between words: method must be 'characters', "
                "'spacy' or, for 'zh', 'jieba'."
            )
        self.language, self.method = language, method
        actual, self._split_once = _SPLITTERS[method](language, version)
        if version not in (None, actual):
            raise InputError(f"version of {language} {method} must be {actual}, got {version}.")
        self._split_cached = functools.lru_cache(2**16)(self._split)
        self.name = f"{language} {method} {actual}"

    @classmethod
    def from_name(cls, name: str) -> Tokenizer | None:
        """The tokenizer with this name; None if it is unknown or of another version.

        Raises:
            InputError: its package is not installed.
        """
        parts = name.split(" ")
        try:
            return cls(*parts) if len(parts) == 3 else None
        except MissingPackageError:
            raise
        except InputError:
            return None

    def tokens(self, sentence: str) -> list[str]:
        """The tokens of a sentence. Joined, they are its NFC form without white space and invisible
        characters; joined by spaces, they are split into the same tokens again.

        >>> Tokenizer("en").tokens("It won't cost $1,024.50, will it?")
        ['It', 'wo', "n't", 'cost', '$', '1,024.50', ',', 'will', 'it', '?']
        """
        tokens: list[str] = []
        for run in clean(sentence).split():
            tokens += self._split_run(run)
        return tokens

    def _split_run(self, run: str) -> list[str]:
        """The tokens of text without white space."""
        return (self._split_cached if len(run) <= _LONGEST_CACHED else self._split)(run)

    def _split(self, run: str) -> list[str]:
        """Split until each token stays as it is: jieba splits some of its words once more."""
        tokens = self._split_once(run)
        if len(tokens) < 2:
            return tokens
        return [part for token in tokens for part in self._split_run(token)]

    def spans(self, sentence: str) -> list[tuple[int, int]]:
        """Character offsets (start, end) in the sentence of each of `tokens(sentence)`.

        The sentence need not be in NFC. A combining mark belongs to the token of its letter.

        >>> Tokenizer("en").spans("It won't")
        [(0, 2), (3, 5), (5, 8)]
        """
        return token_spans(sentence, self.tokens(sentence))

    def sentences(self, paragraph: str) -> list[str]:
        """The sentences of a paragraph, cleaned (`clean`), without the white space between them.

        >>> Tokenizer("en").sentences("Mr. Hale left at 6.30. Did it rain?")
        ['Mr. Hale left at 6.30.', 'Did it rain?']
        """
        return split_sentences(clean(paragraph), self.language)


def token_spans(text: str, tokens: Iterable[str]) -> list[tuple[int, int]]:
    """Character offsets (start, end) in a text of the tokens that `Tokenizer` made of it."""
    # The span of each character of the tokens: NFC composes no characters across pieces.
    character_spans = [
        piece.span() for piece in _piece_pattern().finditer(text) for _ in clean(piece[0]).strip()
    ]
    bounds = itertools.accumulate(map(len, tokens), initial=0)
    return [
        (character_spans[start][0], character_spans[end - 1][1])
        for start, end in itertools.pairwise(bounds)
    ]


def tokenizer_for(
    recorded: str | None, choice: str | Callable[[str], Any] | None = None
) -> Callable[[str], list[str]]:
    """The function that splits a sentence, given as text, into the tokens of a model.

    Args:
        recorded: name of the tokenizer of the model's training text; None: not recorded.
        choice: None or "model": the recorded tokenizer, or white space if none is recorded;
            "spaces": white space; a language code: the default tokenizer of that language; or a
            function of a text that returns its tokens.

    Raises:
        InputError: the recorded tokenizer cannot be used here, or `choice` is none of the above.
            The returned function raises it if a caller's function does not return a list of
            tokens.
    """
    if choice is None or choice == "model":
        tokenizer = None if recorded is None else Tokenizer.from_name(recorded)
        if recorded is not None and tokenizer is None:
            raise InputError(
                f"The model's tokenizer, {recorded!r}, is not available here: choose 'spaces' for "
                "text with spaces between tokens, or a language code such as 'en'."
            )
        return str.split if tokenizer is None else tokenizer.tokens
    if choice == "spaces":
        return str.split
    if isinstance(choice, str):
        return Tokenizer(choice).tokens
    if not callable(choice):
        raise InputError(
            f"tokenizer must be 'model', 'spaces', a language code or a function, got "
            f"{shown(choice)}."
        )

    def split(text: str) -> list[str]:
        tokens = choice(text)
        is_list = isinstance(tokens, list | tuple) and all(isinstance(t, str) for t in tokens)
        if not is_list or " ".join(tokens).split() != list(tokens):
            raise InputError(
                f"tokenizer must return a list of tokens without white space, got {shown(tokens)} "
                f"for {shown(text)}."
            )
        return list(tokens)

    return split


# Characters

# Characters that show nothing: soft hyphens, marks of direction, word joiners, byte order marks.
# Joiners are not among them: Persian and Indian scripts, and emojis, need them.
_INVISIBLE = "\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
_find_invisible = re.compile(f"[{_INVISIBLE}]")


def clean(text: str) -> str:
    """Text in NFC, without invisible characters; zero-width spaces become spaces."""
    visible = _find_invisible.sub("", text).replace("\u200b", " ")
    return unicodedata.normalize("NFC", visible)


def count_invisible(text: str) -> int:
    """The number of characters that `clean` removes."""
    return len(_find_invisible.findall(text))


# Scripts without spaces between words: Chinese characters, and all others.
_HAN = ((0x3005, 0x3007), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF), (0x1A20, 0x1AAF),  # Tai Le, New Tai Lue, Tai Tham
    (0x3040, 0x312F), (0x31A0, 0x31FF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F),  # kana, bopomofo
)  # fmt: skip
# In addition to combining marks: joiners, skin tones, and the letters of flags.
_EXTENDING = ((0x200C, 0x200D), (0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F))


class _Classes(NamedTuple):
    """Classes of characters, as the content of brackets in a regular expression."""

    letter: str  # letters and digits of scripts with spaces between words; private use characters
    lower: str
    han: str  # letters of Chinese
    unspaced: str  # letters of the other scripts without spaces between words
    mark: str  # marks, which stay with the character before them
    format: str  # invisible characters, which belong to a word only inside it


@functools.cache
def _classes() -> _Classes:
    categories: dict[str, set[int]] = defaultdict(set)
    # The planes in between are empty.
    for code in itertools.chain(range(0x40000), range(0xE0000, 0xE0200)):
        categories[unicodedata.category(chr(code))].add(code)
    # Fonts for medieval texts have letters of private use.
    categories["L private"] = _codes(((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)))
    letters = set[int]().union(*(codes for name, codes in categories.items() if name[0] in "LN"))
    han = _codes(_HAN) & letters
    unspaced = (_codes(_UNSPACED) & letters) - categories["Nd"]
    extending = _codes(_EXTENDING)
    mark = extending | categories["Mn"] | categories["Mc"] | categories["Me"]
    classes = (
        letters - han - unspaced,
        categories["Ll"],
        han,
        unspaced,
        mark,
        categories["Cf"] - extending,
    )
    return _Classes(*map(_class, classes))


def _codes(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {code for first, last in ranges for code in range(first, last + 1)}


def _class(codes: Iterable[int]) -> str:
    """Code points as the content of brackets in a regular expression, in ranges."""
    # In a run of consecutive codes, code minus index is constant.
    runs = itertools.groupby(enumerate(sorted(codes)), lambda pair: pair[1] - pair[0])
    ranges = [[code for _, code in run] for _, run in runs]
    return "".join(rf"\U{run[0]:08x}-\U{run[-1]:08x}" for run in ranges)


@functools.cache
def is_unspaced(character: str) -> bool:
    """Whether a character is a letter of a script without spaces between words."""
    return re.match(f"[{_classes().han}{_classes().unspaced}]", character) is not None


@functools.cache
def _piece_pattern() -> re.Pattern[str]:
    """A character with the marks after it, or a Korean syllable with its letters."""
    mark = _classes().mark + _INVISIBLE
    korean = rf"[\u1100-\u11ff\uac00-\ud7a3][{mark}\u1160-\u11ff]*"
    return re.compile(rf"{korean}|\S[{mark}]*")


# Tokens

_CLITIC = "['’](?:s|re|ve|ll|d|m)"
_LAST_CLITIC = re.compile(rf"(?i)(?:n['’]t|{_CLITIC})$")


# Words that lose their last vowel before another one: l'eau, dell'arte.
_ELIDED = {
    "ca": "[dlmnst]",
    "fr": "[cdjlmnst]|(?:|jus|lors|puis|quoi)qu",
    "it": "[cdlmnstv]|un|gl|ch|po|(?:de|da|ne|a|su|co|que|be)ll|(?:de|da|ne|a|que)gl|quest|"
    "(?:nes|cias|qual|al|og|buo)[cs]?un|sant|grand|buon|mezz|senz|anch|com|cos|dov|quand|quant|"
    "tutt|nient|sott|(?:c|v|tr|quar|cinqu|sess|sett|ott|nov)[ae]nt",
}
_AFTER_ELISION = '[aeiouyhœæàáâäèéêëìíîïòóôöùúûü0-9«“„"(]'


@functools.cache
def _token_pattern(elision: str, characters: bool) -> re.Pattern[str]:
    """Matches the next token of NFC text; group 1 is a run of Chinese characters. `elision` is the
    language whose clitics (en) or elided words are tokens."""
    c = _classes()
    letter, mark, end = rf"[{c.letter}](?<!\d)", f"[{c.mark}]*", f"(?![{c.letter}{c.mark}@])"
    word = f"[{c.letter}][{c.letter}{c.mark}]*"
    # Characters that join two words into one: don't, left-hand, col·lecció, צה״ל, Ո՞վ, 1,024.5,
    # 12:30, tf.keras.
    joints = (
        rf"['’·‧_\u05f3\u05f4\u055b\u055c\u055e{c.format}]",
        r"(?<!\d)[-‐‑]|[-‐‑](?!\d)",
        rf"\.(?=[{c.lower}])",
        r"(?<=\d)[.,:٫٬](?=\d)",
        r"(?<=[\u0591-\u05ea])\"(?=[\u05d0-\u05ea])",
    )
    kinds = [
        f"([{c.han}][{c.mark}]*)" if characters else f"([{c.han}][{c.han}{c.mark}]*)",
        f"[{c.unspaced}]" if characters else f"[{c.unspaced}][{c.unspaced}{c.mark}]*",
        # URLs; they end in a letter or a slash, so that no word is cut.
        rf"(?:https?://|www\.)[^\s<>\"“”‘’«»{c.han}{c.unspaced}]*[{c.letter}/]{end}",
        rf"(?:{letter}{mark}\.){{2,9}}{end}",  # U.S.
        rf"(?:{letter}{mark}\.){{1,9}}{letter}{mark}{end}",  # U.S
        rf"{mark}{word}(?:(?:{'|'.join(joints)}){word})*(?:@{word}(?:[.-]{word})+)?",
        r"([.\-–—…=*~_#`])\2+|''+",  # also ``quotes''
        r"[\U0001f1e6-\U0001f1ff]{2}",  # flags
        # Any other character; joiners combine several emojis.
        rf"\S(?:{mark}(?<=\u200d)[^\s{c.letter}{c.han}{c.unspaced}])*",
    ]
    if elision == "en":
        kinds.insert(0, rf"(?<!\S)(?i:{_CLITIC})(?!\S)")  # in text that is already tokenised
    elif elision:
        elided = f"(?i:{_ELIDED[elision]})['’]"
        kinds.insert(0, rf"{elided}(?i:(?={_AFTER_ELISION}))|(?<!\S){elided}(?!\S)")
    return re.compile(f"(?:{'|'.join(kinds)}){mark}")


Split = Callable[[str], list[str]]
"""Splits text without white space into tokens."""

_LONGEST_CACHED = 40  # most characters of a run whose tokens are cached


def _by_rules(language: str, version: str | None, characters: bool = False) -> tuple[str, Split]:
    versions = _VERSIONS.get(language, _FIRST_VERSIONS)
    version = versions[-1] if version is None or version not in versions else version
    english = language == "en"
    has_elision = english or (language in _ELIDED and version != "2")
    pattern = _token_pattern(language if has_elision else "", characters)

    def split(run: str) -> list[str]:
        tokens = [match[0] for match in pattern.finditer(run)]
        if english and ("'" in run or "’" in run):
            return [part for token in tokens for part in _without_clitics(token)]
        return tokens

    return version, split


def _without_clitics(token: str) -> list[str]:
    """won't -> wo n't, Hale's -> Hale 's."""
    parts: list[str] = []
    end = len(token)
    while end > 1 and (match := _LAST_CLITIC.search(token, max(1, end - 3), end)):
        parts.append(match[0])
        end = match.start()
    return [token[:end], *reversed(parts)]


def _by_jieba(language: str, version: str | None) -> tuple[str, Split]:
    jieba = import_extra("jieba", "method 'jieba'")
    pattern = _token_pattern("", False)

    def split(run: str) -> list[str]:
        if not jieba.dt.initialized:
            _read_dictionary(jieba)
        tokens: list[str] = []
        for match in pattern.finditer(run):
            tokens += [match[0]] if match[1] is None else _with_marks(jieba.lcut(match[0]))
        return tokens

    return jieba.__version__, split


def _read_dictionary(jieba: Any) -> None:
    """Initialise jieba, which logs to standard error, in silence."""
    level = jieba.default_logger.level
    jieba.setLogLevel("ERROR")
    try:
        jieba.initialize()
    finally:
        jieba.setLogLevel(level)


def _by_spacy(language: str, version: str | None) -> tuple[str, Split]:
    spacy = import_extra("spacy", "method 'spacy'")
    try:
        pipeline = spacy.blank(language)
    except ImportError as error:  # an unknown language, or one that needs a package
        message = " ".join(str(error).split())
        raise InputError(f"language {language!r}: spaCy cannot tokenise it: {message}") from error

    def split(run: str) -> list[str]:
        with pipeline.memory_zone():  # new words are freed at its end
            return _with_marks([token.text for token in pipeline.make_doc(run)])

    return spacy.__version__, split


def _with_marks(parts: Iterable[str]) -> list[str]:
    """Consecutive parts of a text, with combining marks moved to the part of their letter."""
    is_mark = re.compile(f"[{_classes().mark}]").match
    tokens: list[str] = []
    for part in parts:
        if tokens and is_mark(part):
            tokens[-1] += part
        else:
            tokens.append(part)
    return tokens


_SPLITTERS: dict[str, Callable[[str, str | None], tuple[str, Split]]] = {
    "rules": _by_rules,
    "characters": functools.partial(_by_rules, characters=True),
    "jieba": _by_jieba,
    "spacy": _by_spacy,
    "residues": lambda language, version: ("1", list),
}


# Sentences

# Marks that end a sentence anywhere (most have Unicode's property Sentence_Terminal), and marks
# that end a sentence before white space.
_ALWAYS = "。！？｡؟۔։။།༎।॥፧።፨។៕᙮᠃᠉᱾᱿‼⁇⁈⁉‽⸮⸼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗܀܁܂߹࠷࠹࠽࠾᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼"
_BEFORE_SPACE = ".!?…．"
_MARKS = re.compile(f"[{_ALWAYS}{_BEFORE_SPACE}]+")
_GREEK_MARKS = re.compile(f"[{_ALWAYS}{_BEFORE_SPACE};]+")
# Whether a quote opens or closes depends on the language; after a mark and before white space all
# quotes close.
_ATTACHED = re.compile(r"[\"'’”“»«›‹」』）】》〉］｝)\]}*_]*(?=\s|$)")
_LAST_MARK = re.compile(rf"[{_ALWAYS}{_BEFORE_SPACE}]\s?[\"'’”“»«›‹」』）】》〉］｝)\]}}*_]*$")
_CLOSING = re.compile("[’”」』）】》〉］｝)]*")
_QUOTE = re.compile("\"|''|``|,,")
_STRAIGHT_QUOTE = re.compile(rf"(?:{_QUOTE.pattern})|\s*(?:{_QUOTE.pattern})(?=\s|$)")
_SHADS = re.compile(r"(?:\s*[\u0f0d-\u0f14])*")  # Tibetan writes two marks, with a space between
_OPENING = re.compile(r"\s*(?:(?:[\"'‘“”„‚«»‹›「『（【《〈(\[{¿¡*_#—–-]|,,)\s*)*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"(\w+)(.?)")
_INITIAL = re.compile(r"[^\W\d_]\.")
_AFTER_APOSTROPHE = re.compile(r"^\w+['’](?=\w\w)")  # dell'art.
_GEORGIAN = re.compile("[\u10d0-\u10ff]")

_ABBREVIATIONS = _LANGUAGES["abbreviations"]
_BEFORE_NUMBER = frozenset(_LANGUAGES["before numbers"].split())
_AFTER_NUMBER = frozenset(_LANGUAGES["after numbers"].split())
_VOWELS = frozenset("aeiouyаеёиоуыэюяіїєαεηιουω")  # of words with one letter
# Languages with a dot after ordinal numbers: am 3. Oktober.
_DOTTED_ORDINALS = frozenset(_LANGUAGES["dotted ordinals"].split())
LANGUAGES_WITH_RULES = tuple(
    sorted({*_ABBREVIATIONS, *_DOTTED_ORDINALS, "el"} - {ANY_LANGUAGE, "all"})
)
"""Languages with their own rules for abbreviations, ordinal numbers or marks."""
_STARTERS = frozenset(_LANGUAGES["starters"].split())


def split_sentences(paragraph: str, language: str = ANY_LANGUAGE) -> list[str]:
    """The sentences of a paragraph in NFC, without the white space around them."""
    text, start, sentences = paragraph.strip(), 0, []
    n_quotes = n_scanned = 0
    has_letter = False
    for marks in (_GREEK_MARKS if language == "el" else _MARKS).finditer(text):
        end = marks.end()
        attached = _ATTACHED.match(text, end)
        ends_anyway = any(mark in _ALWAYS for mark in marks[0])
        if attached is not None:
            end = attached.end()
        elif ends_anyway:
            end = _end_of(_CLOSING, text, end)
        else:
            continue  # within a word, or before a comma
        n_quotes += len(_QUOTE.findall(text, n_scanned, end))
        has_letter = has_letter or any(map(str.isalpha, text[n_scanned:end]))
        n_scanned = end
        if n_quotes % 2:  # the next quote closes
            end = _end_of(_STRAIGHT_QUOTE, text, end)
        if has_letter and (ends_anyway or _may_end(text, start, marks, end, language)):
            end = _end_of(_SHADS, text, end)
            sentences.append(text[start:end])
            start, has_letter = _end_of(_SPACE, text, end), False
    return [*sentences, text[start:]] if start < len(text) else sentences


def ends_sentence(line: str) -> bool:
    """Whether a line ends a sentence, possibly followed by quotes."""
    return _LAST_MARK.search(line) is not None


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return start if match is None else match.end()


def _may_end(text: str, start: int, marks: re.Match[str], end: int, language: str) -> bool:
    """Whether marks before white space end the sentence that starts at `start`."""
    following = _end_of(_OPENING, text, end)
    if following == len(text):
        return True
    first = text[following]
    if _is_lower(first) or not (first.isalnum() or unicodedata.category(first)[0] == "S"):
        return False
    words = text[max(start, marks.start() - 30) : marks.start()].split()
    if marks[0] != "." or not words:
        return True
    last = _AFTER_APOSTROPHE.sub("", words[-1].lstrip("([{\"'‘“„«¿¡*_—–-")).casefold()
    if last.isdecimal():
        return len(last) > 2 or language not in _DOTTED_ORDINALS
    if last in _BEFORE_NUMBER and first.isdecimal():
        return False
    parts = words[-1].split(".")
    is_letter = len(last) == 1 and last.isalpha()
    if is_letter and _INITIAL.match(text, following):  # a. C., z. B.
        return False
    before = words[-2] if len(words) > 1 else ""
    if (last in _AFTER_NUMBER and before[-1:].isdecimal()) or before == "т.":  # 1799 г., и т. д.
        return True
    is_initial = is_letter and not (_is_lower(words[-1]) and last in _VOWELS)
    is_dotted = len(parts) > 1 and all(part.isalpha() and len(part) <= 2 for part in parts)
    if not (is_initial or is_dotted or last in _abbreviations(language)):
        return True
    word = _WORD.match(text, following)
    return language == "en" and word is not None and word[1] in _STARTERS and word[2] != "."


def _is_lower(text: str) -> bool:
    """Whether text is in lower case. Georgian letters are not: they have capitals in Unicode, but
    no sentence begins with a capital."""
    return text.islower() and not _GEORGIAN.search(text)


@functools.cache
def _abbreviations(language: str) -> frozenset[str]:
    return frozenset(f"{_ABBREVIATIONS.get(language, '')} {_ABBREVIATIONS['all']}".split())
