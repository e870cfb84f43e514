"""Draw the occurrences of words, layer by layer, in two dimensions.

WORD is one word or several; without one, what --occurrences or --labels has is drawn. The ending
of --out says what is written:

  .html    one page that works offline: point at a dot to read its sentence and its nearest
           neighbours; draw a rectangle or search to see the lines; enlarge a layer
  .png     a picture; .svg one that can be scaled
  FOLDER/  a folder that TensorBoard's Embedding Projector shows

Needs the packages scikit-learn, altair and vl-convert-python (the folder does without).

  bilm project bank --model elmo --text text.txt --out bank.html
  bilm project bank spring --model elmo --text "text/*.txt" --method tsne --out both.png
  bilm project --labels uses.tsv --model elmo --layer top --out senses.svg
  bilm project bank --model elmo --text text.txt --out bank-vectors/
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from bilm.analysis.commands import word_job
from bilm.cli import flags
from bilm.cli.terminal import note
from bilm.core.errors import InputError
from bilm.progress import ProgressDisplay

if TYPE_CHECKING:
    from bilm.analysis import Occurrences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"words WORD": "words whose occurrences are drawn"}, nargs="*")
    word_job.add_model(parser)
    word_job.add_occurrences(parser)
    labels = "instead of --text: label, tab, sentence with one [word] a line; drawn in colours"
    flags.add(parser, {"--labels FILE": labels})
    group = parser.add_argument_group("picture")
    out = "picture to write: .html, .png or .svg; or a folder, with / at its end"
    flags.add(group, {"--out FILE": out}, required=True)
    flags.add(
        group,
        {
            **flags.FORCE,
            "--method pca|tsne": "pca keeps large distances, tsne neighbours; tsne takes longer "
            "(default: pca)",
            "--perplexity X": "of tsne: neighbours that each occurrence has, about (default: 30, "
            "or a third of the occurrences)",
            "--colour word|label": "what colours tell apart (default: labels where there are any, "
            "else words)",
            "--title TEXT": "title (default: the words)",
            "--n_threads N": "threads of tsne; more are slower on a machine that is busy (default: "
            "1)",
        },
    )
    layer = "draw one layer only: a number from 0, or top (default: all)"
    flags.add(group, {"--layer LAYER": layer}, type=word_job.layer_or("top"))
    parser.set_defaults(method="pca", n_threads=1)


def run(args: argparse.Namespace) -> int:
    is_folder = args.out.endswith(("/", os.sep)) or os.path.isdir(args.out)
    if args.method != "tsne" and args.perplexity is not None:
        flags.usage_error(args, "--perplexity goes with --method tsne")
    if args.colour == "label" and args.text is not None:
        flags.usage_error(args, "--colour label goes with --labels")
    _check_output(args, is_folder)
    occurrences = _occurrences(args)
    layers = None if args.layer is None else [args.layer]
    try:
        write = _write_folder if is_folder else _draw
        write(args, occurrences, layers)
    except KeyboardInterrupt:
        if args.occurrences is None:
            raise
        raise KeyboardInterrupt(
            f"{args.occurrences} has the vectors: the same command continues from it."
        ) from None
    print(args.out)
    return 0


def _check_output(args: argparse.Namespace, is_folder: bool) -> None:
    """What is known to go wrong, before work that takes long."""
    from bilm.analysis import picture_ending
    from bilm.extras import import_extra

    if is_folder:
        if os.path.isdir(args.out) and os.listdir(args.out) and not args.force:
            raise InputError(f"{args.out} would be overwritten: --force allows it.")
        return
    picture_ending(args.out)
    flags.require_free(args, args.out)
    for module in ("altair", "vl_convert", "sklearn"):
        import_extra(module, "bilm project")


def _occurrences(args: argparse.Namespace) -> Occurrences:
    if args.labels is not None:
        if args.text is not None or args.words:
            flags.usage_error(args, "--labels has the sentences and the words")
        from bilm.analysis import read_labelled_uses

        uses = read_labelled_uses(args.labels)
        elmo = word_job.load_elmo(args)
        with ProgressDisplay() as display:
            return word_job.encode(elmo, uses, display, args.occurrences)
    if not args.words and (args.text is not None or args.occurrences is None):
        flags.usage_error(args, "name at least one WORD")
    return word_job.load_occurrences(args, args.words or None)


def _write_folder(
    args: argparse.Namespace, occurrences: Occurrences, layers: list[int | str] | None
) -> None:
    from bilm.analysis import write_projector

    write_projector(args.out, occurrences, layers=layers, replace=args.force)


def _draw(
    args: argparse.Namespace, occurrences: Occurrences, layers: list[int | str] | None
) -> None:
    from bilm.analysis import project, write_picture

    with ProgressDisplay() as display:
        projection = project(
            occurrences,
            args.method,
            layers=layers,
            perplexity=args.perplexity,
            seed=args.seed,
            n_threads=args.n_threads,
            progress=lambda done, total: display.update("projecting", done, total, "layers"),
        )
    size = write_picture(args.out, occurrences, projection, title=args.title, colour=args.colour)
    slow = slow_page(args.out, size)
    if slow is not None:
        note(slow)


def slow_page(path: str, size: int) -> str | None:
    """A warning if a picture is a page of so many bytes that browsers are slow with it."""
    from bilm.analysis import LARGE_PAGE

    if not path.lower().endswith(".html") or size <= LARGE_PAGE:
        return None
    return (
        f"{path}: {size / 1e6:.0f} MB, with which browsers are slow: --max_occurrences makes it "
        "smaller."
    )
