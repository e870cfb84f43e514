"""Draw the occurrences of words, layer by layer, in two dimensions.

The occurrences come from WORDs in --text, from --labels, or from --occurrences. Colours show the
clusters saved by `bilm senses --occurrences`; without them, up to three words are clustered as in
`bilm senses`. Layer 0 does not depend on the context and is drawn only with --layer 0. The ending
of --out sets the format:

  .html    one page that works offline: typical sentences of each cluster, a
           search, and for each dot its sentence and nearest neighbours
  .png     a picture; .svg for a scalable one

Requires scikit-learn for pictures, and matplotlib for .png and .svg.

  bilm senses bank --model elmo --text text.txt --occurrences bank.npz
  bilm project --occurrences bank.npz --out bank.html
  bilm project bank spring --model elmo --text "text/*.txt" \\
      --method tsne --out both.png
  bilm project --labels labelled.tsv --model elmo --layer top --out senses.svg
"""

from __future__ import annotations

import argparse

from bilm import analysis
from bilm.cli import flags, word_command
from bilm.extras import import_extra
from bilm.progress import ProgressDisplay
from bilm.terminal import note

_LARGE_PAGE = 10_000_000  # bytes; a larger page is slow in a browser

_MOST_CLUSTERED = 3  # words; more are coloured by word


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, {"words WORD": "words to draw"}, nargs="*")
    word_command.add_model(parser)
    word_command.add_occurrences(parser)
    flags.add(parser, {"--labels FILE": word_command.LABELS})
    group = parser.add_argument_group("picture")
    flags.add(group, {"--out FILE": "picture to write: .html, .png or .svg"}, required=True)
    flags.add(
        group,
        {
            **flags.FORCE,
            "--method pca|tsne": "pca preserves large distances, tsne neighbourhoods; tsne is "
            "slower (default: pca)",
            "--colour label|cluster|word": "property shown by colours (default: the first one that "
            "the occurrences have)",
        },
    )
    layer = "draw only this layer: a number, or top (default: all but layer 0)"
    word_command.add_layer(group, layer, "top")
    parser.set_defaults(method="pca")


def run(args: argparse.Namespace) -> int:
    if args.text is not None and args.colour == "label":
        flags.usage_error(args, "--colour label requires --labels")
    if args.labels is not None and (args.text is not None or args.words):
        flags.usage_error(args, "--labels replaces --text and WORD")
    if not args.words and args.labels is None and (args.text is not None or not args.occurrences):
        flags.usage_error(args, "name at least one WORD")
    if args.text is None and args.labels is None:
        needs = "--text or --labels, whose vectors it computes"
        flags.require_effect(args, needs, "model")
    is_page = analysis.picture_ending(args.out) == ".html"
    flags.outputs(args, out=args.out, updated=["occurrences"])
    for module in ("sklearn",) if is_page else ("sklearn", "matplotlib"):
        import_extra(module, "bilm project")
    uses = word_command.read_uses(args, word_command.distinct(args, args.words))
    occurrences = word_command.with_vectors(args, uses)
    layers = None if args.layer is None else [args.layer]
    _draw(args, occurrences, layers)
    print(args.out)
    return 0


def _draw(
    args: argparse.Namespace,
    occurrences: analysis.Occurrences,
    layers: list[int | str] | None,
) -> None:
    is_clustered = args.colour == "cluster"
    if args.colour is None and occurrences.labels is None:
        is_clustered = len(set(occurrences.names)) <= _MOST_CLUSTERED
    if occurrences.clusters is None and is_clustered:
        occurrences = analysis.with_clusters(occurrences)
    with ProgressDisplay() as display:
        projection = analysis.project(
            occurrences,
            layers=layers,
            progress=display.show,
            **flags.keywords(args, "method", "seed"),
        )
    size = analysis.write_picture(args.out, occurrences, projection, colour=args.colour)
    if args.out.lower().endswith(".html") and size > _LARGE_PAGE:
        note(
            f"{args.out} has {size / 1e6:.0f} MB, slow in a browser: --max_occurrences makes it "
            "smaller."
        )
