"""Small random corpora, and a slow reference for how they fill batches."""

from __future__ import annotations

import itertools
import random

import numpy as np

from bilm.data import UnicodeCharsVocabulary

# Some are in the small vocabulary, one is longer than it allows, two are <S> and </S>.
WORDS = ["a", "b", "of", "the", "苹果", "Größe", "<S>", "out", "unheard-of", "x" * 70, "</S>"]
IN_VOCABULARY = 6


def small_vocabulary(folder):
    path = folder / "vocab.txt"
    lines = ["</S>", "<S>", "<UNK>", *WORDS[:IN_VOCABULARY]]
    path.write_text("\n".join(lines), encoding="utf-8")
    return UnicodeCharsVocabulary(path, 12)


def write_shards(folder, *shards):
    """Write shards (lists of sentences, each a list of words) and return their glob."""
    for number, shard in enumerate(shards):
        lines = [" ".join(sentence) for sentence in shard]
        path = folder / f"shard-{number:02}.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "shard-*.txt")


def random_shards(seed, n_shards, longest=12, sentences=9):
    draw = random.Random(seed)
    return [
        [
            draw.choices(WORDS, k=draw.choice([1, 1, 2, 3, longest, 2 * longest]))
            for _ in range(draw.randint(1, sentences))
        ]
        for _ in range(n_shards)
    ]


def slow_batches(sentences, batch_size, num_steps):
    """Reference batches: lists of rows, each a list of (input word, target word)."""
    stream = iter(sentences)
    rows = [[] for _ in range(batch_size)]
    while True:
        batch = []
        for row in rows:
            while len(row) < num_steps:
                sentence = next(stream, None)
                if sentence is None:
                    break
                row.extend(itertools.pairwise(sentence))
            batch.append(row[:num_steps])
            del row[:num_steps]
        if not any(batch):
            return
        yield batch


def both_directions(sentences):
    """The sentences with <S> and </S>, in forward and in backward reading order."""
    forward = [["<S>", *sentence, "</S>"] for sentence in sentences]
    return forward, [sentence[::-1] for sentence in forward]


def check_stream(vocab, stream, characters, mask, expected):
    for row, pairs in enumerate(expected):
        n = len(pairs)
        assert mask[row].tolist() == [True] * n + [False] * (mask.shape[1] - n)
        inputs, targets = zip(*pairs, strict=True) if pairs else ((), ())
        assert stream.token_ids[row, :n].tolist() == [vocab.word_to_id(w) for w in inputs]
        assert stream.next_token_id[row, :n].tolist() == [vocab.word_to_id(w) for w in targets]
        assert not stream.token_ids[row, n:].any()
        assert not stream.next_token_id[row, n:].any()
        for column, word in enumerate(inputs):
            np.testing.assert_array_equal(
                characters[stream.words[row, column]], vocab.word_to_char_ids(word)
            )


def check_batch(vocab, batch, forward, backward):
    assert len(batch.streams) == 2
    assert batch.mask.dtype == np.bool_
    assert batch.characters.dtype == np.uint16
    assert len(np.unique(batch.characters, axis=0)) <= len(batch.characters)
    for stream, expected in zip(batch.streams, (forward, backward), strict=True):
        assert all(array.dtype == np.int32 for array in stream)
        check_stream(vocab, stream, batch.characters, batch.mask, expected)


def assert_same(batch, other):
    for stream, expected in zip(batch.streams, other.streams, strict=True):
        for array, values in zip(stream, expected, strict=True):
            np.testing.assert_array_equal(array, values)
    np.testing.assert_array_equal(batch.characters, other.characters)
    np.testing.assert_array_equal(batch.mask, other.mask)
    assert batch.state == other.state
