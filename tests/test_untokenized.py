"""Text that is not tokenised causes a warning, and tokenised text of any kind does not."""

from __future__ import annotations

import logging
import random

import pytest

from bilm.cli import main
from bilm.data import count_words, shard_corpus
from bilm.data.untokenized import why_untokenized

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
        CHINESE,
        [" ".join(line.replace(" ", "")) for line in CHINESE],
        PROTEINS,
        [" ".join(f"word{k} ." for k in range(20))],
        ["http://a.com/b/ see : it , works ; well"] * 9,
        ["", "   "],
        [],
    ],
    ids=["english", "lower", "no_marks", "old", "hindi", "armenian",
         "amharic", "tibetan", "japanese", "chinese_words",
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
