"""Report the quality of a model on one page, before it is used.

The model is measured on 1,000 sentences of held-out text. The report has the perplexity, compared
with the text's word frequencies and with a reference model, if the model has its softmax; the
amount of training, and whether more is likely to help; the cosines of each layer's vectors
(Ethayarajh 2019); and suspicious figures. --model may also be a training folder.

  bilm report heldout.txt --model elmo
  bilm report heldout.txt --model training-folder --out report.html
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bilm import analysis
from bilm.cli import flags, text_command
from bilm.cli.info import human_text
from bilm.core.errors import InputError
from bilm.files.reading import find_all_files
from bilm.files.writing import atomic_write
from bilm.progress import ProgressDisplay
from bilm.terminal import import_tensorflow, show

_FORMATS = (".txt", ".json", ".html")
_SENTENCES = 1000  # of the text, drawn at random


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(
        parser,
        {
            "text TEXT ...": text_command.TEXT,
            "--out FILE": "file to write: .txt, .json or .html (default: text on standard output)",
            **flags.FORCE,
        },
    )
    flags.add(parser, text_command.COLUMN)
    text_command.add_model(parser)


def run(args: argparse.Namespace) -> int:
    flags.model_source(args)
    ending = ".txt" if args.out is None else os.path.splitext(args.out)[1].lower()
    if ending not in _FORMATS:
        raise InputError(f"the name of a report must end in {', '.join(_FORMATS)}, got {args.out}.")
    flags.outputs(args, out=args.out)
    find_all_files(args.text)
    flags.require_inputs(args)
    sentences, counts = _read_text(args)
    import_tensorflow()
    report = _measure(args, sentences, counts)
    if args.out is None:
        show(report.as_text().splitlines())
        return 0
    content = report.as_html() if ending == ".html" else f"{report.as_text()}\n".encode()
    if ending == ".json":
        content = json.dumps(report.as_dict(), ensure_ascii=False, indent=1).encode() + b"\n"
    with atomic_write(args.out, overwrite=args.force) as temporary:
        Path(temporary).write_bytes(content)
    print(args.out)
    return 0


def _read_text(args: argparse.Namespace) -> tuple[list[tuple[str, ...]], Counter[str]]:
    """A sample of the sentences, and the frequencies of all words."""
    counts = Counter[str]()

    def counted(sentences: Iterator[list[str]]) -> Iterator[list[str]]:
        for tokens in sentences:
            counts.update([*tokens, "</S>"] if tokens else ())
            yield tokens

    with ProgressDisplay() as display:
        text = counted(text_command.read_tokens(args, display))
        return analysis.sample_sentences(text, _SENTENCES), counts


def _measure(
    args: argparse.Namespace, sentences: list[tuple[str, ...]], counts: Counter[str]
) -> analysis.Report:
    from bilm.analysis.description import describe
    from bilm.files.model_files import open_model
    from bilm.files.run_log import read_log
    from bilm.files.weights import WORD_COUNTS, open_weights
    from bilm.training.state import read_word_counts
    from bilm.training.verdict import comparable

    points: list[tuple[int, float]] = []
    with open_model(args.model) as files:
        facts = describe(files)
        if files.is_checkpoint:
            training_counts = read_word_counts(os.fspath(files.weights))
            with contextlib.suppress(FileNotFoundError, InputError):  # a missing or damaged log
                lines = read_log(os.path.dirname(files.weights))
                points = [(line["tokens"], line["heldout_perplexity"]) for line in lines
                          if line.get("heldout_perplexity") is not None]  # fmt: skip
        else:
            with open_weights(files.weights) as weights:
                training_counts = weights.text(WORD_COUNTS)
    model = text_command.load_model(args, softmax=files.is_checkpoint or None)
    text = ", ".join(args.text)
    text_command.warn_of_unseen(model, sentences, text)
    with ProgressDisplay() as display:
        return analysis.make_report(
            model.elmo,
            sentences,
            text,
            human_text(facts),
            predictor=model.predictor if model.has_softmax else None,
            counts=counts,
            training_counts=training_counts,
            trained=facts.get("training") or facts.get("trained"),
            measurements=comparable(points),
            progress=display.show,
        )
