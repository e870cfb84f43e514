"""The example programs run, with the same results as direct calls of the library."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf

from bilm import ELMo
from tests.small_models import write_small_model

ROOT = Path(__file__).parent.parent
CONLLU = Path(__file__).parent / "fixtures" / "conllu"


def example(name: str) -> ModuleType:
    """An example program, imported as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "usage_examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed_shapes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_usage_character(capsys):
    program = example("usage_character")
    program.main([])
    assert printed_shapes(capsys) == [
        "context (2, 9, 24)",
        "question (1, 6, 24)",
        "context_output (2, 9, 24)",
    ]
    vectors = program.embed(program.MODEL / "options.json", program.MODEL / "weights.hdf5")
    # The mixes are untrained and therefore equal; the second sentence is one token shorter.
    np.testing.assert_array_equal(vectors["context"], vectors["context_output"])
    assert np.any(vectors["context"][1, 7]) and not np.any(vectors["context"][1, 8])


@pytest.mark.slow
def test_usage_token_agrees_with_characters(tmp_path: Path, capsys):
    program, character = example("usage_token"), example("usage_character")
    program.main([])
    assert printed_shapes(capsys) == ["context (2, 9, 24)", "question (1, 6, 24)"]
    files = (program.MODEL / "options.json", program.MODEL / "weights.hdf5")
    by_word, by_character = program.embed(*files, tmp_path), character.embed(*files)
    for name, vectors in by_word.items():
        np.testing.assert_allclose(vectors, by_character[name], atol=1e-5)
    with h5py.File(tmp_path / "token_embeddings.hdf5") as file:
        n_words = len((tmp_path / "vocab.txt").read_text(encoding="utf-8").splitlines())
        assert file["embedding"].shape == (n_words, 12)


@pytest.mark.slow
def test_usage_cached_agrees_with_characters(tmp_path: Path, capsys):
    program, character = example("usage_cached"), example("usage_character")
    program.main([])
    assert printed_shapes(capsys) == ["(1, 9, 24)", "(1, 8, 24)"]
    files = (program.MODEL / "options.json", program.MODEL / "weights.hdf5")
    cached = program.embed(program.GOLDEN / "vocab.txt", *files, tmp_path)
    computed = character.embed(*files)["context"]
    for row, vectors in enumerate(cached):
        np.testing.assert_allclose(vectors[0], computed[row, : vectors.shape[1]], atol=1e-5)
    assert program.read_sentence(tmp_path / "embeddings.hdf5", 1).shape == (3, 8, 24)


def test_read_conllu_skips_ranges_and_empty_nodes():
    program = example("pos_tagging")
    training = list(program.read_conllu(CONLLU / "train.conllu"))
    assert len(training) == 12
    assert training[9].words == ["We", "do", "not", "eat", "three", "apples", "."]
    assert training[9].tags == ["PRON", "AUX", "PART", "VERB", "NUM", "NOUN", "PUNCT"]
    assert next(program.read_conllu(CONLLU / "dev.conllu")).words[:4] == [
        "The",
        "dog",
        "sleeps",
        "in",
    ]


@pytest.mark.parametrize("line", ["1\tHello\t_", "1\tHello\t_\tGREETING" + "\t_" * 6])
def test_a_line_without_a_known_tag(tmp_path: Path, line: str):
    path = tmp_path / "one.conllu"
    path.write_text(f"# a comment\n{line}\n", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        example("pos_tagging").main(
            ["--layers", "none", "--train", str(path), "--dev", str(CONLLU / "dev.conllu")]
        )
    message = str(stopped.value)
    assert message.startswith(f"pos_tagging.py: error: {path}, line 2: the fourth column must be")
    assert message.endswith(f"got {line!r}.")


def as_arrays(batch):
    return [tensor.numpy() for tensor in batch]


def pair_of(golden: Path) -> list[str]:
    base = golden / "inference" / "base"
    return ["--model", str(base / "options.json"), str(base / "weights.hdf5")]


def accuracies(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in capsys.readouterr().out.splitlines())
    return {
        what: float(value) for what, _, value in lines if "accuracy" in what and ":" not in value
    }


@pytest.mark.slow
def test_pos_tagging_learns_saves_and_loads(tmp_path: Path, capsys, golden: Path):
    saved = tmp_path / "tagger.keras"
    example("pos_tagging").main(
        [*pair_of(golden), "--train", str(CONLLU / "train.conllu"),
         "--dev", str(CONLLU / "dev.conllu"), "--save", str(saved),
         "--epochs", "60", "--batch_size", "4", "--learning_rate", "0.03"]
    )  # fmt: skip
    found = accuracies(capsys)
    assert found["train accuracy"] > 0.8 and found["dev accuracy"] > 0.3
    assert found[f"dev accuracy of {saved}, loaded again:"] == found["dev accuracy"]
    assert saved.exists()


@pytest.mark.slow
def test_pos_tagging_from_characters(tmp_path: Path, capsys):
    saved = tmp_path / "tagger.keras"
    example("pos_tagging").main(
        ["--layers", "none", "--words", "--characters",
         "--train", str(CONLLU / "train.conllu"), "--dev", str(CONLLU / "dev.conllu"),
         "--save", str(saved), "--epochs", "40", "--batch_size", "4", "--learning_rate", "0.01"]
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert "dev accuracy on 0 words that are not in the training data" in printed
    assert "train accuracy 1.0000\n" in printed or "train accuracy 0.9" in printed


def test_accuracy_on_unseen_words():
    class AlwaysOne:
        def predict_on_batch(self, words):
            return np.tile([0.0, 1.0], (*words.shape, 1))

    words = tf.constant([["a", "new", ""], ["other", "a", "new"]])
    batches = [(words, tf.constant([[0, 1, 0], [0, 1, 1]]))]
    assert example("pos_tagging").accuracy_on_unseen(AlwaysOne(), batches, {"a"}) == (2 / 3, 3)


def test_a_feature_as_tag(tmp_path: Path):
    path = tmp_path / "a.conllu"
    rows = ["1\tlibri\tliber\tNOUN\t_\tCase=Nom|Number=Plur", "2\tsunt\tsum\tAUX\t_\tNumber=Plur"]
    path.write_text("".join(f"{row}{4 * chr(9)}_\n" for row in rows), encoding="utf-8")
    (sentence,) = example("pos_tagging").read_conllu(path, "Case")
    assert sentence.tags == ["Nom", "_"]


def write_analyses(path: Path, sentences: list[str]) -> str:
    """A CoNLL-U file from sentences of form/lemma/part of speech."""
    rows = (
        "".join(
            f"{number}\t{form}\t{lemma}\t{pos}" + "\t_" * 6 + "\n"
            for number, (form, lemma, pos) in enumerate((w.split("/") for w in words.split()), 1)
        )
        for words in sentences
    )
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_homographs(tmp_path: Path, capsys):
    train = write_analyses(
        tmp_path / "a.conllu",
        ["Cum/cum/ADP te/tu/PRON", "cum/cum/SCONJ sit/sum/AUX", "liber/liber/NOUN"],
    )
    test = write_analyses(
        tmp_path / "b.conllu",
        ["est/sum/AUX cum/cum/ADP eo/is/PRON cum/cum/SCONJ", "liber/liber/ADJ"],
    )
    main, out = example("homographs").main, tmp_path / "latin"
    main(["--train", train, "--test", test, "--out", str(out), "--min_count", "2"])
    assert (tmp_path / "latin-train.txt").read_text(encoding="utf-8") == (
        "cum/ADP\t[Cum] te\ncum/SCONJ\t[cum] sit\n"
    )
    assert (tmp_path / "latin-test.txt").read_text(encoding="utf-8") == (
        "cum/ADP\test [cum] eo cum\ncum/SCONJ\test cum eo [cum]\n"
    )
    assert capsys.readouterr().out.splitlines()[1] == f"{out}-test.txt: 2 occurrences of cum"
    with pytest.raises(SystemExit, match="no word has two analyses 3 times each"):
        main(["--train", train, "--test", test, "--out", str(out), "--min_count", "3"])


def write_genres(path: Path, n: int) -> Path:
    """Sentences of two genres that differ in their words."""
    words = {"email": "dear friends we write".split(), "reviews": "bad food here again".split()}
    blocks = []
    for number in range(n):
        genre = ("email", "reviews")[number % 2]
        rows = [f"{k}\t{word}" + "\t_" * 8 for k, word in enumerate(words[genre][number % 3 :], 1)]
        blocks.append("\n".join([f"# sent_id = {genre}-x-{number}", *rows]) + "\n\n")
    path.write_text("".join(blocks), encoding="utf-8")
    return path


def test_read_genres(tmp_path: Path):
    program = example("sentence_classification")
    examples = list(program.read_genres(write_genres(tmp_path / "a.conllu", 4)))
    assert examples[0] == ("dear friends we write", "email")
    assert examples[3] == ("bad food here again", "reviews")
    batches = [
        as_arrays(batch) for batch in program.make_dataset(examples, ["email", "reviews"], 3)
    ]
    assert sorted(len(sentences) for sentences, _ in batches) == [1, 3]
    genres = {line: n for batch in batches for line, n in zip(*batch, strict=True)}
    assert genres[b"we write"] == 0 and genres[b"food here again"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--layers", "none"], ["--words"], ["--probe"]])
def test_sentence_classification_learns_saves_and_loads(tmp_path, capsys, golden: Path, flags):
    train = write_genres(tmp_path / "train.conllu", 24)
    dev, saved = write_genres(tmp_path / "dev.conllu", 5), tmp_path / "classifier.keras"
    model = [] if "none" in flags else pair_of(golden)
    example("sentence_classification").main(
        [*model, *flags, "--train", str(train), "--dev", str(dev), "--save", str(saved),
         "--epochs", "20", "--batch_size", "4", "--learning_rate", "0.03"]
    )  # fmt: skip
    printed = capsys.readouterr()
    assert "most frequent of 2 genres: 0.6000 of the dev sentences\n" in printed.out
    assert "\ndev accuracy 1.0000\n" in printed.out
    assert printed.out.endswith(f"dev accuracy of {saved}, loaded again: 1.0000\n")


# Proteins


def write_proteins(path: Path, n: int, seed: int) -> None:
    """Proteins whose labels depend on the residue."""
    draw = np.random.default_rng(seed)
    lines = []
    for k in range(n):
        residues = "".join(draw.choice(list("ACDEFGHIKLMNPQRSTVWY"), draw.integers(5, 40)))
        labels = "".join("H" if residue in "ADEFGHIKLMNPQ" else "E" for residue in residues)
        lines += [f">p{k} made up", residues.lower(), f".{labels[1:]}"]
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")


@pytest.mark.slow
def test_residues(tmp_path: Path, capsys):
    program = example("residues")
    changes = {"lstm": {"dim": 16, "projection_dim": 32}}
    model = write_small_model(tmp_path / "elmo", "as_published", **changes).folder
    write_proteins(tmp_path / "train.3line", 100, 1)
    write_proteins(tmp_path / "dev.3line", 20, 2)
    (tmp_path / "p.fasta").write_text(">a\nACDW\nYS\n>b\n>c\nM\n", encoding="utf-8")
    out = tmp_path / "out.3line"
    program.main(
        ["--model", str(model), "--train", str(tmp_path / "train.3line"), "--dev",
         str(tmp_path / "dev.3line"), "--predict", str(tmp_path / "p.fasta"), "--out", str(out),
         "--batch_residues=100", "--epochs=25"]
    )  # fmt: skip
    printed = capsys.readouterr().out.splitlines()
    figures = dict(line.rsplit(" ", 1) for line in printed if line.startswith(("dev", "always")))
    assert float(figures["dev accuracy"]) > float(figures["always H:"]) + 0.2
    weights = [float(weight) for weight in printed[-2].removeprefix("layer weights ").split()]
    assert len(weights) == 3 and sum(weights) == pytest.approx(1, abs=0.002)
    assert printed[-1] == str(out)
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[::3] == [">a", ">b", ">c"] and lines[1::3] == ["ACDWYS", "", "M"]
    right = sum(a == b for a, b in zip(lines[2], "HEHEEE", strict=True))
    assert right >= 4 and lines[5] == "" and lines[8] in ("H", "E")


def test_files_of_residues_are_checked_before_the_work(tmp_path: Path):
    write_proteins(tmp_path / "train.3line", 2, 1)
    train = str(tmp_path / "train.3line")
    flags = ["--model", "missing", "--train", train, "--dev", train]
    main = example("residues").main
    with pytest.raises(SystemExit, match=r"FASTA file .*missing\.fasta' does not exist"):
        main([*flags, "--predict", str(tmp_path / "missing.fasta"), "--out", str(tmp_path / "o")])
    with pytest.raises(SystemExit, match=r"train\.3line' is an input \(train\)"):
        main([*flags, "--predict", train, "--out", train])


@pytest.mark.parametrize("name", ["tagger", "missing/tagger.keras"])
def test_the_file_to_save_is_checked_before_the_work(tmp_path: Path, capsys, name: str):
    save = str(tmp_path / name)
    with pytest.raises(SystemExit):
        example("pos_tagging").main(
            ["--layers", "none", "--train", "x", "--dev", "x", "--save", save]
        )
    assert f"got {save}" in capsys.readouterr().err


def test_spacy_component(tmp_path):
    spacy = pytest.importorskip("spacy")
    folder = write_small_model(tmp_path, "as_published").folder
    example("spacy_component")
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": str(folder), "layers": "top"})
    doc = nlp("The cat sees it.\n A dog barks.")
    first, second = ELMo.from_pretrained(folder).encode(
        ["The cat sees it .", "A dog barks ."], layers="top"
    )
    words = [token.i for token in doc if not token.is_space]
    np.testing.assert_allclose(doc.tensor[words], np.concatenate([first, second]), 1e-4, 1e-5)
    np.testing.assert_array_equal(doc[1].vector, doc.tensor[1])
    np.testing.assert_allclose(doc.vector, doc.tensor.mean(axis=0), 1e-5)
    assert nlp("").tensor.shape == (0, 16) and not nlp("").vector.any()
    texts = ["A dog.", "", "It barks."]
    for batched, text in zip(nlp.pipe(texts), texts, strict=True):
        np.testing.assert_allclose(batched.tensor, nlp(text).tensor, 1e-4, 1e-5)


@pytest.mark.slow
def test_semantic_change_of_semeval(tmp_path, capsys, monkeypatch):
    """Tagged targets; the vectors and measures of its programs; agreement with gold scores."""
    monkeypatch.chdir(tmp_path)
    model = write_small_model(tmp_path / "elmo", "as_published").folder
    for name, end in (("old", "here"), ("new", "there")):
        lines = [
            f"{a} saw_vb {b} {end}\n" for a in ("they", "we", "it_nn") for b in ("it", "us", "me")
        ]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    (tmp_path / "words").write_text("saw_vb\nit_nn\nthem\nus\n", encoding="utf-8")
    (tmp_path / "gold").write_text("saw_vb\t0.9\nit_nn\t0\nus\t0.1\nx\t1\n", encoding="utf-8")
    program = example("semeval")
    program.main(["old", "new", "--targets", "words", "--model", str(model), "--out", "c.tsv",
                  "--gold", "gold", "--save_uses", "uses"])  # fmt: skip
    header, *rows = (line.split("\t") for line in Path("c.tsv").read_text("utf-8").splitlines())
    found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert found["them"]["PRT"] == "nan" and found["it_nn"]["occurrences_old"] == "3"
    sentence = program.sample_tagged("old", ["saw_vb"]).sentences[4]
    assert sentence == ("we", "saw", "us", "here")
    with np.load("uses/old.npz") as old, np.load("uses/new.npz") as new:
        units = [uses["saw_vb"] / np.linalg.norm(uses["saw_vb"], axis=1)[:, None]
                 for uses in (old, new)]  # fmt: skip
    assert len(units[0]) == 9 and "Spearman" in capsys.readouterr().out
    apd = (1 - units[0] @ units[1].T).mean()
    assert float(found["saw_vb"]["APD"]) == pytest.approx(apd, rel=1e-3)
    rows = [f"{w}\t9\t9\t1\t1\t{x}" + "\t0" * 10 for w, x in zip("abcd", (1, 2, 3, 4), strict=True)]
    Path("c.tsv").write_text("\n".join(["\t".join(header), *rows]) + "\n", encoding="utf-8")
    graded = program.agreement("c.tsv", dict(zip("abcd", (0.0, 0.5, 0.4, 0.9), strict=True)))
    assert graded[1][:3] == ["excess", "Spearman", "0.800"]
    binary = program.agreement("c.tsv", dict(zip("abcd", (0.0, 1.0, 0.0, 1.0), strict=True)))
    assert [row[1:3] for row in binary[1:3]] == [["accuracy", "0.500"], ["AUC", "0.750"]]


@pytest.mark.slow
def test_pairs_of_wic(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = write_small_model(tmp_path / "elmo", "as_published").folder
    pairs = ["card\tN\t1-0\this cards\tcard games", "play\tV\t1-1\tthey play\twe play it"] * 3
    Path("data").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    Path("gold").write_text("F\nT\n" * 3, encoding="utf-8")
    program = example("wic")
    program.main(["data", "gold", "--model", str(model), "--train", "data", "gold"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["pairs", "accuracy", "Spearman"]
    assert rows[0].split()[:4] == ["layer", "0", "6", "100.0"]  # cosines of 1, and below
    Path("data").write_text("card\tN\t2-0\this cards was\tcard games\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        program.main(["data", "gold", "--model", str(model)])
    assert "data, line 1: must be a word" in capsys.readouterr().err


def test_minimal_pairs(tmp_path, capsys):
    program = example("minimal_pairs")
    model = str(ROOT / "bilm" / "models" / "english")
    pairs = [
        ("The keys are old.", "The keys is old.", "agreement"),
        ("They it saw.", "They saw it.", "order"),  # wrong, so that every direction fails
        ("Equal.", "Equal.", "order"),
    ]
    keys = ("sentence_good", "sentence_bad", "UID")
    lines = [json.dumps(dict(zip(keys, pair, strict=True))) for pair in pairs]
    (tmp_path / "p.jsonl").write_text("\n\n".join(lines), encoding="utf-8")
    program.main([str(tmp_path / "*.jsonl"), "--model", model])
    rows = [line.replace(" %", "").split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["phenomenon", "pairs", "forward", "backward", "both"],
        ["agreement", "1", "100.0", "100.0", "100.0"],
        ["order", "2", "25.0", "25.0", "25.0"],
        ["all", "3", "50.0", "50.0", "50.0"],
    ]
    (tmp_path / "p.jsonl").write_text('{"sentence_good": "a"}\n', encoding="utf-8")
    with pytest.raises(SystemExit):
        program.main([str(tmp_path / "p.jsonl"), "--model", model])
    assert "p.jsonl, line 1: must have sentence_good" in capsys.readouterr().err


def test_the_curve_of_text(tmp_path, capsys):
    def row(name: str, size: int | None, value: float) -> dict[str, Any]:
        score = [value, value - 0.05, value + 0.05]
        return {"representation": name, "size": size, "accuracy": score,
                "unseen": None if name == "majority" else score}  # fmt: skip

    for words in (1, 3):
        rows = [row("majority", 100, 0.25), row("mix", 100, 0.5 + words / 10), row("mix", None, 1)]
        (tmp_path / f"{words}.json").write_text(json.dumps({"settings": {}, "rows": rows}))
    main, picture = example("text_curve").main, tmp_path / "curve.svg"
    files = [f"{words}={tmp_path}/{words}.json" for words in (1, 3)]
    main([*files, "--train_sentences", "100", "--picture", str(picture)])
    assert capsys.readouterr().out.splitlines()[:6] == [
        "all words, %", "", "| | 1 M words | 3 M words |", "| --- | --- | --- |",
        "| majority | 25.0 [20.0, 30.0] | 25.0 [20.0, 30.0] |",
        "| mix | 60.0 [55.0, 65.0] | 80.0 [75.0, 85.0] |",
    ]  # fmt: skip
    text = picture.read_text(encoding="utf-8")
    assert "millions of words of text" in text and ">mix<" in text and ">majority<" not in text
    with pytest.raises(SystemExit, match=r"1\.json: must have rows of size 7\."):
        main([*files, "--train_sentences", "7"])
    with pytest.raises(SystemExit, match=r"curve\.svg' would be overwritten"):
        main([*files, "--train_sentences", "100", "--picture", str(picture)])
    for wrong in ("0=x.json", "1=", "x.json", files[0]):
        with pytest.raises(SystemExit, match="must be WORDS=FILE with different numbers"):
            main([files[0], wrong, "--train_sentences", "100"])
    (tmp_path / "9.json").write_text(json.dumps({"settings": {"column": "Case"}, "rows": rows}))
    with pytest.raises(SystemExit, match=r"9\.json: must be of the same labels as 1="):
        main([files[0], f"9={tmp_path}/9.json", "--train_sentences", "100"])
    (tmp_path / "9.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"9\.json: must be a file of `bilm probe --out`"):
        main([files[0], f"9={tmp_path}/9.json", "--train_sentences", "100"])
