"""Every format that bilm reads: how a small good file of it is made, and what reading it gives.

`make` writes good files into an empty folder. `read` reads them again, after some were changed,
and yields what it found: numbers and texts that the caller looks at. An `AssertionError` of its
own says that something was accepted that is not right.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).parent.parent / "fixtures"
TEXT = ["the cat sees a bird .", "a", "the dog 猫 ünïcödé x y z ."]
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sees", "a", "bird", ".", "dog", "猫"]
# A model of the smallest size that has all parts.
TINY = {"dim": 6, "projection_dim": 4, "n_layers": 2}
FILTERS = {"filters": [[1, 3], [2, 2]], "n_highway": 1, "max_characters_per_token": 9}


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        files: those that are changed, and of which kind they are: methods of `Changes`.
        make: writes them, and whatever belongs to them.
        read: reads them.
    """

    files: dict[str, str]
    make: Callable[[Path], None]
    read: Callable[[Path], Iterator[Any]]


FORMATS: dict[str, Format] = {}
PLANTED: dict[str, Format] = {}


def add(name: str, make: Callable[[Path], None], **files: str) -> Callable[..., Any]:
    """Adds the format whose `read` is decorated; "__" in a keyword stands for a full stop."""

    def added(read: Callable[[Path], Iterator[Any]]) -> Callable[[Path], Iterator[Any]]:
        named = {file.replace("__", "."): kind for file, kind in files.items()}
        FORMATS[name] = Format(named, make, read)
        return read

    return added


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# Options, vocabularies, texts


def make_options(folder: Path) -> None:
    from tests.small_runs import small_options

    options = small_options("short_words_261", all_clip_norm_val=10.0, learning_rate=0.2)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")


@add("training options", make_options, options__json="json")
def read_training_options(folder: Path) -> Iterator[Any]:
    from bilm.core.options import Options

    options = Options.from_file(folder / "options.json", training=True)
    assert Options.from_dict(options.training_dict(), training=True) == options
    yield repr(options)


@add("inference options", make_options, options__json="json")
def read_inference_options(folder: Path) -> Iterator[Any]:
    from bilm.core.options import Options

    options = Options.from_file(folder / "options.json", training=False)
    again = Options.from_dict(options.inference_dict(), training=False)
    assert (again.lstm, again.char_cnn) == (options.lstm, options.char_cnn)
    yield repr(options)


def make_vocabularies(folder: Path) -> None:
    write_lines(folder / "vocab.txt", WORDS)
    content = (folder / "vocab.txt").read_bytes()
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(content, mtime=0))
    (folder / "vocab.txt.xz").write_bytes(lzma.compress(content))


def read_vocabulary(path: Path) -> Iterator[Any]:
    from bilm import UnicodeCharsVocabulary

    vocabulary = UnicodeCharsVocabulary(path, 9)
    words = [vocabulary.id_to_word(k) for k in range(vocabulary.size)]
    ids = vocabulary.known_ids(words)
    assert (ids >= np.arange(vocabulary.size)).all()  # the last of a word that is there twice
    assert [words[k] for k in ids] == words
    characters = vocabulary.word_char_ids
    assert characters.shape == (vocabulary.size, 9) and 0 <= characters.min() <= 260
    yield words


for _ending, _kind in (("", "text"), (".gz", "gz"), (".xz", "xz")):

    def _read(folder: Path, name: str = f"vocab.txt{_ending}") -> Iterator[Any]:
        return read_vocabulary(folder / name)

    add(f"vocabulary{_ending}", make_vocabularies, **{f"vocab__txt{_ending}": _kind})(_read)


@add("validated vocabulary", make_vocabularies, vocab__txt="text")
def read_validated(folder: Path) -> Iterator[Any]:
    from bilm import Vocabulary

    vocabulary = Vocabulary(folder / "vocab.txt", validate_file=True)
    words = [vocabulary.id_to_word(k) for k in range(vocabulary.size)]
    assert len(set(words)) == len(words) and all(word.split() == [word] for word in words)
    yield words


def make_corpus(folder: Path) -> None:
    write_lines(folder / "vocab.txt", WORDS)
    write_lines(folder / "a.txt", TEXT * 3)
    content = (folder / "a.txt").read_bytes()
    (folder / "b.txt.gz").write_bytes(gzip.compress(content, mtime=0))
    (folder / "c.txt.xz").write_bytes(lzma.compress(content))


CORPUS = {"a__txt": "text", "b__txt__gz": "gz", "c__txt__xz": "xz"}


@add("corpus", make_corpus, **CORPUS)
def read_corpus(folder: Path) -> Iterator[Any]:
    from bilm import BidirectionalLMDataset, load_vocab

    vocabulary = load_vocab(folder / "vocab.txt", 9)
    data = BidirectionalLMDataset(folder / "[abc].*", vocabulary, test=True)
    expected, found = data.n_train_tokens, 0
    for batch in data.iter_distinct(2, 50):
        assert batch.mask is not None and batch.characters is not None
        assert batch.mask.shape == (2, 50) and batch.characters.shape[1] == 9
        for stream in batch.streams:
            assert 0 <= stream.token_ids.min() <= stream.token_ids.max() < vocabulary.size
        found += int(batch.mask.sum())
    assert found == expected
    yield found


@add("counted text", make_corpus, **CORPUS)
def read_counted(folder: Path) -> Iterator[Any]:
    from bilm import Vocabulary
    from bilm.data import build_vocabulary

    report = build_vocabulary(folder / "[abc].*", folder / "new.txt", counts_file=folder / "n.tsv")
    assert Vocabulary(folder / "new.txt", validate_file=True).size == report.n_words + 3
    yield (folder / "n.tsv").read_text(encoding="utf-8")


@add("sharded text", make_corpus, **CORPUS)
def read_sharded(folder: Path) -> Iterator[Any]:
    from bilm.data import shard_corpus

    made = shard_corpus(folder / "[abc].*", folder / "shards", n_shards=2, heldout=1)
    assert made.heldout is not None and made.training.n_sentences > 0
    yield sorted(os.listdir(folder / "shards"))


@add("text to warm up with", make_corpus, **CORPUS)
def read_warm_up(folder: Path) -> Iterator[Any]:
    from bilm.data.warm_up import read_text

    for name in ("a.txt", "b.txt.gz", "c.txt.xz"):
        sentences = read_text(folder / name)
        assert sum(map(len, sentences)) >= 2048
        yield sentences


def make_labelled(folder: Path) -> None:
    shutil.copy(FIXTURES / "conllu" / "dev.conllu", folder / "a.conllu")
    write_lines(folder / "tagged.tsv", ["the\tDET", "cat\tNOUN", "", "a\tDET"])
    write_lines(folder / "uses.tsv", ["river\tthe [bank] of it", "money\ta [bank] lent it"])


def read_labels(name: str) -> Callable[[Path], Iterator[Any]]:
    def read(folder: Path) -> Iterator[Any]:
        from bilm.analysis import limited, read_labelled

        sample = read_labelled(folder / name)
        assert sample.labels is not None and len(sample.labels) == len(sample) > 0
        for (number, position), label in zip(sample.positions, sample.labels, strict=True):
            assert label.strip() and sample.sentences[number][position].strip()
        assert 0 < len(limited(sample, 2)) <= len(sample)
        yield sample.labels
        yield sample.sentences

    return read


for _name, _file in (("CoNLL-U", "a.conllu"), ("tags", "tagged.tsv"), ("uses", "uses.tsv")):
    add(_name, make_labelled, **{_file: "text"})(read_labels(_file))


# Models


def make_model(folder: Path, kind: str = "short_words_261", **changes: Any) -> None:
    from tests.oracle import MODELS
    from tests.small_models import write_small_model

    if "char_cnn" in MODELS[kind]:
        changes["char_cnn"] = MODELS[kind]["char_cnn"] | FILTERS
    write_small_model(folder, kind, WORDS, lstm=TINY, **changes)


def read_vectors(elmo: Any) -> Iterator[Any]:
    for weight in elmo.network.weight_table():
        yield weight.variable.numpy()
    for tokens, layers in zip(TEXT, elmo.encode(TEXT, "all"), strict=True):
        assert layers.shape == (elmo.n_layers, len(tokens.split()), elmo.dim)
        yield layers
    yield elmo.vocabulary and elmo.vocabulary.decode(range(elmo.vocabulary.size))


@add("model", make_model, options__json="json", weights__hdf5="hdf5")
def read_model(folder: Path) -> Iterator[Any]:
    from bilm import ELMo

    yield from read_vectors(ELMo.from_pretrained(folder))


@add("facts of a model", make_model, options__json="json", weights__hdf5="hdf5", vocab__txt="text")
def read_facts(folder: Path) -> Iterator[Any]:
    from bilm.files.model_files import open_model
    from bilm.use.description import describe_model

    with open_model(folder) as files:
        yield json.dumps(describe_model(files))


def make_zip(folder: Path) -> None:
    make_model(folder)
    with zipfile.ZipFile(folder / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("options.json", "weights.hdf5", "vocab.txt"):
            archive.writestr(zipfile.ZipInfo(f"144/{name}"), (folder / name).read_bytes())


@add("ZIP file of a model", make_zip, model__zip="zip")
def read_zip(folder: Path) -> Iterator[Any]:
    from bilm import ELMo

    yield from read_vectors(ELMo.from_pretrained(folder / "model.zip"))


@add("model of words", lambda folder: make_model(folder, "words"),
     options__json="json", weights__hdf5="hdf5", vocab__txt="text")  # fmt: skip
def read_words(folder: Path) -> Iterator[Any]:
    from bilm import ELMo

    yield from read_vectors(ELMo.from_pretrained(folder))


def make_cache(folder: Path) -> None:
    import h5py

    make_model(folder)
    vectors = np.random.default_rng(1).normal(size=(len(WORDS), 4)).astype(np.float32)
    with h5py.File(folder / "cache.hdf5", "w") as file:
        file["embedding"] = vectors


@add("token cache", make_cache, cache__hdf5="hdf5", vocab__txt="text")
def read_cache(folder: Path) -> Iterator[Any]:
    from bilm import ELMo

    elmo = ELMo.from_pretrained(folder, embedding_weight_file=folder / "cache.hdf5")
    assert elmo.vocabulary is not None
    yield from elmo.encode(TEXT, "all")


@add("Keras layer", make_cache, options__json="json", weights__hdf5="hdf5", cache__hdf5="hdf5")
def read_layer(folder: Path) -> Iterator[Any]:
    from bilm import BidirectionalLanguageModel

    files = (folder / "options.json", folder / "weights.hdf5")
    cached = BidirectionalLanguageModel(
        *files, use_character_inputs=False, embedding_weight_file=folder / "cache.hdf5"
    )
    yield cached(np.array([[1, 4, 5, 2]]))["lm_embeddings"].numpy()
    for variable in BidirectionalLanguageModel(*files).weights:
        yield variable.numpy()


def make_dictionary_model(folder: Path) -> None:
    from bilm.use.many_langs import convert_many_langs

    source = FIXTURES / "many_langs" / "words_legacy"
    convert_many_langs(source, folder / "model.hdf5", folder / "options.json")


@add("model with dictionaries", make_dictionary_model, model__hdf5="hdf5", options__json="json")
def read_dictionary_model(folder: Path) -> Iterator[Any]:
    from bilm import ELMo

    yield from read_vectors(ELMo.from_pretrained(folder))


# Models that predict


def make_checkpoint(folder: Path) -> None:
    from tests.scored_models import Model

    Model(folder, "one_direction_one_layer_words", lstm={"dim": 6, "projection_dim": 4})


def read_scores(predictor: Any) -> Iterator[Any]:
    for score in predictor.score(TEXT):
        assert len(score.forward) == len(score.tokens) and (score.forward <= 1e-5).all()
        yield score.forward
        yield score.tokens


CHECKPOINT = "model__ckpt-5__"


@add("training folder", make_checkpoint,
     **{f"{CHECKPOINT}index": "index", f"{CHECKPOINT}data-00000-of-00001": "raw",
        "checkpoint": "text", "options__json": "json", "vocab__txt": "text"})  # fmt: skip
def read_checkpoint(folder: Path) -> Iterator[Any]:
    from bilm import Predictor

    yield from read_scores(Predictor.from_pretrained(folder))


@add("facts of a training", make_checkpoint,
     **{f"{CHECKPOINT}index": "index", "options__json": "json", "vocab__txt": "text"})  # fmt: skip
def read_training_facts(folder: Path) -> Iterator[Any]:
    from bilm.files.model_files import open_model
    from bilm.use.description import describe_training

    with open_model(folder) as files:
        yield json.dumps(describe_training(files))


@add("dumped training", make_checkpoint,
     **{f"{CHECKPOINT}index": "index", f"{CHECKPOINT}data-00000-of-00001": "raw",
        "options__json": "json", "vocab__txt": "text"})  # fmt: skip
def read_dumped(folder: Path) -> Iterator[Any]:
    from bilm import Predictor, dump_weights

    dump_weights(folder, folder / "out.hdf5", with_softmax=True)
    yield from read_scores(Predictor.from_pretrained(folder / "out.hdf5"))


def make_softmax(folder: Path) -> None:
    from bilm import dump_weights

    (folder / "run").mkdir()
    make_checkpoint(folder / "run")
    dump_weights(folder / "run", folder / "weights.hdf5", with_softmax=True)


@add("weights with a softmax", make_softmax, weights__hdf5="hdf5", weights__options__json="json")
def read_softmax(folder: Path) -> Iterator[Any]:
    from bilm import Predictor

    yield from read_scores(Predictor.from_pretrained(folder / "weights.hdf5"))


RUN = {"precision": "float32", "schedule": {"kind": "constant", "warmup_steps": 0}}
HELDOUT = {"best": 9.5, "best_step": 3, "since_best": 0, "measured_at": 4, "n_predictions": 12}
STATE = {
    "corpus": 5, "seed": 0, "shuffle_on_load": True, "test": False, "worker": 0, "n_workers": 1,
    "batch_size": 2, "num_steps": 5, "shard": 1, "sentence": 2, "rows": [[0, 1, 2], None],
}  # fmt: skip


def make_record(folder: Path) -> None:
    record = {
        "step": 5, "done": 4, "batch_shape": [2, 5], "seconds": 1.5, "train_perplexity": 9.0,
        "seed": 0, "run": RUN | {"init_from": None}, "heldout": HELDOUT, "iterator_state": STATE,
    }  # fmt: skip
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")


@add("record of a checkpoint", make_record, record__json="json")
def read_run_record(folder: Path) -> Iterator[Any]:
    import tensorflow as tf

    from bilm.training.state import RECORD, read_run_state

    prefix = str(folder / "model.ckpt-5")
    content = (folder / "record.json").read_bytes()
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[RECORD], shape_and_slices=[""], tensors=[tf.constant(content)]
    )
    record = read_run_state(prefix)
    assert record is not None and record.step >= 0 and record.settings.seed >= 0
    yield repr(record)


# Files of vectors


def make_packed(folder: Path) -> None:
    import h5py

    vectors = np.random.default_rng(2).normal(size=(9, 2, 4)).astype(np.float32)
    with h5py.File(folder / "packed.hdf5", "w") as file:
        file["vectors"] = vectors
        file["offsets"], file["lines"] = [0, 4, 4, 9], [0, 1, 3]
        file["text"] = np.frombuffer("a b c d猫 b c d e".encode(), np.uint8)
        file["text_offsets"] = [0, 7, 7, 18]


@add("packed vectors", make_packed, packed__hdf5="hdf5")
def read_packed(folder: Path) -> Iterator[Any]:
    from bilm import InputError, PackedVectors

    with PackedVectors(folder / "packed.hdf5") as packed:
        assert len(packed) < 100
        for k in range(len(packed)):
            assert packed[k].ndim in (2, 3)
            yield np.nan_to_num(packed[k].astype(np.float64))
            yield packed.line(k)
        for k in range(len(packed)):
            try:
                yield packed.text(k)
            except InputError as error:
                assert "text" in str(error)


JOB = {"shape": [None, 4], "dtype": "float32", "model": "x"}


def add_rest(pieces: Any) -> None:
    from bilm.data.sentences import Sentence

    for line, text in list(enumerate(TEXT))[pieces.n_sentences :]:
        n = len(text.split())
        pieces.add(Sentence(line, text), n, np.full((n, 4), line, np.float32))
    pieces.save()


def make_partial(folder: Path) -> None:
    from bilm.jobs.job_folder import JobFolder
    from bilm.jobs.sentence_pieces import SentencePieces

    with JobFolder(folder / "out", JOB) as job:
        with SentencePieces(job.pieces, (None, 4), "float32", piece_bytes=1) as pieces:
            add_rest(pieces)
        os.replace(os.path.join(job.pieces, "000000.hdf5"), folder / "piece.hdf5")


@add("unfinished vectors", make_partial,
     **{"out.partial/job__json": "json", "piece__hdf5": "hdf5"})  # fmt: skip
def read_partial(folder: Path) -> Iterator[Any]:
    from bilm.jobs.job_folder import JobFolder
    from bilm.jobs.sentence_pieces import SentencePieces

    with JobFolder(folder / "out", JOB, resume=True) as job:
        shutil.copyfile(folder / "piece.hdf5", os.path.join(job.pieces, "000000.hdf5"))
        with SentencePieces(job.pieces, (None, 4), "float32") as pieces:
            for sentence, vectors in pieces:
                assert vectors.ndim == 2
                yield repr(sentence)


def make_occurrences(folder: Path) -> None:
    from tests.hand_made import two_senses

    two_senses(4).save(folder / "uses.npz")


@add("occurrences", make_occurrences, uses__npz="npz")
def read_occurrences(folder: Path) -> Iterator[Any]:
    from bilm.analysis import Occurrences

    found = Occurrences.load(folder / "uses.npz")
    yield found.vectors
    yield [found.in_context(k) for k in range(len(found))]
    yield repr((found.about, found.labels, found.sentences))
    if len(found):
        same, other = found.neighbours(0)
        yield [cosine for cosine, _ in (*same, *other)]


def make_static(folder: Path) -> None:
    rows = [f"{w} {k}.5 {-k} 1e-3 0.25" for k, w in enumerate(WORDS)]
    write_lines(folder / "w2v.txt", [f"{len(rows)} 4", *rows])
    write_lines(folder / "glove.txt", rows)
    (folder / "w2v.txt.gz").write_bytes(gzip.compress("\n".join(rows).encode(), mtime=0))
    numbers = b"".join(w.encode() + b" " + np.ones(4, "<f4").tobytes() + b"\n" for w in WORDS)
    (folder / "w2v.bin").write_bytes(f"{len(WORDS)} 4\n".encode() + numbers)


def read_static(name: str) -> Callable[[Path], Iterator[Any]]:
    def read(folder: Path) -> Iterator[Any]:
        from bilm.analysis import StaticVectors

        vectors = StaticVectors.load(folder / name)
        assert vectors.vectors.shape == (len(vectors.words), vectors.dim) and vectors.dim > 0
        yield vectors.vectors
        yield vectors.words
        yield [cosine for cosine, _ in vectors.nearest(vectors.words[0])]

    return read


for _name, _kind in (
    ("w2v.txt", "text"), ("glove.txt", "text"), ("w2v.txt.gz", "gz"), ("w2v.bin", "raw")
):  # fmt: skip
    add(f"static vectors {_name}", make_static, **{_name: _kind})(read_static(_name))


# Files of runs


def make_probe_file(folder: Path) -> None:
    from bilm.analysis import ProbeCell
    from bilm.analysis.probing import ProbeFile

    file = ProbeFile(folder / "probe.json", {"seed": 1})
    file.add(ProbeCell("layer 0", None, 0, 0.5, 0.25, 0.1))
    file.add(ProbeCell("mix", 10, 1, 0.5, 0.25, None, [0.5, 0.5], 1.5))


@add("results of probes", make_probe_file, probe__json="json")
def read_probe_file(folder: Path) -> Iterator[Any]:
    from bilm.analysis.probing import ProbeFile, mix_weights, summarised

    cells = ProbeFile(folder / "probe.json", {"seed": 1}).cells.values()
    summarised(cells, lambda cell: cell.accuracy)
    mix_weights(cells)
    yield repr(list(cells))


def make_log(folder: Path) -> None:
    line = {"step": 1, "tokens": 60, "train_perplexity": 30.5, "sampled": True, "seconds": 1.5}
    held = {"heldout_perplexity": 20.0, "heldout_forward": 19.0, "heldout_backward": 21.0}
    lines = [line | {"step": k, "tokens": 60 * k} for k in range(1, 13)]
    lines[4] |= held
    lines[9] |= held
    write_lines(folder / "train_log.jsonl", [json.dumps(line) for line in lines])


@add("log of a run", make_log, train_log__jsonl="text")
def read_run_log(folder: Path) -> Iterator[Any]:
    from bilm.cli.plot import draw
    from bilm.training.log import RunLog, read_log

    lines = read_log(folder)
    RunLog(folder).go_back(5)
    draw({"a": lines})
    yield repr(lines)


@add("line of a log", lambda folder: (folder / "a.json").write_text(
    '{"step": 1, "tokens": 60, "train_perplexity": 30.5, "heldout_perplexity": 20.0,'
    ' "heldout_forward": 19.0, "heldout_backward": 21.0, "sampled": true}') and None,
    a__json="json")  # fmt: skip
def read_log_line(folder: Path) -> Iterator[Any]:
    content = (folder / "a.json").read_bytes()
    (folder / "train_log.jsonl").write_bytes(content + b'\n{"step": 2, "tokens": 3}\n')
    return read_run_log(folder)


def make_cluster(folder: Path) -> None:
    value = {
        "cluster": {"chief": ["host:1"], "worker": ["host:2", "host:3"]},
        "task": {"type": "worker", "index": 1},
    }
    (folder / "TF_CONFIG.json").write_text(json.dumps(value), encoding="utf-8")


@add("TF_CONFIG", make_cluster, TF_CONFIG__json="json")
def read_cluster(folder: Path) -> Iterator[Any]:
    from bilm.training.replicas import find_worker

    text = (folder / "TF_CONFIG.json").read_bytes().decode("utf-8", "surrogateescape")
    worker = find_worker({"TF_CONFIG": text})
    assert 0 <= worker.index < worker.count
    yield repr(worker)


# Models of other programs


def make_many_langs(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        source = FIXTURES / "many_langs" / kind
        for path in source.iterdir():
            if path.name != "expected.json":
                shutil.copy(path, folder)
        with zipfile.ZipFile(folder / "144.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.glob("*.[jdp]*")):
                archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())

    return make


def read_many_langs(source: Path) -> Iterator[Any]:
    from bilm import ELMo
    from bilm.use.many_langs import convert_many_langs

    folder = source.parent if source.suffix == ".zip" else source
    made = (folder / "out.json", folder / "out.hdf5")
    convert_many_langs(source, made[1], made[0])
    for layers in ELMo.from_pretrained(made).encode(TEXT, "all"):
        assert layers.shape[2] == 16
        yield layers


for _kind, _pickle in (("words_legacy", "pickle"), ("characters_zip", "zip")):
    add(f"ELMoForManyLangs, {_kind}", make_many_langs(_kind), config__json="json",
        sizes__json="json", char__dic="text", encoder__pkl=_pickle, token_embedder__pkl=_pickle,
        **({"word__dic": "text"} if _pickle == "pickle" else {}))(read_many_langs)  # fmt: skip


@add("ZIP file of ELMoForManyLangs", make_many_langs("words_legacy"), **{"144__zip": "zip"})
def read_zipped_many_langs(folder: Path) -> Iterator[Any]:
    return read_many_langs(folder / "144.zip")


def make_keras(folder: Path) -> None:
    from bilm import ELMoEmbedding
    from bilm.core.keras_backend import keras

    make_model(folder)
    text = keras.Input((), dtype="string")
    model = keras.Model(text, ELMoEmbedding.from_pretrained(folder)(text))
    model.save(folder / "tagger.keras")


@add("saved Keras model", make_keras, tagger__keras="zip")
def read_keras(folder: Path) -> Iterator[Any]:
    from bilm.use.saved_model import read_mix

    mix = read_mix(folder / "tagger.keras")
    for variable in mix.weights:
        yield np.nan_to_num(variable.numpy())


# Faults on purpose, for the tests of the fuzzer itself


def _plant(name: str, read: Callable[[Path], Any]) -> None:
    def later(folder: Path) -> Iterator[Any]:
        yield read(folder)

    PLANTED[name] = Format({"options.json": "json"}, make_options, later)


def _fail(folder: Path) -> None:
    raise KeyError("from within")


def _loop(folder: Path) -> None:
    while True:
        pass


def _disclose(folder: Path) -> str:
    [secret] = folder.parent.glob("private/secret")
    return secret.read_text(encoding="utf-8")


_plant("planted error", _fail)
_plant("planted hang", _loop)
_plant("planted crash", lambda folder: os.abort())
_plant("planted disclosure", _disclose)
_plant("planted memory", lambda folder: len(bytearray(2**36)))
_plant("planted number", lambda folder: np.array([1.0, np.nan]))
_plant("planted process", lambda folder: os.system("true"))
