"""Sharding a corpus: no sentence is lost or repeated, and the result is reproducible."""

from __future__ import annotations

import gzip
import itertools
import random
from collections import Counter

import pytest

from bilm.core.errors import InputError
from bilm.data import shard_corpus
from bilm.data.sharding import shuffled
from tests.compare import contents

SENTENCES = [f"sentence {number} {'苹果 ' * (number % 5)}." for number in range(1000)]


def write_text(folder):
    """Write three files with empty lines; return their glob and the number of empty lines."""
    (folder / "text").mkdir()
    lines = [line for sentence in SENTENCES for line in (sentence, *[" "] * (len(sentence) % 2))]
    parts = ["\n".join(lines[:500]), "\r\n".join(lines[500:900]), "\n".join(lines[900:]) + "\n"]
    for number, part in enumerate(parts):
        opened = gzip.open if number == 1 else open
        name = f"{number}.txt.gz" if number == 1 else f"{number}.txt"
        with opened(folder / "text" / name, "wt", encoding="utf-8", newline="") as file:
            file.write(part)
    return str(folder / "text" / "*.txt*"), len(lines) - len(SENTENCES)


def read(path):
    return path.read_bytes().decode("utf-8").splitlines()


def sentences_in(folder):
    """The sentences of each shard by its name."""
    return {path.name: read(path) for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("bucket_bytes", [10**6, 900])
def test_every_sentence_is_in_one_shard(tmp_path, bucket_bytes):
    pattern, n_empty = write_text(tmp_path)
    made = shard_corpus(
        pattern, tmp_path / "out", n_shards=7, heldout=150, bucket_bytes=bucket_bytes
    )
    shards = sentences_in(tmp_path / "out")
    assert [*shards] == ["heldout-00.txt", "heldout-01.txt"] + [f"train-0{n}.txt" for n in range(7)]
    assert Counter(line for lines in shards.values() for line in lines) == Counter(SENTENCES)
    assert sum(len(lines) for name, lines in shards.items() if name.startswith("held")) == 150
    training = [lines for name, lines in shards.items() if name.startswith("train")]
    if bucket_bytes > 1000:
        assert {len(lines) for lines in training} <= {121, 122}
    assert (made.n_empty_lines, made.training.n_sentences, made.training.n_files) == (
        n_empty,
        850,
        7,
    )
    assert made.training.pattern == str(tmp_path / "out" / "train-*.txt")
    assert made.heldout is not None
    assert (made.heldout.n_sentences, made.heldout.n_files) == (150, 2)
    assert made.heldout.pattern == str(tmp_path / "out" / "heldout-*.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text"]


def test_shards_are_shuffled_and_each_has_sentences_of_the_whole_corpus(tmp_path):
    pattern, _ = write_text(tmp_path)
    shard_corpus(pattern, tmp_path / "out", n_shards=4, heldout=0.2)
    number = {sentence: n for n, sentence in enumerate(SENTENCES)}
    for lines in sentences_in(tmp_path / "out").values():
        places = [number[line] for line in lines]
        assert places != sorted(places)
        tenths = Counter(place // 100 for place in places)
        assert len(tenths) == 10 and min(tenths.values()) >= 8
        # Early and late sentences are mixed: both halves have about the same mean position.
        half = places[: len(places) // 2]
        assert abs(sum(half) / len(half) - 500) < 100


def test_a_shuffle_has_all_orders_alike():
    draw = random.Random(3).random
    orders = Counter(tuple(shuffled([0, 1, 2], draw)) for _ in range(6000))
    assert len(orders) == 6 and all(900 < n < 1100 for n in orders.values())
    assert shuffled([], draw) == []


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    pattern, _ = write_text(tmp_path)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        shard_corpus(pattern, tmp_path / name, n_shards=3, heldout=0.01, seed=seed)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert sentences_in(tmp_path / "a").keys() == sentences_in(tmp_path / "c").keys()
    assert all(
        sentences_in(tmp_path / "a")[name] != lines
        for name, lines in sentences_in(tmp_path / "c").items()
    )


def test_the_shuffle_is_that_of_every_version(tmp_path):
    """A seed must give the same shards in every version."""
    (tmp_path / "a.txt").write_text("".join(f"{n}\n" for n in range(10)), encoding="utf-8")
    shard_corpus(tmp_path / "a.txt", tmp_path / "out", n_shards=2, heldout=2, seed=5)
    assert sentences_in(tmp_path / "out") == {
        "heldout-00.txt": ["4", "5"],
        "train-00.txt": ["6", "0", "2", "9"],
        "train-01.txt": ["1", "7", "8", "3"],
    }


def test_a_killed_run_leaves_nothing_behind_after_the_next_one(tmp_path):
    pattern, _ = write_text(tmp_path)
    left = tmp_path / "out" / ".buckets.partial"
    left.mkdir(parents=True)
    (left / "train-0.0").write_text("half a sent", encoding="utf-8")
    shard_corpus(pattern, tmp_path / "out", n_shards=2)
    shards = sentences_in(tmp_path / "out")
    assert [*shards] == ["train-00.txt", "train-01.txt"]
    assert Counter(itertools.chain(*shards.values())) == Counter(SENTENCES)


def test_shards_by_size(tmp_path):
    pattern, _ = write_text(tmp_path)
    made = shard_corpus(pattern, tmp_path / "out", shard_bytes=5000)
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert made.training.n_files == len(sizes) == -(-sum(sizes) // 5000) and made.heldout is None
    assert max(sizes) < 5300
    assert shard_corpus(pattern, tmp_path / "one").training.n_files == 1
    # There are at most as many files as sentences.
    (tmp_path / "short.txt").write_text("a\nb\n" * 60, encoding="utf-8")
    made = shard_corpus(tmp_path / "short.txt", tmp_path / "all", shard_bytes=1)
    assert made.training.n_files == 120 and (tmp_path / "all" / "train-007.txt").exists()


@pytest.mark.parametrize(("heldout", "expected"), [(0, 0), (3, 3), (0.25, 250)])
def test_held_out_sentences_are_as_many_as_asked_for(tmp_path, heldout, expected):
    pattern, _ = write_text(tmp_path)
    made = shard_corpus(pattern, tmp_path / "out", heldout=heldout)
    assert (made.heldout.n_sentences if made.heldout else 0) == expected
    assert made.training.n_sentences == 1000 - expected


def test_a_folder_with_other_files_keeps_them(tmp_path):
    pattern, _ = write_text(tmp_path)
    (tmp_path / "out" / "train-me").mkdir(parents=True)
    (tmp_path / "out" / "notes.md").write_text("notes", encoding="utf-8")
    shard_corpus(pattern, tmp_path / "out", n_shards=2)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["notes.md", "train-00.txt", "train-01.txt", "train-me"]


@pytest.mark.parametrize("name", ["train-00.txt", "heldout-3.txt.gz"])
def test_shards_are_never_overwritten(tmp_path, name):
    pattern, _ = write_text(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"out' must hold no shards, which are never"):
        shard_corpus(pattern, tmp_path / "out")
    assert contents(tmp_path / "out") == {name: b"mine"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_shards": 951, "heldout": 50}, r"n_shards must be at most .*, 950, got 951\."),
        ({"heldout": -1}, r"a proportion between 0 and 1, got -1\."),
    ],
)
def test_refusals_leave_nothing_behind(tmp_path, arguments, message):
    pattern, _ = write_text(tmp_path)
    with pytest.raises(InputError, match=message):
        shard_corpus(pattern, tmp_path / "out", **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("more", ["one more\n", None])
def test_text_that_changes_while_it_is_read(tmp_path, more):
    pattern, _ = write_text(tmp_path)
    path = tmp_path / "text" / "2.txt"

    def change(stage):
        if stage.doing == "measuring" and stage.done == stage.total:
            path.write_text(path.read_text("utf-8") + more if more else "", "utf-8")

    with pytest.raises(InputError, match=r"The text must not change while it is read\."):
        shard_corpus(pattern, tmp_path / "out", progress=change)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_shards_that_appear_in_the_meantime_are_not_overwritten(tmp_path):
    pattern, _ = write_text(tmp_path)
    (tmp_path / "out").mkdir()

    def other(stage):
        if stage.doing == "writing":
            (tmp_path / "out" / "train-00.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(InputError, match="would be overwritten"):
        shard_corpus(pattern, tmp_path / "out", progress=other)
    assert contents(tmp_path / "out") == {"train-00.txt": b"mine"}
