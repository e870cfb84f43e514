"""The task programs: files and errors, measures, layers, and a test that they learn."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from common import layers, reading, tags
from common.experiment import (
    Example,
    LayerwiseAdam,
    Result,
    Task,
    draw,
    make_parser,
    predict,
    summary,
    training_batches,
)
from common.vectors import ModelInputs, SavedLayers, TokenVectors, VectorSettings

from bilm import BidirectionalLanguageModel, ELMo
from bilm.core.errors import InputError
from tests import small_tasks

TASKS = ("entities", "roles", "entailment", "sentiment", "questions", "coreference")


def program(name: str):
    return importlib.import_module(name)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# Files


def test_parts_that_are_missing_are_set_apart(tmp_path: Path):
    def parts() -> dict[str, list[str]]:
        return reading.parts_of(tmp_path, ".txt", lambda path: Path(path).read_text().split())

    written(tmp_path, "train.txt", " ".join(map(str, range(20))))
    with pytest.raises(FileNotFoundError, match=r"test\.txt"):
        parts()
    written(tmp_path, "dev.txt", "a b")
    found = parts()
    assert (found["train"][-1], found["dev"], found["test"]) == ("17", ["18", "19"], ["a", "b"])
    written(tmp_path, "test.txt", "c")
    assert [len(parts()[part]) for part in small_tasks.PARTS] == [20, 2, 1]
    (tmp_path / "dev.txt").unlink()
    assert [len(parts()[part]) for part in small_tasks.PARTS] == [18, 2, 1]
    written(tmp_path, "test.txt", "")
    assert [len(parts()[part]) for part in small_tasks.PARTS] == [18, 2, 0]
    written(tmp_path, "train.txt", "x")
    with pytest.raises(InputError, match=r"train\.txt: must have at least 2 examples"):
        parts()


def test_tokens_of_written_text():
    spans = reading.tokenise("Bell's 1,000 well-known (odd) cats; in 1995-96.")
    assert " ".join(spans.tokens) == "Bell 's 1,000 well-known ( odd ) cats ; in 1995 - 96 ."
    assert spans.covering(5, 7) == (1, 1) and spans.covering(7, 20) == (2, 3)
    assert spans.covering(6, 7) is None


@pytest.mark.parametrize(
    "name, ending, text, message",
    [
        ("entities", "tsv", "a\tB-X\nb\tI-Y\n", "line 2: must be .* got 'I-Y' after B-X"),
        ("roles", "jsonl", "{", "line 1: must be JSON"),
        ("roles", "jsonl", '{"tokens": ["a"], "frames": [{"predicate": 1}]}', "0 to 0, got 1"),
        ("sentiment", "tsv", "no tab\n", "must have 2 columns separated by tabs, got 1"),
    ],
)
def test_lines_that_are_refused(tmp_path: Path, name, ending, text, message):
    path = written(tmp_path, f"train.{ending}", text)
    with pytest.raises(InputError, match=message) as error:
        list(program(name).read(str(path)))
    assert str(path) in str(error.value)


# Measures


def test_spans_of_tags():
    found = tags.spans("B-A I-A O B-ARGM-TMP B-A I-A".split())
    assert found == [("A", 0, 1), ("ARGM-TMP", 3, 3), ("A", 4, 5)]


def test_f1_of_entities():
    gold = ["B-PER I-PER O B-LOC".split(), "O B-LOC I-LOC".split()]
    found = ["B-PER I-PER O B-ORG".split(), "O B-LOC O".split()]
    scores = tags.span_scores(gold, found)  # 3 expected, 3 found, 1 correct
    assert scores == pytest.approx({"f1": 100 / 3, "precision": 100 / 3, "recall": 100 / 3})
    assert tags.span_scores(gold, gold)["f1"] == 100
    nothing = [["O"] * len(sentence) for sentence in gold]
    assert tags.span_scores(gold, nothing) == {"f1": 0, "precision": 0, "recall": 0}


def test_arguments_as_the_scorer_of_conll_2005_counts_them():
    roles = program("roles")
    gold = roles.arguments("B-ARG1 I-ARG1 B-V B-C-ARG1 B-C-V B-ARG0 B-C-ARG2".split())
    assert gold == [("ARG1", (0, 1), (3, 3)), ("ARG0", (5, 5)), ("ARG2", (6, 6))]
    example = Example({"sentence": ("x",) * 7}, [], gold=gold)
    # Without its second part the argument is wrong, although its first part is found.
    found = roles.arguments("B-ARG1 I-ARG1 B-V O B-C-V B-ARG0 O".split())
    scores = roles.score([example], [found])
    assert scores == pytest.approx({"f1": 40.0, "precision": 50.0, "recall": 100 / 3})


def test_measures_of_answers():
    questions = program("questions")
    assert questions.normalised("The  Cat's, an(a) end.") == "cats ana end"
    assert questions.word_f1("the big cat", "a cat") == pytest.approx(2 / 3)
    assert questions.word_f1("cat", "dog") == 0
    spans = reading.tokenise("x")
    gold = [questions.Question(("?",), "x", spans, answers, (0, 0))
            for answers in (["big cat", "cat"], ["dog"])]  # fmt: skip
    examples = [Example({}, None, gold=question) for question in gold]
    assert questions.score(examples, ["The cat!", "old dog"]) == pytest.approx(
        {"f1": 100 * (1 + 2 / 3) / 2, "exact": 50.0}
    )


def test_measures_of_gap():
    coreference = program("coreference")

    def example(gender, a, b):
        return Example({}, None, gold=coreference.Passage((), [], (a, b), gender))

    examples = [
        example("masculine", True, False),
        example("masculine", False, True),
        example("feminine", True, False),
        example("feminine", False, False),
    ]
    said = [(True, False), (True, False), (False, False), (False, True)]
    scores = coreference.score(examples, said)
    # all: 1 correct, 2 false positives, 2 missed; masculine: 1, 1, 1; feminine: 0, 1, 1
    assert scores == pytest.approx({"f1": 100 / 3, "masculine": 50, "feminine": 0, "bias": 0})
    assert coreference.score(examples, [e.gold.meant for e in examples])["bias"] == 1


def test_mean_and_deviation_of_seeds():
    results = [Result(k, {"f1": 1.0}, {"f1": f1}, 1, 0.0, {}) for k, f1 in enumerate((60, 62, 67))]
    assert summary(results, "test")["f1"] == pytest.approx((63, 13**0.5))
    assert summary(results[:1], "test")["f1"] == (60, 0)


# Parts of models

TAGS = ["B-X", "I-X", "O"]


def paths_and_scores(crf, scores):
    """Every allowed path of tags with its score, by enumeration."""
    start, steps = crf.start.numpy(), crf.steps.numpy()
    for path in itertools.product(range(3), repeat=len(scores)):
        names = [TAGS[k] for k in path]
        if any(b == "I-X" and a == "O" for a, b in itertools.pairwise(["O", *names])):
            continue
        total = start[path[0]] + sum(scores[t, k] for t, k in enumerate(path))
        yield path, total + sum(steps[a, b] for a, b in itertools.pairwise(path))


def test_crf_against_all_paths():
    rng = np.random.default_rng(0)
    crf = layers.CRF(TAGS)
    crf.set_weights([rng.normal(size=w.shape) for w in crf.weights])
    scores = rng.normal(size=(3, 4, 3)).astype(np.float32)
    gold = np.array([[2, 0, 1, 1], [0, 1, -1, -1], [2, -1, -1, -1]])
    lengths = [4, 2, 1]
    losses = crf.loss(gold, scores).numpy()
    decoded = crf.decode(scores, lengths)
    for row, n in enumerate(lengths):
        paths = dict(paths_and_scores(crf, scores[row, :n]))
        total = np.log(sum(np.exp(value) for value in paths.values()))
        np.testing.assert_allclose(losses[row], total - paths[tuple(gold[row, :n])], rtol=1e-5)
        best = max(paths, key=paths.get)
        assert decoded[row] == [TAGS[k] for k in best]


def test_crf_has_a_gradient_and_a_configuration():
    import tensorflow as tf

    crf = layers.CRF.from_config(layers.CRF(TAGS).get_config())
    assert crf.tags == TAGS and crf.name == "crf"
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(crf.loss(np.array([[0, 2, -1]]), tf.zeros((1, 3, 3))))
    gradients = tape.gradient(loss, crf.trainable_variables)
    # The gradient of `start` is negative for the right tag only; I-X cannot be the first tag.
    np.testing.assert_allclose(gradients[0], [3 / 5 - 1, 0, 2 / 5], atol=1e-5)


def test_best_paths_never_take_a_forbidden_step():
    start, steps = layers.allowed_steps(TAGS)
    scores = np.zeros((1, 3, 3), np.float32)
    scores[0, :, 1] = 5.0  # I-X everywhere
    assert layers.best_paths(scores, [3], start, steps) == [[0, 1, 1]]


# Vectors

SENTENCES = [("They", "saw", "it"), ("Hello",), ("They", "saw", "it")]


def test_saved_layers_are_those_of_the_model(published, tmp_path: Path):
    saved = SavedLayers(published.model, SENTENCES, tmp_path)
    assert np.load(saved.path).shape == (4, published.model.n_layers, published.model.dim)
    for sentence, layers_of in zip(
        SENTENCES, published.model.encode(SENTENCES, "all"), strict=True
    ):
        np.testing.assert_allclose(saved[sentence].swapaxes(0, 1), layers_of, rtol=2e-3, atol=1e-4)
    before = saved.path.stat().st_mtime_ns
    again = SavedLayers(ELMo.from_pretrained(published.folder), SENTENCES, tmp_path)
    assert (again.path, again.path.stat().st_mtime_ns) == (saved.path, before)
    assert SavedLayers(published.model, SENTENCES[:2], tmp_path).path == saved.path
    assert SavedLayers(published.model, SENTENCES[1:], tmp_path).path != saved.path
    assert not list(tmp_path.glob(".*"))


def token_vectors(tmp_path: Path, **settings) -> TokenVectors:
    vectors = TokenVectors(VectorSettings(**settings), SENTENCES, tmp_path)
    vectors.learn(SENTENCES)
    return vectors


def test_words_and_layers_of_a_batch(published, tmp_path: Path):
    static = written(tmp_path, "vectors.txt", "2 2\nthey 1 2\nit 3 4\n")
    vectors = token_vectors(tmp_path, model=published.folder, layers="1", words=str(static))
    arrays = vectors.arrays("text", SENTENCES[:2])
    assert arrays["text"].tolist() == [[2, 1, 3, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]
    assert arrays["text_elmo"].shape == (2, 1, 8, published.model.dim)
    expected = published.model.encode([SENTENCES[0]], 1)[0]
    np.testing.assert_allclose(arrays["text_elmo"][0, 0, :3], expected, rtol=2e-3, atol=1e-4)
    assert not np.any(arrays["text_elmo"][1, 0, 1:])

    inputs = ModelInputs(vectors)
    text = inputs.text("text")
    model = keras.Model(inputs.inputs, text.vectors)
    found = np.array(model(arrays))
    np.testing.assert_array_equal(found[0, :3, :2], [[1, 2], [0, 0], [3, 4]])
    np.testing.assert_allclose(found[0, :3, 2:], expected, rtol=2e-3, atol=1e-4)
    assert not np.any(found[1, 1:])
    assert inputs.mix_weights() == {"input": {"weights": {"1": 1.0}, "gamma": 1.0}}


def test_learned_words(tmp_path: Path):
    vectors = token_vectors(tmp_path, layers="none")
    ids = vectors.arrays("text", SENTENCES)["text"]
    assert ids[:, :3].tolist() == [[2, 3, 4], [1, 0, 0], [2, 3, 4]]
    assert vectors.n_words == 5
    vectors.learn(SENTENCES[:1])  # no word is repeated
    assert not np.any(vectors.arrays("text", SENTENCES)["text"] > 1)


@pytest.mark.slow
def test_a_language_model_in_the_graph_gives_the_saved_layers(published, tmp_path: Path):
    found = []
    for fine_tune in (False, True):
        settings = {"model": published.folder, "fine_tune": fine_tune, "at": "both"}
        vectors = token_vectors(tmp_path, **settings)
        inputs = ModelInputs(vectors)
        text = inputs.text("text")
        model = keras.Model(inputs.inputs, inputs.at_output(text, text.vectors))
        found.append(np.array(model(vectors.arrays("text", SENTENCES))))
        n_mix = 2 * len(inputs.mixes)
        assert (len(model.trainable_variables) > n_mix) == fine_tune
    mask = np.arange(8) < np.array([[3], [1], [3]])
    np.testing.assert_allclose(found[0][mask], found[1][mask], rtol=2e-3, atol=1e-3)


# Flags


def test_a_list_replaces_its_default_and_grows_when_repeated():
    parser = make_parser("")
    for more, seeds in (("", [1]), ("--seeds 1 2", [1, 2]), ("--seeds 1 --seeds 3", [1, 3])):
        assert parser.parse_args(["--data", "d", *more.split()]).seeds == seeds


# Training


@pytest.mark.slow
def test_lower_layers_learn_at_lower_rates(published):
    """The first step of Adam moves a variable by its learning rate, whatever the gradient."""
    model = BidirectionalLanguageModel.from_pretrained(published.folder, trainable=True)
    head = keras.Variable(np.zeros(3, np.float32), name="head")
    variables = [*model.trainable_variables, head]
    before = [variable.numpy().copy() for variable in variables]
    optimizer = LayerwiseAdam(0.5, 0.01, epsilon=0.0)
    optimizer.apply([keras.ops.ones_like(variable) for variable in variables], variables)
    moved = {
        variable.path: np.abs(variable.numpy() - old).max()
        for variable, old in zip(variables, before, strict=True)
    }
    expected = {"encoder": 0.01 / 8, "layer_0": 0.01 / 4, "layer_1": 0.01 / 2, "head": 0.01}
    for path, distance in moved.items():
        (name,) = (name for name in expected if name in path)
        np.testing.assert_allclose(distance, expected[name], rtol=1e-2)


def test_batches_hold_examples_of_like_length(tmp_path: Path):
    vectors = token_vectors(tmp_path, layers="none")
    inputs = ModelInputs(vectors)
    inputs.text("text")
    inputs.number("mark", (None,))
    examples = [
        Example({"text": ("They",) * n}, [1] * n, {"mark": [2] * n}) for n in (1, 30, 2, 31, 3)
    ]
    batches = training_batches(examples, inputs, 2, seed=0)
    assert len(batches) == 3
    lengths = []
    for given, target in batches:
        n = (given["text"].numpy() > 0).sum(axis=1)
        assert (target.numpy() == 1).sum(axis=1).tolist() == n.tolist()
        assert (given["mark"].numpy() == 2).sum(axis=1).tolist() == n.tolist()
        lengths.append(sorted(n.tolist()))
    # With five examples in batches of two, the shortest is used twice.
    assert sorted(lengths) in ([[1, 2], [1, 31], [3, 30]], [[1, 2], [1, 30], [3, 31]])


def test_examples_are_drawn_by_the_seed():
    examples = [Example({"text": (str(n),)}, n) for n in range(10)]
    assert len(draw(examples, 0.25, 1)) == 2 and len(draw(examples, 3, 1)) == 3
    assert draw(examples, 3, 1) == draw(examples, None, 1)[:3] != draw(examples, 3, 2)
    assert len(draw(examples, 0.001, 1)) == 1


def test_predictions_are_in_the_order_of_the_examples(tmp_path: Path):
    vectors = token_vectors(tmp_path, layers="none")
    inputs = ModelInputs(vectors)
    ids = inputs.number("text", (None,))
    model = keras.Model(inputs.inputs, keras.ops.sum(keras.ops.cast(ids > 0, "int32"), axis=1))

    def count_right(examples, found):
        return {"right": sum(e.gold == n for e, n in zip(examples, found, strict=True))}

    task = Task("count", {}, None, lambda model, outputs, batch: outputs.tolist(), count_right)
    examples = [Example({"text": ("They",) * n}, n, gold=n) for n in (3, 1, 9, 2)]
    assert predict(task, vectors, model, examples, 2) == [3, 1, 9, 2]


def test_what_a_user_can_mend_ends_a_program_with_1(tmp_path: Path, capsys):
    missing = str(tmp_path / "missing.txt")
    senses = ["--train", missing, "--test", missing, "--model", "x"]
    for name in (*TASKS, "senses"):
        flags = senses if name == "senses" else ["--data", str(tmp_path)]
        with pytest.raises(SystemExit) as end:
            program(name).main(flags)
        assert end.value.code == 1
        assert "does not exist" in capsys.readouterr().err
    for part in small_tasks.PARTS:
        written(tmp_path, f"{part}.tsv", "" if part == "dev" else "a\tO\n")
    with pytest.raises(SystemExit):
        program("entities").main(["--data", str(tmp_path), "--layers", "none"])
    assert "dev must have at least one example" in capsys.readouterr().err


def result_of(capsys, name: str, *flags: str) -> dict:
    program(name).main([*flags, "--format", "json"])
    return json.loads(capsys.readouterr().out)


def test_the_program_for_senses(published, tmp_path: Path, capsys):
    data = small_tasks.senses(tmp_path / "data")
    parts = [flag for part in ("train", "test") for flag in (f"--{part}", f"{data}/{part}.jsonl")]
    flags = [*parts, "--model", str(published.folder)]
    found = result_of(capsys, "senses", *flags)
    accuracies = {row["representation"]: row["accuracy"] for row in found["rows"]}
    # Each test use is in the training data, so it is its own neighbour if there is context.
    assert accuracies["first sense"] == 0.75 and accuracies["layer 1"] == 1
    program("senses").main([*flags, "--pos", "NOUN"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 occurrences; accuracy, %"
    assert lines[1].split() == ["all", "several", "senses", "by", "sense", "NOUN"]
    # Of three senses, bank%money and cat%1 have one occurrence each.
    assert lines[2].split() == ["first", "sense", "75.0", "66.7", "66.7", "75.0"]


def test_senses_of_sentences_with_a_word_in_brackets(published, tmp_path: Path, capsys):
    lines = ["two\t[the] cat sees a dog", "one\ta dog hears [the] bird",
             "one\t[the] old bird sees the cat"]  # fmt: skip
    path = str(written(tmp_path, "uses.txt", "\n".join(lines) + "\n"))
    flags = ["--train", path, "--test", path, "--model", str(published.folder)]
    program("senses").main([*flags, "--format", "json"])
    printed = capsys.readouterr()
    assert "uses.txt: 3 of 3 occurrences are in " in printed.err
    rows = {row.pop("representation"): row for row in json.loads(printed.out)["rows"]}
    assert [*rows] == ["first sense", "layer 0", "layer 1", "layer 2", "layers", "context"]
    # "two" is the sense of one use.
    assert rows["first sense"] == {
        "senses": ["one"] * 3, "right": [False, True, True], "accuracy": pytest.approx(2 / 3),
        "several_accuracy": pytest.approx(2 / 3), "macro_accuracy": 0.5, "kappa": None,
    }  # fmt: skip
    # Each use is its own neighbour; at layer 0 all vectors are equal.
    assert rows["layer 0"]["macro_accuracy"] == 0.5 and rows["layer 1"]["macro_accuracy"] == 1
    with pytest.raises(SystemExit):
        program("senses").main([*flags, "--pos", "NOUN"])
    assert "must be .jsonl for --pos" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_programs_learn(published, tmp_path: Path, capsys, name: str):
    """The score on the training data rises above 90, with and without ELMo."""
    data = getattr(small_tasks, name)(tmp_path / "data")
    flags = ["--data", str(data), "--dropout", "0", "--learning_rate", "0.02", "--batch_size", "3",
             "--size", "8", "--epochs", "25", "--patience", "25"]  # fmt: skip
    found = result_of(
        capsys, name, *flags, "--model", str(published.folder), "--at", "both",
        "--words", "learned", "--lambda", "1", "--layer_norm",
    )  # fmt: skip
    measure = next(iter(found["test"]))
    assert found["task"] == name and found["test"][measure][0] > 90
    assert [run["seed"] for run in found["runs"]] == [1]
    mix = found["runs"][0]["mixes"]
    assert set(mix) == {"input", "output"} and sum(mix["input"]["weights"].values()) > 0.999


@pytest.mark.slow
def test_programs_without_elmo_and_with_the_language_model_trained(published, tmp_path, capsys):
    data = small_tasks.entities(tmp_path / "data")
    flags = ["--data", str(data), "--dropout", "0", "--learning_rate", "0.02", "--epochs", "12"]
    found = result_of(capsys, "entities", *flags, "--layers", "none", "--seeds", "1", "2")
    assert found["test"]["f1"][0] > 50 and found["runs"][0]["mixes"] == {}
    assert [run["seed"] for run in found["runs"]] == [1, 2]
    cache = tmp_path / "cache"
    cache.mkdir()
    more = ["--model", str(published.folder), "--cache", str(cache), "--train_size", "3"]
    program("entities").main([*flags, *more])
    printed = capsys.readouterr()
    assert "entities: mean and standard deviation of 1 seeds" in printed.out
    assert re.search(r"seed 1, input: gamma \d\.\d\d, layers 0: \d", printed.out)
    assert "seed 1 epoch 1: loss" in printed.err and len(list(cache.iterdir())) == 1
    slowly = ["--learning_rate", "0.01", "--patience", "12"]
    found = result_of(capsys, "entities", *flags, *more[:2], "--fine_tune", *slowly)
    assert found["test"]["f1"][0] > 20


def kept_result(mean: float) -> dict:
    mix = {"weights": {"0": 0.25, "1": 0.75}, "gamma": 0.5}
    runs = [
        {"mixes": {"input": mix, "output": mix}, "test": {"f1": mean + spread * mean / 50}}
        for spread in (-1, 1)
    ]
    return {"test": {"f1": [mean, 1.0], "precision": [0, 0]}, "runs": runs}


def write_results(path: Path, lines: dict[str, dict]) -> None:
    rows = (json.dumps({"command": key, "result": value}) for key, value in lines.items())
    path.write_text("".join(f"{row}\n" for row in rows) + '{"command": "cut o', encoding="utf-8")


def test_a_table_whose_runs_are_there_is_only_printed(tmp_path: Path, capsys):
    (tmp_path / "data" / "ner-zh").mkdir(parents=True)
    data, results = str(tmp_path / "data"), tmp_path / "results.jsonl"
    run = f"entities.py --data {data}/ner-zh --size 50 --learning_rate 0.003 --epochs 8"
    end = "--seeds 1 2 --epochs 3"
    write_results(
        results,
        {
            f"{run} --layers none --words w --train_size 0.5 {end}": kept_result(50),
            f"{run} --model m --words w --train_size 0.5 {end}": kept_result(70),
            **{
                f"{run} {vectors} --words w --train_size {size} {end}": kept_result(40)
                for vectors in ("--layers none", "--model m")
                for size in ("0.01", "0.05", "0.1", "0.25", "1.0")
            },
            f"{run} --model m --words w --at output --train_size 0.5 {end}": kept_result(2),
        },
    )
    flags = ["--data", data, "--results", str(results), "--model_zh", "m", "--words_zh", "w",
             "--seeds", "1", "2", "--", "--epochs", "3"]  # fmt: skip
    program("tables").main(["table1", *flags])
    assert capsys.readouterr().out.splitlines() == [
        "| task | measure | static | static and ELMo | gain |",
        "| --- | --- | --- | --- | --- |",
        # seed by seed: 68.6 - 49 and 71.4 - 51
        "| entities-zh | f1 | 50.0 ± 1.0 | 70.0 ± 1.0 | +20.0 ± 0.6 |",
    ]
    pictures = [tmp_path / "figure1.svg", tmp_path / "figure2.svg"]
    program("tables").main(["figure1", "--picture", str(pictures[0]), *flags])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "| task | measure | proportion | static | static and ELMo |"
    assert printed[2] == "| entities-zh | f1 | 0.01 | 40.0 ± 1.0 | 40.0 ± 1.0 |"
    assert printed[7:] == ["| entities-zh | f1 | 1.0 | 40.0 ± 1.0 | 40.0 ± 1.0 |"]
    program("tables").main(["figure1", "--sizes", "0.25", "0.5", *flags])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| entities-zh | f1 | 0.25 | 40.0 ± 1.0 | 40.0 ± 1.0 |",
        # the default proportion of the task
        "| entities-zh | f1 | 0.5 | 50.0 ± 1.0 | 70.0 ± 1.0 |",
    ]
    program("tables").main(["figure2", "--picture", str(pictures[1]), *flags])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| entities-zh | input | 0.50 | 0.25 0.75 |",
        "| entities-zh | output | 0.50 | 0.25 0.75 |",
    ]
    drawn = [picture.read_text(encoding="utf-8") for picture in pictures]
    assert "entities-zh, f1" in drawn[0] and "proportion of the training data" in drawn[0]
    assert "at the output" in drawn[1] and "0.75" in drawn[1]
    with pytest.raises(SystemExit, match="entities-zh requires --model_zh and --words_zh"):
        program("tables").main(["table1", *flags[:4]])
    with pytest.raises(SystemExit):
        program("tables").main(["table1", "--data", str(tmp_path), *flags[2:]])
    assert "must have a folder of a task (qa, nli, " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        program("tables").main(["table1", "--sizes", "0.5", *flags])
    assert "--sizes requires figure1 or tuning" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_that_are_missing_are_made(tmp_path: Path):
    small_tasks.entities(tmp_path / "data" / "ner-en")
    results = written(tmp_path, "results.jsonl", '{"command": "cut o')
    static = written(tmp_path, "vectors.txt", "Anna 1 2\nRome 3 4\n")
    flags = ["figure1", "--data", str(tmp_path / "data"), "--results", str(results), "--seeds", "1",
             "--model", "x", "--words", str(static), "--", "--epochs", "1"]  # fmt: skip
    with pytest.raises(SystemExit, match=r"exit code 1: entities\.py .*--model x"):
        program("tables").main(flags)
    cut_off, line = results.read_text(encoding="utf-8").splitlines()
    assert (
        cut_off == '{"command": "cut o'
        and " --layers none " in line
        and json.loads(line)["result"]["task"] == "entities"
    )
