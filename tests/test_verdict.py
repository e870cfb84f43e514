"""Verdicts on a model: word frequencies, unknown tokens, and the output of training."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from bilm import BidirectionalLMDataset, LMDataset, load_vocab
from bilm.cli import main
from bilm.training import load_options_latest_checkpoint
from bilm.training import test as score
from bilm.training.verdict import comparable, unigram_perplexity, unknown_warning, verdict
from tests.command_line import make_text, train_arguments


def test_unigram_perplexity_is_that_of_smoothed_frequencies():
    counts, text = np.array([5, 2, 0]), np.array([1, 1, 2])
    # (5 + 1) / 10, (2 + 1) / 10 and 1 / 10.
    expected = math.exp(-(math.log(0.6) + math.log(0.3) + 2 * math.log(0.1)) / 4)
    assert unigram_perplexity(counts, text) == pytest.approx(expected)
    assert unigram_perplexity(np.zeros(7), np.ones(7)) == pytest.approx(7)


def test_unknown_tokens_are_counted_in_each_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("the dog\n\nthe cat sat\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("dog\n", encoding="utf-8")
    vocabulary = load_vocab(tmp_path / "vocab.txt")
    data = LMDataset(tmp_path / "?.txt", vocabulary)
    assert data.word_counts().tolist() == [0, 3, 3, 2, 1]  # three sentences, three unknown
    assert data.unknown_share() == 3 / 6
    assert data.word_counts(2) is data.word_counts()  # the text is not read again
    data = LMDataset(tmp_path / "?.txt", vocabulary)
    assert data.word_counts(2).tolist() == [0, 2, 2, 1, 0]  # one sentence per file
    assert data.unknown_share(2) == 2 / 3

    class Own(LMDataset):
        def get_sentence(self):
            yield np.array([0, 3, 1]), None

    assert Own(tmp_path / "a.txt", vocabulary, test=True).word_counts() is None


def test_a_sample_is_taken_in_proportion_to_the_size_of_the_files(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("<S>\n</S>\n<UNK>\nthe\ncat\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("the\n" * 900, encoding="utf-8")
    (tmp_path / "b.txt").write_text("cat\n" * 100, encoding="utf-8")
    counts = LMDataset(tmp_path / "?.txt", load_vocab(vocabulary)).word_counts(100)
    assert counts.tolist() == [0, 100, 0, 90, 10]


def test_memory_to_count_words_does_not_grow_with_unknown_words(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    with open(tmp_path / "a.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{k} {k}-a {k}-b {k}-c\n" for k in range(100_000))
    data = LMDataset(tmp_path / "a.txt", load_vocab(vocabulary))
    tracemalloc.start()
    counts = data.word_counts()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.tolist() == [0, 100_000, 400_000]
    assert peak < 25e6  # a table of all words takes 45 MB


def test_a_warning_where_perplexity_means_little():
    assert unknown_warning(0.2, "x.txt") is None
    said = unknown_warning(0.94, "x.txt")
    assert said.startswith("94% of the tokens of x.txt are outside the vocabulary")


def test_a_last_measurement_that_comes_soon_replaces_the_one_before_it():
    """After a last epoch of three steps, its perplexity is compared with the epoch before."""
    assert comparable([(100, 508.0), (200, 372.0), (203, 371.8)]) == [508.0, 371.8]
    assert comparable([(100, 508.0), (200, 372.0), (290, 371.8)]) == [508.0, 372.0, 371.8]
    assert comparable([(100, 508.0), (101, 372.0)]) == [508.0, 372.0] and comparable([]) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"perplexity": 100.0, "unigram": 800.0}, "8.0 times lower than the 800.0 of the training"),
        ({"perplexity": 700.0, "unigram": 800.0}, "little beyond word frequencies"),
        ({"perplexity": 900.0, "unigram": 800.0}, "900.0, above the 800.0 of the training text's"),
        ({"perplexity": 10.94, "unigram": 10.9}, "10.9, equal to the 10.9 of the training text's"),
        ({"perplexity": 2.8, "unknown": 0.94}, "2.8, which means little: 94% of the tokens are"),
        ({"perplexity": None}, "Quality: not measured"),
        ({"perplexity": 9.0, "text": "training"}, "Quality: training perplexity 9.0."),
        ({"tokens": 84_000, "passes": 1.04}, "84,000 tokens, 1.0 pass over the text; useful mod"),
        ({"tokens": 8_000_000, "passes": 2.5}, "8,000,000 tokens, 2.5 passes over the text."),
        ({"passes": 1.0}, "Training: amount not known"),
        ({"passes": 0.94}, "More training: is likely to help after so few passes over the text."),
        ({"passes": 1.4}, "More training: is likely to help after so few passes over the text."),
        ({"passes": 2.9}, "More training: is likely to help after so few passes over the text."),
        ({"passes": 9.0}, "More training: not known: measure a held-out text"),
        ({"measurements": [300.0, 200.0]}, "to help: held-out perplexity fell by 33%"),
        ({"measurements": [300.0, 200.0, 199.0]}, "is not likely to help much"),
        ({"measurements": [300.0, 200.0, 210.0]}, "has risen from 200.0 to 210.0. More text"),
        ({"unknown": 0.5}, "first make a vocabulary that covers the text"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_model(facts, said):
    lines = verdict(**{"perplexity": 50.0} | facts)
    assert [line.split(":")[0] for line in lines] == ["Quality", "Training", "More training"]
    assert said in "\n".join(lines)


@pytest.mark.slow
@pytest.mark.eager
def test_a_vocabulary_of_another_language_is_noticed(tmp_path, capsys):
    """Its perplexity is low, but must not be reported as good."""
    text = make_text(tmp_path)
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n猫\n狗\n.\n", encoding="utf-8")
    save_dir = str(tmp_path / "model")
    held_out = ["--heldout_prefix", text.heldout]
    assert main(train_arguments(text, save_dir, "--n_train_tokens=100", *held_out)) == 0
    done = capsys.readouterr()
    assert "--train_prefix: 83.3% of the tokens are outside the vocabulary" in done.err
    assert "warning: 83% of the tokens of the training text are outside the voc" in done.err
    assert "warning: 83% of the tokens of the held-out text are outside the voc" in done.err
    assert "which means little: 83% of the tokens are unknown words" in done.out
    assert "More training: first make a vocabulary" in done.out
    assert main(["test", "--save_dir", save_dir, "--test_prefix", text.heldout]) == 0
    done = capsys.readouterr()
    assert "unknown tokens       83.33%\n" in done.out
    assert f"warning: 83% of the tokens of {text.heldout} are outside the vocabulary" in done.err


@pytest.mark.slow
@pytest.mark.eager
def test_training_ends_with_a_verdict(tmp_path, capsys):
    text = make_text(tmp_path)
    save_dir = str(tmp_path / "model")
    more = ["--heldout_prefix", text.heldout, "--batch_size=12"]
    assert main(train_arguments(text, save_dir, *more)) == 0
    lines = capsys.readouterr().out.splitlines()
    options, checkpoint = load_options_latest_checkpoint(save_dir)
    vocabulary = load_vocab(text.vocabulary, 12)
    counts = LMDataset(text.training, vocabulary).word_counts()
    heldout = BidirectionalLMDataset(text.heldout, vocabulary, test=True)
    unigram = unigram_perplexity(counts, heldout.word_counts())
    perplexity = score(options, checkpoint, heldout)
    assert perplexity.unknown == pytest.approx(2 / 30) and perplexity > unigram
    assert lines[2].startswith(
        f"Quality: held-out perplexity {perplexity:.1f}, above the {unigram:.1f} of the training "
    )
    assert lines[3:] == [
        "Training: 480 tokens, 1.0 pass over the text; useful models have seen millions.",
        "More training: is likely to help after so few passes over the text.",
    ]
