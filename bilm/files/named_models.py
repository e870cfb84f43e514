"""Models by name: included in the package, or published on the internet.

Besides files and folders, models can be named as

    english, original, nlpl-209 ...     a name in the table below
    https://host/path/model.zip         the address of a ZIP file
    (https://..., https://...)          the addresses of options and weights
    hf://owner/name@revision            a repository on Hugging Face; @revision is optional

An existing path has precedence over a name. `#sha256=HEX` or `#md5=HEX` may follow: the checksum of
the weights or the ZIP file. Files are downloaded once, into Keras' cache (`cache_folder`); from
Hugging Face, into the cache of huggingface_hub.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urljoin, urlsplit

from bilm.core.errors import InputError, shown
from bilm.extras import import_extra
from bilm.files.download import (
    download,
    file_name,
    is_address,
    require_checksum,
    shows_progress,
    split_checksum,
    without_secrets,
)
from bilm.files.file_choice import choose_files
from bilm.files.reading import OPTIONS_FILE, WEIGHTS_FILE

_ALLENNLP = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
# The models of NLPL's repository that are in the format of ELMoForManyLangs.
_MANY_LANGS = range(136, 180)
_HUGGING_FACE = "hf://"


class Published(NamedTuple):
    """A named model; language, tokens and licence are stated as its publisher describes them."""

    name: str
    language: str  # language and source of the training text
    tokens: str  # tokenisation of the training text; new text must be tokenised in the same way
    licence: str  # licence of the weights
    megabytes: int | None  # approximate size of the weights
    # The address of each file by its name in the cache; `#...` is a checksum. None for a model
    # included in the package.
    files: dict[str, str] | None
    # Addresses of the softmax and its vocabulary; only a `Predictor` downloads them.
    softmax: dict[str, str] | None = None
    checksums_from: str | None = None  # the source of the checksums in `files`

    @property
    def folder(self) -> str:
        """The folder of the model's files, which may be missing."""
        if self.files is None:
            return str(Path(__file__).parent.parent / "models" / self.name)
        return os.path.join(cache_folder(), self.name)

    @property
    def is_present(self) -> bool:
        """Whether all files are present."""
        names = self.files or (OPTIONS_FILE, WEIGHTS_FILE)
        return all(os.path.isfile(os.path.join(self.folder, name)) for name in names)


def cache_folder() -> str:
    """The folder of downloaded models: models/bilm in Keras' cache, $KERAS_HOME or ~/.keras."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return os.path.join(home, "models", "bilm")


_NEWS = "punctuation split off, case kept"
_UNKNOWN = "not stated"
_WIKIPEDIA = "CC BY-SA 3.0"
# AllenNLP does not publish checksums.
_LFS_POINTER = "from a public Git LFS pointer to this file, of 54,402,456 bytes"


def _pair(options: str, weights: str = "weights.hdf5") -> dict[str, str]:
    """Addresses of options and weights; the latter relative to the former."""
    return {"options.json": options, "weights.hdf5": urljoin(options, weights)}


def _news(
    name: str, text: str, megabytes: int, sizes: str, vocabulary: str | None = None, pin: str = ""
) -> Published:
    """An English model of AllenNLP; `vocabulary` is the address of the words of its softmax, `pin`
    the checksum of its weights."""
    stem = f"{_ALLENNLP}{sizes}/elmo_{sizes}_"
    files, softmax = _pair(f"{stem}options.json", f"{stem}weights.hdf5{pin}"), None
    if vocabulary is not None:
        softmax = {"softmax_weights.hdf5": f"{stem}softmax_weights.hdf5",
                   "vocab.txt": f"{_ALLENNLP}{vocabulary}"}  # fmt: skip
    source = _LFS_POINTER if pin else None
    return Published(name, f"English, {text}", _NEWS, _UNKNOWN, megabytes, files, softmax, source)


def _nlpl(number: int, language: str, tokens: str = _UNKNOWN) -> Published:
    """A model of NLPL's repository."""
    part = 11 if number in _MANY_LANGS else 20
    files = {f"{number}.zip": f"http://vectors.nlpl.eu/repository/{part}/{number}.zip"}
    return Published(f"nlpl-{number}", language, tokens, "CC BY 4.0", None, files)


# fmt: off
_TABLE = (
    Published("english", "English, Wikipedia and novels", _NEWS, _WIKIPEDIA, 34, None),
    Published("chinese", "Chinese, Wikipedia", "words by jieba, simplified characters",
              _WIKIPEDIA, 35, None),
    _news("small", "news", 54, "2x1024_128_2048cnn_1xhighway",
          pin="#sha256=747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"),
    _news("medium", "news", 112, "2x2048_256_2048cnn_1xhighway"),
    _news("original", "news", 374, "2x4096_512_2048cnn_2xhighway", "vocab-2016-09-10.txt"),
    _news("original-5.5b", "Wikipedia and news", 374, "2x4096_512_2048cnn_2xhighway_5.5B",
          "2x4096_512_2048cnn_2xhighway_5.5B/tf_checkpoint/vocab-enwiki-news-500000.txt"),
    Published("pubmed", "English, PubMed", _UNKNOWN, _UNKNOWN, 374,
              _pair(f"{_ALLENNLP}contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_options.json",
                    "elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5")),
    Published("portuguese", "Portuguese", _UNKNOWN, _UNKNOWN, 374,
              _pair(f"{_ALLENNLP}contributed/pt/elmo_pt_options.json", "elmo_pt_weights.hdf5")),
    Published("japanese", "Japanese", _UNKNOWN, _UNKNOWN, None,
              _pair("https://exawizardsallenlp.blob.core.windows.net/data/options.json")),
    Published("german", "German, Wikipedia", _UNKNOWN, _UNKNOWN, 374,
              _pair("https://github.com/t-systems-on-site-services-gmbh/german-elmo-model/releases/"
                    "download/files_1/options.json#md5=da99676f2fe2838ff2663a6d9bad97dd",
                    "weights.hdf5#md5=f3ab3a68caae6d42bac47c230b3a65bf")),
    Published("seqvec", "proteins, UniRef50", "one amino acid per token, upper case", _UNKNOWN, 374,
              _pair("http://data.bioembeddings.com/public/embeddings/embedding_models/seqvec/"
                    "options.json#md5=cede355187778de3ac302a83c761f5f9",
                    "weights.hdf5#md5=0249d59249a50b43b79f641ff2ba7e88")),
    _nlpl(195, "Russian"),
    _nlpl(199, "Russian"),
    _nlpl(201, "German"),
    _nlpl(202, "Swedish"),
    _nlpl(203, "Latin"),
    _nlpl(209, "English"),
    _nlpl(210, "Norwegian, Wikipedia", "UDPipe, lemmas"),
    _nlpl(211, "Norwegian, Wikipedia", "UDPipe"),
    _nlpl(217, "Norwegian, Wikipedia, news", "UDPipe"),
    _nlpl(218, "Norwegian, Wikipedia, news", "UDPipe"),
)
# fmt: on
_BY_NAME = {model.name: model for model in _TABLE}

REPLACED = {"wiki-en": "english", "wiki-zh": "chinese"}
"""Earlier names, and the names of the models that replaced them."""


def published_models() -> list[Published]:
    """The named models. Other numbers in NLPL's repository are names as well: nlpl-NNN."""
    return list(_TABLE)


def find_published(name: str) -> Published | None:
    """The model with a name, or None."""
    number = re.fullmatch(r"nlpl-([1-9][0-9]{0,5})", name)
    if name in _BY_NAME or number is None:
        return _BY_NAME.get(name)
    return _nlpl(int(number[1]), _UNKNOWN)


def is_remote(source: Any) -> bool:
    """Whether a model's source is a name or an address, and not an existing path."""
    if not isinstance(source, str) or _is_path(source):
        return False
    name = source.partition("#")[0]
    return is_address(name) or name.startswith(_HUGGING_FACE) or find_published(name) is not None


def local_source(source: Any, *, with_softmax: bool = False) -> Any:
    """A model's source, or a pair (options, weights), with names and addresses replaced by paths of
    the files, which are downloaded if missing; `with_softmax` also downloads the softmax."""
    if isinstance(source, tuple | list):
        return type(source)(_local_file(part) if is_remote(part) else part for part in source)
    if not is_remote(source):
        return source
    name, _ = split_checksum(source)
    if is_address(name):
        return _local_file(source)
    if name.startswith(_HUGGING_FACE):
        return _from_hugging_face(source, with_softmax)
    return _named(source, with_softmax)


def require_known(source: str) -> None:
    """Require that a model's source is a name, an address, or an existing path."""
    if not is_remote(source) and not _is_path(source):
        name = source.partition("#")[0]
        if name in REPLACED:
            raise FileNotFoundError(f"The model {name!r} was replaced by {REPLACED[name]!r}.")
        hint = ""
        if os.path.basename(source) == source:
            close = difflib.get_close_matches(source.lower(), _BY_NAME, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            hint += " `bilm models` lists the models that have names."
        raise FileNotFoundError(f"The model {source!r} does not exist.{hint}")


def _is_path(source: str) -> bool:
    # A checkpoint's path is the common prefix of its files.
    return os.path.lexists(source) or os.path.isfile(f"{source}.index")


def _named(source: str, with_softmax: bool) -> str:
    """The folder of a model of the table, or its ZIP file."""
    name, checksum = split_checksum(source)
    model = cast(Published, find_published(name))
    if model.files is None:
        cure = f"name another checksum, or reinstall the package if {name} was changed"
        require_checksum(os.path.join(model.folder, WEIGHTS_FILE), checksum, cure)
        return model.folder
    paths = []
    softmax = model.softmax if with_softmax else None
    for file, address in (model.files | (softmax or {})).items():
        address, published = split_checksum(address)
        published = published and published._replace(source=model.checksums_from)
        if file.startswith("weights") or file.endswith(".zip"):
            published = checksum or published
        paths.append(download(address, os.path.join(model.folder, file), published))
    return model.folder if len(paths) > 1 else paths[0]


def _local_file(source: str) -> str:
    """The file of an address."""
    address, checksum = split_checksum(source)
    query = urlsplit(address).query
    # Neither user nor password becomes the name of a folder; a query may name the file.
    host = re.sub(r"[^\w.-]", "-", urlsplit(without_secrets(address)).netloc)
    name = f"{without_secrets(address)}{'?' * bool(query)}{query}"
    folder = f"{host}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return download(address, os.path.join(cache_folder(), folder, file_name(address)), checksum)


def _from_hugging_face(source: str, with_softmax: bool) -> str:
    """The folder with the files of a repository on Hugging Face, in huggingface_hub's cache."""
    text, checksum = split_checksum(source)
    match = re.fullmatch(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text)
    if match is None or ".." in text:
        raise InputError(f"{shown(source)}: the form must be hf://OWNER/NAME[@REVISION].")
    hub = import_extra("huggingface_hub", "A model on Hugging Face")
    name, revision = match.groups()
    try:
        chosen = choose_files(hub.HfApi().list_repo_files(name, revision=revision), text)
        softmax = chosen.softmax if with_softmax else None
        file_names = list(filter(None, chosen._replace(softmax=softmax)))
        with _hub_bars(hub.utils):
            folder = hub.snapshot_download(name, revision=revision, allow_patterns=file_names)
    except InputError:
        raise
    except Exception as error:  # the exceptions depend on the hub's HTTP library
        try:  # the folder of an earlier download, which may be incomplete
            folder = hub.snapshot_download(
                name, revision=revision, local_files_only=True, allow_patterns=[]
            )
        except OSError:
            reason = " ".join(str(error).split())
            raise ConnectionError(f"{text} cannot be downloaded: {reason}") from error
        paths = filter(Path.is_file, Path(folder).rglob("*"))
        chosen = choose_files([p.relative_to(folder).as_posix() for p in paths], text)
    cure = "name another revision or checksum"
    require_checksum(os.path.join(folder, chosen.weights), checksum, cure)
    return folder


@contextlib.contextmanager
def _hub_bars(utils: Any) -> Iterator[None]:
    """Hide huggingface_hub's progress bars if ours are hidden."""
    is_hidden = not shows_progress() and not utils.are_progress_bars_disabled()
    if is_hidden:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        if is_hidden:
            utils.enable_progress_bars()
