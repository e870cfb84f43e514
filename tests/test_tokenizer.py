"""Raw text to sentences of tokens: no letter is lost or split, in any script."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm import InputError, Tokenizer, tokenize
from bilm.data.tokenizer import tokenizer_for

# Text that is hard to split: letters, marks, joiners, quotes, digits and punctuation.
HINDI = "हिन्दी में लिखा, क्या? आएँगे। ज़रूर॥ डॉ. श्री १,०२४.५ क्\u200dष"
HEBREW = 'שָׁלוֹם עֲלֵיכֶם. צה״ל צה"ל בית־ספר ג׳ירפה „כן" \u200f'
GERMAN = unicodedata.normalize(
    "NFD", "Größer als am 3. Oktober: Übungen, z.B. „Füße“! Dr. Äö-Straße"
)
RUSSIAN = "За́мок и замо́к. А.С. Пушкин — 1799 г. «Да!» 5-й Ёж, об'єкт"
CHINESE = (
    "我们坐火车去北京。车票120.5元，你带iPad了吗？他说：“明天见！”……葛\U000e0100城スーパー㐂𠮷"
)
ENGLISH = "Mr. Hale's didn't; the U.S. isn't at 5 p.m. \"Why?\" he'd say. I've 1,024.50$ ’tis"
NOISE = (
    "tbe ~~ fi|e ﬁrst \x07\ufeff¬ a\u00adb x\u200by ½ ¨ \u0301z \u0301 ((] _very_ ..'"
    " \ufffd 👩‍👩‍👧❤️🇩🇪 c\u0327\u0301 \ud7a3"
)
FRENCH = "L'eau d’aujourd'hui, qu'il n'a-t-il l'«Europe» c'est-à-dire quelqu'un : l' jusqu'à 5 %"
ITALIAN = "Un'altra po' di l’egemonia dell'800 «nell'arte» 'c'era' DELL'UNIVERSITÀ, dov'è?"
TEXTS = [HINDI, HEBREW, GERMAN, RUSSIAN, CHINESE, ENGLISH, FRENCH, ITALIAN, NOISE]

ANY_TEXT = st.one_of(
    *(st.text(alphabet=sorted({*text, " ", "\n"}), max_size=60) for text in TEXTS),
    st.text(alphabet=sorted({*"".join(TEXTS)}), max_size=60),
    st.text(max_size=40),
)
TOKENIZERS = [
    Tokenizer("xx"), Tokenizer("en"), Tokenizer("de"), Tokenizer("hi"), Tokenizer("el"),
    Tokenizer("fr"), Tokenizer("it"), Tokenizer("ca"), Tokenizer("zh", "characters"),
    Tokenizer("km", "characters"), Tokenizer("xx", "residues"),
]  # fmt: skip


def visible(text):
    """Text in NFC without invisible characters."""
    text = re.sub(
        "[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]", "", text
    )
    return unicodedata.normalize("NFC", text.replace("\u200b", " "))


def without_space(text):
    return "".join(visible(text).split())


def is_mark(character):
    return unicodedata.category(character)[0] == "M"


def is_spaced(character):
    """Whether a character is a letter of a script with spaces between words."""
    unspaced = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER", "BOPOMOFO", "TAI")
    name = unicodedata.name(character, "")
    return character.isalpha() and not name.startswith((*unspaced, "NEW TAI", "HALFWIDTH"))


@given(ANY_TEXT, st.sampled_from(TOKENIZERS), st.sampled_from([None, "sentence", "wrapped"]))
def test_nothing_but_white_space_is_lost(text, tokenizer, lines):
    found = tokenize(text, tokenizer.language, method=tokenizer.method, lines=lines)
    assert "".join(token for tokens in found for token in tokens) == without_space(text)
    assert all(tokens for tokens in found)
    for token in (token for tokens in found for token in tokens):
        assert token.split() == [token]


@given(ANY_TEXT, st.sampled_from([*map(Tokenizer, ("xx", "de", "hi", "el"))]))
def test_no_word_is_split_and_no_mark_leaves_its_letter(text, tokenizer):
    tokens = tokenizer.tokens(text)
    for tokens_of_run in tokens_of_runs(text, tokens):
        for token, after in itertools.pairwise(tokens_of_run):
            assert not is_mark(after[0]), tokens
            last = [*itertools.dropwhile(is_mark, reversed(token)), "."][0]
            assert not (is_spaced(last) and is_spaced(after[0])), tokens


def tokens_of_runs(text, tokens):
    """The tokens of each run of text between white space."""
    waiting = iter(tokens)
    for run in visible(text).split():
        found = []
        while sum(map(len, found)) < len(run):
            found.append(next(waiting))
        assert "".join(found) == run
        yield found


@given(ANY_TEXT, st.sampled_from(TOKENIZERS))
def test_tokens_stay_as_they_are(text, tokenizer):
    tokens = tokenizer.tokens(text)
    assert tokenizer.tokens(" ".join(tokens)) == tokens


@given(ANY_TEXT, st.sampled_from(TOKENIZERS))
def test_spans_are_where_tokens_stand(text, tokenizer):
    spans, tokens = tokenizer.spans(text), tokenizer.tokens(text)
    assert [visible(text[start:end]) for start, end in spans] == tokens
    flat = [place for span in spans for place in span]
    assert flat == sorted(flat)


def test_spans_of_decomposed_text():
    decomposed = unicodedata.normalize("NFD", " Größe, 한국어 क़ isn't")
    spans = Tokenizer("en").spans(decomposed)
    assert [decomposed[start:end] for start, end in spans] == [
        unicodedata.normalize("NFD", token) for token in ("Größe", ",", "한국어", "क़", "is", "n't")
    ]
    assert spans[:2] == [(1, 7), (7, 8)]
    assert Tokenizer("ko").spans("!\u1161 가") == [(0, 1), (1, 2), (3, 4)]  # a vowel alone


@pytest.mark.slow
@pytest.mark.parametrize("method", ["jieba", "spacy"])
@given(data=st.data())
def test_other_tokenizers_lose_nothing_and_split_no_mark(method, data):
    pytest.importorskip(method)
    tokenizer = Tokenizer("zh" if method == "jieba" else "hi", method)
    text = data.draw(ANY_TEXT)
    tokens = tokenizer.tokens(text)
    assert "".join(tokens) == without_space(text)
    assert tokenizer.tokens(" ".join(tokens)) == tokens
    for found in tokens_of_runs(text, tokens):
        assert not any(is_mark(token[0]) for token in found[1:]), tokens


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "The cat's left-to-right key.", "The cat 's left-to-right key ."),
        ("en", "I CAN'T, she’d've won't", "I CA N'T , she ’d 've wo n't"),
        ("en", "'It's' O'Neill's rock'n'roll", "' It 's ' O'Neill 's rock'n'roll"),
        ("en", "It 's 12:30 , is n't it ?", "It 's 12:30 , is n't it ?"),
        ("en", "Use f(x, 1,024.5)! $5 50% #1", "Use f ( x , 1,024.5 ) ! $ 5 50 % # 1"),
        ("en", "See tf.keras... the U.S.A, e.g. J.R.", "See tf.keras ... the U.S.A , e.g. J.R."),
        ("en", "end.Then 2010-2011 COVID-19 -5", "end . Then 2010 - 2011 COVID-19 - 5"),
        ("en", "at http://a.com/x_y?z=1, b.c@d-e.org.", "at http://a.com/x_y?z=1 , b.c@d-e.org ."),
        ("en", "_very_ snake_case -- a—b", "_ very _ snake_case -- a — b"),
        ("xx", "l'eau aujourd’hui col·lecció", "l'eau aujourd’hui col·lecció"),
        ("fr", "L'eau qu’il d'aujourd'hui", "L' eau qu’ il d' aujourd'hui"),
        ("fr", "jusqu'à l'«Ex» quelqu'un", "jusqu' à l' « Ex » quelqu'un"),
        ("it", "l'egemonia dell’arte nell'800", "l' egemonia dell’ arte nell' 800"),
        ("it", "Un'altra DELL'UVA un po' .", "Un' altra DELL' UVA un po' ."),
        ("ca", "l'home s’ha col·lecció", "l' home s’ ha col·lecció"),
        ("xx", "co\u00adoperate ភាសា\u200bខ្មែរ \u202b\ufeffx", "cooperate ភាសា ខ្មែរ x"),
        ("is", "ko\ue8bfm \uf1acor.", "ko\ue8bfm \uf1acor ."),  # letters of private use
        ("hi", "हिन्दी में। क्यों?", "हिन्दी में । क्यों ?"),
        ("he", 'שָׁלוֹם, צה"ל ג׳ירפה "כן"', 'שָׁלוֹם , צה"ל ג׳ירפה " כן "'),
        ("ru", "за́мок, 5-й «Ёж»", "за́мок , 5-й « Ёж »"),
        ("fa", "می‌خواهم بروم؟", "می‌خواهم بروم ؟"),
        ("hy", "Ո՞վ է, ինչո՞ւ։", "Ո՞վ է , ինչո՞ւ ։"),
        ("en", "``Yes,'' said ''Al''", "`` Yes , '' said '' Al ''"),
        ("de", "Do\u0308rfer, Fu\u0308\u00dfe", "Dörfer , Füße"),
        ("xx", "中文naïve5月 👩‍👧👍🏽 🇩🇪🇫🇷", "中文 naïve5 月 👩‍👧 👍🏽 🇩🇪 🇫🇷"),
    ],
)
def test_tokens_by_the_rules(language, text, tokens):
    assert Tokenizer(language).tokens(text) == tokens.split()


def test_characters_as_tokens():
    tokenizer = Tokenizer("zh", "characters")
    assert tokenizer.name == "zh characters 2"
    assert tokenizer.tokens("车票共120.5元，你带iPad了吗？") == [
        *"车票共", "120.5", *"元，你带", "iPad", *"了吗？"
    ]  # fmt: skip
    assert Tokenizer("th", "characters").tokens("ชื่อ abc") == ["ชื่", "อ", "abc"]


def test_chinese_words():
    jieba = pytest.importorskip("jieba")
    tokenizer = Tokenizer("zh")
    assert tokenizer.name.startswith("zh jieba 0.")
    assert tokenizer.tokens("我们坐火车去北京。你带iPad了吗？") == (
        "我们 坐火车 去 北京 。 你 带 iPad 了 吗 ？".split()
    )
    # jieba finds the first word in its sentence, and splits it alone.
    text = "他们的词典里不多，这段话袭来，神名也在大津。"
    tokens = tokenizer.tokens(text)
    assert tokenizer.tokens(" ".join(tokens)) == tokens != jieba.lcut(text)
    # Traditional characters are not changed to simplified ones.
    assert "".join(tokenizer.tokens("漢語詞典")) == "漢語詞典"


@pytest.mark.slow
def test_the_rules_of_spacy():
    spacy = pytest.importorskip("spacy")
    tokenizer = Tokenizer("en", "spacy")
    assert tokenizer.name == f"en spacy {spacy.__version__}"
    assert tokenizer.tokens("Mr. Hale won't") == ["Mr.", "Hale", "wo", "n't"]
    with pytest.raises(InputError, match="language 'qqq': spaCy cannot tokenise it"):
        Tokenizer("qqq", "spacy")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", 'Mr. Hale left at 6.30.|"It won\'t rain," he said.|"Why?" he asked.|Did it?'),
        ("en", "He lives in the U.S. now.|She lives in the U.S.|They met at 5 p.m. in May."),
        ("en", "See J. R. Smith et al. (1999).|It was No. 5 of Acme Inc. in St. Louis.|The end"),
        ("en", "One.|Two!|Three? four.|Five... six?!|Seven"),
        ("en", 'I said "Go."|Then he went.|(He ran.)|So it goes.|25 follow'),
        ("en", "Mr . Hale left .|\" I see . \"|He left ."),
        ("de", "Am 3. Oktober kam Dr. Weiß an, z.B. hier.|Er sagte: „Ja.“|Im Jahr 1999.|Dann"),
        ("ru", "А. С. Пушкин родился в 1799 г.|Он писал.|— Да! — сказал он.|— Пойдём."),
        ("hi", "यह एक है।|डॉ. शर्मा आए।|क्या हुआ?|ठीक!"),
        ("he", "שָׁלוֹם עֲלֵיכֶם.|מה נשמע?|טוב."),
        ("ar", "مرحبا بك؟|نعم، شكرا.|حسنا"),
        ("ur", "یہ ایک ہے۔|وہ دو ہے۔"),
        ("hy", "Սա մեկն է։|Սա երկուսն է։"),
        ("bo", "ང་འགྲོ་གི་ཡིན།|ཁྱེད་རང་སླེབས་སོང་།"),
        ("bo", "ང་འགྲོ་གི་ཡིན། །|ཁྱེད་རང་སླེབས་སོང་། །|བཀྲ་ཤིས།། །"),
        ("am", "ይህ አንድ ነው።|ይህ ሁለት ነው።"),
        # No letter is a capital, although Unicode has capitals of Georgian.
        ("ka", "ეს ერთია.|„ეს ორია!“|ა. ჯანაშია ქ. თბილისში ცხოვრობდა.|რატომ?|3,5 კმ."),
        ("el", "Τι είναι;|Δεν ξέρω."),
        ("de", "Das gilt z. B. Hunden.|Er starb 44 v. Chr. in Rom, i. d. R. Sonntags.|Gut"),
        ("fr", "Il vécut en 50 av. J.-C. près de Rome.|M. Duval dort."),
        ("fr", "Voir l'art. 5 et la fig. 2.|Elle dit : «Oui.»|Il part."),
        ("es", "Vive en EE. UU. desde 1999.|Fue el siglo V a. C. en Roma, S. A. incluida.|Sí."),
        ("ca", "Va néixer l'any 40 a. C. a Roma.|Visc a l'av. Diagonal."),
        ("it", "Nacque nel 40 a. C. a Roma.|Lo dice l'art. 3 del codice.|E poi"),
        ("ru", "Это г. Москва и т. д.|В 1799 г.|Он жил в г. Твери в 1904-1905 гг.|Вот им. Кирова."),
        ("pl", "To ul. Długa i tzw. Nowa.|W 2008 r.|Jan wyjechał."),
        ("nl", "Het is mgr. Jansen.|,,Ik denk het.''|Dat is zo."),
        ("en", "See Eq. 4 and Fig. 2.|It is McDonald's.|Then we left.|Mr. Vitamin c. 5 v. Smith"),
    ],
)  # fmt: skip
def test_sentences(language, text):
    sentences = text.split("|")
    assert Tokenizer(language).sentences(" ".join(sentences)) == sentences


def test_sentences_without_space_between_them():
    tokenizer = Tokenizer("zh", "characters")
    sentences = ["我们去北京。", "你来了吗？！", "他说：“明天见！”", "“好。”", "他走了"]
    assert tokenizer.sentences("".join(sentences)) == sentences
    assert tokenizer.sentences('他说："好。"然后走了。"谁？"他问') == [
        '他说："好。"', "然后走了。", '"谁？"', "他问"
    ]  # fmt: skip


def test_a_tokenizer_by_its_name():
    for tokenizer in (Tokenizer("en"), Tokenizer("zh", "characters")):
        again = Tokenizer.from_name(tokenizer.name)
        assert again is not None and again.name == tokenizer.name
    assert Tokenizer.from_name("en rules 1") is None
    assert (Tokenizer("en").name, Tokenizer("fr").name) == ("en rules 2", "fr rules 3")
    assert Tokenizer.from_name("fr rules 2").tokens("l'eau") == ["l'eau"]
    for name in ("en rules 0", "moses", "", "en rules", "zz nothing 1"):
        assert Tokenizer.from_name(name) is None


def test_the_tokenizer_of_a_model():
    text = "It won't rain."
    by_language = ["It", "wo", "n't", "rain", "."]
    assert tokenizer_for("en rules 2")(text) == by_language
    assert tokenizer_for("en rules 2", "model")(text) == by_language
    assert tokenizer_for("en rules 2", "de")(text) == ["It", "won't", "rain", "."]
    assert tokenizer_for("xx residues 1")("MKV LA") == [*"MKVLA"]
    assert tokenizer_for(None)(text) == tokenizer_for("en rules 2", "spaces")(text) == text.split()
    assert tokenizer_for(None, lambda line: tuple(line.split("w")))(text.replace(" ", "")) == [
        "It", "on'train."
    ]  # fmt: skip
    with pytest.raises(InputError, match="The model's tokenizer, 'moses', is not available here"):
        tokenizer_for("moses")
    for choice in ("english", 7):
        with pytest.raises(InputError, match="must be"):
            tokenizer_for("en rules 2", choice)
    for result in ("text", ["It", ""], ["It won't"], [1], None):
        with pytest.raises(InputError, match="tokenizer must return a list of tokens"):
            tokenizer_for(None, lambda line: result)(text)  # noqa: B023


def test_a_tokenizer_whose_package_is_missing(monkeypatch):
    """It is not passed over: Chinese would be split at white space only."""
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(InputError, match="`pip install jieba` installs it"):
        Tokenizer.from_name("zh jieba 0.42.1")


@pytest.mark.parametrize(
    "part", ["a", "हि", "我", "a.", "A.", "a-", "'", "1,", "\u0301", "www.", '"', ". ", "1. ", "'s"]
)
def test_a_long_line(part):
    """A long line takes no longer than many short ones."""
    text = part * (100_000 // len(part))
    (tokens,) = tokenize(text, "en", lines="sentence")
    assert "".join(tokens) == without_space(text)
    assert without_space("".join(Tokenizer("en").sentences(text))) == without_space(text)


WRAPPED = """Mr. Hale left at 6.30 in the morning. "It won't
rain," he said; nobody believed him. Did it?

It rained for three days -- and the well-kept
garden stood under water!"""


def joined(sentences):
    return [" ".join(tokens) for tokens in sentences]


def test_line_kind_is_detected():
    wrapped = joined(tokenize(WRAPPED, "en"))
    assert wrapped == [
        "Mr . Hale left at 6.30 in the morning .",
        '" It wo n\'t rain , " he said ; nobody believed him .',
        "Did it ?",
        "It rained for three days -- and the well-kept garden stood under water !",
    ]
    paragraphs = "\n".join(" ".join(part.split()) for part in WRAPPED.split("\n\n"))
    assert joined(tokenize(paragraphs * 3, "en"))[:3] == wrapped[:3]
    # If each line is a sentence, punctuation within a line does not end it.
    sentences = ["Mr . Hale left . Then", "it rained", "and rained .", "He saw it .", "It ended ."]
    assert joined(tokenize("\n".join(sentences), "en")) == sentences


def test_line_kind_can_be_set():
    text = "One. Two\nthree. Four"
    assert joined(tokenize(text, "en", lines="sentence")) == ["One . Two", "three . Four"]
    assert joined(tokenize(text, "en", lines="paragraph")) == ["One .", "Two", "three .", "Four"]
    assert joined(tokenize(text, "en", lines="wrapped")) == ["One .", "Two three .", "Four"]
    with pytest.raises(InputError, match="lines must be one of None, 'sentence'"):
        tokenize(text, "en", lines="none")


def test_wrapped_chinese_is_joined_without_a_space():
    pytest.importorskip("jieba")
    assert joined(tokenize("我们坐火\n车去北京。\n", "zh", lines="wrapped")) == [
        "我们 坐火车 去 北京 。"
    ]
