"""Options, vocabularies, records and TF_CONFIG of any content: read right, or refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.core.errors import InputError
from bilm.core.options import Options, preset
from bilm.data import UnicodeCharsVocabulary, Vocabulary
from bilm.data.vocabulary import NOT_A_TOKEN
from tests import oracle
from tests.anything import changed, json_values, texts, tokens, works_or_refuses
from tests.fuzz.formats import HELDOUT, RUN, STATE
from tests.small_runs import small_options

TRAINING = small_options("short_words_261", n_tokens_vocab=10, all_clip_norm_val=10.0)
INFERENCE = oracle.MODELS["as_published"] | {
    "char_cnn": oracle.MODELS["as_published"]["char_cnn"]
    | {"dictionary": {"n_characters": 261, "n_words": 3, "word_dim": 2}}
}
RECORD = {
    "step": 5, "done": 4, "batch_shape": [2, 5], "seconds": 1.5, "train_perplexity": 9.0,
    "seed": 0, "run": RUN | {"init_from": None}, "heldout": HELDOUT, "iterator_state": STATE,
}  # fmt: skip


# Options


@given(st.one_of(changed(TRAINING), changed(preset("tiny")), json_values))
def test_training_options(values):
    with works_or_refuses():
        if not isinstance(values, dict):
            raise InputError("what is no object is refused where the file is read")
        options = Options.from_dict(values, training=True, source="x.json")
        again = options.training_dict()
        assert Options.from_dict(json.loads(json.dumps(again)), training=True) == options


@given(changed(INFERENCE))
def test_inference_options(values):
    with works_or_refuses():
        if not isinstance(values, dict):
            raise InputError("as above")
        options = Options.from_dict(values, training=False, source="x.json")
        again = Options.from_dict(options.inference_dict(), training=False)
        assert (again.lstm, again.char_cnn) == (options.lstm, options.char_cnn)


# Vocabularies


def written(content, suffix="vocab.txt"):
    """A file with this content, in a folder that goes with it."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, suffix)
    path.write_bytes(content)
    return folder, path


@st.composite
def contents(draw):
    """Bytes: words in lines with the special ones among them more often than not, or any."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=60))
    words = draw(st.lists(texts, max_size=8))
    if draw(st.integers(0, 3)):
        words = draw(st.permutations([*words, "<S>", "</S>", "<UNK>"]))
    end = draw(st.sampled_from(("\n", "\r\n", "\n\n")))
    start = draw(st.sampled_from(("", "\ufeff")))
    return (start + end.join(words)).encode("utf-8", "surrogatepass")


@given(contents(), st.booleans(), tokens)
def test_a_vocabulary_of_any_content(content, validate, word):
    folder, path = written(content)
    with folder, works_or_refuses():
        vocabulary = UnicodeCharsVocabulary(path, 7, validate)
        words = [vocabulary.id_to_word(k) for k in range(vocabulary.size)]
        assert [vocabulary.id_to_word(k) for k in vocabulary.known_ids(words)] == words
        assert vocabulary.decode(range(len(words))) == " ".join(words)
        assert vocabulary.word_char_ids.shape == (len(words), 7)
        number = vocabulary.word_to_id(word)
        assert vocabulary.id_to_word(number) in (word, "<UNK>")


@given(st.lists(tokens.filter(lambda w: not {"\r", "\n"} & {*w}), max_size=9), st.booleans())
def test_the_words_of_a_vocabulary_are_its_lines(words, marked):
    lines = ["<S>", *(w.encode("utf-8", "ignore").decode() for w in words), "</S>", "<UNK>"]
    content = "\n".join(lines).encode("utf-8-sig" if marked else "utf-8")
    folder, path = written(content)
    with folder:
        vocabulary = Vocabulary(path)
    expected = [line.strip() for line in lines if line.strip() != NOT_A_TOKEN]
    assert [vocabulary.id_to_word(k) for k in range(vocabulary.size)] == expected
    ids = {word: number for number, word in enumerate(expected)}
    assert vocabulary.word_ids(expected).tolist() == [ids[word] for word in expected]
    encoded = vocabulary.encode([*expected, "not there"], split=False).tolist()
    assert encoded == [ids["<S>"], *(ids[w] for w in expected), ids["<UNK>"], ids["</S>"]]


# Records of checkpoints, TF_CONFIG


@given(st.one_of(changed(RECORD), json_values))
def test_a_record_of_a_checkpoint(values):
    from bilm.training.state import RunState

    with works_or_refuses():
        record = RunState.from_dict(values, "model.ckpt-5")
        again = json.loads(json.dumps(record.to_dict()))
        assert RunState.from_dict(again, "again") == record


CLUSTER = {
    "cluster": {"chief": ["host:1"], "worker": ["host:2", "host:3"]},
    "task": {"type": "worker", "index": 1},
}


@given(st.one_of(changed(CLUSTER).map(json.dumps), json_values.map(repr), texts))
def test_tf_config(text):
    from bilm.training.replicas import find_worker

    with works_or_refuses():
        worker = find_worker({"TF_CONFIG": text})
        assert 0 <= worker.index < worker.count <= 4


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"{" * 10, b"[1]", b'{"a": 1e999}'])
def test_json_files_of_other_content(content):
    folder, path = written(content, "options.json")
    with folder, pytest.raises(InputError, match=r"options\.json"):
        Options.from_file(path, training=False)
