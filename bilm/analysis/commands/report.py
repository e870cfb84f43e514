"""Say on one page whether a model is any good, before it is used.

Measures a model on a sample of a text that it was not trained on: perplexity by direction, if it
has its softmax, beside that of the words' ranks alone; how the vectors of each layer lie, by the
cosines of Ethayarajh (2019); some words in context and their neighbours; and what is suspicious, in
plain words. --model may be a training folder as well.

  bilm report heldout.txt --model elmo
  bilm report heldout.txt --model training-folder --out report.html
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.analysis.commands import word_job
from bilm.cli import flags, text_job
from bilm.cli.info import human_text
from bilm.cli.terminal import import_tensorflow
from bilm.core.errors import InputError
from bilm.files.reading import find_all_files
from bilm.files.writing import atomic_write
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis.report import Report
    from bilm.files.model_files import ModelSource
    from bilm.use.predictor import Predictor

_FORMATS = (".txt", ".json", ".html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "text TEXT ...": word_job.TEXT,
            "--out FILE": "file to write: .txt, .json or .html (default: text on standard output)",
            **flags.FORCE,
            "--sentences N>=2": "sentences that are drawn from the text and measured (default: "
            "1000)",
            "--words WORD ...": "words to show in context (default: chosen)",
            "--seed N>=0": "random seed (default: 0)",
        },
    )
    word_job.add_model(parser)
    parser.set_defaults(sentences=1000, seed=0)


def run(args: argparse.Namespace) -> int:
    source = flags.model_source(args)
    if args.out is not None:
        if os.path.splitext(args.out)[1] not in _FORMATS:
            raise InputError(
                f"{args.out}: a file name that ends in {', '.join(_FORMATS)} is expected."
            )
        flags.require_free(args, args.out)
    find_all_files(args.text)
    import_tensorflow()
    with _for_use(source) as usable:
        report = _measure(args, source, usable)
    content = _rendered(report, args.out)
    if args.out is None:
        print(content, end="")
        return 0
    with atomic_write(args.out) as temporary:
        Path(temporary).write_text(content, encoding="utf-8")
    print(args.out)
    return 0


@contextlib.contextmanager
def _for_use(source: ModelSource) -> Iterator[ModelSource]:
    """The model as weights; those of a training folder are dumped with the softmax, for a while."""
    from bilm.files.model_files import open_model
    from bilm.files.reading import OPTIONS_FILE, WEIGHTS_FILE
    from bilm.training import dump_weights

    with open_model(source) as files:
        is_checkpoint = files.is_checkpoint
    if not (is_checkpoint and os.path.isdir(os.fspath(source))):  # type: ignore[arg-type]
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        dump_weights(
            os.fspath(source),  # type: ignore[arg-type]
            os.path.join(folder, WEIGHTS_FILE),
            with_softmax=True,
            options_file=os.path.join(folder, OPTIONS_FILE),
        )
        yield folder


def _measure(args: argparse.Namespace, source: ModelSource, usable: ModelSource) -> Report:
    from bilm.analysis.occurrences import sample_sentences
    from bilm.analysis.report import make_report
    from bilm.files.model_files import open_model
    from bilm.use.description import describe_model, describe_training

    with open_model(source) as files:
        facts = describe_training(files) if files.is_checkpoint else describe_model(files)
    elmo = text_job.load_elmo(args, usable)
    with ProgressDisplay() as display:
        read = word_job.read_sentences(args.text, display)
        sentences = sample_sentences(read, args.sentences, seed=args.seed)
        return make_report(
            elmo,
            sentences,
            ", ".join(args.text),
            human_text(facts),
            predictor=_predictor(args, usable),
            words=args.words,
            seed=args.seed,
            progress=lambda doing, done, total: display.update(doing, done, total, "sentences"),
        )


def _predictor(args: argparse.Namespace, usable: ModelSource) -> Predictor | None:
    """The model with its softmax; None if it has none."""
    from bilm.files.hdf5 import dataset_shapes
    from bilm.files.model_files import open_model
    from bilm.files.weights import SOFTMAX_B
    from bilm.use.predictor import Predictor

    with open_model(usable) as files:
        if not files.is_checkpoint and SOFTMAX_B not in dataset_shapes(files.weights):
            return None
    return Predictor.from_pretrained(
        usable, vocab_file=args.vocab_file, precision=args.precision, warm_up=args.warm_up
    )


def _rendered(report: Report, path: str | None) -> str:
    if path is not None and path.endswith(".json"):
        return json.dumps(report.as_dict(), ensure_ascii=False, indent=1) + "\n"
    return report.as_html() if path is not None and path.endswith(".html") else report.as_text()
