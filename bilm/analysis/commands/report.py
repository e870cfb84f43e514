"""Report the quality of a model on one page, before it is used.

The model is measured on a sample of held-out text. The report has its perplexity, if it has its
softmax, compared with word frequencies alone and with reference models; how much it was trained,
and whether more training is likely to help; the cosines of each layer's vectors (Ethayarajh 2019);
words in context and their neighbours; and suspicious figures. --model may also be a training
folder.

  bilm report heldout.txt --model elmo
  bilm report heldout.txt --model training-folder --out report.html
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bilm import analysis
from bilm.analysis.commands import word_job
from bilm.cli import flags, text_job
from bilm.cli.info import human_text
from bilm.cli.terminal import import_tensorflow, show
from bilm.core.errors import InputError
from bilm.files.reading import find_all_files
from bilm.files.writing import atomic_write
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.files.model_files import ModelSource

_FORMATS = (".txt", ".json", ".html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "text TEXT ...": word_job.TEXT,
            "--out FILE": "file to write: .txt, .json or .html (default: text on standard output)",
            **flags.FORCE,
            "--sentences N>=2": "sentences sampled from the text (default: 1000)",
            "--words WORD ...": "words to show in context (default: frequent ones)",
            "--seed N>=0": "random seed (default: 0)",
        },
    )
    word_job.add_model(parser)
    flags.add(parser, flags.SOFTMAX)
    parser.set_defaults(sentences=1000, seed=0)


def run(args: argparse.Namespace) -> int:
    source = flags.model_source(args)
    ending = ".txt" if args.out is None else os.path.splitext(args.out)[1]
    if ending not in _FORMATS:
        raise InputError(f"the name of a report must end in {', '.join(_FORMATS)}, got {args.out}.")
    flags.require_free(args, args.out)
    find_all_files(args.text)
    flags.require_inputs(args)
    import_tensorflow()
    with _with_weights(args, source) as usable:
        report = _measure(args, source, usable)
    if args.out is None:
        show(report.as_text().splitlines())
        return 0
    content = report.as_html() if ending == ".html" else f"{report.as_text()}\n".encode()
    if ending == ".json":
        content = json.dumps(report.as_dict(), ensure_ascii=False, indent=1).encode() + b"\n"
    with atomic_write(args.out) as temporary:
        Path(temporary).write_bytes(content)
    print(args.out)
    return 0


@contextlib.contextmanager
def _with_weights(args: argparse.Namespace, source: ModelSource) -> Iterator[ModelSource]:
    """The model as weights; a training folder is dumped to a temporary folder."""
    from bilm.files.model_files import open_model
    from bilm.files.reading import OPTIONS_FILE, WEIGHTS_FILE
    from bilm.training import dump_weights

    with open_model(source) as files:
        is_checkpoint = files.is_checkpoint
    if not (is_checkpoint and isinstance(source, str) and os.path.isdir(source)):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="bilm-") as folder:
        dump_weights(
            source,
            os.path.join(folder, WEIGHTS_FILE),
            with_softmax=True,
            vocab_file=args.vocab_file,
            options_file=os.path.join(folder, OPTIONS_FILE),
        )
        yield folder


def _measure(args: argparse.Namespace, source: ModelSource, usable: ModelSource) -> analysis.Report:
    from bilm.files.model_files import open_model
    from bilm.training.log import read_log
    from bilm.use.description import describe_model, describe_training

    with open_model(source) as files:
        facts = describe_training(files) if files.is_checkpoint else describe_model(files)
    measurements: list[float] = []
    if isinstance(source, str) and facts["kind"] == "training":
        with contextlib.suppress(FileNotFoundError, InputError):  # a missing or damaged log
            found = [line.get("heldout_perplexity") for line in read_log(source)]
            measurements = [value for value in found if value is not None]
    elmo = text_job.load_elmo(args, usable)
    counts = Counter[str]()

    def counted(sentences: Iterator[list[str]]) -> Iterator[list[str]]:
        for tokens in sentences:
            counts.update([*tokens, "</S>"] if tokens else ())
            yield tokens

    with ProgressDisplay() as display:
        read = counted(word_job.read_sentences(args.text, display))
        sentences = analysis.sample_sentences(read, args.sentences, seed=args.seed)
        return analysis.make_report(
            elmo,
            sentences,
            ", ".join(args.text),
            human_text(facts),
            predictor=word_job.predictor_of(text_job.pretrained(args, usable)),
            counts=counts,
            trained=facts.get("training") or facts.get("trained"),
            measurements=measurements,
            words=args.words,
            seed=args.seed,
            progress=lambda doing, done, total: display.update(doing, done, total, "sentences"),
        )
