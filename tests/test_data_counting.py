"""Building a vocabulary from text."""

from __future__ import annotations

import gzip
import lzma
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import bilm
from bilm.core.errors import InputError
from bilm.data import Vocabulary, build_vocabulary, count_words, write_vocabulary

# Separators of every length in UTF-8; splitting bytes does not recognise the last three.
SEPARATORS = (" ", "\n", "\t", "\r\n", "  ", "\n\n", "\u00a0", "\u3000", "\u2028")


def random_text(seed, n_words=400):
    draw = random.Random(seed)
    words = [f"w{int(draw.paretovariate(0.7))}" for _ in range(n_words - 4)]
    words += ["苹果", "Größe", "😀", "é" * 30]
    draw.shuffle(words)
    return "".join(word + draw.choice(SEPARATORS) for word in words)


@pytest.fixture
def corpus(tmp_path):
    """Three files, one of them uncompressed; returns the glob and the word counts."""
    folder = tmp_path / "text"
    folder.mkdir()
    texts = [random_text(seed) for seed in range(3)]
    (folder / "a.txt").write_text(texts[0], encoding="utf-8", newline="")
    for name, text, module in (("b.txt.gz", texts[1], gzip), ("c.txt.xz", texts[2], lzma)):
        with module.open(folder / name, "wt", encoding="utf-8", newline="") as file:
            file.write(text)
    return str(folder / "*.txt*"), Counter(" ".join(texts).split())


def ranked(counts):
    return sorted(counts, key=lambda word: (-counts[word], word))


# Counting in memory


def test_count_words_of_all_files(tmp_path):
    (tmp_path / "a.txt").write_text("b a\n\n  b\tc \n", encoding="utf-8")
    with lzma.open(tmp_path / "b.txt.xz", "wt", encoding="utf-8") as file:
        file.write("b ä")
    assert count_words(tmp_path / "*.txt*") == {"b": 3, "a": 1, "c": 1, "ä": 1}


def test_written_by_falling_count_then_by_word(tmp_path):
    path = tmp_path / "vocab.txt"
    counts = {"b": 2, "a": 2, "z": 5, "rare": 1, "<S>": 9, "<UNK>": 7, "!!!MAXTERMID": 8}
    assert write_vocabulary(path, counts, min_count=2) == 6
    assert path.read_text(encoding="utf-8").split() == ["<S>", "</S>", "<UNK>", "z", "a", "b"]
    assert Vocabulary(path, validate_file=True).size == 6
    write_vocabulary(tmp_path / "vocab.txt.xz", counts, min_count=2)
    assert lzma.decompress((tmp_path / "vocab.txt.xz").read_bytes()) == path.read_bytes()


@pytest.mark.parametrize(
    ("counts", "arguments", "message"),
    [
        ({"a": 1}, {"min_count": 2}, r"No word occurs 2 times or more\."),
        ({"a b": 1}, {}, "'a b' cannot be in a vocabulary: it is not"),
    ],
)
def test_refusals_leave_what_is_there(tmp_path, counts, arguments, message):
    path = tmp_path / "vocab.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        write_vocabulary(path, counts, **arguments)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


# Counting text of any size


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_result_is_exact_and_depends_on_the_text_alone(corpus, jobs, tmp_path):
    pattern, counts = corpus
    made = build_vocabulary(pattern, tmp_path / "vocab.txt", jobs=jobs)
    words = ranked(counts)
    written = (tmp_path / "vocab.txt").read_text(encoding="utf-8")
    assert written == "".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *words])
    assert (made.n_tokens, made.n_types, made.n_words) == (1200, len(counts), len(counts))
    assert made.coverage == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "vocab.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_processes_count_what_one_counts(corpus, jobs):
    pattern, counts = corpus
    stages = []
    found = count_words(pattern, jobs=jobs, least_block=1000, progress=stages.append)
    assert found == counts
    assert stages[0].done == 0 and stages[-1].done == stages[-1].total
    done = [stage.done for stage in stages]
    assert done == sorted(done)
    assert multiprocessing.active_children() == []


def test_the_order_of_files_and_a_file_named_twice_change_nothing(corpus, tmp_path):
    pattern, counts = corpus
    folder = tmp_path / "text"
    (folder / "also-a").symlink_to(folder / "a.txt")
    files = [folder / name for name in ("c.txt.xz", "a.txt", "b.txt.gz", "also-a")]
    made = build_vocabulary([*files, pattern], tmp_path / "vocab.txt")
    assert made.n_tokens == counts.total()


def test_cut_by_count_and_by_size(corpus, tmp_path):
    pattern, counts = corpus
    kept = [word for word in ranked(counts) if counts[word] >= 3]
    made = build_vocabulary(pattern, tmp_path / "vocab.txt", min_count=3)
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split()[3:] == kept
    assert (made.n_words, made.size, made.n_types) == (len(kept), len(kept) + 3, len(counts))
    made = build_vocabulary(pattern, tmp_path / "vocab.txt", min_count=3, max_size=8)
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split()[3:] == kept[:5]
    assert made.n_covered == sum(counts[word] for word in kept[:5])
    assert made.coverage == made.n_covered / counts.total()


def test_special_tokens_in_the_text_are_no_words(tmp_path, caplog):
    (tmp_path / "a.txt").write_text("<S> a a </S>\n<S> !!!MAXTERMID </S>\n", encoding="utf-8")
    made = build_vocabulary(tmp_path / "a.txt", tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split()[3:] == ["a"]
    assert (made.n_tokens, made.n_types, made.n_words, made.n_covered) == (7, 4, 1, 2)
    assert "the text holds <S> 2 times" in caplog.text


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_a_byte_order_mark_is_not_counted_with_the_first_word(tmp_path, opened):
    path = tmp_path / ("text.txt" if opened is open else "text.txt.gz")
    with opened(path, "wb") as file:
        file.write("\ufeffone two\none two one\n".encode())
    assert count_words(path) == {"one": 3, "two": 2}


def test_refusals_to_build_leave_what_is_there(corpus, tmp_path):
    target = tmp_path / "vocab.txt"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(InputError, match=r"No word occurs 1000000 times or more\."):
        build_vocabulary(corpus[0], target, min_count=10**6)
    assert target.read_text(encoding="utf-8") == "old"
    with pytest.raises(InputError, match="is an input"):
        build_vocabulary(corpus[0], tmp_path / "text" / "a.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "vocab.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", ["a.txt", "b.txt.gz"])
def test_bad_text_is_named_by_file_and_line(corpus, name, jobs, tmp_path):
    with (gzip.open if name.endswith("gz") else open)(tmp_path / "text" / name, "wb") as file:
        file.write(b"fine\n" * 499 + b"wrong \xe9t\xe9\n" + b"fine\n" * 500)
    message = rf"{name}, line 500: not UTF-8: byte 6 is 0xe9\."
    with pytest.raises(InputError, match=message):
        count_words(corpus[0], jobs=jobs, least_block=1000)
    with pytest.raises(InputError, match=message):
        build_vocabulary(corpus[0], tmp_path / "vocab.txt", jobs=jobs)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_killed_process_is_reported(tmp_path):
    path = tmp_path / "large.txt"
    path.write_text("".join(f"w{n}\n" for n in range(2_000_000)), encoding="utf-8")

    def kill():
        while not (children := multiprocessing.active_children()):
            time.sleep(0.01)
        time.sleep(0.1)  # let all of them start
        os.kill(children[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(InputError, match="process was killed"):
        count_words(path, jobs=2, least_block=1000)
    killer.join(10)


@pytest.mark.slow
def test_an_error_in_the_caller_ends_the_processes(tmp_path):
    path = tmp_path / "large.txt"
    path.write_text("".join(f"w{n}\n" for n in range(2_000_000)), encoding="utf-8")

    def interrupted(stage):
        if multiprocessing.active_children():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_words(path, jobs=2, least_block=1000, progress=interrupted)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_the_processes_end_with_the_one_that_started_them(tmp_path):
    path = tmp_path / "large.txt"
    path.write_text("".join(f"w{n}\n" for n in range(4_000_000)), encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, os, signal, sys\n"
        "from bilm.data.counting import count_words\n"
        "def show(stage):\n"
        "    if multiprocessing.active_children():\n"
        "        print(*(child.pid for child in multiprocessing.active_children()), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    count_words(sys.argv[1], jobs=2, least_block=1000, progress=show)\n",
        encoding="utf-8",
    )
    # The pipe of standard error is closed when the last process has ended.
    done = subprocess.run(
        [sys.executable, program, path], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(bilm.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2
