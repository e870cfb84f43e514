"""Export from a training folder: weights, options, and the softmax with its vocabulary."""

import os

from bilm.core.errors import InputError, one_of, require
from bilm.core.language_model import LanguageModel
from bilm.core.network import build_network
from bilm.core.options import Options
from bilm.data.vocabulary import run_vocabulary
from bilm.files.checkpoints import (
    load_options_latest_checkpoint,
    names_beside,
    read_checkpoint,
    read_step,
    run_files,
)
from bilm.files.reading import OPTIONS_FILE, PathLike
from bilm.files.weights import (
    WORD_COUNTS,
    named_states,
    save_hdf5,
    weight_table,
    with_softmax_datasets,
)
from bilm.files.writing import Outputs, fill_json
from bilm.training.state import load_mean_states, read_state, read_word_counts


def dump_weights(
    tf_save_dir: PathLike,
    outfile: PathLike,
    *,
    with_softmax: bool = False,
    with_states: bool = False,
    vocab_file: PathLike | None = None,
    options_file: PathLike | None = None,
    words_file: PathLike | None = None,
    overwrite: bool = True,
    dtype: str = "float32",
    softmax_dtype: str | None = None,
) -> None:
    """Write the weights of a folder's newest checkpoint in the published HDF5 format.

    The options for inference are written next to the weights.

    Args:
        tf_save_dir: a training folder, ours or the original's.
        outfile: the HDF5 file to write.
        with_softmax: also write the softmax and its vocabulary: `softmax/W` float32 (words,
            projection_dim), unless it is tied to `embedding`; `softmax/b` (words,);
            `vocabulary/words`, text; and `vocabulary/counts` int64 (words,), occurrences at the
            beginning of the training text. Readers of published files ignore these groups.
        with_states: also write the mean LSTM states of training, `states/...` float32 (1, ...),
            for a model that was trained without resets. This package's readers start sentences
            from them, other readers from zeros.
        vocab_file: the words of the softmax, the same as in the folder's vocab.txt if it exists;
            None: that file.
        options_file: None writes `weights.options.json` next to `weights.hdf5`.
        words_file: also write the words, one per line; None: do not.
        overwrite: False raises an InputError if a file exists.
        dtype: "float32", or "float16" for files of half the size.
        softmax_dtype: dtype of the softmax, by default `dtype`; "int8" stores each row of its
            matrix as integers with one factor, `softmax/W_scales` float32 (words,).

    Raises:
        FileNotFoundError, InputError: see `load_options_latest_checkpoint`; or the checkpoint
            does not fit the options, or lacks LSTM states; or a training file would be overwritten;
            or the vocabulary is missing or does not fit the softmax; or `softmax_dtype` is given
            without a separate softmax.
    """
    require(one_of(("float32", "float16")), dtype=dtype)
    require(one_of((None, "float32", "float16", "int8")), softmax_dtype=softmax_dtype)
    contents, ckpt_file = load_options_latest_checkpoint(tf_save_dir)
    options_source = os.path.join(tf_save_dir, OPTIONS_FILE)
    options = Options.from_dict(contents, True, options_source)
    if options_file is None:
        options_file = os.path.splitext(os.fspath(outfile))[0] + ".options.json"
    if softmax_dtype is not None and (not with_softmax or options.share_embedding_softmax):
        raise InputError(
            "softmax_dtype requires a separate softmax, but it "
            + ("is tied to the embedding." if with_softmax else "is not written.")
        )
    inputs = {"tf_save_dir": run_files(tf_save_dir), "vocab_file": vocab_file}
    outputs = Outputs([outfile, options_file, words_file], inputs=inputs, overwrite=overwrite)
    words = None
    if with_softmax or words_file is not None:
        vocabulary = run_vocabulary(tf_save_dir, vocab_file)
        words = vocabulary.words
        if vocabulary.size != options.n_tokens_vocab:
            raise InputError(
                f"{vocabulary.source} must have {options.n_tokens_vocab} words, like the softmax "
                f"of {os.fspath(tf_save_dir)}, got {vocabulary.size}."
            )
    if with_softmax:
        model = LanguageModel(options, is_training=False, seed=None)
        network, table = model.network, with_softmax_datasets(weight_table(model))
    else:
        n_tokens = options.n_tokens_vocab if options.char_cnn is None else None
        network = build_network(options, n_tokens)
        table = weight_table(network)
    shapes = {weight.checkpoint: tuple(weight.variable.shape) for weight in table}
    values = read_checkpoint(ckpt_file, shapes, [*names_beside(table), "lm/softmax/"])
    datasets = {w.dataset: values[w.checkpoint] for w in table if w.dataset}
    if with_states:
        states = load_mean_states(ckpt_file, network.zero_states)
        if states is None:
            raise InputError(
                f"{ckpt_file}: with_states: the checkpoint lacks LSTM states, as the original "
                "program's checkpoints do."
            )
        datasets |= {name: value.numpy() for name, value in named_states(states).items()}
    state = read_state(ckpt_file)
    training = {
        "steps": read_step(ckpt_file),
        "tokens": state and state.tokens,
        "passes": state and state.passes,
        "n_train_tokens": options.n_train_tokens,
        "n_tokens_vocab": options.n_tokens_vocab,
        "reset_rate": options.reset_rate,
    }
    counts = read_word_counts(ckpt_file) if with_softmax else None
    texts = {} if counts is None else {WORD_COUNTS: counts}
    with outputs.temporaries() as (weights, *others):
        softmax_words = words if with_softmax else None
        save_hdf5(weights, datasets, softmax_words, texts, training, dtype, softmax_dtype)
        fill_json(others[0], options.inference_dict())
        for path in others[1:]:
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\n" for word in words or ())
