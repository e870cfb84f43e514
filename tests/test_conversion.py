"""`bilm convert`: converted ELMoForManyLangs models give the original's vectors, and a pickle with
anything but tensors is rejected before any of it runs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path

import h5py
import numpy as np
import pytest

import bilm
from bilm import ELMo, InputError
from bilm.cli import main
from bilm.files.torch_file import read_tensors
from bilm.use.many_langs import convert_many_langs

FIXTURES = Path(__file__).parent / "fixtures" / "many_langs"
KINDS = ("words_legacy", "characters_zip")


@pytest.fixture(scope="module", params=[KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.slow)])
def converted(request, tmp_path_factory):
    """(the original folder, the converted folder)."""
    target = tmp_path_factory.mktemp("converted") / "elmo"
    assert main(["convert", str(FIXTURES / request.param), str(target)]) == 0
    return FIXTURES / request.param, target


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(FIXTURES / "words_legacy", tmp_path / "model")


def convert(folder):
    convert_many_langs(folder, folder / "out.hdf5", folder / "out.json")


def message_of(folder):
    with pytest.raises(InputError) as caught:
        convert(folder)
    assert not (folder / "out.hdf5").exists()
    return str(caught.value)


def change_json(path, *keys_and_value):
    *keys, last, value = keys_and_value
    whole = part = json.loads(path.read_text(encoding="utf-8"))
    for key in keys:
        part = part[key]
    part[last] = value
    path.write_text(json.dumps(whole), encoding="utf-8")


# The vectors


def test_vectors_are_those_of_the_other_program(converted):
    source, target = converted
    expected = json.loads((source / "expected.json").read_text(encoding="utf-8"))
    elmo = ELMo.from_pretrained(target)
    assert sorted(os.listdir(target)) == ["model.hdf5", "options.json"]
    for sentences in (expected["sentences"], expected["sentences"][::-1]):
        vectors = elmo.encode(sentences, "all")
        layers = expected["layers"][:: 1 if sentences[0][0] == "the" else -1]
        for found, wanted in zip(vectors, layers, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


def test_long_words_are_cut_by_characters(converted):
    elmo = ELMo.from_pretrained(converted[1])
    long, short = elmo.encode([["ß" * 9 + "x"], ["ß" * 8]], "all")
    np.testing.assert_allclose(long, short, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_token_cache_of_a_converted_model(converted, tmp_path):
    _, target = converted
    words = ["<S>", "</S>", "<UNK>", "the", "cat", "猫"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    files = (target / "options.json", target / "model.hdf5", tmp_path / "cache.hdf5")
    bilm.dump_token_embeddings(tmp_path / "vocab.txt", *files)
    elmo = ELMo.from_pretrained(target)
    expected = elmo.encode(["the 猫"], "all")[0]
    model = bilm.BidirectionalLanguageModel(
        *files[:2], use_character_inputs=False, embedding_weight_file=files[2]
    )
    ids = bilm.TokenBatcher(tmp_path / "vocab.txt").batch_sentences([["the", "猫"]])
    np.testing.assert_allclose(model(ids)["lm_embeddings"][0], expected, rtol=1e-5, atol=1e-6)
    cached = ELMo.from_pretrained(
        target, vocab_file=tmp_path / "vocab.txt", embedding_weight_file=files[2]
    )
    for sentence in ("the 猫", "the unheard-of cat"):
        found, wanted = (e.encode([sentence], "all")[0] for e in (cached, elmo))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_cannot_use_a_converted_model_says_so(converted):
    _, target = converted
    with h5py.File(target / "model.hdf5") as file:
        # Programs that expect rows for bytes find no char_embed.
        assert "char_embed" not in file and "dictionary/char_embed" in file
    files = (target / "options.json", target / "model.hdf5")
    with pytest.raises(InputError, match="use_character_inputs must be False"):
        bilm.BidirectionalLanguageModel(*files)
    options = json.loads(files[0].read_text(encoding="utf-8")) | {"n_tokens_vocab": 9}
    with pytest.raises(InputError, match=r"char_cnn.dictionary must be missing:"):
        bilm.LanguageModel(options, is_training=False)


@pytest.mark.eager
def test_info_and_embed_take_a_converted_model(converted, tmp_path, capsys):
    _, target = converted
    assert main(["info", str(target)]) == 0
    assert "; dictionary n characters 18; " in capsys.readouterr().out
    (tmp_path / "text.txt").write_text("the cat\n", encoding="utf-8")
    out = str(tmp_path / "out.hdf5")
    assert main(["embed", str(tmp_path / "text.txt"), out, "--model", str(target), "--all"]) == 0
    with h5py.File(out) as file:
        expected = ELMo.from_pretrained(target).encode(["the cat"], "all")[0]
        np.testing.assert_allclose(file["0"][...], expected, atol=1e-6)


def test_a_zip_file_is_converted_as_its_folder(tmp_path):
    folder = FIXTURES / "characters_zip"
    archive = tmp_path / "144.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, f"144/{path.name}")
    assert main(["convert", str(archive), str(tmp_path / "elmo")]) == 0
    convert_many_langs(folder, tmp_path / "out.hdf5", tmp_path / "out.json")
    zipped = ELMo.from_pretrained(tmp_path / "elmo")
    plain = ELMo.from_pretrained((tmp_path / "out.json", tmp_path / "out.hdf5"))
    assert zipped.fingerprint() == plain.fingerprint()


@pytest.mark.eager
def test_the_programs_own_sizes_need_no_file(copy):
    change_json(copy / "config.json", "config_path", "configs/cnn_50_100_512_4096_sample.json")
    (copy / "sizes.json").unlink()
    assert "embedding.weight: must have shape" in message_of(copy)


# Files that do not fit


def test_files_that_are_missing(copy, tmp_path):
    (copy / "word.dic").unlink()
    with pytest.raises(FileNotFoundError, match=r"The dictionary '.*word.dic' does not exist"):
        convert(copy)
    shutil.copy(copy / "encoder.pkl", copy / "token_embedder.pkl")
    assert "token_embedder.pkl" in message_of(copy)
    (copy / "encoder.pkl").unlink()
    assert "must be an ELMoForManyLangs model" in message_of(copy)
    with pytest.raises(FileNotFoundError, match=r"The model '.*nowhere' does not exist"):
        convert(tmp_path / "nowhere")


def test_files_that_hold_no_model(tmp_path):
    made = (tmp_path / "out.hdf5", tmp_path / "out.json")
    (tmp_path / "text.txt").write_text("text", encoding="utf-8")
    with pytest.raises(InputError, match=r"text.txt must be a folder or a ZIP file"):
        convert_many_langs(tmp_path / "text.txt", *made)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(InputError, match=r"x.zip must be an ELMoForManyLangs model"):
        convert_many_langs(tmp_path / "x.zip", *made)
    with pytest.raises(InputError, match=r"`bilm convert .*words_legacy FOLDER`"):
        ELMo.from_pretrained(FIXTURES / "words_legacy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("token_embedder", "filters", [[1]]), "sizes.json: "),
        (("encoder", "dim", 8), "input_linearity.weight: must have shape"),
        (("token_embedder", "n_highway", 1), "unexpected: highways._layers.1.bias"),
    ],
)
def test_configurations_that_do_not_fit(copy, change, message):
    change_json(copy / "sizes.json", *change)
    assert message in message_of(copy)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a\tb\t1", "a token, a tab and an id below 10, got 'a\\tb\\t1'"),
        ("a\t10", "an id below 10, got"),
    ],
)
def test_dictionaries_that_do_not_fit(copy, line, message):
    with open(copy / "word.dic", "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    found = message_of(copy)
    assert "word.dic, line 11: " in found and message in found


def test_a_dictionary_is_read_as_the_program_reads_it(copy, tmp_path):
    """A token that strip() removes is read as U+3000; a byte order mark is kept."""
    text = (copy / "word.dic").read_text(encoding="utf-8").split("\n")
    text[4], text[5] = "\ufeffx\t4", "\u00a0\t5"
    (copy / "word.dic").write_text("\n".join(text), encoding="utf-8")
    convert(copy)
    with h5py.File(copy / "out.hdf5") as file:
        words = file["tokens/words"][...].tobytes().decode().split("\n")
    assert words[4:6] == ["\ufeffx", "\u3000"]


def test_weights_whose_dictionaries_are_gone(converted, tmp_path):
    _, target = converted
    folder = shutil.copytree(target, tmp_path / "elmo")
    with h5py.File(folder / "model.hdf5", "r+") as file:
        del file["tokens/characters"]
    with pytest.raises(InputError, match=r"must hold 18 characters and \d+ words, got 0 and"):
        ELMo.from_pretrained(folder)
    rows = np.frombuffer("\n".join("abcdefghijklmnopqr").encode(), np.uint8)
    with h5py.File(folder / "model.hdf5", "r+") as file:
        file["tokens/characters"] = rows
    with pytest.raises(InputError, match="the dictionaries lack <bos>, <eos>, <oov>"):
        ELMo.from_pretrained(folder)


# Pickles


class Harm:
    """An object that calls a function, such as os.mkdir, when it is unpickled."""

    def __init__(self, call, *arguments):
        self._what = (call, arguments)

    def __reduce__(self):
        return self._what


def as_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return path


def as_legacy(path, content):
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    path.write_bytes(b"".join(pickle.dumps(value, 2) for value in head) + content)
    return path


@pytest.mark.parametrize("container", [as_zip, as_legacy])
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (os.mkdir, ("harm",)),
        (eval, ("__import__('os').mkdir('harm')",)),
        (getattr, ("text", "upper")),
        (__import__, ("antigravity",)),
        (os.system, ("mkdir harm",)),
        (np.array, ([1.0],)),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_something(
    tmp_path, monkeypatch, container, call, arguments, protocol
):
    """SECURITY.md: pickles run no code."""
    monkeypatch.chdir(tmp_path)
    harm = OrderedDict(weight=Harm(call, *arguments))
    path = container(tmp_path / "encoder.pkl", pickle.dumps(harm, protocol))
    with pytest.raises(InputError, match=r"encoder.pkl: the pickle must hold tensors"):
        read_tensors(path)
    assert not Path("harm").exists()
    # An ordinary load would have made the folder.
    if call is os.mkdir:
        pickle.loads(pickle.dumps(harm, protocol))
        assert Path("harm").exists()


@pytest.mark.parametrize("container", [as_zip, as_legacy])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"a": 1}), "must hold a dict of tensors, got {'a': 1}"),
        (b"", "not a torch file, or damaged"),
        (b"ctorch\nLongStorage\n.", "floats only, got torch.LongStorage"),
    ],
)
def test_pickles_that_are_not_of_tensors(tmp_path, container, content, message):
    with pytest.raises(InputError) as caught:
        read_tensors(container(tmp_path / "x.pkl", content))
    assert message in str(caught.value) and "x.pkl" in str(caught.value)


def persistent(offset, shape, strides, length, key="0", view=None, kind=b"ctorch\nFloatStorage\n"):
    """A state dict with one tensor `a`, pickled with protocol 2."""

    def value(x):
        return pickle.dumps(x, 2)[2:-1]

    pid = b"(" + value("storage") + kind + value(key) + value("cpu") + value(length) + value(view)
    call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + b"tQ"
    call += value(offset) + value(shape) + value(strides) + b"\x89Ntr"[:2] + b"tR"
    return b"\x80\x02}" + value("a") + call + b"s."


def with_numbers(path, content, numbers):
    as_zip(path, content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/data/0", np.array(numbers, "<f4").tobytes())
    return path


def test_views_of_a_storage(tmp_path):
    numbers = np.arange(12, dtype=np.float32)
    for offset, shape, strides in ((0, (3, 4), (4, 1)), (1, (2, 3), (1, 4)), (5, (2,), (0,))):
        content = persistent(offset, shape, strides, 12)
        found = read_tensors(with_numbers(tmp_path / "a.pkl", content, numbers))["a"]
        places = offset + sum(
            stride * index for stride, index in zip(strides, np.indices(shape), strict=True)
        )
        np.testing.assert_array_equal(found, numbers[places])
        assert found.dtype == np.float32 and found.flags.c_contiguous


@pytest.mark.parametrize(
    ("arguments", "numbers", "message"),
    [
        ((1, (3, 4), (4, 1), 12), 12, "not a torch file, or damaged"),
        ((0, (2,), (-1,), 12), 12, "not a torch file, or damaged"),
        ((0, (12,), (1,), 12), 11, "not a torch file, or damaged"),
        ((0, (12,), (1,), 12, "0", ("0", 0, 12)), 12, "a storage must be of floats, got"),
    ],
)
def test_tensors_that_are_not_in_their_storage(tmp_path, arguments, numbers, message):
    path = with_numbers(tmp_path / "a.pkl", persistent(*arguments), np.zeros(numbers))
    with pytest.raises(InputError) as caught:
        read_tensors(path)
    assert message in str(caught.value)


def test_dicts_as_python_2_wrote_them(tmp_path):
    """Python 2 passes the items as an argument."""
    content = persistent(0, (2,), (1,), 2)[2:-2]  # } 'a' tensor, without SETITEM
    pairs = b"(" + content[1:] + b"\x86" + b"l"
    content = b"\x80\x02ccollections\nOrderedDict\n" + pairs + b"\x85R."
    found = read_tensors(with_numbers(tmp_path / "a.pkl", content, [1, 2]))
    assert found["a"].tolist() == [1, 2]


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_tensors_that_are_not_finite(tmp_path, number):
    path = with_numbers(tmp_path / "a.pkl", persistent(0, (2,), (1,), 2), [1, number])
    with pytest.raises(InputError, match=r"a\.pkl: a: the numbers must be finite in float32\."):
        read_tensors(path)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_cut_off(kind, tmp_path):
    whole = (FIXTURES / kind / "token_embedder.pkl").read_bytes()
    path = tmp_path / "token_embedder.pkl"
    for length in (10, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"token_embedder.pkl: "):
            read_tensors(path)
