"""Compare ELMo with transformer encoders on the CPU: speed, memory and size.

    python -m benchmarks.transformers_on_cpu --corpus FILE [--model NAME]

Needs torch, transformers and tokenizers, which bilm itself does not use. The transformers have
random weights of the published shapes, because speed, memory and size do not depend on values.
Each measurement runs in its own process, and turns the same sentences from strings into NumPy
arrays.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, measure_product, peak
from benchmarks.workspace import Workspace
from bilm.files.reading import read_lines

_PRECISIONS = ("float32", "bfloat16")
# Hidden size, layers, attention heads, and units of the feed-forward layers.
_TRANSFORMERS = {
    "MiniLM-L6": (384, 6, 12, 1536),
    "DistilBERT": (768, 6, 12, 3072),
    "BERT-base": (768, 12, 12, 3072),
}
_RANDOM_ELMO = ("small", "original")
_PIECES = 30_522  # vocabulary size of the published transformers
_BATCH = 32  # sentences of similar length per transformer batch
_THREADS = 2
_N_TOKENS, _N_FIRST, _N_SINGLE = 20_000, 4_000, 40

Sentences = Sequence[list[str]]
Encode = Callable[[Sentences], list[Any]]


def main() -> int:
    """Run the command; print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transformers_on_cpu")
    parser.add_argument("--corpus", type=Path, required=True, metavar="FILE")
    parser.add_argument("--model", default="english", metavar="NAME", help="a shipped model")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder), args.corpus.resolve())
        tokenizer = Path(folder, "wordpiece.json")
        n_pieces = _learn_wordpiece(workspace, tokenizer)
        machine = describe_machine()
        products = {precision: _apart(measure_product, precision) for precision in _PRECISIONS}
        speeds = ", ".join(f"{products[p]:.0f} GFLOP/s in {p}" for p in _PRECISIONS)
        print(
            f"{machine['processor']}, {_THREADS} threads; matmul: {speeds}; "
            f"{n_pieces:.2f} word pieces per word\n"
        )
        print("| model | precision | words/s | one sentence | memory | size on disk |")
        print("|---|---|---|---|---|---|")
        names = (args.model, *_RANDOM_ELMO, *_TRANSFORMERS)
        for name, precision in itertools.product(names, _PRECISIONS):
            print(f"{name}, {precision}", file=sys.stderr)
            if name in _TRANSFORMERS:
                result = _apart(_measure_transformer, name, precision, workspace, tokenizer)
            else:
                result = _apart(_measure_elmo, name, precision, workspace)
            speed, one, memory, disk = result
            row = f"{speed:,.0f} | {one:.1f} ms | {memory:,.0f} MB | {disk:,.0f} MB"
            print(f"| {name} | {precision} | {row} |", flush=True)
    return 0


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _texts(workspace: Workspace) -> tuple[Sentences, Sentences, Sentences]:
    """Sentences to start with, sentences to time, and single sentences of 20 words."""
    lines = (line.split() for line in read_lines(workspace.text(2 * _N_TOKENS).path))
    sentences = [line for line in lines if line]
    first, rest = _split(sentences, _N_FIRST)
    timed, rest = _split(rest, _N_TOKENS)
    words = itertools.chain.from_iterable(rest)
    return first, timed, [list(itertools.islice(words, 20)) for _ in range(_N_SINGLE)]


def _split(sentences: Sentences, n_tokens: int) -> tuple[Sentences, Sentences]:
    counts = itertools.accumulate(map(len, sentences))
    end = sum(count <= n_tokens for count in counts)
    return sentences[:end], sentences[end:]


def _time(encode: Encode, workspace: Workspace) -> tuple[float, float, float]:
    """Words per second, median milliseconds for one sentence of 20 words not read before, and peak
    memory of the process in MB."""
    first, timed, single = _texts(workspace)
    encode(first)
    start = time.perf_counter()
    encode(timed)
    seconds = time.perf_counter() - start
    ones = []
    for sentence in single:
        start = time.perf_counter()
        encode([sentence])
        ones.append(time.perf_counter() - start)
    n_words = sum(map(len, timed))
    one = 1000 * statistics.median(ones[len(ones) // 4 :])
    return n_words / seconds, one, peak() / 1e6


def _measure_elmo(name: str, precision: str, workspace: Workspace) -> tuple[float, ...]:
    import tensorflow as tf

    from bilm import ELMo
    from bilm.files.model_files import local_source

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS)
    if name in _RANDOM_ELMO:
        _, options, weights = workspace.network(name)
        elmo = ELMo.from_pretrained((str(options), str(weights)), precision=precision)
        files: Iterator[Path] = iter((options, weights))
    else:
        elmo = ELMo.from_pretrained(name, precision=precision)
        files = Path(local_source(name)).iterdir()
    disk = sum(file.stat().st_size for file in files) / 1e6
    return *_time(elmo.encode, workspace), disk


def _measure_transformer(
    name: str, precision: str, workspace: Workspace, tokenizer_file: Path
) -> tuple[float, ...]:
    import torch
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    torch.set_num_threads(_THREADS)
    size, layers, heads, units = _TRANSFORMERS[name]
    network: Any
    if name == "DistilBERT":
        shape = DistilBertConfig(dim=size, n_layers=layers, n_heads=heads, hidden_dim=units)
        network = DistilBertModel(shape)
    else:
        config = BertConfig(
            hidden_size=size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=units,
        )
        network = BertModel(config, add_pooling_layer=False)
    parameters = sum(p.numel() for p in network.parameters())
    dtype = getattr(torch, precision)
    network = network.to(dtype).eval()
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(512)

    def encode(sentences: Sentences) -> list[Any]:
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        vectors: list[Any] = [None] * len(sentences)
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                rows = tokenizer.encode_batch([sentences[i] for i in batch], is_pretokenized=True)
                ids = torch.tensor([row.ids for row in rows])
                mask = torch.tensor([row.attention_mask for row in rows])
                output = network(input_ids=ids, attention_mask=mask).last_hidden_state
                for i, row in zip(batch, output.float().numpy(), strict=True):
                    vectors[i] = row
        return vectors

    return *_time(encode, workspace), parameters * dtype.itemsize / 1e6


def _learn_wordpiece(workspace: Workspace, path: Path) -> float:
    """Learn BERT's kind of vocabulary from the corpus; return pieces per word of the timed text."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer()
    tokenizer.train([str(workspace.corpus)], vocab_size=_PIECES, show_progress=False)
    tokenizer.save(str(path))
    _, timed, _ = _texts(workspace)
    rows = tokenizer.encode_batch(list(timed), is_pretokenized=True, add_special_tokens=False)
    return sum(len(row.ids) for row in rows) / sum(map(len, timed))


if __name__ == "__main__":
    sys.exit(main())
