"""Text that is not tokenised causes a warning, and tokenised text of any kind does not."""

from __future__ import annotations

import itertools
import logging
import random
from pathlib import Path

import pytest

from bilm import InputError
from bilm.cli import main
from bilm.data import count_words, shard_corpus
from bilm.data.sentences import TextTokens, why_untokenized, write_record
from bilm.data.tokenizer import tokenizer_for
from bilm.files.reading import open_text

ENGLISH = [
    "Mr. Hale left at 6.30 , though it rained .",
    '" Did Mrs. Hale see him ? " asked the U.S. consul , Smith & Co. of No. 5 .',
    "The firm -LRB- est. 1901 -RRB- paid $ 1,024.50 ; Yahoo! paid nothing .",
]
RAW_ENGLISH = [
    "Mr. Hale left at 6.30, though it rained.",
    '"Did Mrs. Hale see him?" asked the U.S. consul, Smith & Co. of No. 5.',
    "The firm (est. 1901) paid $1,024.50; Yahoo! paid nothing.",
]
CHINESE = ["我们 喜欢 吃 苹果 ， 他 不 喜欢 。", "中华人民共和国 成立 于 1949 年 。"]
draw = random.Random(1)
PROTEINS = [" ".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=3000)) for _ in range(5)]


def split(lines):
    return [line.split() for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        ENGLISH,
        [line.lower() for line in ENGLISH],
        ["the cat sat on the mat", "no marks at all"] * 50,
        ["Whan that Aprill , with his shoures soote / The droghte of March &c. hath perced ."] * 9,
        ["वह घर गया ।", "क्या तुम आओगे ?", "हाँ , मैं आऊँगा ।"],
        ["Ո՞վ է ։ Նա ասաց ՝ սա երկուսն է ։"] * 9,
        ["ሰላም ፣ ይህ ሁለት ነው ።"] * 9,
        ["བོད ་ ཀྱི ་ སྐད ་ ཡིག ་ ནི །"] * 9,
        ["哎 ， コミュニケーション は 大切 です 。"],
        ["エンターテインメント と プロフェッショナル 。"],
        ["มหาวิทยาลัย ใน ประเทศ ไทย มี นักศึกษา จำนวน มาก", "ប្រទេស កម្ពុជា"],
        CHINESE,
        [" ".join(line.replace(" ", "")) for line in CHINESE],
        PROTEINS,
        [" ".join(f"word{k} ." for k in range(20))],
        ["http://a.com/b/ see : it , works ; well"] * 9,
        ["", "   "],
        [],
    ],
    ids=["english", "lower", "no_marks", "old", "hindi", "armenian",
         "amharic", "tibetan", "japanese", "katakana", "thai", "chinese_words",
         "chinese_characters", "proteins", "paragraph", "address", "empty_lines", "nothing"],
)  # fmt: skip
def test_tokenised_text(lines):
    assert why_untokenized(split(lines)) is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (RAW_ENGLISH, "punctuation is attached to words, as in '6.30,'"),
        (["They saw it.", "It ran.", "He did not see it."],
         "punctuation is attached to words, as in 'it.'"),
        (["वह घर गया।", "क्या तुम आओगे?", "हाँ, मैं आऊँगा।"],
         "punctuation is attached to words, as in 'गया।'"),
        (["Սա մեկն է։", "Նա ասաց՝ սա երկուսն է։", "Ո՞վ է։"],
         "punctuation is attached to words, as in 'է։'"),
        (["ይህ አንድ ነው።", "ሰላም፣ ይህ ሁለት ነው።", "ደህና ነኝ።"],
         "punctuation is attached to words, as in 'ነው።'"),
        (["ང་འགྲོ་གི་ཡིན།", "སྐད་ཡིག་ནི། བོད་ཡིན།", "བཀྲ་ཤིས།"],
         "punctuation is attached to words, as in 'ང་འགྲོ་གི་ཡིན།'"),
        (["یہ ایک ہے۔", "وہ دو ہے۔", "وہ تین ہے۔"],
         "punctuation is attached to words, as in 'ہے۔'"),
        ([line.replace(" ", "") for line in CHINESE],
         "there are no spaces between words, as in '我们喜欢吃苹果，他不喜欢。'"),
        (["我们喜欢吃苹果但是， 他不喜欢。"],
         "there are no spaces between words, as in '我们喜欢吃苹果但是，'"),
        (["ประเทศไทยมีประชากรประมาณหกสิบหกล้านคน"],
         "there are no spaces between words, as in 'ประเทศไทยมีประชากรปร'"),
        (["ខ្ញុំចូលចិត្តអានសៀវភៅ", "ថ្ងៃនេះអាកាសធាតុល្អណាស់"],
         "there are no spaces between words, as in 'ខ្ញុំចូលចិត្តអានសៀវភ'"),
        (["ကျွန်တော်စာအုပ်ဖတ်ရတာကြိုက်တယ်။"],
         "there are no spaces between words, as in 'ကျွန်တော်စာအုပ်ဖတ်ရတ'"),
        (["ຂ້ອຍມັກອ່ານປຶ້ມຢູ່ເຮືອນ"], "there are no spaces between words, as in 'ຂ້ອຍມັກອ່ານປຶ້ມຢູ່ເຮ'"),
        (["テレビでニュースを見ました。", "コンピューターを買いたいです。"],
         "there are no spaces between words, as in 'テレビでニュースを見ました。'"),
        ([" ".join(f"word{k % 99}" for k in range(5000))], "lines have 5,000 tokens on average"),
    ],
)  # fmt: skip
def test_raw_text(lines, reason):
    assert why_untokenized(split(lines)) == reason


def warnings(caplog):
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return said


def test_one_warning_where_text_enters(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.txt").write_text("\n".join(RAW_ENGLISH * 9), encoding="utf-8")
    (tmp_path / "good.txt").write_text("\n".join(ENGLISH * 9), encoding="utf-8")
    message = "raw.txt does not look tokenised: punctuation is attached to words, as in '6.30,'"
    for name, expected in (("raw.txt", [message]), ("good.txt", [])):
        assert main(["vocab", name, "--out", f"{name}.vocab"]) == 0
        assert [line.partition(". ")[0] for line in warnings(caplog)] == expected
        shard_corpus(name, tmp_path / f"{name}.shards")
        assert [line.partition(". ")[0] for line in warnings(caplog)] == expected
    count_words("raw.txt")
    assert warnings(caplog) == []


RAW = ["The cat sees it.", "", "A dog."]
TOKENISED = ["The cat sees it .", "", "A dog ."]


def tokens_of(lines, *arguments, name="a.txt"):
    """The sentences of a text for a model, of a record, a choice and a column."""
    Path(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    with open_text(name) as text:
        return [" ".join(tokens) for tokens in TextTokens(*arguments).read(text)]


def test_the_text_of_a_model(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    for record in ("en rules 2", "CoNLL-U"):
        assert tokens_of(TOKENISED, record) == tokens_of(TOKENISED, record, "spaces") == TOKENISED
    assert tokens_of(RAW, "en rules 2", "model") == tokens_of(RAW, None, "en") == TOKENISED
    assert tokens_of(RAW, "en rules 2", "spaces") == RAW
    message = (
        r"a\.txt, line 1 is not tokenised like the text of the model: 'it\.' would be 'it' '\.'"
    )
    with pytest.raises(InputError, match=rf"{message}\. Choose --tokenizer model to tokenise it"):
        tokens_of(RAW, "en rules 2")
    with pytest.raises(
        InputError, match=r"line 100 is not tokenised.*: 'cafe\u0301' would be 'café'"
    ):
        tokens_of([*["The cat ."] * 99, *["a cafe\u0301"] * 3], "en rules 2")
    # Two lines of a hundred may differ.
    lines = [*["The cat ."] * 98, *["a cafe\u0301"] * 2]
    assert tokens_of(lines, "en rules 2") == lines
    # A text with the record of the model's tokenizer is not checked.
    write_record("b.txt.tokenizer.json", "en rules 2", {"b.txt": 23})
    assert tokens_of([*RAW[:1], "x y z"], "en rules 2", name="b.txt") == [
        "The cat sees it.",
        "x y z",
    ]
    with pytest.raises(InputError, match=r"is not tokenised like .* punctuation is attached"):
        tokens_of(RAW * 3, "CoNLL-U")
    assert warnings(caplog) == []
    assert tokens_of(RAW * 3, None) == tokens_of(RAW * 3, None, "model") == RAW * 3
    (warning,) = {*warnings(caplog)}
    assert warning.startswith("a.txt does not look tokenised: punctuation is attached to words")


@pytest.mark.parametrize(
    ("record", "raw", "tokens"),
    [
        ("zh characters 2", "今天天气真好", "今 天 天 气 真 好"),
        ("xx residues 1", "MKVLA", "M K V L A"),
        ("fr rules 3", "l'eau", "l' eau"),
    ],
)
def test_text_of_other_tokenizers(record, raw, tokens, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"line 1 is not .*'{raw}'|\"{raw}\" would be"):
        tokens_of([raw], record)
    assert tokens_of([raw], record, "model") == tokens_of([tokens], record) == [tokens]


def test_sentences_of_a_line():
    line = "It ran. Mr. Hale saw it. He left"
    tokens = TextTokens("en rules 2")
    split = [["It", "ran", "."], ["Mr", ".", "Hale", "saw", "it", "."], ["He", "left"]]
    assert tokens.sentences(line, tokenizer_for("en rules 2")) == split
    tokenised = " ".join(itertools.chain(*split))
    assert tokens.sentences(tokenised, str.split) == split
    for whole in (TextTokens(None), TextTokens("en rules 2", "spaces"), TextTokens("moses")):
        assert whole.sentences(line, str.split) == [line.split()]
    assert TextTokens("xx residues 1").sentences("MK. V", list) == [list("MK. V")]
    assert tokens.sentences("他说。好 。", str.split) == [["他说。好", "。"]]
    assert tokens.sentences("", str.split) == []


@pytest.mark.eager
def test_a_model_warns_once(published, caplog):
    raw = ["The cat sees it.", "A dog, a bird.", "They see, it ran."]
    published.model.encode(ENGLISH)
    assert warnings(caplog) == []
    published.model.encode(raw)
    [warning] = warnings(caplog)
    assert warning.startswith("the text does not look tokenised: punctuation is attached to words")
    published.model.encode(raw)
    assert warnings(caplog) == []


@pytest.mark.eager
def test_training_warns(text, tmp_path, capsys):
    lines = ["The cat, the dog.", "A small cat, the old dog."] * 4
    (tmp_path / "train-0.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "train-1.txt").unlink()
    arguments = ["train", "--save_dir", str(tmp_path / "m"), "--vocab_file", text.vocabulary]
    arguments += ["--train_prefix", text.training, "--options_file", text.options]
    assert main(arguments) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    untokenized, unknown = said
    assert f"warning: {tmp_path / 'train-0.txt'} does not look tokenised" in untokenized
    assert "warning: 60% of the tokens of the training text are outside the voc" in unknown
