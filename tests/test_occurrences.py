"""Occurrences of words: sampling from a text, encoding, files, and search."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bilm import ELMo, InputError
from bilm.analysis import (
    Occurrences,
    Sample,
    parse_query,
    read_labelled_uses,
    sample_uses,
)
from tests.hand_made import two_senses
from tests.small_models import write_small_model

pytestmark = pytest.mark.eager

TEXT = [
    "the bank of the river",
    "a Bank lent money",
    "",
    "no money in the bank , no bank",
    "spring came to the river bank",
    "the spring of the watch",
]
WORDS = ["bank", "spring"]


def uses(sample: Sample) -> list[tuple[str, str]]:
    """(sentence, token) of each use."""
    return [
        (" ".join(sample.sentences[number]), sample.sentences[number][position])
        for number, position in sample.positions
    ]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    made = write_small_model(tmp_path_factory.mktemp("model"), "as_published")
    return ELMo.from_pretrained(made.files)


@pytest.fixture(scope="module")
def other_elmo(tmp_path_factory):
    made = write_small_model(tmp_path_factory.mktemp("other"), "as_published", seed=8)
    return ELMo.from_pretrained(made.files)


@pytest.fixture
def plane():
    """Occurrences with vectors in a plane, so angles are easy to see; layer 1 is minus layer 0."""
    sentences = [line.split() for line in ("a bank b", "c Bank d", "e bank f", "g shore h", "bank")]
    positions = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 0)]
    # Their mean is (1, 1).
    flat = np.array([(3, 1), (2, 2), (1, 3), (0, 0), (-1, -1)], np.float32)
    vectors = np.stack([flat, -flat], axis=1)
    return Occurrences(sentences, np.array(positions), vectors)


# Queries


@pytest.mark.parametrize(
    ("text", "tokens", "position"),
    [
        ("they [play] cards", ("they", "play", "cards"), 1),
        ("[苹果]", ("苹果",), 0),
        ("the bank by the [bank] .", ("the", "bank", "by", "the", "bank", "."), 4),
        ("see [1 or [x]", ("see", "[1", "or", "x"), 3),
        ("a [[] b", ("a", "[", "b"), 1),
    ],
)
def test_the_marked_token_of_a_query(text, tokens, position):
    assert parse_query(text) == (tokens, position)


@pytest.mark.parametrize(("text", "found"), [("they play cards", 0), ("[they] [play] cards", 2)])
def test_a_query_without_one_marked_token(text, found):
    with pytest.raises(InputError, match=f"exactly one token must be in brackets.*got {found}"):
        parse_query(text)


# Sampling


def test_all_uses_of_words_in_the_order_of_the_text():
    sample = sample_uses(TEXT, WORDS)
    assert uses(sample) == [
        (TEXT[0], "bank"),
        (TEXT[1], "Bank"),
        (TEXT[3], "bank"),
        (TEXT[3], "bank"),
        (TEXT[4], "spring"),
        (TEXT[4], "bank"),
        (TEXT[5], "spring"),
    ]
    assert sample.positions.dtype == np.int64 and len(sample) == 7
    assert sample.positions[2:4].tolist() == [[2, 4], [2, 7]]
    assert sample.counts == {"bank": 5, "spring": 2}
    assert len(sample.sentences) == 5 and sample.labels is None


def test_case_is_told_apart_if_asked_for():
    assert len(sample_uses(TEXT, ["BANK"])) == 5
    assert len(sample_uses(TEXT, ["bank"], match_case=True)) == 4
    assert uses(sample_uses(TEXT, ["Bank"], match_case=True)) == [(TEXT[1], "Bank")]


# Keyboards write some letters in one character where NFC has two, or in two where it has one.
@pytest.mark.parametrize(
    ("typed", "in_nfc"), [("b\ufb2enk", "b\u05d0\u05b7nk"), ("Nai\u0308ve", "Na\u00efve")]
)
@pytest.mark.parametrize("match_case", [False, True])
def test_words_are_compared_in_nfc(typed, in_nfc, match_case):
    for word, token in ((typed, in_nfc), (in_nfc, typed)):
        text = [f"the {token} of", "a river"]
        sample = sample_uses(text, [word], match_case=match_case)
        assert uses(sample) == [(text[0], token)]  # the model reads the token as it is
        assert list(sample.counts.values()) == [1]
        assert sample.of(word, match_case=match_case).tolist() == [0]
        assert sample.targets == [word]
        assert len(sample.of_targets([word], match_case=match_case)) == 1


def test_lists_of_tokens_are_drawn_from_as_lines_are():
    lists = sample_uses([line.split() for line in TEXT], WORDS)
    lines = sample_uses(TEXT, WORDS)
    assert lists.sentences == lines.sentences
    np.testing.assert_array_equal(lists.positions, lines.positions)


def test_words_named_twice_are_drawn_once():
    assert len(sample_uses(TEXT, ["bank", "Bank", "bank"])) == 5


def test_forms_of_a_target_are_drawn_in_proportion():
    """60 of 6,000 occurrences are "banks": 500 drawn ones have 5, within four deviations."""
    lines = ["a banks" if k % 100 == 0 else "the bank" for k in range(6000)]
    sample = sample_uses(lines, ["bank+banks+banked"], max_occurrences=500)
    n_plural = sum(sample.word(k) == "banks" for k in range(len(sample)))
    assert len(sample) == 500 and sample.counts == {"bank+banks+banked": 6000}
    assert 0 < n_plural < 5 + 4 * np.sqrt(5)


def test_targets_that_share_a_form():
    sample = sample_uses(TEXT, ["bank", "bank+spring"])
    assert sample.counts == {"bank": 5, "bank+spring": 7}
    assert Counter(sample.names) == {"bank": 5, "bank+spring": 7}
    assert len(sample.of_targets(["spring"])) == 2
    with pytest.raises(InputError, match="'gone'"):
        sample.of_targets(["spring", "gone"])


def test_all_words_without_numbers_and_marks():
    sample = sample_uses(["In 1990 , he - a man - fell .", "x2 苹 b"], None)
    assert [token for _, token in uses(sample)] == ["In", "he", "man", "fell", "苹"]
    assert sample.counts == {"": 5}


def test_words_with_vowel_signs_accents_and_joiners():
    """In Hindi, Persian, and decomposed French."""
    words = ["हिन्दी", "می\u200cخواهم", "e\u0301te\u0301"]
    sample = sample_uses([[*words, "👨\u200d👩\u200d👧", "\u0301", "।"]], None)
    assert [token for _, token in uses(sample)] == words


def test_each_use_is_as_likely_to_be_drawn():
    """In 2,000 draws of 5 out of 20, each use comes 500 times, within four standard deviations."""
    lines = [f"{k} bank" for k in range(20)]
    drawn = Counter(
        int(sentence[0])
        for seed in range(2000)
        for sentence in sample_uses(lines, ["bank"], max_occurrences=5, seed=seed).sentences
    )
    assert len(drawn) == 20 and sum(drawn.values()) == 10_000
    assert max(abs(count - 500) for count in drawn.values()) < 4 * np.sqrt(2000 * 0.25 * 0.75)


def test_other_words_and_frequencies():
    sample = sample_uses(TEXT, WORDS, n_others=100)
    assert (
        len(sample.of_targets(WORDS)) == 7 and "river" in sample.names and "," not in sample.names
    )
    assert sample.n_tokens == 28 and sample.per_million()["bank"] == pytest.approx(5e6 / 28)
    assert sample.lines.tolist() == [0, 1, 3, 4, 5]
    assert sample.documents([0, 2, 4])[-1] == 2 and sample.documents([0])[-1] == 0


def test_a_draw_depends_on_its_seed_and_word_alone():
    lines = [f"{k} bank spring" for k in range(200)]

    def of_bank(words, seed):
        sample = sample_uses(lines, words, max_occurrences=10, seed=seed)
        return [sentence for sentence, token in uses(sample) if token == "bank"]

    alone = of_bank(["bank"], 0)
    assert len(alone) == 10 and alone == of_bank(["bank"], 0)
    assert alone == of_bank(["spring", "bank"], 0)
    assert alone != of_bank(["bank"], 1)
    of_spring = sample_uses(lines, ["spring"], max_occurrences=10, seed=0)
    assert [sentence for sentence, _ in uses(of_spring)] != alone


MILLION = """
import resource, sys
from bilm.analysis import sample_uses

def lines():
    for k in range(int(sys.argv[1])):
        yield f"sentence {k} has a bank and a spring and a word x{k % 1000} of its own {k * 7}"

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sample = sample_uses(lines(), ["bank", "spring", "x7"], max_occurrences=500)
print(len(sample), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_a_million_sentences_take_no_more_memory_than_the_sample():
    done = subprocess.run(
        [sys.executable, "-c", MILLION, "1000000"], capture_output=True, text=True, check=True
    )
    n, kilobytes = map(int, done.stdout.split())
    assert n == 1500
    # kB on Linux, bytes on macOS.
    assert kilobytes < 20_000 * (1024 if sys.platform == "darwin" else 1)


# Labelled uses


def test_labelled_uses(tmp_path):
    path = tmp_path / "uses.tsv"
    path.write_text("shore\tthe [bank] of it\n\nmoney\t a bank or [bank]\n", encoding="utf-8")
    sample = read_labelled_uses(path)
    assert sample.sentences == [("the", "bank", "of", "it"), ("a", "bank", "or", "bank")]
    assert sample.positions.tolist() == [[0, 1], [1, 3]]
    assert sample.labels == ["shore", "money"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("the [bank]", "must be a label, a tab and a sentence"),
        ("shore\tthe bank", "exactly one token must be in brackets"),
    ],
)
def test_a_line_that_is_no_labelled_use(tmp_path, line, rule):
    path = tmp_path / "uses.tsv"
    path.write_text(f"shore\tthe [bank]\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"uses\.tsv, line 2: .*{rule}"):
        read_labelled_uses(path)


# Encoding


def test_vectors_are_those_of_the_model(elmo):
    sample = sample_uses(TEXT, WORDS)
    occurrences = Occurrences.encoded(elmo, sample)
    assert occurrences.vectors.dtype == np.float32
    assert occurrences.vectors.shape == (7, elmo.n_layers, elmo.dim)
    layers = elmo.encode([list(sentence) for sentence in sample.sentences], "all")
    for vectors, (number, position) in zip(occurrences.vectors, sample.positions, strict=True):
        np.testing.assert_allclose(vectors, layers[number][:, position], rtol=1e-5, atol=1e-6)
    assert occurrences.n_layers == elmo.n_layers and len(occurrences) == 7
    assert set(occurrences.about) == {"model", "sample"}


def test_of_a_query(elmo):
    found = Occurrences.of_query(elmo, "the bank by the [bank]")
    layers = elmo.encode(["the bank by the bank"], "all")[0]
    np.testing.assert_allclose(found.vectors[0], layers[:, 4], rtol=1e-5, atol=1e-6)
    assert found.word(0) == "bank" and found.in_context(0) == "the bank by the [bank]"


def test_a_file_is_written_and_read(elmo, tmp_path):
    sample, file = sample_uses(TEXT, WORDS), tmp_path / "uses.npz"

    def interrupt(stage):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Occurrences.encoded(elmo, sample, file=file, progress=interrupt)
    assert not file.exists()
    stages = []
    whole = Occurrences.encoded(elmo, sample, file=file, progress=stages.append)
    assert stages[-1][1:3] == (7, 7)
    again = Occurrences.encoded(elmo, sample, file=file, progress=interrupt)
    np.testing.assert_array_equal(again.vectors, whole.vectors)
    np.testing.assert_array_equal(Occurrences.load(file).vectors, whole.vectors)
    # The same occurrences, under another name.
    named = sample_uses(TEXT, ["bank+shore", "spring"])
    assert set(Occurrences.encoded(elmo, named, file=file).names) == {"bank+shore", "spring"}


def test_vectors_that_are_not_finite(tmp_path):
    # Nothing is written, since reading a file with such numbers raises an error.
    damaged = ELMo.from_pretrained(write_small_model(tmp_path, "as_published").files)
    kernel = damaged.network.stacks[0].weights[0]
    kernel.assign(kernel * np.float32("nan"))
    with pytest.raises(InputError, match="vectors are not finite: its weights are dam"):
        Occurrences.encoded(damaged, sample_uses(TEXT, WORDS), file=tmp_path / "uses.npz")
    assert not (tmp_path / "uses.npz").exists()


def test_a_file_of_another_model_or_sample_is_refused(elmo, other_elmo, tmp_path):
    sample, file = sample_uses(TEXT, WORDS), tmp_path / "uses.npz"
    Occurrences.encoded(elmo, sample, file=file)
    before = file.read_bytes()
    others = [
        (other_elmo, sample),
        (elmo, sample_uses(TEXT, ["bank"])),
        (elmo, sample_uses([*TEXT[:5], "the spring of the clock"], WORDS)),
        (elmo, replace(sample, labels=["x"] * 7)),
    ]
    for model, of in others:
        with pytest.raises(InputError, match=r"uses\.npz: made with another model"):
            Occurrences.encoded(model, of, file=file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("positions", [[(1, 0)], [(2, 0), (0, 0)]])
def test_a_sample_whose_positions_are_wrong(elmo, positions):
    sentences = [("the", "bank"), (), ("bank",)]
    sample = Sample(sentences, np.array(positions, np.int64).reshape(-1, 2))
    with pytest.raises(InputError, match="sample: positions"):
        Occurrences.encoded(elmo, sample)


# Files


@pytest.fixture
def saved(plane, tmp_path):
    """Occurrences with labels, and the path of their file."""
    made = replace(plane, labels=["A", "B", "A", "水", ""], about={"model": "m", "n": 5})
    path = tmp_path / "plane.npz"
    made.save(path)
    return made, path


def test_what_is_saved_is_loaded(saved):
    made, path = saved
    read = Occurrences.load(path)
    assert [tuple(s) for s in made.sentences] == list(read.sentences)
    np.testing.assert_array_equal(read.positions, made.positions)
    np.testing.assert_array_equal(read.vectors, made.vectors)
    assert read.vectors.dtype == np.float32
    assert read.labels == made.labels and read.about == made.about
    replace(made, labels=None).save(path)
    assert Occurrences.load(path).labels is None


def write_changed(path, **changes):
    """Rewrite the file with changed arrays; None removes an array."""
    with np.load(path) as arrays:
        contents = dict(arrays)
    for name, change in changes.items():
        value = change(contents.get(name))
        if value is None:
            del contents[name]
        else:
            contents[name] = value
    np.savez(path, **contents)


BROKEN = {
    "without vectors": ({"vectors": lambda v: None}, "vectors is not a file in the archive"),
    "pickled": ({"positions": lambda p: np.array([{}], object)}, "allow_pickle=False"),
    "no JSON": ({"text": lambda t: t[:-5]}, ""),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_whose_parts_do_not_fit(saved, kind):
    """SECURITY.md: NumPy files are read without pickles."""
    _, path = saved
    changes, said = BROKEN[kind]
    write_changed(path, **changes)
    with pytest.raises(InputError, match=rf"plane\.npz: .* damaged: .*{said}"):
        Occurrences.load(path)


def array_file():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK", array_file()])
def test_a_file_of_another_kind(tmp_path, content):
    path = tmp_path / "uses.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"uses\.npz: not a file of occurrences"):
        Occurrences.load(path)


def test_a_damaged_file(saved):
    """A truncated file raises an error; a file with a flipped bit does too, or loads unchanged."""
    made, path = saved
    whole = path.read_bytes()
    for end in range(0, len(whole), 37):
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            Occurrences.load(path)
    draw = np.random.default_rng(0)
    for place in draw.choice(len(whole), 150, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(damaged)
        try:
            read = Occurrences.load(path)
        except InputError:
            continue
        np.testing.assert_array_equal(read.vectors, made.vectors)
        np.testing.assert_array_equal(read.positions, made.positions)


# Contexts, layers and neighbours


def test_words_and_their_contexts(plane):
    assert plane.words.tolist() == ["bank", "bank", "bank", "shore", "bank"]
    assert plane.of("BANK").tolist() == [0, 1, 2, 4] and plane.of("shore").tolist() == [3]
    assert not len(plane.of("river"))
    assert plane.word(1) == "Bank" and plane.sentence(1) == ["c", "Bank", "d"]
    assert plane.in_context(1) == "c [Bank] d" and plane.in_context(4) == "[bank]"
    assert plane.in_context(1, 0) == "... [Bank] ..."


def test_a_word_as_it_is_capitalised(plane):
    assert plane.of("BANK").tolist() == [0, 1, 2, 4]
    assert plane.of("Bank", match_case=True).tolist() == [1]
    assert plane.of("BANK", match_case=True).tolist() == []


def test_some_of_them(plane):
    labelled = replace(plane, labels=list("ABCDE"))
    for chosen in (np.array([3, 0]), np.array([True, False, False, True, False])):
        some = labelled.select(chosen)
        numbers = [3, 0] if chosen.dtype != bool else [0, 3]
        assert [some.word(k) for k in range(2)] == [plane.word(k) for k in numbers]
        assert some.labels == ["ABCDE"[k] for k in numbers]
        np.testing.assert_array_equal(some.vectors, plane.vectors[numbers])
    assert plane.select(np.array([2])).labels is None


def test_layers(plane):
    assert plane.n_layers == 2
    np.testing.assert_array_equal(plane.layer(0), -plane.layer("top"))
    np.testing.assert_array_equal(plane.layer(1), plane.layer("top"))
    assert [plane.layer_number(x) for x in (0, np.int64(1), "top", -1)] == [0, 1, 1, 1]


def test_characters_without_a_utf8_form_are_replaced(plane, tmp_path):
    sentences = [tuple(f"{word}\ud812" for word in sentence) for sentence in plane.sentences]
    replace(plane, sentences=sentences, labels=["\udcff"] * len(plane)).save(tmp_path / "a.npz")
    again = Occurrences.load(tmp_path / "a.npz")
    assert again.labels == ["?"] * len(plane)
    assert again.sentences == [tuple(f"{word}?" for word in s) for s in plane.sentences]


def test_directions_have_no_common_part(plane):
    half = np.sqrt(0.5)
    expected = [(1, 0), (half, half), (0, 1), (-half, -half), (-half, -half)]
    np.testing.assert_allclose(plane.directions(0), expected, atol=1e-6)
    np.testing.assert_allclose(plane.directions(), -np.array(expected), atol=1e-6)
    vectors = np.array([[(1, 5)] * 2, [(1, 1)] * 2], np.float32)
    others = replace(plane.select([0, 1]), vectors=vectors)
    np.testing.assert_allclose(plane.directions(0, others), [(0, 1), (0, 0)], atol=1e-6)


def test_neighbours_by_cosine(plane):
    found = plane.neighbours(0, n=3, layer=0)
    assert [number for _, number in found] == [1, 2, 3]
    expected = [np.sqrt(0.5), 0, -np.sqrt(0.5)]
    np.testing.assert_allclose([cosine for cosine, _ in found], expected, atol=1e-6)


def test_neighbours_of_a_query_from_elsewhere(plane):
    vectors = np.array([[(9, 1), (9, 1)]], np.float32)
    query = Occurrences([("my", "Shore", "too")], np.array([(0, 1)]), vectors)
    assert plane.neighbours(query, n=1, layer=0) == [(pytest.approx(1.0), 0)]
    # Layer 1 is negated, with mean (-1, -1): relative to it, the query is (10, 2).
    near = pytest.approx(12 / np.sqrt(2 * 104))
    assert plane.neighbours(query, n=2, layer=1) == [(near, 3), (near, 4)]
    assert len(plane.neighbours(query, n=9, layer=0)) == 5
    with pytest.raises(InputError, match=r"the same layers of one model, got .* \(2, 2\)"):
        plane.neighbours(replace(query, vectors=vectors[:, :1]))


def test_equal_vectors_have_a_cosine_of_one():
    """Layer 0 does not depend on context, and its rounding errors are not taken for directions."""
    sentences = [line.split() for line in ("a bank b", "c bank d", "e bank f")]
    positions = np.array([(0, 1), (1, 1), (2, 1)])
    vectors = np.full((3, 1, 4), 0.1, np.float32) * np.array([1, 1 + 1e-7, 1 - 1e-7])[:, None, None]
    same = Occurrences(sentences, positions, vectors.astype(np.float32))
    assert not same.directions(0).any()
    query = Occurrences([("the", "bank")], positions[:1], vectors[:1].astype(np.float32))
    assert [cosine for cosine, _ in same.neighbours(query)] == [1, 1, 1]
    assert [cosine for cosine, _ in same.neighbours(0)] == [1, 1]


def test_neighbours_are_in_other_sentences_and_contexts():
    lines = ["the bank and the bank", "the bank and so on", "see the bank and so", "my bank"]
    sentences = [line.split() for line in [*lines, "my bank"]]
    positions = np.array([(0, 1), (0, 4), (1, 1), (2, 2), (3, 1), (4, 1)])
    vectors = np.random.default_rng(0).normal(size=(6, 1, 3)).astype(np.float32)
    occurrences = Occurrences(sentences, positions, vectors)
    # 1 is in the same sentence; 2 and 3 have the query's adjacent words, and count once.
    numbers = {number for _, number in occurrences.neighbours(0, n=6)}
    assert len(numbers) == 2 and len(numbers & {2, 3}) == len(numbers & {4, 5}) == 1
    # A query that is also a sentence of the text is not its own neighbour.
    query = Occurrences([("my", "bank")], np.array([(0, 1)]), vectors[:1])
    found = occurrences.neighbours(query, n=6)
    assert not {4, 5} & {number for _, number in found}


def test_a_word_that_occurs_once(plane):
    once = plane.select(plane.of("shore"))
    assert len(once) == 1
    np.testing.assert_array_equal(once.directions(), [[0, 0]])
    assert once.neighbours(0) == []


def test_neighbours_of_each():
    occurrences = two_senses()
    for layer in (0, 1, 2):
        found = occurrences.neighbours_of_each(occurrences, 3, layer)
        assert found == [occurrences.neighbours(k, 3, layer) for k in range(16)]
    first, *_ = occurrences.neighbours_of_each(occurrences, 3, 0)
    assert [cosine for cosine, _ in first] == [1, 1, 1]


def test_clusters_are_saved_and_selected(tmp_path):
    clusters = ["river side"] * 8 + [""] * 8
    occurrences = replace(two_senses(), clusters=clusters)
    occurrences.save(tmp_path / "bank.npz")
    assert Occurrences.load(tmp_path / "bank.npz").clusters == clusters
    assert occurrences.select(np.array([15, 0])).clusters == ["", "river side"]
