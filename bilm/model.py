"""Use of a trained model: from ids to vectors, from text to vectors, and from files to files."""

from typing import Any

import numpy as np

from bilm.core.errors import InputError
from bilm.data.vocabulary import Vocabulary
from bilm.files.hdf5 import writing_hdf5
from bilm.files.reading import PathLike
from bilm.files.weights import MODEL, open_weights, write_words
from bilm.files.writing import Outputs
from bilm.inference.corpus_encoder import EncodedWords
from bilm.use.bidirectional import BidirectionalLanguageModel
from bilm.use.elmo import ELMo
from bilm.use.elmo_embedding import ELMoEmbedding
from bilm.vectors.embedding import embed_file
from bilm.vectors.vector_files import as_dtype

__all__ = [
    "BidirectionalLanguageModel",
    "ELMoEmbedding",
    "dump_bilm_embeddings",
    "dump_token_embeddings",
]

_WORDS_AT_ONCE = 2048


def dump_token_embeddings(
    vocab_file: PathLike,
    options_file: PathLike,
    weight_file: PathLike,
    outfile: PathLike,
    *,
    overwrite: bool = True,
) -> None:
    """Encode every word of a vocabulary from its characters and write the vectors.

    The result is a token cache: `BidirectionalLanguageModel(..., use_character_inputs=False,
    embedding_weight_file=outfile)` reads it.

    Args:
        vocab_file: one word per line, with <S>, </S> and <UNK>.
        options_file: options.json of a model with character input.
        weight_file: its HDF5 weights.
        outfile: the HDF5 file to write: dataset `embedding` float32 (words, projection_dim) in the
            order of the vocabulary; the words, `vocabulary/words`, and the attribute `model`, the
            model's fingerprint, which other programs ignore.
        overwrite: False raises an InputError if `outfile` exists.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not valid, the model is word-level, or `outfile` is one of the inputs.
    """
    inputs = {"vocab_file": vocab_file, "options_file": options_file, "weight_file": weight_file}
    outputs = Outputs([outfile], inputs=inputs, overwrite=overwrite)
    elmo = ELMo.from_pretrained((options_file, weight_file), vocab_file=vocab_file)
    if elmo.options.max_word_length is None:
        raise InputError(
            f"{options_file}: char_cnn is missing: the weights of a word-level model already hold "
            "the vectors of its words."
        )
    words = Vocabulary(vocab_file).words
    encoder = EncodedWords(elmo.network, elmo.word_ids)
    with outputs.temporaries() as (temporary,), writing_hdf5(temporary) as file:
        shape = (len(words), elmo.options.lstm.projection_dim)
        embedding = file.create_dataset("embedding", shape, np.float32)
        for start in range(0, len(words), _WORDS_AT_ONCE):
            part = words[start : start + _WORDS_AT_ONCE]
            vectors = np.empty((len(part), shape[1]), np.float32)
            encoder.encode(part, vectors)
            embedding[start : start + len(part)] = as_dtype(vectors, "float32", f"{vocab_file}")
        write_words(file, words)
        with open_weights(weight_file) as weights:
            file.attrs[MODEL] = weights.fingerprint


def dump_bilm_embeddings(
    vocab_file: PathLike,
    dataset_file: PathLike,
    options_file: PathLike,
    weight_file: PathLike,
    outfile: PathLike,
    *,
    precision: str = "float32",
    overwrite: bool = True,
) -> None:
    """Write all layers of each sentence of a text file, computed separately for each sentence.

    Args:
        vocab_file: one word per line, with <S>, </S> and <UNK>. With character input it is only
            checked.
        dataset_file: one sentence per line, words separated by white space; plain or compressed.
        options_file: options.json of the model.
        weight_file: its HDF5 weights.
        outfile: the HDF5 file to write. Dataset str(0-based line number): float32 (n_layers + 1,
            words, 2 * projection_dim); an empty line has no words.
        precision: "float32", or "bfloat16" for matmuls in bfloat16.
        overwrite: False raises an InputError if `outfile` exists.

    Raises:
        FileNotFoundError: a file does not exist.
        InputError: a file is not valid, or `outfile` is one of the inputs.
    """
    inputs = {"vocab_file": vocab_file, "dataset_file": dataset_file,
              "options_file": options_file, "weight_file": weight_file}  # fmt: skip
    Outputs([outfile], inputs=inputs, overwrite=overwrite)
    Vocabulary(vocab_file)  # checked even if the model does not use it
    elmo = ELMo.from_pretrained(
        (options_file, weight_file), vocab_file=vocab_file, precision=precision
    )
    settings: dict[str, Any] = {"format": "hdf5", "with_text": False, "tokenizer": "spaces"}
    embed_file(dataset_file, outfile, elmo, layers="all", force=overwrite, **settings)
