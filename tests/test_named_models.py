"""Models by name and address: downloads, the cache, checksums, and errors."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm import (
    BidirectionalLanguageModel,
    ELMo,
    ELMoEmbedding,
    InputError,
    Predictor,
    export_saved_model,
)
from bilm.cli import main
from bilm.core.errors import without_secrets
from bilm.files.model_files import (
    REPLACED,
    cache_folder,
    find_published,
    is_remote,
    local_source,
    open_model,
    published_models,
)
from tests.small_models import write_small_model
from tests.web_server import serving

pytestmark = pytest.mark.eager

SENTENCES = ["They saw it .", "Hello"]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local server for all web addresses, and an empty cache; nothing leaves the machine."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda _: None)  # before another try
    with serving() as found:
        monkeypatch.setenv("http_proxy", found.address)
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nothing listens there
        yield found


@pytest.fixture
def model(tmp_path):
    """A small model in the published format."""
    return write_small_model(tmp_path / "model", "as_published")


def zipped(model, path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(model.files[0], "options.json")
        archive.write(model.files[1], "model.hdf5")
    return path.read_bytes()


def vectors(source):
    return ELMo.from_pretrained(source).encode(SENTENCES)


def assert_same(source, model):
    for ours, theirs in zip(vectors(source), vectors(model.files), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def kept(folder=None):
    """Paths of all files in the cache, relative to it."""
    folder = Path(folder or cache_folder())
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def sha256(content):
    return hashlib.sha256(content).hexdigest()


# Names


def test_the_cache_is_that_of_keras(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert cache_folder() == str(tmp_path / "models" / "bilm")
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == str(tmp_path / "home" / ".keras" / "models" / "bilm")


def test_the_table():
    models = published_models()
    names = [model.name for model in models]
    assert len(set(names)) == len(names)
    assert {"english", "chinese", "latin", "small", "medium", "original", "original-5.5b", "pubmed",
            "portuguese", "japanese", "german", "seqvec", "nlpl-209"} <= set(names)  # fmt: skip
    for model in models:
        assert model.language and model.tokens and model.licence
        for name, address in (model.files or {}).items():
            assert address.startswith(("https://", "http://")) and "/" not in name
    weights = find_published("original").files["weights.hdf5"]
    stem = "2x4096_512_2048cnn_2xhighway"
    assert weights == (
        f"https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/{stem}/elmo_{stem}_weights.hdf5"
    )
    assert (
        find_published("german")
        .files["weights.hdf5"]
        .endswith("/releases/download/files_1/weights.hdf5#md5=f3ab3a68caae6d42bac47c230b3a65bf")
    )


def test_any_number_of_nlpls_repository_is_a_name():
    assert find_published("nlpl-181").files == {
        "181.zip": "http://vectors.nlpl.eu/repository/20/181.zip"
    }
    # The ELMoForManyLangs models are in another folder of the repository.
    assert find_published("nlpl-144").files == {
        "144.zip": "http://vectors.nlpl.eu/repository/11/144.zip"
    }
    assert find_published("nlpl-0144") is None and find_published("nlpl-x") is None


@pytest.mark.parametrize(
    "name, word, sentences",
    [
        (
            "english",
            "play",
            ["They play cards .", "The children play football .", "His play was staged ."],
        ),
        (
            "chinese",
            "苹果",
            [
                "他 吃 了 一个 苹果 和 一个 香蕉 。",
                "水果 店里 的 苹果 很 甜 。",
                "苹果 公司 发布 了 新 的 手机 。",
            ],
        ),
        (
            "latin",
            "liber",
            [
                "Hic liber a Cicerone scriptus est .",
                "Ille liber a Varrone scriptus est .",
                "Nemo liber est qui corpori servit .",
            ],
        ),
    ],
)
def test_the_models_of_the_package(name, word, sentences):
    """They need no download, their layers tell senses apart, and they predict words."""
    folder = Path(bilm.__file__).parent / "models" / name
    assert local_source(name) == str(folder) and (folder / "README.md").is_file()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 40_000_000
    encoded = ELMo.from_pretrained(name).encode(sentences, layers="top")
    same, like, other = (
        vectors[sentence.split().index(word)]
        for vectors, sentence in zip(encoded, sentences, strict=True)
    )
    cosine = [same @ v / np.linalg.norm(same) / np.linalg.norm(v) for v in (like, other)]
    assert cosine[0] > cosine[1] + 0.15
    (score,) = Predictor.from_pretrained(name).score(sentences[:1])
    # Far likelier than random words.
    assert score.forward.mean() > -np.log(64_000) / 1.3


def test_a_pin_on_a_model_of_the_package():
    folder = local_source("english")
    digits = sha256((Path(folder) / "model.hdf5").read_bytes())
    assert local_source(f"english#sha256={digits}") == folder
    with pytest.raises(InputError, match=rf"model.hdf5: the checksum .*{'0' * 64}"):
        local_source(f"english#sha256={'0' * 64}")


def test_a_model_that_was_replaced(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(REPLACED, "wiki-old", "english")
    for name in ("wiki-old", "en"):
        with pytest.raises(FileNotFoundError, match=f"'{name}' does not exist.* 'english'"):
            ELMo.from_pretrained(name)


def test_a_pair_by_its_name(server, model):
    base = "/public/embeddings/embedding_models/seqvec"
    contents = [Path(path).read_bytes() for path in model.files]
    names = (f"{base}/options.json", f"{base}/weights.hdf5")
    server.files = dict(zip(names, contents, strict=True))
    # These files do not have the published checksums.
    with pytest.raises(InputError, match=r"seqvec/options\.json: the checksum must be"):
        ELMo.from_pretrained("seqvec")
    assert kept() == []


def test_a_zip_file_by_its_name(server, model, tmp_path):
    content = zipped(model, tmp_path / "a.zip")
    server.files = {"/repository/20/209.zip": content}
    assert_same("nlpl-209", model)
    assert kept() == ["nlpl-209/209.zip"]
    assert_same(f"nlpl-209#sha256={sha256(content)}", model)
    assert len(server.requests) == 1
    with pytest.raises(InputError, match=f"209.zip: .*{'0' * 64}, got .*{sha256(content)}. Delete"):
        ELMo.from_pretrained(f"nlpl-209#sha256={'0' * 64}")


def test_without_network_files_can_be_put_there(server, model):
    folder = Path(cache_folder()) / "medium"
    with pytest.raises(ConnectionError, match=rf"_options.json .* save it as {folder}"):
        ELMo.from_pretrained("medium")
    assert not find_published("medium").is_present
    shutil.copy(model.files[0], folder / "options.json")
    shutil.copy(model.files[1], folder / "weights.hdf5")
    assert find_published("medium").is_present
    assert_same("medium", model)


def test_a_path_wins_over_a_name(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    for name in ("english", "nlpl-209", "original"):
        assert is_remote(name)
        shutil.copytree(model.folder, tmp_path / name)
        assert not is_remote(name)
        assert_same(name, model)
    # A `Path` object is never a name.
    assert not is_remote(Path("medium"))
    with pytest.raises(FileNotFoundError, match="'medium' does not exist"):
        ELMo.from_pretrained(Path("medium"))


# Addresses


def test_the_address_of_a_zip_file(server, model, tmp_path, caplog):
    content = zipped(model, tmp_path / "a.zip")
    server.files = {"/models/my%20elmo.zip": content}
    source = f"{server.address}/models/my%20elmo.zip"
    with caplog.at_level(logging.INFO, "bilm"):
        assert_same(source, model)
    (file,) = kept()
    assert file.endswith("/my elmo.zip")
    path = os.path.join(cache_folder(), file)
    assert caplog.messages == [
        f"{path}: {len(content):,} bytes; #sha256={sha256(content)} after the name pins this "
        "content"
    ]
    assert_same(source, model)
    assert server.requests == ["/models/my%20elmo.zip"]


def test_a_pair_of_addresses(server, model):
    options, weights = (Path(path).read_bytes() for path in model.files)
    server.files = {"/elmo_options.json": options, "/elmo_weights.hdf5": weights}
    pair = (f"{server.address}/elmo_options.json", f"{server.address}/elmo_weights.hdf5")
    assert_same(pair, model)
    pinned = (pair[0], f"{pair[1]}#sha256={sha256(weights)}")
    assert_same(pinned, model)
    assert_same((model.files[0], pair[1]), model)
    assert len(server.requests) == 2
    ids = bilm.Batcher(None, 50).batch_sentences([s.split() for s in SENTENCES])
    expected = BidirectionalLanguageModel(*model.files)(ids)["lm_embeddings"]
    for found in (
        BidirectionalLanguageModel(*pair),
        BidirectionalLanguageModel.from_pretrained(pair),
    ):
        np.testing.assert_array_equal(found(ids)["lm_embeddings"], expected)


def test_a_password_in_an_address(server, model, tmp_path, capfd):
    """SECURITY.md: passwords are neither printed nor stored.

    The server gets it; messages and names of files do not have it.
    """
    server.files = {"/a.zip?key=hidden": zipped(model, tmp_path / "a.zip")}
    host = server.address.removeprefix("http://")
    assert_same(f"http://user:secret@{host}/a.zip?key=hidden", model)
    encoded = base64.b64encode(b"user:secret").decode()
    assert server.passwords == [f"Basic {encoded}"]
    (file,) = kept()
    assert file.startswith(host.replace(":", "-")) and file.endswith("/a.zip")
    texts = [*kept(), *capfd.readouterr()]
    with pytest.raises((ConnectionError, InputError)) as caught:
        ELMo.from_pretrained(f"http://user:secret@{host}/b.zip?key=hidden")
    texts.append(str(caught.value))
    assert not [text for text in texts if "secret" in text or "hidden" in text]


@pytest.mark.parametrize(
    "address, plain",
    [
        ("HTTP://user:secret@h/m.zip#sha256=hidden", "http://h/m.zip"),
        ("http://user:secret@h:99999/m.zip?key=hidden", "http://h:99999/m.zip"),
        ("http://user:secret/secret@h/m.zip", "http://h/m.zip"),
        ("http://user:s#secret?secret@h/m.zip", "http://h/m.zip"),
        ("https://user:secret@h/", "https://h/"),
        ("http:/user:secret@h/m.zip", "http:/h/m.zip"),
        ("ftp://user:secret@h/m.zip", "ftp://h/m.zip"),
        ("hf://user:secret@owner/name", "hf://owner/name"),
        ("http://[::1/x.zip?key=secret", "http://[::1/x.zip"),
    ],
)
def test_addresses_with_mistakes(server, capsys, address, plain):
    """Every command that gets one ends with an error that has no secrets."""
    pair = ["--options_file", address, "--weight_file", address]
    for argv in (["info", address], ["embed", address, "o.h5", "--model", address],
                 ["embed", *pair, address, "o.h5"],
                 ["train", "--vocab_file", address, "--save_dir", "s", "--train_prefix", address,
                  "--init_from", address]):  # fmt: skip
        assert main(argv) == 1
        message = capsys.readouterr().err
        assert plain in message and "Traceback" not in message
        assert "secret" not in message and "hidden" not in message and "user" not in message


def test_the_form_of_an_address_without_secrets():
    assert without_secrets("a http://u:p@h/m.zip?key=k b") == "a http://h/m.zip b"
    assert without_secrets("hf://owner/name@v1") == "hf://owner/name@v1"


# Server behaviour


def test_a_wrong_checksum(server, model, tmp_path):
    """SECURITY.md: downloads are checked against a checksum."""
    content = zipped(model, tmp_path / "a.zip")
    server.files = {"/a.zip": content}
    address = f"{server.address}/a.zip"
    expected = rf"/a.zip: the checksum must be sha256={'0' * 64}"
    with pytest.raises(InputError, match=expected):
        local_source(f"{address}#sha256={'0' * 64}")
    assert kept() == []


def test_a_redirect_away_from_the_web(server, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    server.redirects = {"/here.zip": (tmp_path / "secret").as_uri()}
    with pytest.raises(ConnectionError):
        local_source(f"{server.address}/here.zip")
    assert kept() == []


def test_part_of_a_file_is_not_kept(server, model, tmp_path):
    content = zipped(model, tmp_path / "a.zip")
    server.files, server.status = {"/a.zip": content[len(content) // 2 :]}, 206
    with pytest.raises(ConnectionError, match="the server answers 206"):
        local_source(f"{server.address}/a.zip")
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 255
    for wrong in (content[len(content) // 2 :], bytes(damaged)):
        server.files, server.status = {"/a.zip": wrong}, 200
        with pytest.raises(ConnectionError, match="the server sent a damaged"):
            local_source(f"{server.address}/a.zip")
    assert kept() == []


def test_not_found(server):
    with pytest.raises(ConnectionError, match=f"{server.address}/a.zip .* the server answers 404"):
        ELMo.from_pretrained(f"{server.address}/a.zip")
    assert kept() == [] and len(server.requests) == 1


def test_nobody_listens(server):
    with pytest.raises(ConnectionError) as caught:
        ELMo.from_pretrained("https://models.example/a.zip")
    message = str(caught.value)
    assert message.startswith("https://models.example/a.zip cannot be downloaded: ")
    assert "\n" not in message and cache_folder() in message


@pytest.mark.parametrize(
    "name, content, what",
    [
        ("a.zip", b"\n<!DOCTYPE html><title>Log in</title>", "a web page"),
        ("a.zip", b"PK\x03\x04 cut off", "a damaged file"),
        ("a.hdf5", b"\x89HDF\r\n\x1a\n cut off", "a damaged file"),
        ("a.json", b'{"lstm": ', "a damaged file"),
    ],
)
def test_content_that_is_not_a_model(server, name, content, what):
    """It does not stay in the cache."""
    server.files = {f"/{name}": content}
    with pytest.raises(ConnectionError, match=f"/{name} cannot be downloaded: .* {what}"):
        local_source(f"{server.address}/{name}")
    assert kept() == []


def test_a_download_that_is_cut_off(server, model, tmp_path):
    content = zipped(model, tmp_path / "a.zip")
    server.files, server.cut_after = {"/a.zip": content}, [4000, 0]
    path = local_source(f"{server.address}/a.zip")
    assert Path(path).read_bytes() == content and len(server.requests) == 3
    assert kept() == [os.path.relpath(path, cache_folder())]
    server.files, server.cut_after = {"/b.zip": content}, [4000] * 3
    with pytest.raises(ConnectionError, match=r"b\.zip cannot be downloaded: "):
        local_source(f"{server.address}/b.zip")
    assert len(kept()) == 1


# Hugging Face


@pytest.fixture
def huggingface(server, model, tmp_path):
    """The function that finds a source's folder, as a program with an empty cache does."""
    pytest.importorskip("huggingface_hub")
    commit = 40 * "0"
    names = ("elmo/options.json", "elmo/weights.hdf5", "elmo/softmax_weights.hdf5", "README.md")
    contents = [*(Path(path).read_bytes() for path in model.files), b"softmax", b"text"]
    listing = [{"type": "file", "path": name, "size": len(content), "oid": name}
               for name, content in zip(names, contents, strict=True)]  # fmt: skip
    server.headers = {"X-Repo-Commit": commit}
    base = "/api/models/owner/name"
    for revision in ("main", "v1", commit):
        for true, false in (("true", "false"), ("True", "False")):
            tree = f"{base}/tree/{revision}?recursive={true}&expand={false}"
            server.files[tree] = json.dumps(listing).encode()
        about = {"id": "owner/name", "sha": commit, "siblings": [{"rfilename": n} for n in names]}
        server.files[f"{base}/revision/{revision}"] = json.dumps(about).encode()
    for name, content in zip(names, contents, strict=True):
        server.files[f"/owner/name/resolve/{commit}/{name}"] = content
    # HF_ENDPOINT and the cache are read when huggingface_hub is imported.
    code = "import sys; from bilm.files.model_files import local_source as source; "
    code += "print(source(sys.argv[1]), end='')"
    environment = os.environ | {"HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "hf")}
    for name in ("http_proxy", "https_proxy", "HF_TOKEN", "HF_HUB_OFFLINE"):
        environment.pop(name, None)

    def folder(source, **more):
        command = [sys.executable, "-c", code, source]
        done = subprocess.run(command, env=environment | more, capture_output=True, text=True)
        return done.stdout or done.stderr.splitlines()[-1]

    return folder


def test_a_repository_on_hugging_face(server, huggingface, model):
    folder = huggingface("hf://owner/name", HF_TOKEN="hf_secret")
    assert_same(folder, model)
    assert kept(folder) == ["elmo/options.json", "elmo/weights.hdf5"]
    assert "Bearer hf_secret" in server.passwords
    server.requests.clear()
    assert huggingface("hf://owner/name", HF_HUB_OFFLINE="1") == folder
    assert server.requests == []


@pytest.mark.slow
def test_errors_of_hugging_face(huggingface, model):
    assert "404" in huggingface("hf://owner/other")
    assert "the checksum must be" in huggingface(f"hf://owner/name@v1#sha256={'0' * 64}")
    digits = sha256(Path(model.files[1]).read_bytes())
    assert kept(huggingface(f"hf://owner/name@v1#sha256={digits}"))


# Everything that takes a model


@pytest.mark.slow
def test_everything_that_takes_a_model_takes_a_name(server, model, tmp_path):
    server.files = {"/repository/20/209.zip": zipped(model, tmp_path / "a.zip")}
    expected = ELMo.from_pretrained(model.files).fingerprint()
    assert ELMo.from_pretrained("nlpl-209").fingerprint() == expected
    with open_model("nlpl-209") as files:
        assert files.read_options().lstm.n_layers == 2
    assert ELMoEmbedding.from_pretrained("nlpl-209").dim == 16
    assert BidirectionalLanguageModel.from_pretrained("nlpl-209").options.n_directions == 2
    export_saved_model("nlpl-209", tmp_path / "served")
    assert (tmp_path / "served" / "saved_model.pb").is_file()
    with pytest.raises(InputError, match=r"the softmax .* is missing"):
        Predictor.from_pretrained("nlpl-209")
    pytest.importorskip("pyarrow")
    embedder = pickle.loads(pickle.dumps(bilm.TableEmbedder("nlpl-209")))
    assert embedder.settings()["model"] == expected


def test_at_the_shell(server, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = zipped(model, tmp_path / "a.zip")
    server.files = {"/repository/20/209.zip": content}
    (tmp_path / "text.txt").write_text("They saw it .\n", encoding="utf-8")
    assert main(["embed", "text.txt", "out.npz", "--model", "nlpl-209"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "out.npz\n"
    assert f"downloading 209.zip {len(content) / 1000:,.0f}/" in captured.err
    assert f"#sha256={sha256(content)} after the name pins this content" in captured.err
    expected = vectors(model.files)[0]
    np.testing.assert_allclose(np.load("out.npz")["0"], expected, rtol=1e-5, atol=2e-6)
    assert main(["info", "nlpl-209"]) == 0
    assert "209.zip" in capsys.readouterr().out
    # Afterwards, the library does not log to a program that uses it.
    assert not logging.getLogger("bilm.files.model_files").isEnabledFor(logging.INFO)


def test_the_list_at_the_shell(server, model, capsys):
    folder = Path(cache_folder()) / "medium"
    shutil.copytree(model.folder, folder)
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "language,", "text", "MB", "tokens", "licence", "checksum",
                                "present", "note"]  # fmt: skip
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows["medium"].rstrip().endswith(str(folder)) and " 112 " in rows["medium"]
    assert rows["small"].endswith(" sha256=747ba97abce8...")
    assert rows["seqvec"].endswith("reported to refuse downloads")
    assert main(["models", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["medium"]["present"] == str(folder)
    assert listed["small"]["present"] is None and listed["small"]["licence"] == "not stated"
    assert server.requests == []
